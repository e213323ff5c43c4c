//! Stops on the way: found running, found stepping, found last.

use clew_engine::replay::worker::protocol::*;
use clew_recording::position::Position;

use crate::Case;
use crate::commander::*;

pub fn cases() -> Vec<Case> {
    vec![
        ("breakpoints_forward_and_last", breakpoints),
        ("watchpoints_as_if_stepped", watchpoints),
        ("reads_and_accesses", accesses),
        ("events_forward_and_last", events),
        ("false_conditions_are_passed", conditions),
    ]
}

fn break_at(addr: u64) -> Break {
    Break {
        addr,
        thread: None,
        conditions: vec![],
    }
}

fn order(mark: &Mark) -> (u64, u64) {
    (mark.event, mark.ticks)
}

fn mark(at: &At) -> Mark {
    Mark {
        event: at.event,
        ticks: at.ticks,
        pc: at.pc,
        sp: at.sp,
    }
}

/// All stops from the start on, at most `most`.
fn forward(all: &mut Commander, stops: &Stops, most: usize) -> Vec<Stopped> {
    let (walker, _) = all.fork(0);
    all.stops(walker, stops.clone());
    let mut found = Vec::new();
    while found.len() < most {
        let stopped = all.first(walker, Goal::End);
        if stopped.why == Why::End {
            break;
        }
        found.push(stopped);
    }
    all.end(walker);
    found
}

fn breakpoints() {
    let scratch = Scratch::new("breaks");
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let mix = symbol(&scratch, "mix");
    let stops = Stops {
        breaks: vec![break_at(mix)],
        ..Stops::default()
    };
    let found = forward(&mut all, &stops, 100_000);
    // Three threads, 3,000 times each; the child's are its own.
    assert_eq!(found.len(), 9000);
    assert!(found.iter().all(|s| s.why == Why::Break && s.at.pc == mix));
    assert!(found.is_sorted_by_key(|s| order(&mark(&s.at))));
    // The last one before each is the one before.
    for n in [1, 2, 77, 3000, 4501, 8999] {
        let (finder, _) = all.fork(0);
        let goal = Goal::Mark(mark(&found[n].at));
        let there = all.advance(finder, goal);
        assert_eq!(
            (there.why, mark(&there.at)),
            (Why::Goal, mark(&found[n].at))
        );
        let goal = Goal::Position(position(&there.at));
        let (searcher, _) = all.fork(0);
        all.stops(searcher, stops.clone());
        let stopped = all.last(searcher, goal);
        assert_eq!((stopped.why, stopped.at), (Why::Goal, there.at));
        let last = stopped.last.expect("there is one");
        assert_eq!(
            (last.at, last.kind),
            (mark(&found[n - 1].at), HitKind::Break)
        );
        assert_eq!(last.thread, found[n - 1].at.thread);
        // What is at the start counts for the last, not for the first.
        let (behind, _) = all.fork(finder);
        all.stops(behind, stops.clone());
        let end = Goal::Position(Position {
            steps: position(&there.at).steps + 1,
            ..position(&there.at)
        });
        let stopped = all.last(behind, end);
        assert_eq!(stopped.last.map(|hit| hit.at), Some(mark(&there.at)));
        all.stops(finder, stops.clone());
        if let Some(next) = found.get(n + 1) {
            let stopped = all.first(finder, Goal::End);
            assert_eq!(mark(&stopped.at), mark(&next.at));
        }
        for worker in [behind, searcher, finder] {
            all.end(worker);
        }
    }
}

fn watchpoints() {
    let scratch = Scratch::new("watches");
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let (addr, len) = (symbol(&scratch, "counter"), 8);
    let watch = Watch {
        addr,
        len,
        kind: WatchKind::Change,
    };
    let stops = Stops {
        watches: vec![watch],
        ..Stops::default()
    };
    let found = forward(&mut all, &stops, 400);
    assert_eq!(found.len(), 400);
    let hits: Vec<Hit> = found
        .iter()
        .map(|stopped| match stopped.why {
            Why::Watch(hit) => hit,
            why => panic!("{why:?}"),
        })
        .collect();
    // By stepping from before the first: the same places.
    let (walker, _) = all.fork(0);
    let first = hits[0].at;
    all.advance(walker, Goal::Position(Position::after(first.event)));
    let mut value = all.read(walker, addr, 8);
    let mut seen = Vec::new();
    let mut at = all.at(walker);
    while seen.len() < 40 {
        let next = all.stopped(walker, Command::Step).at;
        let now = all.read(walker, addr, 8);
        if now != value {
            seen.push((mark(&at), at.thread, mark(&next)));
            value = now;
        }
        at = next;
    }
    all.end(walker);
    let found_first: Vec<_> = hits
        .iter()
        .zip(&found)
        .take(40)
        .map(|(hit, stopped)| (hit.at, hit.thread, mark(&stopped.at)))
        .collect();
    assert_eq!(found_first, seen);
    // And backwards: the last before a stop is the one that stopped there.
    for n in [0, 5, 120, 399] {
        let (searcher, _) = all.fork(0);
        let there = all.advance(searcher, Goal::Mark(mark(&found[n].at)));
        assert_eq!(there.why, Why::Goal);
        let goal = Goal::Position(position(&there.at));
        all.end(searcher);
        let (searcher, _) = all.fork(0);
        all.stops(searcher, stops.clone());
        let last = all.last(searcher, goal).last.expect("there is one");
        assert_eq!((last.at, last.thread), (hits[n].at, hits[n].thread));
        all.end(searcher);
    }
}

