//! Answers of debuggers. In: a question. Out: JSON, or why there is none and what to do instead.

use std::sync::{Arc, Mutex, OnceLock};

use clew_debugger::{Debugger, Direction, Node, Position, Step, StopReason, Wanted};
use clew_recording::process;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Host;
use crate::commands;
use crate::desks::{Desk, Desks};
use crate::jobs::{Answer, Job, hold};
use crate::notebook::Notebook;
use crate::overview::Overview;
use crate::question::{Place, Question, Root, Stride, Way, address, spot};

/// No source file is larger.
const LARGEST_SOURCE: u64 = 16 << 20;
/// More isn't asked for at once.
const MOST_EXPRESSIONS: usize = 200;

/// What questions are answered with.
pub struct Answers {
    host: Box<dyn Host>,
    desks: Desks,
    overview: OnceLock<Arc<Overview>>,
    reading: Mutex<()>,
    notebook: Mutex<Notebook>,
}

fn said(error: clew_debugger::Error) -> String {
    match error.is_interrupted() {
        true => "cancelled".into(),
        false => error.to_string(),
    }
}

fn told(value: &impl Serialize) -> Answer {
    serde_json::to_value(value).map_err(|error| error.to_string())
}

impl From<&Way> for Direction {
    fn from(way: &Way) -> Direction {
        match way {
            Way::Forward => Direction::Forward,
            Way::Backward => Direction::Backward,
        }
    }
}

impl Answers {
    pub fn new(host: Box<dyn Host>) -> Answers {
        let notebook = Notebook::open(host.recording().0.folder());
        Answers {
            host,
            desks: Desks::default(),
            overview: OnceLock::new(),
            reading: Mutex::new(()),
            notebook: Mutex::new(notebook),
        }
    }

    fn overview(&self, job: &Job) -> Result<Arc<Overview>, String> {
        let _alone = hold(&self.reading);
        if let Some(known) = self.overview.get() {
            return Ok(known.clone());
        }
        let overview = Arc::new(Overview::read(self.host.recording().0, job)?);
        Ok(self.overview.get_or_init(|| overview).clone())
    }

    /// What is asked of a debugger that stands there.
    fn quickly(
        &self,
        job: &Arc<Job>,
        place: &Place,
        ask: impl FnOnce(&mut Desk, u32) -> Answer,
    ) -> Answer {
        self.desks.quickly(&*self.host, place.stream, job, |desk| {
            let thread = stand(desk, place)?;
            ask(desk, thread)
        })
    }

    fn slowly(
        &self,
        job: &Arc<Job>,
        place: &Place,
        ask: impl FnOnce(&mut Debugger, u32) -> Answer,
    ) -> Answer {
        self.desks.slowly(&*self.host, place.stream, job, |desk| {
            let thread = stand(desk, place)?;
            desk.stands = None;
            ask(&mut desk.debugger, thread)
        })
    }

    /// The same, for what isn't about a place.
    fn anywhere(
        &self,
        job: &Arc<Job>,
        stream: u32,
        ask: impl FnOnce(&mut Debugger) -> Answer,
    ) -> Answer {
        self.desks.slowly(&*self.host, stream, job, |desk| {
            desk.stands = None;
            ask(&mut desk.debugger)
        })
    }

