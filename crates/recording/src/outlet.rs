//! Standard output and error of a recording, written to by one process at a time.
//!
//! In: what one process writes, as a function. Out: its result, and its place among all outputs. The
//! place is taken while nobody else may write to the same file, so places are in the file's own order.
//!
//! Whoever is inside doesn't wait for room in the file, as a rule, so nobody waits long. One who dies
//! or is stopped inside is found out by those who wait, and passed by; one who was stopped then learns
//! that its place may be the wrong one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::{futex, shared};

/// Set in the word while somebody waits for it.
const CONTENDED: u32 = 1 << 31;
/// Somebody is seldom inside for longer than this.
const SPINS: u32 = 200;
/// How often those who wait look after the one inside.
const LOOK: Duration = Duration::from_millis(20);
/// So long one is waited for of whom nothing can be learnt: it lives in another pid namespace.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Nobody is waited for longer: the number may be another process's by now.
const LONGEST: Duration = Duration::from_secs(60);

#[repr(C, align(64))]
pub struct Outlet {
    /// The tid of who is inside, or 0.
    word: AtomicU32,
    /// How often somebody inside was passed by.
    passed: AtomicU32,
    /// The pid namespace of the tid.
    namespace: AtomicU64,
}

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// What the function returned.
    pub value: i64,
    /// Its place among all outputs, if the value is a number of bytes.
    pub order: Option<u64>,
    /// Somebody else may have written at the same time: the place may be wrong.
    pub unsure: bool,
}

impl Channel {
    /// Writes to outlet `number` by calling `write`, which returns a number of bytes or an error below 0.
    pub fn write_to(&self, number: usize, write: impl FnOnce() -> i64) -> Written {
        let outlet = &self.control().outlets[number];
        let passed = outlet.enter();
        let value = write();
        let order = (value > 0).then(|| self.next_output());
        let unsure = !outlet.leave(passed);
        Written {
            value,
            order,
            unsure,
        }
    }
}

impl Outlet {
    /// Returns when nobody else is inside: how often somebody was passed by so far.
    fn enter(&self) -> u32 {
        let me = futex::tid();
        let mut spins = 0;
        let mut since: Option<(u32, Instant)> = None;
        loop {
            let seen = self.word.load(Relaxed);
            if seen & !CONTENDED == 0 {
                if self.take(seen, me | seen) {
                    break;
                }
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else if seen & CONTENDED == 0 {
                let _ = self
                    .word
                    .compare_exchange(seen, seen | CONTENDED, Relaxed, Relaxed);
            } else {
                futex::wait(&self.word, seen, Some(LOOK));
                if self.word.load(Relaxed) != seen {
                    continue;
                }
                let (of, begin) = *since.get_or_insert((seen, Instant::now()));
                if of != seen {
                    since = None;
                } else if self.is_lost(seen & !CONTENDED, begin.elapsed())
                    && self.take(seen, me | CONTENDED)
                {
                    self.passed.fetch_add(1, SeqCst);
                    break;
                }
            }
        }
        self.namespace.store(shared::known_pid_namespace(), Relaxed);
        self.passed.load(SeqCst)
    }

    fn take(&self, seen: u32, new: u32) -> bool {
        self.word
            .compare_exchange(seen, new, Acquire, Relaxed)
            .is_ok()
    }

    /// Whether the one inside, for whom one has waited so long, won't come out by itself.
    fn is_lost(&self, tid: u32, waited: Duration) -> bool {
        let namespace = self.namespace.load(Relaxed);
        if waited > LONGEST {
            return true;
        }
        if namespace == 0 || namespace != shared::pid_namespace() {
            return waited > UNKNOWN;
        }
        match std::fs::read(format!("/proc/{tid}/stat")) {
            // The state follows the name, which is in brackets and may have brackets in it.
            Ok(stat) => stat
                .iter()
                .rposition(|&byte| byte == b')')
                .and_then(|at| stat.get(at + 2))
                .is_some_and(|state| b"TtZXx".contains(state)),
            Err(_) => true,
        }
    }

    /// Lets the next one in. False if somebody has come in already.
    fn leave(&self, passed: u32) -> bool {
        if self.passed.load(SeqCst) != passed {
            return false;
        }
        if self.word.swap(0, Release) & CONTENDED != 0 {
            futex::wake(&self.word);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use std::io::{Read, Write};

    fn fork(child: impl FnOnce()) -> i32 {
        // SAFETY: the child does as little as the callers here give it, then ends.
        unsafe {
            match libc::fork() {
                0 => {
                    child();
                    libc::_exit(0)
                }
                pid => pid,
            }
        }
    }

    fn end(pid: i32) {
        // SAFETY: a child of this test's.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn places_are_in_the_order_of_writing() {
        let (channel, _memory) = Channel::create().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let children: Vec<i32> = (0..4)
            .map(|_| {
                fork(|| {
                    for _ in 0..500 {
                        // Its own place is not known before it is written: the next one's is.
                        let next = channel.control().next_output.load(SeqCst);
                        let (mut told, mut out) = (0, &writer);
                        channel.write_to(0, || {
                            told = channel.control().next_output.load(SeqCst);
                            out.write(&told.to_le_bytes()).unwrap() as i64
                        });
                        assert!(told >= next);
                    }
                })
            })
            .collect();
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        let numbers = all
            .chunks(8)
            .map(|n| u64::from_le_bytes(n.try_into().unwrap()));
        assert!(numbers.eq(1..=2000));
        children.into_iter().for_each(end);
    }

    #[test]
    fn the_dead_and_the_stopped_are_passed_by() {
        for stopped in [false, true] {
            let (channel, _memory) = Channel::create().unwrap();
            shared::pid_namespace();
            let (mut inside, tell) = std::io::pipe().unwrap();
            let pid = fork(|| {
                channel.write_to(0, || {
                    (&tell).write_all(&[1]).unwrap();
                    // SAFETY: stops or ends this very process.
                    unsafe {
                        let how = if stopped {
                            libc::SIGSTOP
                        } else {
                            libc::SIGKILL
                        };
                        libc::raise(how);
                    }
                    1
                });
            });
            inside.read_exact(&mut [0]).unwrap();
            let mut status = 0;
            // SAFETY: waits until the child has stopped or ended.
            unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
            let mine = channel.write_to(0, || 1);
            assert_eq!((mine.order, mine.unsure), (Some(1), false));
            if stopped {
                // SAFETY: the child goes on, and learns that it was passed by.
                unsafe {
                    libc::kill(pid, libc::SIGCONT);
                    libc::waitpid(pid, &mut status, 0);
                }
            }
            assert_eq!(channel.write_to(0, || -11).order, None);
            assert_eq!(channel.write_to(0, || 5).order, Some(2 + stopped as u64));
        }
    }
}
