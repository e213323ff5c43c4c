//! Recordings that were tampered with, record by record, with valid checksums: a replay diverges,
//! or is killed where it is locked in; nothing outside changes and nothing hangs.

use std::fs;
use std::path::Path;

use clew_recording::codec::Encoder;
use clew_recording::event::{
    Effect, End, Event, LONGEST_RECORD, Place as At, REGISTERS, Record, StreamId,
};
use clew_recording::log::{self, Kind, Packer, StreamEnd};
use clew_recording::maps::{Change, Pages};
use clew_recording::reader::Recording;
use libtest_mimic::{Failed, Trial};

use super::limits::copy_files;
use super::place::{CUT_OFF, DIVERGED, Place, Random, UNABLE, code, program, require};

/// Changed recordings in each trial; CLEW_HOSTILE_ROUNDS asks for more.
const ROUNDS: u64 = 40;

pub fn trials() -> Vec<Trial> {
    let rounds = std::env::var("CLEW_HOSTILE_ROUNDS").ok();
    let rounds = rounds.and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    (0..3)
        .map(|seed| {
            let title = format!("hostile/{seed}");
            Trial::test(title.clone(), move || {
                tampered(&Place::new(&title), seed, rounds)
            })
        })
        .collect()
}

/// What becomes of a record.
pub enum Edit {
    Keep,
    Drop,
    /// Encoded as if nothing had been before.
    Replace(Owned),
    Twice,
    Before(Owned),
}

/// A record that owns what it holds: given to an encoder in its place.
type Encode = dyn Fn(&mut Encoder, &mut [u8]) -> usize;
pub struct Owned(Box<Encode>);

pub fn encode(record: &Record) -> Owned {
    match record {
        Record::Effect(Effect::Memory { addr, bytes }) => {
            let (addr, bytes) = (*addr, bytes.to_vec());
            let effect = move |e: &mut Encoder, room: &mut [u8]| {
                e.effect(
                    &Effect::Memory {
                        addr,
                        bytes: &bytes,
                    },
                    room,
                )
            };
            Owned(Box::new(effect))
        }
        Record::Effect(Effect::Map(bytes)) => {
            let bytes = bytes.to_vec();
            Owned(Box::new(move |e, room| {
                e.effect(&Effect::Map(&bytes), room)
            }))
        }
        Record::Effect(Effect::Extended(bytes)) => {
            let bytes = bytes.to_vec();
            Owned(Box::new(move |e, room| {
                e.effect(&Effect::Extended(&bytes), room)
            }))
        }
        Record::Effect(Effect::Registers { mask, values }) => {
            let (mask, values) = (*mask, *values);
            Owned(Box::new(move |e, room| {
                e.effect(&Effect::Registers { mask, values }, room)
            }))
        }
        Record::Event(Event::Values(bytes)) => {
            let bytes = bytes.to_vec();
            Owned(Box::new(move |e, room| {
                e.event(&Event::Values(&bytes), room)
            }))
        }
        Record::Event(Event::Signal {
            place,
            cause,
            signo,
            info,
        }) => {
            let (place, cause, signo, info) = (*place, *cause, *signo, info.to_vec());
            Owned(Box::new(move |e, room| {
                let event = Event::Signal {
                    place,
                    cause,
                    signo,
                    info: &info,
                };
                e.event(&event, room)
            }))
        }
        Record::Event(Event::Note(_)) => {
            Owned(Box::new(|e, room| e.event(&Event::Note("changed"), room)))
        }
        Record::Event(event) => {
            // The rest borrows nothing.
            let event: Event<'static> = match event {
                Event::Started(start) => Event::Started(start.clone()),
                Event::Call(call) => Event::Call(*call),
                Event::Resumed { result } => Event::Resumed { result: *result },
                Event::Instruction { ticks, what } => Event::Instruction {
                    ticks: *ticks,
                    what: *what,
                },
                Event::Switched { place, to } => Event::Switched {
                    place: *place,
                    to: *to,
                },
                Event::NewThread { thread, tid } => Event::NewThread {
                    thread: *thread,
                    tid: *tid,
                },
                Event::EndedThread { thread } => Event::EndedThread { thread: *thread },
                Event::Forked { ticks, stream, pid } => Event::Forked {
                    ticks: *ticks,
                    stream: *stream,
                    pid: *pid,
                },
                Event::Check {
                    place,
                    registers,
                    memory,
                } => Event::Check {
                    place: *place,
                    registers: *registers,
                    memory: *memory,
                },
                Event::Shared { ticks, touch } => Event::Shared {
                    ticks: *ticks,
                    touch: *touch,
                },
                Event::Exec { ticks } => Event::Exec { ticks: *ticks },
                Event::Exited { ticks, status } => Event::Exited {
                    ticks: *ticks,
                    status: *status,
                },
                Event::Killed {
                    place,
                    cause,
                    signo,
                } => Event::Killed {
                    place: *place,
                    cause: *cause,
                    signo: *signo,
                },
                Event::Time(time) => Event::Time(*time),
                Event::Signal { .. } | Event::Values(_) | Event::Note(_) => unreachable!("above"),
            };
            Owned(Box::new(move |e, room| e.event(&event, room)))
        }
    }
}

