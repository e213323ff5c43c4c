//! An event as people read it, and as programs do.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::cursor::{Entry, Piece};
use crate::text;
use clew_calls::show::{self, Contents, Pointed};
use clew_calls::{names, table};
use clew_recording::deadlock::{self, Awaited, Waiter};
use clew_recording::event::{Call, Cause, End, Event, Instruction, Origin, Place, Touch};
use clew_recording::position::Position;
use clew_recording::summary;

/// As much of data is shown, and as many pieces of it beside a call.
const SHOWN: usize = 32;
const SHOWN_PIECES: usize = 3;

/// The names of registers in an effect.
const REGISTERS: [&str; 20] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags", "fs", "gs",
];

/// One line for an event.
pub fn text(entry: &Entry, full: bool) -> String {
    let most = if full { usize::MAX } else { SHOWN };
    match &entry.event {
        Event::Started(start) => {
            let how = match start.origin {
                Origin::Exec { before: 0 } => "started".into(),
                Origin::Exec { before } => format!("exec (after stream {before})"),
                Origin::Fork { parent } => format!("forked (from stream {parent})"),
                Origin::Midst { events, ticks, .. } => {
                    let at = Position {
                        event: events,
                        ticks,
                        steps: 0,
                    };
                    format!("begins in the midst, at {at}:")
                }
            };
            let argv: Vec<String> = start.argv.iter().map(|arg| summary::text(arg)).collect();
            format!(
                "{how} {}: {}; process {}, parent {}{}",
                summary::text(&start.exe),
                text::command(&argv),
                start.pid,
                start.parent_pid,
                bulk(entry)
            )
        }
        Event::Call(call) => call_text(call, &call.end, entry, most),
        Event::Resumed { result, .. } => {
            let (name, data) = match &entry.resumes {
                Some(call) => (names::call(call.nr), outputs(call, entry, most)),
                None => ("?".into(), Vec::new()),
            };
            let what = match result {
                Some(value) => {
                    let nr = entry.resumes.map_or(u32::MAX, |call| call.nr);
                    format!("= {}", show::returned(nr, *value))
                }
                None => "undone, to be made again".into(),
            };
            let data = data.join(", ");
            let data = if data.is_empty() {
                data
            } else {
                format!("{data} ")
            };
            let by = entry.woken_by.map(|by| format!(", woken by {by}"));
            let by = by.unwrap_or_default();
            format!("<... {name} resumed> {data}{what}{by}")
        }
        Event::Instruction { what, .. } => {
            let name = instruction(*what);
            let values = entry.effects.values.iter();
            let values = values.filter(|(n, _)| REGISTERS.get(*n).is_some_and(|&r| r != "rip"));
            let values: Vec<String> = values
                .map(|(n, value)| format!("{}={value:#x}", REGISTERS[*n]))
                .collect();
            format!("{name} -> {}", values.join(" "))
        }
        Event::Shared { touch, .. } => {
            let at = match touch {
                Touch::Instruction { page, .. } => format!(" at {page:#x}"),
                Touch::Engine | Touch::Unknown => String::new(),
            };
            format!("shared memory{at} from another process{}", bulk(entry))
        }
        Event::Signal {
            place,
            cause,
            signo,
            ..
        } => {
            let from = show::siginfo(*signo, &entry.bytes);
            format!(
                "--- {}{from}, {}, {}",
                names::signal(*signo),
                why(*cause),
                at(place)
            )
        }
        Event::Switched { place, to } => format!("switch to thread {to}, {}", at(place)),
        Event::NewThread { thread, tid } => format!("new thread {thread}, tid {tid}"),
        Event::EndedThread { thread } => format!("thread {thread} ended"),
        Event::Forked { stream, pid, .. } => format!("forked process {pid} (stream {stream})"),
        Event::Check {
            place,
            registers,
            memory,
        } => {
            let memory = memory.map_or(String::new(), |sum| format!(", memory {sum:016x}"));
            format!("check: registers {registers:016x}{memory}, {}", at(place))
        }
        Event::Exec { .. } => "about to exec".into(),
        Event::Exited { status, .. } => format!("+++ exited with {status}"),
        Event::Killed {
            place,
            cause,
            signo,
        } => format!(
            "+++ killed by {}, {}, {}",
            names::signal(*signo),
            why(*cause),
            at(place)
        ),
        Event::Leap { place, left_out } => format!(
            "{} left out, {}",
            text::counted(*left_out, "instruction"),
            at(place)
        ),
        Event::Values(_) => format!(
            "answers taken inside translated code: {}",
            text::counted(entry.bytes.len() as u64, "byte")
        ),
        Event::Time(time) => format!("time {time} ns"),
        Event::Note(_) => format!("note: {}", summary::text(&entry.bytes)),
        Event::State { ticks, waits, .. } => {
            let name = summary::text(&entry.bytes);
            let waits = waits.map_or(String::new(), |call| {
                format!(", waits in {}", names::call(call.nr))
            });
            format!("state of the thread {name}, {ticks} ticks so far{waits}")
        }
        Event::Deadlock(waiters) => {
            format!("deadlock: {}", deadlock::text(waiters).replace('\n', "; "))
        }
    }
}

