//! The channel and its writer, with real processes: what gets into the log, also when somebody is killed.

mod common;

use std::time::{Duration, Instant};

use clew_recording::channel::{self, Channel, Finished, OnFull, Producer, Status};
use clew_recording::event::{Event, Record};
use clew_recording::log::StreamEnd;
use clew_recording::reader::{OpenError, Recording};
use common::*;

#[test]
fn what_is_committed_is_read_again() {
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    assert_eq!(producer.stream(), 1);
    let mut source = Source::new(1);
    // Several times around the ring.
    source.put(&mut producer, 5 << 20);
    producer.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);

    let recording = session.open();
    assert!(recording.is_complete());
    assert!(!recording.is_being_written());
    let streams = recording.streams();
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].end, Some(StreamEnd::Ended));
    assert_eq!(source.check(&recording, 1), source.records);
}

#[test]
fn a_log_being_written_is_read_up_to_now() {
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    let mut source = Source::new(1);
    for _ in 0..10 {
        source.put(&mut producer, 1000);
        producer.drain();
        let recording = session.open();
        assert!(recording.is_being_written());
        assert!(!recording.is_complete());
        assert_eq!(source.check(&recording, 1), source.records);
    }
    producer.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert!(!session.open().is_being_written());
}

#[test]
fn every_process_has_its_stream() {
    let session = Session::new();
    let mut mine = session.channel.new_stream().unwrap();
    let mut source = Source::new(1);
    source.put(&mut mine, 100);
    let children: Vec<_> = (0..40)
        .map(|_| {
            let stream = session.channel.reserve_stream().unwrap();
            let child = fork(|| {
                let mut producer = session.channel.producer_of(stream).unwrap();
                Source::new(stream).put(&mut producer, 100 << 10);
                producer.finish(Finished::Ended);
            });
            session.channel.expect(stream, child);
            (stream, child)
        })
        .collect();
    for (_, child) in &children {
        assert_eq!(wait(*child), 0);
    }
    source.put(&mut mine, 100);
    mine.finish(Finished::Ended);
    session.channel.wait_for_end();
    let recording = session.open();
    assert!(recording.is_complete());
    assert_eq!(recording.streams().len(), 41);
    assert_eq!(source.check(&recording, 1), source.records);
    for (stream, _) in children {
        let count = Source::new(stream).check(&recording, stream);
        assert!(count > 100, "stream {stream} has {count} records");
    }
}

#[test]
fn a_killed_process_ends_its_stream_and_the_recording() {
    let session = Session::new();
    let (told, tell) = pipe();
    let child = fork(|| {
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut producer, 3000);
        tell.tell();
        stand_still();
    });
    told.hear();
    kill(child);
    // Its parent doesn't ask for its end: it stays a zombie.
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    let recording = session.open();
    assert!(recording.is_complete());
    assert_eq!(recording.streams()[0].end, Some(StreamEnd::Gone));
    let count = Source::new(1).check(&recording, 1);
    assert!(count > 10);
    let mut reader = recording.stream(1).unwrap();
    let mut last = false;
    while let Some(record) = reader.next().unwrap() {
        last = record == death();
    }
    assert!(last, "its death is told");
    wait(child);
}

#[test]
fn who_leaves_by_itself_is_not_called_killed() {
    let session = Session::new();
    let child = fork(|| {
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut producer, 3000);
        channel::leaves(true);
    });
    wait(child);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    let recording = session.open();
    assert_eq!(recording.streams()[0].end, Some(StreamEnd::Gone));
    let mut reader = recording.stream(1).unwrap();
    while let Some(record) = reader.next().unwrap() {
        assert_ne!(record, death());
    }
}

#[test]
fn a_fork_that_its_parent_could_not_tell_is_told() {
    for told in [false, true] {
        let session = Session::new();
        let (hear, tell) = pipe();
        let parent = fork(|| {
            let mut producer = session.channel.new_stream().unwrap();
            Source::new(1).put(&mut producer, 300);
            let child = session.channel.reserve_stream().unwrap();
            producer.forks(child, 77);
            let pid = fork(|| {
                let mut producer = session.channel.producer_of(child).unwrap();
                Source::new(2).put(&mut producer, 100);
                producer.finish(Finished::Ended);
            });
            wait(pid);
            if told {
                Source::new(1).put(&mut producer, 1);
            }
            tell.tell();
            stand_still();
        });
        hear.hear();
        kill(parent);
        wait(parent);
        assert_eq!(session.channel.wait_for_end(), Status::Recording);
        let recording = session.open();
        let mut reader = recording.stream(1).unwrap();
        let mut forks = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            if let Record::Event(Event::Forked {
                ticks: 77, stream, ..
            }) = record
            {
                forks.push(stream);
            }
        }
        assert_eq!(forks, if told { vec![] } else { vec![2] });
    }
}

