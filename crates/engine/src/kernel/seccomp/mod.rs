//! seccomp for guests. A filter in the kernel would also judge the engine's own calls, made from the same process, and kill it
//! for them; so filters are kept here, one list for each thread, and asked before a guest's call is answered. In: a call of the
//! guest. Out: what its filters make of it.

mod filter;

use std::sync::Arc;

use filter::{Filter, Instruction, Subject};

use super::Outcome;
use super::table::Args;
use crate::executor::Executor;
use crate::guest::access;
use crate::guest::threads::Thread;
use crate::host::siginfo::Siginfo;
use crate::host::sigset::SigSet;
use crate::sys::err;

const SET_MODE_STRICT: u64 = 0;
const SET_MODE_FILTER: u64 = 1;
const GET_ACTION_AVAIL: u64 = 2;
const FLAG_TSYNC: u64 = 1;
const FLAG_LOG: u64 = 2;
const FLAG_SPEC_ALLOW: u64 = 4;
const FLAG_NEW_LISTENER: u64 = 8;
const FLAG_TSYNC_ESRCH: u64 = 16;

// What a filter says, the strongest first; data in the lower half.
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const ACTION: u32 = 0xffff_0000;

const MAX_ERRNO: u32 = 4095;
/// All filters of a thread together, with four more for each.
const MOST_INSTRUCTIONS: usize = (1 << 18) / 8;

/// What a thread has forbidden itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Only reading, writing, leaving and returning from signals.
    Strict,
    /// The newest filter first, then those before it.
    Filters(Vec<Arc<Filter>>),
}

/// The call `seccomp`.
pub fn seccomp(ex: &mut Executor, args: Args) -> Outcome {
    let [operation, flags, at, ..] = args;
    let result = match operation {
        SET_MODE_STRICT if flags == 0 && at == 0 => set_strict(ex),
        SET_MODE_FILTER => set_filter(ex, flags, at),
        GET_ACTION_AVAIL if flags == 0 => action_available(at),
        _ => Err(libc::EINVAL),
    };
    Outcome::Return(result.unwrap_or_else(err))
}

/// `prctl(PR_SET_SECCOMP, mode, filter)`.
pub fn by_prctl(ex: &mut Executor, args: Args) -> Outcome {
    let result = match args[1] as u32 {
        libc::SECCOMP_MODE_STRICT => set_strict(ex),
        libc::SECCOMP_MODE_FILTER => set_filter(ex, 0, args[2]),
        _ => Err(libc::EINVAL),
    };
    Outcome::Return(result.unwrap_or_else(err))
}

/// `prctl(PR_GET_SECCOMP)`.
pub fn mode(ex: &mut Executor) -> Outcome {
    Outcome::Return(match &ex.current().rules {
        None => 0,
        Some(rules) => match **rules {
            Rules::Strict => 1,
            Rules::Filters(_) => 2,
        },
    })
}

fn set_strict(ex: &mut Executor) -> Result<i64, i32> {
    match &ex.current().rules {
        Some(rules) if **rules != Rules::Strict => Err(libc::EINVAL),
        _ => {
            ex.current().rules = Some(Arc::new(Rules::Strict));
            Ok(0)
        }
    }
}

fn action_available(at: u64) -> Result<i64, i32> {
    let action: u32 = access::read(at).map_err(|_| libc::EFAULT)?;
    match action {
        KILL_PROCESS | KILL_THREAD | TRAP | ERRNO | TRACE | LOG | ALLOW => Ok(0),
        _ => Err(libc::EOPNOTSUPP),
    }
}

