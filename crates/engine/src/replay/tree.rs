//! Replays a recording: a process for each program that was started, forks of it for its forks.
//!
//! Each stream replays alone. The processes report to this one over a socket, message by message:
//! output, ends, divergences. Output of all of them is shown in the order in which it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::RawFd;

use clew_recording::bytes::{LONGEST, Malformed, Reader, Writer};
use clew_recording::event::{Origin, StreamId};
use clew_recording::reader::Recording;

use super::arguments::Argument;
use super::files::Files;
use super::jail;
use super::run::Replay;
use crate::cache::store::Store;
use crate::kernel::stop;
use crate::program::Options;
use crate::syscall;

/// What is asked for.
pub struct Request {
    /// Only this process.
    pub pid: Option<i32>,
    /// Stop before this event of the process (of the first one, without a pid).
    pub to: Option<u64>,
    /// Tell what the calls among these events (first, last) pass to the kernel.
    pub arguments: Option<(u64, u64)>,
    /// Don't show the guest's output.
    pub quiet: bool,
    pub options: Options,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed(i32),
    /// The process went on as another program.
    Exec,
    /// The recording ends here.
    CutOff,
    /// Asked to stop here.
    Stopped,
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By stream.
    pub ends: BTreeMap<StreamId, End>,
    pub divergences: Vec<String>,
    /// What was asked for by `Request::arguments`, by stream and event.
    pub arguments: BTreeMap<(StreamId, u64), Vec<Argument>>,
    /// Streams whose replay ended without a word: a bug, or killed.
    pub lost: Vec<StreamId>,
}

#[derive(Clone, Copy, Debug)]
pub struct End {
    pub ending: Ending,
    pub events: u64,
    pub ticks: u64,
}

/// Which streams are to be replayed, for whom.
pub struct Wanted {
    /// Replayed to their end and shown.
    streams: BTreeSet<StreamId>,
    /// Forked streams that must be gone through, or are wanted themselves.
    follow: BTreeSet<StreamId>,
    quiet: bool,
    arguments: Option<(u64, u64)>,
    stop: Option<(StreamId, u64)>,
    pub files: Files,
    /// Saved translations.
    pub store: Option<Store>,
}

impl Wanted {
    pub fn shows(&self, stream: StreamId) -> bool {
        !self.quiet && self.streams.contains(&stream)
    }

    pub fn follows(&self, stream: StreamId) -> bool {
        self.follow.contains(&stream)
    }

    pub fn tells_arguments(&self, stream: StreamId, event: u64) -> bool {
        self.arguments
            .is_some_and(|(first, last)| (first..=last).contains(&event))
            && self.streams.contains(&stream)
    }

    pub fn stops_before(&self, stream: StreamId, event: u64) -> bool {
        self.stop.is_some_and(|(s, e)| s == stream && e == event)
    }
}

/// What a replaying process reports.
pub enum Message<'a> {
    Started {
        stream: StreamId,
        pid: i32,
    },
    Output {
        to: u8,
        order: u64,
        part: u32,
        last: bool,
        bytes: &'a [u8],
    },
    Ended {
        stream: StreamId,
        ending: Ending,
        events: u64,
        ticks: u64,
    },
    Diverged {
        stream: StreamId,
        text: &'a str,
    },
    Argument {
        stream: StreamId,
        event: u64,
        argument: &'a Argument,
    },
}

/// The longest message: a piece of output, or a report cut to this.
const MESSAGE: usize = 40 << 10;

impl Message<'_> {
    /// In one piece: several processes share the socket.
    pub fn send(&self, socket: RawFd) {
        let mut room = [0u8; MESSAGE];
        let mut out = Writer::new(&mut room);
        match self {
            Message::Started { stream, pid } => {
                out.byte(0);
                out.number(*stream as u64);
                out.signed(*pid as i64);
            }
            Message::Output {
                to,
                order,
                part,
                last,
                bytes,
            } => {
                out.byte(1);
                out.byte(*to);
                out.number(*order);
                out.number(*part as u64);
                out.byte(*last as u8);
                out.bytes(bytes);
            }
            Message::Ended {
                stream,
                ending,
                events,
                ticks,
            } => {
                out.byte(2);
                out.number(*stream as u64);
                let (kind, value) = match ending {
                    Ending::Exited(status) => (0, *status),
                    Ending::Killed(signo) => (1, *signo),
                    Ending::Exec => (2, 0),
                    Ending::CutOff => (3, 0),
                    Ending::Stopped => (4, 0),
                };
                out.byte(kind);
                out.signed(value as i64);
                out.number(*events);
                out.number(*ticks);
            }
            Message::Diverged { stream, text } => {
                out.byte(3);
                out.number(*stream as u64);
                let text = text.as_bytes();
                out.bytes(&text[..text.len().min(MESSAGE - 2 * LONGEST)]);
            }
            Message::Argument {
                stream,
                event,
                argument,
            } => {
                out.byte(4);
                out.number(*stream as u64);
                out.number(*event);
                out.byte(argument.index);
                out.number(argument.len);
                out.bytes(&argument.bytes);
            }
        }
        let len = out.len();
        // SAFETY: sends from a live buffer.
        unsafe {
            while syscall!(
                libc::SYS_sendto,
                socket,
                room.as_ptr(),
                len,
                libc::MSG_NOSIGNAL
            ) == crate::sys::err(libc::EINTR)
            {}
        }
    }
}

