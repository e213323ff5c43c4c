//! What a worker shows of the place where it stands: threads, registers, memory, mappings.

use clew_recording::codec::Encoder;
use clew_recording::event::{LONGEST_RECORD, Record, ThreadId};

use super::protocol::{LONGEST_READ, Mapping, Registers, Reply, Thread};
use super::serve::Worker;
use super::travel::{Done, Halt};
use crate::context::{RSP, Regs, Xsave};
use crate::host::switch;
use crate::memory::{Backing, PAGE};

/// So many bytes of mappings fit into a message, by a careful estimate.
const ROOM: usize = 96 << 10;
/// And so many threads.
const MOST_THREADS: usize = 1024;

impl Worker {
    pub(super) fn show_threads(&mut self) -> Reply {
        let now = self.machine.registers_now();
        let current = self.machine.current;
        let threads = self.machine.threads.iter().take(MOST_THREADS);
        let threads = threads.map(|(&number, thread)| {
            let regs = if number == current {
                &now
            } else {
                &thread.regs
            };
            Thread {
                number,
                tid: thread.tid,
                name: String::from_utf8_lossy(&thread.name).into_owned(),
                pc: regs.rip,
                sp: regs.gpr[RSP],
                waits: thread.waits.map(|call| call.nr),
            }
        });
        Reply::Threads(threads.collect())
    }

    pub(super) fn show_listing(&mut self, pc: u64) -> Reply {
        let machine = &self.machine;
        let mut text = machine
            .code
            .listing(&machine.memory, pc)
            .unwrap_or_default();
        text.truncate(text.floor_char_boundary(ROOM));
        Reply::Listing(text)
    }

    pub(super) fn show_registers(&mut self, thread: ThreadId) -> Reply {
        let told = |regs: &Regs, xsave: &Xsave| {
            Box::new(Registers {
                words: *regs.words(),
                extended: xsave.0.to_vec(),
            })
        };
        let machine = &mut self.machine;
        if !machine.threads.contains_key(&thread) {
            return Reply::Registers(None);
        }
        if thread == machine.current {
            let mut xsave = Xsave::default();
            switch::save_extended(machine.gs, &mut xsave);
            return Reply::Registers(Some(told(&machine.registers_now(), &xsave)));
        }
        let found = machine.threads.get(&thread);
        let shown = found.map(|found| told(&machine.without_spoiled(found.regs), &found.xsave));
        Reply::Registers(shown)
    }

    /// Sends the state in pieces.
    pub(super) fn show_state(&mut self, whole: bool) -> Done<Reply> {
        let mut encoder = Encoder::default();
        let mut room = vec![0; 2 * LONGEST_RECORD];
        let mut piece = Vec::new();
        let channel = &self.channel;
        let mut put = |record: &Record| {
            let len = match record {
                Record::Event(event) => encoder.event(event, &mut room),
                Record::Effect(effect) => encoder.effect(effect, &mut room),
            };
            if piece.len() + len > LONGEST_READ && !piece.is_empty() {
                channel.send(&Reply::State(std::mem::take(&mut piece)));
            }
            piece.extend_from_slice(&room[..len]);
        };
        match whole {
            true => self.machine.tell_state(&mut put).map_err(Halt::Refused)?,
            false => self.machine.tell_end(&mut put),
        }
        channel.send(&Reply::State(piece));
        Ok(Reply::Done)
    }

    pub(super) fn show_memory(&mut self, addr: u64, len: u32) -> Reply {
        let mut bytes = vec![0; (len as usize).min(LONGEST_READ)];
        let len = self.read_memory(addr, &mut bytes);
        bytes.truncate(len);
        Reply::Memory(bytes)
    }

    /// Reads page by page; how much can be read.
    pub(super) fn read_memory(&self, addr: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(at) = addr.checked_add(done as u64) else {
                break;
            };
            let len = ((PAGE - at % PAGE) as usize).min(into.len() - done);
            if !self.machine.memory.show(at, &mut into[done..done + len]) {
                break;
            }
            done += len;
        }
        done
    }

    pub(super) fn show_mappings(&mut self, from: u64) -> Reply {
        let memory = &self.machine.memory;
        let mut found = Vec::new();
        let mut room = 0;
        for m in memory.iter().filter(|m| m.end > from) {
            let (name, copy, offset) = match m.backing {
                Backing::Anon => (String::new(), None, 0),
                Backing::Heap => ("[heap]".into(), None, 0),
                Backing::Stack => ("[stack]".into(), None, 0),
                Backing::Vdso => ("[vdso]".into(), None, 0),
                Backing::Shm => ("[shm]".into(), None, 0),
                Backing::File { file, offset, .. } => {
                    let (path, copy) = memory.file_names(&file);
                    let path = String::from_utf8_lossy(path).into_owned();
                    (path, copy.map(str::to_owned), offset)
                }
            };
            let start = match m.backing {
                Backing::Stack => m.start.max(memory.stack_floor()),
                _ => m.start,
            };
            room += 64 + name.len() + copy.as_ref().map_or(0, String::len);
            if room > ROOM {
                break;
            }
            if start < m.end {
                found.push(Mapping {
                    start,
                    end: m.end,
                    prot: m.prot as u32,
                    shared: m.shared,
                    name,
                    offset,
                    copy,
                });
            }
        }
        Reply::Mappings(found)
    }
}
