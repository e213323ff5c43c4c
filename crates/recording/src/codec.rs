//! Events and effects to bytes and back.
//!
//! A record is a kind (one byte), a length, and that many bytes. System calls are written as
//! difference to the last one of the same number in the stream, so a stream is read from its start.
//! docs/format.md describes every kind.

use crate::bytes::{LONGEST, Malformed, Reader, Writer};
use crate::deadlock::{Awaited, Waiter};
use crate::event::*;

/// Calls from this number on have no memory of their last arguments.
const REMEMBERED: usize = 512;
/// Of a deadlock so many threads are told: they fit into a record.
const MOST_WAITERS: usize = 2000;
/// Kinds from here on are effects.
const EFFECTS: u8 = 0x40;

mod kind {
    pub const STARTED: u8 = 1;
    pub const CALL: u8 = 2;
    pub const RESUMED: u8 = 3;
    pub const INSTRUCTION: u8 = 4;
    pub const SIGNAL: u8 = 5;
    pub const SWITCHED: u8 = 6;
    pub const NEW_THREAD: u8 = 7;
    pub const ENDED_THREAD: u8 = 8;
    pub const FORKED: u8 = 9;
    pub const CHECK: u8 = 10;
    pub const EXEC: u8 = 11;
    pub const EXITED: u8 = 12;
    pub const KILLED: u8 = 13;
    pub const VALUES: u8 = 14;
    pub const TIME: u8 = 15;
    pub const NOTE: u8 = 16;
    pub const SHARED: u8 = 17;
    pub const TOUCHED: u8 = 18;
    pub const DEADLOCK: u8 = 19;
    pub const LEAP: u8 = 20;
    pub const STATE: u8 = 21;
    pub const MEMORY: u8 = 0x40;
    pub const REGISTERS: u8 = 0x41;
    pub const EXTENDED: u8 = 0x42;
    pub const MAP: u8 = 0x43;
    pub const OUTPUT: u8 = 0x44;
}

/// Appends a number as [`Writer::number`] writes it.
pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    let mut room = [0; LONGEST];
    let mut writer = Writer::new(&mut room);
    writer.number(value);
    let len = writer.len();
    out.extend_from_slice(&room[..len]);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_number(out, (value << 1 ^ value >> 63) as u64);
}

/// What both sides remember of a stream.
#[derive(Clone)]
struct Memory {
    args: Box<[[u64; 6]; REMEMBERED]>,
    addr: u64,
    time: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            args: vec![[0; 6]; REMEMBERED]
                .into_boxed_slice()
                .try_into()
                .expect("as long as the array"),
            addr: 0,
            time: 0,
        }
    }
}

/// Writes the records of one stream.
#[derive(Clone, Default)]
pub struct Encoder {
    memory: Memory,
}

