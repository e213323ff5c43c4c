//! The table of system calls: for each one its name, what its arguments are, whether it can wait,
//! which kernel thread must make it, and who answers it.
//!
//! In: a call number. Out: a [`Call`]. The groups (`files`, `memory`, `process`, ...) each hold their part of it; this file
//! puts them into one array at compile time. Running, recording and dumping all read it.

mod files;
mod memory;
mod misc;
mod process;
mod refused;
mod signals;
mod sockets;
mod threads;
mod time;

/// One past the highest number known.
pub const COUNT: usize = 470;

/// A system call.
#[derive(Clone, Copy)]
pub struct Call {
    pub nr: u16,
    pub name: &'static str,
    pub args: &'static [Arg],
    pub wait: Wait,
    pub maker: Maker,
    pub answer: Answer,
}

/// Which kernel thread makes a call while there are several guest threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The executor, or a proxy if it waits.
    Any,
    /// The caller's proxy: it acts on the calling kernel thread (its name, priority, signals).
    Proxy,
    /// Both: it changes what the executor needs too, such as credentials and namespaces.
    Both,
}

/// Who answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel, with the guest's own arguments.
    Pass,
    /// A function of the engine.
    Engine,
    /// Nobody: it fails with this errno.
    Refuse(i32),
    /// The same, and a recording says so.
    RefuseAloud(i32),
    /// The number means nothing to clew.
    Unknown,
}

pub type Args = [u64; 6];

/// What an argument is, and for a pointer what the kernel does behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    Int,
    Hex,
    Fd,
    /// A folder's descriptor or AT_FDCWD, for the path that follows.
    At,
    /// An address that is only a number to the kernel.
    Addr,
    /// A string that ends with NUL.
    Str,
    /// An array of strings that ends with NULL.
    Strs,
    /// Memory that the kernel reads, writes, or both.
    In(Len),
    Out(Len),
    Both(Len),
    /// The same, where the kernel also writes when the call fails.
    OutAlways(Len),
    BothAlways(Len),
    /// A timespec for the time that is left when a signal ends the call.
    Left,
    /// An array of pollfd, as many as that argument says.
    Polls(u8),
    /// An array of iovec, as many as the argument of this index says; the kernel reads or
    /// writes what they point to.
    IovIn(u8),
    IovOut(u8),
    /// Read or written by the direction of the pipe in argument 0.
    IovBoth(u8),
    /// A msghdr to send, to receive into; arrays of mmsghdr with their count's index.
    MsgIn,
    MsgOut,
    MmsgIn(u8),
    MmsgOut(u8),
    /// Depends on the argument of this index (an ioctl's request, a command).
    By(u8),
}

/// How long the memory behind a pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    Bytes(u32),
    /// So many, but none if the result is 0.
    IfAny(u32),
    /// As many bytes as that argument says; and so many more.
    Arg(u8),
    ArgPlus(u8, u32),
    /// At most that argument; after the call, as many as it returned.
    Ret(u8),
    /// The same and so many more.
    RetPlus(u8, u32),
    /// That argument times so many bytes.
    Items(u8, u32),
    /// At most that argument times so many bytes; after the call, its result times.
    RetItems(u8, u32),
    /// The u32 behind that argument, before and after the call.
    Behind(u8),
    /// The same for a socket's address, which has a longest length.
    Address(u8),
    /// A byte for each page in that many bytes.
    Pages(u8),
    /// As many bits as that argument, in whole u64 (the sets of select).
    Bits(u8),
    /// The same for a mask of memory nodes, of which no more than a page is written.
    Nodes(u8),
}

/// Whether a call can wait for something to happen.
#[derive(Clone, Copy)]
pub enum Wait {
    Never,
    /// Until the descriptor in argument 0 has something to read or has room.
    Read,
    Write,
    /// The same for sockets, where the flags in that argument can say "don't wait".
    Recv(u8),
    Send(u8),
    /// Unless the descriptor in argument 0 is non-blocking.
    Blocking,
    /// If the path (in that argument) names a FIFO or a device.
    Open(u8),
    /// At most the milliseconds in that argument; with 0 it is a question.
    Timeout(u8),
    /// Unless that argument has one of these bits.
    Unless(u8, u64),
    /// If the arguments say so.
    If(fn(&Args) -> bool),
    Always,
    /// Under a temporary signal mask; only for calls that the engine answers.
    Masked,
}

/// A call that the kernel answers, without waiting, whoever asks.
pub const fn call(nr: u16, name: &'static str, args: &'static [Arg]) -> Call {
    Call {
        nr,
        name,
        args,
        wait: Wait::Never,
        maker: Maker::Any,
        answer: Answer::Pass,
    }
}

