//! What the process inherited and Rust's runtime changes before `main`: SIGPIPE, which it
//! ignores. The guest must start with what its parent gave it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The handler word of SIGPIPE at process start: SIG_DFL or SIG_IGN.
static SIGPIPE: AtomicU64 = AtomicU64::new(libc::SIG_DFL as u64);

extern "C" fn capture() {
    if let Some(action) = super::handlers::kernel_action(libc::SIGPIPE) {
        SIGPIPE.store(action.handler, Ordering::Relaxed);
    }
}

// Constructors run before the runtime's own start-up code.
#[used]
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture;

pub fn sigpipe() -> u64 {
    SIGPIPE.load(Ordering::Relaxed)
}
