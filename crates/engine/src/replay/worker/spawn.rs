//! Starts the first worker of a stream; all others are forks of it.
//!
//! In: a recording, a stream. Out: the commanding ends of all channels. The first worker is clew itself, executed anew, so
//! who starts it may have threads. It serves on channel 0 and says [`Reply::Ready`](super::protocol::Reply::Ready) when
//! it stands at the stream's beginning, or why it can't.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clew_recording::event::{Origin, StreamId};
use clew_recording::reader::Recording;
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use super::protocol::{BUFFERS, CHANNELS, Reply};
use super::serve::Worker;
use crate::kernel::stop;
use crate::memory::host;
use crate::program::Options;
use crate::replay::files::{self, Files};
use crate::replay::forks::{self, Guard};
use crate::replay::passing;
use crate::replay::tree::{open_store, socket_pair};
use crate::replay::{jail, leash, run};
use crate::trace::buffer;

/// The only argument of a clew that is to become a worker.
pub const ARGUMENT: &str = "become-worker";

/// A worker was started.
pub struct Started {
    /// The commanding ends, by number; they are closed on exec.
    pub channels: Vec<OwnedFd>,
    /// What workers put what they see into.
    pub buffers: Vec<OwnedFd>,
    /// The first worker, which serves on channel 0.
    pub pid: i32,
    /// What workers say on stderr: an engine's last words.
    pub words: io::PipeReader,
    /// All workers end when this is closed.
    pub leash: OwnedFd,
    /// Their forks wait for its answer, where the kernel can do that.
    pub guard: Option<Guard>,
}

/// How a worker is wanted.
pub struct Wish<'a> {
    pub options: &'a Options,
    /// Without the lock around it.
    pub unlocked: bool,
    /// Compare memory wherever the recording has a checksum of it.
    pub verify: bool,
    /// The clew to execute; none is this very program.
    pub program: Option<&'a Path>,
}

/// What a process that is to become a worker is told.
#[derive(Serialize, Deserialize)]
struct Told {
    folder: PathBuf,
    stream: StreamId,
    unlocked: bool,
    verify: bool,
    commander: i32,
    cache_dir: Option<PathBuf>,
    trace: bool,
    bisect: Option<u64>,
    dump: std::ops::Range<u64>,
    spoil: Option<u64>,
    instruments: Option<u64>,
}

impl Told {
    fn options(&self) -> Options {
        Options {
            no_cache: self.cache_dir.is_none(),
            cache_dir: self.cache_dir.clone(),
            trace: self.trace,
            bisect: self.bisect,
            dump: self.dump.clone(),
            spoil: self.spoil,
            instruments: self.instruments,
            ..Options::default()
        }
    }
}

/// Starts a worker for a stream. It ends when what is returned is dropped, or this process ends.
pub fn start(recording: &Recording, stream: StreamId, wish: &Wish) -> Result<Started, String> {
    way_to(recording, stream)?;
    // Channels come first: there is no doing without them.
    let channels = 3 * CHANNELS as u64;
    if files::allow_descriptors(channels) < channels {
        return Err(
            "too few files may be open at a time (ulimit -n); clew doctor says more".into(),
        );
    }
    let no = |what: &'static str| move |error: io::Error| format!("no {what}: {error}");
    let (words, to_words) = io::pipe().map_err(no("pipe"))?;
    let mut mine = Vec::with_capacity(CHANNELS);
    let mut theirs = Vec::with_capacity(CHANNELS);
    for _ in 0..CHANNELS {
        let (here, there) = owned_pair().map_err(no("socket"))?;
        mine.push(here);
        theirs.push(there);
    }
    let mut buffers = Vec::with_capacity(BUFFERS);
    for _ in 0..BUFFERS {
        buffers.push(buffer::create().map_err(no("shared memory"))?);
    }
    let (held, end) = leash::new().map_err(no("pipe"))?;
    // Of a kind that tells when the other side is gone.
    let (here, there) = owned_pair().map_err(no("socket"))?;
    let (tells, hears) = owned_pair().map_err(no("socket"))?;
    let options = wish.options;
    let told = Told {
        folder: recording.folder().into(),
        stream,
        unlocked: wish.unlocked,
        verify: wish.verify,
        commander: std::process::id() as i32,
        cache_dir: options.cache_dir.clone().filter(|_| !options.no_cache),
        trace: options.trace,
        bisect: options.bisect,
        dump: options.dump.clone(),
        spoil: options.spoil,
        instruments: options.instruments,
    };
    let told = postcard::to_stdvec(&told).map_err(|e| e.to_string())?;
    let program = wish.program.unwrap_or(Path::new("/proc/self/exe"));
    let child = Command::new(program)
        .arg(ARGUMENT)
        .env_clear()
        .stdin(Stdio::from(hears))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("{} can't be started: {error}", program.display()))?;
    let log = recording.log().map_err(|error| error.to_string())?;
    let single = [
        log.as_raw_fd(),
        to_words.as_raw_fd(),
        end.as_raw_fd(),
        there.as_raw_fd(),
    ];
    let many = theirs.iter().chain(&buffers).map(AsRawFd::as_raw_fd);
    let fds: Vec<RawFd> = single.into_iter().chain(many).collect();
    passing::pass(tells.as_raw_fd(), &told, &fds)
        .map_err(|error| format!("a process to replay in didn't listen: {error}"))?;
    drop((tells, theirs, to_words, end, there));
    let guard = match wish.unlocked {
        true => None,
        false => passing::take_one(here.as_raw_fd()).map(Guard::new),
    };
    Ok(Started {
        channels: mine,
        buffers,
        pid: child.id() as i32,
        words,
        leash: held,
        guard,
    })
}