impl Encoder {
    /// Puts a record at the start of `room`, which has at least [`LONGEST_RECORD`] bytes; returns its
    /// length.
    pub fn event(&mut self, event: &Event, room: &mut [u8]) -> usize {
        let memory = &mut self.memory;
        let long = match event {
            Event::Signal { info, .. } => info.len(),
            Event::Values(bytes) => bytes.len(),
            Event::Note(text) => text.len(),
            Event::Deadlock(waiters) => waiters.len().min(MOST_WAITERS) * 3 * LONGEST,
            _ => 0,
        };
        frame(room, long, |out| match event {
            Event::Started(start) => {
                put_start(start, out);
                kind::STARTED
            }
            Event::Call(call) => {
                put_call(call, memory, out);
                kind::CALL
            }
            Event::Resumed { result, by } => {
                out.byte(result.is_some() as u8 | (by.is_some() as u8) << 1);
                out.signed(result.unwrap_or(0));
                if let Some(by) = by {
                    out.number(u64::from(*by));
                }
                kind::RESUMED
            }
            Event::Instruction { ticks, what } => {
                out.number(*ticks);
                match what {
                    Instruction::Cpuid => out.byte(0),
                    Instruction::TimeStamp => out.byte(1),
                    Instruction::Random => out.byte(2),
                    Instruction::Other => out.byte(3),
                    Instruction::Quiet { passed } => {
                        out.byte(4);
                        out.number(*passed as u64);
                    }
                }
                kind::INSTRUCTION
            }
            Event::Shared { ticks, touch } => {
                out.number(*ticks);
                match *touch {
                    Touch::Unknown => kind::SHARED,
                    Touch::Engine => {
                        out.byte(0);
                        kind::TOUCHED
                    }
                    Touch::Instruction { pc, page } => {
                        out.byte(1);
                        out.number(pc);
                        out.number(page);
                        kind::TOUCHED
                    }
                }
            }
            Event::Signal {
                place,
                cause,
                signo,
                info,
            } => {
                put_place(place, out);
                out.byte(*cause as u8);
                out.signed(*signo as i64);
                out.bytes(info);
                kind::SIGNAL
            }
            Event::Switched { place, to } => {
                put_place(place, out);
                out.number(*to as u64);
                kind::SWITCHED
            }
            Event::NewThread { thread, tid } => {
                out.number(*thread as u64);
                out.signed(*tid as i64);
                kind::NEW_THREAD
            }
            Event::EndedThread { thread } => {
                out.number(*thread as u64);
                kind::ENDED_THREAD
            }
            Event::Forked { ticks, stream, pid } => {
                out.number(*ticks);
                out.number(*stream as u64);
                out.signed(*pid as i64);
                kind::FORKED
            }
            Event::Check {
                place,
                registers,
                memory,
            } => {
                put_place(place, out);
                out.bytes(&registers.to_le_bytes());
                if let Some(memory) = memory {
                    out.bytes(&memory.to_le_bytes());
                }
                kind::CHECK
            }
            Event::Exec { ticks } => {
                out.number(*ticks);
                kind::EXEC
            }
            Event::Exited { ticks, status } => {
                out.number(*ticks);
                out.signed(*status as i64);
                kind::EXITED
            }
            Event::Killed {
                place,
                cause,
                signo,
            } => {
                put_place(place, out);
                out.byte(*cause as u8);
                out.signed(*signo as i64);
                kind::KILLED
            }
            Event::Leap { place, left_out } => {
                put_place(place, out);
                out.number(*left_out);
                kind::LEAP
            }
            Event::Values(bytes) => {
                out.bytes(bytes);
                kind::VALUES
            }
            Event::Time(time) => {
                out.number(time.wrapping_sub(memory.time));
                memory.time = *time;
                kind::TIME
            }
            Event::Note(text) => {
                out.bytes(text.as_bytes());
                kind::NOTE
            }
            Event::Deadlock(waiters) => {
                for waiter in &waiters[..waiters.len().min(MOST_WAITERS)] {
                    put_waiter(waiter, out);
                }
                kind::DEADLOCK
            }
            Event::State { ticks, name, waits } => {
                out.number(*ticks);
                out.string(&name[..name.len().min(LONGEST_NAME)]);
                if let Some(call) = waits {
                    put_waiting(call, out);
                }
                kind::STATE
            }
        })
    }

    /// The same for a [`Effect::Memory`] of `len` bytes that `read` puts there; `None` if it says that it can't.
    #[inline]
    pub fn memory(
        &mut self,
        addr: u64,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> bool,
        room: &mut [u8],
    ) -> Option<usize> {
        let mut done = false;
        let memory = &mut self.memory;
        let used = frame(room, len, |out| {
            out.signed(addr.wrapping_sub(memory.addr) as i64);
            done = read(out.hole(len));
            kind::MEMORY
        });
        if !done {
            return None;
        }
        memory.addr = addr;
        Some(used)
    }

    /// The same for an effect. A piece of memory is at most [`LONGEST_PIECE`] long.
    pub fn effect(&mut self, effect: &Effect, room: &mut [u8]) -> usize {
        let memory = &mut self.memory;
        let long = match effect {
            Effect::Registers { .. } | Effect::Output { .. } => 0,
            Effect::Memory { bytes, .. } | Effect::Extended(bytes) | Effect::Map(bytes) => {
                bytes.len()
            }
        };
        frame(room, long, |out| match effect {
            Effect::Memory { addr, bytes } => {
                out.signed(addr.wrapping_sub(memory.addr) as i64);
                memory.addr = *addr;
                out.bytes(bytes);
                kind::MEMORY
            }
            Effect::Registers { mask, values } => {
                out.number(*mask as u64);
                for value in set(*mask).map(|n| values[n]) {
                    out.number(value);
                }
                kind::REGISTERS
            }
            Effect::Extended(bytes) => {
                out.bytes(bytes);
                kind::EXTENDED
            }
            Effect::Map(bytes) => {
                out.bytes(bytes);
                kind::MAP
            }
            Effect::Output { order, bytes } => {
                out.number(*order);
                out.number(*bytes);
                kind::OUTPUT
            }
        })
    }
}

