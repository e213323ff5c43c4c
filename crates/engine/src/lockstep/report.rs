//! What is printed when the two sides differ.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};

use super::compare::{ARITHMETIC, GPR_NAMES, State, flag_names};
use super::twin::Twin;
use super::{Difference, Lockstep};
use crate::executor::Executor;
use crate::kernel::stop;

/// Instructions of the way that are shown.
const SHOWN: usize = 40;

/// Prints the report and ends the process.
pub fn give_up(ex: &Executor, lockstep: &Lockstep, twin: &Twin, difference: &Difference) -> ! {
    stop::warn(&text(ex, lockstep, twin, difference));
    stop::exit(stop::STATUS)
}

fn text(ex: &Executor, lockstep: &Lockstep, twin: &Twin, difference: &Difference) -> String {
    let mut text = format!("lockstep: {}\n", difference.what);
    let _ = writeln!(
        text,
        "in segment {}, stretch {}, after {} instructions; program {}",
        lockstep.segments,
        lockstep.stretches,
        lockstep.instructions,
        ex.program.exe.display()
    );
    if let Some(states) = &difference.registers {
        let (here, there) = &**states;
        registers(&mut text, here, there);
    }
    let _ = writeln!(
        text,
        "the native way here, each instruction with its translation:"
    );
    let from = twin.trail.len().saturating_sub(SHOWN);
    for &pc in &twin.trail[from..] {
        instruction(&mut text, ex, pc);
    }
    let _ = write!(
        text,
        "to narrow it down: --debug lockstep,stretch=1 compares after every tick, memory too;\n\
         with bisect=0 as well, blocks aren't optimised; dump=N shows block N (CONTRIBUTING.md)"
    );
    text
}

fn registers(text: &mut String, here: &State, there: &State) {
    let _ = writeln!(text, "{:10}{:>34}{:>34}", "", "translated", "native");
    let mut line = |name: &str, a: String, b: String| {
        let mark = if a == b { "" } else { "  <--" };
        let _ = writeln!(text, "{name:10}{a:>34}{b:>34}{mark}");
    };
    let hex = |n: u64| format!("{n:#x}");
    line("rip", hex(here.rip), hex(there.rip));
    for (name, (&a, &b)) in GPR_NAMES.iter().zip(here.gpr.iter().zip(&there.gpr)) {
        line(name, hex(a), hex(b));
    }
    let flags = |n: u64| flag_names(n & (ARITHMETIC | 0x24_0400));
    line("flags", flags(here.rflags), flags(there.rflags));
    line("fs base", hex(here.fs_base), hex(there.fs_base));
    line("gs base", hex(here.gs_base), hex(there.gs_base));
    line("mxcsr", hex(here.mxcsr as u64), hex(there.mxcsr as u64));
    line(
        "x87",
        format!("{:x?}", here.x87),
        format!("{:x?}", there.x87),
    );
    // Of the many others only those that differ.
    let bytes = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .map(|b| format!("{b:02x}"))
            .collect::<String>()
    };
    for i in 0..8 {
        if here.st[i] != there.st[i] {
            line(&format!("st{i}"), bytes(&here.st[i]), bytes(&there.st[i]));
        }
    }
    for i in 0..16 {
        for (half, range) in [("high", 16..32), ("low", 0..16)] {
            let (a, b) = (&here.ymm[i][range.clone()], &there.ymm[i][range]);
            if a != b {
                line(&format!("ymm{i} {half}"), bytes(a), bytes(b));
            }
        }
    }
}

/// A guest instruction and what was made of it.
fn instruction(text: &mut String, ex: &Executor, pc: u64) {
    let mut bytes = [0u8; 15];
    let room = (4096 - pc % 4096).min(15) as usize;
    let read = crate::guest::access::read_bytes(pc, &mut bytes).is_ok()
        || crate::guest::access::read_bytes(pc, &mut bytes[..room]).is_ok();
    if !read {
        let _ = writeln!(text, "  {pc:#x}  (no memory)");
        return;
    }
    list(text, "", &bytes, pc, 1);
    let Some(host) = ex.code.host_code(pc) else {
        return;
    };
    // SAFETY: the cache says that this is a translation, and nothing changes it meanwhile.
    let code = unsafe {
        std::slice::from_raw_parts(host.start as *const u8, (host.end - host.start) as usize)
    };
    list(text, "        ", code, host.start as u64, usize::MAX);
}

fn list(text: &mut String, indent: &str, bytes: &[u8], at: u64, count: usize) {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut left = count;
    while left > 0 && decoder.can_decode() {
        left -= 1;
        decoder.decode_out(&mut instruction);
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "  {indent}{:#x}  {line}", instruction.ip());
    }
}
