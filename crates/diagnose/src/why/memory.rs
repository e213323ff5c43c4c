//! What memory a bad value was read from. In: its trail. Out: a freed block, memory that nobody wrote since it was handed out,
//! a variable without a value, or a write that belongs to another block.

use clew_recording::event::ThreadId;
use clew_slice::origin::{Source, Step};
use clew_symbols::Stack;
use clew_symbols::expr::Bindings;
use clew_symbols::gimli::{AttributeValue, constants as dw};
use clew_symbols::value::Place;
use clew_timeline::Position;
use clew_timeline::program::Asked;
use iced_x86::{InstructionInfoFactory, OpAccess, Register};

use super::Asking;
use super::tell::quoted;
use super::trail::{Choice, Trail, TrailEnd, general, register_value};
use crate::Result;
use crate::heap::Held;
use crate::scene::{Site, plain_name};

/// Reads of a trail that are looked at.
const MOST_READS: usize = 12;
/// Below the stack pointer a function may have data that it made no room for.
const RED_ZONE: u64 = 128;

/// What is known of the memory. One at a time: its size doesn't matter.
#[allow(clippy::large_enum_variant)]
pub enum Memory {
    /// The step read from a block that was freed.
    Freed(Held, Step),
    /// The step read from a block that nobody had written there since it was allocated.
    Unwritten(Held, Step),
    UnwrittenLocal(Local),
    /// The step wrote there by a pointer into another block, beyond its end.
    Overrun {
        victim: Option<Held>,
        of: Held,
        step: Step,
        address: u64,
    },
    /// The step wrote there by a pointer into a block that was freed.
    WrittenFreed {
        of: Held,
        step: Step,
    },
    /// The step wrote a part of it.
    Trampled(Step),
}

/// A variable of a function that was read before it was written.
pub struct Local {
    pub name: Option<String>,
    /// Where it is declared.
    pub declared: Option<Site>,
    pub read: Step,
    /// What had written there before the function was called.
    pub before: Option<Step>,
}