/// The registers in a mask.
fn set(mask: u32) -> impl Iterator<Item = usize> {
    (0..REGISTERS).filter(move |n| mask >> n & 1 != 0)
}

/// Writes kind and length around what `put` writes, which has `long` bytes and some more. Most records are
/// short, and their length takes one byte; for others there is room for three from the start, so
/// that they needn't be moved.
fn frame(room: &mut [u8], long: usize, put: impl FnOnce(&mut Writer) -> u8) -> usize {
    const SHORT: usize = 2;
    const LONG: usize = 4;
    let head = if long < 0x60 { SHORT } else { LONG };
    let mut out = Writer::new(&mut room[head..]);
    let kind = put(&mut out);
    let len = out.len();
    room[0] = kind;
    if head == SHORT {
        if len < 0x80 {
            room[1] = len as u8;
            return SHORT + len;
        }
        room.copy_within(SHORT..SHORT + len, LONG);
    }
    // Three bytes of seven bits are more than any record needs.
    room[1] = len as u8 | 0x80;
    room[2] = (len >> 7) as u8 | 0x80;
    room[3] = (len >> 14) as u8;
    LONG + len
}

fn put_place(place: &Place, out: &mut Writer) {
    out.number(place.ticks);
    out.number(place.steps as u64);
}

/// How a call ended, in the low bits of its first byte; then whether it has output.
const RETURNED: u8 = 0;
const RESTARTED: u8 = 1;
const WAITS: u8 = 2;
const REPLACED: u8 = 3;
const OUTPUT: u8 = 4;

fn put_call(call: &Call, memory: &mut Memory, out: &mut Writer) {
    let end = match call.end {
        End::Returned(_) => RETURNED,
        End::Restarted => RESTARTED,
        End::Waits => WAITS,
        End::Replaced => REPLACED,
    };
    out.byte(end | if call.output.is_some() { OUTPUT } else { 0 });
    out.number(call.nr as u64);
    out.number(call.ticks);
    let mut fresh = [0; 6];
    let last = memory.args.get_mut(call.nr as usize).unwrap_or(&mut fresh);
    let at = out.len();
    out.byte(0);
    let mut changed = 0;
    for (n, (&new, old)) in call.args.iter().zip(last).enumerate() {
        if new != *old {
            changed |= 1 << n;
            out.signed(new.wrapping_sub(*old) as i64);
            *old = new;
        }
    }
    out.patch(at, changed);
    if let End::Returned(value) = call.end {
        out.signed(value);
    }
    if let Some(output) = call.output {
        out.byte(output.to);
        out.number(output.order);
    }
}

fn put_waiter(waiter: &Waiter, out: &mut Writer) {
    out.signed(waiter.tid.into());
    match waiter.waits {
        Awaited::Lock { addr, owner } => {
            out.byte(0);
            out.number(addr);
            out.signed(owner.into());
        }
        Awaited::End { tid } => {
            out.byte(1);
            out.signed(tid.into());
        }
        Awaited::Wake { addr } => {
            out.byte(2);
            out.number(addr);
        }
    }
}

fn take_waiter(input: &mut Reader) -> Result<Waiter, Malformed> {
    let tid = take_i32(input)?;
    let waits = match input.byte()? {
        0 => Awaited::Lock {
            addr: input.number()?,
            owner: take_i32(input)?,
        },
        1 => Awaited::End {
            tid: take_i32(input)?,
        },
        2 => Awaited::Wake {
            addr: input.number()?,
        },
        _ => return Err(Malformed),
    };
    Ok(Waiter { tid, waits })
}

