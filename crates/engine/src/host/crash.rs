//! An engine bug must be recognisable: never let it look as if the guest had died.
//!
//! Prints what the next person needs and leaves with status 125. Works with a broken heap and
//! without thread-local storage: formats into a buffer on the stack, writes with raw calls, reads
//! frames with the fault-tolerant copy.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::context::GsBlock;
use crate::host::copy;
use crate::host::siginfo::Siginfo;

/// The status that says "the engine is at fault", as `clew run` documents it.
pub const STATUS: i32 = 125;

static GS: AtomicPtr<GsBlock> = AtomicPtr::new(std::ptr::null_mut());
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Names the block that reports describe, and makes Rust panics end in a report.
pub fn install(gs: *mut GsBlock) {
    GS.store(gs, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        let mut text = Text::new();
        let message = panic.payload_as_str().unwrap_or("panic");
        match panic.location() {
            Some(at) => _ = write!(text, "{message}, at {}:{}", at.file(), at.line()),
            None => _ = text.write_str(message),
        }
        report(text.as_str(), frame_pointer());
    }));
}

/// A fault in engine code, from the handler.
pub fn fault(sig: i32, info: &Siginfo, rip: u64, rbp: u64) -> ! {
    let mut text = Text::new();
    let _ = write!(
        text,
        "signal {sig} (code {}) at engine address {rip:#x}, touching {:#x}",
        info.code(),
        info.addr()
    );
    report(text.as_str(), rbp)
}

/// A broken invariant that the engine noticed itself.
pub fn bug(what: &str) -> ! {
    report(what, frame_pointer())
}

fn report(what: &str, frame: u64) -> ! {
    if !REPORTING.swap(true, Ordering::SeqCst) {
        let mut text = Text::new();
        let _ = describe(&mut text, what, frame);
        // SAFETY: writes the buffer to standard error.
        unsafe {
            crate::syscall!(libc::SYS_write, 2, text.bytes.as_ptr(), text.len);
        }
    }
    clew_recording::channel::leaves(true);
    // SAFETY: ends the process.
    unsafe {
        crate::syscall!(libc::SYS_exit_group, STATUS);
    }
    loop {
        std::hint::spin_loop();
    }
}

fn describe(text: &mut Text, what: &str, frame: u64) -> fmt::Result {
    // SAFETY: asks for this kernel thread's id.
    let tid = unsafe { crate::syscall!(libc::SYS_gettid) };
    writeln!(text, "clew: engine bug: {what}")?;
    let gs = GS.load(Ordering::Relaxed);
    if !gs.is_null() {
        // SAFETY: the block is never unmapped; a torn value only makes the report less useful.
        unsafe {
            let regs = std::ptr::read_volatile(&raw const (*gs).regs);
            let kind = std::ptr::read_volatile(&raw const (*gs).exit_kind);
            let arg = std::ptr::read_volatile(&raw const (*gs).exit_arg);
            let resume = std::ptr::read_volatile(&raw const (*gs).resume);
            let in_guest = std::ptr::read_volatile(&raw const (*gs).in_guest);
            writeln!(
                text,
                "clew:   guest pc {:#x}, kernel thread {tid}, sp {:#x}",
                regs.rip, regs.gpr[4]
            )?;
            writeln!(
                text,
                "clew:   last block: resumed at {resume:#x}, exit kind {kind} argument {arg:#x}{}",
                if in_guest != 0 { ", in the guest" } else { "" }
            )?;
        }
    }
    write!(
        text,
        "clew:   engine {} stack (report() is at {:#x}):",
        env!("CARGO_PKG_VERSION"),
        report as *const () as u64
    )?;
    let mut frame = frame;
    for _ in 0..16 {
        let mut pair = [0u64; 2];
        // SAFETY: `pair` has 16 bytes; the source may be anything.
        let read = unsafe { copy::copy(pair.as_mut_ptr().cast(), frame as *const u8, 16) };
        if !read || pair[1] == 0 {
            break;
        }
        write!(text, " {:#x}", pair[1])?;
        if pair[0] <= frame {
            break;
        }
        frame = pair[0];
    }
    writeln!(text)?;
    writeln!(
        text,
        "clew:   The program is not to blame. Please report this text with the command line;"
    )?;
    writeln!(
        text,
        "clew:   CONTRIBUTING.md, \"Debugging the engine\", says how to narrow it down."
    )
}

fn frame_pointer() -> u64 {
    let frame;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags))
    };
    frame
}

/// A fixed buffer to format into; what doesn't fit is cut off.
struct Text {
    bytes: [u8; 2048],
    len: usize,
}

impl Text {
    fn new() -> Text {
        Text {
            bytes: [0; 2048],
            len: 0,
        }
    }
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("(unprintable)")
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let mut n = s.len().min(room);
        while !s.is_char_boundary(n) {
            n -= 1;
        }
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
