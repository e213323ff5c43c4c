//! A replayed process: guest memory, translated code, and the threads' registers; it takes events and
//! effects one at a time.

use std::collections::BTreeMap;
use std::fmt;

use clew_recording::event::{
    Call, Cause, Effect, End, Event, Instruction, Origin, Place, REGISTERS, Start, ThreadId,
};
use clew_recording::maps::Change;

use crate::cache::CodeCache;
use crate::context::{Exit, GsBlock, R8, R9, R10, RAX, RDI, RDX, RSI, Regs, Xsave};
use crate::guest::access;
use crate::guest::trap_flag::{self, TRAP_FLAG};
use crate::host::{switch, time};
use crate::kernel::{emulate, outputs, sent, table};
use crate::memory::{Copies, Memory};
use crate::record::events::{checksum, show_pages};
use crate::record::values;
use crate::stats::Stats;

/// More single steps than any recorder makes.
const MOST_STEPS: u32 = 1 << 12;
/// More ticks than any stretch between two events.
pub(super) const PLENTY: i64 = i64::MAX / 4;

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
    budget: i64,
    /// Ticks of the current thread since the last event, without what was used of `budget`.
    since: i64,
    /// Ticks of all threads, likewise.
    total: u64,
    /// Single instructions since the tick from which the next event's are counted.
    pub(super) stepped: u32,
    open_file: OpenFile,
    /// Quiet instructions that were passed since the last event or tick: at which, how many.
    passed: (u64, u32),
    /// The next event is behind the quiet instruction with that tick and number.
    pub(super) stop_at_quiet: Option<(u64, u32)>,
    /// The event whose effects are being applied made a thread: they are for its registers.
    new_thread: Option<ThreadId>,
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

