//! An instruction that faulted. In: the signal, and the scene before the instruction. Out: which address or divisor it was,
//! where that came from, and what memory it is about.

use clew_calls::names;
use clew_recording::event::ThreadId;
use clew_slice::origin::{Source, Step, Value};
use clew_timeline::{Mapping, Registers};
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::memory::Memory;
use super::tell::{number_text, quoted};
use super::trail::{Choice, NULL_PAGE, Trail, general, register_value};
use super::{Asking, Kind};
use crate::Result;
use crate::scene::{Site, is_own_file, plain_name};

const SIGILL: i32 = 4;
const SIGFPE: i32 = 8;
const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
/// A stack that overflowed is touched so near below its pointer.
const NEAR: u64 = 1 << 20;
/// And has at least so many frames.
const DEEP: usize = 100;
/// The innermost ones may be of something that doesn't repeat.
const LAST_CALLS: usize = 16;

/// Memory that an instruction can't touch.
pub struct Bad {
    pub address: u64,
    pub write: bool,
    used: UsedMemory,
}

impl Asking<'_> {
    /// The scene stands before the instruction.
    pub fn fault(&mut self, thread: ThreadId, signo: i32) -> Result<()> {
        let position = self.scene.here()?;
        let stack = self.scene.stack(thread)?;
        let site = self.scene.site_in(&stack, thread, position);
        let registers = self.scene.registers(thread)?;
        let mappings = self.scene.mappings()?;
        let name = names::signal(signo);
        let pc = registers.words[16];
        let executable = mapping(&mappings, pc).is_some_and(|found| found.prot & PROT_EXEC != 0);
        if !executable {
            return self.wild_jump(thread, &site, &registers, &name);
        }
        let Some(ins) = self.scene.instruction(pc)? else {
            self.answer.kind = Kind::Unknown;
            self.say(format!("{name}{}.", quoted(&site)), Some(site));
            self.looked(format!("the instruction at {pc:#x}, which can't be read"));
            return Ok(());
        };
        let bad = bad_memory(&ins, &registers, &mappings);
        if self.overflowed(thread, &site, &registers, bad.as_ref(), &mappings)? {
            return Ok(());
        }
        if self.in_allocator(&stack, thread)? {
            return Ok(());
        }
        if signo == SIGFPE {
            return self.division(&ins, thread, &site, &registers);
        }
        let trap = matches!(
            ins.mnemonic(),
            Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2
        );
        if signo == SIGILL && trap {
            self.answer.kind = Kind::Abort;
            let text = format!(
                "{name}: a trap that the compiler has put there{}.",
                quoted(&site)
            );
            self.say(text, Some(site.clone()));
            return self.explain_decision(thread, 0, &site, 0);
        }
        if ins.flow_control() == FlowControl::Return {
            let sp = registers.words[4];
            let value = Value::Memory { addr: sp, len: 8 };
            return self.smashed_return(&value, thread, &site, &name);
        }
        let Some(bad) = bad else {
            self.answer.kind = Kind::Unknown;
            self.say(format!("{name}{}.", quoted(&site)), Some(site));
            self.looked(format!(
                "the memory that the instruction at {pc:#x} touches: all of it is there"
            ));
            return Ok(());
        };
        self.bad_access(thread, &site, &registers, &bad, &mappings, &name)
    }

    fn bad_access(
        &mut self,
        thread: ThreadId,
        site: &Site,
        registers: &Registers,
        bad: &Bad,
        mappings: &[Mapping],
        name: &str,
    ) -> Result<()> {
        let position = self.scene.here()?;
        let verb = match bad.write {
            true => "write to",
            false => "read from",
        };
        let address = bad.address;
        let null = address < NULL_PAGE;
        let inside = match &site.inside {
            Some(inside) => format!(" (in {inside})"),
            None => String::new(),
        };
        let what = match (null, mapping(mappings, address)) {
            (true, _) => "the null page".into(),
            (false, Some(_)) => format!("{address:#x}, which may not be touched in that way"),
            (false, None) => format!("{address:#x}, where nothing is mapped"),
        };
        self.say(
            format!("{name}: a {verb} {what}{inside}{}.", quoted(site)),
            Some(site.clone()),
        );
        // Memory of the heap that went back to the kernel.
        if !null
            && let Some(held) = self.scene.block_at(address, position)?
            && held.gone
        {
            self.answer.kind = Kind::UseAfterFree;
            return self.freed_block(&held, "The memory");
        }
        let value_of = |register: Register| match register {
            Register::None => None,
            Register::RIP | Register::EIP => None,
            register => general(registers, register),
        };
        let base = value_of(bad.used.base());
        let index = value_of(bad.used.index());
        let there = |address: u64| mapping(mappings, address).is_some();
        let culprit = match (base, index) {
            (Some(base), Some(_)) if there(base) => bad.used.index(),
            (Some(_), _) => bad.used.base(),
            (None, Some(_)) => bad.used.index(),
            (None, None) => {
                self.answer.kind = Kind::WildPointer;
                self.looked("the address, which is part of the instruction itself");
                return Ok(());
            }
        };
        let value = value_of(culprit).unwrap_or(0);
        self.scene.go(position)?;
        let choice = match value < NULL_PAGE {
            true => Choice::Null,
            false => Choice::Number,
        };
        let trail = self.trail(&register_value(thread, culprit), choice)?;
        let what = match value {
            0 => "The null pointer".to_string(),
            value if value < NULL_PAGE && trail.choices > 0 => "The null pointer".to_string(),
            value if value < NULL_PAGE => format!("The pointer {value:#x}"),
            value if culprit == bad.used.index() && base.is_some_and(there) => {
                format!("The index {}", number_text(value))
            }
            value => format!("The pointer {value:#x}"),
        };
        self.answer.kind = match value < NULL_PAGE {
            true => Kind::NullPointer,
            false => Kind::WildPointer,
        };
        self.pointer(&trail, site, &what, value)
    }

    /// Where a bad pointer came from: what memory it was read from, who wrote there, what it was made of.
    pub fn pointer(&mut self, trail: &Trail, site: &Site, what: &str, value: u64) -> Result<()> {
        match self.memory_of(trail)? {
            Some(Memory::Freed(held, step)) => {
                self.answer.kind = Kind::UseAfterFree;
                let at = self.site_of(&step)?;
                let offset = read_at(&step).unwrap_or(held.block.address) - held.block.address;
                let text = format!(
                    "{what} was read from freed memory, {offset} bytes into a block of {}{}.",
                    held.block.size,
                    quoted(&at)
                );
                self.say(text, Some(at));
                self.freed_block(&held, "The block")
            }
            Some(Memory::Unwritten(held, step)) => {
                self.answer.kind = Kind::Uninitialised;
                self.unwritten_block(&held, &step, what)
            }
            Some(Memory::UnwrittenLocal(local)) => {
                self.answer.kind = Kind::Uninitialised;
                self.unwritten_local(&local, what)
            }
            Some(Memory::Overrun {
                victim,
                of,
                step,
                address,
            }) => {
                self.answer.kind = Kind::HeapOverflow;
                self.overrun(victim.as_ref(), &of, &step, address, what)
            }
            Some(Memory::WrittenFreed { of, step, .. }) => {
                self.answer.kind = Kind::UseAfterFree;
                let at = self.site_of(&step)?;
                let other = self.other_thread(site, step.thread);
                let text = format!(
                    "{what} was written through a pointer to memory that was freed{other}{}.",
                    quoted(&at)
                );
                self.say(text, Some(at));
                self.freed_block(&of, "That memory")
            }
            Some(Memory::Trampled(step)) if value >= NULL_PAGE => {
                let at = self.site_of(&step)?;
                let other = self.other_thread(site, step.thread);
                let text = format!(
                    "{what} was written over by something else: bytes, not a pointer{other}{}.",
                    quoted(&at)
                );
                self.add(text, Some(at), true, true);
                Ok(())
            }
            _ => self.tell_source(trail, site, what),
        }
    }

    /// The program went to an address where no code is.
    fn wild_jump(
        &mut self,
        thread: ThreadId,
        site: &Site,
        registers: &Registers,
        name: &str,
    ) -> Result<()> {
        let (pc, sp) = (registers.words[16], registers.words[4]);
        // A call has left its return address; a return has taken it.
        let back = self.scene.number(sp, 8)?.unwrap_or(0);
        let call = self.call_before(back)?;
        let Some(call) = call else {
            let value = Value::Memory {
                addr: sp.wrapping_sub(8),
                len: 8,
            };
            return self.smashed_return(&value, thread, site, name);
        };
        let kind = match pc < NULL_PAGE {
            true => Kind::NullPointer,
            false => Kind::WildPointer,
        };
        self.answer.kind = kind;
        let function = match pc {
            0 => "a null function pointer".to_string(),
            pc => format!("{pc:#x}, where no code is"),
        };
        self.say(
            format!("{name}: a call of {function}{}.", quoted(site)),
            Some(site.clone()),
        );
        let value = match call.op0_kind() {
            OpKind::Register => Some(register_value(thread, call.op0_register())),
            OpKind::Memory => {
                let used = InstructionInfoFactory::new()
                    .info(&call)
                    .used_memory()
                    .first()
                    .copied();
                let address = used.and_then(|used| address_of(&used, registers));
                address.map(|addr| Value::Memory { addr, len: 8 })
            }
            _ => None,
        };
        let Some(value) = value else {
            self.looked("the call, whose target isn't in a register or memory");
            return Ok(());
        };
        let trail = self.trail(&value, Choice::Number)?;
        let what = match pc {
            0 => "The null pointer".to_string(),
            pc => format!("The pointer {pc:#x}"),
        };
        self.pointer(&trail, site, &what, pc)
    }

    /// The call instruction that ends at an address.
    fn call_before(&mut self, back: u64) -> Result<Option<Instruction>> {
        for len in 2..=7u64 {
            let Some(start) = back.checked_sub(len) else {
                break;
            };
            let mut code = [0; 8];
            let got = self
                .scene
                .debugger
                .timeline()
                .read(start, &mut code[..len as usize])?;
            let mut decoder = Decoder::with_ip(64, &code[..got], start, DecoderOptions::NONE);
            let ins = decoder.decode();
            let is_call = matches!(ins.flow_control(), FlowControl::IndirectCall);
            if ins.len() as u64 == len && is_call && ins.code() != Opcode::INVALID {
                return Ok(Some(ins));
            }
        }
        Ok(None)
    }

    /// A return to somewhere else: who wrote over the return address?
    fn smashed_return(
        &mut self,
        value: &Value,
        thread: ThreadId,
        site: &Site,
        name: &str,
    ) -> Result<()> {
        self.answer.kind = Kind::StackSmash;
        self.say(
            format!("{name}: a function returned to where no code is; its return address was overwritten."),
            Some(site.clone()),
        );
        let chain = self.scene.origin(value)?;
        let Some(step) = chain.steps.first().cloned() else {
            self.looked("who wrote the return address: nobody did, as far as the recording goes");
            return Ok(());
        };
        let at = self.site_of(&step)?;
        let other = self.other_thread(site, thread);
        self.add(
            format!("It was written over{other}{}.", quoted(&at)),
            Some(at),
            false,
            true,
        );
        Ok(())
    }

    /// Whether the stack is used up.
    fn overflowed(
        &mut self,
        thread: ThreadId,
        site: &Site,
        registers: &Registers,
        bad: Option<&Bad>,
        mappings: &[Mapping],
    ) -> Result<bool> {
        let sp = registers.words[4];
        let Some(bad) = bad else {
            return Ok(false);
        };
        let near = bad.address.abs_diff(sp) < NEAR;
        let below = mapping(mappings, bad.address).is_none_or(|found| found.prot & PROT_WRITE == 0);
        if !near || !below {
            return Ok(false);
        }
        let stack = self.scene.stack(thread)?;
        if stack.frames.len() < DEEP {
            return Ok(false);
        }
        self.answer.kind = Kind::StackOverflow;
        self.say(
            format!("The stack is used up{}.", quoted(site)),
            Some(site.clone()),
        );
        // Which functions call each other, and where: those that come again, behind what was called last.
        let mut cycle: Vec<(String, Site)> = Vec::new();
        let here = self.scene.here()?;
        for frame in stack.frames.iter().skip(LAST_CALLS) {
            let line = frame.line.as_ref().filter(|line| line.line != 0);
            let Some(line) = line.filter(|line| is_own_file(&line.file)) else {
                continue;
            };
            let name = plain_name(frame.function.as_deref().unwrap_or("??")).to_string();
            let place = Site {
                position: here.to_string(),
                thread,
                function: frame.function.clone(),
                file: Some(line.file.to_string()),
                line: Some(line.line),
                source: self.scene.source(&line.file, line.line),
                inside: None,
            };
            if cycle.iter().any(|(_, known)| known.same_line(&place)) {
                break;
            }
            cycle.push((name, place));
        }
        let depth = stack.frames.len();
        let names: Vec<&str> = cycle.iter().map(|(name, _)| name.as_str()).collect();
        let text = match names.len() {
            0 => "Calls repeat".into(),
            1 => format!("{} calls itself, more than {depth} deep", names[0]),
            _ => format!(
                "{} call each other, more than {depth} deep",
                names.join(", ")
            ),
        };
        let mut told = false;
        for (_, place) in cycle.into_iter().take(3) {
            let quote = quoted(&place);
            let sentence = match told {
                false => format!("{text}{quote}."),
                true => format!("And there{quote}."),
            };
            self.add(sentence, Some(place), false, !told);
            told = true;
        }
        Ok(true)
    }

    fn division(
        &mut self,
        ins: &Instruction,
        thread: ThreadId,
        site: &Site,
        registers: &Registers,
    ) -> Result<()> {
        self.answer.kind = Kind::Division;
        if !matches!(ins.mnemonic(), Mnemonic::Div | Mnemonic::Idiv) {
            self.say(format!("SIGFPE{}.", quoted(site)), Some(site.clone()));
            self.looked("the instruction, which is no division of whole numbers");
            return Ok(());
        }
        self.say(
            format!(
                "A division by zero, or one whose result has no room{}.",
                quoted(site)
            ),
            Some(site.clone()),
        );
        let value = match ins.op0_kind() {
            OpKind::Register => Some(register_value(thread, ins.op0_register())),
            _ => {
                let used = InstructionInfoFactory::new()
                    .info(ins)
                    .used_memory()
                    .first()
                    .copied();
                let address = used.as_ref().and_then(|used| address_of(used, registers));
                let len = used.map_or(4, |used| used.memory_size().size() as u64);
                address.map(|addr| Value::Memory { addr, len })
            }
        };
        let Some(value) = value else {
            return Ok(());
        };
        let trail = self.trail(&value, Choice::Number)?;
        self.tell_source(&trail, site, "The divisor")
    }
}