fn accesses() {
    let scratch = Scratch::new("accesses");
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let watch = |kind| Stops {
        watches: vec![Watch {
            addr: symbol(&scratch, "table") + 8,
            len: 1,
            kind,
        }],
        ..Stops::default()
    };
    // Each thread once: `table[8] ^= ...` reads and writes.
    let reads = forward(&mut all, &watch(WatchKind::Read), 100);
    assert_eq!(reads.len(), 3);
    let any = forward(&mut all, &watch(WatchKind::Access), 100);
    assert!(any.len() == 3 || any.len() == 6, "{}", any.len());
}

fn events() {
    let scratch = Scratch::new("events");
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let write = libc::SYS_write as u32;
    let stops = |events| Stops {
        events,
        ..Stops::default()
    };
    let writes = stops(Events {
        calls: Calls::These(vec![write]),
        ..Events::default()
    });
    let found: Vec<Why> = forward(&mut all, &writes, 10)
        .iter()
        .map(|s| s.why)
        .collect();
    let (going, coming) = (
        Why::Event(EventStop::CallIn { nr: write }),
        Why::Event(EventStop::CallOut { nr: write }),
    );
    assert_eq!(found, [going, coming]);
    let threads = stops(Events {
        threads: true,
        forks: true,
        ..Events::default()
    });
    let found: Vec<Stopped> = forward(&mut all, &threads, 100);
    let made = |n: u32| Why::Event(EventStop::NewThread { thread: n });
    let ended = |n: u32| Why::Event(EventStop::EndedThread { thread: n });
    let whys: Vec<Why> = found.iter().map(|s| s.why).collect();
    for n in 1..=3 {
        assert!(
            whys.contains(&made(n)) && whys.contains(&ended(n)),
            "{whys:?}"
        );
    }
    let forks = whys
        .iter()
        .filter(|why| matches!(why, Why::Event(EventStop::Forked { .. })));
    assert_eq!((whys.len(), forks.count()), (7, 1), "{whys:?}");
    // Backwards from the end, one after the other.
    let mut goal = Goal::End;
    for stopped in found.iter().rev() {
        let (searcher, _) = all.fork(0);
        all.stops(searcher, threads.clone());
        let last = all.last(searcher, goal).last.expect("there is one");
        assert_eq!(last.at, mark(&stopped.at));
        all.end(searcher);
        let (finder, _) = all.fork(0);
        let there = all.advance(finder, Goal::Mark(last.at));
        assert_eq!(there.why, Why::Goal);
        goal = Goal::Position(position(&there.at));
        all.end(finder);
    }
    let signals = stops(Events {
        signals: 1 << (libc::SIGALRM - 1),
        ..Events::default()
    });
    let found = forward(&mut all, &signals, 5);
    let signo = libc::SIGALRM;
    assert!(!found.is_empty());
    assert!(
        found
            .iter()
            .all(|s| s.why == Why::Event(EventStop::Signal { signo }))
    );
}

fn conditions() {
    let scratch = Scratch::new("conditions");
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    // rdi == 2500: gdb's register 5, a constant of two bytes.
    let condition = vec![0x26, 0, 5, 0x23, 0x09, 0xc4, 0x13, 0x27];
    let stops = |thread| Stops {
        breaks: vec![Break {
            addr: symbol(&scratch, "mix"),
            thread,
            conditions: vec![condition.clone()],
        }],
        ..Stops::default()
    };
    let found = forward(&mut all, &stops(None), 10);
    assert_eq!(found.len(), 3);
    for thread in 1..=3 {
        let of_one = forward(&mut all, &stops(Some(thread)), 10);
        assert_eq!(of_one.len(), 1);
        assert_eq!(of_one[0].at.thread, thread);
    }
}