fn set_filter(ex: &mut Executor, flags: u64, at: u64) -> Result<i64, i32> {
    if flags & FLAG_NEW_LISTENER != 0 {
        ex.say("seccomp filters that ask another process aren't supported under clew".into());
        return Err(libc::EINVAL);
    }
    if flags & !(FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_TSYNC_ESRCH) != 0 {
        return Err(libc::EINVAL);
    }
    let filter = read(at)?;
    if !may_filter(ex) {
        return Err(libc::EACCES);
    }
    let older = match &ex.current().rules {
        None => Vec::new(),
        Some(rules) => match &**rules {
            Rules::Strict => return Err(libc::EINVAL),
            Rules::Filters(filters) => filters.clone(),
        },
    };
    let total: usize = older.iter().map(|one| one.len() + 4).sum();
    if total + filter.len() > MOST_INSTRUCTIONS {
        return Err(libc::ENOMEM);
    }
    let before = ex.current().rules.clone();
    let mut all = vec![Arc::new(filter)];
    all.extend(older);
    let rules = Some(Arc::new(Rules::Filters(all)));
    if flags & FLAG_TSYNC != 0 {
        // Every other thread must have an older part of what this one had.
        let current = ex.tid();
        let apart = |(_, thread): &(usize, &Thread)| {
            thread.tid != current && !is_older(&thread.rules, &before)
        };
        let apart = ex.threads.iter().find(apart).map(|(_, thread)| thread.tid);
        if let Some(tid) = apart {
            return match flags & FLAG_TSYNC_ESRCH {
                0 => Ok(tid.into()),
                _ => Err(libc::ESRCH),
            };
        }
        for thread in ex.threads.iter_mut() {
            thread.rules = rules.clone();
        }
    }
    ex.current().rules = rules;
    Ok(0)
}

/// Whether one list of filters is the end of another.
fn is_older(older: &Option<Arc<Rules>>, newer: &Option<Arc<Rules>>) -> bool {
    match (older.as_deref(), newer.as_deref()) {
        (None, _) => true,
        (Some(Rules::Filters(older)), Some(Rules::Filters(newer))) => {
            let same = |(a, b): (&Arc<Filter>, &Arc<Filter>)| Arc::ptr_eq(a, b);
            older.len() <= newer.len() && older.iter().rev().zip(newer.iter().rev()).all(same)
        }
        _ => false,
    }
}

/// The program that a guest hands over.
fn read(at: u64) -> Result<Filter, i32> {
    let len: u16 = access::read(at).map_err(|_| libc::EFAULT)?;
    let from: u64 = access::read(at.wrapping_add(8)).map_err(|_| libc::EFAULT)?;
    if len == 0 || len > 4096 {
        return Err(libc::EINVAL);
    }
    let mut program = Vec::with_capacity(len.into());
    for n in 0..u64::from(len) {
        let bytes: [u8; 8] = access::read(from.wrapping_add(n * 8)).map_err(|_| libc::EFAULT)?;
        program.push(Instruction::from_bytes(bytes));
    }
    Filter::new(program).ok_or(libc::EINVAL)
}

