//! All calls of a function. In: its name. Out: each call over the whole recording, with arguments, result, caller and
//! position, in the order in which they happened.
//!
//! A worker collects registers and the memory that arguments are in on one way through; debugging information makes
//! values of it here.

use clew_recording::event::ThreadId;
use clew_symbols::expr::{Bindings, Evaluator};
use clew_symbols::gimli::{AttributeValue, constants as dw};
use clew_symbols::types::Entry;
use clew_symbols::value::{Context, ReturnRegisters, Returned};
use clew_symbols::variables::Catalog;
use clew_symbols::{Die, Function, Image, Modules, NameKind, Registers};
use clew_timeline::{CallSeen, Direction, FunctionEntry, LeftBy, Mark, Piece, Position, Target};
use iced_x86::{Decoder, DecoderOptions, OpKind};
use serde::Serialize;

use crate::breakpoints::in_process;
use crate::debugger::{Debugger, Location, location_at};
use crate::{Error, Result};

/// The stack pointer, as instructions number registers.
const RSP: u8 = 4;
/// Functions that leave others without their returning.
const UNWINDERS: [&str; 8] = [
    "_Unwind_RaiseException",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "__libc_siglongjmp",
];

/// All calls of a function, or as many as were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Calls {
    pub calls: Vec<Call>,
    /// There are no more.
    pub complete: bool,
    /// Somebody interrupted: these are the calls until then.
    pub interrupted: bool,
    /// Where the compiler put a copy of the function instead of a call: those calls aren't among these.
    pub inlined: Vec<Location>,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// In the function, where its arguments are known.
    pub position: String,
    pub thread: ThreadId,
    /// So many calls of the same functions are under way around it.
    pub depth: u32,
    pub function: String,
    pub arguments: Vec<Named>,
    /// The line that calls.
    pub caller: Location,
    pub left: Left,
}

/// A value with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    pub name: String,
    #[serde(rename = "type")]
    pub of: String,
    pub text: String,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum Left {
    /// `value`: none of a function that returns nothing, or whose debugging information is missing.
    Returned {
        position: String,
        value: Option<Named>,
    },
    /// By a long jump or an exception.
    Unwound,
    /// It hadn't when the recording ended, or nobody came there.
    Never,
}

/// A function to look for.
pub(crate) struct Wanted {
    pub name: String,
    /// Where DWARF describes it.
    pub entry: Option<Entry>,
    pub seen: FunctionEntry,
}

impl Debugger {
    /// Calls of the functions that a name means, at most so many, from the beginning of the program's life to its end.
    pub fn calls(&mut self, name: &str, most: u64) -> Result<Calls> {
        let images = self.images()?;
        let modules = &images.modules;
        let (wanted, inlined) = self.functions(modules, name)?;
        if wanted.is_empty() && inlined.is_empty() {
            return Err(self.no_function(modules, name));
        }
        let mut entries: Vec<FunctionEntry> = wanted.iter().map(|one| one.seen).collect();
        for name in UNWINDERS {
            entries.extend(at_symbols(modules, name));
        }
        let start = self.timeline.start();
        let seen = match wanted.is_empty() {
            true => None,
            false => Some(self.timeline.calls(&entries, start, None, most)?),
        };
        let complete = seen.as_ref().is_none_or(|seen| seen.complete);
        let interrupted = seen.as_ref().is_some_and(|seen| seen.interrupted);
        let seen = seen.map_or_else(Vec::new, |seen| seen.all);
        let own = |call: &CallSeen| (call.function as usize) < wanted.len();
        let (mut seen, unwinding): (Vec<CallSeen>, Vec<CallSeen>) = seen.into_iter().partition(own);
        self.unwound_calls(&mut seen, &unwinding)?;
        let marks: Vec<Mark> = seen.iter().map(|call| call.at).collect();
        let positions = self.timeline.positions(&marks)?;
        let mut returns: Vec<Mark> = seen.iter().filter_map(return_of).collect();
        returns.sort_by_key(|mark| (mark.event, mark.ticks));
        let known = self.timeline.positions(&returns)?;
        let key = |mark: &Mark| (mark.event, mark.ticks, mark.pc, mark.sp);
        let known: std::collections::HashMap<_, Position> =
            returns.iter().map(key).zip(known).collect();
        let return_position = |mark: &Mark| known.get(&key(mark)).copied();
        let mut calls = Vec::new();
        for (call, position) in seen.iter().zip(positions) {
            let Some(wanted) = wanted.get(call.function as usize) else {
                continue;
            };
            let position = position.to_string();
            let back = return_of(call).and_then(|mark| return_position(&mark));
            calls.push(told(
                self.program.catalog(),
                modules,
                wanted,
                call,
                position,
                back,
            ));
        }
        Ok(Calls {
            calls,
            complete,
            interrupted,
            inlined: inlined
                .into_iter()
                .map(|address| location_at(modules, address))
                .collect(),
        })
    }

