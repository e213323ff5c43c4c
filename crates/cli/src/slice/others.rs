//! From one process into others: in: slices, with what came into them. Out: slices of the same bytes in the processes that
//! wrote them, or that forked.

use clew_recording::event::StreamId;
use clew_slice::closure::{Bounds, Kinds, Question};
use clew_slice::events::Events;
use clew_slice::origin::Value;
use clew_slice::passages::{self, Passages, Piece};
use clew_timeline::Target;

use super::answer::Answer;
use super::{Slice, sliced};
use crate::asking::{Asked, Failed};
use crate::replay::CANT_REPLAY;
use crate::text;

/// Other processes whose bytes came in are asked about those, and so on.
pub(super) fn others(
    asked: &mut Asked,
    all: &mut Vec<Answer>,
    kinds: Kinds,
    line: &Slice,
) -> Result<(), Failed> {
    if asked.recording.streams().len() < 2 {
        return Ok(());
    }
    const MOST: usize = 8;
    let passages = Passages::read(&asked.recording);
    let mut done = 0;
    while done < all.len() && all.len() < MOST {
        let answer = &all[done];
        let stream = answer.stream;
        let log = asked.recording.stream(stream);
        let log = log.map_err(|error| Failed(CANT_REPLAY, error.to_string()))?;
        let events = Events::read(log)?;
        let mut wanted: Vec<(Piece, u64, u64)> = Vec::new();
        for input in &answer.found.inputs {
            let (Some(addr), Some(fact)) = (input.addr, events.get(input.position.event)) else {
                continue;
            };
            let ranges = events.memory(fact);
            let event = input.position.event;
            let found = passages.elsewhere(stream, event, ranges, addr, input.bytes);
            if let Some((piece, at, len)) = found
                && !wanted.iter().any(|(known, ..)| known == piece)
            {
                wanted.push((piece.clone(), at, len));
            }
        }
        for (piece, at, len) in wanted.into_iter().take(MOST - all.len()) {
            let mut other = asked.another(piece.stream, Target::Position(piece.position))?;
            let place = piece.place(&mut other.timeline, at, len)?;
            let Some((addr, len)) = place else {
                continue;
            };
            let title = format!(
                "in {}: {} that it wrote at {}",
                process_named(asked, piece.stream),
                text::counted(len, "byte"),
                piece.position
            );
            let question = Question {
                values: vec![Value::Memory { addr, len }],
                here: false,
            };
            let bounds = Bounds::default();
            all.push(sliced(&mut other, title, &question, kinds, bounds, line)?);
            other.done();
        }
        before_fork(asked, all, done, kinds, line)?;
        done += 1;
    }
    Ok(())
}

/// What a process had from the beginning was its parent's, if it was forked.
fn before_fork(
    asked: &Asked,
    all: &mut Vec<Answer>,
    child: usize,
    kinds: Kinds,
    line: &Slice,
) -> Result<(), Failed> {
    let Some((parent, position)) = passages::forked(&asked.recording, all[child].stream) else {
        return Ok(());
    };
    let found = &all[child].found;
    if !found.complete || found.rest.is_empty() && found.registers.is_empty() {
        return Ok(());
    }
    let mut other = asked.another(parent, Target::Position(position))?;
    let thread = other.timeline.at().thread;
    let rest = found.rest.iter().map(|rest| Value::Memory {
        addr: rest.addr,
        len: rest.len,
    });
    let mut values: Vec<Value> = rest.collect();
    for (_, bytes) in &found.registers {
        for n in (0..16u32).filter(|n| bytes >> (8 * n) & 0xff != 0) {
            values.push(Value::Register {
                thread,
                register: iced_x86::Register::RAX + n,
                bytes: 0..8,
            });
        }
    }
    let title = format!(
        "in {}: what {} had when it was forked, at {position}",
        process_named(asked, parent),
        process_named(asked, all[child].stream),
    );
    let question = Question {
        values,
        here: false,
    };
    all[child].rest.clear();
    let bounds = Bounds::default();
    all.push(sliced(&mut other, title, &question, kinds, bounds, line)?);
    other.done();
    Ok(())
}

fn process_named(asked: &Asked, stream: StreamId) -> String {
    let info = asked.recording.info(stream);
    let named = info.map(|info| {
        let exe = String::from_utf8_lossy(&info.start.exe).into_owned();
        let name = exe.rsplit('/').next().unwrap_or_default().to_owned();
        format!("process {} ({name})", info.start.pid)
    });
    named.unwrap_or_default()
}
