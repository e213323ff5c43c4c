//! Running debug code: a module in, calls of its probes out, and nothing of the replay changed.
//!
//! The module is a static program. Its own start runs until it says that it is ready; then each probe is a call of one of
//! its functions, on its own stack. What it calls of the guest runs in a *world* of its own: another cache, with the
//! guest's segment bases; what that writes is put back at the probe's end. Who goes from one world to the other leaves the
//! cache, because neither can fetch the other's code.

use std::collections::hash_map::Entry;
use std::io;

use rustc_hash::FxHashMap;

use super::answers::Answer;
use super::files::Files;
use super::space::{self, Space};
use crate::cache::CodeCache;
use crate::context::{Exit, Fault, GsBlock, RAX, RDI, RSP, Regs, Values, Xsave};
use crate::guest::access;
use crate::host::{switch, time};
use crate::kernel::cpuid::Cpuid;
use crate::kernel::emulate;
use crate::layout::PROBE;
use crate::memory::{Fetch, Memory};
use crate::replay::Machine;
use crate::replay::worker::excursion::now;
use crate::replay::worker::protocol::probing::{
    DONE, Failed, Failure, Hit, Module, READY, Told, WORDS,
};
use crate::stats::Stats;
use crate::translate::checks::Confined;

/// So many ticks are run at once.
const SLICE: u64 = 1 << 20;
/// What is told is handed over when it has so many bytes.
const MUCH: usize = 48 << 10;
/// A message costs some bytes of its own.
const OVERHEAD: usize = 48;
/// Carry, interrupts, and the bit that is always set: what programs begin with.
const FLAGS: u64 = 0x202;
/// So many words of a stack are looked at for so many return addresses.
const DEEP: usize = 4096;
const RETURNS: usize = 32;
/// Bytes of a vector register that probes see.
const VECTOR: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The module's code.
    Module,
    /// The guest's, called by the module.
    Guest,
}

pub struct Runner {
    pub(super) module: Module,
    pub(super) space: Space,
    pub(super) world: World,
    own: CodeCache,
    /// Made when the module first calls the guest.
    called: Option<CodeCache>,
    stats: Stats,
    cpuid: Cpuid,
    /// The module's registers where it said that it is ready.
    ready: Regs,
    /// Its fs base while the guest's is in use.
    fs: u64,
    /// Answers of time calls are put here, not where the replay's are.
    values: Values,
    /// Pages of the program's memory that were written by the probe that runs, as they were.
    kept: FxHashMap<u64, Vec<u8>>,
    pub(super) undone: u64,
    pub(super) files: Option<Files>,
    told: Vec<Told>,
    told_bytes: usize,
    hit: Option<Hit>,
    /// Where the module called the guest.
    from: u64,
    /// The guest's segment bases at this hit.
    bases: (u64, u64),
}

/// What the replay has, while debug code runs.
struct Aside {
    regs: Regs,
    extended: Xsave,
    ticks_left: i64,
    kicked: i64,
    attention: u32,
    fault: Fault,
    values: Values,
    vdso: [u64; 4],
}

impl Aside {
    fn put(gs: &mut GsBlock) -> Aside {
        let mut extended = Xsave::default();
        switch::save_extended(gs, &mut extended);
        Aside {
            regs: gs.regs,
            extended,
            ticks_left: gs.ticks_left,
            kicked: gs.kicked,
            attention: gs.attention,
            fault: gs.fault,
            values: gs.values,
            vdso: gs.vdso,
        }
    }

    fn back(self, gs: &mut GsBlock) {
        switch::load_extended(gs, &self.extended);
        gs.regs = self.regs;
        gs.ticks_left = self.ticks_left;
        gs.kicked = self.kicked;
        gs.attention = self.attention;
        gs.fault = self.fault;
        gs.values = self.values;
        gs.vdso = self.vdso;
    }
}

/// How a run of debug code ended.
enum Ended {
    Ready,
    Done,
    Failed(Failure),
}

