//! Replays a recording: a process for each program that was started, forks of it for its forks.
//!
//! Each stream replays alone. The processes report to this one over a socket, message by message:
//! output, ends, divergences. Output of all of them is shown in the order in which it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use clew_recording::event::{Origin, ProcessId, StreamId};
use clew_recording::reader::Recording;

use super::arguments::Argument;
use super::files::{self, Files};
use super::forks::{self, Guard, Verdict};
use super::halt::Halt;
use super::jail;
use super::leash;
use super::passing;
use super::report::{MESSAGE, Message};
use super::run::Replay;
pub use super::run::work;
use super::screen::Screen;
use super::worker::protocol::Diverged;
use crate::cache::saved;
use crate::cache::store::Store;
use crate::kernel::stop;
use crate::memory::host;
use crate::program::Options;
use crate::record::files::size_and_time;
use crate::syscall;
use crate::vdso;

/// What is asked for.
pub struct Request {
    /// Only this process.
    pub process: Option<ProcessId>,
    /// Stop when this event of the process's first program (of the first process, if none is named)
    /// is done, with its effects.
    pub to: Option<u64>,
    /// Compare memory wherever the recording has a checksum of it, not only at the end.
    pub verify: bool,
    /// Replay without the lock around the process, where the kernel hasn't got it.
    pub unlocked: bool,
    /// Tell what the calls among these events (first, last) pass to the kernel.
    pub arguments: Option<(u64, u64)>,
    /// Don't show the guest's output.
    pub quiet: bool,
    pub options: Options,
}

impl Request {
    /// All of a recording, locked in, unseen.
    pub fn all(options: Options) -> Request {
        Request {
            process: None,
            to: None,
            verify: false,
            unlocked: false,
            arguments: None,
            quiet: true,
            options,
        }
    }
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
    /// The region that the recording is of ends here.
    Region,
    /// Asked to stop here.
    Stopped,
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By stream.
    pub ends: BTreeMap<StreamId, End>,
    pub divergences: Vec<Diverged>,
    /// What was asked for by `Request::arguments`, by stream and event.
    pub arguments: BTreeMap<(StreamId, u64), Vec<Argument>>,
    /// Reasons outside of the recording why a process couldn't be replayed.
    pub unable: Vec<String>,
    /// Streams whose replay ended without a word: a bug, or killed.
    pub lost: Vec<StreamId>,
}

/// So many reports are kept.
const MOST_REPORTS: usize = 100;
/// Arguments are told up to this sum of bytes: a replay may have any number of calls.
const MOST_ARGUMENTS: usize = 256 << 20;

#[derive(Clone, Copy, Debug)]
pub struct End {
    pub ending: Ending,
    pub events: u64,
    pub ticks: u64,
    /// How many checksums agreed.
    pub checks: u64,
}

/// Which streams are to be replayed, for whom.
pub struct Wanted {
    /// Replayed to their end and shown.
    streams: BTreeSet<StreamId>,
    /// Forked streams that must be gone through, or are wanted themselves, and their parents.
    follow: BTreeMap<StreamId, StreamId>,
    quiet: bool,
    pub verify: bool,
    arguments: Option<(u64, u64)>,
    stop: Option<(StreamId, u64)>,
    /// Streams with an exec from which others are forked.
    forking: BTreeSet<StreamId>,
    pub files: Files,
    /// Saved translations.
    pub store: Option<Store>,
}

impl Wanted {
    pub fn shows(&self, stream: StreamId) -> bool {
        !self.quiet && self.streams.contains(&stream)
    }

    /// Whether the child with this stream, forked by `parent`, is to be replayed too.
    pub fn follows(&self, parent: StreamId, stream: StreamId) -> bool {
        self.follow.get(&stream) == Some(&parent)
    }

    /// How many events of a stream are to be replayed, if not all.
    pub fn stops_after(&self, stream: StreamId) -> Option<u64> {
        self.stop.filter(|(s, _)| *s == stream).map(|(_, n)| n)
    }

    pub fn tells_arguments(&self, stream: StreamId, event: u64) -> bool {
        self.arguments
            .is_some_and(|(first, last)| (first..=last).contains(&event))
            && self.streams.contains(&stream)
    }
}

