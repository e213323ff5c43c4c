//! A replay that diverged, for people and programs. In: what the engine noticed. Out: process, thread, events, lines and
//! stacks on both sides, what agreed last, and the commands to go on with.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::recordings::dump;
use crate::{stack, text};
use clew_recording::event::{Event, Record, StreamId};
use clew_recording::reader::Recording;
use clew_timeline::divergence::{Scene, Sides};
use clew_timeline::program::Program;
use clew_timeline::{Diverged, Position, Settings, Timeline};

/// So many events before the one that differs are shown.
const BEFORE: u64 = 7;

/// What can be told of a divergence.
pub struct Facts {
    name: String,
    pub pid: i32,
    program: String,
    pub diverged: Diverged,
    /// The last events that agreed, and the one that didn't, a line for each.
    events: Vec<(u64, String)>,
    /// The last comparison of registers that agreed, by its event.
    check: Option<u64>,
    /// What a second replay, one that can be looked into, found.
    pub sides: Result<Option<Sides>, String>,
    /// The command that opens the last place that agreed.
    pub debug: String,
}

impl Facts {
    /// Replays once more, up to the divergence, to look around there. `more`: given that replay, to look further.
    pub fn find(
        recording: &Recording,
        name: &str,
        diverged: &Diverged,
        settings: Settings,
        more: impl FnOnce(&mut Timeline, &mut Program, &Sides),
    ) -> Facts {
        let stream = diverged.stream;
        let sides = look(recording, stream, settings, more);
        // That one may have noticed earlier.
        let diverged = match &sides {
            Ok(Some(sides)) if sides.divergence.event <= diverged.event => &sides.divergence,
            _ => diverged,
        };
        let event = diverged.event;
        let events = dump::bare_lines(recording, stream, event.saturating_sub(BEFORE), event + 1);
        let info = recording.streams().iter().find(|info| info.id == stream);
        let program = info.map(|info| text::command(&words(&info.start.argv)));
        Facts {
            name: name.into(),
            pid: info.map_or(0, |info| info.start.pid),
            program: program.unwrap_or_default(),
            events: events.unwrap_or_default(),
            check: last_check(recording, stream, event),
            debug: debug_command(recording, name, stream, event),
            diverged: diverged.clone(),
            sides,
        }
    }

    /// Several lines, the first of which stands for all.
    pub fn text(&self) -> String {
        let (event, diverged) = (self.diverged.event, &self.diverged);
        let (pid, program, stream) = (self.pid, &self.program, diverged.stream);
        let thread = match &self.sides {
            Ok(Some(sides)) => {
                let thread = &sides.found.thread;
                format!("thread {} ({})", thread.tid, thread.name)
            }
            _ => format!("thread number {}", diverged.thread),
        };
        let mut out = format!(
            "replay diverged from the recording in process {pid} ({program}), {thread}, behind event {event} of \
             stream {stream}\n"
        );
        let _ = writeln!(
            out,
            "  expected {}, found {}",
            diverged.expected, diverged.found
        );
        let _ = writeln!(
            out,
            "  recorded (> is the event that the replay didn't come to):"
        );
        for (number, line) in &self.events {
            let mark = if *number > event { '>' } else { ' ' };
            let _ = writeln!(out, "  {mark} {line}");
        }
        match self.check {
            Some(check) => {
                let _ = writeln!(
                    out,
                    "  last equal: event {event}; the registers were last compared at event {check}"
                );
            }
            None => {
                let _ = writeln!(
                    out,
                    "  last equal: event {event}; no registers were compared"
                );
            }
        }
        match &self.sides {
            Ok(Some(sides)) => {
                let other = &sides.divergence;
                if other.event != event {
                    let _ = writeln!(out, "  a second replay diverged elsewhere: {other}");
                }
                scene(&mut out, "there", &sides.agreed);
                scene(&mut out, "the replay noticed", &sides.found);
            }
            Ok(None) => {
                let _ = writeln!(
                    out,
                    "  a second replay didn't diverge: what differs isn't the same each time; please say so in a report"
                );
            }
            Err(why) => {
                let _ = writeln!(out, "  it can't be looked into: {why}");
            }
        }
        let _ = writeln!(out, "  look at it: {}", self.debug);
        let report = text::command(&["clew".into(), "report".into(), self.name.clone()]);
        let _ = write!(out, "  report it: {report}");
        out
    }

