//! Where a run failed, and the memory that could be involved. In: a failing recording, or a function that the user names. Out:
//! the functions from there up, and the variables that those and the program's signal handlers touch by their code.
//!
//! Memory that several threads touch is found by replaying; what a handler and the thread that it interrupts share isn't,
//! and is found here, by disassembly: variables at fixed addresses, and thread-locals.

use std::collections::HashSet;
use std::ops::Range;

use clew_calls::names;
use clew_debugger::{Debugger, Spot, Wanted};
use clew_recording::event::{Event, ThreadId};
use clew_symbols::Modules;
use clew_timeline::{Next, Position};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Register};

use super::trace::Crash;
use crate::Result;
use crate::scene::{Scene, Site, plain_name};
use crate::why::fault::bad_memory;
use crate::why::led;

/// Functions that handlers call are looked at, and those that these call.
const DEPTH: usize = 3;
/// Different handlers that are looked at.
const MOST_HANDLERS: usize = 8;
/// No more of a variable is looked at, nor of a function.
const MOST_BYTES: u64 = 4096;
const MOST_CODE: u64 = 64 << 10;
const PROT_WRITE: u32 = 2;
const FS_BASE: usize = 18;
const RSP: usize = 4;

/// What failed, and where.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    pub words: String,
    pub site: Option<Site>,
    /// Functions from where it failed up to the outermost one.
    pub functions: Vec<String>,
    pub crash: Option<Crash>,
    /// Memory that these functions and handlers touch.
    pub ranges: Vec<Range<u64>>,
    /// Memory that the failing value was read from, in the run that this is about.
    pub read: Vec<Range<u64>>,
    /// If it ended by itself.
    pub status: Option<i32>,
    deadlock: bool,
}

/// Where the user says to look.
#[derive(Clone, Debug)]
pub enum Named {
    Function(String),
    Line { file: String, line: u32 },
}

/// Where a run failed; `handlers`: variables that handlers touch count, too.
pub fn failure(scene: &mut Scene<'_>, named: Option<&Named>) -> Result<Failure> {
    let position = scene.debugger.stand_at_end()?;
    let at = scene.debugger.timeline().at();
    let mut failure = Failure::default();
    let mut code: Vec<u64> = Vec::new();
    let (mut deadlock, mut exited) = (false, false);
    scene.debugger.events(|event, _, _| {
        deadlock |= matches!(event, Event::Deadlock(_));
        exited |= matches!(event, Event::Exited { .. });
        true
    })?;
    failure.deadlock = deadlock;
    let mut threads: Vec<ThreadId> = vec![at.thread];
    failure.words = match at.next {
        _ if deadlock => {
            let all = scene.debugger.threads()?;
            threads = all.iter().map(|thread| thread.number).collect();
            "no thread can ever go on".into()
        }
        Some(Next::Killed { signo, .. }) => names::signal(signo).to_string(),
        Some(Next::Exit { status }) => {
            failure.status = Some(status);
            format!("exit status {status}")
        }
        _ => "the recording's end".into(),
    };
    for &thread in &threads {
        scene.go(position)?;
        let stack = scene.stack(thread)?;
        let own = scene.own_frame(&stack).unwrap_or(stack.frames.len());
        for frame in stack.frames.iter().skip(own) {
            if let Some(name) = &frame.function {
                let name = plain_name(name).to_string();
                if !failure.functions.contains(&name) {
                    failure.functions.push(name);
                }
                code.push(frame.lookup);
            }
        }
        if thread == at.thread && own < stack.frames.len() {
            failure.site = Some(scene.site_in(&stack, thread, position));
            failure.crash = crash(scene, thread, stack.frames[own].lookup)?;
        }
    }
    if let Some(named) = named {
        failure.functions.clear();
        code.clear();
        for (function, address) in resolved(scene, named)? {
            code.push(address);
            failure.functions.extend(function);
        }
    }
    code.extend(handlers(scene)?);
    scene.go(position)?;
    failure.ranges = touched_by(scene, &code)?;
    Ok(failure)
}

