//! Replays a recording: a process for each program that was started, forks of it for its forks.
//!
//! Each stream replays alone. The processes report to this one over a socket, message by message:
//! output, ends, divergences. Output of all of them is shown in the order in which it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use clew_recording::bytes::{LONGEST, Malformed, Reader, Writer};
use clew_recording::event::{Origin, StreamId};
use clew_recording::reader::Recording;

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
    let mut begun: BTreeSet<StreamId> = BTreeSet::new();
    let mut children = Vec::new();
    loop {
        while children.len() < workers {
            let Some(stream) = waiting.next() else { break };
            let pid = spawn(recording, stream, &wanted, &request.options, mine, theirs)?;
            children.push(Child::new(pid));
            begun.insert(stream);
        }
        if children.is_empty() {
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
        let before = children.len();
        children.retain(Child::lives);
        if children.len() == before {
            wait(mine, &children);
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
        _ => return Err(Malformed),
    }
    Ok(())
}

/// A replaying process.
struct Child {
    pid: i32,
    /// Readable once it has ended; none on old kernels.
    end: Option<OwnedFd>,
}

impl Child {
    fn new(pid: i32) -> Child {
        // SAFETY: makes a descriptor for a child of ours.
        let fd = unsafe { syscall!(libc::SYS_pidfd_open, pid, 0) };
        let end = (fd >= 0).then(|| {
            // SAFETY: just made, nobody else's.
            unsafe { OwnedFd::from_raw_fd(fd as i32) }
        });
        Child { pid, end }
    }

    fn lives(&self) -> bool {
        let mut status = 0i32;
        let flags = libc::WNOHANG;
        // SAFETY: asks about a child of ours.
        unsafe { syscall!(libc::SYS_wait4, self.pid, &raw mut status, flags, 0) == 0 }
    }
}

/// Waits for a message or the end of a child.
fn wait(socket: RawFd, children: &[Child]) {
    let ends = children.iter().filter_map(|child| child.end.as_ref());
    let mut polls: Vec<libc::pollfd> = [socket]
        .into_iter()
        .chain(ends.map(AsRawFd::as_raw_fd))
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // Without descriptors for ends one has to look.
    let all = polls.len() == children.len() + 1;
    let timeout = if all { -1 } else { 20 };
    // SAFETY: as many as it says, alive during the call.
    unsafe { syscall!(libc::SYS_poll, polls.as_mut_ptr(), polls.len(), timeout) };
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
