//! The commanding side, as small as it can be.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use clew_engine::program::Options;
use clew_engine::replay::forks::Verdict;
use clew_engine::replay::worker::protocol::*;
use clew_engine::replay::worker::{Started, Wish, start};
use clew_recording::event::StreamId;
use clew_recording::position::Position;
use clew_recording::reader::Recording;

/// A folder for one test, gone afterwards.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("clew-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command beside this test, which records for it.
fn clew() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let clew = own.parent().unwrap().parent().unwrap().join("clew");
    assert!(
        clew.exists(),
        "{} is missing: cargo build --release -p clew",
        clew.display()
    );
    clew
}

/// Compiles the guest, records a run of it.
pub fn record(scratch: &Scratch, arguments: &[&str]) -> Recording {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/guest.c");
    let guest = scratch.0.join("guest");
    let built = Process::new("cc")
        .args(["-O1", "-g", "-pthread", "-w", "-no-pie", "-fno-pie", "-o"])
        .args([guest.as_os_str(), source.as_os_str()])
        .status();
    assert!(built.unwrap().success(), "the guest doesn't compile");
    let recorded = Process::new(clew())
        .args(["record", "-o"])
        .arg(scratch.0.join("recording"))
        .args(["--", guest.to_str().unwrap()])
        .args(arguments)
        .env("CLEW_DIR", scratch.0.join("all"))
        .env("XDG_CACHE_HOME", scratch.0.join("cache"))
        .output()
        .unwrap();
    let folder = scratch.0.join("recording");
    match Recording::open(&folder) {
        Ok(recording) => recording,
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&recorded.stderr)),
    }
}

/// Where the guest has something.
pub fn symbol(scratch: &Scratch, name: &str) -> u64 {
    let listed = Process::new("nm").arg(scratch.0.join("guest")).output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")));
    let addr = line.and_then(|line| line.split(' ').next());
    u64::from_str_radix(addr.expect("a symbol of the guest"), 16).unwrap()
}

/// Workers of one stream, by channel.
pub struct Commander {
    started: Started,
    free: Vec<u32>,
    pids: [i32; CHANNELS],
}

impl Commander {
    pub fn new(recording: &Recording, stream: StreamId) -> Commander {
        let wish = Wish {
            options: &Options::default(),
            unlocked: false,
            verify: false,
            program: Some(&clew()),
        };
        let started = start(recording, stream, &wish).unwrap();
        let free = (1..CHANNELS as u32).rev().collect();
        let mut commander = Commander {
            started,
            free,
            pids: [0; CHANNELS],
        };
        assert_eq!(commander.receive(0), Reply::Ready);
        commander
    }

    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    pub fn send(&mut self, channel: u32, command: &Command) {
        let bytes = command.encode();
        let fd = self.started.channels[channel as usize].as_raw_fd();
        // SAFETY: sends from a live buffer.
        let sent =
            unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        assert_eq!(sent, bytes.len() as isize);
    }