    /// Who is unwound may walk to where the call would have returned to. Where something was unwound meanwhile, it is looked
    /// whether the instruction before was a return.
    fn unwound_calls(&mut self, calls: &mut [CallSeen], unwinding: &[CallSeen]) -> Result<()> {
        let tick = |mark: &Mark| (mark.event, mark.ticks);
        let suspect = |call: &&mut CallSeen| {
            return_of(call).is_some_and(|back| {
                unwinding.iter().any(|one| {
                    let meanwhile = tick(&call.at) <= tick(&one.at) && tick(&one.at) <= tick(&back);
                    one.thread == call.thread && meanwhile
                })
            })
        };
        let here = self.timeline.position()?;
        for call in calls.iter_mut().filter(suspect) {
            let Some(back) = return_of(call) else {
                continue;
            };
            let position = self.timeline.positions(&[back])?;
            let [position] = position[..] else {
                continue;
            };
            self.timeline.seek(Target::Position(position))?;
            let stop = self.timeline.step(Direction::Backward, call.thread)?;
            if !self.is_return(stop.pc)? {
                call.left = LeftBy::Unwound;
            }
        }
        self.timeline.seek(Target::Position(here))?;
        Ok(())
    }

    /// What a name means: functions with code of their own, and where copies of them are.
    fn functions(&mut self, modules: &Modules, name: &str) -> Result<(Vec<Wanted>, Vec<u64>)> {
        let (mut wanted, mut inlined) = (Vec::new(), Vec::new());
        for (image, function) in modules.functions_named(name)? {
            let Some(pc) = in_process(modules, &image, function.entry) else {
                continue;
            };
            let entry = function.die.map(|die| Entry::new(&image.module, die));
            let seen = self.seen_at(modules, &image, &function, entry.as_ref(), pc)?;
            wanted.push(Wanted {
                name: function.name,
                entry,
                seen,
            });
        }
        for image in modules.modules() {
            let dies = image.module.dies_named(name, NameKind::Function);
            for die in dies.unwrap_or_default() {
                let copies = image.module.inlined_copies(die).unwrap_or_default();
                let moved = copies.into_iter();
                inlined.extend(moved.filter_map(|copy| in_process(modules, image, copy)));
            }
        }
        inlined.sort_unstable();
        inlined.dedup();
        Ok((wanted, inlined))
    }