impl Runner {
    /// Loads a module and runs its start.
    pub fn start(machine: &mut Machine, mut module: Module) -> Result<Runner, String> {
        let space = Space::load(&module.segments)?;
        let no_room = |error: io::Error| format!("no room for a probe's code: {error}");
        let own = machine.code.confined(Confined::Module).map_err(no_room)?;
        machine.memory.keep_stale();
        let buffer = Box::leak(vec![[0u64; 3]; time::BUFFER].into_boxed_slice()).as_mut_ptr();
        let mut runner = Runner {
            space,
            own,
            called: None,
            world: World::Module,
            stats: Stats::default(),
            cpuid: Cpuid::default(),
            ready: Regs::default(),
            fs: 0,
            values: Values {
                buffer,
                used: 0,
                there: 0,
                missing: 0,
            },
            kept: FxHashMap::default(),
            undone: 0,
            files: module.files.take().map(Files::new),
            told: Vec::new(),
            told_bytes: 0,
            hit: None,
            from: 0,
            bases: (0, 0),
            module,
        };
        let mut regs = Regs {
            rip: runner.module.entry,
            rflags: FLAGS,
            ..Regs::default()
        };
        regs.gpr[RSP] = runner.first_stack();
        let aside = runner.begin(machine);
        let ended = runner.run(machine, regs);
        aside.back(machine.gs);
        runner.module.segments = Vec::new();
        match ended {
            Ended::Ready => Ok(runner),
            Ended::Done => Err("a module that was done before it was ready".into()),
            Ended::Failed(why) => Err(format!("a module that can't be started: {why:?}")),
        }
    }

    /// The stack that a program begins with: arguments, environment, and what it is told of its image.
    fn first_stack(&self) -> u64 {
        const AT_PHDR: u64 = 3;
        const AT_PHENT: u64 = 4;
        const AT_PHNUM: u64 = 5;
        const AT_PAGESZ: u64 = 6;
        const AT_ENTRY: u64 = 9;
        const AT_RANDOM: u64 = 25;
        let name = space::STACK.end - 64;
        let random = name + 16;
        let (headers, count) = self.module.headers;
        let words = [
            1,
            name,
            0,
            0,
            AT_PHDR,
            headers,
            AT_PHENT,
            56,
            AT_PHNUM,
            count,
            AT_PAGESZ,
            4096,
            AT_ENTRY,
            self.module.entry,
            AT_RANDOM,
            random,
            0,
            0,
        ];
        let at = (name - 8 * words.len() as u64) & !15;
        let _ = access::write_bytes(name, b"probe\0");
        let _ = access::write(at, &words);
        at
    }

    /// Runs a probe. `regs` are the program's. Whether it came to its end.
    pub fn call(&mut self, machine: &mut Machine, hit: Hit, regs: &Regs, extra: [u64; 2]) -> bool {
        let mut words = [0u64; WORDS];
        words[..20].copy_from_slice(regs.words());
        words[20..25].copy_from_slice(&[
            hit.at.event,
            hit.at.ticks,
            u64::from(hit.thread),
            extra[0],
            extra[1],
        ]);
        let _ = access::write(self.module.hit, &words);
        let vectors = self.module.probes.get(hit.probe as usize);
        if vectors.is_some_and(|probe| probe.vectors) {
            let all = machine
                .gs
                .ymm
                .iter()
                .flat_map(|ymm| ymm[..VECTOR].iter().copied());
            let all: Vec<u8> = all.collect();
            let _ = access::write_bytes(self.module.hit + 8 * WORDS as u64, &all);
        }
        self.hit = Some(hit);
        let mut own = self.ready;
        own.rip = self.module.enter;
        own.gpr[RDI] = u64::from(hit.probe);
        own.rflags = FLAGS;
        // Below what its start left on the stack, and aligned as a call leaves it.
        own.gpr[RSP] = (self.ready.gpr[RSP].wrapping_sub(512) & !15).wrapping_sub(8);
        let _ = access::write(own.gpr[RSP], &0u64);
        let aside = self.begin(machine);
        self.bases = (aside.regs.fs_base, aside.regs.gs_base);
        let ended = self.run(machine, own);
        let ended = match ended {
            Ended::Done if machine.gs.regs.gpr[RSP] > own.gpr[RSP] => Ended::Failed(Failure::Left),
            ended => ended,
        };
        let failed = match ended {
            Ended::Done => None,
            Ended::Ready => Some(Failure::Left),
            Ended::Failed(why) => Some(why),
        };
        if let Some(why) = failed {
            self.tell_failed(&machine.gs.regs, why);
        }
        aside.back(machine.gs);
        self.put_back();
        self.hit = None;
        failed.is_none()
    }

    /// Lets the module end: the program has.
    pub fn end(&mut self, machine: &mut Machine) {
        let mut regs = self.ready;
        regs.gpr[RAX] = 0;
        self.hit = None;
        let aside = self.begin(machine);
        let ended = self.run(machine, regs);
        match ended {
            Ended::Failed(Failure::Exited { status: 0 }) => {}
            Ended::Failed(why) => self.tell_failed(&machine.gs.regs, why),
            Ended::Ready | Ended::Done => self.tell_failed(&machine.gs.regs, Failure::Left),
        }
        aside.back(machine.gs);
        self.put_back();
    }