impl Call {
    pub const fn waits(mut self, wait: Wait) -> Call {
        self.wait = wait;
        self
    }

    pub const fn per_thread(mut self) -> Call {
        self.maker = Maker::Proxy;
        self
    }

    pub const fn on_both(mut self) -> Call {
        self.maker = Maker::Both;
        self
    }

    /// Answered by a function of the engine.
    pub const fn by_engine(mut self) -> Call {
        self.answer = Answer::Engine;
        self
    }

    pub const fn refused(mut self, errno: i32) -> Call {
        self.answer = Answer::Refuse(errno);
        self
    }

    /// The same, and a recording says so: a program that does without may do less.
    pub const fn refused_aloud(mut self, errno: i32) -> Call {
        self.answer = Answer::RefuseAloud(errno);
        self
    }
}

const UNKNOWN: Call = Call {
    nr: 0,
    name: "?",
    args: &[],
    wait: Wait::Never,
    maker: Maker::Any,
    answer: Answer::Unknown,
};

const GROUPS: [&[Call]; 9] = [
    files::CALLS,
    memory::CALLS,
    process::CALLS,
    signals::CALLS,
    threads::CALLS,
    time::CALLS,
    sockets::CALLS,
    misc::CALLS,
    refused::CALLS,
];

static TABLE: [Call; COUNT] = {
    let mut table = [UNKNOWN; COUNT];
    let mut group = 0;
    while group < GROUPS.len() {
        let mut i = 0;
        while i < GROUPS[group].len() {
            let call = GROUPS[group][i];
            assert!(matches!(table[call.nr as usize].answer, Answer::Unknown));
            table[call.nr as usize] = call;
            i += 1;
        }
        group += 1;
    }
    table
};

/// The call of that number; an unknown one is named "?".
#[inline]
pub fn lookup(nr: u64) -> &'static Call {
    // The kernel looks at eax only; numbers with the x32 bit are beyond the table.
    TABLE.get(nr as u32 as usize).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that x86-64 leaves out.
    fn is_gap(nr: usize) -> bool {
        (337..424).contains(&nr)
    }

    #[test]
    fn every_number_has_an_entry() {
        for nr in (0..COUNT).filter(|&nr| !is_gap(nr)) {
            assert_ne!(lookup(nr as u64).name, "?", "no entry for {nr}");
            assert!(lookup(nr as u64).args.len() <= 6);
        }
        assert_eq!(lookup(400).name, "?");
        assert_eq!(lookup(u64::MAX).name, "?");
        assert_eq!(lookup(0x4000_0000).name, "?");
    }

    #[test]
    fn names_are_the_kernels() {
        let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
        let Ok(text) = std::fs::read_to_string(header) else {
            eprintln!("skipped: no {header}");
            return;
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some("#define"), Some(name), Some(nr)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if let (Some(name), Ok(nr)) = (name.strip_prefix("__NR_"), nr.parse::<u64>()) {
                assert_eq!(lookup(nr).name, name, "number {nr}");
            }
        }
    }

    #[test]
    fn lengths_name_arguments_that_exist() {
        for call in (0..COUNT as u64).map(lookup) {
            for arg in call.args {
                let index = match arg {
                    Arg::In(len)
                    | Arg::Out(len)
                    | Arg::Both(len)
                    | Arg::OutAlways(len)
                    | Arg::BothAlways(len) => match len {
                        Len::Bytes(_) | Len::IfAny(_) => continue,
                        Len::Arg(i) | Len::Ret(i) | Len::Behind(i) | Len::Bits(i) => i,
                        Len::Address(i) | Len::Pages(i) | Len::Nodes(i) => i,
                        Len::ArgPlus(i, _) | Len::RetPlus(i, _) => i,
                        Len::Items(i, _) | Len::RetItems(i, _) => i,
                    },
                    Arg::IovIn(i) | Arg::IovOut(i) | Arg::MmsgIn(i) | Arg::MmsgOut(i) => i,
                    Arg::IovBoth(i) | Arg::Polls(i) | Arg::By(i) => i,
                    _ => continue,
                };
                assert!((*index as usize) < call.args.len(), "{}", call.name);
            }
        }
    }

    #[test]
    fn temporary_masks_are_the_engines_business() {
        for call in (0..COUNT as u64).map(lookup) {
            if matches!(call.wait, Wait::Masked) {
                assert!(matches!(call.answer, Answer::Engine), "{}", call.name);
            }
        }
    }
}
