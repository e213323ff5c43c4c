//! Where debug code runs. In: FILE:LINE, FUNCTION, or FUNCTION$ for its returns. Out: addresses in the process.

use clew_debugger::{Debugger, Spot};
use clew_symbols::Modules;
use clew_symbols::variables::Catalog;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
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
    let mut addresses = debugger.addresses(&spot)?;
    if matches!(spot, Spot::Line { .. }) {
        let modules = debugger.modules()?;
        for address in &mut addresses {
            *address = behind_frame(&modules, *address);
        }
    }
    if matches!(spot, Spot::Function(_)) {
        let modules = debugger.modules()?;
        let catalog = debugger.catalog();
        // Of several functions of that name, those whose variables are known.
        let is_known = |pc: &u64| {
            let image = modules.find(*pc);
            image.is_some_and(|image| {
                matches!(catalog.compiled(image, image.local(*pc)), Ok(Some(_)))
            })
        };
        if addresses.iter().any(is_known) {
            addresses.retain(is_known);
        }
        for address in &mut addresses {
            *address = where_known(catalog, &modules, *address);
        }
    }
    Ok((addresses, false))
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
        Some(parameters.all(|variable| {
            !variable.parameter
                || spot
                    .variable(&variable.entry, None, &mut Numbers::default())
                    .is_ok()
        }))
    };
    if all_known(body) != Some(false) {
        return body;
    }
    let entry = || {
        let image = modules.find(body)?;
        let function = image.module.function_at(image.local(body)).ok()??;
        Some(function.entry.wrapping_add(image.bias))
    };
    match entry() {
        Some(entry) if all_known(entry) == Some(true) => entry,
        _ => body,
    }
}

/// The return instructions of functions of that name.
fn returns(modules: &Modules, name: &str) -> Result<Vec<u64>, Error> {
    let mut all = Vec::new();
    let found = modules
        .functions_named(name)
        .map_err(clew_debugger::Error::from)?;
    for (image, function) in found {
        let Ok(file) = std::fs::read(image.module.path()) else {
            continue;
        };
        for range in &function.ranges {
            let Some(code) = part(&file, range.start, range.end) else {
                continue;
            };
            let mut decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instruction.flow_control() == FlowControl::Return {
                    all.push(instruction.ip().wrapping_add(image.bias));
                }
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
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