/// Which streams are needed: (those that begin with an exec and must be run, what for).
fn plan(recording: &Recording, request: &Request) -> Result<(Vec<StreamId>, Wanted), String> {
    let streams: BTreeSet<StreamId> = recording
        .streams()
        .iter()
        .filter(|info| request.process.is_none_or(|wanted| wanted == info.process))
        .map(|info| info.id)
        .collect();
    let Some(&first) = streams.first() else {
        return Err(match request.process {
            Some(_) => "no such process in this recording; `clew info` lists them".into(),
            None => {
                "the recording holds no process: it was cut off before the program began".into()
            }
        });
    };
    let streams = match request.to {
        // Only up to there.
        Some(_) => BTreeSet::from([first]),
        None => streams,
    };
    let mut roots = BTreeSet::new();
    let mut forking = BTreeSet::new();
    let mut follow = BTreeMap::new();
    for &stream in &streams {
        let mut at = stream;
        loop {
            match recording.info(at).map(|info| info.start.origin) {
                Some(Origin::Exec { .. } | Origin::Midst { .. }) => break,
                // A stream begins after its parent's: anything else is made up.
                Some(Origin::Fork { parent }) if parent < at => {
                    follow.insert(at, parent);
                    at = parent;
                }
                _ => return Err(format!("the beginning of stream {stream} is missing")),
            }
        }
        if at != stream {
            forking.insert(at);
        }
        roots.insert(at);
    }
    let stop = request.to.map(|event| (first, event));
    let wanted = Wanted {
        streams,
        follow,
        quiet: request.quiet,
        verify: request.verify,
        arguments: request.arguments,
        stop,
        forking,
        store: open_store(&request.options, recording),
        files: Files::open(recording).map_err(|e| format!("the recording's files: {e}"))?,
    };
    Ok((roots.into_iter().collect(), wanted))
}

/// Saved translations are used, never made: a recording may come from a stranger. Only those of the recording's own
/// files are there.
pub(super) fn open_store(options: &Options, recording: &Recording) -> Option<Store> {
    let store = Store::existing(options.cache_dir.as_deref()?).ok()??;
    let copies = recording.file_names().ok()?;
    let files = copies.iter().filter_map(|name| size_and_time(name));
    let begins = files
        .chain([vdso::SIZE_AND_TIME])
        .map(|(size, time)| saved::name_begins(size, time))
        .collect();
    let mut names = store.names(&begins).ok()?;
    // Translations are the first thing to do without.
    let room = files::allow_descriptors(names.len() as u64);
    names.truncate(room.min(names.len() as u64) as usize);
    Some(store.opened(&names))
}

/// The processes that replay, and what comes from them.
struct Coordinator<'a> {
    recording: &'a Recording,
    request: &'a Request,
    wanted: Wanted,
    outcome: Outcome,
    screen: Screen,
    /// Streams of which something was heard.
    begun: BTreeSet<StreamId>,
    told: BTreeSet<StreamId>,
    /// Bytes of arguments so far.
    arguments: usize,
    children: Vec<Child>,
    /// Descriptors that no replaying process shall have.
    inherited: Vec<RawFd>,
    held: Vec<Held>,
    /// Ctrl-Z.
    halt: Option<Halt>,
    census: Census,
    /// How much each stream has done.
    done: BTreeMap<StreamId, u64>,
    tell: &'a mut dyn FnMut(u64),
}

/// A process that was started, and its forks: they are a process group.
struct Held {
    group: i32,
    /// They end when this is closed.
    _leash: OwnedFd,
    /// Their forks wait for its answer.
    guard: Option<Guard>,
}

impl Held {
    /// Whether anybody is left of the group.
    fn lives(&self) -> bool {
        // SAFETY: asks, sends nothing. The group is of a child of ours, or of nobody.
        unsafe { syscall!(libc::SYS_kill, -i64::from(self.group), 0) == 0 }
    }
}

/// Forks that were made.
#[derive(Default)]
struct Census {
    forks: usize,
    counted: usize,
}

/// So many processes may be there at once.
const MOST_PROCESSES: usize = 1024;
/// They are counted again after so many forks.
const COUNTED: usize = 64;

impl Census {
    /// Whether another fork may be made. There are `most` in the recording, and each is replayed once; a process that
    /// has left its recording could make any number.
    fn decide(&mut self, most: usize, held: &[Held]) -> Verdict {
        if self.forks >= most {
            return Verdict::Refused;
        }
        if self.forks - self.counted >= COUNTED {
            if members(held) >= MOST_PROCESSES {
                return Verdict::NotNow;
            }
            self.counted = self.forks;
        }
        self.forks += 1;
        Verdict::Allowed
    }
}