    /// Where a function's calls are seen, and their arguments known.
    pub(crate) fn seen_at(
        &mut self,
        modules: &Modules,
        image: &Image,
        function: &Function,
        entry: Option<&Entry>,
        pc: u64,
    ) -> Result<FunctionEntry> {
        let at_entry = FunctionEntry {
            pc,
            loops: self.comes_again(image, function)?,
            known: pc,
            register: RSP,
            offset: 0,
        };
        // Unoptimised code keeps arguments in its frame, which has to be made first.
        let framed = entry
            .map(has_framed_parameters)
            .transpose()?
            .unwrap_or(false);
        if !framed {
            return Ok(at_entry);
        }
        let body = image.module.body_of(function.entry)?;
        let known = body.wrapping_add(image.bias);
        Ok(match modules.cfa_rule(known) {
            Some((register, offset)) if register.0 < 16 => FunctionEntry {
                known,
                register: encoded(register.0),
                // The return address is right below.
                offset: offset - 8,
                ..at_entry
            },
            _ => at_entry,
        })
    }

    /// Whether a function jumps to its own first instruction.
    fn comes_again(&mut self, image: &Image, function: &Function) -> Result<bool> {
        /// No function is that long.
        const LONGEST: u64 = 4 << 20;
        let entry = function.entry.wrapping_add(image.bias);
        for range in &function.ranges {
            let start = range.start.wrapping_add(image.bias);
            let mut code = vec![0; (range.end - range.start).min(LONGEST) as usize];
            // It may not be mapped here; its file has the same code, but for what the loader changes.
            let got = self.timeline.read(start, &mut code)?;
            let mut decoder = Decoder::with_ip(64, &code[..got], start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                let jumps = !instruction.is_call_near()
                    && instruction.op_count() > 0
                    && instruction.op0_kind() == OpKind::NearBranch64;
                if jumps && instruction.near_branch64() == entry {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Functions of exactly that linker's name.
pub(crate) fn at_symbols(modules: &Modules, name: &str) -> Vec<FunctionEntry> {
    let mut entries = Vec::new();
    for image in modules.modules() {
        for symbol in image.module.symbols_named(name).unwrap_or_default() {
            if let Some(pc) = in_process(modules, image, symbol.address) {
                entries.push(FunctionEntry {
                    pc,
                    loops: false,
                    known: pc,
                    register: RSP,
                    offset: 0,
                });
            }
        }
    }
    entries
}

/// Whether one of its parameters has one place for the function's whole life: in its frame.
fn has_framed_parameters(function: &Entry) -> Result<bool> {
    for child in function.children()? {
        if child.tag()? == dw::DW_TAG_formal_parameter
            && let Some(AttributeValue::Exprloc(_)) = child.attribute(dw::DW_AT_location)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// DWARF's number of a register as instructions have it.
fn encoded(register: u16) -> u8 {
    const ENCODED: [u8; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
    let known = ENCODED.get(usize::from(register));
    known.copied().unwrap_or(register as u8)
}

pub(crate) fn return_of(call: &CallSeen) -> Option<Mark> {
    match call.left {
        LeftBy::Return { at, .. } => Some(at),
        _ => None,
    }
}

/// The program at a call, as far as it was kept.
pub(crate) struct Captured<'a> {
    pub registers: Registers,
    pub pieces: Vec<&'a Piece>,
}

impl Context for Captured<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            let inside = |piece: &&&Piece| {
                let end = piece.addr.wrapping_add(piece.bytes.len() as u64);
                (piece.addr..end).contains(&at)
            };
            let Some(piece) = self.pieces.iter().find(inside) else {
                break;
            };
            let from = (at - piece.addr) as usize;
            let len = (piece.bytes.len() - from).min(into.len() - done);
            into[done..done + len].copy_from_slice(&piece.bytes[from..from + len]);
            done += len;
        }
        done
    }

    fn registers(&mut self) -> Registers {
        self.registers.clone()
    }

    fn thread_pointer(&mut self) -> Option<u64> {
        None
    }

    fn call(&mut self, _: u64, _: &[u64]) -> std::result::Result<Returned, String> {
        Err("can't be called: the program doesn't stand there".into())
    }

    fn place(&mut self, _: &[u8]) -> std::result::Result<u64, String> {
        Err("there is no room".into())
    }
}

pub(crate) fn told(
    catalog: &Catalog,
    modules: &Modules,
    wanted: &Wanted,
    call: &CallSeen,
    position: String,
    back: Option<Position>,
) -> Call {
    let mut caller = location_at(modules, call.back.wrapping_sub(1));
    caller.address = call.back;
    Call {
        position,
        thread: call.thread,
        depth: call.depth,
        function: wanted.name.clone(),
        arguments: match call.known {
            true => arguments(catalog, modules, wanted, call),
            false => Vec::new(),
        },
        caller,
        left: match (&call.left, back) {
            (LeftBy::Return { .. }, Some(back)) => Left::Returned {
                position: back.to_string(),
                value: returned(catalog, modules, wanted, call),
            },
            (LeftBy::Unwound, _) => Left::Unwound,
            _ => Left::Never,
        },
    }
}

fn arguments(catalog: &Catalog, modules: &Modules, wanted: &Wanted, call: &CallSeen) -> Vec<Named> {
    let mut vectors = [0; 16];
    for (vector, low) in vectors.iter_mut().zip(call.vectors) {
        *vector = u128::from(low);
    }
    let registers = Registers::from_encoding_order(call.registers, call.at.pc);
    let mut captured = Captured {
        registers: registers.with_vectors(vectors),
        pieces: call.pieces.iter().collect(),
    };
    let die: Option<Die> = wanted.entry.as_ref().map(|entry| entry.die);
    let names = &mut Bindings::new();
    let mut evaluator = Evaluator::new(catalog, modules, &mut captured, names);
    evaluator.choose_frame(0);
    // The function itself, not what was inlined at its beginning.
    let frames = &evaluator.view().frames;
    let Some(frame) = frames.iter().position(|frame| frame.die == die) else {
        return Vec::new();
    };
    let variables = evaluator.variables_in(frame).into_iter();
    let mut all: Vec<Named> = variables
        .filter(|(variable, _)| variable.parameter)
        .map(|(variable, value)| {
            let view = evaluator.view();
            let of = variable.entry.type_of().ok();
            let of = of.and_then(|of| view.catalog.type_name(&of).ok());
            Named {
                name: variable.name.to_string(),
                of: of.unwrap_or_default(),
                text: match value {
                    Ok(value) => view.text_of(&value),
                    Err(_) => "<optimized out>".into(),
                },
            }
        })
        .collect();
    all.dedup_by(|a, b| a.name == b.name);
    all
}

fn returned(
    catalog: &Catalog,
    modules: &Modules,
    wanted: &Wanted,
    call: &CallSeen,
) -> Option<Named> {
    let LeftBy::Return {
        rax,
        rdx,
        xmm,
        ref pieces,
        ..
    } = call.left
    else {
        return None;
    };
    let of = wanted.entry.as_ref()?.type_of().ok()?;
    let registers = ReturnRegisters {
        rax,
        rdx,
        xmm0: xmm[0],
        xmm1: xmm[1],
    };
    let mut captured = Captured {
        registers: Registers::new(),
        pieces: pieces.iter().collect(),
    };
    let names = &mut Bindings::new();
    let mut evaluator = Evaluator::new(catalog, modules, &mut captured, names);
    let view = evaluator.view();
    let value = view.returned(&of, &registers).ok().flatten()?;
    Some(Named {
        name: "returned".into(),
        of: view.catalog.type_name(&value.of).unwrap_or_default(),
        text: view.text_of(&value),
    })
}

impl Debugger {
    /// Calls of functions by the linker's names, wherever they are, as they were seen.
    pub(crate) fn calls_of_symbol(&mut self, name: &str, most: u64) -> Result<Vec<CallSeen>> {
        let images = self.images()?;
        let entries = at_symbols(&images.modules, name);
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let start = self.timeline.start();
        let seen = self.timeline.calls(&entries, start, None, most);
        Ok(seen.map_err(Error::from)?.all)
    }
}