fn owned_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (here, there) = socket_pair()?;
    // SAFETY: just made, nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(here), OwnedFd::from_raw_fd(there)) })
}

/// This process is to become a worker, and is told on its standard input which one. Never returns.
pub fn become_worker() -> ! {
    let inherited = jail::inherited();
    let Ok((told, fds)) = passing::take(0) else {
        eprintln!("clew: {ARGUMENT} is what clew says to itself; it is of no use to anybody else");
        stop::exit(stop::STATUS)
    };
    let mut fds = fds.into_iter();
    let single = [fds.next(), fds.next(), fds.next(), fds.next()];
    let many: Vec<OwnedFd> = fds.collect();
    let (Ok(told), [Some(log), Some(words), Some(end), Some(there)]) =
        (postcard::from_bytes::<Told>(&told), single)
    else {
        stop::exit(stop::STATUS)
    };
    let Some(channel) = many.first().map(AsRawFd::as_raw_fd) else {
        stop::exit(stop::STATUS)
    };
    if !told.unlocked {
        passing::pass_one(there.as_raw_fd(), forks::ask());
    }
    drop(there);
    let unable = |channel: RawFd, text: String| -> ! {
        Channel::new(channel).send(&Reply::Refused(text));
        stop::exit(stop::STATUS)
    };
    let first = match in_a_row(&many) {
        Ok(first) => first,
        Err(error) => unable(channel, format!("no room for descriptors: {error}")),
    };
    drop(many);
    // In a group of its own: Ctrl-C on a terminal is for the commanding process, which may want to go on.
    let prepared = inherited
        .and_then(|inherited| jail::undress(&inherited, words.into_raw_fd()))
        .and_then(|()| leash::put_on(end));
    let leash = match prepared {
        Ok(leash) => leash,
        Err(error) => unable(
            first,
            format!("a process to replay in can't be prepared: {error}"),
        ),
    };
    let worker = match worker(&told, File::from(log), first) {
        Ok(worker) => worker,
        Err(error) => unable(
            first,
            format!("stream {} can't be replayed: {error}", told.stream),
        ),
    };
    if !told.unlocked {
        host::locked_in();
        if let Err(error) = jail::lock_worker(first, CHANNELS, leash) {
            unable(
                first,
                format!(
                    "the kernel can't lock a replay in (seccomp: {error}), and a recording may come from anybody; if \
                     you trust this one: --no-jail"
                ),
            );
        }
    }
    worker.run()
}

/// All that a worker needs is opened here: once it is locked in it can open nothing.
fn worker(told: &Told, log: File, first: RawFd) -> Result<Worker, String> {
    let recording = Recording::from_log(log, &told.folder).map_err(|e| e.to_string())?;
    let files = Files::open(&recording).map_err(|e| format!("the recording's files: {e}"))?;
    let options = told.options();
    let store = open_store(&options, &recording);
    let mut machine = run::new_machine(store.as_ref(), &files, &options)?;
    machine.show_pages = false;
    machine.verify = told.verify;
    let way = way_to(&recording, told.stream)?;
    let readers: Result<Vec<_>, _> = way.iter().map(|&stream| recording.stream(stream)).collect();
    let readers = readers.map_err(|e| e.to_string())?;
    let buffers = first + CHANNELS as RawFd;
    Ok(Worker::new(
        machine,
        readers,
        first,
        buffers,
        told.commander,
    ))
}

/// The streams to go through, from one that begins with an exec to the wanted one.
fn way_to(recording: &Recording, stream: StreamId) -> Result<Vec<StreamId>, String> {
    let mut way = vec![stream];
    let mut at = stream;
    loop {
        let info = recording.streams().iter().find(|info| info.id == at);
        match info.map(|info| info.start.origin) {
            Some(Origin::Exec { .. } | Origin::Midst { .. }) => break,
            // A stream begins after its parent's: anything else is made up.
            Some(Origin::Fork { parent }) if parent < at => {
                way.push(parent);
                at = parent;
            }
            _ => return Err(format!("the beginning of stream {stream} is missing")),
        }
    }
    way.reverse();
    Ok(way)
}

/// Moves descriptors to numbers that follow each other, so that a filter can tell them; the first one's. The old ones
/// stay open.
fn in_a_row(fds: &[OwnedFd]) -> io::Result<RawFd> {
    files::allow_descriptors(fds.len() as u64);
    let top = fds.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(0);
    // Behind all there are.
    // SAFETY: makes a descriptor, closed on exec.
    let free = unsafe { libc::fcntl(top, libc::F_DUPFD_CLOEXEC, top + 1) };
    if free < 0 {
        return Err(io::Error::last_os_error());
    }
    for (n, fd) in fds.iter().enumerate() {
        let to = free + n as RawFd;
        // SAFETY: numbers behind all that are in use.
        if unsafe { libc::dup3(fd.as_raw_fd(), to, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(free)
}