    pub fn answer(&self, job: &Arc<Job>, question: Question) -> Answer {
        match question {
            Question::Recording => self.recording(),
            Question::Overview => Ok(self.overview(job)?.told()),
            Question::Lanes {
                from,
                to,
                parts,
                first,
                last,
            } => told(&self.overview(job)?.part(from, to, parts, first..last)),
            Question::Locate { lane, x } => {
                let found = self.overview(job)?.at(lane, x);
                let (stream, position) = found.ok_or("there is no such lane")?;
                Ok(json!({"stream": stream, "at": position.to_string()}))
            }
            Question::Places { stream, positions } => {
                let overview = self.overview(job)?;
                let x = |text: &String| {
                    let position: Position = text.parse().ok()?;
                    overview.x_of(stream, position)
                };
                told(&positions.iter().map(x).collect::<Vec<Option<f64>>>())
            }
            Question::Executed { stream, from, most } => self.anywhere(job, stream, |debugger| {
                told(&debugger.executed_from(&from, most.min(400)).map_err(said)?)
            }),
            Question::Stand(place) => {
                let overview = self.overview(job)?;
                self.quickly(job, &place, |desk, thread| {
                    standing(desk, &overview, thread, None)
                })
            }
            Question::Scopes(place) => self.quickly(job, &place, |desk, thread| {
                told(&desk.debugger.scopes(thread, place.frame).map_err(said)?)
            }),
            Question::Children {
                place,
                root,
                path,
                from,
                most,
            } => self.quickly(job, &place, |desk, thread| {
                let debugger = &mut desk.debugger;
                let node = found(debugger, thread, place.frame, &root, &path)?;
                match node.id {
                    Some(id) => told(&debugger.children(id, from, most).map_err(said)?),
                    None => Ok(json!([])),
                }
            }),
            Question::Evaluate { place, expressions } => {
                self.quickly(job, &place, |desk, thread| {
                    let mut all = Vec::new();
                    for expression in expressions.iter().take(MOST_EXPRESSIONS) {
                        let node = desk.debugger.evaluate(thread, place.frame, expression);
                        all.push(match node {
                            Ok(node) => json!({"value": node}),
                            Err(error) if error.is_interrupted() => return Err(said(error)),
                            Err(error) => json!({"error": error.to_string()}),
                        });
                    }
                    Ok(all.into())
                })
            }
            Question::Step { place, stride, way } => {
                let overview = self.overview(job)?;
                self.quickly(job, &place, |desk, thread| {
                    let stride = match stride {
                        Stride::Over => Step::Over,
                        Stride::Into => Step::Into,
                        Stride::Out => Step::Out,
                        Stride::Instruction => Step::Instruction,
                    };
                    desk.stands = None;
                    let debugger = &mut desk.debugger;
                    debugger.choose_thread(thread).map_err(said)?;
                    let stop = debugger.step(stride, (&way).into(), place.frame);
                    stopped(desk, &overview, &stop.map_err(said)?)
                })
            }
            Question::Go {
                place,
                way,
                stops,
                watches,
            } => {
                let overview = self.overview(job)?;
                self.quickly(job, &place, |desk, _| {
                    desk.stands = None;
                    let debugger = &mut desk.debugger;
                    let ids: Vec<u32> = debugger.breakpoints().iter().map(|one| one.id).collect();
                    for id in ids {
                        debugger.remove_breakpoint(id).map_err(said)?;
                    }
                    debugger.clear_watchpoints();
                    for stop in &stops {
                        let mut wanted = Wanted::at(spot(&stop.spot)?);
                        wanted.condition.clone_from(&stop.condition);
                        debugger.add_breakpoint(wanted).map_err(said)?;
                    }
                    for watch in &watches {
                        let at = address(&watch.address).ok_or("a watched address is as 0x12ab")?;
                        let made = debugger.add_watchpoint(at, watch.size, watch.touch.into());
                        made.map_err(said)?;
                    }
                    let stop = debugger.go((&way).into()).map_err(said)?;
                    stopped(desk, &overview, &stop)
                })
            }
            Question::RunTo {
                place,
                way,
                spot: to,
            } => {
                let overview = self.overview(job)?;
                self.quickly(job, &place, |desk, _| {
                    desk.stands = None;
                    let debugger = &mut desk.debugger;
                    let before = debugger.here().map_err(said)?.position;
                    let stop = debugger.run_to((&way).into(), &spot(&to)?).map_err(said)?;
                    if matches!(stop.reason, StopReason::Start | StopReason::End) {
                        // The end isn't what was asked for.
                        debugger.seek(&before).map_err(said)?;
                        let side = match way {
                            Way::Forward => "after",
                            Way::Backward => "before",
                        };
                        return Err(format!("{to} isn't come to {side} {before}"));
                    }
                    stopped(desk, &overview, &stop)
                })
            }
            Question::LastChange { place, expression } => {
                let overview = self.overview(job)?;
                self.quickly(job, &place, |desk, thread| {
                    desk.stands = None;
                    let debugger = &mut desk.debugger;
                    let change = debugger.last_change(thread, place.frame, &expression);
                    let Some(change) = change.map_err(said)? else {
                        return Err(format!("{expression} doesn't change before {}", place.at));
                    };
                    standing(desk, &overview, change.thread, Some(json!({"change": change})))
                })
            }
            Question::Source { stream, file } => self.source(job, stream, &file),
            Question::Sources { stream } => self.anywhere(job, stream, |debugger| {
                told(&debugger.sources().map_err(said)?.iter().map(|file| file.to_string()).collect::<Vec<_>>())
            }),
            Question::Coverage { stream, file } => self.anywhere(job, stream, |debugger| {
                told(&debugger.coverage(&file).map_err(said)?)
            }),
            Question::Code {
                place,
                address: at,
                before,
                count,
            } => self.quickly(job, &place, |desk, thread| {
                let at = match at.as_deref() {
                    Some(text) => address(text).ok_or("an address is as 0x12ab")?,
                    None => {
                        let stack = desk.debugger.stack(thread).map_err(said)?;
                        let frame = stack.frames.get(place.frame);
                        frame.ok_or("there is no such frame")?.location.address
                    }
                };
                let code = desk.debugger.code(at, -before.clamp(0, 500), count.min(1_000));
                let code = code.map_err(said)?;
                Ok(json!({"address": format!("{at:#x}"), "code": code}))
            }),
            Question::Memory {
                place,
                address: at,
                size,
            } => self.quickly(job, &place, |desk, thread| {
                let debugger = &mut desk.debugger;
                let at = match address(&at) {
                    Some(at) => at,
                    None => pointed(&debugger.evaluate(thread, place.frame, &at).map_err(said)?)?,
                };
                let bytes = debugger.read_memory(at, size.min(1 << 16)).map_err(said)?;
                Ok(json!({"address": format!("{at:#x}"), "bytes": bytes}))
            }),
            Question::Logged { stream, most } => self.anywhere(job, stream, |debugger| {
                told(&debugger.logged(most).map_err(said)?)
            }),
            Question::Output { stream, most } => self.anywhere(job, stream, |debugger| {
                told(&debugger.output(most).map_err(said)?)
            }),
            Question::History {
                place,
                expression,
                most,
            } => self.slowly(job, &place, |debugger, thread| {
                told(&debugger.changes(thread, place.frame, &expression, most).map_err(said)?)
            }),
            Question::Calls {
                stream,
                function,
                most,
            } => self.anywhere(job, stream, |debugger| {
                told(&debugger.calls(&function, most).map_err(said)?)
            }),
            Question::Tree { place, most } => self.slowly(job, &place, |debugger, thread| {
                let tree = debugger.call_tree(thread, place.frame, most).map_err(said)?;
                match tree {
                    Some(tree) => told(&tree),
                    None => Err("it isn't known where this call began: its function has no debugging information, or began before the recording".into()),
                }
            }),
            Question::Executions {
                stream,
                spot: at,
                condition,
                expressions,
                most,
            } => self.anywhere(job, stream, |debugger| {
                let condition = condition.as_deref().filter(|text| !text.trim().is_empty());
                let found = debugger.executions(&spot(&at)?, condition, &expressions, most);
                let found = found.map_err(said)?;
                if found.interrupted && job.is_cancelled() {
                    return Err("cancelled".into());
                }
                told(&found)
            }),
            Question::Analyse {
                place,
                analysis,
                expression,
                flags,
            } => commands::analyse(
                &*self.host,
                job,
                &place,
                analysis,
                expression.as_deref(),
                &flags,
            ),
            Question::Diagnose { fail, pass } => {
                commands::diagnose(&*self.host, job, &fail, &pass)
            }
            Question::Recordings => commands::recordings(&*self.host, job),
            Question::Search { stream, text, most } => {
                let place = Place {
                    stream,
                    at: "start".into(),
                    thread: None,
                    frame: 0,
                    hidden: 0,
                };
                commands::search(&*self.host, job, &place, &text, most)
            }
            Question::Notes => Ok(hold(&self.notebook).told()),
            Question::Note { version, notes } => hold(&self.notebook).replace(version, notes),
        }
    }

