//! What the engine says on stderr, and how it ends when it can't go on.
//!
//! Written straight to descriptor 2, in one call: the guest may have closed or moved anything, and
//! lines of several processes mustn't mix.

use clew_recording::channel;

use crate::executor::Executor;
use crate::host::borrower;
use crate::syscall;

/// Exit status for "the engine gave up", never a guest's own.
pub const STATUS: i32 = 125;

/// A line on stderr, marked as clew's.
pub fn warn(text: &str) {
    line(2, text);
}

pub fn line(fd: i32, text: &str) {
    let text = format!("clew: {text}\n");
    // SAFETY: writes from a live buffer; a closed descriptor only fails the call.
    unsafe { syscall!(libc::SYS_write, fd, text.as_ptr(), text.len()) };
}

impl Executor {
    /// Says once, on stderr and in the recording, what a recorded program isn't given.
    pub fn say(&mut self, text: String) {
        self.memory.note(text, true);
    }
}

/// The guest did what the engine can't follow: says so and ends the process.
pub fn refuse(ex: &Executor, what: &str) -> ! {
    warn(&format!(
        "{what} (program {}, pc {:#x}); stopping",
        ex.program.exe.display(),
        ex.gs.regs.rip
    ));
    exit(STATUS)
}

/// Ends the process at once.
pub fn exit(status: i32) -> ! {
    // Or whoever looks after recorded processes would take it for killed.
    channel::leaves(true);
    borrower::leaves();
    loop {
        // SAFETY: ends the process; nothing after it runs.
        unsafe { syscall!(libc::SYS_exit_group, status) };
    }
}
