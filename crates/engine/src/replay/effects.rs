//! What events change of a replayed process, other than by its own instructions: registers, memory, mappings;
//! and what it takes to be a fork of itself.

use clew_recording::event::{Call, Effect, End, REGISTERS};
use clew_recording::maps::Change;

use super::machine::{Checked, Divergence, Machine};
use crate::context::Xsave;
use crate::guest::access;
use crate::host::switch;
use crate::kernel::{outputs, sent, table};
use crate::memory::Copies;

impl Machine {
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
            // Nothing of the guest's: whoever shows output looks at it.
            Effect::Output { .. } => {}
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
}

/// The first of the two segment bases among the registers of an effect.
const FS_BASE: usize = 18;

/// Whether the CPU can have this in a register for addresses.
fn canonical(addr: u64) -> bool {
    (addr as i64) << 16 >> 16 == addr as i64
}
