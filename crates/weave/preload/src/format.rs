//! The log of a woven recording, as the preloaded library writes it and clew reads it.
//!
//! A file begins with a [`Header`]. Chunks follow; those of one thread are a chain, and the first one of a thread
//! begins with its [`Head`]. An entry is stored before `used` and `count` tell of it, so a kill loses nothing.
//!
//! An entry is: operation (1 byte); check (2 bytes): the top of the thread's running hash, this event included;
//! flags (1 byte); how many events of this thread had no entry since the last one (varint); then what the
//! flags say: turn (varint), result (signed varint), checksum of bytes written (4 bytes), payload (varint length, then the bytes, or
//! where they are in the data file as a varint).

pub const MAGIC: u64 = u64::from_le_bytes(*b"clewweav");
pub const VERSION: u32 = 1;
/// Where thread 1's first chunk is.
pub const FIRST: u64 = 4096;
/// Of a first chunk, which threads with few events never outgrow.
pub const SMALL: u32 = 4096;
/// No chunk is larger.
pub const LARGE: u32 = 256 << 10;
/// Payloads above this many bytes go to the data file.
pub const INLINE: usize = 512;
/// As many bytes of text fit into a header.
pub const WORDS: usize = 1024;

pub const ANYWAY: u32 = 1;
pub const REFUSED: u32 = 2;

/// States of a recording.
pub const RUNNING: u32 = 1;
pub const EXITED: u32 = 2;
/// Of a thread.
pub const ENDED: u32 = 2;

#[repr(C)]
pub struct Header {
    pub magic: u64,
    pub version: u32,
    pub pid: u32,
    pub state: u32,
    /// Number of the last thread.
    pub threads: u32,
    /// Where the next chunk goes.
    pub next: u64,
    /// Where the next large payload goes in the data file.
    pub data: u64,
    /// Programs begun in this file: an exec begins it anew.
    pub images: u32,
    /// How many bytes of `words` are used: why the recording stopped, or isn't exact.
    pub told: u32,
    /// 1: go on, unrecorded, where recording can't.
    pub lenient: u32,
    /// `ANYWAY`: go on with what can't be seen. `REFUSED`: stopped because of that.
    pub choice: u32,
    /// Where the first chunk of this image's first thread is.
    pub first: u64,
    pub words: [u8; WORDS],
}

#[repr(C)]
pub struct Chunk {
    pub size: u32,
    pub used: u32,
    pub next: u64,
    pub thread: u32,
    pub index: u32,
}

#[repr(C)]
pub struct Head {
    /// Events that are complete.
    pub count: u64,
    /// Over all of them.
    pub hash: u64,
    /// The last number taken of an object that many use at once (low half), and by which event, counted from one
    /// (high half): the process may end before that event is complete.
    pub pending: u64,
    pub id: u32,
    pub state: u32,
}

/// What a replay leaves for whoever started it. The heads of its threads follow at [`HEADS`], by number.
#[repr(C)]
pub struct Report {
    pub state: u32,
    pub told: u32,
    pub words: [u8; WORDS],
}

pub const HEADS: u64 = 4096;
/// Threads whose heads are reported.
pub const REPORTED: u32 = 1 << 16;
/// States of a report besides `RUNNING` and `EXITED`.
pub const DIVERGED: u32 = 3;
/// All threads are where they were when the recording ended.
pub const CUT: u32 = 4;
/// Exit statuses of a replay that comes to no end of its own.
pub const CUT_STATUS: i32 = 123;
pub const DIVERGED_STATUS: i32 = 124;

/// Flags of an entry.
pub const TURN: u8 = 1;
pub const RESULT: u8 = 2;
pub const SUM: u8 = 4;
pub const PAYLOAD: u8 = 8;
pub const AWAY: u8 = 16;
/// The output was the program's standard output, or error.
pub const OUT: u8 = 32;
pub const ERR: u8 = 64;

macro_rules! operations {
    ($($name:ident = $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Op { $($name,)* }

        /// Names of operations, as a reader knows them, by number.
        pub const NAMES: &[&str] = &[$($text,)*];
    };
}

operations! {
    Nothing = "nothing",
    NotCreated = "pthread_create that fails",
    Start = "start",
    End = "thread end",
    Exit = "exit",
    Create = "pthread_create",
    Join = "pthread_join",
    Lock = "mutex lock",
    TryLock = "mutex trylock",
    Unlock = "mutex unlock",
    Wait = "condition wait",
    Signal = "condition signal",
    ReadLock = "rwlock read",
    WriteLock = "rwlock write",
    RwUnlock = "rwlock unlock",
    Barrier = "barrier",
    Spin = "spin lock",
    SpinUnlock = "spin unlock",
    Once = "once",
    Guard = "static guard",
    Post = "sem_post",
    SemWait = "sem_wait",
    SemValue = "sem_getvalue",
    Stream = "stdio",
    Heap = "malloc",
    Library = "library lock",
    Read = "read",
    Write = "write",
    Open = "open",
    Close = "close",
    Seek = "lseek",
    Control = "fcntl",
    Poll = "poll",
    Socket = "socket",
    Stat = "stat",
    Folder = "getdents",
    File = "file operation",
    Map = "mmap",
    Time = "clock",
    Sleep = "sleep",
    Random = "getrandom",
    Identity = "getpid",
    Fork = "fork",
    WaitChild = "wait",
    System = "sysconf",
    Kill = "kill",
}
