//! Where debug code runs. In: FILE:LINE, FUNCTION, or FUNCTION$ for its returns. Out: addresses in the process.

use std::sync::Arc;

use clew_debugger::{Debugger, Spot};
use clew_symbols::gimli::constants as dw;
use clew_symbols::variables::Catalog;
use clew_symbols::{Function, Image, Modules, NameKind};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::Error;
use crate::locate::Numbers;

type Header = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;

/// Addresses that a place means, and whether they are returns.
pub fn addresses(debugger: &mut Debugger, place: &str) -> Result<(Vec<u64>, bool), Error> {
    if let Some(function) = place.trim().strip_suffix('$') {
        let modules = debugger.modules()?;
        let returns = returns(&modules, function)?;
        if returns.is_empty() {
            // Says what is called alike.
            debugger.addresses(&Spot::Function(function.into()))?;
            return Err(Error::Place(format!("{function} never returns by itself")));
        }
        return Ok((returns, true));
    }
    let spot: Spot = place.parse()?;
    let addresses = match &spot {
        Spot::Function(name) => functions(debugger, &spot, name)?,
        Spot::Line { .. } => {
            let addresses = debugger.addresses(&spot)?;
            let modules = debugger.modules()?;
            let behind = |address: &u64| behind_frame(&modules, *address);
            addresses.iter().map(behind).collect()
        }
        Spot::Address(_) => debugger.addresses(&spot)?,
    };
    Ok((addresses, false))
}