fn instruction(what: Instruction) -> &'static str {
    match what {
        Instruction::Cpuid => "cpuid",
        Instruction::TimeStamp => "rdtsc",
        Instruction::Random => "rdrand",
        Instruction::Other => "instruction",
        Instruction::Quiet { .. } => "pause",
    }
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Outside => "from outside",
        Cause::Fault => "by the instruction there",
    }
}

fn at(place: &Place) -> String {
    match place.steps {
        0 => format!("{} ticks on", place.ticks),
        steps => format!("{} ticks and {steps} instructions on", place.ticks),
    }
}

/// How much a start brings along.
fn bulk(entry: &Entry) -> String {
    let effects = &entry.effects;
    match (effects.maps, effects.memory_bytes) {
        (0, 0) => String::new(),
        (maps, bytes) => format!(
            "; {} of mappings, {} of memory",
            text::counted(maps, "change"),
            text::size(bytes)
        ),
    }
}

fn call_text(call: &Call, end: &End, entry: &Entry, most: usize) -> String {
    let known = table::lookup(u64::from(call.nr));
    let name = names::call(call.nr);
    let count = show::count(known);
    let args: Vec<String> = (0..count)
        .map(|n| {
            show::argument(
                known,
                n,
                call.args[n],
                pointed(entry, n, call.args[n]),
                most,
            )
        })
        .collect();
    let end = match end {
        End::Returned(value) => format!("= {}", show::returned(call.nr, *value)),
        End::Restarted => "= undone for a signal, to be made again".into(),
        End::Waits => "<waits ...>".into(),
        End::Replaced => "= ?".into(),
    };
    let mut out = format!("{name}({}) {end}", args.join(", "));
    let shown: Vec<u64> = call.args[..count].to_vec();
    let others: Vec<&Piece> = entry
        .effects
        .memory
        .iter()
        .filter(|piece| !shown.contains(&piece.addr))
        .collect();
    let some = others.len().min(if most == usize::MAX {
        usize::MAX
    } else {
        SHOWN_PIECES
    });
    for piece in &others[..some] {
        let _ = write!(
            out,
            "; {:#x}: {}",
            piece.addr,
            show::data(contents(piece), most)
        );
    }
    if others.len() > some {
        let _ = write!(out, "; and {} more pieces", others.len() - some);
    }
    if let Some(output) = call.output {
        let _ = write!(out, "; output {} to {}", output.order, output.to);
    }
    out
}

/// What is known of the memory behind an argument.
fn pointed(entry: &Entry, n: usize, value: u64) -> Pointed<'_> {
    let mut inputs = entry.inputs.iter();
    let input = inputs.find(|input| input.index as usize == n);
    let mut pieces = entry.effects.memory.iter();
    Pointed {
        passed: input.map(|input| Contents {
            bytes: &input.bytes,
            len: input.len,
        }),
        written: pieces.find(|piece| piece.addr == value).map(contents),
    }
}

fn contents(piece: &Piece) -> Contents<'_> {
    Contents {
        bytes: &piece.bytes,
        len: piece.len,
    }
}

/// Data that a waiting call's end brought.
fn outputs(call: &Call, entry: &Entry, most: usize) -> Vec<String> {
    let known = table::lookup(u64::from(call.nr));
    let shown = entry.effects.memory.iter().take(SHOWN_PIECES);
    shown
        .map(|piece| {
            let n = call.args.iter().position(|&arg| arg == piece.addr);
            match n {
                Some(n) => show::written(known, n, contents(piece), most),
                None => show::data(contents(piece), most),
            }
        })
        .collect()
}

fn waiter_json(waiter: &Waiter) -> Value {
    let (lock, owner, end, word) = match waiter.waits {
        Awaited::Lock { addr, owner } => (Some(addr), Some(owner), None, None),
        Awaited::End { tid } => (None, None, Some(tid), None),
        Awaited::Wake { addr } => (None, None, None, Some(addr)),
    };
    let hex = |addr: Option<u64>| addr.map(|addr| format!("{addr:#x}"));
    json!({
        "tid": waiter.tid,
        "lock": hex(lock),
        "owner": owner,
        "end_of": end,
        "woken_at": hex(word),
    })
}