    pub fn json(&self) -> Value {
        let diverged = &self.diverged;
        let recorded = self.events.iter().find(|(n, _)| *n > diverged.event);
        let (sides, problem) = match &self.sides {
            Ok(sides) => (sides.as_ref(), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "process": self.pid,
            "program": self.program,
            "stream": diverged.stream,
            "event": diverged.event,
            "position": Position::after(diverged.event).to_string(),
            "expected": diverged.expected,
            "found": diverged.found,
            "unreadable": diverged.unreadable,
            "pc": format!("{:#x}", diverged.pc),
            "recorded": recorded.map(|(_, line)| line),
            "events": self.events.iter().map(|(_, line)| line).collect::<Vec<_>>(),
            "last_check": self.check,
            "agreed": sides.map(|sides| scene_json(&sides.agreed)),
            "noticed": sides.map(|sides| scene_json(&sides.found)),
            "again": matches!(&self.sides, Ok(Some(sides)) if sides.divergence.event == diverged.event),
            "problem": problem,
            "debug": self.debug,
        })
    }
}

fn words(argv: &[Vec<u8>]) -> Vec<String> {
    let word = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    argv.iter().map(word).collect()
}

fn look(
    recording: &Recording,
    stream: StreamId,
    settings: Settings,
    more: impl FnOnce(&mut Timeline, &mut Program, &Sides),
) -> Result<Option<Sides>, String> {
    let mut timeline =
        Timeline::open(recording, stream, settings).map_err(|error| error.to_string())?;
    let mut program = Program::new(recording);
    let sides = timeline.sides(&mut program);
    let sides = sides.map_err(|error| error.to_string())?;
    if let Some(sides) = &sides {
        more(&mut timeline, &mut program, sides);
    }
    Ok(sides)
}

/// The last event up to `event` at which registers were compared.
fn last_check(recording: &Recording, stream: StreamId, event: u64) -> Option<u64> {
    let mut reader = recording.stream(stream).ok()?;
    let mut last = None;
    while reader.position() < event {
        match reader.next_in_place() {
            Ok(Some(Record::Event(Event::Check { .. }))) => last = Some(reader.position()),
            Ok(Some(_)) => {}
            _ => break,
        }
    }
    last
}

fn debug_command(recording: &Recording, name: &str, stream: StreamId, event: u64) -> String {
    let streams = recording.streams();
    let mut words: Vec<String> = ["clew", "debug", name].map(String::from).to_vec();
    let pid = |info: Option<&clew_recording::reader::StreamInfo>| info.map(|info| info.start.pid);
    let own = pid(streams.iter().find(|info| info.id == stream));
    if let Some(own) = own {
        if own != streams[0].start.pid {
            words.extend(["--pid".into(), own.to_string()]);
        }
        let of_pid = streams.iter().filter(|info| info.start.pid == own);
        let programs: Vec<StreamId> = of_pid.map(|info| info.id).collect();
        if programs.last() != Some(&stream)
            && let Some(number) = programs.iter().position(|&id| id == stream)
        {
            words.extend(["--exec".into(), (number + 1).to_string()]);
        }
    }
    words.extend(["--at".into(), event.to_string()]);
    text::command(&words)
}

fn scene(out: &mut String, what: &str, scene: &Scene) {
    let thread = &scene.thread;
    let (position, tid, name) = (scene.position, thread.tid, &thread.name);
    let _ = writeln!(out, "  {what}, at {position}, in thread {tid} ({name}):");
    for line in scene.stack.to_string().lines() {
        let _ = writeln!(out, "    {line}");
    }
}

fn scene_json(scene: &Scene) -> Value {
    let thread = &scene.thread;
    let top = scene.stack.frames.iter().find(|frame| frame.line.is_some());
    let line = top.and_then(|frame| frame.line.as_ref());
    json!({
        "position": scene.position.to_string(),
        "thread": { "number": thread.number, "tid": thread.tid, "name": thread.name },
        "file": line.map(|line| line.file.to_string()),
        "line": line.map(|line| line.line),
        "stack": stack::json(&scene.stack),
    })
}
