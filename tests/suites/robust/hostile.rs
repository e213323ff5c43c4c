//! Recordings that were tampered with, record by record, with valid checksums: a replay diverges,
//! or is killed where it is locked in; nothing outside changes and nothing hangs.

use std::fs;
use std::path::Path;

use clew_recording::event::{Effect, End, Event, Place as At, REGISTERS, Record};
use clew_recording::maps::{Change, Pages};
use clew_recording::reader::Recording;
use clew_recording::rewrite::{self, Edit, Puts};
use libtest_mimic::{Failed, Trial};

use super::limits::copy_files;
use super::place::{CUT_OFF, DIVERGED, Place, Random, UNABLE, code, program, require};

/// Changed recordings in each trial; CLEW_HOSTILE_ROUNDS asks for more.
const ROUNDS: u64 = 40;

pub fn trials() -> Vec<Trial> {
    let rounds = std::env::var("CLEW_HOSTILE_ROUNDS").ok();
    let rounds = rounds.and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let whole = (0..3).map(|seed| (format!("hostile/{seed}"), seed, false));
    // A region: most of its records are of the state that it begins with.
    let region = [("hostile/region".to_owned(), 7, true)];
    whole
        .chain(region)
        .map(|(title, seed, region)| {
            Trial::test(title.clone(), move || {
                tampered(&Place::new(&title), seed, rounds, region)
            })
        })
        .collect()
}

/// Copies a recording, its log written anew with changes.
pub fn rewrite(from: &Path, to: &Path, edit: Edit) -> Result<(), Failed> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    fs::copy(from.join("meta.json"), to.join("meta.json"))?;
    copy_files(from, to)?;
    let recording = Recording::open(from)?;
    Ok(rewrite::rewrite(&recording, &to.join("log"), edit)?)
}

fn tampered(place: &Place, seed: u64, rounds: u64, region: bool) -> Result<(), Failed> {
    match region {
        false => drop(place.record("good", &[program(), "little"])?),
        true => {
            place.record("whole", &[program(), "little"])?;
            let cut = place.clew(&["cut", "whole", "--from", "calls:20", "-n", "good"]);
            require(code(&cut) == Some(0), || cut.printed())?;
        }
    }
    let (good, bad) = (place.folder("good"), place.folder("bad"));
    // Unchanged it replays: the rewriting does no harm.
    let mut counts = std::collections::BTreeMap::new();
    rewrite(&good, &bad, &mut |stream, _, record, put| {
        *counts.entry(stream).or_insert(0u64) += 1;
        put(record);
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
        rewrite(&good, &bad, &mut |stream, number, record, put| {
            let near = stream == target.0 && (target.1..target.1 + edits).contains(&number);
            // How a stream begins is looked at when the recording is opened.
            if !near || (number == 0 && round % 8 != 0) {
                return put(record);
            }
            what.push_str(&format!("stream {stream}, record {number}: {record:?}; "));
            change(&mut random, record, put);
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
    0x5b00_0000,
    0x5b00_0040,
    0x6300_0000,
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

fn change(random: &mut Random, record: &Record, put: Puts) {
    match random.below(10) {
        0 => return,
        1 => {
            put(record);
            return put(record);
        }
        2 => {
            let mut values = [0; REGISTERS];
            let n = random.below(REGISTERS as u64) as usize;
            values[n] = *random.of(PLACES);
            let mask = 1 << n;
            put(&Record::Effect(Effect::Registers { mask, values }));
            return put(record);
        }
        3 => {
            let addr = *random.of(PLACES);
            let bytes = vec![0xcc; 1 + random.below(8192) as usize];
            let bytes = &bytes;
            put(&Record::Effect(Effect::Memory { addr, bytes }));
            return put(record);
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
            put(&Record::Effect(Effect::Map(&bytes)));
            return put(record);
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
            return put(&Record::Effect(Effect::Memory { addr: word, bytes }));
        }
        Record::Effect(Effect::Memory { addr, bytes }) => {
            let (addr, bytes) = (*addr, &flip(bytes));
            return put(&Record::Effect(Effect::Memory { addr, bytes }));
        }
        Record::Effect(Effect::Map(bytes)) => {
            return put(&Record::Effect(Effect::Map(&flip(bytes))));
        }
        Record::Effect(Effect::Extended(bytes)) => {
            return put(&Record::Effect(Effect::Extended(&flip(bytes))));
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
            return put(&Record::Event(Event::Values(&flip(bytes))));
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
    put(&new);
}