    /// Keeps how debug code failed, with these registers of its own.
    fn tell_failed(&mut self, regs: &Regs, why: Failure) {
        let failed = Failed {
            at: self.hit,
            pc: regs.rip,
            from: self.from,
            stack: self.returns(regs.gpr[RSP]),
            why,
        };
        self.told_bytes += 2 * OVERHEAD + 8 * failed.stack.len();
        self.told.push(Told::Failed(failed));
    }

    /// What may be return addresses on the module's stack. Its libc can't be unwound, but says nothing of lines either.
    fn returns(&self, sp: u64) -> Vec<u64> {
        let from = match space::is_gap(sp) {
            true => space::STACK.start,
            false => sp & !7,
        };
        let words = (from..self.ready.gpr[RSP]).step_by(8).take(DEEP);
        words
            .filter_map(|at| access::read::<u64>(at).ok())
            .filter(|word| self.space.text.contains(word))
            .take(RETURNS)
            .collect()
    }

    fn begin(&mut self, machine: &mut Machine) -> Aside {
        machine.code.settle(&mut machine.memory);
        match &mut self.called {
            Some(called) => called.settle_too(&mut machine.memory),
            None => drop(machine.memory.take_stale_too()),
        }
        let gs = &mut *machine.gs;
        let aside = Aside::put(gs);
        switch::load_extended(gs, &Xsave::default());
        gs.kicked = 0;
        gs.attention = 0;
        gs.values = self.values;
        self.world = World::Module;
        self.from = 0;
        aside
    }

    /// Runs from these registers on, until the module says something or fails.
    fn run(&mut self, machine: &mut Machine, regs: Regs) -> Ended {
        let gs = &mut *machine.gs;
        let memory = &mut machine.memory;
        gs.regs = regs;
        memory.module = Some(self.space.text.clone());
        let ended = self.run_in(gs, memory);
        memory.module = None;
        ended
    }

    fn run_in(&mut self, gs: &mut GsBlock, memory: &mut Memory) -> Ended {
        let mut ticks = 0;
        let mut past = false;
        gs.ticks_left = SLICE as i64;
        loop {
            let code = match (self.world, &mut self.called) {
                (World::Guest, Some(called)) => called,
                _ => &mut self.own,
            };
            let exit = match std::mem::take(&mut past) {
                true => code.enter_past(gs, memory, &mut self.stats),
                false => code.enter(gs, memory, &mut self.stats),
            };
            match exit {
                Exit::Budget => {
                    ticks += SLICE;
                    gs.ticks_left = SLICE as i64;
                    if ticks >= self.module.most_ticks {
                        return Ended::Failed(Failure::Endless);
                    }
                }
                Exit::Syscall if self.world == World::Module && gs.regs.gpr[RAX] == DONE => {
                    return Ended::Done;
                }
                Exit::Syscall if self.world == World::Module && gs.regs.gpr[RAX] == READY => {
                    self.ready = gs.regs;
                    return Ended::Ready;
                }
                Exit::Syscall => match self.answer(gs) {
                    Answer::Value(value) => gs.regs.gpr[RAX] = value as u64,
                    Answer::Fails(why) => return Ended::Failed(why),
                },
                Exit::Emulate if emulate::alone(gs, memory, &mut self.cpuid) => {}
                Exit::Emulate => {
                    return Ended::Failed(Failure::Signal {
                        signo: libc::SIGILL,
                        addr: gs.regs.rip,
                    });
                }
                Exit::Watch => {
                    if let Err(why) = self.writes(gs) {
                        return Ended::Failed(why);
                    }
                    past = true;
                }
                Exit::Fault => {
                    if let Err(why) = self.faulted(gs, memory) {
                        return Ended::Failed(why);
                    }
                }
                Exit::Attention => gs.attention = 0,
                _ => {}
            }
        }
    }

    /// An instruction would write to other memory than the module's own.
    fn writes(&mut self, gs: &mut GsBlock) -> Result<(), Failure> {
        let code = match (self.world, &mut self.called) {
            (World::Guest, Some(called)) => called,
            _ => &mut self.own,
        };
        for access in code.accesses(gs) {
            let own = PROBE.contains(&access.addr);
            if !access.write || access.len == 0 || own {
                continue;
            }
            if self.world == World::Module || self.module.strict {
                return Err(Failure::Write { addr: access.addr });
            }
            self.keep(access.addr, access.len);
        }
        Ok(())
    }