#[test]
fn a_process_that_cannot_record_is_told() {
    let session = Session::new();
    let mut mine = session.channel.new_stream().unwrap();
    Source::new(1).put(&mut mine, 100);
    let stream = session.channel.reserve_stream().unwrap();
    let child = fork(|| {
        assert!(session.channel.give_up(stream, libc::ENOMEM, true));
        // Too late.
        assert!(session.channel.producer_of(stream).is_err());
    });
    session.channel.expect(stream, child);
    wait(child);
    mine.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    let recording = session.open();
    assert!(recording.is_complete() && recording.processes() == 1);
    let [missing] = recording.unrecorded() else {
        panic!("{:?}", recording.unrecorded());
    };
    assert_eq!(missing.stream, stream);
    assert!(missing.text.contains("isn't recorded"), "{}", missing.text);
}

#[test]
fn a_process_between_two_streams_keeps_the_recording_open() {
    let session = Session::new();
    let mut first = session.channel.new_stream().unwrap();
    Source::new(1).put(&mut first, 100);
    first.finish(Finished::Exec);
    // By then the first slot is free.
    while session
        .open_anyway()
        .is_none_or(|r| r.streams()[0].end.is_none())
    {
        std::thread::yield_now();
    }
    let mut second = session.channel.new_stream().unwrap();
    Source::new(2).put(&mut second, 100);
    second.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    let recording = session.open();
    assert_eq!(recording.streams()[0].end, Some(StreamEnd::Exec));
    assert_eq!(recording.streams().len(), 2);
}

#[test]
fn an_exec_ends_the_stream_by_itself() {
    let session = Session::new();
    let child = fork(|| {
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut producer, 100);
        // SAFETY: plain strings.
        unsafe { libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), 0usize) };
    });
    wait(child);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert_eq!(session.open().streams()[0].end, Some(StreamEnd::Gone));
}

#[test]
fn a_child_that_never_comes_does_not_hold_the_recording_up() {
    let session = Session::new();
    let child = fork(|| {
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut producer, 100);
        let unused = session.channel.reserve_stream().unwrap();
        session.channel.give_back(unused);
        let lost = session.channel.reserve_stream().unwrap();
        let grandchild = fork(|| {});
        session.channel.expect(lost, grandchild);
        wait(grandchild);
        session.channel.reserve_stream().unwrap();
    });
    wait(child);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert_eq!(session.open().streams().len(), 1);
}

#[test]
fn a_daemon_outlives_its_parent() {
    let session = Session::new();
    let (told, tell) = pipe();
    let (go_on, let_go_on) = pipe();
    let child = fork(|| {
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut producer, 100);
        let stream = session.channel.reserve_stream().unwrap();
        let daemon = fork(|| {
            go_on.hear();
            let mut producer = session.channel.producer_of(stream).unwrap();
            Source::new(stream).put(&mut producer, 100);
            producer.drain();
            tell.tell();
        });
        session.channel.expect(stream, daemon);
    });
    wait(child);
    let_go_on.tell();
    told.hear();
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert_eq!(session.open().streams().len(), 2);
}

/// In a pid namespace of its own a process has a pid that means somebody else to the writer.
#[test]
fn processes_of_other_pid_namespaces_are_told_apart() {
    let session = Session::new();
    let (told, tell) = pipe();
    let child = fork(|| {
        // SAFETY: in a process of its own.
        let mut done = unsafe { libc::unshare(libc::CLONE_NEWPID) };
        if done != 0 {
            // SAFETY: likewise.
            done = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) };
        }
        assert_eq!(done, 0, "this test needs to make pid namespaces");
        let mut mine = session.channel.new_stream().unwrap();
        Source::new(1).put(&mut mine, 100);
        let init = fork(|| {
            // Its pid is 1: the real one outlives the test.
            let mut producer = session.channel.new_stream().unwrap();
            Source::new(2).put(&mut producer, 100);
            producer.drain();
            tell.tell();
            stand_still();
        });
        told.hear();
        kill(init);
        wait(init);
    });
    assert_eq!(wait(child), 0);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    let recording = session.open();
    assert_eq!(recording.streams().len(), 2);
    assert!(recording.is_complete());
}