/// Copies a recording, its log written anew with changes. `edit` is given stream, number of the record
/// in it, and the record.
pub fn rewrite(
    from: &Path,
    to: &Path,
    edit: &mut dyn FnMut(StreamId, u64, &Record) -> Edit,
) -> Result<(), Failed> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    fs::copy(from.join("meta.json"), to.join("meta.json"))?;
    copy_files(from, to)?;
    let recording = Recording::open(from)?;
    let mut packer = Packer::default();
    let mut out = log::file_header().to_vec();
    for info in recording.streams() {
        let mut encoder = Encoder::default();
        let mut history = Vec::new();
        let mut bytes = Vec::new();
        let mut room = vec![0; 2 * LONGEST_RECORD];
        let mut reader = recording.stream(info.id)?;
        let mut number = 0;
        while let Some(record) = reader.next()? {
            let mut put = |owned: &Owned| {
                let len = owned.0(&mut encoder, &mut room);
                bytes.extend_from_slice(&room[..len]);
            };
            match edit(info.id, number, &record) {
                Edit::Keep => put(&encode(&record)),
                Edit::Drop => {}
                Edit::Replace(other) => put(&other),
                Edit::Twice => {
                    put(&encode(&record));
                    put(&encode(&record));
                }
                Edit::Before(other) => {
                    put(&other);
                    put(&encode(&record));
                }
            }
            number += 1;
            // The first record has a chunk of its own, as the writer does it.
            if number == 1 || bytes.len() > 256 << 10 {
                out.extend_from_slice(packer.pack(Kind::Records, info.id, &bytes, &history));
                log::remember(&mut history, &bytes);
                bytes.clear();
            }
        }
        out.extend_from_slice(packer.pack(Kind::Records, info.id, &bytes, &history));
        let end = Kind::StreamEnd(info.end.unwrap_or(StreamEnd::Ended));
        out.extend_from_slice(packer.pack(end, info.id, &[], &[]));
    }
    out.extend_from_slice(packer.pack(Kind::End, 0, &[], &[]));
    fs::write(to.join("log"), &out)?;
    Ok(())
}

fn tampered(place: &Place, seed: u64, rounds: u64) -> Result<(), Failed> {
    place.record("good", &[program(), "little"])?;
    let (good, bad) = (place.folder("good"), place.folder("bad"));
    // Unchanged it replays: the rewriting does no harm.
    let mut counts = std::collections::BTreeMap::new();
    rewrite(&good, &bad, &mut |stream, _, _| {
        *counts.entry(stream).or_insert(0u64) += 1;
        Edit::Keep
    })?;
    let replay = place.clew(&["replay", "bad"]);
    require(code(&replay) == Some(0), || replay.printed())?;
    let witness = place.dir.join("witness");
    fs::write(&witness, "as it was")?;
    let mut random = Random::new(seed + 100);
    let total: u64 = counts.values().sum();
    for round in 0..rounds {
        let (mut at, edits) = (random.below(total), 1 + random.below(2));
        let mut target = (0, 0);
        for (&stream, &count) in &counts {
            if at < count {
                target = (stream, at);
                break;
            }
            at -= count;
        }
        let mut what = String::new();
        rewrite(&good, &bad, &mut |stream, number, record| {
            let near = stream == target.0 && (target.1..target.1 + edits).contains(&number);
            // How a stream begins is looked at when the recording is opened.
            if !near || (number == 0 && round % 8 != 0) {
                return Edit::Keep;
            }
            what.push_str(&format!("stream {stream}, record {number}: {record:?}; "));
            change(&mut random, record)
        })?;
        let mut job = place.job(&["replay", "bad"]);
        job.timeout = std::time::Duration::from_secs(60);
        let replay = job.run();
        let known = matches!(code(&replay), Some(0 | 1 | 3 | CUT_OFF | DIVERGED | UNABLE));
        let left = fs::read_dir(&place.dir)?.count();
        require(known && left == 1, || {
            format!(
                "round {round}: {}: {what}\n{}",
                replay.ending(),
                replay.printed()
            )
        })?;
    }
    require(fs::read_to_string(&witness)? == "as it was", || {
        "changed".into()
    })
}