type Checked = Result<(), Divergence>;

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

    /// Books the ticks used and allows `budget` more.
    pub(super) fn set_budget(&mut self, budget: i64) {
        let used = (self.budget - self.gs.ticks_left) as u64;
        if let Some(thread) = self.threads.get_mut(&self.current) {
            thread.ticks += used;
        }
        self.since += used as i64;
        self.total += used;
        self.budget = budget;
        self.gs.ticks_left = budget;
        self.gs.kicked = 0;
    }

    /// Runs the current thread until it leaves the cache for something that is an event.
    fn enter(&mut self) -> Exit {
        self.enter_with(false)
    }

    /// The same; with `past`, the instruments of the first instruction don't count.
    pub(super) fn enter_with(&mut self, mut past: bool) -> Exit {
        loop {
            if self.gs.regs.rflags & TRAP_FLAG != 0 {
                return self.step_trapping();
            }
            let (gs, memory) = (&mut *self.gs, &mut self.memory);
            let exit = match std::mem::take(&mut past) {
                true => self.code.enter_past(gs, memory, &mut self.stats),
                false => self.code.enter(gs, memory, &mut self.stats),
            };
            match exit {
                Exit::Fault if self.write_to_code() => {
                    let exit = self.step();
                    if !is_inner(exit) {
                        return exit;
                    }
                    if self.gs.ticks_left == 0 {
                        return Exit::Budget;
                    }
                }
                Exit::Attention => self.gs.attention = 0,
                Exit::Emulate if self.passes() => {}
                _ => return exit,
            }
        }
    }

    /// The current thread stands before an instruction that the engine answers: if it is one without
    /// an event, carries it out.
    pub(super) fn passes(&mut self) -> bool {
        let now = self.since();
        if self.passed.0 != now {
            self.passed = (now, 0);
        }
        if self.stop_at_quiet == Some(self.passed) {
            return false;
        }
        let passes = emulate::quiet(&mut self.gs.regs);
        self.passed.1 += passes as u32;
        passes
    }

    fn step(&mut self) -> Exit {
        self.code
            .step(self.gs, &mut self.memory, &mut self.stats, 1)
    }

    /// One instruction of a thread with the trap flag set, which the CPU mustn't see.
    fn step_trapping(&mut self) -> Exit {
        let opcode = trap_flag::opcode_at(self.gs.regs.rip);
        self.gs.regs.rflags &= !TRAP_FLAG;
        let exit = self.step();
        if opcode != Some(trap_flag::POPF) {
            self.gs.regs.rflags |= TRAP_FLAG;
        }
        exit
    }

    /// A write failed only because its page holds translated code: settled, the instruction is to be
    /// executed again.
    fn write_to_code(&mut self) -> bool {
        const PAGE_FAULT: u64 = 14;
        const WRITE: u64 = 2;
        let fault = self.gs.fault;
        let write =
            fault.signo == libc::SIGSEGV && fault.trapno == PAGE_FAULT && fault.err & WRITE != 0;
        if !write || !self.memory.code_write_fault(fault.addr) {
            return false;
        }
        self.code.code_written(&mut self.memory, fault.addr);
        true
    }

    /// So many ticks from the last event are to go, as a budget.
    pub(super) fn left_of(&self, ticks: u64) -> Result<i64, Divergence> {
        let left = i64::try_from(ticks).ok().filter(|&t| t < PLENTY);
        match left.and_then(|t| t.checked_sub_unsigned(self.since())) {
            Some(left) if left >= 0 => Ok(left),
            _ => self.diverged(format!("an event after {ticks} ticks"), "more ticks"),
        }
    }

    /// Brings the current thread to the next thing that it does by itself, `ticks` after the last event,
    /// which must be one of `kinds`.
    pub(super) fn arrive(
        &mut self,
        ticks: u64,
        kinds: &[Exit],
        what: &dyn Fn() -> String,
    ) -> Result<Exit, Divergence> {
        if let Some(standing) = self.standing.take() {
            if ticks == self.since() && kinds.contains(&standing) {
                return Ok(standing);
            }
            return self.diverged(what(), format!("{standing:?}, where it stood already"));
        }
        let budget = self.left_of(ticks)?;
        // One more than that: reaching it means that the event was missed.
        self.set_budget(budget + 1);
        let exit = self.enter();
        self.no_value_missing()?;
        if !kinds.contains(&exit) {
            return self.diverged(what(), self.describe(exit));
        }
        if self.gs.ticks_left != 1 {
            let found = self.since();
            return self.diverged(
                format!("{} after {ticks} ticks", what()),
                format!("it after {found}"),
            );
        }
        Ok(exit)
    }

    /// Brings the current thread to a place in the midst of its computing.
    fn go_to(&mut self, place: Place, what: &dyn Fn() -> String) -> Checked {
        if place.ticks == 0 && place.steps == 0 {
            return Ok(());
        }
        if let Some(standing) = self.standing.take() {
            return self.diverged(what(), format!("{standing:?}"));
        }
        if self.since() < place.ticks {
            self.run_ticks(place.ticks, what)?;
        }
        self.set_budget(PLENTY);
        while self.stepped < place.steps {
            self.step_to(place, what)?;
        }
        self.set_budget(PLENTY);
        Ok(())
    }

    /// Runs the current thread to exactly so many ticks after the last event.
    pub(super) fn run_ticks(&mut self, ticks: u64, what: &dyn Fn() -> String) -> Checked {
        let budget = self.left_of(ticks)?;
        if budget == 0 {
            return Ok(());
        }
        self.set_budget(budget);
        let exit = loop {
            match self.enter() {
                // With the trap flag set, one instruction.
                exit if is_inner(exit) && exit != Exit::Budget => {}
                exit => break exit,
            }
        };
        self.no_value_missing()?;
        if exit != Exit::Budget {
            return self.diverged(format!("{} in {ticks} ticks", what()), self.describe(exit));
        }
        Ok(())
    }

    /// One of the instructions between the tick and the place.
    pub(super) fn step_to(&mut self, place: Place, what: &dyn Fn() -> String) -> Checked {
        if place.steps > MOST_STEPS {
            return self.diverged("a number of instructions", format!("{}", place.steps));
        }
        let exit = self.step_single();
        if !is_inner(exit) {
            return self.diverged(
                format!("{} after {} instructions", what(), place.steps),
                format!("{} after {}", self.describe(exit), self.stepped),
            );
        }
        self.stepped += 1;
        Ok(())
    }

    /// One instruction, with more ticks in the budget than it can take.
    pub(super) fn step_single(&mut self) -> Exit {
        if self.gs.regs.rflags & TRAP_FLAG != 0 {
            self.step_trapping()
        } else {
            self.step_over_code_writes()
        }
    }

    fn step_over_code_writes(&mut self) -> Exit {
        loop {
            match self.step() {
                Exit::Fault if self.write_to_code() => {}
                Exit::Attention => self.gs.attention = 0,
                exit => return exit,
            }
        }
    }

    pub(super) fn no_value_missing(&self) -> Checked {
        if self.gs.values.missing != 0 {
            return self.diverged("no more time calls", "a time call");
        }
        Ok(())
    }

    /// All answers of fast calls that were there for this stretch were taken.
    fn values_used_up(&self) -> Checked {
        let values = self.gs.values;
        if values.used != values.there {
            let left = values.there - values.used;
            return self.diverged(format!("{left} more time calls"), "none");
        }
        Ok(())
    }

    pub(super) fn describe(&self, exit: Exit) -> String {
        let gpr = &self.gs.regs.gpr;
        match exit {
            Exit::Syscall => {
                let call = table::lookup(gpr[RAX]);
                format!("system call {} ({})", call.name, gpr[RAX])
            }
            Exit::Emulate => "an instruction that the engine answers".into(),
            Exit::Budget => "no event in time".into(),
            Exit::Fault => {
                let fault = self.gs.fault;
                format!("a fault, signal {} at {:#x}", fault.signo, fault.addr)
            }
            other => format!("{other:?}"),
        }
    }

    /// Runs to the event, compares, and does what it says itself; its effects follow.
    pub fn event(&mut self, event: &Event) -> Checked {
        self.new_thread = None;
        self.replay(event)?;
        if !matches!(event, Event::Values(_) | Event::Time(_) | Event::Note(_)) {
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
            Event::Check { .. } | Event::Time(_) | Event::Note(_) => {}
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
            Event::Resumed { result } => {
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
            Event::Shared { ticks } => {
                let what = || "a touch of shared memory".into();
                let kinds = [Exit::Fault, Exit::Emulate, Exit::Syscall];
                let exit = self.arrive(*ticks, &kinds, &what)?;
                self.values_used_up()?;
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
                let found = checksum(&self.gs.regs);
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
            Event::Time(_) | Event::Note(_) => {}
        }
        Ok(())
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

    /// Applies an effect of the last event.
    pub fn effect(&mut self, effect: &Effect) -> Checked {
        match effect {
            Effect::Memory { addr, bytes } => {
                if self.write(*addr, bytes).is_err() {
                    return self.diverged(
                        format!("writable memory at {addr:#x}, {} bytes", bytes.len()),
                        "none",
                    );
                }
            }
            Effect::Registers { mask, values } => {
                let bases = (FS_BASE..REGISTERS).filter(|n| mask >> n & 1 != 0);
                if let Some(base) = bases.map(|n| values[n]).find(|&base| !canonical(base)) {
                    return self.diverged("a segment's base", format!("{base:#x}"));
                }
                let regs = match self.new_thread {
                    None => &mut self.gs.regs,
                    Some(number) => match self.threads.get_mut(&number) {
                        Some(thread) => &mut thread.regs,
                        None => return Ok(()),
                    },
                };
                let words = regs.words_mut();
                for n in (0..REGISTERS).filter(|n| mask >> n & 1 != 0) {
                    words[n] = values[n];
                }
            }
            Effect::Extended([]) => switch::load_extended(self.gs, &Xsave::default()),
            Effect::Extended(bytes) => {
                let Some(area) = Xsave::sound(bytes) else {
                    return self.diverged("vector registers", "malformed data");
                };
                switch::load_extended(self.gs, &area);
            }
            Effect::Map(bytes) => {
                let Ok(change) = Change::decode(bytes) else {
                    return self.diverged("a change of mappings", "malformed data");
                };
                if let Err(error) = self.memory.apply(&change, &mut self.open_file) {
                    return self.diverged(format!("{change:?}"), error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Writes to guest memory as the kernel did: pages with translated code too.
    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), access::Fault> {
        if access::write_bytes(addr, bytes).is_ok() {
            return Ok(());
        }
        if self.memory.unprotect_for_kernel(addr, bytes.len() as u64)
            && access::write_bytes(addr, bytes).is_ok()
        {
            return Ok(());
        }
        self.memory.fill(addr, bytes).map_err(|_| access::Fault)
    }

    /// What the call that the current thread has just made sent to a descriptor: as much as it says, or
    /// for one that waits, all that it was given.
    pub fn outgoing(&self, call: &Call, into: &mut Vec<u8>) {
        let len = match call.end {
            End::Returned(len) => len,
            _ => i64::MAX,
        };
        let ranges = sent::written_bytes(table::lookup(call.nr as u64), &call.args, len);
        for (addr, len) in ranges.unwrap_or_default() {
            let at = into.len();
            // The kernel has read it, so it is there.
            let len = outputs::accessible(addr, len) as usize;
            into.resize(at + len, 0);
            let _ = access::read_bytes(addr, &mut into[at..]);
        }
    }

    /// Before a fork of this process: shared memory for the child.
    pub fn before_fork(&self) -> Result<Copies, Divergence> {
        match self.memory.copy_shared() {
            Ok(copies) => Ok(copies),
            Err(error) => self.diverged("a copy of shared memory", error.to_string()),
        }
    }

    /// In a forked replay of a child: only the current thread is there.
    pub fn become_child(&mut self, shared: Copies) -> Checked {
        self.become_forked()?;
        self.have_own_memory(shared)
    }

    /// From here on this is the child that its parent's stream has just made. The recorded parent goes on
    /// elsewhere, or isn't wanted.
    pub fn become_forked(&mut self) -> Checked {
        let current = self.current;
        self.threads.retain(|&number, _| number == current);
        self.standing = None;
        Ok(())
    }

    /// In a fork of this process: what [`Machine::before_fork`] made is its shared memory.
    pub fn have_own_memory(&mut self, shared: Copies) -> Checked {
        match self.memory.unshare(shared) {
            Ok(()) => Ok(()),
            Err(error) => self.diverged("memory of its own", error.to_string()),
        }
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

/// The first of the two segment bases among the registers of an effect.
const FS_BASE: usize = 18;

/// Whether the CPU can have this in a register for addresses.
fn canonical(addr: u64) -> bool {
    (addr as i64) << 16 >> 16 == addr as i64
}

/// Exits that are no event: translated code went on elsewhere.
pub(super) fn is_inner(exit: Exit) -> bool {
    matches!(
        exit,
        Exit::Step | Exit::Link | Exit::Indirect | Exit::Budget | Exit::Stale
    )
}
