//! `clew probe`: debug code inside an exact replay. In: the command line. Out: what the debug code prints, and whether the
//! replay is still what was recorded.

mod files;

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clew_debugger::{Debugger, Direction, Spot, StopReason, Wanted};
use clew_probe::{How, Prepared, Request};
use clew_timeline::Probed;
use clew_timeline::probing::{Hit, Told};
use serde_json::json;

use crate::answers::arguments::Which;
use crate::answers::{NOTHING, done, failed, open, wrong};
use crate::text;

/// A probe didn't come to its end.
const FAILED: i32 = 3;
const MOST_TICKS: u64 = 1 << 30;

#[derive(Debug, Args)]
pub struct Probe {
    /// The recording
    #[arg(value_name = "REC")]
    pub recording: String,

    /// Copies of the program's source files, with debug code between rdb_begin and rdb_end
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,

    /// Run C statements at FILE:LINE, when FUNCTION begins, or at its returns: FUNCTION$, where $ret is what it returns
    #[arg(long, value_names = ["PLACE", "CODE"], num_args = 1..=2)]
    pub at: Vec<String>,

    /// Print expressions at each --at PLACE instead; this needs no compiler
    #[arg(long, value_name = "EXPR, …")]
    pub print: Option<String>,

    /// Functions, globals and call-backs for the debug code; see below
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,

    /// Where to begin
    #[arg(long, value_name = "POS", default_value = "start")]
    pub from: String,

    /// Where to end
    #[arg(long, value_name = "POS", default_value = "end")]
    pub to: String,

    /// Put what the debug code prints there
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Let the debug code read and write files below this folder; it has no others
    #[arg(long, value_name = "DIR", conflicts_with_all = ["print", "parallel"])]
    pub allow_files: Option<PathBuf>,

    /// Begin each line that it prints with its position
    #[arg(long)]
    pub positions: bool,

    /// Writes to the program's memory are errors in the program's own functions, too; otherwise they are undone
    #[arg(long)]
    pub strict: bool,

    /// Leave places out at which a variable of the debug code has no value
    #[arg(long)]
    pub where_available: bool,

    /// When a probe fails
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,

    /// Probe parts of the recording at once, on all cores: variables of the debug code begin anew in each part
    #[arg(long)]
    pub parallel: bool,

    /// A probe that takes more ticks doesn't end
    #[arg(long, value_name = "N", default_value_t = MOST_TICKS)]
    pub most_ticks: u64,

    /// More options for the compiler
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub cflags: Option<String>,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    Stop,
    GoOn,
}

pub const HELP: &str = "\
The program that was recorded runs again, as it did; at the places that are named the debug code runs, too. It sees the \
program's variables and calls its functions, has a libc of its own, and can change nothing of the program: at the end \
registers and memory are compared with the recording's checksums. It is compiled by the installed gcc.

A file --with may have call-backs: CLEW_ON_CALL(function), CLEW_ON_RETURN(function), CLEW_ON_SYSCALL(name), \
CLEW_ON_READ(expression), CLEW_ON_WRITE(expression), CLEW_ON_ACCESS(expression, bytes), CLEW_ON_THREAD, CLEW_ON_SIGNAL and CLEW_AT_END, each \
followed by a body in braces. More is in docs/probe.md.

Exit status: 0 if debug code ran; 1 if none was reached; 2 for a wrong command line, or debug code that can't be compiled; \
3 if a probe failed; 124 if the replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew probe crash --at execute.c:120 'printf(\"inst=%c depth=%d\\n\", inst, depth(ex_stack));' --with helpers.c
  clew probe crash src/execute.c
  clew probe crash --at 'parse$' --at main.c:31 --print 'argc, *argv'
  clew probe server-1 --at handle 'static int n; n++; if (!req->user) printf(\"%d: %s\\n\", n, req->path);' --positions";

pub fn probe(line: &Probe, envp: &[&CStr]) -> i32 {
    if line.print.is_none() && !line.at.len().is_multiple_of(2) {
        return wrong(
            "--at PLACE is followed by C statements in quotes, or there is --print EXPRESSIONS",
        );
    }
    let (mut debugger, _) = match open(&line.which, Some(&line.recording), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let mut out = match Out::new(line) {
        Ok(out) => out,
        Err(error) => return wrong(&format!("{error}")),
    };
    match &line.print {
        Some(expressions) => print(line, &mut debugger, &mut out, expressions),
        None => compiled(line, &mut debugger, &mut out),
    }
}

/// Where what is printed goes.
struct Out<'a> {
    to: Box<dyn Write + 'a>,
    positions: bool,
    json: bool,
    /// At the beginning of a line.
    begins: bool,
}

impl<'a> Out<'a> {
    fn new(line: &Probe) -> io::Result<Out<'a>> {
        let to: Box<dyn Write> = match &line.out {
            Some(path) => Box::new(io::BufWriter::new(File::create(path).map_err(|error| {
                io::Error::other(format!("{} can't be written: {error}", path.display()))
            })?)),
            None => Box::new(io::stdout()),
        };
        Ok(Out {
            to,
            positions: line.positions,
            json: line.which.json,
            begins: true,
        })
    }

    /// What a probe printed. Nobody may be there to read it any more.
    fn put(&mut self, at: Option<&Hit>, label: &str, fd: u32, bytes: &[u8]) {
        let position = at.map_or_else(
            || "end".into(),
            |hit| format!("{}+{}", hit.at.event, hit.at.ticks),
        );
        if self.json {
            let told = json!({
                "position": position,
                "thread": at.map(|hit| hit.thread),
                "probe": label,
                "to": fd,
                "text": String::from_utf8_lossy(bytes),
            });
            let _ = writeln!(self.to, "{told}");
            return;
        }
        if !self.positions {
            let _ = self.to.write_all(bytes);
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.begins {
                let _ = write!(self.to, "{position:<14} ");
            }
            let _ = self.to.write_all(piece);
            self.begins = piece.ends_with(b"\n");
        }
    }
}