/// Who gets no new privileges by exec may filter, and who has the privilege to.
fn may_filter(ex: &mut Executor) -> bool {
    let asked = [libc::PR_GET_NO_NEW_PRIVS as u64, 0, 0, 0, 0, 0];
    if ex.call_on_proxy(libc::SYS_prctl, asked) == 1 {
        return true;
    }
    const SYS_ADMIN: u32 = 21;
    let header = [0x2008_0522u32, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: the kernel reads a header and writes two sets, all of them alive.
    let got = unsafe { crate::syscall!(libc::SYS_capget, &raw const header, &raw mut sets) };
    got == 0 && sets[0][0] & 1 << SYS_ADMIN != 0
}

/// What filters make of the call that the current thread makes: none, if it is to be answered.
pub fn judge(ex: &mut Executor, nr: u64, args: &Args) -> Option<Outcome> {
    let rules = ex.current().rules.clone()?;
    let said = match &*rules {
        Rules::Strict => match nr as i64 {
            libc::SYS_read | libc::SYS_write | libc::SYS_exit | libc::SYS_rt_sigreturn => ALLOW,
            // As the kernel has it: SIGKILL, not SIGSYS.
            _ => return Some(killed(ex, libc::SIGKILL, nr)),
        },
        Rules::Filters(filters) => {
            let subject = Subject {
                nr: nr as u32,
                ip: ex.gs.regs.rip,
                args: *args,
            };
            strongest(filters, &subject)
        }
    };
    let data = said & !ACTION;
    match said & ACTION {
        ALLOW | LOG => None,
        ERRNO => Some(Outcome::Return(-i64::from(data.min(MAX_ERRNO)))),
        // Nobody traces: the call isn't there.
        TRACE | USER_NOTIF => Some(Outcome::Return(err(libc::ENOSYS))),
        TRAP => {
            let info = Siginfo::denied(ex.gs.regs.rip, nr as i32, data as i32);
            let sig = libc::SIGSYS;
            if ex.current().signals.mask.contains(sig) || !ex.signals.has_handler(sig) {
                return Some(killed(ex, sig, nr));
            }
            ex.current().signals.pending.push_front(info);
            ex.look_again();
            Some(Outcome::Return(nr as i64))
        }
        KILL_THREAD if ex.threads.count() > 1 => Some(ex.exit_thread(libc::SIGSYS as u64)),
        // An unknown action kills, too.
        _ => Some(killed(ex, libc::SIGSYS, nr)),
    }
}

/// The strongest of what all filters say; of equals, the newest's.
fn strongest(filters: &[Arc<Filter>], subject: &Subject) -> u32 {
    let mut said = ALLOW;
    for filter in filters {
        let one = filter.run(subject);
        if ((one & ACTION) as i32) < (said & ACTION) as i32 {
            said = one;
        }
    }
    said
}

/// The process dies by a signal as soon as its call is noted.
fn killed(ex: &mut Executor, sig: i32, nr: u64) -> Outcome {
    ex.signals.set_action(sig, Default::default());
    let signals = &mut ex.current().signals;
    signals.mask = signals.mask.minus(SigSet::only(sig));
    let info = Siginfo::denied(0, nr as i32, 0).of(sig);
    signals.pending.push_front(info);
    ex.look_again();
    Outcome::Return(nr as i64)
}

impl Rules {
    /// For the program that an exec begins.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Rules::Filters(filters) = self {
            for filter in filters {
                bytes.extend((filter.len() as u32).to_le_bytes());
                for one in filter.instructions() {
                    bytes.extend(one.to_bytes());
                }
            }
        }
        bytes
    }

    /// None if it isn't what [`Rules::to_bytes`] makes.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Rules> {
        if bytes.is_empty() {
            return Some(Rules::Strict);
        }
        let mut filters = Vec::new();
        while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize * 8;
            let program = rest.get(..len)?;
            let program = program.as_chunks::<8>().0.iter();
            let program = program.map(|one| Instruction::from_bytes(*one)).collect();
            filters.push(Arc::new(Filter::new(program)?));
            bytes = &rest[len..];
        }
        bytes.is_empty().then_some(Rules::Filters(filters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns(k: u32) -> Arc<Filter> {
        let one = Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k,
        };
        Arc::new(Filter::new(vec![one]).expect("a return"))
    }

    #[test]
    fn the_strongest_counts() {
        let subject = Subject {
            nr: 1,
            ip: 2,
            args: [0; 6],
        };
        let said = |all: &[u32]| {
            let filters: Vec<Arc<Filter>> = all.iter().map(|&k| returns(k)).collect();
            strongest(&filters, &subject)
        };
        assert_eq!(said(&[ALLOW, LOG]), LOG);
        assert_eq!(said(&[ERRNO | 3, ERRNO | 4]), ERRNO | 3);
        assert_eq!(said(&[ERRNO | 3, TRAP, ALLOW]), TRAP);
        assert_eq!(said(&[KILL_THREAD, KILL_PROCESS, TRAP]), KILL_PROCESS);
    }

    #[test]
    fn rules_go_over_exec() {
        for rules in [
            Rules::Strict,
            Rules::Filters(vec![returns(ALLOW), returns(ERRNO)]),
        ] {
            assert_eq!(Rules::from_bytes(&rules.to_bytes()), Some(rules));
        }
        assert_eq!(Rules::from_bytes(&[1, 0, 0, 0, 9]), None);
        assert_eq!(Rules::from_bytes(&[1]), None);
    }
}
