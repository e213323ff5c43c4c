//! Ctrl-C during long work whose part is worth something: it ends the work, not the command. In: SIGINT. Out: whether one came
//! since it was last asked; a second one ends the command, as always.

use std::sync::atomic::{AtomicBool, Ordering};

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signo: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}

/// From here on the first Ctrl-C is only noted.
pub fn catch() {
    // SAFETY: the handler stores one atomic; a zeroed action has no flags and an empty mask. SA_RESETHAND: once.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
    }
}

/// Whether one came; it counts once.
pub fn came() -> bool {
    CAME.swap(false, Ordering::Relaxed)
}
