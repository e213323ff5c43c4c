//! The same place by different ways, forks, and ends.

use clew_engine::replay::worker::protocol::*;
use clew_recording::position::Position;
use clew_recording::reader::Recording;

use crate::Case;
use crate::commander::*;

pub fn cases() -> Vec<Case> {
    vec![
        ("places_by_different_ways", places),
        ("the_end_of_a_crash", crash),
        ("a_forked_stream", forked_stream),
        ("workers_end_with_their_commander", ends),
    ]
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

/// Positions passed one by one are found again from the start, and from halfway.
fn places() {
    if let Some(folder) = std::env::var_os("CLEW_WORKERS_ON") {
        // Any recording, for whoever looks for bugs.
        let recording = Recording::open(folder.as_ref()).unwrap();
        for info in recording.streams() {
            let mut all = Commander::new(&recording, info.id);
            println!("stream {}: {:?}", info.id, places_in(&mut all).0);
        }
        return;
    }
    let scratch = Scratch::new("places");
    let recording = record(&scratch, &[]);
    let stream = recording.streams()[0].id;
    let mut all = Commander::new(&recording, stream);
    // Whether a switch is among the events that were stepped over is up to the recording's schedule.
    let (end, events, _) = places_in(&mut all);
    assert_eq!(end.at.next, Some(Next::Exit { status: 0 }), "{end:?}");
    assert!(events > 10, "{events}");
    let end = all.advance(0, Goal::End);
    assert_eq!(end.why, Why::End);
    let threads = all.threads(0);
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0].name, "guest");
}

/// The stream's end, and how many events and switches were stepped over.
fn places_in(all: &mut Commander) -> (Stopped, u64, u64) {
    let (last, _) = all.fork(0);
    let end = all.advance(last, Goal::End);
    all.end(last);
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut events, mut switches) = (0, 0);
    let rounds = std::env::var("CLEW_WORKERS_ROUNDS").map_or(24, |n| n.parse().unwrap());
    for round in 0..rounds {
        let (walker, _) = all.fork(0);
        let (work, event) = (random.below(end.at.work), random.below(end.at.event));
        let begin = match round % 3 {
            0 => all.advance(walker, Goal::Work(work)),
            _ => all.advance(walker, Goal::Position(Position::after(event))),
        };
        assert!(begin.at.work >= work || round % 3 != 0, "{begin:?}");
        assert!(begin.at.event >= event || round % 3 == 0, "{begin:?}");
        let mut before = begin.at;
        let mut passed = vec![(before, all.state(walker))];
        for n in 0..400 {
            let stopped = all.stopped(walker, Command::Step);
            if stopped.why == Why::End {
                break;
            }
            assert!(
                position(&stopped.at) > position(&before),
                "{before:?} {stopped:?}"
            );
            assert!(stopped.at.work >= before.work, "{before:?} {stopped:?}");
            events += u64::from(stopped.at.event != before.event);
            switches += u64::from(stopped.at.thread != before.thread);
            let event = std::mem::replace(&mut before, stopped.at).event;
            if n % 50 == random.below(50) || stopped.at.event != event {
                passed.push((stopped.at, all.state(walker)));
            }
        }
        all.end(walker);
        for (at, state) in passed.iter().take(12) {
            let (seeker, _) = all.fork(0);
            if round % 2 == 1 {
                let halfway = random.below(at.work);
                all.advance(seeker, Goal::Work(halfway));
            }
            let found = match all.at(seeker) {
                here if position(&here) > position(at) => continue,
                _ => all.advance(seeker, Goal::Position(position(at))),
            };
            assert_eq!(found.why, Why::Goal, "{at:?} {found:?}");
            assert_eq!(found.at, *at);
            let seen = all.state(seeker);
            for (n, (a, b)) in seen.registers.iter().zip(&state.registers).enumerate() {
                assert_eq!(a.words, b.words, "thread {n} at {at:?}");
                let differ = (0..832).find(|&n| a.extended[n] != b.extended[n]);
                assert_eq!(differ, None, "extended state of thread {n} at {at:?}");
            }
            assert_eq!(seen.threads, state.threads);
            assert_eq!(seen.sum, state.sum, "memory at {at:?}");
            all.end(seeker);
        }
    }
    (end, events, switches)
}

/// A crash is looked at before it happens, and can't be passed.
fn crash() {
    let scratch = Scratch::new("crash");
    let recording = record(&scratch, &["crash"]);
    let stream = recording.streams()[0].id;
    let mut all = Commander::new(&recording, stream);
    let (seeker, _) = all.fork(0);
    let end = all.advance(0, Goal::End);
    assert_eq!(end.why, Why::End);
    let signo = libc::SIGSEGV;
    assert_eq!(end.at.next, Some(Next::Killed { signo, fault: true }));
    let state = all.state(0);
    let again = all.stopped(0, Command::Step);
    assert_eq!((again.why, again.at), (Why::End, end.at));
    assert_eq!(all.state(0), state);
    let by_position = all.advance(seeker, Goal::Position(position(&end.at)));
    assert_eq!(by_position.at, end.at);
}

fn forked_stream() {
    let scratch = Scratch::new("forked");
    let recording = record(&scratch, &[]);
    let stream = recording.streams()[1].id;
    let mut all = Commander::new(&recording, stream);
    let (walker, _) = all.fork(0);
    let stopped = all.stopped(walker, Command::Step);
    assert!(stopped.at.event >= 1, "{stopped:?}");
    let end = all.advance(walker, Goal::End);
    assert_eq!(end.at.next, Some(Next::Exit { status: 3 }), "{end:?}");
}

/// Whether there is such a process, and it isn't just waited for.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn ends() {
    let scratch = Scratch::new("ends");
    let recording = record(&scratch, &[]);
    let stream = recording.streams()[0].id;
    let (mut hear, say) = std::io::pipe().unwrap();
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut all = Commander::new(&recording, stream);
        let mut pids = vec![all.pid()];
        for _ in 0..3 {
            let (channel, pid) = all.fork(0);
            all.advance(channel, Goal::Work(5000));
            pids.push(pid);
        }
        let bytes: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
        std::io::Write::write_all(&mut &say, &bytes).unwrap();
        // SAFETY: the death that nobody can prepare for.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    drop(say);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut hear, &mut bytes).unwrap();
    assert_eq!(bytes.len(), 16);
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let pids: Vec<i32> = bytes
        .chunks_exact(4)
        .map(|pid| i32::from_le_bytes(pid.try_into().unwrap()))
        .collect();
    for _ in 0..200 {
        if !pids.iter().any(|&pid| lives(pid)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("some of {pids:?} live on");
}
