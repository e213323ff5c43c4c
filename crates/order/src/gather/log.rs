//! What the log tells of interactions: system calls, signals, threads made and ended. In: its events, in order. Out:
//! interactions, added to what is known.

use clew_recording::event::{self, Effect, Event, ThreadId};
use clew_timeline::Mark;

use super::{Handler, State, ThreadFacts};
use crate::detect::Detector;
use crate::interaction::{Interaction, Kind, ObjectKey};
use crate::known::Does;

/// What stands in a siginfo: sent to a thread, by `kill`, by `sigqueue`.
const TKILL: i32 = -6;
const USER: i32 = 0;
const QUEUED: i32 = -1;

impl State {
    /// An event of the log, with so many done before it.
    pub(super) fn event(&mut self, number: u64, event: &Event, detector: &mut Option<Detector>) {
        let place = event.place();
        let at = Mark {
            event: number,
            ticks: place.ticks,
            pc: 0,
            sp: 0,
        };
        let thread = self.current;
        match event {
            Event::Started(start) => {
                self.pid = start.pid;
                self.begun.insert(0);
                self.threads.entry(0).or_default().tid = start.tid;
            }
            Event::Call(call) => {
                let nr = i64::from(call.nr);
                if nr == libc::SYS_rt_sigreturn
                    && let Some(handlers) = self.handlers.get_mut(&thread)
                {
                    handlers.pop();
                }
                match call.end {
                    event::End::Waits => {
                        self.begins(thread, nr, &call.args, at, detector);
                        self.waiting.insert(thread, (nr, call.args, at));
                    }
                    event::End::Returned(result) => {
                        self.begins(thread, nr, &call.args, at, detector);
                        self.ends(thread, nr, &call.args, result, at, detector);
                    }
                    event::End::Restarted | event::End::Replaced => {}
                }
            }
            Event::Signal { cause, signo, .. } if *cause != event::Cause::Outside => {
                self.handles_signal(*signo);
            }
            Event::Resumed { result, by } => {
                if let Some(by) = by {
                    self.woken.insert(thread, *by);
                }
                if let (Some((nr, args, _)), Some(result)) = (self.waiting.remove(&thread), result)
                {
                    self.ends(thread, nr, &args, *result, at, detector);
                }
            }
            Event::Signal {
                cause: event::Cause::Outside,
                signo,
                info,
                ..
            } => {
                let code = info.get(8..12).and_then(|bytes| bytes.try_into().ok());
                let to = match code.map(i32::from_le_bytes) {
                    Some(TKILL) => Some(thread),
                    Some(USER | QUEUED) => None,
                    // A timer, a child, a terminal.
                    _ => None,
                };
                self.handles_signal(*signo);
                let key = ObjectKey::Signal { signo: *signo, to };
                self.plain(Kind::SignalDeliver, key, at, None, detector);
            }
            Event::Switched { to, .. } => {
                self.current = *to;
                if self.begun.insert(*to) && !self.borrowed.contains(to) {
                    let object = self.thread(*to);
                    let start = self.threads.get(to).and_then(|facts| facts.start);
                    let begun = Mark {
                        event: number + 1,
                        ..Mark::default()
                    };
                    let interaction = Interaction {
                        kind: Kind::ThreadCreated,
                        thread: *to,
                        object,
                        t: 0,
                        at: begun,
                        over: begun,
                        site: start.unwrap_or(0),
                        other: None,
                    };
                    self.add(interaction, detector);
                }
            }
            Event::NewThread { thread: new, tid } => {
                self.made(thread, *new, *tid, at, detector);
            }
            Event::EndedThread { thread: ended } if !self.borrowed.contains(ended) => {
                let object = self.thread(*ended);
                let interaction = Interaction {
                    kind: Kind::ThreadExit,
                    thread: *ended,
                    object,
                    t: 0,
                    at,
                    over: at,
                    site: 0,
                    other: None,
                };
                self.add(interaction, detector);
            }
            Event::Forked { pid, .. } => {
                self.plain(Kind::Fork, ObjectKey::Process(*pid), at, None, detector);
            }
            _ => {}
        }
    }

    /// A handler begins.
    fn handles_signal(&mut self, signo: i32) {
        self.handled += 1;
        let handler = Handler {
            signo,
            number: self.handled,
        };
        self.handlers.entry(self.current).or_default().push(handler);
    }

    fn made(
        &mut self,
        parent: ThreadId,
        new: ThreadId,
        tid: i32,
        at: Mark,
        detector: &mut Option<Detector>,
    ) {
        let waits = self.waiting.get(&parent).map(|(_, args, _)| *args);
        let (handle, threads) = match (self.made.take(), waits) {
            (Some(made), _) => made,
            (None, Some(args)) => handle_of(&args),
            (None, None) => (0, true),
        };
        if !threads {
            self.borrowed.insert(new);
            return;
        }
        self.handles.insert(handle, new);
        let open = self.open.get(&parent);
        let start = open.and_then(|open| {
            open.iter().rev().find_map(|open| match open.does {
                Does::Create { start } => open.arguments.get(start).copied(),
                _ => None,
            })
        });
        let facts = self.threads.entry(new).or_default();
        *facts = ThreadFacts {
            tid,
            start,
            parent: Some(parent),
        };
        let key = ObjectKey::Thread(new);
        self.plain(Kind::ThreadCreate, key, at, Some(new), detector);
    }