/// The memory that a step read.
pub fn read_at(step: &Step) -> Option<u64> {
    step.from.iter().find_map(|source| match source {
        Source::Memory { addr, .. } => Some(*addr),
        _ => None,
    })
}

pub fn mapping(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
}

/// The address of an access.
pub fn address_of(used: &UsedMemory, registers: &Registers) -> Option<u64> {
    used.virtual_address(0, |register, _, _| match register {
        Register::FS => registers.words.get(18).copied(),
        Register::GS => registers.words.get(19).copied(),
        register if register.is_segment_register() => Some(0),
        register => general(registers, register),
    })
}

/// The access of an instruction that can't be made.
pub fn bad_memory(ins: &Instruction, registers: &Registers, mappings: &[Mapping]) -> Option<Bad> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(ins);
    info.used_memory().iter().find_map(|used| {
        let write = matches!(
            used.access(),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        );
        if used.access() == OpAccess::NoMemAccess {
            return None;
        }
        let address = address_of(used, registers)?;
        let wanted = if write { PROT_WRITE } else { PROT_READ };
        let last = address.wrapping_add(used.memory_size().size().max(1) as u64 - 1);
        let fine = [address, last].iter().all(|address| {
            mapping(mappings, *address).is_some_and(|found| found.prot & wanted != 0)
        });
        (!fine).then_some(Bad {
            address,
            write,
            used: *used,
        })
    })
}
