//! Functions by which threads interact. In: the images of a process. Out: where those functions begin, and what each does.
//!
//! They are found by the linker's symbols, which stripped libraries have, too.

use clew_symbols::{Modules, SymbolKind};
use clew_timeline::Watchful;
use rustc_hash::FxHashMap;

use crate::interaction::Kind;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// The program itself begins.
    Entry,
    /// Which argument is the function that the thread begins with.
    Create {
        start: usize,
    },
    Join,
    Detach,
    /// A new object at the first argument, or its end.
    Init(Kind),
    Destroy(Kind),
    /// The object at the first argument is had when it returns 0.
    Lock {
        had: Kind,
        not: Kind,
    },
    Unlock(Kind),
    /// The condition at the first argument, the lock at the second.
    CondWait,
    /// Tells others, before it returns.
    Tell(Kind),
    Barrier,
    /// May run the program's own code.
    Once,
    SemWait,
    /// One function for both: it makes the lock free.
    SpinInitOrUnlock,
    /// Returns the object.
    SemOpen,
    /// Memory: so many bytes by this argument, or the product of both.
    Allocate {
        size: usize,
        by: Option<usize>,
    },
    /// The old block is the first argument, its new size the second.
    Reallocate,
    /// The block's address goes where the first argument points; its size is the third.
    AllocateAt,
    Free,
    /// Makes a system call; it says where the program asked for it.
    Wrapper,
    /// The C library's own business.
    Inner,
}

const fn lock(had: Kind, not: Kind) -> Does {
    Does::Lock { had, not }
}

const MUTEX: Does = lock(Kind::MutexLock, Kind::MutexBusy);
const READ: Does = lock(Kind::RwRead, Kind::RwBusy);
const WRITE: Does = lock(Kind::RwWrite, Kind::RwBusy);
const SPIN: Does = lock(Kind::SpinLock, Kind::SpinBusy);

/// By name: glibc's and musl's, and the names that they know each other by.
const FUNCTIONS: &[(&str, Does)] = &[
    ("pthread_create", Does::Create { start: 2 }),
    ("thrd_create", Does::Create { start: 1 }),
    ("pthread_join", Does::Join),
    ("pthread_tryjoin_np", Does::Join),
    ("pthread_timedjoin_np", Does::Join),
    ("pthread_clockjoin_np", Does::Join),
    ("thrd_join", Does::Join),
    ("pthread_detach", Does::Detach),
    ("thrd_detach", Does::Detach),
    ("pthread_mutex_init", Does::Init(Kind::MutexInit)),
    ("mtx_init", Does::Init(Kind::MutexInit)),
    ("pthread_mutex_destroy", Does::Destroy(Kind::MutexDestroy)),
    ("mtx_destroy", Does::Destroy(Kind::MutexDestroy)),
    ("pthread_mutex_lock", MUTEX),
    ("pthread_mutex_trylock", MUTEX),
    ("pthread_mutex_timedlock", MUTEX),
    ("pthread_mutex_clocklock", MUTEX),
    ("mtx_lock", MUTEX),
    ("mtx_trylock", MUTEX),
    ("mtx_timedlock", MUTEX),
    ("pthread_mutex_unlock", Does::Unlock(Kind::MutexUnlock)),
    ("mtx_unlock", Does::Unlock(Kind::MutexUnlock)),
    ("pthread_rwlock_init", Does::Init(Kind::RwInit)),
    ("pthread_rwlock_destroy", Does::Destroy(Kind::RwDestroy)),
    ("pthread_rwlock_rdlock", READ),
    ("pthread_rwlock_tryrdlock", READ),
    ("pthread_rwlock_timedrdlock", READ),
    ("pthread_rwlock_clockrdlock", READ),
    ("pthread_rwlock_wrlock", WRITE),
    ("pthread_rwlock_trywrlock", WRITE),
    ("pthread_rwlock_timedwrlock", WRITE),
    ("pthread_rwlock_clockwrlock", WRITE),
    ("pthread_rwlock_unlock", Does::Unlock(Kind::RwUnlock)),
    ("pthread_cond_init", Does::Init(Kind::CondInit)),
    ("cnd_init", Does::Init(Kind::CondInit)),
    ("pthread_cond_destroy", Does::Destroy(Kind::CondDestroy)),
    ("cnd_destroy", Does::Destroy(Kind::CondDestroy)),
    ("pthread_cond_wait", Does::CondWait),
    ("pthread_cond_timedwait", Does::CondWait),
    ("pthread_cond_clockwait", Does::CondWait),
    ("cnd_wait", Does::CondWait),
    ("cnd_timedwait", Does::CondWait),
    ("pthread_cond_signal", Does::Tell(Kind::CondSignal)),
    ("cnd_signal", Does::Tell(Kind::CondSignal)),
    ("pthread_cond_broadcast", Does::Tell(Kind::CondBroadcast)),
    ("cnd_broadcast", Does::Tell(Kind::CondBroadcast)),
    ("pthread_barrier_init", Does::Init(Kind::BarrierInit)),
    (
        "pthread_barrier_destroy",
        Does::Destroy(Kind::BarrierDestroy),
    ),
    ("pthread_barrier_wait", Does::Barrier),
    ("pthread_once", Does::Once),
    ("call_once", Does::Once),
    ("pthread_spin_init", Does::Init(Kind::SpinInit)),
    ("pthread_spin_destroy", Does::Destroy(Kind::SpinDestroy)),
    ("pthread_spin_lock", SPIN),
    ("pthread_spin_trylock", SPIN),
    ("pthread_spin_unlock", Does::Unlock(Kind::SpinUnlock)),
    ("sem_init", Does::Init(Kind::SemInit)),
    ("sem_destroy", Does::Destroy(Kind::SemDestroy)),
    ("sem_open", Does::SemOpen),
    ("sem_wait", Does::SemWait),
    ("sem_trywait", Does::SemWait),
    ("sem_timedwait", Does::SemWait),
    ("sem_clockwait", Does::SemWait),
    ("sem_post", Does::Tell(Kind::SemPost)),
    ("read", Does::Wrapper),
    ("__read_chk", Does::Wrapper),
    ("pread", Does::Wrapper),
    ("pread64", Does::Wrapper),
    ("readv", Does::Wrapper),
    ("recv", Does::Wrapper),
    ("recvfrom", Does::Wrapper),
    ("recvmsg", Does::Wrapper),
    ("getrandom", Does::Wrapper),
    ("write", Does::Wrapper),
    ("writev", Does::Wrapper),
    ("send", Does::Wrapper),
    ("sendto", Does::Wrapper),
    ("sendmsg", Does::Wrapper),
    ("kill", Does::Wrapper),
    ("raise", Does::Wrapper),
    ("pthread_kill", Does::Wrapper),
    ("pthread_sigqueue", Does::Wrapper),
    ("sigqueue", Does::Wrapper),
    ("tgkill", Does::Wrapper),
    ("fork", Does::Wrapper),
    ("wait", Does::Wrapper),
    ("waitpid", Does::Wrapper),
    ("wait4", Does::Wrapper),
    ("waitid", Does::Wrapper),
    ("mq_send", Does::Wrapper),
    ("mq_timedsend", Does::Wrapper),
    ("mq_receive", Does::Wrapper),
    ("mq_timedreceive", Does::Wrapper),
    ("msgsnd", Does::Wrapper),
    ("msgrcv", Does::Wrapper),
    ("semop", Does::Wrapper),
    ("semtimedop", Does::Wrapper),
    ("eventfd_read", Does::Wrapper),
    ("eventfd_write", Does::Wrapper),
    ("syscall", Does::Wrapper),
];

