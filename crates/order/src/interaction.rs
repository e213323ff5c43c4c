//! What an interaction is: `<type, thread, object, t>`, and where it happened.

use clew_recording::event::ThreadId;
use clew_timeline::Mark;

/// What a thread does to an object. The names are those of the paper's figures, as far as it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    ThreadCreate,
    ThreadCreated,
    ThreadExit,
    ThreadJoin,
    ThreadDetach,
    MutexInit,
    MutexDestroy,
    MutexLock,
    /// A lock that wasn't had: busy, or too late.
    MutexBusy,
    MutexUnlock,
    RwInit,
    RwDestroy,
    RwRead,
    RwWrite,
    RwBusy,
    RwUnlock,
    CondInit,
    CondDestroy,
    CondWait,
    CondWoken,
    CondSignal,
    CondBroadcast,
    BarrierInit,
    BarrierDestroy,
    BarrierArrive,
    BarrierLeave,
    Once,
    SpinInit,
    SpinDestroy,
    SpinLock,
    SpinBusy,
    SpinUnlock,
    SemInit,
    SemOpen,
    SemDestroy,
    SemWait,
    SemBusy,
    SemPost,
    /// System V's, which may do several at once.
    SemOperate,
    QueueSend,
    QueueReceive,
    Read,
    Write,
    FutexWait,
    FutexWake,
    SignalSend,
    SignalDeliver,
    Fork,
    Wait,
    Atomic,
}

/// All kinds, their short names and what they are.
const KINDS: &[(Kind, &str, &str)] = &[
    (Kind::ThreadCreate, "TC", "thread create"),
    (Kind::ThreadCreated, "TCX", "thread created"),
    (Kind::ThreadExit, "EX", "thread exit"),
    (Kind::ThreadJoin, "JN", "thread join"),
    (Kind::ThreadDetach, "DT", "thread detach"),
    (Kind::MutexInit, "MI", "mutex init"),
    (Kind::MutexDestroy, "MD", "mutex destroy"),
    (Kind::MutexLock, "ML", "mutex lock"),
    (Kind::MutexBusy, "MLF", "mutex busy"),
    (Kind::MutexUnlock, "MU", "mutex unlock"),
    (Kind::RwInit, "LI", "rwlock init"),
    (Kind::RwDestroy, "LD", "rwlock destroy"),
    (Kind::RwRead, "LR", "rwlock read lock"),
    (Kind::RwWrite, "LW", "rwlock write lock"),
    (Kind::RwBusy, "LF", "rwlock busy"),
    (Kind::RwUnlock, "LU", "rwlock unlock"),
    (Kind::CondInit, "CI", "condition init"),
    (Kind::CondDestroy, "CD", "condition destroy"),
    (Kind::CondWait, "CW", "condition wait"),
    (Kind::CondWoken, "CX", "condition wait over"),
    (Kind::CondSignal, "CS", "condition signal"),
    (Kind::CondBroadcast, "CB", "condition broadcast"),
    (Kind::BarrierInit, "BI", "barrier init"),
    (Kind::BarrierDestroy, "BD", "barrier destroy"),
    (Kind::BarrierArrive, "BA", "barrier arrive"),
    (Kind::BarrierLeave, "BX", "barrier leave"),
    (Kind::Once, "ON", "once"),
    (Kind::SpinInit, "PI", "spin init"),
    (Kind::SpinDestroy, "PD", "spin destroy"),
    (Kind::SpinLock, "PL", "spin lock"),
    (Kind::SpinBusy, "PF", "spin busy"),
    (Kind::SpinUnlock, "PU", "spin unlock"),
    (Kind::SemInit, "SI", "semaphore init"),
    (Kind::SemOpen, "SO", "semaphore open"),
    (Kind::SemDestroy, "SD", "semaphore destroy"),
    (Kind::SemWait, "SW", "semaphore wait"),
    (Kind::SemBusy, "SF", "semaphore busy"),
    (Kind::SemPost, "SP", "semaphore post"),
    (Kind::SemOperate, "SV", "semaphore operation"),
    (Kind::QueueSend, "QS", "queue send"),
    (Kind::QueueReceive, "QR", "queue receive"),
    (Kind::Read, "RD", "read"),
    (Kind::Write, "WR", "write"),
    (Kind::FutexWait, "FW", "futex wait"),
    (Kind::FutexWake, "FK", "futex wake"),
    (Kind::SignalSend, "KS", "signal sent"),
    (Kind::SignalDeliver, "KD", "signal delivered"),
    (Kind::Fork, "FO", "fork"),
    (Kind::Wait, "WT", "wait"),
    (Kind::Atomic, "AT", "atomic instruction"),
];

impl Kind {
    fn row(self) -> &'static (Kind, &'static str, &'static str) {
        let found = KINDS.iter().find(|(kind, ..)| *kind == self);
        found.expect("all kinds are in the table")
    }

    /// As in the paper's figure 3.
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// In words.
    pub fn words(self) -> &'static str {
        self.row().2
    }

    /// By its short name, or words with or without spaces; several for a common beginning, as `mutex`.
    pub fn named(name: &str) -> Vec<Kind> {
        let name = name.to_lowercase().replace(['-', '_'], " ");
        let exact = KINDS
            .iter()
            .filter(|(_, code, words)| code.to_lowercase() == name || *words == name);
        let exact: Vec<Kind> = exact.map(|row| row.0).collect();
        if !exact.is_empty() || name.is_empty() {
            return exact;
        }
        let first = |words: &str| words.split(' ').next() == Some(name.as_str());
        let all = KINDS.iter().filter(|(.., words)| first(words));
        all.map(|row| row.0).collect()
    }
}

/// What threads interact by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKey {
    Thread(ThreadId),
    /// A lock, condition, semaphore or the like, in memory; which one of those that were there, one after the other.
    Memory {
        addr: u64,
        which: u32,
    },
    /// What a descriptor leads to: a number for each.
    Channel(u32),
    /// A signal, to a thread or to all of them.
    Signal {
        signo: i32,
        to: Option<ThreadId>,
    },
    Process(i32),
    SemaphoreSet(i32),
    MessageQueue(i32),
    /// What isn't a thing of its own: random numbers and the like.
    World,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub key: ObjectKey,
    /// What is known of it from the calls alone, such as `pipe 3 -> 4`.
    pub label: Option<String>,
}

/// `<type, thread, object, t>`, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interaction {
    pub kind: Kind,
    pub thread: ThreadId,
    /// Number among all objects.
    pub object: u32,
    /// Lamport time.
    pub t: u64,
    /// Where it happened. Of what the log alone tells, without pc and stack pointer.
    pub at: Mark,
    /// Where the call is over that it is a part of.
    pub over: Mark,
    /// The address of the instruction that asked for it: in the caller of a known function. 0 if nobody knows.
    pub site: u64,
    /// The thread that was made, joined or signalled, or that woke this one.
    pub other: Option<ThreadId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_names_of_its_own() {
        for (n, (kind, code, words)) in KINDS.iter().enumerate() {
            assert_eq!(kind.code(), *code);
            assert_eq!(Kind::named(code), [*kind], "{code}");
            assert_eq!(Kind::named(words), [*kind], "{words}");
            for (_, other, _) in &KINDS[..n] {
                assert_ne!(code, other);
            }
        }
        assert_eq!(Kind::named("mutex").len(), 5);
        assert!(Kind::named("nothing").is_empty());
        assert!(Kind::named("").is_empty());
    }
}