/// Output that waits for its turn.
#[derive(Default)]
struct Screen {
    next: u64,
    pieces: BTreeMap<(u64, u32), (u8, bool, Vec<u8>)>,
    /// Numbers are missing when not all processes are shown.
    in_order: bool,
}

impl Screen {
    fn add(&mut self, order: u64, part: u32, to: u8, last: bool, bytes: &[u8]) {
        if !self.in_order {
            print(to, bytes);
            return;
        }
        self.pieces
            .insert((order, part), (to, last, bytes.to_vec()));
        while let Some(entry) = self.pieces.first_entry() {
            let (order, _) = *entry.key();
            if order != self.next {
                break;
            }
            let (to, last, bytes) = entry.remove();
            print(to, &bytes);
            if last {
                self.next += 1;
            }
        }
    }

    /// All that is left: of streams that were cut off, numbers are missing.
    fn flush(&mut self) {
        for (_, (to, _, bytes)) in std::mem::take(&mut self.pieces) {
            print(to, &bytes);
        }
    }
}

fn print(to: u8, bytes: &[u8]) {
    // A closed pipe is the reader's wish to see no more.
    if to == 2 {
        let _ = std::io::stderr().write_all(bytes);
    } else {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }
}

/// Which streams are needed: (those that begin with an exec and must be run, what for).
fn plan(recording: &Recording, request: &Request) -> Result<(Vec<StreamId>, Wanted), String> {
    let all: BTreeMap<StreamId, &clew_recording::event::Start> = recording
        .streams()
        .iter()
        .map(|info| (info.id, &info.start))
        .collect();
    let streams: BTreeSet<StreamId> = match request.pid {
        None => all.keys().copied().collect(),
        Some(pid) => all
            .iter()
            .filter(|(_, start)| start.pid == pid)
            .map(|(&id, _)| id)
            .collect(),
    };
    let Some(&first) = streams.first() else {
        return Err(match request.pid {
            Some(pid) => format!("no process {pid} in this recording; `clew info` lists them"),
            None => {
                "the recording holds no process: it was cut off before the program began".into()
            }
        });
    };
    let mut roots = BTreeSet::new();
    let mut follow = BTreeSet::new();
    for &stream in &streams {
        let mut at = stream;
        loop {
            match all.get(&at).map(|start| start.origin) {
                Some(Origin::Exec { .. }) => break,
                // A stream begins after its parent's: anything else is made up.
                Some(Origin::Fork { parent }) if parent < at => {
                    follow.insert(at);
                    at = parent;
                }
                _ => return Err(format!("the beginning of stream {stream} is missing")),
            }
        }
        roots.insert(at);
    }
    let stop = request.to.map(|event| (first, event));
    let wanted = Wanted {
        streams,
        follow,
        quiet: request.quiet,
        arguments: request.arguments,
        stop,
        store: open_store(&request.options),
        files: Files::open(recording).map_err(|e| format!("the recording's files: {e}"))?,
    };
    Ok((roots.into_iter().collect(), wanted))
}

/// Saved translations are used, never made: a recording may come from a stranger.
fn open_store(options: &Options) -> Option<Store> {
    let dir = options.cache_dir.as_deref()?;
    Store::existing(dir).ok()??.open_all().ok()
}

