//! The functions behind the guest's fast time calls: the host's vdso, or the kernel without one.

use crate::context::GsBlock;
use crate::syscall;
use crate::vdso;

extern "C" fn clock_gettime(clock: u64, time: u64) -> i64 {
    // SAFETY: the caller passes a valid pointer (`translate::time`).
    unsafe { syscall!(libc::SYS_clock_gettime, clock, time) }
}

extern "C" fn gettimeofday(time: u64, zone: u64) -> i64 {
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_gettimeofday, time, zone) }
}

extern "C" fn time(time: u64) -> i64 {
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_time, time) }
}

/// Fills in `gs.vdso` and what else the fast path needs.
pub fn install(gs: &mut GsBlock) {
    // SAFETY: getauxval only reads; the kernel's value is the address of its vdso or 0.
    let found = unsafe { vdso::host_functions(libc::getauxval(libc::AT_SYSINFO_EHDR)) };
    let fallback = [
        clock_gettime as *const () as u64,
        gettimeofday as *const () as u64,
        time as *const () as u64,
        0,
    ];
    for ((slot, found), fallback) in gs.vdso.iter_mut().zip(found).zip(fallback) {
        *slot = if found != 0 { found } else { fallback };
    }
}