    fn recording(&self) -> Answer {
        let (recording, name) = self.host.recording();
        let infos = recording.streams();
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let streams: Vec<Value> = infos
            .iter()
            .map(|info| {
                let argv: Vec<String> = info.start.argv.iter().map(text).collect();
                json!({
                    "stream": info.id,
                    "process": info.process,
                    "pid": info.start.pid,
                    "parent": info.start.parent_pid,
                    "name": process::name(infos, info.process).map(|name| name.to_string()),
                    "exe": text(&info.start.exe),
                    "argv": argv,
                    "end": info.end.as_ref().map(|end| format!("{end:?}")),
                })
            })
            .collect();
        // The program that was recorded, as it was last.
        let main = infos
            .iter()
            .rfind(|info| info.process == 1)
            .map(|info| info.id);
        Ok(json!({
            "name": name,
            "folder": recording.folder().display().to_string(),
            "streams": streams,
            "main": main,
            "complete": recording.is_complete(),
        }))
    }

    /// Only files that the program was compiled from are shown.
    fn source(&self, job: &Arc<Job>, stream: u32, file: &str) -> Answer {
        let known = self.desks.quickly(&*self.host, stream, job, |desk| {
            let sources = desk.debugger.sources().map_err(said)?;
            Ok(sources.iter().any(|one| **one == *file))
        })?;
        if !known {
            return Err(format!("the program wasn't compiled from a file {file}"));
        }
        let unreadable = |error: std::io::Error| {
            format!("{file} can't be read here: {error}; the disassembly is there")
        };
        let meta = std::fs::metadata(file).map_err(unreadable)?;
        if !meta.is_file() || meta.len() > LARGEST_SOURCE {
            return Err(format!("{file} is no file of source text"));
        }
        let text = std::fs::read(file).map_err(unreadable)?;
        Ok(json!({"file": file, "text": String::from_utf8_lossy(&text)}))
    }
}

