//! Folders, processes and known records for tests of the channel, the writer and the reader.
#![allow(dead_code)]

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clew_recording::channel::{Channel, Producer};
use clew_recording::codec::Encoder;
use clew_recording::event::*;
use clew_recording::reader::Recording;
use clew_recording::writer;

/// A folder of its own, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("clew-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A recording in the making.
pub struct Session {
    pub folder: Folder,
    pub channel: Channel,
    memory: OwnedFd,
}

impl Session {
    pub fn new() -> Session {
        Session::start(Channel::create().unwrap(), |channel, folder| {
            writer::spawn(channel, folder, &Default::default()).unwrap();
        })
    }

    /// The writer is started by another process, which prepares itself first.
    pub fn with(prepare: impl Fn()) -> Session {
        let (channel, memory) = Channel::create().unwrap();
        // It lives until there is a stream.
        let (told, tell) = pipe();
        let (stay, go) = pipe();
        let session = Session::start((channel, memory), |channel, folder| {
            fork(|| {
                prepare();
                writer::spawn(channel, folder, &Default::default()).unwrap();
                tell.tell();
                // Its end is when the test's is.
                drop_in_child(&go);
                stay.hear();
            });
            told.hear();
        });
        std::mem::forget(go);
        session
    }

    /// With the smallest number of slots.
    pub fn with_slots_for_few() -> Session {
        // SAFETY: the limit is put back; other tests see it for a moment, and only make logs shorter
        // than it or channels with fewer slots.
        unsafe {
            let mut old: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_FSIZE, &mut old);
            let mut small = old;
            // Sixteen rings of a mebibyte, the table of shared pages, and copies of them.
            small.rlim_cur = 147 << 20;
            libc::setrlimit(libc::RLIMIT_FSIZE, &small);
            let made = Channel::create();
            libc::setrlimit(libc::RLIMIT_FSIZE, &old);
            Session::start(made.unwrap(), |channel, folder| {
                writer::spawn(channel, folder, &Default::default()).unwrap();
            })
        }
    }

    fn start(
        (channel, memory): (Channel, OwnedFd),
        spawn: impl FnOnce(&Channel, &Path),
    ) -> Session {
        let folder = Folder::new();
        spawn(&channel, folder.path());
        Session {
            folder,
            channel,
            memory,
        }
    }

    pub fn open(&self) -> Recording {
        Recording::open(self.folder.path()).unwrap()
    }

    pub fn open_anyway(&self) -> Option<Recording> {
        Recording::open(self.folder.path()).ok()
    }

    pub fn log_len(&self) -> u64 {
        std::fs::metadata(self.folder.path().join("log"))
            .unwrap()
            .len()
    }

    /// Bytes that the channel really takes.
    pub fn memory(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let copy = self.memory.try_clone().unwrap();
        std::fs::File::from(copy).metadata().unwrap().blocks() * 512
    }
}

/// A well-known sequence of records: the start, then calls with effects, all numbered.
pub struct Source {
    stream: StreamId,
    encoder: Encoder,
    /// So many so far.
    pub records: u64,
    buffer: Vec<u8>,
}

impl Source {
    pub fn new(stream: StreamId) -> Source {
        Source {
            stream,
            encoder: Encoder::default(),
            records: 0,
            buffer: Vec::new(),
        }
    }

    fn bytes(&self, n: u64) -> Vec<u8> {
        let mut random = Random(n * 31 + self.stream as u64 + 1);
        let len = random.next() % 300;
        (0..len).map(|n| (random.0 >> (n % 48)) as u8).collect()
    }

