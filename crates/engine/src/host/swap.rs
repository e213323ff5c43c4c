//! New kernel threads, and the swap that makes the executor one of its own.
//!
//! The first kernel thread of a process has the process's id as its tid, which belongs to the
//! guest's main thread. As long as that is the only guest thread, it is also the executor. When
//! the guest starts a second one, a new kernel thread takes over the executor's life in the
//! middle of a function call: same stack, same thread-local storage, same registers. The old one
//! steps onto a small stack and becomes the main thread's proxy. At each moment one kernel thread
//! uses the engine's Rust world; Rust doesn't notice.

use std::arch::{asm, naked_asm};
use std::sync::atomic::Ordering;

use super::proxy::{Proxy, ProxyBlock};

type Start = extern "C" fn(*mut ProxyBlock) -> !;

/// clone(2) onto another stack, where the new kernel thread calls `start(block)`.
///
/// # Safety
/// The stack and `tid` must be unused and stay mapped; all signals must be blocked.
#[unsafe(naked)]
pub unsafe extern "C" fn clone_onto(
    _flags: u64,
    _stack_top: u64,
    _tid: *mut i32,
    _block: *mut ProxyBlock,
    _start: Start,
) -> i64 {
    // In: rdi flags, rsi stack, rdx tid word, rcx block, r8 start.
    naked_asm!(
        "push r12",
        "push r13",
        "mov r12, rcx",
        "mov r13, r8",
        "mov r10, rdx",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r13",
        "pop r12",
        "ret",
        "2: xor ebp, ebp",
        "mov rdi, r12",
        "call r13",
        "ud2",
    )
}

/// Makes a new kernel thread the executor; the caller's becomes the proxy of `proxy`'s block.
/// Returns on the new one: 0, or a negative errno on the old one if there can't be a new one.
/// All signals must be blocked.
pub fn swap(proxy: Proxy) -> i64 {
    let fs: u64;
    // SAFETY: reads the fs base.
    unsafe { asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags)) };
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    let block = std::ptr::from_ref(proxy.block()).cast_mut();
    // SAFETY: asks for this kernel thread's tid.
    let tid = unsafe { crate::syscall!(libc::SYS_gettid) };
    proxy.block().tid.store(tid as i32, Ordering::Relaxed);
    // SAFETY: the new kernel thread continues this very call with the same stack, fs and gs; the
    // old one leaves the stack without touching it again.
    let ret = unsafe {
        swap_stacks(
            flags as u64,
            proxy.block().stack_top(),
            fs,
            block,
            super::proxy::start_main,
        )
    };
    if ret < 0 {
        proxy.block().tid.store(0, Ordering::Relaxed);
    }
    ret
}

#[unsafe(naked)]
unsafe extern "C" fn swap_stacks(
    _flags: u64,
    _proxy_stack: u64,
    _fs: u64,
    _block: *mut ProxyBlock,
    _start: Start,
) -> i64 {
    // In: rdi flags, rsi the proxy's stack, rdx fs, rcx block, r8 start.
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rbx, rsi",
        "mov r12, rcx",
        "mov r13, r8",
        "mov rsi, rsp",
        "mov r8, rdx",
        "xor edx, edx",
        "xor r10d, r10d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jg 2f",
        // The new kernel thread (0), or failure: go on where we were.
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        // The old one.
        "2: mov rsp, rbx",
        "xor ebp, ebp",
        "mov rdi, r12",
        "call r13",
        "ud2",
    )
}
