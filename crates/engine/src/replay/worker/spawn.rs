//! Starts the first worker of a stream; all others are forks of it.
//!
//! In: a recording, a stream. Out: the commanding ends of all channels. The first worker serves on
//! channel 0 and says [`Reply::Ready`](super::protocol::Reply::Ready) when it stands at the stream's
//! beginning, or why it can't.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use clew_recording::event::{Origin, StreamId};
use clew_recording::reader::Recording;

use super::protocol::{BUFFERS, CHANNELS, Reply};
use super::serve::Worker;
use crate::cache::store::Store;
use crate::kernel::stop;
use crate::memory::host;
use crate::program::Options;
use crate::replay::files::{self, Files};
use crate::replay::forks::{self, Guard};
use crate::replay::tree::{open_store, socket_pair};
use crate::replay::{jail, leash, run};
use crate::syscall;
use crate::trace::buffer;

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

/// Starts a worker for a stream. The calling process must have one thread, since it forks; workers end
/// when that thread does.
pub fn start(
    recording: &Recording,
    stream: StreamId,
    options: &Options,
    unlocked: bool,
    verify: bool,
) -> Result<Started, String> {
    let way = way_to(recording, stream)?;
    let files = Files::open(recording).map_err(|e| format!("the recording's files: {e}"))?;
    // Channels come first: there is no doing without them.
    let channels = 3 * CHANNELS as u64;
    if files::allow_descriptors(channels) < channels {
        return Err(
            "too few files may be open at a time (ulimit -n); clew doctor says more".into(),
        );
    }
    let store = open_store(options, recording);
    let inherited = jail::inherited().map_err(|e| format!("/proc/self/fd: {e}"))?;
    let no = |what: &'static str| move |error: io::Error| format!("no {what}: {error}");
    let (words, to_words) = io::pipe().map_err(no("pipe"))?;
    let mut mine = Vec::with_capacity(CHANNELS);
    let mut theirs = Vec::with_capacity(CHANNELS);
    for _ in 0..CHANNELS {
        let (here, there) = socket_pair().map_err(no("socket"))?;
        // SAFETY: just made, nobody else's.
        unsafe {
            mine.push(OwnedFd::from_raw_fd(here));
            theirs.push(OwnedFd::from_raw_fd(there));
        }
    }
    let mut buffers = Vec::with_capacity(BUFFERS);
    for _ in 0..BUFFERS {
        buffers.push(buffer::create().map_err(no("shared memory"))?);
    }
    let (held, end) = leash::new().map_err(no("pipe"))?;
    let (here, there) = UnixDatagram::pair().map_err(no("socket"))?;
    let commander = std::process::id() as i32;
    // SAFETY: this process has one thread, so the child can go on as usual.
    let pid = unsafe { syscall!(libc::SYS_fork) };
    if pid < 0 {
        return Err(format!("can't fork: {}", crate::sys::error(pid)));
    }
    if pid != 0 {
        drop(there);
        let guard = match unlocked {
            true => None,
            false => forks::take(here.as_raw_fd()).map(Guard::new),
        };
        return Ok(Started {
            channels: mine,
            buffers,
            pid: pid as i32,
            words,
            leash: held,
            guard,
        });
    }
    drop((held, here));
    if !unlocked {
        forks::pass(there.as_raw_fd(), forks::ask());
    }
    drop(there);
    // A worker must not hold the other ends open: it ends when they are closed.
    drop(mine);
    drop(words);
    let unable = |channel: RawFd, text: String| -> ! {
        super::channel::Channel::new(channel).send(&Reply::Refused(text));
        stop::exit(stop::STATUS)
    };
    let channel = theirs[0].as_raw_fd();
    let theirs: Vec<OwnedFd> = theirs.into_iter().chain(buffers).collect();
    let first = match in_a_row(&theirs) {
        Ok(first) => first,
        Err(error) => unable(channel, format!("no room for descriptors: {error}")),
    };
    drop(theirs);
    let setup = Setup {
        recording,
        way,
        store,
        files,
        options,
        verify,
        first,
        commander,
    };
    // In a group of its own: Ctrl-C on a terminal is for the commanding process, which may want to go on.
    let prepared =
        jail::undress(&inherited, to_words.into_raw_fd()).and_then(|()| leash::put_on(end));
    let leash = match prepared {
        Ok(leash) => leash,
        Err(error) => unable(
            first,
            format!("a process to replay in can't be prepared: {error}"),
        ),
    };
    match setup.worker() {
        Ok(worker) => {
            if !unlocked {
                host::locked_in();
                if let Err(error) = jail::lock_worker(first, CHANNELS, leash) {
                    unable(
                        first,
                        format!(
                            "the kernel can't lock a replay in (seccomp: {error}), and a recording may \
                             come from anybody; if you trust this one: --no-jail"
                        ),
                    );
                }
            }
            worker.run()
        }
        Err(error) => unable(first, format!("stream {stream} can't be replayed: {error}")),
    }
}

/// The streams to go through, from one that begins with an exec to the wanted one.
fn way_to(recording: &Recording, stream: StreamId) -> Result<Vec<StreamId>, String> {
    let mut way = vec![stream];
    let mut at = stream;
    loop {
        let info = recording.streams().iter().find(|info| info.id == at);
        match info.map(|info| info.start.origin) {
            Some(Origin::Exec { .. }) => break,
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

/// What becomes a worker once the process is prepared.
struct Setup<'a> {
    recording: &'a Recording,
    way: Vec<StreamId>,
    store: Option<Store>,
    files: Files,
    options: &'a Options,
    verify: bool,
    first: RawFd,
    commander: i32,
}

impl Setup<'_> {
    fn worker(self) -> Result<Worker, String> {
        let mut machine = run::new_machine(self.store.as_ref(), &self.files, self.options)?;
        machine.show_pages = false;
        machine.verify = self.verify;
        let readers: Result<Vec<_>, _> = self
            .way
            .iter()
            .map(|&stream| self.recording.stream(stream))
            .collect();
        let readers = readers.map_err(|e| e.to_string())?;
        let buffers = self.first + CHANNELS as RawFd;
        let (first, commander) = (self.first, self.commander);
        Ok(Worker::new(machine, readers, first, buffers, commander))
    }
}

/// Moves descriptors to numbers that follow each other, so that a filter can tell them; the first one's.
/// The old ones stay open if that fails.
fn in_a_row(fds: &[OwnedFd]) -> io::Result<RawFd> {
    let top = fds.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(0);
    // Behind all there are, files of the recording included.
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
