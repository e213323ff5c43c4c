//! Ways to other places. In: which way. Out: where it stands then, as an editor is told.

use clew_debugger::{Direction, Spot, Step, Stop, StopReason};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::session::{Answer, Failed, Go, Open, arguments};
use crate::stops::Spots;
use crate::wire::Request;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Way {
    #[serde(default = "one")]
    thread_id: u64,
    granularity: Option<String>,
    target_id: Option<u64>,
    frame_id: Option<u64>,
}

fn one() -> u64 {
    1
}

impl Open {
    pub fn way(&mut self, request: &Request) -> Result<Go, Failed> {
        let way: Way = arguments(request)?;
        let fine = way.granularity.as_deref() == Some("instruction");
        let step = |step: Step, direction: Direction| Go::Step {
            thread: way.thread_id,
            step: match fine {
                true => Step::Instruction,
                false => step,
            },
            direction,
        };
        Ok(match request.command.as_str() {
            "continue" => Go::On(Direction::Forward),
            "reverseContinue" => Go::On(Direction::Backward),
            "next" => step(Step::Over, Direction::Forward),
            "stepIn" => match way.target_id {
                Some(id) => {
                    let known = self.stops.callees.get(id as usize);
                    let Some(&address) = known else {
                        return Err("there is no such target; ask for stepInTargets again".into());
                    };
                    Go::Into {
                        thread: way.thread_id,
                        address,
                    }
                }
                None => step(Step::Into, Direction::Forward),
            },
            "stepOut" => step(Step::Out, Direction::Forward),
            "stepBack" => step(Step::Over, Direction::Backward),
            "goto" => {
                let targets = &self.stops.targets;
                let target = way.target_id.and_then(|id| targets.get(id as usize));
                let Some(spot) = target.cloned() else {
                    return Err("there is no such target; ask for gotoTargets again".into());
                };
                Go::To {
                    thread: way.thread_id,
                    spot,
                }
            }
            "restartFrame" => match way.frame_id {
                Some(frame) => Go::Frame(frame),
                None => return Err("which frame? restartFrame needs frameId".into()),
            },
            _ => Go::Pause,
        })
    }