/// Addresses at which something of clew's is, or nothing at all.
const PLACES: &[u64] = &[
    0,
    0x1000,
    0x40_0000,
    0x1000_0000,
    0x5000_0000,
    0x5000_0040,
    0x5800_0000,
    0x7eff_f000,
    0x7f00_0000,
    0x3fff_0000_0000,
    0x5555_5555_4000,
    0x5555_5560_0000,
    0x7fff_ffff_f000,
    0x0000_8000_0000_0000,
    0xffff_8000_0000_0000,
    u64::MAX,
];

fn change(random: &mut Random, record: &Record) -> Edit {
    match random.below(10) {
        0 => return Edit::Drop,
        1 => return Edit::Twice,
        2 => {
            let mut values = [0; REGISTERS];
            let n = random.below(REGISTERS as u64) as usize;
            values[n] = *random.of(PLACES);
            let mask = 1 << n;
            return Edit::Before(encode(&Record::Effect(Effect::Registers { mask, values })));
        }
        3 => {
            let addr = *random.of(PLACES);
            let bytes = vec![0xcc; 1 + random.below(8192) as usize];
            let bytes = &bytes;
            return Edit::Before(encode(&Record::Effect(Effect::Memory { addr, bytes })));
        }
        4 => {
            let start = *random.of(PLACES) & !4095;
            let end = start.saturating_add(4096 << random.below(30)) & !4095;
            let pages = Pages { start, end };
            let change = match random.below(3) {
                0 => Change::Unmap(pages),
                1 => Change::Protect { pages, prot: 7 },
                _ => Change::Break(start),
            };
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            return Edit::Before(encode(&Record::Effect(Effect::Map(&bytes))));
        }
        _ => {}
    }
    let word = match random.below(3) {
        0 => *random.of(PLACES),
        1 => 1 << random.below(64),
        _ => random.word(),
    };
    // Small numbers of ticks: a large one is a long time to compute, which is no harm.
    let place = At {
        ticks: word % 5000,
        steps: (random.below(3) as u32).wrapping_mul(random.word() as u32),
    };
    let mut flip = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            if random.below(4) == 0 {
                bytes.truncate(at);
            }
        }
        bytes
    };
    let new = match record {
        Record::Effect(Effect::Memory { bytes, .. }) if word % 2 == 0 => {
            let bytes = &flip(bytes);
            return Edit::Replace(encode(&Record::Effect(Effect::Memory {
                addr: word,
                bytes,
            })));
        }
        Record::Effect(Effect::Memory { addr, bytes }) => {
            let (addr, bytes) = (*addr, &flip(bytes));
            return Edit::Replace(encode(&Record::Effect(Effect::Memory { addr, bytes })));
        }
        Record::Effect(Effect::Map(bytes)) => {
            return Edit::Replace(encode(&Record::Effect(Effect::Map(&flip(bytes)))));
        }
        Record::Effect(Effect::Extended(bytes)) => {
            return Edit::Replace(encode(&Record::Effect(Effect::Extended(&flip(bytes)))));
        }
        Record::Effect(Effect::Registers { values, .. }) => {
            let mut values = *values;
            values[word as usize % REGISTERS] = word;
            let mask = (1 << REGISTERS) - 1;
            Record::Effect(Effect::Registers { mask, values })
        }
        Record::Event(Event::Call(call)) => {
            let mut call = *call;
            match word % 5 {
                0 => call.args[word as usize / 8 % 6] = word,
                1 => call.nr = word as u32 % 500,
                2 => call.end = End::Returned(word as i64),
                3 => call.end = End::Waits,
                _ => call.end = End::Restarted,
            }
            Record::Event(Event::Call(call))
        }
        Record::Event(Event::Switched { .. }) => Record::Event(Event::Switched {
            place,
            to: word as u32 % 6,
        }),
        Record::Event(Event::Forked { ticks, pid, .. }) => Record::Event(Event::Forked {
            ticks: *ticks,
            stream: word as u32 % 4,
            pid: *pid,
        }),
        Record::Event(Event::Values(bytes)) => {
            return Edit::Replace(encode(&Record::Event(Event::Values(&flip(bytes)))));
        }
        Record::Event(Event::NewThread { .. }) => Record::Event(Event::NewThread {
            thread: word as u32 % 6,
            tid: word as i32,
        }),
        _ => Record::Event(Event::Check {
            place,
            registers: word,
            memory: None,
        }),
    };
    Edit::Replace(encode(&new))
}