fn compiled(line: &Probe, debugger: &mut Debugger, out: &mut Out<'_>) -> i32 {
    let request = Request {
        sources: line.sources.clone(),
        places: line
            .at
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        with: line.with.clone(),
        options: line
            .cflags
            .iter()
            .flat_map(|flags| flags.split_whitespace())
            .map(String::from)
            .collect(),
        where_available: line.where_available,
        from: line.from.trim().into(),
        how: How {
            strict: line.strict,
            stop_at_errors: line.on_error == OnError::Stop,
            most_ticks: line.most_ticks,
        },
    };
    let folder = match line.allow_files.as_deref().map(files::read).transpose() {
        Ok(folder) => folder,
        Err(why) => return wrong(&why),
    };
    let mut prepared = match clew_probe::prepare(debugger, &request) {
        Ok(prepared) => prepared,
        Err(clew_probe::Error::Debugger(error)) => return failed(&error),
        Err(error) => return wrong(&error.to_string()),
    };
    let mut writer = folder.as_ref().map(files::Writer::new);
    prepared.module.files = folder;
    for note in &prepared.notes {
        eprintln!("clew: {}", text::plain(note));
    }
    if let (true, Some(why)) = (line.parallel, prepared.needs_the_whole_way()) {
        return wrong(&format!("--parallel can't be used: {why}"));
    }
    let way = (&line.from[..], &line.to[..]);
    let (mut failures, probed) = run(debugger, &prepared, way, line.parallel, out, &mut writer);
    done(debugger);
    failures.extend(writer.map(|writer| writer.failed).unwrap_or_default());
    for words in &failures {
        eprintln!("clew: {}", text::plain(words));
    }
    let probed = match probed {
        Ok(probed) => probed,
        Err(error) => return failed(&error),
    };
    let runs = prepared.runs(&probed.summary.hits);
    for words in prepared.left_out(&probed.summary.hits) {
        eprintln!("clew: {}", text::plain(&words));
    }
    eprintln!("clew: {}", conclusion(&prepared, &probed));
    match (failures.is_empty(), runs) {
        (false, _) => FAILED,
        (true, 0) => NOTHING,
        (true, _) => 0,
    }
}

/// Runs debug code. Out: how it failed, in words, and what became of the replay.
fn run(
    debugger: &mut Debugger,
    prepared: &Prepared,
    way: (&str, &str),
    parts: bool,
    out: &mut Out<'_>,
    files: &mut Option<files::Writer>,
) -> (Vec<String>, clew_debugger::Result<Probed>) {
    let mut failures = Vec::new();
    let labels = &prepared.labels;
    let mut sink = |told: Vec<Told>| {
        for one in told {
            match one {
                Told::Output { at, fd, bytes } => {
                    let probe = at.as_ref().and_then(|hit| labels.get(hit.probe as usize));
                    out.put(at.as_ref(), probe.map_or("", |label| label), fd, &bytes);
                }
                Told::Failed(failed) => failures.push(failed),
                Told::Wrote { name, at, bytes } => {
                    if let Some(files) = files {
                        files.write(&name, at, &bytes);
                    }
                }
                Told::Emptied { name } => {
                    if let Some(files) = files {
                        files.empty(&name);
                    }
                }
            }
        }
        let _ = out.to.flush();
    };
    let probed = debugger.probe(&prepared.module, way, parts, &mut sink);
    let words = failures.iter().map(|failed| {
        let position = failed.at.map_or_else(String::new, |hit| {
            format!(" (at {}+{})", hit.at.event, hit.at.ticks)
        });
        let words = clew_probe::describe(debugger, prepared, failed);
        format!("{words}{position}")
    });
    (words.collect(), probed)
}

/// How often it ran, and that the replay was compared.
fn conclusion(prepared: &Prepared, probed: &Probed) -> String {
    let runs = prepared.runs(&probed.summary.hits);
    let checked = match (probed.summary.ended, probed.summary.checks) {
        (true, 0) => "; the recording has no checksum of its end".into(),
        (true, checks) => format!(
            "; the replay is what was recorded: {} agree",
            text::counted(checks, "checksum")
        ),
        (false, 0) => String::new(),
        (false, checks) => format!("; {} on the way agree", text::counted(checks, "checksum")),
    };
    format!("debug code ran {}{checked}", text::counted(runs, "time"))
}