    /// Remembers the program's memory before it is written for debug code; false if that may not be.
    pub(super) fn keep(&mut self, addr: u64, len: u64) -> bool {
        const PAGE: u64 = 4096;
        if PROBE.contains(&addr) {
            return true;
        }
        if self.world == World::Module || self.module.strict {
            return false;
        }
        self.undone += 1;
        // What isn't there can't be written either.
        let (mut page, end) = (addr & !(PAGE - 1), addr.saturating_add(len));
        while page < end {
            if let Entry::Vacant(kept) = self.kept.entry(page) {
                let mut bytes = vec![0; PAGE as usize];
                if access::read_bytes(page, &mut bytes).is_ok() {
                    kept.insert(bytes);
                }
            }
            page += PAGE;
        }
        true
    }

    fn put_back(&mut self) {
        for (page, bytes) in self.kept.drain() {
            // What can't be written wasn't.
            let _ = access::write_bytes(page, &bytes);
        }
    }

    /// A fault; it may only mean that code of the other world is called.
    fn faulted(&mut self, gs: &mut GsBlock, memory: &mut Memory) -> Result<(), Failure> {
        let fault = gs.fault;
        let pc = gs.regs.rip;
        if fault.host_pc != 0 || fault.addr != pc {
            return Err(match space::is_gap(fault.addr) {
                true => Failure::Overflow,
                false => Failure::Signal {
                    signo: fault.signo,
                    addr: fault.addr,
                },
            });
        }
        let jump = Failure::Jump { to: pc };
        match self.world {
            World::Module => {
                memory.module = None;
                let there = matches!(memory.fetch(pc), Fetch::Executable(code) if code.immutable);
                if !there || self.hit.is_none() {
                    return Err(jump);
                }
                self.call_guest(gs, memory)
            }
            World::Guest if self.space.text.contains(&pc) => {
                memory.module = Some(self.space.text.clone());
                self.world = World::Module;
                self.from = 0;
                gs.regs.fs_base = self.fs;
                gs.regs.gs_base = 0;
                Ok(())
            }
            World::Guest => Err(jump),
        }
    }

    fn call_guest(&mut self, gs: &mut GsBlock, memory: &mut Memory) -> Result<(), Failure> {
        if self.called.is_none() {
            let no_room = |_| Failure::Signal {
                signo: libc::SIGKILL,
                addr: 0,
            };
            let called = self.own.confined(Confined::Guest).map_err(no_room)?;
            drop(memory.take_stale_too());
            self.called = Some(called);
        }
        let (real, monotonic) = (now(libc::CLOCK_REALTIME), now(libc::CLOCK_MONOTONIC));
        time::freeze(gs, real, monotonic);
        self.world = World::Guest;
        self.from = access::read(gs.regs.gpr[RSP]).unwrap_or(0);
        self.fs = gs.regs.fs_base;
        (gs.regs.fs_base, gs.regs.gs_base) = self.bases;
        Ok(())
    }

    /// Keeps what debug code prints.
    pub(super) fn tell(&mut self, to: u32, mut more: Vec<u8>) {
        self.told_bytes += more.len();
        if let Some(Told::Output { at, fd, bytes }) = self.told.last_mut()
            && *at == self.hit
            && *fd == to
            && bytes.len() + more.len() <= MUCH
        {
            bytes.append(&mut more);
            return;
        }
        self.told_bytes += OVERHEAD;
        self.told.push(Told::Output {
            at: self.hit,
            fd: to,
            bytes: more,
        });
    }

    /// The same of its files.
    pub(super) fn tell_file(&mut self, told: Told) {
        if let Told::Wrote { bytes, .. } = &told {
            self.told_bytes += bytes.len();
        }
        self.told_bytes += 2 * OVERHEAD;
        self.told.push(told);
    }

    /// Is there enough to be handed over?
    pub fn is_much(&self) -> bool {
        self.told_bytes >= MUCH
    }

    /// What was told since, in messages that aren't too long.
    pub fn take_told(&mut self) -> Vec<Vec<Told>> {
        self.told_bytes = 0;
        let (mut all, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
        for told in self.told.drain(..) {
            let len = OVERHEAD
                + match &told {
                    Told::Output { bytes, .. } => bytes.len(),
                    Told::Failed(failed) => OVERHEAD + 8 * failed.stack.len(),
                    Told::Wrote { name, bytes, .. } => name.len() + bytes.len(),
                    Told::Emptied { name } => name.len(),
                };
            if bytes + len > 2 * MUCH && !some.is_empty() {
                all.push(std::mem::take(&mut some));
                bytes = 0;
            }
            bytes += len;
            some.push(told);
        }
        if !some.is_empty() {
            all.push(some);
        }
        all
    }
}
