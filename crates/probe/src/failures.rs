//! What went wrong in debug code, in words: a failure in; the line of debug code and what it did out.

use clew_debugger::Debugger;
use clew_engine::layout;
use clew_symbols::demangle;
use clew_timeline::probing::{Failed, Failure};

use object::elf;
use object::read::elf::{FileHeader as _, Sym as _};

use crate::module::BASE;
use crate::prepare::Prepared;

type Header = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;

/// A failure as people read it.
pub fn describe(debugger: &mut Debugger, prepared: &Prepared, failed: &Failed) -> String {
    let probe = failed.at.map(|hit| hit.probe);
    let own = |address: u64| layout::PROBE.contains(&address);
    let line = line(prepared, failed, probe);
    let within = match own(failed.pc) {
        true => String::new(),
        // It has left the program's code, too.
        false if matches!(failed.why, Failure::Jump { .. }) => String::new(),
        false => {
            let location = debugger.anywhere(failed.pc).unwrap_or_default();
            format!(
                ", in the program's {}",
                location
                    .function
                    .unwrap_or_else(|| format!("{:#x}", failed.pc))
            )
        }
    };
    let what = match failed.why {
        // SIGBUS and SIGSEGV.
        Failure::Signal {
            signo: 7 | 11,
            addr,
        } => {
            format!("it crashed: nothing can be read or written at {addr:#x}")
        }
        Failure::Signal { signo, .. } => format!("it died by signal {signo}"),
        Failure::Write { addr } => {
            let named = variable(debugger, addr);
            format!("a probe can't write to the program: memory at {addr:#x}{named}")
        }
        Failure::Overflow => "its stack is used up".into(),
        Failure::Jump { to } => {
            format!("it called {to:#x}, where there is no code that a probe can run")
        }
        Failure::Endless => "it doesn't end: more ticks than --most-ticks allows".into(),
        Failure::Exited { status } => format!("it called exit({status})"),
        Failure::Left => "it left by a long jump".into(),
        Failure::Fork => "it would have made another process".into(),
        Failure::Waits => {
            "it waits for a lock that nobody will give back: the program holds it here".into()
        }
    };
    format!("{line}: {what}{within}")
}

/// The innermost line of debug code; the probe's place where there is none.
fn line(prepared: &Prepared, failed: &Failed, probe: Option<u32>) -> String {
    let label = || {
        let label = probe.and_then(|probe| prepared.labels.get(probe as usize));
        label.map_or_else(|| "a probe".into(), |label| format!("the probe at {label}"))
    };
    let Some(symbols) = &prepared.symbols else {
        return label();
    };
    // Calls are before where they return to.
    let calls = failed.stack.iter().map(|address| address.wrapping_sub(1));
    let all = std::iter::once(failed.pc).chain(calls);
    let mut lines = all.filter_map(|pc| {
        let line = symbols.line_at(pc.wrapping_sub(BASE)).ok().flatten()?;
        let file = prepared
            .files
            .iter()
            .find(|file| line.file.ends_with(file.as_str()));
        let file = match file?.rsplit_once('/') {
            Some((_, name)) if !file?.starts_with("--at ") => name,
            _ => file?,
        };
        (line.line != 0).then(|| format!("{file}:{}", line.line))
    });
    lines.next().unwrap_or_else(label)
}

/// `, which is total`, if a variable of the program is there.
fn variable(debugger: &mut Debugger, address: u64) -> String {
    let mut found = || -> Option<String> {
        let modules = debugger.modules().ok()?;
        let image = modules.find(address)?;
        let file = std::fs::read(image.module.path()).ok()?;
        let header = Header::parse(&file[..]).ok()?;
        let sections = header.sections(LE, &file[..]).ok()?;
        let symbols = sections.symbols(LE, &file[..], elf::SHT_SYMTAB).ok()?;
        let local = image.local(address);
        let symbol = symbols.iter().find(|symbol| {
            let start = symbol.st_value(LE);
            symbol.st_type() == elf::STT_OBJECT
                && (start..start.saturating_add(symbol.st_size(LE))).contains(&local)
        })?;
        let name = symbol.name(LE, symbols.strings()).ok()?;
        let name = String::from_utf8_lossy(name).into_owned();
        Some(format!(", which is {}", demangle(&name).unwrap_or(name)))
    };
    found().unwrap_or_default()
}