    fn record<R>(&self, n: u64, take: impl FnOnce(Record) -> R) -> R {
        let stream = self.stream;
        if n == 0 {
            return take(Record::Event(Event::Started(Start {
                origin: Origin::Exec { before: 0 },
                pid: stream as i32,
                parent_pid: 1,
                tid: stream as i32,
                exe: b"/bin/example".to_vec(),
                argv: vec![b"example".to_vec(), b"of a start".to_vec()],
                time: 5,
            })));
        }
        if n % 3 == 2 {
            let bytes = &self.bytes(n);
            return take(Record::Effect(Effect::Memory {
                addr: 0x7000_0000 + n * 8,
                bytes,
            }));
        }
        take(Record::Event(Event::Call(Call {
            ticks: n % 1000,
            nr: (n % 5) as u32,
            args: [n, stream as u64, 0, 1 << 40, n % 7, 0],
            end: End::Returned(n as i64 - 5),
            output: None,
        })))
    }

    /// The next record into `room`; its length.
    pub fn next(&mut self, room: &mut [u8]) -> usize {
        let mut encoder = std::mem::take(&mut self.encoder);
        let len = self.record(self.records, |record| match record {
            Record::Event(event) => encoder.event(&event, room),
            Record::Effect(effect) => encoder.effect(&effect, room),
        });
        self.encoder = encoder;
        self.records += 1;
        len
    }

    /// Commits records of `bytes` or a little more.
    pub fn put(&mut self, producer: &mut Producer, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            let len = self.next(producer.reserve());
            producer.commit(len);
            done += len;
        }
    }

    /// Checks that a record is number `n` of the sequence.
    pub fn is(&self, n: u64, found: Record) {
        self.record(n, |record| assert_eq!(found, record));
    }

    /// How many records a stream has; they are the first ones of this sequence.
    pub fn check(&self, recording: &Recording, stream: StreamId) -> u64 {
        let mut reader = recording.stream(stream).unwrap();
        let mut count = 0;
        while let Some(found) = reader.next().unwrap() {
            if found == death() {
                assert!(reader.next().unwrap().is_none(), "it is the last");
                break;
            }
            self.is(count, found);
            count += 1;
        }
        count
    }
}

/// What the writer says of a process that was killed.
pub fn death() -> Record<'static> {
    Record::Event(Event::Killed {
        place: Place::default(),
        cause: Cause::Outside,
        signo: libc::SIGKILL,
    })
}

/// xorshift: the same numbers every time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A number that processes share.
pub struct Progress(&'static AtomicU64);

impl Progress {
    pub fn new() -> Progress {
        // SAFETY: a fresh page for good.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            Progress(&*page.cast::<AtomicU64>())
        }
    }

    pub fn note(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs `work` in a child; its end is 0 unless it panics.
pub fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: musl's fork takes the allocator's lock; the child uses nothing else of other threads.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: nothing of the parent's may run.
        unsafe { libc::_exit(done.is_err() as i32) };
    }
    child
}

/// The status of a child that has ended.
pub fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}

pub fn has_ended_after(child: i32, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        // SAFETY: the own child; a look that leaves it as it is.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, child as u32, &mut info, how);
            if info.si_pid() != 0 {
                return true;
            }
        }
        std::thread::yield_now();
    }
    false
}

pub fn kill(pid: i32) {
    // SAFETY: a process that the test has started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

pub fn stand_still() -> ! {
    loop {
        stand_still_for(Duration::from_secs(1000));
    }
}

pub fn stand_still_for(time: Duration) {
    std::thread::sleep(time);
}

pub fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().unwrap()
}

pub trait Tell {
    fn tell(&self);
}

pub trait Hear {
    /// Waits for one word, or for nobody to be left who could say one.
    fn hear(&self);
}

impl Tell for PipeWriter {
    fn tell(&self) {
        (&*self).write_all(b"x").unwrap();
    }
}

impl Hear for PipeReader {
    fn hear(&self) {
        let _ = (&*self).read(&mut [0]).unwrap();
    }
}

/// Closes a child's copy.
pub fn drop_in_child(pipe: &PipeWriter) {
    use std::os::fd::AsRawFd;
    // SAFETY: the child ends without dropping it.
    unsafe { libc::close(pipe.as_raw_fd()) };
}

/// A number in /proc/<pid>/status.
pub fn field(pid: i32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How long a process could have run but wasn't let.
pub fn waited(pid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}