#[test]
fn without_a_writer_the_program_goes_on() {
    let session = Session::new();
    session.channel.set_on_full(OnFull::Continue);
    let mut producer = session.channel.new_stream().unwrap();
    let mut source = Source::new(1);
    source.put(&mut producer, 1000);
    producer.drain();
    let count = source.records;
    kill(session.channel.writer().unwrap());
    let begun = Instant::now();
    while producer.status() == Status::Recording {
        source.put(&mut producer, 100);
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(producer.status(), Status::WriterGone);
    assert_eq!(session.channel.on_full(), OnFull::Continue);
    // Thrown away, without waiting.
    source.put(&mut producer, 10 << 20);
    producer.drain();
    assert!(session.channel.new_stream().is_err());
    assert_eq!(session.channel.wait_for_end(), Status::WriterGone);
    let recording = session.open();
    assert!(!recording.is_complete() && !recording.is_being_written());
    assert!(Source::new(1).check(&recording, 1) >= count);
}

#[test]
fn who_waits_for_room_is_freed_by_the_writers_death() {
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    let writer = session.channel.writer().unwrap();
    // SAFETY: a signal to a process that this test has started.
    unsafe { libc::kill(writer, libc::SIGSTOP) };
    let killer = fork(|| {
        stand_still_for(Duration::from_millis(300));
        kill(writer);
    });
    Source::new(1).put(&mut producer, 3 << 20);
    assert_eq!(producer.status(), Status::WriterGone);
    wait(killer);
}

#[test]
fn a_full_disk_leaves_a_valid_log() {
    let session = Session::with(|| {
        // The writer inherits it; files over the limit get an error, as on a full disk.
        let limit = libc::rlimit {
            rlim_cur: 300 << 10,
            rlim_max: 300 << 10,
        };
        // SAFETY: in a forked process of its own.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    });
    let mut producer = session.channel.new_stream().unwrap();
    let mut source = Source::new(1);
    let begun = Instant::now();
    while producer.status() == Status::Recording {
        source.put(&mut producer, 10_000);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(producer.status(), Status::Full);
    source.put(&mut producer, 10 << 20);
    assert_eq!(session.channel.wait_for_end(), Status::Full);
    assert!(session.channel.reserve_stream().is_err());
    let recording = session.open();
    assert!(!recording.is_complete());
    let count = Source::new(1).check(&recording, 1);
    assert!(count > 100 && count < source.records);
    assert_eq!(session.log_len(), recording.size());
}

#[test]
fn the_writer_keeps_nothing_of_the_caller_open() {
    let (told, tell) = pipe();
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    drop(tell);
    // The end of the pipe: nobody else has it.
    told.hear();
    let writer = session.channel.writer().unwrap();
    let name = std::fs::read_to_string(format!("/proc/{writer}/comm")).unwrap();
    assert_eq!(name.trim(), "clew-writer");
    let folder = std::fs::read_link(format!("/proc/{writer}/cwd")).unwrap();
    assert_eq!(folder, std::path::Path::new("/"));
    producer.finish(Finished::Ended);
}

#[test]
fn signals_do_not_reach_the_writer() {
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    let writer = session.channel.writer().unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP] {
        // SAFETY: to a process that this test has started.
        unsafe { libc::kill(writer, signal) };
    }
    let mut source = Source::new(1);
    source.put(&mut producer, 1000);
    producer.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert_eq!(source.check(&session.open(), 1), source.records);
}

#[test]
fn the_launchers_death_ends_a_recording_that_never_began() {
    let folder = Folder::new();
    let (channel, _fd) = Channel::create().unwrap();
    let launcher = fork(|| {
        clew_recording::writer::spawn(&channel, folder.path(), &Default::default()).unwrap();
    });
    assert_eq!(wait(launcher), 0);
    channel.wait_for_end();
    assert!(matches!(
        Recording::open(folder.path()),
        Err(OpenError::Empty(_))
    ));
}

#[test]
fn an_idle_recording_costs_nothing() {
    let session = Session::new();
    let mut producer = session.channel.new_stream().unwrap();
    Source::new(1).put(&mut producer, 4 << 20);
    producer.drain();
    let writer = session.channel.writer().unwrap();
    let switches = || field(writer, "voluntary_ctxt_switches");
    // It gives memory back after a second, then sleeps.
    let begun = Instant::now();
    while session.memory() > 200 << 10 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{}",
            session.memory()
        );
        stand_still_for(Duration::from_millis(50));
    }
    stand_still_for(Duration::from_millis(300));
    let before = switches();
    stand_still_for(Duration::from_millis(1000));
    assert_eq!(switches(), before);
    // And is there again within a tenth of a second.
    let mut source = Source::new(1);
    source.put(&mut producer, 100);
    let begun = Instant::now();
    let len = session.log_len();
    while session.log_len() == len {
        assert!(begun.elapsed() < Duration::from_millis(500));
        std::thread::yield_now();
    }
    producer.finish(Finished::Ended);
}

#[test]
fn memory_stays_bounded() {
    let session = Session::new();
    let mut mine = session.channel.new_stream().unwrap();
    let mut source = Source::new(1);
    let writer = session.channel.writer().unwrap();
    let mut most = 0;
    let mut resident = Vec::new();
    for round in 0..300 {
        source.put(&mut mine, 1 << 20);
        let stream = session.channel.reserve_stream().unwrap();
        let child = fork(|| {
            let mut producer = session.channel.producer_of(stream).unwrap();
            Source::new(stream).put(&mut producer, 200 << 10);
        });
        session.channel.expect(stream, child);
        wait(child);
        most = most.max(session.memory());
        if round % 100 == 50 {
            resident.push(field(writer, "VmRSS"));
        }
    }
    // Two rings at a time, and what the writer hasn't freed yet: it is never more than a nap behind.
    assert!(most < 24 << 20, "{most}");
    assert!(resident[2] < resident[0] + 1024, "{resident:?}");
    mine.finish(Finished::Ended);
    session.channel.wait_for_end();
    assert_eq!(session.open().streams().len(), 301);
}

#[test]
fn more_processes_than_slots_wait() {
    let session = Session::with_slots_for_few();
    let mut mine = session.channel.new_stream().unwrap();
    let reserved: Vec<_> = (1..16)
        .map(|_| session.channel.reserve_stream().unwrap())
        .collect();
    let (told, tell) = pipe();
    let child = fork(|| {
        tell.tell();
        let mut producer = session.channel.new_stream().unwrap();
        Source::new(17).put(&mut producer, 100);
    });
    told.hear();
    assert!(!has_ended_after(child, Duration::from_millis(100)));
    for stream in reserved {
        session.channel.give_back(stream);
    }
    assert_eq!(wait(child), 0);
    mine.finish(Finished::Ended);
    assert_eq!(session.channel.wait_for_end(), Status::Recording);
    assert_eq!(session.open().streams()[0].id, 17);
}

/// Producer of one kind or another killed, the writer killed, or both, at random moments.
#[test]
fn nothing_older_than_a_tenth_of_a_second_is_lost_by_kills() {
    let rounds = std::env::var("CLEW_KILLS").map_or(30, |n| n.parse().unwrap());
    let mut random = Random(0x9e3779b97f4a7c15);
    for round in 0..rounds {
        let session = Session::new();
        let progress = Progress::new();
        let child = fork(|| {
            let mut producer: Producer = session.channel.new_stream().unwrap();
            let mut source = Source::new(1);
            for n in 0.. {
                source.put(&mut producer, 200 + n % 7 * 300);
                progress.note(source.records);
                if n % 50 == 0 {
                    stand_still_for(Duration::from_micros(300));
                }
            }
        });
        let writer = session.channel.writer().unwrap();
        stand_still_for(Duration::from_micros(150_000 + random.next() % 100_000));
        // What was committed by now must be there a tenth of a second later, or a little more if the
        // machine let the writer wait for its turn.
        let sure = progress.get();
        let begun = (Instant::now(), waited(writer));
        while begun.0.elapsed() < Duration::from_millis(100) + (waited(writer) - begun.1) {
            stand_still_for(Duration::from_millis(10));
        }
        match round % 3 {
            0 => kill(writer),
            1 => kill(child),
            _ => {
                kill(writer);
                kill(child);
            }
        }
        kill(child);
        wait(child);
        let status = session.channel.wait_for_end();
        assert_eq!(status == Status::Recording, round % 3 == 1);
        let recording = session.open();
        let count = Source::new(1).check(&recording, 1);
        assert!(count >= sure, "round {round}: {count} of {sure} records");
        assert!(sure > 0);
    }
}
