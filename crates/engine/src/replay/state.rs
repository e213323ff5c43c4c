//! The whole state of a process, as the prologue of a stream that begins with it; and back.
//!
//! In: a process that stands somewhere between two instructions. Out: effects for the stream's first event, then the
//! events of the prologue with theirs. The last of these is a check, so that a wrong state is found before anything
//! runs.

use std::ops::Range;

use clew_recording::borrowers;
use clew_recording::event::{Call, Effect, Event, Place, REGISTERS, Record, ThreadId};
use clew_recording::maps::Change;

use super::machine::{Checked, Machine};
use crate::context::{Regs, Xsave};
use crate::host::switch;
use crate::host::time::BUFFER;
use crate::memory::state;
use crate::record::values;
use crate::record::view::checksum_of;

/// The thread that every stream begins with.
const FIRST: ThreadId = 0;

/// Who is told the records.
pub type Put<'a> = &'a mut dyn FnMut(&Record);

impl Machine {
    /// Tells the state. Why not, in words, if it can't be told.
    pub fn tell_state(&mut self, put: Put) -> Result<(), String> {
        if !self.threads.contains_key(&self.current) {
            return Err("no thread runs here".into());
        }
        let mut waits = self.threads.values().filter_map(|thread| thread.waits);
        if waits.any(|call| borrowers::lends(&call)) {
            let text = "a child that vfork has made uses the process's memory here; begin before the vfork, or behind it";
            return Err(text.into());
        }
        self.memory
            .tell(&mut self.open_file, None, &mut Effects::new(put))?;
        let numbers: Vec<ThreadId> = self.threads.keys().copied().collect();
        let threads: Vec<Told> = numbers.iter().map(|&n| self.told_thread(n)).collect();
        tell_threads(&threads, self.current, put);
        self.tell_check(put);
        // Behind the check, which is where all of them are taken.
        let values = self.gs.values;
        self.tell_values(values.used..values.there, put);
        Ok(())
    }

    /// Where the region ends: those of the answers of time calls that were taken so far, and a check.
    pub fn tell_end(&mut self, put: Put) {
        self.tell_values(0..self.gs.values.used, put);
        self.tell_check(put);
    }

    fn tell_values(&self, which: Range<u64>, put: Put) {
        // SAFETY: the buffer has that many entries, and only translated code uses it.
        let buffer = unsafe { std::slice::from_raw_parts(self.gs.values.buffer, BUFFER) };
        let values = buffer.get(which.start as usize..which.end as usize);
        if let Some(values @ [_, ..]) = values {
            let mut room = Vec::new();
            let len = values::encode(values, &mut room);
            put(&Record::Event(Event::Values(&room[..len])));
        }
    }

    /// A check of what is here.
    fn tell_check(&mut self, put: Put) {
        let mut xsave = Xsave::default();
        switch::save_extended(self.gs, &mut xsave);
        let registers = checksum_of(&self.registers_now(), &xsave, &self.memory);
        let memory = Some(self.memory.checksum());
        put(&Record::Event(Event::Check {
            place: Place::default(),
            registers,
            memory,
        }));
    }

    fn told_thread(&mut self, number: ThreadId) -> Told {
        let current = number == self.current;
        let thread = &self.threads[&number];
        let mut told = Told {
            number,
            tid: thread.tid,
            regs: self.without_spoiled(thread.regs),
            xsave: thread.xsave.clone(),
            ticks: thread.ticks,
            name: thread.name.clone(),
            waits: thread.waits,
        };
        if current {
            switch::save_extended(self.gs, &mut told.xsave);
            (told.regs, told.ticks) = (self.registers_now(), self.ticks());
        }
        told
    }

    /// What the prologue says of the current thread.
    pub(super) fn restore(&mut self, ticks: u64, name: &[u8], waits: Option<Call>) -> Checked {
        self.set_budget(0);
        let current = self.current;
        match self.threads.get_mut(&current) {
            Some(thread) => {
                (thread.ticks, thread.waits) = (ticks, waits);
                thread.name = name.to_vec();
                Ok(())
            }
            None => self.diverged("a thread to restore", "none"),
        }
    }
}

/// What is to be told of a thread.
pub struct Told {
    pub number: ThreadId,
    pub tid: i32,
    pub regs: Regs,
    pub xsave: Xsave,
    pub ticks: u64,
    pub name: Vec<u8>,
    /// The call that it waits in.
    pub waits: Option<Call>,
}

impl Told {
    fn tell(&self, put: Put) {
        put(&Record::Event(Event::State {
            ticks: self.ticks,
            name: &self.name,
            waits: self.waits,
        }));
        put(&Record::Effect(Effect::Registers {
            mask: (1 << REGISTERS) - 1,
            values: *self.regs.words(),
        }));
        put(&Record::Effect(Effect::Extended(&self.xsave.0)));
    }
}

/// Tells all threads, in order of their numbers.
pub fn tell_threads(threads: &[Told], current: ThreadId, put: Put) {
    let first = threads.iter().find(|thread| thread.number == FIRST);
    let others = || threads.iter().filter(|thread| thread.number != FIRST);
    if let Some(first) = first {
        first.tell(put);
    }
    for thread in others() {
        let (thread, tid) = (thread.number, thread.tid);
        put(&Record::Event(Event::NewThread { thread, tid }));
    }
    let mut running = FIRST;
    for thread in others() {
        switched(thread.number, put);
        thread.tell(put);
        running = thread.number;
    }
    if first.is_none() {
        put(&Record::Event(Event::EndedThread { thread: FIRST }));
    }
    if running != current {
        switched(current, put);
    }
}

fn switched(to: ThreadId, put: Put) {
    let place = Place::default();
    put(&Record::Event(Event::Switched { place, to }));
}

/// Memory as effects.
pub struct Effects<'a> {
    put: Put<'a>,
    change: Vec<u8>,
}

impl<'a> Effects<'a> {
    pub fn new(put: Put<'a>) -> Effects<'a> {
        Effects {
            put,
            change: Vec::new(),
        }
    }
}

impl state::Told for Effects<'_> {
    fn change(&mut self, change: &Change) {
        self.change.clear();
        change.encode(&mut self.change);
        (self.put)(&Record::Effect(Effect::Map(&self.change)));
    }

    fn contents(&mut self, addr: u64, bytes: &[u8]) {
        (self.put)(&Record::Effect(Effect::Memory { addr, bytes }));
    }
}
