//! What went wrong in debug code, in words: a failure in; the line of debug code and what it did out.

use clew_debugger::Debugger;
use clew_engine::layout;
use clew_timeline::probing::{Failed, Failure};

use crate::module::BASE;
use crate::prepare::Prepared;

/// A failure as people read it.
pub fn describe(debugger: &mut Debugger, prepared: &Prepared, failed: &Failed) -> String {
    let own = |address: u64| layout::PROBE.contains(&address);
    let line = match own(failed.pc) {
        true => line(prepared, failed.pc),
        // Behind the call.
        false => line(prepared, failed.from.wrapping_sub(1)),
    };
    let within = match own(failed.pc) {
        true => String::new(),
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
        Failure::Signal {
            signo: libc_segv,
            addr,
        } if libc_segv == 11 || libc_segv == 7 => {
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

/// The line of debug code at an address of the module.
fn line(prepared: &Prepared, pc: u64) -> String {
    let label = || "a probe".to_string();
    let Some(symbols) = &prepared.symbols else {
        return label();
    };
    let address = pc.wrapping_sub(BASE);
    let found = symbols
        .line_at(address)
        .ok()
        .flatten()
        .filter(|line| line.line != 0);
    match found {
        Some(line) => {
            let file = line.file.rsplit("/--at").next().unwrap_or(&line.file);
            let file = match file.len() != line.file.len() {
                true => format!("--at{file}"),
                false => file.rsplit('/').next().unwrap_or(file).to_string(),
            };
            format!("{file}:{}", line.line)
        }
        None => {
            let function = symbols.function_at(address).ok().flatten();
            function.map_or_else(label, |function| format!("a probe in {}", function.name))
        }
    }
}

/// ` (total)`, if a variable of the program is there.
fn variable(debugger: &mut Debugger, address: u64) -> String {
    let mut found = || -> Option<String> {
        let modules = debugger.modules().ok()?;
        let image = modules.find(address)?;
        let symbol = image.module.symbol_at(image.local(address)).ok()??;
        Some(format!(", which is {}", symbol.demangled()))
    };
    found().unwrap_or_default()
}