/// The same within gdb: what is printed, with positions, and how it ended.
pub fn told(debugger: &mut Debugger, probes: &[(String, String)]) -> Result<String, String> {
    let request = Request {
        sources: Vec::new(),
        places: probes.to_vec(),
        with: Vec::new(),
        options: Vec::new(),
        where_available: false,
        from: "start".into(),
        how: How {
            strict: false,
            stop_at_errors: true,
            most_ticks: MOST_TICKS,
        },
    };
    let prepared = clew_probe::prepare(debugger, &request).map_err(|error| error.to_string())?;
    let mut printed = Vec::new();
    let mut out = Out {
        to: Box::new(&mut printed),
        positions: true,
        json: false,
        begins: true,
    };
    let (failures, probed) = run(
        debugger,
        &prepared,
        ("start", "end"),
        false,
        &mut out,
        &mut None,
    );
    drop(out);
    let mut told = String::from_utf8_lossy(&printed).into_owned();
    if !told.is_empty() && !told.ends_with('\n') {
        told.push('\n');
    }
    for words in failures {
        told.push_str(&text::plain(&words));
        told.push('\n');
    }
    match probed {
        Ok(probed) => told.push_str(&conclusion(&prepared, &probed)),
        Err(error) => told.push_str(&error.to_string()),
    }
    told.push('\n');
    Ok(told)
}

/// Expressions at places, without a compiler.
fn print(line: &Probe, debugger: &mut Debugger, out: &mut Out<'_>, expressions: &str) -> i32 {
    let expressions = split(expressions);
    let mut spots: Vec<Spot> = Vec::new();
    for place in &line.at {
        match clew_probe::addresses(debugger, place) {
            Ok(found) => spots.extend(found.into_iter().map(Spot::Address)),
            Err(clew_probe::Error::Debugger(error)) => return failed(&error),
            Err(error) => return wrong(&error.to_string()),
        }
    }
    if spots.is_empty() {
        return wrong("--print needs --at PLACE");
    }
    for spot in spots {
        if let Err(error) = debugger.add_breakpoint(Wanted::at(spot)) {
            return failed(&error);
        }
    }
    match print_all(line, debugger, out, &expressions) {
        Ok(0) => {
            done(debugger);
            NOTHING
        }
        Ok(_) => {
            done(debugger);
            0
        }
        Err(error) => failed(&error),
    }
}

fn print_all(
    line: &Probe,
    debugger: &mut Debugger,
    out: &mut Out<'_>,
    expressions: &[String],
) -> clew_debugger::Result<u64> {
    debugger.seek(&line.from)?;
    let to: Option<clew_debugger::Position> = match line.to.trim() {
        "end" => None,
        text => Some(
            text.parse()
                .map_err(|_| clew_debugger::Error::Position(text.into()))?,
        ),
    };
    let mut told = 0;
    loop {
        let stop = debugger.go(Direction::Forward)?;
        if !matches!(stop.reason, StopReason::Breakpoints(_)) {
            return Ok(told);
        }
        let here = debugger.here()?;
        if let (Some(to), Ok(at)) = (to, here.position.parse::<clew_debugger::Position>())
            && at > to
        {
            return Ok(told);
        }
        told += 1;
        let mut values = Vec::new();
        for expression in expressions {
            let value = debugger.evaluate(here.thread, 0, expression);
            let text = match value {
                Ok(node) => node.text,
                Err(clew_debugger::Error::Expression(why)) => {
                    format!("<{}>", why.lines().last().unwrap_or_default().trim())
                }
                Err(error) => return Err(error),
            };
            values.push((expression, text));
        }
        let text: Vec<String> = values
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let text = text::plain(&text.join(", "));
        let place = here.location.to_string();
        let _ = match out.json {
            true => {
                let values: Vec<_> = values
                    .iter()
                    .map(|(name, value)| json!({"expression": name, "value": value}))
                    .collect();
                let told = json!({"position": here.position, "thread": here.thread, "location": here.location, "values": values});
                writeln!(out.to, "{told}")
            }
            false => writeln!(
                out.to,
                "{:<14} {:<3} {}  {text}",
                here.position,
                here.thread,
                text::plain(&place)
            ),
        };
    }
}

/// Expressions between commas that aren't within parentheses or quotes.
fn split(text: &str) -> Vec<String> {
    let (mut all, mut one, mut depth, mut quote) = (Vec::new(), String::new(), 0, None);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            ('(' | '[' | '{', None) => depth += 1,
            (')' | ']' | '}', None) => depth -= 1,
            (',', None) if depth == 0 => {
                all.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        one.push(c);
    }
    all.push(one);
    all.iter()
        .map(|one| one.trim().to_string())
        .filter(|one| !one.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_parted_by_commas() {
        assert_eq!(
            split("a, f(b, c), d[1, 2],','"),
            ["a", "f(b, c)", "d[1, 2]", "','"]
        );
    }
}
