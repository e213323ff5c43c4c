//! Breakpoints of all kinds. In: what an editor wants in a file, at functions, instructions, exceptions, data. Out: the
//! debugger's breakpoints and watchpoints, and which of them could be set where.

use std::collections::{BTreeMap, HashMap};

use clew_debugger::{
    Breakpoint, BreakpointId, Spot, Stop, StopReason, Touch, Wanted, WatchpointId,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::printing::Print;
use crate::session::{Answer, Failed, Open, arguments};
use crate::wire::Request;

/// Watchpoints have numbers of their own; editors want one row of numbers.
const DATA: u64 = 1 << 32;

pub fn data_id(id: WatchpointId) -> u64 {
    DATA + u64::from(id)
}

#[derive(Default)]
pub struct Stops {
    /// By the path that the editor says.
    files: BTreeMap<String, Vec<BreakpointId>>,
    functions: Vec<BreakpointId>,
    instructions: Vec<BreakpointId>,
    exceptions: Vec<BreakpointId>,
    /// What prints rather than stops.
    prints: HashMap<BreakpointId, Print>,
    /// Those of them that haven't printed yet.
    pub unprinted: Vec<(BreakpointId, Print)>,
    /// Which hits count.
    counts: HashMap<BreakpointId, Count>,
    /// What `gotoTargets` told.
    pub targets: Vec<Spot>,
    /// What `stepInTargets` told: where functions begin.
    pub callees: Vec<u64>,
}

impl Stops {
    pub fn is_exception(&self, id: BreakpointId) -> bool {
        self.exceptions.contains(&id)
    }
}

#[derive(Deserialize)]
pub struct Source {
    pub path: Option<String>,
    pub name: Option<String>,
}

#[derive(Deserialize)]
pub struct SourceLine {
    pub source: Source,
    pub line: u32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked {
    line: u32,
    name: String,
    instruction_reference: String,
    offset: i64,
    condition: Option<String>,
    hit_condition: Option<String>,
    log_message: Option<String>,
    data_id: String,
    access_type: Option<String>,
}

#[derive(Deserialize)]
struct SetBreakpoints {
    source: Source,
    #[serde(default)]
    breakpoints: Vec<Asked>,
}

#[derive(Deserialize)]
struct SetOthers {
    #[serde(default)]
    breakpoints: Vec<Asked>,
}

#[derive(Deserialize)]
struct SetExceptions {
    #[serde(default)]
    filters: Vec<String>,
}

/// Which hits of a breakpoint count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exactly(u64),
    From(u64),
    Every(u64),
}

impl Count {
    /// `5`, `== 5`, `>= 5`, `> 5`, `% 5`.
    fn read(text: &str) -> Result<Count, Failed> {
        let text = text.trim();
        let digits = text
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(text.len());
        let (sign, number) = text.split_at(digits);
        let number = number.trim().parse::<u64>();
        match (sign.trim(), number) {
            ("" | ">=", Ok(n)) => Ok(Count::From(n)),
            ("=" | "==", Ok(n)) => Ok(Count::Exactly(n)),
            (">", Ok(n)) => Ok(Count::From(n.saturating_add(1))),
            ("%", Ok(n)) if n > 0 => Ok(Count::Every(n)),
            _ => Err(Failed::Because(format!(
                "{text:?} is no hit condition; write N, == N, > N, >= N or % N"
            ))),
        }
    }

    pub fn counts(self, hit: u64) -> bool {
        match self {
            Count::Exactly(n) => hit == n,
            Count::From(n) => hit >= n,
            Count::Every(n) => hit.is_multiple_of(n),
        }
    }
}

/// A line of a file, by ever shorter ends of its path: the program may have been compiled elsewhere.
pub struct Spots {
    path: String,
    pub line: u32,
}

impl Spots {
    pub fn of(path: Option<&str>, line: u32) -> Result<Spots, Failed> {
        match path {
            Some(path) => Ok(Spots {
                path: path.into(),
                line,
            }),
            None => Err("which file? a source needs its path".into()),
        }
    }

    fn all(&self) -> impl Iterator<Item = Spot> + '_ {
        let ends = self.path.match_indices('/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(ends).map(|from| Spot::Line {
            file: self.path[from..].into(),
            line: self.line,
        })
    }
}

pub fn filters() -> Value {
    json!([
        {"filter": "throw", "label": "C++: throw", "description": "before an exception is thrown"},
        {"filter": "panic", "label": "Rust: panic", "description": "before a panic unwinds"},
    ])
}

/// Functions in which a filter stops: the first that the program has.
fn of_filter(filter: &str) -> &'static [&'static str] {
    match filter {
        "throw" => &["__cxa_throw"],
        "panic" => &["rust_panic", "core::panicking::panic_fmt"],
        _ => &[],
    }
}

