//! One editor and one recording. In: requests, in order. Out: a response to each, and events.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use clew_debugger::{Debugger, Direction, Spot, Step};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::flags::Flags;
use crate::looking::References;
use crate::stops::Stops;
use crate::wire::{self, Outbox, Request};
use crate::{Attach, Host, Launch, Output};

/// Why a request has no answer.
pub enum Failed {
    /// It was interrupted.
    Cancelled,
    /// For people, with what to do instead.
    Because(String),
}

impl From<clew_debugger::Error> for Failed {
    fn from(error: clew_debugger::Error) -> Failed {
        match error.is_interrupted() {
            true => Failed::Cancelled,
            false => Failed::Because(error.to_string()),
        }
    }
}

impl From<&str> for Failed {
    fn from(text: &str) -> Failed {
        Failed::Because(text.into())
    }
}

pub type Answer = Result<Value, Failed>;

/// A recording that is open.
pub struct Open {
    pub debugger: Debugger,
    pub stops: Stops,
    pub references: References,
    /// Where to stand when the editor has set its breakpoints.
    entry: Entry,
    /// How the program ended, if it stands there.
    pub ended: Option<String>,
    /// The editor has set what it wanted to set first.
    pub begun: bool,
}

#[derive(Clone)]
struct Entry {
    at: Option<String>,
    stop: bool,
}

pub struct Session {
    pub out: Arc<Outbox>,
    flags: Arc<Flags>,
    host: Box<dyn Host>,
    token: Option<String>,
    open: Option<Open>,
    /// The editor counts lines and columns from here.
    first_line: u32,
    first_column: u32,
}

/// What is done after the response was sent.
enum Then {
    Nothing,
    /// Tell that breakpoints may be set.
    Initialized,
    Go(Go),
    /// Tell what new log points print.
    Print,
    Leave,
}

/// A way to another place.
#[derive(Clone, Debug)]
pub enum Go {
    Begin,
    Restart,
    On(Direction),
    Step {
        thread: u64,
        step: Step,
        direction: Direction,
    },
    /// Into a function that the line calls, by where its body begins.
    Into {
        thread: u64,
        address: u64,
    },
    To {
        thread: u64,
        spot: Spot,
    },
    Position(String),
    /// To the beginning of a frame's function.
    Frame(u64),
    /// Nothing was under way.
    Pause,
}

pub fn serve(
    input: Box<dyn Read + Send>,
    output: Box<dyn Write + Send>,
    host: Box<dyn Host>,
    token: Option<String>,
) -> io::Result<()> {
    let out = Arc::new(Outbox::new(output));
    let flags = Arc::new(Flags::new(out.clone()));
    let (send, requests) = mpsc::channel();
    let read = flags.clone();
    // What interrupts work must be read while it goes on.
    std::thread::Builder::new()
        .name("clew-dap-read".into())
        .spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let message = wire::read(&mut input);
                let request = match &message {
                    Ok(Some(message)) => Request::of(message),
                    _ => None,
                };
                if let Some(request) = &request
                    && interrupts(&request.command)
                {
                    read.wish();
                }
                let over = !matches!(message, Ok(Some(_)));
                let sent = match (request, message) {
                    (Some(request), _) => send.send(Ok(request)),
                    (None, Err(why)) => send.send(Err(why)),
                    _ => Ok(()),
                };
                if over {
                    // An editor that is gone waits for nothing.
                    read.wish();
                }
                if over || sent.is_err() {
                    return;
                }
            }
        })?;
    let mut session = Session {
        out,
        flags,
        host,
        token,
        open: None,
        first_line: 1,
        first_column: 1,
    };
    for request in requests {
        if !session.handle(&request?) {
            break;
        }
    }
    Ok(())
}

fn interrupts(command: &str) -> bool {
    matches!(command, "pause" | "cancel" | "disconnect" | "terminate")
}

fn capabilities() -> Value {
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsConditionalBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsLogPoints": true,
        "supportsEvaluateForHovers": true,
        "supportsStepBack": true,
        "supportsRestartFrame": true,
        "supportsRestartRequest": true,
        "supportsGotoTargetsRequest": true,
        "supportsStepInTargetsRequest": true,
        "supportsSetVariable": true,
        "supportsSetExpression": true,
        "supportsLoadedSourcesRequest": true,
        "supportsCompletionsRequest": true,
        "supportsModulesRequest": true,
        "supportsExceptionInfoRequest": true,
        "supportsDataBreakpoints": true,
        "supportsReadMemoryRequest": true,
        "supportsDisassembleRequest": true,
        "supportsCancelRequest": true,
        "supportsTerminateRequest": true,
        "supportsSteppingGranularity": true,
        "supportsInstructionBreakpoints": true,
        "supportsDelayedStackTraceLoading": true,
        "exceptionBreakpointFilters": crate::stops::filters(),
    })
}