/// Where memory comes from, for who looks at accesses.
const MEMORY: &[(&str, Does)] = &[
    ("malloc", Does::Allocate { size: 0, by: None }),
    (
        "calloc",
        Does::Allocate {
            size: 0,
            by: Some(1),
        },
    ),
    ("realloc", Does::Reallocate),
    ("memalign", Does::Allocate { size: 1, by: None }),
    ("aligned_alloc", Does::Allocate { size: 1, by: None }),
    ("valloc", Does::Allocate { size: 0, by: None }),
    ("posix_memalign", Does::AllocateAt),
    ("free", Does::Free),
    ("pthread_cancel", Does::Inner),
    ("pthread_setspecific", Does::Inner),
    ("pthread_getspecific", Does::Inner),
    ("pthread_key_create", Does::Inner),
    ("__tls_get_addr", Does::Inner),
];

impl Does {
    /// What happens inside is one thing.
    fn quiet(self) -> bool {
        !matches!(self, Does::Entry | Does::Once | Does::Wrapper)
    }
}

/// Known functions of a process.
#[derive(Debug, Default)]
pub struct Known {
    pub functions: Vec<(Watchful, Does)>,
}

impl Known {
    /// `accesses`: memory is looked at, too.
    pub fn of(modules: &Modules, entry: Option<u64>, accesses: bool) -> Known {
        let mut by_address: FxHashMap<u64, Does> = FxHashMap::default();
        let more = if accesses { MEMORY } else { &[] };
        for (name, does) in FUNCTIONS.iter().chain(more) {
            for image in modules.modules() {
                let found = image.module.symbols_named(name).unwrap_or_default();
                for symbol in found {
                    if symbol.kind == SymbolKind::Function && symbol.address != 0 {
                        let pc = symbol.address.wrapping_add(image.bias);
                        let known = by_address.entry(pc).or_insert(*does);
                        let spin = (Does::Init(Kind::SpinInit), Does::Unlock(Kind::SpinUnlock));
                        if (*known, *does) == spin {
                            *known = Does::SpinInitOrUnlock;
                        }
                    }
                }
            }
        }
        if let Some(pc) = entry {
            by_address.insert(pc, Does::Entry);
        }
        let mut functions: Vec<(Watchful, Does)> = by_address
            .into_iter()
            .map(|(pc, does)| {
                let quiet = does.quiet();
                (Watchful { pc, quiet }, does)
            })
            .collect();
        functions.sort_by_key(|(function, _)| function.pc);
        Known { functions }
    }

    pub fn does(&self, number: u32) -> Option<Does> {
        let function = self.functions.get(number as usize);
        function.map(|(_, does)| *does)
    }
}