/// Goes where somebody looks, unless it stands there; the thread that is looked at.
fn stand(desk: &mut Desk, place: &Place) -> Result<u32, String> {
    let wanted = (place.at.clone(), place.hidden);
    if desk.stands.as_ref() != Some(&wanted) {
        desk.stands = None;
        desk.debugger.seek(&place.at).map_err(said)?;
        desk.debugger.stand_before(place.hidden);
        desk.stands = Some(wanted);
    }
    let runs = desk.debugger.runs();
    let thread = place.thread.unwrap_or(runs);
    if thread == desk.debugger.thread() {
        return Ok(thread);
    }
    match desk.debugger.choose_thread(thread) {
        Ok(()) => Ok(thread),
        // Not born yet, or ended: then it is about who runs.
        Err(clew_debugger::Error::Thread(_)) => {
            desk.debugger.choose_thread(runs).map_err(said)?;
            Ok(runs)
        }
        Err(error) => Err(said(error)),
    }
}

fn stopped(desk: &mut Desk, overview: &Overview, stop: &clew_debugger::Stop) -> Answer {
    let thread = desk.debugger.thread();
    let more = json!({"reason": stop.reason, "returned": stop.returned});
    if stop.reason == StopReason::Interrupted {
        return Err("cancelled".into());
    }
    standing(desk, overview, thread, Some(more))
}

/// Where it stands, with what is seen at once.
fn standing(desk: &mut Desk, overview: &Overview, thread: u32, more: Option<Value>) -> Answer {
    let debugger = &mut desk.debugger;
    let here = debugger.here().map_err(said)?;
    let hidden = debugger.hidden();
    let position: Option<Position> = here.position.parse().ok();
    let stream = debugger.stream();
    let x = position.and_then(|position| overview.x_of(stream, position));
    let threads = debugger.threads().map_err(said)?;
    let stack = match debugger.stack(thread) {
        Ok(stack) => told(&stack)?,
        Err(error) if error.is_interrupted() => return Err(said(error)),
        // A thread that has just ended.
        Err(error) => json!({"thread": thread, "frames": [], "cut": error.to_string()}),
    };
    desk.stands = Some((here.position.clone(), hidden));
    let mut answer = json!({
        "stream": stream,
        "here": here,
        "hidden": hidden,
        "x": x,
        "thread": thread,
        "threads": threads,
        "stack": stack,
    });
    if let (Some(Value::Object(more)), Value::Object(answer)) = (more, &mut answer) {
        answer.extend(more);
    }
    Ok(answer)
}

/// A value by its root and the numbers of its parts.
fn found(
    debugger: &mut Debugger,
    thread: u32,
    frame: usize,
    root: &Root,
    path: &[u64],
) -> Result<Node, String> {
    let mut node = match root {
        Root::Expression(text) => debugger.evaluate(thread, frame, text).map_err(said)?,
        Root::Variable(scope, variable) => {
            let scopes = debugger.scopes(thread, frame).map_err(said)?;
            let scope = scopes.into_iter().nth(*scope);
            let found = scope.and_then(|scope| scope.variables.into_iter().nth(*variable));
            found.ok_or("there is no such variable here")?
        }
    };
    for number in path {
        let id = node.id.ok_or("there is nothing within this value")?;
        let parts = debugger.children(id, *number, 1).map_err(said)?;
        node = parts.into_iter().next().ok_or("there is no such part")?;
    }
    Ok(node)
}

/// The address that an expression means: a pointer's value, else where it is.
fn pointed(node: &Node) -> Result<u64, String> {
    let word = node.text.split_whitespace().find_map(address);
    let number = node.text.parse::<u64>().ok();
    let is_pointer = node.of.ends_with('*') || node.address.is_none();
    match is_pointer {
        true => word.or(number),
        false => node.address,
    }
    .ok_or_else(|| format!("{} has no address", node.name))
}