    pub fn step_in_targets(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            frame_id: u64,
        }
        let asked: Asked = arguments(request)?;
        let (thread, frame) = self.references.frame(asked.frame_id)?;
        let mut told = Vec::new();
        for target in self.debugger.step_targets(thread, frame)? {
            told.push(json!({"id": self.stops.callees.len(), "label": target.function}));
            self.stops.callees.push(target.address);
        }
        Ok(json!({"targets": told}))
    }

    pub fn goto_targets(&mut self, request: &Request) -> Answer {
        let place: crate::stops::SourceLine = arguments(request)?;
        let line = place.line + 1 - self.references.first_line;
        let spots = Spots::of(place.source.path.as_deref(), line)?;
        // Whether there is code is known by trying.
        let (spot, line) = self.breakable(&spots)?;
        self.stops.targets.push(spot);
        let id = self.stops.targets.len() - 1;
        let shown = line + self.references.first_line - 1;
        let label = format!("the next time, or the last, that line {shown} runs");
        Ok(json!({"targets": [{"id": id, "label": label, "line": shown}]}))
    }

    /// Goes there; the body of the event that tells it.
    pub fn go(&mut self, go: &Go, at: Option<&str>, stop: bool) -> Answer {
        let stopped = match go {
            Go::Begin | Go::Restart => self.begin(at, stop || matches!(go, Go::Restart))?,
            Go::On(direction) => self.on(*direction)?,
            Go::Step {
                thread,
                step,
                direction,
            } => {
                self.choose(*thread)?;
                let stop = self.debugger.step(*step, *direction, 0)?;
                match self.passes(&stop) {
                    // A step that only came to a breakpoint that doesn't count yet goes on.
                    true => self.debugger.step(*step, *direction, 0)?,
                    false => stop,
                }
            }
            Go::Into { thread, address } => {
                self.choose(*thread)?;
                self.debugger.step_into(*address, 0)?
            }
            Go::To { thread, spot } => {
                self.choose(*thread)?;
                self.to(spot)?
            }
            Go::Position(position) => {
                let here = self.debugger.seek(position)?;
                Stop {
                    reason: StopReason::Arrived,
                    here,
                    returned: None,
                }
            }
            Go::Frame(frame) => {
                let (thread, number) = self.references.frame(*frame)?;
                let Some(position) = self.debugger.began(thread, number)? else {
                    return Err("where this function was called isn't known".into());
                };
                let here = self.debugger.seek(&position.to_string())?;
                Stop {
                    reason: StopReason::Arrived,
                    here,
                    returned: None,
                }
            }
            Go::Pause => Stop {
                reason: StopReason::Interrupted,
                here: self.debugger.here()?,
                returned: None,
            },
        };
        self.references.clear();
        Ok(self.told(&stopped, go))
    }

    fn choose(&mut self, thread: u64) -> Result<(), Failed> {
        let number = u32::try_from(thread.saturating_sub(1)).unwrap_or(u32::MAX);
        Ok(self.debugger.choose_thread(number)?)
    }

    /// The editor has set its breakpoints: to where it wants to begin.
    fn begin(&mut self, at: Option<&str>, stop: bool) -> Result<Stop, Failed> {
        let arrived = |here| Stop {
            reason: StopReason::Arrived,
            here,
            returned: None,
        };
        if let Some(at) = at {
            return Ok(arrived(self.debugger.seek(at)?));
        }
        let start = self.debugger.seek("start")?;
        if !stop {
            return self.on(Direction::Forward);
        }
        let main = Spot::Function("main".into());
        match self.debugger.run_to(Direction::Forward, &main) {
            Ok(stop) if stop.reason != StopReason::End => Ok(stop),
            // Without main, or where nobody comes there, the start is as good.
            Ok(_) => Ok(arrived(self.debugger.seek(&start.position)?)),
            Err(error) if error.is_interrupted() => Err(Failed::Cancelled),
            Err(_) => Ok(arrived(self.debugger.seek(&start.position)?)),
        }
    }

    /// On to a breakpoint that counts.
    fn on(&mut self, direction: Direction) -> Result<Stop, Failed> {
        loop {
            let stop = self.debugger.go(direction)?;
            if !self.passes(&stop) {
                return Ok(stop);
            }
        }
    }

    /// The next time that a line runs; the last, if it doesn't any more.
    fn to(&mut self, spot: &Spot) -> Result<Stop, Failed> {
        let here = self.debugger.here()?.position;
        let stop = self.debugger.run_to(Direction::Forward, spot)?;
        if stop.reason != StopReason::End {
            return Ok(stop);
        }
        self.debugger.seek(&here)?;
        let stop = self.debugger.run_to(Direction::Backward, spot)?;
        if stop.reason == StopReason::Start {
            self.debugger.seek(&here)?;
            return Err("that line is never run in this recording".into());
        }
        Ok(stop)
    }

    fn told(&mut self, stop: &Stop, go: &Go) -> Value {
        self.ended = None;
        let position = &stop.here.position;
        let mut body = json!({"text": format!("at {position}")});
        let reason = match &stop.reason {
            StopReason::Breakpoints(ids) => {
                body["hitBreakpointIds"] = json!(ids);
                match ids.iter().any(|id| self.stops.is_exception(*id)) {
                    true => "exception",
                    false => "breakpoint",
                }
            }
            StopReason::Watchpoint(id) => {
                body["hitBreakpointIds"] = json!([crate::stops::data_id(*id)]);
                "data breakpoint"
            }
            StopReason::Start => {
                body["description"] = "the start of the recording".into();
                "entry"
            }
            StopReason::End => {
                let next = stop.here.next.clone().unwrap_or_else(|| "it ends".into());
                body["description"] = format!("the end of the recording: {next}").into();
                let killed = next.contains("SIG") || next.contains("signal");
                self.ended = killed.then(|| next.clone());
                match killed {
                    true => "exception",
                    false => "pause",
                }
            }
            StopReason::Interrupted => "pause",
            StopReason::Step => "step",
            StopReason::Arrived => match go {
                Go::Begin | Go::Restart => "entry",
                Go::Step { .. } => "step",
                _ => "goto",
            },
        };
        if let Some(value) = &stop.returned {
            body["description"] = format!("returned {}", value.text).into();
        }
        body["reason"] = reason.into();
        body
    }
}
