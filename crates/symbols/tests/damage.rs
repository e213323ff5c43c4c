//! Damaged files: programs with changed bytes must give answers or errors, never a panic, a loop
//! or memory without bound.

mod ask;
mod common;

use ask::ask;
use common::{Scratch, compile, run, section};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts the bytes in use, and the most there ever were.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is left to the system's allocator; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract, which is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A small generator of random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Damages a file many times, mostly in one of its sections, and asks.
fn damage(program: &Path, seed: u64, rounds: usize) {
    let original = std::fs::read(program).unwrap();
    let code = section(program, ".text").unwrap();
    let table = run(Command::new("readelf").arg("-SW").arg(program));
    let sections: Vec<(usize, usize)> = table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
            let name = fields.first()?;
            let hex = |at: usize| usize::from_str_radix(fields.get(at)?, 16).ok();
            let wanted =
                name.contains("debug") || name.contains("eh_frame") || name.contains("tab");
            (wanted && fields.get(1) != Some(&"NOBITS")).then(|| Some((hex(3)?, hex(4)?)))?
        })
        .filter(|&(_, size)| size > 0)
        .collect();
    assert!(sections.len() > 6, "{table}");
    let mut random = Random(seed);
    let mut slowest = Duration::ZERO;
    PEAK.store(0, Ordering::Relaxed);
    let before = USED.load(Ordering::Relaxed);
    for _ in 0..rounds {
        let mut bytes = original.clone();
        let (start, size) = match random.below(8) {
            0 => (0, 0x400),
            1 => (0, bytes.len()),
            _ => sections[random.below(sections.len())],
        };
        for _ in 0..1 + random.below(12) {
            let at = start + random.below(size.min(bytes.len() - start));
            bytes[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at].wrapping_add(1),
                _ => random.below(256) as u8,
            };
        }
        if random.below(20) == 0 {
            bytes.truncate(random.below(original.len()));
        }
        let started = Instant::now();
        ask(bytes, code);
        slowest = slowest.max(started.elapsed());
    }
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    println!(
        "{}: slowest {slowest:?}, {} KiB",
        program.display(),
        peak >> 10
    );
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
    assert!(peak < 256 << 20, "{peak} bytes");
}

// One test, since memory is counted for the whole process.
#[test]
fn damaged_files_do_no_harm() {
    let scratch = Scratch::new("damage");
    // More rounds, with other damage, for who has the time.
    let more = std::env::var("CLEW_DAMAGE")
        .ok()
        .and_then(|more| more.parse().ok());
    let (rounds, other) = (more.unwrap_or(1) * 300, if more.is_some() { 77 } else { 0 });
    damage(
        &compile(&scratch, "shapes.c", &["-gdwarf-4", "-O2"]),
        1,
        rounds,
    );
    damage(
        &compile(&scratch, "shapes.c", &["-gdwarf-5", "-O2"]),
        2,
        rounds,
    );
    damage(
        &compile(&scratch, "shapes.c", &["-gdwarf-5", "-O2", "-gz=zlib"]),
        3,
        rounds,
    );
    let types = [
        "-gdwarf-4",
        "-O0",
        "-fdebug-types-section",
        "-fno-asynchronous-unwind-tables",
    ];
    damage(&compile(&scratch, "shapes.c", &types), 4 + other, rounds);
    damage(
        &compile(&scratch, "shapes.cpp", &["-g", "-O1"]),
        5,
        rounds / 20,
    );
}