/// A request's arguments.
pub fn arguments<T: DeserializeOwned>(request: &Request) -> Result<T, Failed> {
    let arguments = match &request.arguments {
        Value::Null => json!({}),
        other => other.clone(),
    };
    serde_json::from_value(arguments).map_err(|why| {
        let command = &request.command;
        Failed::Because(format!(
            "the arguments of {command} aren't as they should be: {why}"
        ))
    })
}

impl Session {
    /// Answers a request; whether to go on.
    fn handle(&mut self, request: &Request) -> bool {
        if interrupts(&request.command) {
            self.flags.answer();
        }
        self.flags.begin(&request.command);
        let answer = self.answer(request);
        self.flags.end();
        let then = match answer {
            Ok((body, then)) => {
                self.out.response(request, body);
                then
            }
            Err(Failed::Cancelled) => {
                self.out.failure(
                    request,
                    "cancelled",
                    "interrupted before there was an answer",
                );
                Then::Nothing
            }
            Err(Failed::Because(why)) => {
                self.out.failure(request, &why, &why);
                Then::Nothing
            }
        };
        match then {
            Then::Nothing => {}
            Then::Initialized => self.out.event("initialized", json!({})),
            Then::Go(go) => self.go(&request.command, &go),
            Then::Print => self.print(),
            Then::Leave => {
                self.open = None;
                self.out.event("terminated", json!({}));
                return false;
            }
        }
        true
    }

    fn answer(&mut self, request: &Request) -> Result<(Value, Then), Failed> {
        match request.command.as_str() {
            "initialize" => {
                let from = |name: &str| match request.arguments[name].as_bool() {
                    Some(false) => 0,
                    _ => 1,
                };
                self.first_line = from("linesStartAt1");
                self.first_column = from("columnsStartAt1");
                let shows = request.arguments["supportsProgressReporting"] == true;
                self.flags.shows_progress.store(shows, Ordering::SeqCst);
                return Ok((capabilities(), Then::Nothing));
            }
            "attach" => {
                let attach: Attach = arguments(request)?;
                self.welcome(attach.token.as_deref())?;
                self.attach(&attach)?;
                return Ok((json!({}), Then::Initialized));
            }
            "launch" => {
                let launch: Launch = arguments(request)?;
                self.welcome(launch.token.as_deref())?;
                self.launch(&launch)?;
                return Ok((json!({}), Then::Initialized));
            }
            "disconnect" | "terminate" => return Ok((json!({}), Then::Leave)),
            "cancel" => return Ok((json!({}), Then::Nothing)),
            _ => {}
        }
        let (first_line, first_column) = (self.first_line, self.first_column);
        let out = self.out.clone();
        let Some(open) = &mut self.open else {
            return Err("no recording is open; send attach or launch first".into());
        };
        open.references.first_line = first_line;
        open.references.first_column = first_column;
        let done = |body: Value| Ok((body, Then::Nothing));
        let prints = |body: Value| Ok((body, Then::Print));
        match request.command.as_str() {
            "configurationDone" => Ok((json!({}), Then::Go(Go::Begin))),
            "restart" => Ok((json!({}), Then::Go(Go::Restart))),
            "setBreakpoints" => prints(open.set_breakpoints(request)?),
            "setFunctionBreakpoints" => prints(open.set_function_breakpoints(request)?),
            "setInstructionBreakpoints" => prints(open.set_instruction_breakpoints(request)?),
            "setExceptionBreakpoints" => done(open.set_exception_breakpoints(request)?),
            "dataBreakpointInfo" => done(open.data_breakpoint_info(request)?),
            "setDataBreakpoints" => done(open.set_data_breakpoints(request)?),
            "threads" => done(open.threads()?),
            "stackTrace" => done(open.stack_trace(request)?),
            "scopes" => done(open.scopes(request)?),
            "variables" => done(open.variables(request)?),
            "evaluate" => match open.evaluate(request, &out)? {
                (body, None) => done(body),
                (body, Some(go)) => Ok((body, Then::Go(go))),
            },
            "setVariable" => done(open.set_variable(request, &out)?),
            "setExpression" => done(open.set_expression(request, &out)?),
            "completions" => done(open.completions(request)?),
            "readMemory" => done(open.read_memory(request)?),
            "disassemble" => done(open.disassemble(request)?),
            "loadedSources" => done(open.loaded_sources()?),
            "stepInTargets" => done(open.step_in_targets(request)?),
            "modules" => done(open.modules(request)?),
            "exceptionInfo" => done(open.exception_info()?),
            "gotoTargets" => done(open.goto_targets(request)?),
            "continue" | "reverseContinue" | "next" | "stepIn" | "stepOut" | "stepBack"
            | "goto" | "restartFrame" | "pause" => {
                let go = open.way(request)?;
                let body = match request.command.as_str() {
                    "continue" => json!({"allThreadsContinued": true}),
                    _ => json!({}),
                };
                Ok((body, Then::Go(go)))
            }
            other => Err(Failed::Because(format!(
                "clew doesn't know the request {other}"
            ))),
        }
    }