/// Replays what is asked for; returns when all of it is done.
pub fn replay(recording: &Recording, request: &Request) -> Result<Outcome, String> {
    let (roots, wanted) = plan(recording, request)?;
    let mut pair = [0i32; 2];
    // SAFETY: the kernel writes two descriptors.
    let made = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        syscall!(
            libc::SYS_socketpair,
            libc::AF_UNIX,
            kind,
            0,
            pair.as_mut_ptr()
        )
    };
    if made != 0 {
        return Err(format!(
            "no socket: {}",
            std::io::Error::from_raw_os_error(-made as i32)
        ));
    }
    let [mine, theirs] = pair;
    let mut outcome = Outcome::default();
    let mut screen = Screen {
        in_order: request.pid.is_none() && request.to.is_none(),
        // The channel counts from 1.
        next: 1,
        ..Screen::default()
    };
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut waiting = roots.iter().copied();
    let mut running = 0usize;
    let mut open = 0usize;
    let mut begun: BTreeSet<StreamId> = BTreeSet::new();
    let mut pids = Vec::new();
    loop {
        while running < workers {
            let Some(stream) = waiting.next() else { break };
            let pid = spawn(recording, stream, &wanted, &request.options, mine, theirs)?;
            pids.push(pid);
            running += 1;
            open += 1;
            begun.insert(stream);
        }
        if running == 0 && open == 0 {
            break;
        }
        // Wait for the next message, or for a replaying process to be gone.
        let mut room = [0u8; MESSAGE];
        // SAFETY: the kernel writes at most so many bytes.
        let len = unsafe {
            syscall!(
                libc::SYS_recvfrom,
                mine,
                room.as_mut_ptr(),
                room.len(),
                libc::MSG_DONTWAIT
            )
        };
        if len > 0 {
            let message = &room[..len as usize];
            if receive(message, &mut outcome, &mut screen, &mut begun).is_err() {
                return Err("a replaying process sent nonsense".into());
            }
            continue;
        }
        // Nothing there: sleep until there is, or until a child of ours ends.
        let gone = reap(&mut pids);
        running -= gone;
        open -= gone;
        if gone == 0 {
            wait_readable(mine, 20);
        }
    }
    // Forked replays are nobody's children here: their end of the socket closes with the last.
    // SAFETY: our own descriptor.
    unsafe { syscall!(libc::SYS_close, theirs) };
    loop {
        let mut room = [0u8; MESSAGE];
        // SAFETY: as above.
        let len = unsafe { syscall!(libc::SYS_recvfrom, mine, room.as_mut_ptr(), room.len(), 0) };
        if len == crate::sys::err(libc::EINTR) {
            continue;
        }
        if len <= 0 {
            break;
        }
        let message = &room[..len as usize];
        if receive(message, &mut outcome, &mut screen, &mut begun).is_err() {
            return Err("a replaying process sent nonsense".into());
        }
    }
    screen.flush();
    outcome.lost = begun
        .iter()
        .filter(|stream| !outcome.ends.contains_key(stream))
        .copied()
        .collect();
    Ok(outcome)
}

fn receive(
    message: &[u8],
    outcome: &mut Outcome,
    screen: &mut Screen,
    begun: &mut BTreeSet<StreamId>,
) -> Result<(), Malformed> {
    let mut input = Reader::new(message);
    match input.byte()? {
        0 => {
            begun.insert(input.small()?);
        }
        1 => {
            let to = input.byte()?;
            let order = input.number()?;
            let part = input.small()?;
            let last = input.byte()? != 0;
            screen.add(order, part, to, last, input.rest());
        }
        2 => {
            let stream = input.small()?;
            let kind = input.byte()?;
            let value = input.signed()? as i32;
            let ending = match kind {
                0 => Ending::Exited(value),
                1 => Ending::Killed(value),
                2 => Ending::Exec,
                3 => Ending::CutOff,
                4 => Ending::Stopped,
                _ => return Err(Malformed),
            };
            let end = End {
                ending,
                events: input.number()?,
                ticks: input.number()?,
            };
            outcome.ends.insert(stream, end);
        }
        3 => {
            let stream = input.small()?;
            begun.remove(&stream);
            let text = String::from_utf8_lossy(input.rest()).into_owned();
            outcome.divergences.push(text);
        }
        4 => {
            let key = (input.small()?, input.number()?);
            let argument = Argument {
                index: input.byte()?,
                len: input.number()?,
                bytes: input.rest().to_vec(),
            };
            outcome.arguments.entry(key).or_default().push(argument);
        }
        _ => return Err(Malformed),
    }
    Ok(())
}

fn wait_readable(fd: RawFd, milliseconds: i32) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, alive during the call.
    unsafe { syscall!(libc::SYS_poll, &raw mut poll, 1, milliseconds) };
}

/// How many of our replaying processes have ended.
fn reap(pids: &mut Vec<i32>) -> usize {
    let before = pids.len();
    pids.retain(|&pid| {
        let mut status = 0i32;
        // SAFETY: asks about a child of ours.
        let ended = unsafe { syscall!(libc::SYS_wait4, pid, &raw mut status, libc::WNOHANG, 0) };
        ended == 0
    });
    before - pids.len()
}

/// Starts a process for a stream; it never returns here.
fn spawn(
    recording: &Recording,
    stream: StreamId,
    wanted: &Wanted,
    options: &Options,
    mine: RawFd,
    report: RawFd,
) -> Result<i32, String> {
    // SAFETY: this process has one thread, so the child can go on as usual.
    let pid = unsafe { syscall!(libc::SYS_fork) };
    if pid < 0 {
        return Err("can't fork".into());
    }
    if pid != 0 {
        return Ok(pid as i32);
    }
    // SAFETY: a descriptor of the parent's business.
    unsafe { syscall!(libc::SYS_close, mine) };
    match Replay::new(recording, stream, wanted, options, report) {
        Ok(replay) => {
            jail::lock(report);
            replay.run()
        }
        Err(error) => {
            let text = format!("can't replay stream {stream}: {error}");
            Message::Diverged {
                stream,
                text: &text,
            }
            .send(report);
            stop::exit(stop::STATUS)
        }
    }
}