/// Beside a start's origin: dead flags are seen as 0, and checks are of all registers. Not in recordings of the first clock.
const WHOLE: u8 = 2;
/// The origin of a stream that begins in the midst.
const MIDST: u8 = 4;
/// The kernel keeps so much of a thread's name.
const LONGEST_NAME: usize = 15;

/// A call that a thread waits in where its stream begins: not as difference to others.
fn put_waiting(call: &Call, out: &mut Writer) {
    out.number(call.nr as u64);
    out.number(call.ticks);
    for arg in call.args {
        out.number(arg);
    }
    if let Some(output) = call.output {
        out.byte(output.to);
        out.number(output.order);
    }
}

fn take_waiting(input: &mut Reader) -> Result<Call, Malformed> {
    let (nr, ticks) = (input.small()?, input.number()?);
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = input.number()?;
    }
    let output = match input.is_empty() {
        true => None,
        false => Some(Output {
            to: input.byte()?,
            order: input.number()?,
        }),
    };
    Ok(Call {
        ticks,
        nr,
        args,
        end: End::Waits,
        output,
    })
}

fn put_start(start: &Start, out: &mut Writer) {
    let (origin, stream) = match start.origin {
        Origin::Exec { before } => (0, before),
        Origin::Fork { parent } => (1, parent),
        Origin::Midst { .. } => (MIDST, 0),
    };
    out.byte(origin | WHOLE);
    out.number(stream as u64);
    out.signed(start.pid as i64);
    out.signed(start.parent_pid as i64);
    out.signed(start.tid as i64);
    out.number(start.time);
    if let Origin::Midst {
        events,
        ticks,
        stack,
    } = start.origin
    {
        out.number(events);
        out.number(ticks);
        out.number(stack);
    }
    // The guest's own memory has all of it; this is for people.
    const SHOWN: usize = 4096;
    out.string(&start.exe[..start.exe.len().min(SHOWN)]);
    let mut room = LONGEST_PIECE;
    for arg in &start.argv {
        let arg = &arg[..arg.len().min(SHOWN)];
        if room < arg.len() + 16 {
            break;
        }
        room -= arg.len() + 16;
        out.string(arg);
    }
}

/// Reads the records of one stream.
#[derive(Clone, Default)]
pub struct Decoder {
    memory: Memory,
}

