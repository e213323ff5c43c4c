//! A replayed process: guest memory, translated code, and the threads' registers; it takes events and
//! effects one at a time.

use std::collections::BTreeMap;
use std::fmt;

use clew_recording::event::{
    Call, Cause, End, Event, Instruction, Origin, Place, Start, ThreadId, Touch,
};

use crate::cache::CodeCache;
use crate::context::{Exit, GsBlock, R8, R9, R10, RAX, RDI, RDX, RSI, Regs, Xsave};
use crate::guest::access;
use crate::host::{switch, time};
use crate::kernel::table;
use crate::memory::{Memory, PAGE};
use crate::record::events::show_pages;
use crate::record::values;
use crate::record::view::checksum;
use crate::stats::Stats;

/// A guest thread.
#[derive(Clone)]
pub struct Thread {
    pub tid: i32,
    /// Registers while another thread is current.
    pub regs: Regs,
    pub xsave: Xsave,
    pub ticks: u64,
    /// As far as it gave itself one, or had it from its maker.
    pub name: Vec<u8>,
    /// The call that it waits in.
    pub waits: Option<Call>,
}

/// Why a replay can't go on: the guest did something else than when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub expected: String,
    pub found: String,
    pub thread: ThreadId,
    pub ticks: u64,
    pub pc: u64,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {}, tick {}, pc {:#x}: expected {}, found {}",
            self.thread, self.ticks, self.pc, self.expected, self.found
        )
    }
}

/// Opens a file of the recording by its name.
pub type OpenFile = Box<dyn FnMut(&str) -> std::io::Result<std::os::fd::OwnedFd>>;

pub struct Machine {
    pub gs: &'static mut GsBlock,
    pub memory: Memory,
    pub code: CodeCache,
    pub stats: Stats,
    pub threads: BTreeMap<ThreadId, Thread>,
    pub current: ThreadId,
    /// The current thread has come to this and waits for its event.
    pub(super) standing: Option<Exit>,
    /// What `ticks_left` was set to, to tell what was used.
    pub(super) budget: i64,
    /// Ticks of the current thread since the last event, without what was used of `budget`.
    pub(super) since: i64,
    /// Ticks of all threads, likewise.
    pub(super) total: u64,
    /// Single instructions since the tick from which the next event's are counted.
    pub(super) stepped: u32,
    pub(super) open_file: OpenFile,
    /// Quiet instructions that were passed since the last event or tick: at which, how many.
    pub(super) passed: (u64, u32),
    /// The next event is behind the quiet instruction with that tick and number.
    pub(super) stop_at_quiet: Option<(u64, u32)>,
    /// The event whose effects are being applied made a thread: they are for its registers.
    pub(super) new_thread: Option<ThreadId>,
    pub start: Option<Start>,
    /// Show the checksum of every page where all memory is compared.
    pub show_pages: bool,
    /// Compare memory at all checks, not only at the end.
    pub verify: bool,
    /// The guest has ended: what is compared now is its last state.
    ended: bool,
    /// How many checksums agreed.
    pub checks: u64,
}

pub(super) type Checked = Result<(), Divergence>;

impl Machine {
    pub fn new(
        gs: &'static mut GsBlock,
        memory: Memory,
        code: CodeCache,
        open_file: OpenFile,
    ) -> Machine {
        time::replay(gs);
        Machine {
            gs,
            memory,
            code,
            stats: Stats::default(),
            threads: BTreeMap::new(),
            current: 0,
            standing: None,
            budget: 0,
            since: 0,
            total: 0,
            stepped: 0,
            open_file,
            passed: (0, 0),
            stop_at_quiet: None,
            new_thread: None,
            start: None,
            show_pages: false,
            verify: false,
            ended: false,
            checks: 0,
        }
    }

    /// Ticks of the current thread so far.
    pub fn ticks(&self) -> u64 {
        let used = (self.budget - self.gs.ticks_left) as u64;
        self.threads
            .get(&self.current)
            .map_or(0, |thread| thread.ticks)
            + used
    }

    /// Ticks of the current thread since the last event.
    #[inline]
    pub fn since(&self) -> u64 {
        (self.since + self.budget - self.gs.ticks_left) as u64
    }

    /// Instructions since the last tick or event that the engine answered without an event.
    pub fn passed_here(&self) -> u32 {
        match self.passed {
            (tick, count) if tick == self.since() => count,
            _ => 0,
        }
    }

    /// Ticks of all threads since the start of the stream.
    pub fn all_ticks(&self) -> u64 {
        self.total + (self.budget - self.gs.ticks_left) as u64
    }