    /// Whoever comes over a socket must know the word that was printed.
    fn welcome(&self, token: Option<&str>) -> Result<(), Failed> {
        match &self.token {
            Some(known) if token != Some(known) => {
                Err("this needs the token that clew dap printed: \"token\": \"...\"".into())
            }
            _ => Ok(()),
        }
    }

    fn attach(&mut self, attach: &Attach) -> Result<(), Failed> {
        let mut debugger = self.host.open(attach).map_err(Failed::Because)?;
        let flags = self.flags.clone();
        debugger.set_watcher(Box::new(move |done| flags.come(done)));
        self.open = Some(Open {
            debugger,
            stops: Stops::default(),
            references: References::default(),
            entry: Entry {
                at: attach.at.clone(),
                stop: attach.stop_on_entry.unwrap_or(true),
            },
            ended: None,
            begun: false,
        });
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), Failed> {
        if launch.program.is_empty() {
            return Err("which program? launch needs \"program\"".into());
        }
        let out = self.out.clone();
        let mut told = |to: Output, text: &str| {
            let category = match to {
                Output::Standard => "stdout",
                Output::Error => "stderr",
            };
            out.event("output", json!({"category": category, "output": text}));
        };
        let recording = self.host.record(launch, &mut told);
        let recording = recording.map_err(Failed::Because)?;
        let said = format!("recorded as {recording}\n");
        self.out
            .event("output", json!({"category": "console", "output": said}));
        self.attach(&Attach {
            recording: Some(recording),
            at: launch.at.clone(),
            stop_on_entry: Some(launch.stop_on_entry.unwrap_or(false)),
            ..Attach::default()
        })
    }

    /// Goes somewhere, and tells where it stands then.
    fn go(&mut self, command: &str, go: &Go) {
        let Some(open) = &mut self.open else {
            return;
        };
        let moves = !matches!(go, Go::Begin | Go::Pause);
        let starts = matches!(
            command,
            "evaluate" | "restart" | "restartFrame" | "goto" | "reverseContinue" | "stepBack"
        );
        if moves && starts && command != "goto" {
            let thread = u64::from(open.debugger.thread()) + 1;
            let body = json!({"threadId": thread, "allThreadsContinued": true});
            self.out.event("continued", body);
        }
        self.flags.begin(command);
        let entry = open.entry.clone();
        let stopped = open.go(go, entry.at.as_deref(), entry.stop);
        self.flags.end();
        let body = match stopped {
            Ok(body) => body,
            Err(failed) => {
                let (reason, why) = match failed {
                    Failed::Cancelled => ("pause", "interrupted".to_string()),
                    Failed::Because(why) => ("exception", why),
                };
                let said = json!({"category": "important", "output": format!("clew: {why}\n")});
                self.out.event("output", said);
                json!({"reason": reason, "description": why})
            }
        };
        let mut body = body;
        body["threadId"] = (u64::from(open.debugger.thread()) + 1).into();
        body["allThreadsStopped"] = true.into();
        self.out.event("stopped", body);
        if matches!(go, Go::Begin) {
            open.begun = true;
            self.print();
        }
    }

    fn print(&mut self) {
        if let Some(open) = &mut self.open {
            self.flags.begin("log points");
            open.print(&self.out);
            self.flags.end();
        }
    }
}