impl Failure {
    /// Follows what failed back to the memory that it was read from. With `expected`, what a passing run printed that ended
    /// alike, what failed is the first output that differs, and the functions are those that made it.
    pub fn follow(&mut self, debugger: &mut Debugger, expected: Option<&[u8]>) -> Result<()> {
        let fine = self.status == Some(0) && expected.is_none();
        if self.deadlock || fine {
            return Ok(());
        }
        let led = led(Scene::new(debugger)?, expected)?;
        let mut scene = Scene::new(debugger)?;
        let mut code = Vec::new();
        if let Some(differs) = led.differs {
            self.words = differs.trim_end_matches('.').to_string();
        }
        if let Some(site) = led.printed
            && let Ok(position) = site.position.parse::<Position>()
        {
            scene.go(position)?;
            let stack = scene.stack(site.thread)?;
            let own = scene.own_frame(&stack).unwrap_or(stack.frames.len());
            let mut functions = Vec::new();
            for frame in stack.frames.iter().skip(own) {
                if let Some(name) = &frame.function {
                    functions.push(plain_name(name).to_string());
                    code.push(frame.lookup);
                }
            }
            functions.append(&mut self.functions);
            let mut seen = HashSet::new();
            functions.retain(|name| seen.insert(name.clone()));
            self.functions = functions;
            self.site = Some(site);
        }
        scene.debugger.stand_at_end()?;
        // Stacks are nobody's but their own thread's, and constants are no cause.
        let mappings = scene.mappings()?;
        let mut stacks = Vec::new();
        for thread in scene.debugger.threads()? {
            stacks.push(scene.registers(thread.number)?.words[RSP]);
        }
        let counts = |range: &Range<u64>| {
            let inside =
                |one: &&clew_timeline::Mapping| (one.start..one.end).contains(&range.start);
            let found = mappings.iter().find(inside);
            found.is_some_and(|found| {
                let stack = |sp: &u64| (found.start..found.end).contains(sp);
                found.prot & PROT_WRITE != 0 && !stacks.iter().any(stack)
            })
        };
        self.read = led.memory.into_iter().filter(counts).collect();
        self.ranges.extend(touched_by(&mut scene, &code)?);
        self.ranges.extend(self.read.iter().cloned());
        self.ranges.sort_by_key(|range| (range.start, range.end));
        self.ranges.dedup();
        Ok(())
    }
}

/// Functions that the user means, and an address in each.
fn resolved(scene: &mut Scene<'_>, named: &Named) -> Result<Vec<(Option<String>, u64)>> {
    let spot = match named.clone() {
        Named::Function(name) => Spot::Function(name),
        Named::Line { file, line } => Spot::Line { file, line },
    };
    let found = scene.debugger.add_breakpoint(Wanted::at(spot));
    let breakpoint = match (found, named) {
        (Err(why @ clew_debugger::Error::Function { .. }), Named::Function(name)) => {
            // The compiler may have put it into others.
            let inlined = scene.debugger.calls(name, 1).map(|calls| calls.inlined);
            let inlined = inlined.unwrap_or_default();
            let copies = inlined
                .iter()
                .map(|copy| (Some(name.clone()), copy.address));
            return match inlined.is_empty() {
                false => Ok(copies.collect()),
                true => Err(why),
            };
        }
        (found, _) => found?,
    };
    scene.debugger.remove_breakpoint(breakpoint.id)?;
    let locations = breakpoint.locations.iter().map(|location| {
        let name = location.function.as_deref().map(plain_name);
        (name.map(String::from), location.address)
    });
    Ok(locations.collect())
}

/// The memory that a crash went to.
fn crash(scene: &mut Scene<'_>, thread: ThreadId, site: u64) -> Result<Option<Crash>> {
    let at = scene.debugger.timeline().at();
    if !matches!(at.next, Some(Next::Killed { fault: true, .. })) {
        return Ok(None);
    }
    let registers = scene.registers(thread)?;
    let mappings = scene.mappings()?;
    let Some(instruction) = scene.instruction(registers.words[16])? else {
        return Ok(None);
    };
    let bad = bad_memory(&instruction, &registers, &mappings);
    Ok(bad.map(|bad| Crash {
        thread,
        site,
        addr: bad.address,
        write: bad.write,
    }))
}

