//! Alternate stacks for the engine's own signal handlers, one for each kernel thread.
//!
//! The kernel stores the whole extended state there (11 KiB with AMX), so the size is generous;
//! pages that no signal touches cost nothing.

/// Of the executor's handler stack.
pub const EXECUTOR_SIZE: usize = 256 << 10;

/// Makes `[base, base + len)` this kernel thread's alternate stack.
pub fn install(base: u64, len: usize) {
    let stack = libc::stack_t {
        ss_sp: base as *mut libc::c_void,
        ss_flags: 0,
        ss_size: len,
    };
    // SAFETY: the memory is the engine's and used for nothing else.
    unsafe {
        crate::syscall!(libc::SYS_sigaltstack, &raw const stack, 0);
    }
}

/// Anonymous memory for stacks and blocks; never unmapped. Address 0 if there is none.
pub fn map(len: usize) -> u64 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let map = || unsafe { crate::syscall!(libc::SYS_mmap, 0, len, prot, flags, -1i64, 0) };
    let at = crate::memory::reserve::asked(map);
    if crate::sys::is_err(at) { 0 } else { at as u64 }
}