/// Where functions of that name begin, inlined ones of the program too.
fn functions(debugger: &mut Debugger, spot: &Spot, name: &str) -> Result<Vec<u64>, Error> {
    let found = debugger.addresses(spot);
    let modules = debugger.modules()?;
    let catalog = debugger.catalog();
    let program = program(&modules);
    let copies = program
        .as_ref()
        .map(|program| program.inlined(name))
        .unwrap_or_default();
    let mut addresses = match found {
        Ok(addresses) => addresses,
        Err(_) if !copies.is_empty() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    // Of several functions of that name, those whose variables are known.
    let is_known = |pc: &u64| {
        let image = modules.find(*pc);
        image.is_some_and(|image| matches!(catalog.compiled(image, image.local(*pc)), Ok(Some(_))))
    };
    if addresses.iter().any(is_known) {
        addresses.retain(is_known);
    }
    // And those of the program itself: libraries have many short names.
    if let Some(program) = &program {
        let is_its = |pc: &u64| program.is_of(&modules, *pc);
        if addresses.iter().any(is_its) || !copies.is_empty() {
            addresses.retain(is_its);
        }
    }
    for address in &mut addresses {
        *address = where_known(catalog, &modules, *address);
    }
    addresses.extend(copies);
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The program itself: what has `main`.
pub struct Program {
    image: Image,
    pub main: u64,
}

impl Program {
    pub fn is(&self, image: &Image) -> bool {
        image.bias == self.image.bias && Arc::ptr_eq(&image.module, &self.image.module)
    }

    /// Where calls of a function are inlined.
    fn inlined(&self, name: &str) -> Vec<u64> {
        let module = &self.image.module;
        let dies = module.dies_named(name, NameKind::Function);
        let copies = dies.unwrap_or_default().into_iter();
        let copies = copies.flat_map(|die| module.inlined_copies(die).unwrap_or_default());
        copies
            .map(|copy| copy.wrapping_add(self.image.bias))
            .collect()
    }

    fn is_of(&self, modules: &Modules, pc: u64) -> bool {
        modules.find(pc).is_some_and(|image| self.is(image))
    }
}

pub fn program(modules: &Modules) -> Option<Program> {
    let (image, main) = modules.functions_named("main").ok()?.into_iter().next()?;
    let main = main.entry.wrapping_add(image.bias);
    Some(Program { image, main })
}

/// A line that a function begins in is meant behind the code that makes its frame: its variables aren't there before.
fn behind_frame(modules: &Modules, address: u64) -> u64 {
    let body = || {
        let image = modules.find(address)?;
        let local = image.local(address);
        let function = image.module.function_at(local).ok()??;
        let begins = function.die.is_some() && function.entry == local;
        let body = begins.then(|| image.module.body_of(local).ok()).flatten()?;
        Some(body.wrapping_add(image.bias))
    };
    body().unwrap_or(address)
}

/// Where a function's arguments are: behind the code that makes its frame, or, where an optimiser has given them up by
/// then, at its first instruction.
fn where_known(catalog: &Catalog, modules: &Modules, body: u64) -> u64 {
    let all_known = |pc: u64| -> Option<bool> {
        let image = modules.find(pc)?;
        let scope = catalog.scope(image, image.local(pc)).ok()??;
        let spot = crate::locate::Spot {
            catalog,
            modules,
            image,
            pc,
        };
        let mut parameters = scope.blocks.iter().flat_map(|block| &block.variables);
        // What is to be noted at the entry is better looked at there.
        let mut numbers = Numbers::default();
        let known = parameters.all(|variable| {
            !variable.parameter || spot.variable(&variable.entry, None, &mut numbers).is_ok()
        });
        Some(known && numbers.entered.is_empty())
    };
    let entry = || {
        let image = modules.find(body)?;
        let function = image.module.function_at(image.local(body)).ok()??;
        let entry = function.entry.wrapping_add(image.bias);
        let file = std::fs::read(image.module.path()).ok()?;
        let behind = instructions(&file, &function).into_iter().filter(|one| {
            (function.entry..image.local(body)).contains(&one.ip())
                && !matches!(one.flow_control(), FlowControl::Next | FlowControl::Call)
        });
        Some((entry, behind.count() == 0))
    };
    // Not optimised, arguments have one place, which is theirs once the frame is made.
    let in_frame = || {
        let image = modules.find(body)?;
        let scope = catalog.scope(image, image.local(body)).ok()??;
        let mut all = scope.blocks.iter().flat_map(|block| &block.variables);
        Some(all.any(|variable| {
            let place = variable.entry.attribute(dw::DW_AT_location);
            let place = place.ok().flatten();
            variable.parameter && place.is_some_and(|place| place.exprloc_value().is_some())
        }))
    };
    match entry() {
        // Who begins the function may not come to its body: an optimiser mixes both.
        Some((entry, false)) if in_frame() != Some(true) => entry,
        Some((entry, true)) if all_known(body) == Some(false) && all_known(entry) == Some(true) => {
            entry
        }
        _ => body,
    }
}

/// The return instructions of functions of that name.
fn returns(modules: &Modules, name: &str) -> Result<Vec<u64>, Error> {
    let mut all = Vec::new();
    let mut found = modules
        .functions_named(name)
        .map_err(clew_debugger::Error::from)?;
    if let Some(program) = program(modules)
        && found.iter().any(|(image, _)| program.is(image))
    {
        found.retain(|(image, _)| program.is(image));
    }
    for (image, function) in found {
        let Ok(file) = std::fs::read(image.module.path()) else {
            continue;
        };
        let returns = instructions(&file, &function)
            .into_iter()
            .filter(|instruction| instruction.flow_control() == FlowControl::Return)
            .map(|instruction| instruction.ip().wrapping_add(image.bias));
        all.extend(returns);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A function's instructions, at addresses of its file.
fn instructions(file: &[u8], function: &Function) -> Vec<Instruction> {
    let code = function.ranges.iter().filter_map(|range| {
        let code = part(file, range.start, range.end)?;
        let decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
        Some(decoder.into_iter().collect::<Vec<_>>())
    });
    code.flatten().collect()
}

/// Where a function's own jumps lead.
pub fn branches(file: &[u8], function: &Function) -> Vec<u64> {
    let jumps = instructions(file, function).into_iter().filter(|one| {
        matches!(
            one.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        )
    });
    jumps.map(|one| one.near_branch_target()).collect()
}

/// The bytes of a file that are at these addresses of it.
fn part(file: &[u8], start: u64, end: u64) -> Option<&[u8]> {
    let header = Header::parse(file).ok()?;
    let parts = header.program_headers(LE, file).ok()?;
    parts
        .iter()
        .filter(|part| part.p_type(LE) == elf::PT_LOAD)
        .find_map(|part| {
            let from = start.checked_sub(part.p_vaddr(LE))?;
            let len = end.checked_sub(start)?;
            let data = part.data(LE, file).ok()?;
            data.get(from as usize..from.checked_add(len)? as usize)
        })
}