impl Asking<'_> {
    /// Looks at the memory that a value was read from, newest first, until something is wrong with it.
    pub fn memory_of(&mut self, trail: &Trail) -> Result<Option<Memory>> {
        let mut reads = 0;
        for (n, step) in trail.steps.iter().enumerate().take(trail.certain) {
            let read = step.from.iter().find_map(|source| match source {
                Source::Memory { addr, len } => Some((*addr, *len)),
                _ => None,
            });
            let Some((addr, len)) = read else {
                continue;
            };
            reads += 1;
            if reads > MOST_READS {
                break;
            }
            let writer = trail.steps.get(n + 1).filter(|next| {
                next.written
                    .iter()
                    .any(|&(at, size)| at < addr.wrapping_add(len) && addr < at.wrapping_add(size))
            });
            let writer = writer.cloned();
            let step = step.clone();
            if let Some(held) = self.scene.block_at(addr, step.position)? {
                self.scene.go(step.position)?;
                let stack = self.scene.stack(step.thread)?;
                // The allocator's own reading is no news, and what it knows comes from long ago.
                if allocator(&stack) {
                    break;
                }
                if held.gone {
                    return Ok(Some(Memory::Freed(held, step)));
                }
                if let Some(found) = self.of_block(trail, &held, &step, writer.as_ref(), addr)? {
                    return Ok(Some(found));
                }
            } else if let Some(local) = self.of_stack(&step, writer.as_ref(), addr)? {
                return Ok(Some(Memory::UnwrittenLocal(local)));
            }
            if let Some(writer) = writer {
                let whole = writer.written.iter().any(|&(at, size)| {
                    at <= addr && at.wrapping_add(size) >= addr.wrapping_add(len)
                });
                let site = self.site_of(&writer)?;
                let text = site.inside.as_deref().is_some_and(|inside| {
                    let inside = inside.trim_start_matches('_');
                    inside.starts_with("str") || inside.starts_with("stpcpy")
                });
                if !whole || text {
                    return Ok(Some(Memory::Trampled(writer)));
                }
            }
        }
        Ok(None)
    }

    /// A read from a block that is alive.
    fn of_block(
        &mut self,
        trail: &Trail,
        held: &Held,
        step: &Step,
        writer: Option<&Step>,
        address: u64,
    ) -> Result<Option<Memory>> {
        let allocated = held.block.allocated;
        let back = allocated.back.unwrap_or(allocated.call);
        let unwritten = Memory::Unwritten(*held, step.clone());
        let Some(writer) = writer else {
            let old = match &trail.end {
                TrailEnd::Beginning => true,
                TrailEnd::Event { position, .. } => !self.scene.before(back, *position)?,
                _ => false,
            };
            return Ok(old.then_some(unwritten));
        };
        if !self.scene.before(back, writer.position)? {
            return Ok(Some(unwritten));
        }
        let Some(of) = self.pointed_by(writer)? else {
            return Ok(None);
        };
        Ok(match of.number == held.number {
            true => None,
            false if of.gone => Some(Memory::WrittenFreed {
                of,
                step: writer.clone(),
            }),
            false => Some(Memory::Overrun {
                victim: Some(*held),
                of,
                step: writer.clone(),
                address,
            }),
        })
    }

    /// The block whose pointer an instruction writes through, by where that pointer came from.
    pub fn pointed_by(&mut self, step: &Step) -> Result<Option<Held>> {
        self.scene.go(step.position)?;
        let registers = self.scene.registers(step.thread)?;
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&step.ins).used_memory().to_vec();
        let written = used.iter().filter(|used| {
            matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            )
        });
        let mut candidates: Vec<(u64, Register)> = written
            .flat_map(|used| [used.base(), used.index()])
            .filter(|register| !matches!(register, Register::None | Register::RIP | Register::RSP))
            .filter_map(|register| Some((general(&registers, register)?, register)))
            .collect();
        // The address is the larger one.
        candidates.sort_by_key(|(value, _)| std::cmp::Reverse(*value));
        for (_, register) in candidates {
            self.scene.go(step.position)?;
            let trail = self.trail(&register_value(step.thread, register), Choice::Pointer)?;
            for made in &trail.steps {
                if let Some(number) = self.allocation_at(made)? {
                    let history = self.scene.history()?;
                    let block = history.blocks[number];
                    let gone = match block.freed {
                        Some(freed) => self.scene.before(freed.call, step.position)?,
                        None => false,
                    };
                    return Ok(Some(Held {
                        number,
                        block,
                        gone,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The block that is being allocated while a step is made.
    fn allocation_at(&mut self, step: &Step) -> Result<Option<usize>> {
        let history = self.scene.history()?;
        let tick = (step.position.event, step.position.ticks);
        for (number, block) in history.blocks.iter().enumerate().rev() {
            let moment = block.allocated;
            let Some(back) = moment.back else {
                continue;
            };
            let within = (moment.call.event, moment.call.ticks) <= tick
                && tick <= (back.event, back.ticks)
                && moment.thread == step.thread;
            if !within {
                continue;
            }
            let (from, to) = (
                self.scene.position(moment.call)?,
                self.scene.position(back)?,
            );
            if from <= step.position && step.position < to {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// A read from a frame of the stack: was it written in the life of that call?
    fn of_stack(
        &mut self,
        step: &Step,
        writer: Option<&Step>,
        address: u64,
    ) -> Result<Option<Local>> {
        self.scene.go(step.position)?;
        let stack = self.scene.stack(step.thread)?;
        let inside = |frame: &clew_symbols::Frame| {
            let sp = frame.registers.sp();
            let low = sp.map(|sp| sp.wrapping_sub(RED_ZONE));
            let whole = low.zip(frame.cfa);
            !frame.inlined && whole.is_some_and(|(low, cfa)| (low..cfa).contains(&address))
        };
        let Some(frame) = stack.frames.iter().position(inside) else {
            return Ok(None);
        };
        // A register that was saved there, or an argument, is no variable without a value.
        let found = self.local_at(step.position, step.thread, frame, address)?;
        let Some((name, declared)) = found else {
            return Ok(None);
        };
        self.scene.go(step.position)?;
        let Some(began) = self.scene.debugger.began(step.thread, frame)? else {
            return Ok(None);
        };
        let old = writer.is_none_or(|writer| writer.position < began);
        Ok(old.then(|| Local {
            name: Some(name),
            declared,
            read: step.clone(),
            before: writer.cloned(),
        }))
    }

    /// The variable of a frame that is at an address, and where it is declared.
    fn local_at(
        &mut self,
        position: Position,
        thread: ThreadId,
        frame: usize,
        address: u64,
    ) -> Result<Option<(String, Option<Site>)>> {
        self.scene.go(position)?;
        let (timeline, program) = self.scene.debugger.timeline_and_program();
        let asked = Asked {
            thread,
            ticks: 0,
            pokes: &[],
        };
        let names = &mut Bindings::new();
        let found = program.ask(timeline, asked, names, |evaluator| {
            if !evaluator.choose_frame(frame) {
                return None;
            }
            let variables = evaluator.variables_in(frame);
            variables.into_iter().find_map(|(variable, value)| {
                let value = value.ok()?;
                let Place::Memory(at) = value.place else {
                    return None;
                };
                let catalog = evaluator.view().catalog;
                let size = catalog.size(&value.of).ok().flatten()?;
                if variable.parameter || !(at..at + size.max(1)).contains(&address) {
                    return None;
                }
                let entry = variable.entry.clone();
                let number = |attribute| match entry.attribute(attribute) {
                    Ok(Some(AttributeValue::FileIndex(n) | AttributeValue::Udata(n))) => Some(n),
                    Ok(Some(AttributeValue::Data1(n))) => Some(n.into()),
                    Ok(Some(AttributeValue::Data2(n))) => Some(n.into()),
                    _ => None,
                };
                let file = number(dw::DW_AT_decl_file);
                let file = file.and_then(|file| entry.module.file(entry.die.unit, file).ok()?);
                Some((
                    variable.name.to_string(),
                    file.map(|file| file.to_string()),
                    number(dw::DW_AT_decl_line),
                ))
            })
        })?;
        let Some((name, file, line)) = found else {
            return Ok(None);
        };
        let declared = match (file, line) {
            (Some(file), Some(line)) => Some(Site {
                position: position.to_string(),
                thread,
                source: self.scene.source(&file, line as u32),
                file: Some(file),
                line: Some(line as u32),
                ..Site::default()
            }),
            _ => None,
        };
        Ok(Some((name, declared)))
    }

    /// Who freed a block, and who had allocated it.
    pub fn freed_block(&mut self, held: &Held, what: &str) -> Result<()> {
        let size = held.block.size;
        if let Some(freed) = held.block.freed {
            let told = self.scene.told(&freed)?;
            let verb = match freed.function.contains("realloc") {
                true => "moved elsewhere",
                false => "freed",
            };
            let text = format!(
                "{what} was {verb} by {}{}.",
                told.function,
                quoted(&told.site)
            );
            self.add(text, Some(told.site), false, true);
        }
        let told = self.scene.told(&held.block.allocated)?;
        self.say(
            format!("It was allocated, {size} bytes{}.", quoted(&told.site)),
            Some(told.site),
        );
        Ok(())
    }

    pub fn unwritten_block(&mut self, held: &Held, step: &Step, what: &str) -> Result<()> {
        let address = super::fault::read_at(step).unwrap_or(held.block.address);
        let offset = address.wrapping_sub(held.block.address);
        let at = self.site_of(step)?;
        self.say(
            format!(
                "{what} was read from the heap, {offset} bytes into a block of {}{}.",
                held.block.size,
                quoted(&at)
            ),
            Some(at),
        );
        let told = self.scene.told(&held.block.allocated)?;
        let text = format!(
            "Nobody has written there since the block was allocated by {}{}.",
            told.function,
            quoted(&told.site)
        );
        self.add(text, Some(told.site), false, true);
        Ok(())
    }

    pub fn unwritten_local(&mut self, local: &Local, what: &str) -> Result<()> {
        let at = self.site_of(&local.read)?;
        let name = local.name.as_deref().unwrap_or("a variable");
        self.say(
            format!("{what} is what `{name}` held{}.", quoted(&at)),
            Some(at),
        );
        let site = local.declared.clone();
        let quote = site.as_ref().map_or(String::new(), quoted);
        self.add(
            format!("`{name}` wasn't written since its function was called{quote}."),
            site,
            false,
            true,
        );
        if let Some(before) = &local.before {
            let at = self.site_of(before)?;
            self.say(
                format!(
                    "What was in its place had been left there before{}.",
                    quoted(&at)
                ),
                Some(at),
            );
        }
        Ok(())
    }

    /// A write beyond the end of a block.
    pub fn overrun(
        &mut self,
        victim: Option<&Held>,
        of: &Held,
        step: &Step,
        address: u64,
        what: &str,
    ) -> Result<()> {
        let site = self.site_of(step)?;
        let end = of.block.address.wrapping_add(of.block.size);
        let distance = match address.checked_sub(end) {
            Some(behind) => format!("{behind} bytes behind the end of"),
            None => format!(
                "{} bytes before the beginning of",
                of.block.address.wrapping_sub(address)
            ),
        };
        let inside = match &site.inside {
            Some(inside) => format!(" (in {inside})"),
            None => String::new(),
        };
        let text = format!(
            "{what} was written over{inside}, {distance} a block of {} bytes{}.",
            of.block.size,
            quoted(&site)
        );
        self.add(text, Some(site), false, true);
        let told = self.scene.told(&of.block.allocated)?;
        self.say(
            format!("That block was allocated{}.", quoted(&told.site)),
            Some(told.site),
        );
        if let Some(victim) = victim {
            let told = self.scene.told(&victim.block.allocated)?;
            self.say(
                format!(
                    "The one that was written to, of {} bytes{}.",
                    victim.block.size,
                    quoted(&told.site)
                ),
                Some(told.site),
            );
        }
        Ok(())
    }
}

/// Whether an allocator is at work.
pub fn allocator(stack: &Stack) -> bool {
    const NAMES: [&str; 20] = [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "cfree",
        "reallocarray",
        "aligned_alloc",
        "posix_memalign",
        "memalign",
        "_int_malloc",
        "_int_free",
        "_int_realloc",
        "__libc_malloc",
        "__libc_free",
        "__libc_realloc",
        "__libc_calloc",
        "malloc_consolidate",
        "operator new",
        "operator delete",
        "__GI___libc_free",
    ];
    stack.frames.iter().take(12).any(|frame| {
        let name = frame.function.as_deref().unwrap_or("");
        let name = plain_name(name).trim_start_matches("__GI_");
        NAMES.contains(&name)
    })
}