/// An object for an event. Numbers that may be larger than 2^53 are strings.
pub fn json(entry: &Entry, full: bool) -> String {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        out.insert(key.into(), value);
    };
    put("stream", entry.stream.into());
    put("event", entry.number.into());
    put("kind", summary::kind(&entry.event).into());
    put("time_ns", entry.time_ns.into());
    put("pid", entry.pid.into());
    put("thread", entry.thread.into());
    put("tid", entry.tid.into());
    let place = entry.event.place();
    put("ticks", place.ticks.into());
    if place.steps != 0 {
        put("steps", place.steps.into());
    }
    put("ticks_in_all", entry.ticks.into());
    put("text", text(entry, full).into());
    match &entry.event {
        Event::Started(start) => {
            put("exe", summary::text(&start.exe).into());
            let argv: Vec<String> = start.argv.iter().map(|arg| summary::text(arg)).collect();
            put("argv", argv.into());
            put("parent_pid", start.parent_pid.into());
            let (origin, stream) = match start.origin {
                Origin::Exec { before } => ("exec", before),
                Origin::Fork { parent } => ("fork", parent),
                Origin::Midst { events, ticks, .. } => {
                    put("events_before", events.into());
                    put("ticks_before", ticks.into());
                    ("midst", 0)
                }
            };
            put("origin", origin.into());
            put("from", stream.into());
        }
        Event::Call(call) => {
            put("nr", call.nr.into());
            put("name", names::call(call.nr).into());
            let args: Vec<String> = call.args.iter().map(|arg| format!("{arg:#x}")).collect();
            put("args", args.into());
            if !entry.inputs.is_empty() {
                let inputs = entry.inputs.iter().map(|input| {
                    let text = String::from_utf8_lossy(&input.bytes).into_owned();
                    (
                        input.index.to_string(),
                        json!({ "len": input.len, "text": text }),
                    )
                });
                put("inputs", Value::Object(inputs.collect()));
            }
            let end = match call.end {
                End::Returned(value) => {
                    put_result(&mut put, value);
                    "returned"
                }
                End::Restarted => "restarted",
                End::Waits => "waits",
                End::Replaced => "replaced",
            };
            put("end", end.into());
            if let Some(output) = call.output {
                put("output", json!({"to": output.to, "order": output.order}));
            }
        }
        Event::Resumed { result, by } => {
            if let Some(by) = by {
                put("woken_by", (*by).into());
            }
            if let Some(call) = &entry.resumes {
                put("name", names::call(call.nr).into());
            }
            match result {
                Some(value) => put_result(&mut put, *value),
                None => put("end", "restarted".into()),
            }
        }
        Event::Instruction { what, .. } => put("name", instruction(*what).into()),
        Event::Shared { touch, .. } => {
            if let Touch::Instruction { page, .. } = *touch {
                put("page", page.into());
            }
        }
        Event::Signal { cause, signo, .. } | Event::Killed { cause, signo, .. } => {
            put("signal", names::signal(*signo).into());
            put("signo", (*signo).into());
            put("fault", (*cause == Cause::Fault).into());
        }
        Event::Switched { to, .. } => put("to", (*to).into()),
        Event::NewThread { thread, tid } => {
            put("new_thread", (*thread).into());
            put("new_tid", (*tid).into());
        }
        Event::EndedThread { thread } => put("ended_thread", (*thread).into()),
        Event::Forked { stream, pid, .. } => {
            put("child_stream", (*stream).into());
            put("child_pid", (*pid).into());
        }
        Event::Check {
            registers, memory, ..
        } => {
            put("registers_sum", format!("{registers:016x}").into());
            if let Some(memory) = memory {
                put("memory_sum", format!("{memory:016x}").into());
            }
        }
        Event::Exited { status, .. } => put("status", (*status).into()),
        Event::Leap { left_out, .. } => put("left_out", (*left_out).into()),
        Event::Note(_) => put("note", summary::text(&entry.bytes).into()),
        Event::Deadlock(waiters) => {
            let all = waiters.iter().map(waiter_json).collect();
            put("waiters", Value::Array(all));
        }
        Event::State { ticks, waits, .. } => {
            put("name", summary::text(&entry.bytes).into());
            put("thread_ticks", (*ticks).into());
            if let Some(call) = waits {
                put("waits", names::call(call.nr).into());
            }
        }
        Event::Exec { .. } | Event::Values(_) | Event::Time(_) => {}
    }
    let effects = &entry.effects;
    if effects.pieces != 0 {
        let pieces: Vec<Value> = effects
            .memory
            .iter()
            .map(|piece| {
                let data: String = piece.bytes.iter().map(|b| format!("{b:02x}")).collect();
                json!({"addr": format!("{:#x}", piece.addr), "bytes": piece.len, "data": data})
            })
            .collect();
        put("memory", pieces.into());
        put("memory_bytes", effects.memory_bytes.into());
    }
    if !effects.values.is_empty() {
        let registers = effects.values.iter().filter_map(|(n, value)| {
            let name = REGISTERS.get(*n)?;
            Some((name.to_string(), Value::from(format!("{value:#x}"))))
        });
        put("registers", Value::Object(registers.collect()));
    }
    if effects.maps != 0 {
        put("map_changes", effects.maps.into());
    }
    Value::Object(out).to_string()
}

fn put_result(put: &mut impl FnMut(&str, Value), value: i64) {
    put("result", value.into());
    if let Some(name) = names::errno(-value).filter(|_| (-4095..=-1).contains(&value)) {
        put("errno", name.into());
    }
}