/// How many processes there are in these groups.
fn members(held: &[Held]) -> usize {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let group = |entry: std::fs::DirEntry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name: state, parent, group.
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(2)?.parse::<i32>().ok()
    };
    all.filter_map(group)
        .filter(|&group| held.iter().any(|held| held.group == group))
        .count()
}

/// A replaying process.
struct Child {
    pid: i32,
    /// Readable once it has ended; none on old kernels.
    end: Option<OwnedFd>,
}

impl Child {
    fn new(pid: i32) -> Child {
        // SAFETY: makes a descriptor for a child of ours, closed on exec.
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

/// Replays what is asked for; returns when all of it is done.
pub fn replay(recording: &Recording, request: &Request) -> Result<Outcome, String> {
    replay_and_tell(recording, request, &mut |_| {})
}

/// The same; `told` hears now and then how much is done, in units of [`work`].
pub fn replay_and_tell(
    recording: &Recording,
    request: &Request,
    told: &mut dyn FnMut(u64),
) -> Result<Outcome, String> {
    let (roots, wanted) = plan(recording, request)?;
    let screen = match request.process.is_none() && request.to.is_none() {
        true => Screen::of_all(),
        false => Screen::of(wanted.streams.clone()),
    };
    let mut coordinator = Coordinator {
        recording,
        request,
        wanted,
        outcome: Outcome::default(),
        screen,
        begun: BTreeSet::new(),
        told: BTreeSet::new(),
        arguments: 0,
        children: Vec::new(),
        inherited: jail::inherited()
            .map_err(|e| format!("a replay needs /proc, mount it: /proc/self/fd: {e}"))?,
        held: Vec::new(),
        halt: Halt::new(),
        census: Census::default(),
        done: BTreeMap::new(),
        tell: told,
    };
    let done = coordinator.run(&roots);
    coordinator.screen.flush();
    if done.is_err() {
        coordinator.end_all();
    }
    done.map(|()| coordinator.conclude())
}

impl Coordinator<'_> {
    fn run(&mut self, roots: &[StreamId]) -> Result<(), String> {
        let no = |what: &'static str| move |error: io::Error| format!("no {what}: {error}");
        let (mine, theirs) = socket_pair().map_err(no("socket"))?;
        let (mut words, to_words) = io::pipe().map_err(no("pipe"))?;
        set_nonblocking(words.as_raw_fd());
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut waiting = roots.iter().copied();
        loop {
            while self.children.len() < workers {
                let Some(stream) = waiting.next() else { break };
                let pid = self.spawn(stream, mine, theirs, to_words.as_raw_fd())?;
                self.children.push(Child::new(pid));
                self.begun.insert(stream);
            }
            if self.children.is_empty() {
                break;
            }
            if self.take_message(mine, libc::MSG_DONTWAIT)? == Taken::Message {
                continue;
            }
            pass_on(&mut words);
            self.answer_forks();
            self.answer_halt();
            let before = self.children.len();
            self.children.retain(Child::lives);
            if self.children.len() != before {
                self.held.retain(Held::lives);
            } else {
                // Until there is something, or a child of ours has ended.
                self.wait(mine, words.as_raw_fd());
            }
        }
        // Forked replays are nobody's children here: their end of the socket closes with the last.
        // SAFETY: our own descriptor.
        unsafe { syscall!(libc::SYS_close, theirs) };
        drop(to_words);
        loop {
            match self.take_message(mine, libc::MSG_DONTWAIT)? {
                Taken::Message => continue,
                Taken::Over => break,
                Taken::Nothing => {}
            }
            self.answer_forks();
            self.answer_halt();
            if !pass_on(&mut words) {
                let fds: Vec<RawFd> = [mine, words.as_raw_fd()]
                    .into_iter()
                    .chain(self.guards())
                    .chain(self.halt.as_ref().map(Halt::fd))
                    .collect();
                wait_readable(&fds, 1000);
            }
        }
        pass_on(&mut words);
        // SAFETY: as above.
        unsafe { syscall!(libc::SYS_close, mine) };
        Ok(())
    }

    fn take_message(&mut self, from: RawFd, flags: i32) -> Result<Taken, String> {
        let mut room = [0u8; MESSAGE];
        // SAFETY: the kernel writes at most so many bytes.
        let len = unsafe {
            syscall!(
                libc::SYS_recvfrom,
                from,
                room.as_mut_ptr(),
                room.len(),
                flags,
                0,
                0
            )
        };
        if len == crate::sys::err(libc::EAGAIN) || len == crate::sys::err(libc::EINTR) {
            return Ok(Taken::Nothing);
        }
        if len <= 0 {
            return Ok(Taken::Over);
        }
        let mut text = String::new();
        match Message::decode(&room[..len as usize], &mut text) {
            Ok(message) => self.receive(message),
            Err(_) => return Err("a replaying process sent nonsense".into()),
        }
        Ok(Taken::Message)
    }

    /// Whoever sends may have been led astray: nothing grows without bound here.
    fn receive(&mut self, message: Message) {
        let known = |stream: &StreamId| {
            self.wanted.streams.contains(stream)
                || self.wanted.follow.contains_key(stream)
                || self.begun.contains(stream)
        };
        match message {
            Message::Started { stream } if known(&stream) => {
                self.begun.insert(stream);
            }
            Message::Output {
                stream,
                to,
                order,
                part,
                last,
                bytes,
            } => self.screen.add(stream, order, part, to, last, bytes),
            Message::Progress { stream, work } if known(&stream) => {
                self.done.insert(stream, work);
                let all = self
                    .done
                    .values()
                    .fold(0u64, |sum, &n| sum.saturating_add(n));
                (self.tell)(all);
            }
            Message::Ended { stream, end } if known(&stream) => {
                self.done.insert(stream, work(end.ticks, end.events));
                self.outcome.ends.insert(stream, end);
                self.screen.ended(stream);
            }
            Message::Diverged(diverged) if known(&diverged.stream) => {
                self.told.insert(diverged.stream);
                self.screen.ended(diverged.stream);
                if self.outcome.divergences.len() < MOST_REPORTS {
                    self.outcome.divergences.push(*diverged);
                }
            }
            Message::Unable { stream, text } if known(&stream) => {
                self.told.insert(stream);
                self.screen.ended(stream);
                if self.outcome.unable.len() < MOST_REPORTS {
                    self.outcome.unable.push(text.to_owned());
                }
            }
            Message::Argument {
                stream,
                event,
                argument,
            } => {
                self.arguments += argument.bytes.len() + size_of::<Argument>();
                if self.arguments < MOST_ARGUMENTS {
                    let of_call = self.outcome.arguments.entry((stream, event)).or_default();
                    of_call.push(argument);
                }
            }
            // Of streams that nobody asked for.
            _ => {}
        }
    }

    /// Waits for something to read there, or the end of a child.
    fn wait(&self, messages: RawFd, words: RawFd) {
        let ends = self.children.iter().filter_map(|child| child.end.as_ref());
        let ends: Vec<RawFd> = ends.map(AsRawFd::as_raw_fd).collect();
        // Without descriptors for all ends one has to look.
        let all = ends.len() == self.children.len();
        let fds: Vec<RawFd> = [messages, words]
            .into_iter()
            .chain(ends)
            .chain(self.guards())
            .chain(self.halt.as_ref().map(Halt::fd))
            .collect();
        wait_readable(&fds, if all { -1 } else { 20 });
    }

    fn answer_halt(&self) {
        if let Some(halt) = &self.halt {
            halt.answer(|| self.held.iter().map(|held| held.group).collect());
        }
    }

    fn answer_forks(&mut self) {
        let (most, held) = (self.wanted.follow.len(), &self.held);
        for guard in held.iter().filter_map(|held| held.guard.as_ref()) {
            guard.answer(|_| self.census.decide(most, held));
        }
    }

    /// What becomes readable when somebody wants to fork.
    fn guards(&self) -> impl Iterator<Item = RawFd> {
        let guards = self.held.iter().filter_map(|held| held.guard.as_ref());
        guards
            .filter(|guard| guard.is_of_use())
            .map(|guard| guard.as_fd().as_raw_fd())
    }

    /// Something is wrong: nobody goes on unheard.
    fn end_all(&mut self) {
        for &Child { pid, .. } in &self.children {
            let mut status = 0i32;
            // SAFETY: a child of ours that nobody has waited for.
            unsafe {
                syscall!(libc::SYS_kill, pid, libc::SIGKILL);
                syscall!(libc::SYS_wait4, pid, &raw mut status, 0, 0);
            }
        }
    }

    fn conclude(mut self) -> Outcome {
        let outcome = &mut self.outcome;
        let silent =
            |stream: &StreamId| !outcome.ends.contains_key(stream) && !self.told.contains(stream);
        let mut lost: BTreeSet<StreamId> =
            self.begun.iter().filter(|s| silent(s)).copied().collect();
        // A fork whose parent came to its end and that nobody heard of, in order of their numbers:
        // parents first.
        for (&stream, parent) in &self.wanted.follow {
            let complete = outcome.ends.get(parent).is_some_and(|end| {
                !matches!(
                    end.ending,
                    Ending::CutOff | Ending::Stopped | Ending::Region
                )
            });
            if silent(&stream) && complete {
                lost.insert(stream);
            }
        }
        outcome.lost = lost.into_iter().collect();
        self.outcome
    }

    /// Starts a process for a stream; it never returns here.
    fn spawn(
        &mut self,
        stream: StreamId,
        mine: RawFd,
        report: RawFd,
        words: RawFd,
    ) -> Result<i32, String> {
        let no = |what: &'static str| move |error: io::Error| format!("no {what}: {error}");
        // All forks of it may come from this stream, or from its forks.
        let forks = self.wanted.forking.contains(&stream);
        let (held, end) = leash::new().map_err(no("pipe"))?;
        let (here, there) = std::os::unix::net::UnixDatagram::pair().map_err(no("socket"))?;
        // SAFETY: this process has one thread, so the child can go on as usual.
        let pid = unsafe { syscall!(libc::SYS_fork) };
        if pid < 0 {
            return Err(format!("can't fork: {}", crate::sys::error(pid)));
        }
        if pid != 0 {
            drop(there);
            // Whoever comes first: from here on there is such a group.
            // SAFETY: puts a child of ours into a group of its own.
            unsafe { syscall!(libc::SYS_setpgid, pid, pid) };
            let guard = match forks && !self.request.unlocked {
                true => passing::take_one(here.as_raw_fd()).map(Guard::new),
                false => None,
            };
            self.held.push(Held {
                group: pid as i32,
                _leash: held,
                guard,
            });
            return Ok(pid as i32);
        }
        // What is the parent's business.
        drop((held, here));
        self.held.clear();
        self.halt = None;
        // SAFETY: a descriptor of the parent's business.
        unsafe { syscall!(libc::SYS_close, mine) };
        if forks && !self.request.unlocked {
            passing::pass_one(there.as_raw_fd(), forks::ask());
        }
        drop(there);
        let unable = |text: String| -> ! {
            Message::Unable {
                stream,
                text: &text,
            }
            .send(report);
            stop::exit(stop::STATUS)
        };
        let prepared = jail::undress(&self.inherited, words).and_then(|()| leash::put_on(end));
        let leash = prepared.unwrap_or_else(|error| {
            unable(format!("a process to replay in can't be prepared: {error}"))
        });
        let options = &self.request.options;
        match Replay::new(self.recording, stream, &self.wanted, options, report) {
            Ok(replay) => {
                if !self.request.unlocked {
                    host::locked_in();
                    if let Err(error) = jail::lock(report, forks, leash) {
                        unable(format!(
                            "the kernel can't lock a replay in (seccomp: {error}), and a recording may \
                             come from anybody; if you trust this one: clew replay --no-jail"
                        ));
                    }
                }
                replay.run()
            }
            Err(error) => unable(format!("stream {stream} can't be replayed: {error}")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Message,
    /// None is there.
    Nothing,
    /// None will come.
    Over,
}

pub(super) fn socket_pair() -> io::Result<(RawFd, RawFd)> {
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
    match made {
        0 => Ok((pair[0], pair[1])),
        error => Err(crate::sys::error(error)),
    }
}

fn set_nonblocking(fd: RawFd) {
    // SAFETY: a flag of a descriptor of ours.
    unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_NONBLOCK) };
}

/// What replaying processes say goes to stderr; whether there was something.
fn pass_on(words: &mut io::PipeReader) -> bool {
    let mut room = [0u8; 4096];
    let mut any = false;
    while let Ok(len @ 1..) = words.read(&mut room) {
        let _ = io::stderr().write_all(&room[..len]);
        any = true;
    }
    any
}

fn wait_readable(fds: &[RawFd], milliseconds: i32) {
    let poll = |&fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = fds.iter().map(poll).collect();
    // SAFETY: as many pollfds as it says, alive during the call.
    unsafe {
        syscall!(
            libc::SYS_poll,
            polls.as_mut_ptr(),
            polls.len(),
            milliseconds
        )
    };
}