impl Open {
    pub fn set_breakpoints(&mut self, request: &Request) -> Answer {
        let asked: SetBreakpoints = arguments(request)?;
        let Some(path) = asked.source.path.or(asked.source.name) else {
            return Err("which file? a source needs its path".into());
        };
        let old = self.stops.files.remove(&path).unwrap_or_default();
        let printed = self.printed();
        self.remove(&old)?;
        let mut told = Vec::new();
        for one in &asked.breakpoints {
            let spots = Spots::of(Some(&path), one.line + 1 - self.references.first_line)?;
            let made = self
                .breakable(&spots)
                .and_then(|(spot, _)| self.add(spot, one));
            told.push(self.answered(&made, Some(&path)));
            if let Ok(made) = made {
                self.stops
                    .files
                    .entry(path.clone())
                    .or_default()
                    .push(made.id);
            }
        }
        self.print_new(&printed);
        Ok(json!({"breakpoints": told}))
    }

    /// The first of these ways to name a line that has code, and the line of that.
    pub fn breakable(&mut self, spots: &Spots) -> Result<(Spot, u32), Failed> {
        let mut first = None;
        for spot in spots.all() {
            match self.debugger.add_breakpoint(Wanted::at(spot.clone())) {
                Ok(made) => {
                    let line = made.locations.first().and_then(|at| at.line);
                    self.debugger.remove_breakpoint(made.id)?;
                    return Ok((spot, line.unwrap_or(spots.line)));
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(error) => Err(error.into()),
            None => Err("no such line".into()),
        }
    }

    pub fn set_function_breakpoints(&mut self, request: &Request) -> Answer {
        let asked: SetOthers = arguments(request)?;
        let old = std::mem::take(&mut self.stops.functions);
        let printed = self.printed();
        self.remove(&old)?;
        let mut told = Vec::new();
        for one in &asked.breakpoints {
            let made = self.add(Spot::Function(one.name.clone()), one);
            told.push(self.answered(&made, None));
            self.stops.functions.extend(made.map(|made| made.id).ok());
        }
        self.print_new(&printed);
        Ok(json!({"breakpoints": told}))
    }

    pub fn set_instruction_breakpoints(&mut self, request: &Request) -> Answer {
        let asked: SetOthers = arguments(request)?;
        let old = std::mem::take(&mut self.stops.instructions);
        let printed = self.printed();
        self.remove(&old)?;
        let mut told = Vec::new();
        for one in &asked.breakpoints {
            let address = crate::looking::address(&one.instruction_reference);
            let made = address.and_then(|address| {
                let spot = Spot::Address(address.wrapping_add_signed(one.offset));
                self.add(spot, one)
            });
            told.push(self.answered(&made, None));
            self.stops
                .instructions
                .extend(made.map(|made| made.id).ok());
        }
        self.print_new(&printed);
        Ok(json!({"breakpoints": told}))
    }

    /// Log points that have printed. An editor sets all of a file again when one of them changes.
    fn printed(&self) -> HashMap<BreakpointId, Print> {
        let waits = |id: &BreakpointId| self.stops.unprinted.iter().any(|(one, _)| one == id);
        let all = self.stops.prints.iter().filter(|(id, _)| !waits(id));
        all.map(|(id, print)| (*id, print.clone())).collect()
    }

    /// Those that weren't there before shall print.
    fn print_new(&mut self, printed: &HashMap<BreakpointId, Print>) {
        let waiting = &self.stops.unprinted;
        let new = self.stops.prints.iter().filter(|(id, print)| {
            !printed.values().any(|one| one == *print) && !waiting.iter().any(|(one, _)| one == *id)
        });
        let mut new: Vec<_> = new.map(|(id, print)| (*id, print.clone())).collect();
        new.sort_by_key(|(id, _)| *id);
        self.stops.unprinted.extend(new);
    }

    pub fn set_exception_breakpoints(&mut self, request: &Request) -> Answer {
        let asked: SetExceptions = arguments(request)?;
        let old = std::mem::take(&mut self.stops.exceptions);
        self.remove(&old)?;
        let mut told = Vec::new();
        for filter in &asked.filters {
            let mut made = Err(Failed::Because(format!("there is no filter {filter}")));
            for function in of_filter(filter) {
                made = self.add(Spot::Function((*function).into()), &Asked::default());
                if made.is_ok() {
                    break;
                }
            }
            told.push(match made {
                Ok(made) => {
                    self.stops.exceptions.push(made.id);
                    json!({"verified": true, "id": made.id})
                }
                // A program that throws nothing has no such function.
                Err(_) => json!({
                    "verified": false,
                    "message": "the program has no code that does this",
                }),
            });
        }
        Ok(json!({"breakpoints": told}))
    }

    fn add(&mut self, spot: Spot, asked: &Asked) -> Result<Breakpoint, Failed> {
        let said = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let count = said(&asked.hit_condition).map(|text| Count::read(&text));
        let count = count.transpose()?;
        let condition = said(&asked.condition);
        let wanted = Wanted {
            condition: condition.clone(),
            ..Wanted::at(spot.clone())
        };
        let made = self.debugger.add_breakpoint(wanted)?;
        match said(&asked.log_message) {
            Some(message) => {
                self.debugger.enable_breakpoint(made.id, false)?;
                let print = Print {
                    spot,
                    condition,
                    count,
                    message,
                };
                self.stops.prints.insert(made.id, print);
            }
            None => self
                .stops
                .counts
                .extend(count.map(|count| (made.id, count))),
        }
        Ok(made)
    }

    fn remove(&mut self, ids: &[BreakpointId]) -> Result<(), Failed> {
        for id in ids {
            self.stops.prints.remove(id);
            self.stops.unprinted.retain(|(one, _)| one != id);
            self.stops.counts.remove(id);
            self.debugger.remove_breakpoint(*id)?;
        }
        Ok(())
    }

    fn answered(&self, made: &Result<Breakpoint, Failed>, path: Option<&str>) -> Value {
        match made {
            Ok(made) => {
                let mut told = json!({"verified": true, "id": made.id});
                if let Some(at) = made.locations.first() {
                    told["instructionReference"] = format!("{:#x}", at.address).into();
                    if let Some(line) = at.line {
                        told["line"] = (line + self.references.first_line - 1).into();
                    }
                    if let Some(path) = path.or(at.file.as_deref()) {
                        told["source"] = json!({"path": path});
                    }
                }
                told
            }
            Err(Failed::Because(why)) => json!({"verified": false, "message": why}),
            Err(Failed::Cancelled) => json!({"verified": false, "message": "interrupted"}),
        }
    }

    pub fn data_breakpoint_info(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Info {
            variables_reference: Option<u64>,
            name: String,
            frame_id: Option<u64>,
        }
        let info: Info = arguments(request)?;
        let node = match info.variables_reference {
            Some(reference) if reference > 0 => self.part(reference, &info.name)?,
            _ => {
                let (thread, frame) = self.frame_or_first(info.frame_id)?;
                self.debugger.evaluate(thread, frame, &info.name)?
            }
        };
        Ok(match (node.address, node.size) {
            (Some(address), Some(size)) => json!({
                "dataId": format!("{address:#x}:{size}"),
                "description": format!("{} ({size} bytes at {address:#x})", info.name),
                "accessTypes": ["write", "read", "readWrite"],
                "canPersist": true,
            }),
            _ => json!({
                "dataId": null,
                "description": format!("{} isn't in memory here", info.name),
            }),
        })
    }

    pub fn set_data_breakpoints(&mut self, request: &Request) -> Answer {
        let asked: SetOthers = arguments(request)?;
        self.debugger.clear_watchpoints();
        let mut told = Vec::new();
        for one in &asked.breakpoints {
            let touch = match one.access_type.as_deref() {
                Some("read") => Touch::Read,
                Some("readWrite") => Touch::Access,
                _ => Touch::Change,
            };
            let place = one.data_id.split_once(':').and_then(|(address, size)| {
                Some((crate::looking::address(address).ok()?, size.parse().ok()?))
            });
            let made = match place {
                Some((address, size)) => self
                    .debugger
                    .add_watchpoint(address, size, touch)
                    .map_err(|error| error.to_string()),
                None => Err("ask for dataBreakpointInfo first".into()),
            };
            told.push(match made {
                Ok(made) => json!({"verified": true, "id": data_id(made.id)}),
                Err(why) => json!({"verified": false, "message": why}),
            });
        }
        Ok(json!({"breakpoints": told}))
    }

    /// Whether nothing that counts stops here: all breakpoints wait for another hit.
    pub fn passes(&self, stop: &Stop) -> bool {
        let StopReason::Breakpoints(ids) = &stop.reason else {
            return false;
        };
        !ids.is_empty()
            && ids.iter().all(|id| {
                let mut known = self.debugger.breakpoints().iter();
                let hit = known.find(|one| one.id == *id).map_or(0, |one| one.hits);
                let count = self.stops.counts.get(id);
                count.is_some_and(|count| !count.counts(hit))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_count() {
        let counted = |text: &str| -> Vec<u64> {
            let Ok(count) = Count::read(text) else {
                panic!("{text}");
            };
            (1..8).filter(|hit| count.counts(*hit)).collect()
        };
        assert_eq!(counted("5"), [5, 6, 7]);
        assert_eq!(counted(" >= 6"), [6, 7]);
        assert_eq!(counted("> 6"), [7]);
        assert_eq!(counted("==3"), [3]);
        assert_eq!(counted("%3"), [3, 6]);
        for wrong in ["", "x", "%0", "< 3", "3 4"] {
            assert!(Count::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_by_shorter_and_shorter_paths() {
        let spots = Spots::of(Some("/home/a/b.c"), 3).unwrap_or_else(|_| panic!());
        let names: Vec<String> = spots
            .all()
            .map(|spot| match spot {
                Spot::Line { file, .. } => file,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["/home/a/b.c", "home/a/b.c", "a/b.c", "b.c"]);
    }
}