impl Decoder {
    /// What it remembers, as bytes.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let memory = &self.memory;
        put_number(out, memory.addr);
        put_number(out, memory.time);
        let used = || {
            memory
                .args
                .iter()
                .enumerate()
                .filter(|(_, args)| **args != [0; 6])
        };
        put_number(out, used().count() as u64);
        for (nr, args) in used() {
            put_number(out, nr as u64);
            for arg in args {
                put_number(out, *arg);
            }
        }
    }

    pub(crate) fn restore(input: &mut Reader) -> Result<Decoder, Malformed> {
        let mut memory = Memory {
            addr: input.number()?,
            time: input.number()?,
            ..Memory::default()
        };
        for _ in 0..input.number()?.min(REMEMBERED as u64) {
            let nr = input.number()? as usize;
            let args = memory.args.get_mut(nr).ok_or(Malformed)?;
            for arg in args {
                *arg = input.number()?;
            }
        }
        Ok(Decoder { memory })
    }

    /// The record at the start of `bytes` and its length; `None` if it isn't there as a whole.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Record<'a>, usize)>, Malformed> {
        let mut record = Record::Event(Event::Time(0));
        let used = self.next_into(bytes, &mut record)?;
        Ok(used.map(|used| (record, used)))
    }

    /// The same, with the record put into its place: moving one takes longer than reading it. After an error
    /// there may be another in that place than before.
    #[inline]
    pub fn next_into<'a>(
        &mut self,
        bytes: &'a [u8],
        into: &mut Record<'a>,
    ) -> Result<Option<usize>, Malformed> {
        let mut input = Reader::new(bytes);
        let (Ok(kind), Ok(len)) = (input.byte(), input.number()) else {
            // A length never takes this much.
            return if bytes.len() < 8 {
                Ok(None)
            } else {
                Err(Malformed)
            };
        };
        if len > LONGEST_RECORD as u64 {
            return Err(Malformed);
        }
        let Ok(payload) = input.bytes(len) else {
            return Ok(None);
        };
        let used = bytes.len() - input.rest().len();
        let mut payload = Reader::new(payload);
        // The most frequent ones on ways of their own.
        match kind {
            kind::CALL => {
                let call = take_call(&mut self.memory, &mut payload)?;
                *into = Record::Event(Event::Call(call));
            }
            kind::VALUES => *into = Record::Event(Event::Values(take_rest(&mut payload)?)),
            kind::MEMORY => {
                let addr = self.memory.addr.wrapping_add(payload.signed()? as u64);
                self.memory.addr = addr;
                let bytes = take_rest(&mut payload)?;
                *into = Record::Effect(Effect::Memory { addr, bytes });
            }
            _ if kind < EFFECTS => *into = Record::Event(self.event(kind, &mut payload)?),
            _ => *into = Record::Effect(self.effect(kind, &mut payload)?),
        }
        Ok(Some(used))
    }

    fn event<'a>(&mut self, kind: u8, input: &mut Reader<'a>) -> Result<Event<'a>, Malformed> {
        let event = match kind {
            kind::STARTED => Event::Started(take_start(input)?),
            kind::RESUMED => {
                let known = input.byte()?;
                let value = input.signed()?;
                Event::Resumed {
                    result: (known & 1 != 0).then_some(value),
                    by: match known & 2 {
                        0 => None,
                        _ => Some(u32::try_from(input.number()?).map_err(|_| Malformed)?),
                    },
                }
            }
            kind::INSTRUCTION => Event::Instruction {
                ticks: input.number()?,
                what: match input.byte()? {
                    0 => Instruction::Cpuid,
                    1 => Instruction::TimeStamp,
                    2 => Instruction::Random,
                    3 => Instruction::Other,
                    4 => Instruction::Quiet {
                        passed: input.small()?,
                    },
                    _ => return Err(Malformed),
                },
            },
            kind::SHARED => Event::Shared {
                ticks: input.number()?,
                touch: Touch::Unknown,
            },
            kind::TOUCHED => Event::Shared {
                ticks: input.number()?,
                touch: match input.byte()? {
                    0 => Touch::Engine,
                    1 => Touch::Instruction {
                        pc: input.number()?,
                        page: input.number()?,
                    },
                    _ => return Err(Malformed),
                },
            },
            kind::SIGNAL => Event::Signal {
                place: take_place(input)?,
                cause: take_cause(input)?,
                signo: take_i32(input)?,
                info: take_rest(input)?,
            },
            kind::SWITCHED => Event::Switched {
                place: take_place(input)?,
                to: input.small()?,
            },
            kind::NEW_THREAD => Event::NewThread {
                thread: input.small()?,
                tid: take_i32(input)?,
            },
            kind::ENDED_THREAD => Event::EndedThread {
                thread: input.small()?,
            },
            kind::FORKED => Event::Forked {
                ticks: input.number()?,
                stream: input.small()?,
                pid: take_i32(input)?,
            },
            kind::CHECK => Event::Check {
                place: take_place(input)?,
                registers: take_u64(input)?,
                memory: if input.is_empty() {
                    None
                } else {
                    Some(take_u64(input)?)
                },
            },
            kind::EXEC => Event::Exec {
                ticks: input.number()?,
            },
            kind::EXITED => Event::Exited {
                ticks: input.number()?,
                status: take_i32(input)?,
            },
            kind::KILLED => Event::Killed {
                place: take_place(input)?,
                cause: take_cause(input)?,
                signo: take_i32(input)?,
            },
            kind::LEAP => Event::Leap {
                place: take_place(input)?,
                left_out: input.number()?,
            },
            kind::TIME => {
                let time = self.memory.time.wrapping_add(input.number()?);
                self.memory.time = time;
                Event::Time(time)
            }
            kind::DEADLOCK => {
                let mut waiters = Vec::new();
                while !input.is_empty() {
                    waiters.push(take_waiter(input)?);
                }
                Event::Deadlock(waiters)
            }
            kind::STATE => Event::State {
                ticks: input.number()?,
                name: {
                    let name = input.string()?;
                    if name.len() > LONGEST_NAME {
                        return Err(Malformed);
                    }
                    name
                },
                waits: match input.is_empty() {
                    true => None,
                    false => Some(take_waiting(input)?),
                },
            },
            kind::NOTE => {
                Event::Note(std::str::from_utf8(take_rest(input)?).map_err(|_| Malformed)?)
            }
            _ => return Err(Malformed),
        };
        Ok(event)
    }

    fn effect<'a>(&mut self, kind: u8, input: &mut Reader<'a>) -> Result<Effect<'a>, Malformed> {
        let effect = match kind {
            kind::REGISTERS => {
                let mask = input.small()?;
                if mask >> REGISTERS != 0 {
                    return Err(Malformed);
                }
                let mut values = [0; REGISTERS];
                for n in set(mask) {
                    values[n] = input.number()?;
                }
                Effect::Registers { mask, values }
            }
            kind::EXTENDED => Effect::Extended(take_rest(input)?),
            kind::MAP => Effect::Map(take_rest(input)?),
            kind::OUTPUT => Effect::Output {
                order: input.number()?,
                bytes: input.number()?,
            },
            _ => return Err(Malformed),
        };
        Ok(effect)
    }
}