/// The first instructions of handlers that ran.
fn handlers(scene: &mut Scene<'_>) -> Result<Vec<u64>> {
    let mut seen: Vec<(i32, u64, ThreadId)> = Vec::new();
    scene.debugger.events(|event, number, thread| {
        if let Event::Signal { signo, .. } = event
            && !seen.iter().any(|one| one.0 == *signo)
        {
            seen.push((*signo, number, thread));
        }
        seen.len() < MOST_HANDLERS
    })?;
    let mut all = Vec::new();
    for (_, number, thread) in seen {
        scene.go(Position::after(number))?;
        all.push(scene.registers(thread)?.words[16]);
    }
    Ok(all)
}

/// Variables that functions touch, and those that they call.
fn touched_by(scene: &mut Scene<'_>, code: &[u64]) -> Result<Vec<Range<u64>>> {
    let modules = scene.modules.clone();
    let mappings = scene.mappings()?;
    let writable = |addr: u64| {
        let inside = |one: &&clew_timeline::Mapping| (one.start..one.end).contains(&addr);
        let found = mappings.iter().find(inside);
        found.is_some_and(|found| found.prot & PROT_WRITE != 0)
    };
    let threads = scene.debugger.threads()?;
    let mut bases = Vec::new();
    for thread in &threads {
        bases.push(scene.registers(thread.number)?.words[FS_BASE]);
    }
    let mut look: Vec<(u64, usize)> = code.iter().map(|&pc| (pc, 0)).collect();
    let (mut done, mut ranges) = (HashSet::new(), Vec::new());
    while let Some((pc, depth)) = look.pop() {
        for part in ranges_of(&modules, pc) {
            if !done.insert(part.start) || clew_order::is_c_library_at(&modules, part.start) {
                continue;
            }
            let mut bytes = vec![0; (part.end - part.start).min(MOST_CODE) as usize];
            let got = scene.debugger.timeline().read(part.start, &mut bytes)?;
            let decoder = Decoder::with_ip(64, &bytes[..got], part.start, DecoderOptions::NONE);
            let mut factory = InstructionInfoFactory::new();
            for instruction in decoder {
                if instruction.flow_control() == FlowControl::Call && depth < DEPTH {
                    look.push((instruction.near_branch_target(), depth + 1));
                }
                let target = instruction.ip_rel_memory_address();
                if instruction.is_ip_rel_memory_operand() && writable(target) {
                    ranges.push(variable(scene, &modules, target)?);
                    continue;
                }
                for used in factory.info(&instruction).used_memory() {
                    let plain = used.base() == Register::None && used.index() == Register::None;
                    let addr = used.displacement();
                    match used.segment() {
                        Register::FS if plain => ranges.extend(bases.iter().map(|base| {
                            let start = base.wrapping_add(addr);
                            start..start.saturating_add(8)
                        })),
                        // Where a program isn't position-independent.
                        _ if plain && writable(addr) => {
                            ranges.push(variable(scene, &modules, addr)?);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges.dedup();
    Ok(ranges)
}

fn ranges_of(modules: &Modules, pc: u64) -> Vec<Range<u64>> {
    let Some(image) = modules.find(pc) else {
        return Vec::new();
    };
    let function = image.module.function_at(image.local(pc)).ok().flatten();
    let ranges = function.map(|function| function.ranges).unwrap_or_default();
    let moved = |range: &Range<u64>| {
        range.start.wrapping_add(image.bias)..range.end.wrapping_add(image.bias)
    };
    ranges
        .iter()
        .map(moved)
        .filter(|range| range.start < range.end)
        .collect()
}

/// All of the variable that an address is in.
fn variable(scene: &mut Scene<'_>, modules: &Modules, addr: u64) -> Result<Range<u64>> {
    let (_, program) = scene.debugger.timeline_and_program();
    let catalog = program.catalog();
    let size = catalog.symbol_at(modules, addr).and_then(|(name, offset)| {
        let image = modules.owner(addr)?;
        let symbol = catalog.symbol_of(image, &name)?;
        Some((addr.wrapping_sub(offset), symbol.size.clamp(1, MOST_BYTES)))
    });
    let (start, size) = size.unwrap_or((addr, 8));
    Ok(start..start.saturating_add(size).max(addr + 1))
}
