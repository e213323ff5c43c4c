//! The whole state of a replayed process, as the prologue of a stream that begins with it; and back.
//!
//! In: a process that stands somewhere between two instructions. Out: effects for the stream's first event, then the
//! events of the prologue with theirs. The last of these is a check, so that a wrong state is found before anything
//! runs.

use std::ops::Range;

use clew_recording::borrowers;
use clew_recording::event::{Effect, Event, Place, REGISTERS, Record, ThreadId};
use clew_recording::maps::Change;

use super::machine::{Checked, Machine};
use crate::context::{Regs, Xsave};
use crate::host::switch;
use crate::host::time::BUFFER;
use crate::memory::state::Told;
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
        self.memory.tell(
            &mut self.open_file,
            &mut Effects {
                put,
                change: Vec::new(),
            },
        )?;
        let others = self.threads.keys().copied().filter(|&n| n != FIRST);
        let others: Vec<ThreadId> = others.collect();
        if self.threads.contains_key(&FIRST) {
            self.tell_thread(FIRST, put);
        }
        for &thread in &others {
            let tid = self.threads[&thread].tid;
            put(&Record::Event(Event::NewThread { thread, tid }));
        }
        let mut running = FIRST;
        for &thread in &others {
            switched(thread, put);
            self.tell_thread(thread, put);
            running = thread;
        }
        if !self.threads.contains_key(&FIRST) {
            put(&Record::Event(Event::EndedThread { thread: FIRST }));
        }
        if running != self.current {
            switched(self.current, put);
        }
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

    fn tell_thread(&mut self, number: ThreadId, put: Put) {
        let (regs, xsave): (Regs, Xsave) = match number == self.current {
            true => {
                let mut xsave = Xsave::default();
                switch::save_extended(self.gs, &mut xsave);
                (self.registers_now(), xsave)
            }
            false => {
                let thread = &self.threads[&number];
                (self.without_spoiled(thread.regs), thread.xsave.clone())
            }
        };
        let ticks = match number == self.current {
            true => self.ticks(),
            false => self.threads[&number].ticks,
        };
        let thread = &self.threads[&number];
        put(&Record::Event(Event::State {
            ticks,
            name: &thread.name,
            waits: thread.waits,
        }));
        put(&Record::Effect(Effect::Registers {
            mask: (1 << REGISTERS) - 1,
            values: *regs.words(),
        }));
        put(&Record::Effect(Effect::Extended(&xsave.0)));
    }

    /// What the prologue says of the current thread.
    pub(super) fn restore(
        &mut self,
        ticks: u64,
        name: &[u8],
        waits: Option<clew_recording::event::Call>,
    ) -> Checked {
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

fn switched(to: ThreadId, put: Put) {
    let place = Place::default();
    put(&Record::Event(Event::Switched { place, to }));
}

/// Memory as effects.
struct Effects<'a> {
    put: Put<'a>,
    change: Vec<u8>,
}

impl Told for Effects<'_> {
    fn change(&mut self, change: &Change) {
        self.change.clear();
        change.encode(&mut self.change);
        (self.put)(&Record::Effect(Effect::Map(&self.change)));
    }

    fn contents(&mut self, addr: u64, bytes: &[u8]) {
        (self.put)(&Record::Effect(Effect::Memory { addr, bytes }));
    }
}