    pub fn receive(&mut self, channel: u32) -> Reply {
        let mut room = vec![0u8; LONGEST];
        let fd = self.started.channels[channel as usize].as_raw_fd();
        self.wait(fd);
        // SAFETY: room for so many bytes.
        let got = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0) };
        if got <= 0 {
            let mut text = vec![0; 4096];
            let len = std::io::Read::read(&mut self.started.words, &mut text).unwrap_or(0);
            panic!("worker is gone: {}", String::from_utf8_lossy(&text[..len]));
        }
        Reply::decode(&room[..got as usize]).unwrap()
    }

    /// Until there is something to read; forks are allowed meanwhile.
    fn wait(&self, fd: i32) {
        let guard = self.started.guard.as_ref();
        let asked = guard.map_or(-1, |guard| guard.as_fd().as_raw_fd());
        loop {
            let mut polls = [fd, asked].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two pollfds, alive during the call.
            unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
            if let Some(guard) = guard {
                guard.answer(|_| Verdict::Allowed);
            }
            if polls[0].revents != 0 {
                return;
            }
        }
    }

    pub fn ask(&mut self, channel: u32, command: Command) -> Reply {
        self.send(channel, &command);
        loop {
            match self.receive(channel) {
                Reply::Progress { .. } => {}
                reply => return reply,
            }
        }
    }

    /// A fork of that worker: its channel and pid.
    pub fn fork(&mut self, from: u32) -> (u32, i32) {
        let channel = self.free.pop().unwrap();
        match self.ask(from, Command::Fork { channel }) {
            Reply::Forked { pid } => {
                self.pids[channel as usize] = pid;
                (channel, pid)
            }
            reply => panic!("{reply:?}"),
        }
    }

    pub fn stopped(&mut self, channel: u32, command: Command) -> Stopped {
        match self.ask(channel, command) {
            Reply::Stopped(stopped) => stopped,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn advance(&mut self, channel: u32, goal: Goal) -> Stopped {
        let take = Take::None;
        self.stopped(channel, Command::Advance { goal, take })
    }

    pub fn stops(&mut self, channel: u32, stops: Stops) {
        self.send(channel, &Command::Stops(stops));
    }

    pub fn first(&mut self, channel: u32, goal: Goal) -> Stopped {
        let take = Take::First;
        self.stopped(channel, Command::Advance { goal, take })
    }

    pub fn last(&mut self, channel: u32, goal: Goal) -> Stopped {
        let take = Take::Last;
        self.stopped(channel, Command::Advance { goal, take })
    }

    pub fn at(&mut self, channel: u32) -> At {
        self.stopped(channel, Command::Where).at
    }

    pub fn read(&mut self, channel: u32, addr: u64, len: u32) -> Vec<u8> {
        match self.ask(channel, Command::Read { addr, len }) {
            Reply::Memory(bytes) => bytes,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn threads(&mut self, channel: u32) -> Vec<Thread> {
        match self.ask(channel, Command::Threads) {
            Reply::Threads(threads) => threads,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn registers(&mut self, channel: u32, thread: u32) -> Registers {
        match self.ask(channel, Command::Registers { thread }) {
            Reply::Registers(Some(registers)) => *registers,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn mappings(&mut self, channel: u32) -> Vec<Mapping> {
        match self.ask(channel, Command::Mappings { from: 0 }) {
            Reply::Mappings(mappings) => mappings,
            reply => panic!("{reply:?}"),
        }
    }

    /// What there is to see: threads with registers, and all writable memory, as a sum.
    pub fn state(&mut self, channel: u32) -> State {
        let threads = self.threads(channel);
        let registers = threads
            .iter()
            .map(|thread| self.registers(channel, thread.number))
            .collect();
        let mut sum = 0u64;
        for mapping in self.mappings(channel) {
            if mapping.prot & libc::PROT_WRITE as u32 == 0 || mapping.end - mapping.start > 4 << 20
            {
                continue;
            }
            let mut at = mapping.start;
            while at < mapping.end {
                let len = (mapping.end - at).min(LONGEST_READ as u64);
                let bytes = self.read(channel, at, len as u32);
                for word in bytes.chunks_exact(8) {
                    let word = u64::from_le_bytes(word.try_into().unwrap());
                    sum = (sum ^ word)
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        .rotate_left(23);
                }
                at += len;
            }
        }
        State {
            threads,
            registers,
            sum,
        }
    }

    pub fn end(&mut self, channel: u32) {
        self.send(channel, &Command::End);
        // Its channel can be another's when it is gone, not before.
        // SAFETY: waits for a child of ours.
        unsafe { libc::waitpid(self.pids[channel as usize], std::ptr::null_mut(), 0) };
        self.free.push(channel);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub threads: Vec<Thread>,
    pub registers: Vec<Registers>,
    pub sum: u64,
}

pub fn position(at: &At) -> Position {
    Position {
        event: at.event,
        ticks: at.ticks,
        steps: at.steps.expect("known"),
    }
}