    pub(super) fn diverged<T>(
        &self,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, Divergence> {
        Err(Divergence {
            expected: expected.into(),
            found: found.into(),
            thread: self.current,
            ticks: self.ticks(),
            pc: self.gs.regs.rip,
        })
    }

    /// Runs to the event, compares, and does what it says itself; its effects follow.
    pub fn event(&mut self, event: &Event) -> Checked {
        self.new_thread = None;
        self.replay(event)?;
        if !matches!(
            event,
            Event::Values(_) | Event::Time(_) | Event::Note(_) | Event::Deadlock(_)
        ) {
            // Ticks are counted from here.
            self.since = self.gs.ticks_left - self.budget;
            self.stepped = 0;
            self.passed = (0, 0);
        }
        Ok(())
    }

    fn replay(&mut self, event: &Event) -> Checked {
        match event {
            Event::Exited { .. } | Event::Killed { .. } => self.ended = true,
            Event::Check { .. } | Event::Time(_) | Event::Note(_) | Event::Deadlock(_) => {}
            _ => self.ended = false,
        }
        match event {
            Event::Started(start) => {
                self.start = Some(start.clone());
                let number = self.current;
                // A forked child is called like its parent.
                let name = match (self.threads.get(&number), start.origin) {
                    (Some(thread), Origin::Fork { .. }) => thread.name.clone(),
                    _ => name_of(&start.exe),
                };
                let only = Thread {
                    tid: start.tid,
                    regs: Regs::default(),
                    xsave: Xsave::default(),
                    ticks: self.ticks(),
                    name,
                    waits: None,
                };
                self.threads.clear();
                self.set_budget(0);
                self.total = 0;
                self.threads.insert(number, only);
                self.standing = None;
            }
            Event::Call(call) => self.call(call)?,
            Event::Resumed { result, .. } => {
                let current = self.current;
                let waited = self.threads.get_mut(&current).and_then(|t| t.waits.take());
                if waited.is_none() {
                    return self.diverged("a thread that waits", "one that doesn't");
                }
                match result {
                    Some(value) => self.gs.regs.gpr[RAX] = *value as u64,
                    None => self.gs.regs.rip = self.gs.regs.rip.wrapping_sub(2),
                }
            }
            Event::Instruction { ticks, what } => {
                self.stop_at_quiet = quiet_stop(event);
                let arrived = self.arrive(*ticks, &[Exit::Emulate], &|| format!("{what:?}"));
                self.stop_at_quiet = None;
                arrived?;
                self.values_used_up()?;
            }
            Event::Shared { ticks, touch } => {
                let what = || "a touch of shared memory".into();
                let kinds: &[Exit] = match touch {
                    Touch::Instruction { .. } => &[Exit::Fault],
                    _ => &[Exit::Fault, Exit::Emulate, Exit::Syscall],
                };
                let exit = self.arrive(*ticks, kinds, &what)?;
                self.values_used_up()?;
                if let Touch::Instruction { pc, page } = *touch {
                    self.compare_touch(pc, page)?;
                }
                if exit != Exit::Fault {
                    self.standing = Some(exit);
                }
            }
            Event::Signal {
                place,
                cause,
                signo,
                ..
            } => self.signalled(*place, *cause, *signo)?,
            Event::Switched { place, to } => {
                self.go_to(*place, &|| format!("a switch to thread {to}"))?;
                self.values_used_up()?;
                self.switch(*to)?;
            }
            Event::NewThread { thread, tid } => {
                let mut xsave = Xsave::default();
                switch::save_extended(self.gs, &mut xsave);
                let maker = self.threads.get(&self.current);
                let new = Thread {
                    tid: *tid,
                    regs: self.gs.regs,
                    xsave,
                    ticks: 0,
                    name: maker.map_or_else(Vec::new, |maker| maker.name.clone()),
                    waits: None,
                };
                self.threads.insert(*thread, new);
                self.new_thread = Some(*thread);
            }
            Event::EndedThread { thread } => {
                if *thread == self.current {
                    self.set_budget(0);
                    self.standing = None;
                }
                if self.threads.remove(thread).is_none() {
                    return self.diverged(format!("thread {thread}"), "none of that number");
                }
            }
            Event::Forked { ticks, .. } => self.stand(*ticks, "fork")?,
            Event::Exec { ticks } => self.stand(*ticks, "exec")?,
            Event::Exited { ticks, status } => {
                self.arrive(*ticks, &[Exit::Syscall], &|| format!("exit {status}"))?;
                self.values_used_up()?;
            }
            // It struck wherever the process was by then, which nobody has seen.
            Event::Killed {
                signo: libc::SIGKILL,
                ..
            } => {}
            Event::Killed {
                place,
                cause,
                signo,
            } => self.signalled(*place, *cause, *signo)?,
            Event::Check {
                place,
                registers,
                memory,
            } => {
                self.go_to(*place, &|| "a check".into())?;
                self.values_used_up()?;
                let found = checksum(self.gs, &self.memory);
                if found != *registers {
                    return self.diverged(
                        format!("registers with checksum {registers:#x}"),
                        format!("{found:#x}"),
                    );
                }
                self.checks += 1;
                if let Some(memory) = memory
                    && (self.verify || self.ended)
                {
                    if self.show_pages {
                        show_pages(&self.memory);
                    }
                    let found = self.memory.checksum();
                    if found != *memory {
                        return self.diverged(
                            format!("memory with checksum {memory:#x}"),
                            format!("{found:#x}"),
                        );
                    }
                    self.checks += 1;
                }
            }
            // Answers of time calls that lie behind it are still to be taken.
            Event::Leap { place, .. } => self.go_to(*place, &|| "a leap".into())?,
            Event::Values(bytes) => {
                self.values_used_up()?;
                // SAFETY: the buffer has that many entries, and only translated code uses it.
                let buffer =
                    unsafe { std::slice::from_raw_parts_mut(self.gs.values.buffer, time::BUFFER) };
                let Ok(there) = values::decode(bytes, buffer) else {
                    return self.diverged("answers of time calls", "malformed data");
                };
                self.gs.values.used = 0;
                self.gs.values.there = there as u64;
            }
            Event::State { ticks, name, waits } => self.restore(*ticks, name, *waits)?,
            Event::Time(_) | Event::Note(_) | Event::Deadlock(_) => {}
        }
        Ok(())
    }

    /// The instruction that has just faulted must be the one at `pc`, and touch the page.
    fn compare_touch(&mut self, pc: u64, page: u64) -> Checked {
        let found = self.gs.fault.addr;
        let same = self.gs.regs.rip == pc
            && (found & !(PAGE - 1) == page
                // Of several closed pages any may be the first, by the CPU.
                || self.code.accesses(self.gs).iter().any(|access| {
                    let end = access.addr.saturating_add(access.len);
                    access.addr < page + PAGE && page < end
                }));
        if same {
            return Ok(());
        }
        self.diverged(
            format!("a touch of shared memory at {page:#x} by the instruction at {pc:#x}"),
            format!("one at {found:#x}"),
        )
    }

    /// Comes to a system call and stays there for the events that follow.
    fn stand(&mut self, ticks: u64, what: &str) -> Checked {
        self.arrive(ticks, &[Exit::Syscall], &|| what.into())?;
        self.standing = Some(Exit::Syscall);
        Ok(())
    }

    fn signalled(&mut self, place: Place, cause: Cause, signo: i32) -> Checked {
        let what = || format!("signal {signo}");
        match cause {
            Cause::Outside => self.go_to(place, &what)?,
            Cause::Fault => {
                self.arrive(
                    place.ticks,
                    &[Exit::Fault, Exit::Emulate, Exit::Syscall],
                    &what,
                )?;
            }
        }
        self.values_used_up()
    }

    fn call(&mut self, call: &Call) -> Checked {
        let name = table::lookup(call.nr as u64).name;
        self.arrive(call.ticks, &[Exit::Syscall], &|| format!("call {name}"))?;
        self.values_used_up()?;
        let gpr = &self.gs.regs.gpr;
        let args = [gpr[RDI], gpr[RSI], gpr[RDX], gpr[R10], gpr[R8], gpr[R9]];
        if gpr[RAX] as u32 != call.nr {
            return self.diverged(format!("call {name}"), self.describe(Exit::Syscall));
        }
        if args != call.args {
            return self.diverged(
                format!("{name} with {:x?}", call.args),
                format!("{args:x?}"),
            );
        }
        if call.nr == libc::SYS_prctl as u32 && call.args[0] == libc::PR_SET_NAME as u64 {
            self.named(call.args[1]);
        }
        match call.end {
            End::Returned(value) => self.gs.regs.gpr[RAX] = value as u64,
            End::Restarted => self.gs.regs.rip = self.gs.regs.rip.wrapping_sub(2),
            End::Waits => {
                if let Some(thread) = self.threads.get_mut(&self.current) {
                    thread.waits = Some(*call);
                }
            }
            End::Replaced => {}
        }
        Ok(())
    }

    /// The current thread gives itself a name.
    fn named(&mut self, addr: u64) {
        if let Ok(name) = access::read_cstr(addr, LONGEST_NAME)
            && let Some(thread) = self.threads.get_mut(&self.current)
        {
            thread.name = name;
        }
    }

    fn switch(&mut self, to: ThreadId) -> Checked {
        self.set_budget(0);
        if let Some(old) = self.threads.get_mut(&self.current) {
            old.regs = self.gs.regs;
            switch::save_extended(self.gs, &mut old.xsave);
        }
        let Some(new) = self.threads.get(&to) else {
            return self.diverged(format!("thread {to}"), "none of that number");
        };
        self.gs.regs = new.regs;
        switch::load_extended(self.gs, &new.xsave);
        self.current = to;
        Ok(())
    }

    /// Ticks of all threads there are.
    pub fn total_ticks(&mut self) -> u64 {
        self.set_budget(0);
        self.threads.values().map(|thread| thread.ticks).sum()
    }
}

/// The kernel keeps so much of a thread's name.
const LONGEST_NAME: usize = 15;

/// What exec calls a process.
fn name_of(exe: &[u8]) -> Vec<u8> {
    let name = exe.rsplit(|&b| b == b'/').next().unwrap_or(exe);
    name[..name.len().min(LONGEST_NAME)].to_vec()
}

/// At which tick and after how many others the quiet instruction is that the event is about.
pub(super) fn quiet_stop(event: &Event) -> Option<(u64, u32)> {
    match event {
        Event::Instruction {
            ticks,
            what: Instruction::Quiet { passed },
        } => Some((*ticks, *passed)),
        _ => None,
    }
}