    fn plain(
        &mut self,
        kind: Kind,
        key: ObjectKey,
        at: Mark,
        other: Option<ThreadId>,
        detector: &mut Option<Detector>,
    ) {
        let thread = self.current;
        let object = self.object(key, None);
        let interaction = Interaction {
            kind,
            thread,
            object,
            t: 0,
            at,
            over: at,
            site: self.site(thread),
            other,
        };
        self.add(interaction, detector);
    }

    fn on_channel(&mut self, kind: Kind, fd: u64, at: Mark, detector: &mut Option<Detector>) {
        let thread = self.current;
        let (channel, object) = self.channel(fd as i32);
        if kind == Kind::Write && !self.descriptors.talks(channel) {
            return;
        }
        let interaction = Interaction {
            kind,
            thread,
            object,
            t: 0,
            at,
            over: at,
            site: self.site(thread),
            other: None,
        };
        self.add(interaction, detector);
    }

    /// What counts where a system call begins: others may see it before it is over.
    fn begins(
        &mut self,
        thread: ThreadId,
        nr: i64,
        args: &[u64; 6],
        at: Mark,
        detector: &mut Option<Detector>,
    ) {
        if self.is_inside(thread) {
            return;
        }
        match nr {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg => self.on_channel(Kind::Write, args[0], at, detector),
            libc::SYS_mq_timedsend => self.on_channel(Kind::QueueSend, args[0], at, detector),
            libc::SYS_msgsnd => {
                let key = ObjectKey::MessageQueue(args[0] as i32);
                self.plain(Kind::QueueSend, key, at, None, detector);
            }
            libc::SYS_futex if wakes(args[1]) && !self.is_own(thread, args[0]) => {
                let object = self.memory(args[0]);
                let key = self.objects[object as usize].key.clone();
                self.plain(Kind::FutexWake, key, at, None, detector);
            }
            libc::SYS_kill | libc::SYS_rt_sigqueueinfo
                if args[0] as i32 == self.pid || args[0] == 0 =>
            {
                let signo = args[1] as i32;
                let key = ObjectKey::Signal { signo, to: None };
                self.plain(Kind::SignalSend, key, at, None, detector);
            }
            libc::SYS_tkill => self.signals(args[0], args[1], at, detector),
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => {
                self.signals(args[1], args[2], at, detector)
            }
            _ => {}
        }
    }

    fn signals(&mut self, tid: u64, signo: u64, at: Mark, detector: &mut Option<Detector>) {
        let mut threads = self.threads.iter().rev();
        let found = threads.find(|(_, facts)| facts.tid == tid as i32);
        if let Some((&to, _)) = found {
            let key = ObjectKey::Signal {
                signo: signo as i32,
                to: Some(to),
            };
            self.plain(Kind::SignalSend, key, at, Some(to), detector);
        }
    }

    /// What counts where it is over.
    fn ends(
        &mut self,
        thread: ThreadId,
        nr: i64,
        args: &[u64; 6],
        result: i64,
        at: Mark,
        detector: &mut Option<Detector>,
    ) {
        self.descriptors.called(nr, args, result);
        match nr {
            libc::SYS_clone if result > 0 => self.made = Some(handle_of(args)),
            libc::SYS_pipe | libc::SYS_pipe2 if result == 0 => self.pair = Some((nr, args[0])),
            libc::SYS_socketpair if result == 0 => self.pair = Some((nr, args[3])),
            _ => {}
        }
        if self.is_inside(thread) || result < 0 {
            return;
        }
        match nr {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg => self.on_channel(Kind::Read, args[0], at, detector),
            libc::SYS_getrandom => self.plain(Kind::Read, ObjectKey::World, at, None, detector),
            libc::SYS_mq_timedreceive => self.on_channel(Kind::QueueReceive, args[0], at, detector),
            libc::SYS_msgrcv => {
                let key = ObjectKey::MessageQueue(args[0] as i32);
                self.plain(Kind::QueueReceive, key, at, None, detector);
            }
            libc::SYS_semop | libc::SYS_semtimedop => {
                let key = ObjectKey::SemaphoreSet(args[0] as i32);
                self.plain(Kind::SemOperate, key, at, None, detector);
            }
            libc::SYS_futex if waits(args[1]) && !self.is_own(thread, args[0]) => {
                let object = self.memory(args[0]);
                let key = self.objects[object as usize].key.clone();
                let by = self.woken.remove(&thread);
                self.plain(Kind::FutexWait, key, at, by, detector);
            }
            libc::SYS_wait4 | libc::SYS_waitid if result > 0 => {
                let key = ObjectKey::Process(result as i32);
                self.plain(Kind::Wait, key, at, None, detector);
            }
            _ => {}
        }
    }

    pub(super) fn effect(&mut self, effect: &Effect) {
        if let (Some((nr, wanted)), Effect::Memory { addr, bytes }) = (self.pair, effect)
            && *addr == wanted
        {
            self.descriptors.pair(nr, bytes);
            self.pair = None;
        }
    }
}

/// Of `clone`: the new thread's handle, and whether it is a thread.
fn handle_of(args: &[u64; 6]) -> (u64, bool) {
    (args[4], args[0] & libc::CLONE_THREAD as u64 != 0)
}

fn operation(op: u64) -> i32 {
    op as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

fn wakes(op: u64) -> bool {
    matches!(
        operation(op),
        libc::FUTEX_WAKE
            | libc::FUTEX_WAKE_BITSET
            | libc::FUTEX_WAKE_OP
            | libc::FUTEX_REQUEUE
            | libc::FUTEX_CMP_REQUEUE
            | libc::FUTEX_UNLOCK_PI
    )
}

fn waits(op: u64) -> bool {
    matches!(
        operation(op),
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2
    )
}