#[inline]
fn take_rest<'a>(input: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    input.bytes(input.rest().len() as u64)
}

fn take_i32(input: &mut Reader) -> Result<i32, Malformed> {
    i32::try_from(input.signed()?).map_err(|_| Malformed)
}

fn take_u64(input: &mut Reader) -> Result<u64, Malformed> {
    let bytes = input.bytes(8)?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

fn take_place(input: &mut Reader) -> Result<Place, Malformed> {
    Ok(Place {
        ticks: input.number()?,
        steps: input.small()?,
    })
}

fn take_cause(input: &mut Reader) -> Result<Cause, Malformed> {
    match input.byte()? {
        0 => Ok(Cause::Outside),
        1 => Ok(Cause::Fault),
        _ => Err(Malformed),
    }
}

#[inline(always)]
fn take_call(memory: &mut Memory, input: &mut Reader) -> Result<Call, Malformed> {
    let first = input.byte()?;
    if first & !(OUTPUT | 3) != 0 {
        return Err(Malformed);
    }
    let nr = input.small()?;
    let ticks = input.number()?;
    let changed = input.byte()?;
    let mut fresh = [0; 6];
    let last = memory.args.get_mut(nr as usize).unwrap_or(&mut fresh);
    for (n, arg) in last.iter_mut().enumerate() {
        if changed >> n & 1 != 0 {
            *arg = arg.wrapping_add(input.signed()? as u64);
        }
    }
    let args = *last;
    let end = match first & 3 {
        RETURNED => End::Returned(input.signed()?),
        RESTARTED => End::Restarted,
        WAITS => End::Waits,
        _ => End::Replaced,
    };
    let output = if first & OUTPUT != 0 {
        Some(Output {
            to: input.byte()?,
            order: input.number()?,
        })
    } else {
        None
    };
    Ok(Call {
        ticks,
        nr,
        args,
        end,
        output,
    })
}

fn take_start(input: &mut Reader) -> Result<Start, Malformed> {
    let first = input.byte()?;
    let stream = input.small()?;
    let origin = match first & !WHOLE {
        0 => Origin::Exec { before: stream },
        1 => Origin::Fork { parent: stream },
        MIDST => Origin::Midst {
            events: 0,
            ticks: 0,
            stack: 0,
        },
        _ => return Err(Malformed),
    };
    let (pid, parent_pid, tid) = (take_i32(input)?, take_i32(input)?, take_i32(input)?);
    let time = input.number()?;
    let origin = match origin {
        Origin::Midst { .. } => Origin::Midst {
            events: input.number()?,
            ticks: input.number()?,
            stack: input.number()?,
        },
        origin => origin,
    };
    let exe = input.string()?.to_vec();
    let mut argv = Vec::new();
    while !input.is_empty() {
        argv.push(input.string()?.to_vec());
    }
    Ok(Start {
        origin,
        pid,
        parent_pid,
        tid,
        exe,
        argv,
        time,
    })
}
