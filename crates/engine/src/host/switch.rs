//! The way into translated code and back: the only place where guest and engine registers meet.
//!
//! `enter` saves the engine's callee-saved registers on its own stack, loads the guest's and jumps
//! to `gs:[resume]`. Every exit path ends in `exit_common`, which does the reverse and returns to
//! the caller of `enter`. GS is the engine's throughout; FS is the guest's while its code runs.

use std::arch::{asm, global_asm};
use std::mem::offset_of;

use crate::context::{
    CHECKED_BACK, CHECKED_END, CHECKED_FLAGS, CHECKED_LEN, CHECKED_LIST, CHECKED_PC, EXIT_ARG,
    EXIT_ROUTINES, Exit, GsBlock, Regs, Xsave,
};

const REGS: usize = offset_of!(GsBlock, regs);

global_asm!(
    // rdi is unused: everything is reached through gs.
    ".global clew_switch_enter, clew_exit_link, clew_exit_indirect, clew_exit_budget",
    ".global clew_exit_budget_rcx, clew_exit_syscall, clew_exit_emulate, clew_exit_stale",
    ".global clew_exit_fault, clew_exit_step, clew_exit_break, clew_exit_watch",
    ".global clew_check, clew_check_string",
    "clew_switch_enter:",
    "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
    "mov gs:[{engine_rsp}], rsp",
    "mov dword ptr gs:[{in_guest}], 1",
    // A signal that came before in_guest was set could not cut the budget: look once more.
    "cmp dword ptr gs:[{attention}], 0",
    "jne 2f",
    "mov rax, gs:[{fs}]",
    "wrfsbase rax",
    "vmovdqu ymm0, gs:[{ymm} + 0]", "vmovdqu ymm1, gs:[{ymm} + 32]",
    "vmovdqu ymm2, gs:[{ymm} + 64]", "vmovdqu ymm3, gs:[{ymm} + 96]",
    "vmovdqu ymm4, gs:[{ymm} + 128]", "vmovdqu ymm5, gs:[{ymm} + 160]",
    "vmovdqu ymm6, gs:[{ymm} + 192]", "vmovdqu ymm7, gs:[{ymm} + 224]",
    "vmovdqu ymm8, gs:[{ymm} + 256]", "vmovdqu ymm9, gs:[{ymm} + 288]",
    "vmovdqu ymm10, gs:[{ymm} + 320]", "vmovdqu ymm11, gs:[{ymm} + 352]",
    "vmovdqu ymm12, gs:[{ymm} + 384]", "vmovdqu ymm13, gs:[{ymm} + 416]",
    "vmovdqu ymm14, gs:[{ymm} + 448]", "vmovdqu ymm15, gs:[{ymm} + 480]",
    "ldmxcsr gs:[{mxcsr}]",
    "mov rbx, gs:[{r} + 24]", "mov rbp, gs:[{r} + 40]",
    "mov rsi, gs:[{r} + 48]", "mov rdi, gs:[{r} + 56]",
    "mov r8, gs:[{r} + 64]", "mov r9, gs:[{r} + 72]",
    "mov r10, gs:[{r} + 80]", "mov r11, gs:[{r} + 88]",
    "mov r12, gs:[{r} + 96]", "mov r13, gs:[{r} + 104]",
    "mov r14, gs:[{r} + 112]", "mov r15, gs:[{r} + 120]",
    // popf costs 20 cycles; the arithmetic flags and DF can be set without it, but AC can't.
    "push qword ptr gs:[{flags}]",
    "popfq",
    "mov rax, gs:[{r} + 0]", "mov rcx, gs:[{r} + 8]", "mov rdx, gs:[{r} + 16]",
    "mov rsp, gs:[{r} + 32]",
    "jmp qword ptr gs:[{resume}]",
    "2:",
    "mov dword ptr gs:[{exit_kind}], {attn}",
    "mov dword ptr gs:[{in_guest}], 0",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
    "ret",
    // The exit paths, by Exit. Those with a scratch register in use put it back first.
    "clew_exit_link:", "mov dword ptr gs:[{exit_kind}], 0", "jmp 5f",
    "clew_exit_indirect:", "mov rcx, gs:[{spill}]", "mov dword ptr gs:[{exit_kind}], 1", "jmp 5f",
    "clew_exit_budget:", "mov dword ptr gs:[{exit_kind}], 2", "jmp 5f",
    "clew_exit_budget_rcx:", "mov rcx, gs:[{spill}]", "mov dword ptr gs:[{exit_kind}], 2", "jmp 5f",
    "clew_exit_syscall:", "mov dword ptr gs:[{exit_kind}], 3", "jmp 5f",
    "clew_exit_emulate:", "mov dword ptr gs:[{exit_kind}], 4", "jmp 5f",
    "clew_exit_stale:", "mov dword ptr gs:[{exit_kind}], 5", "jmp 5f",
    "clew_exit_fault:", "mov dword ptr gs:[{exit_kind}], 6", "jmp 5f",
    "clew_exit_step:", "mov dword ptr gs:[{exit_kind}], 7", "jmp 5f",
    "clew_exit_break:", "mov dword ptr gs:[{exit_kind}], 9", "jmp 5f",
    "clew_exit_watch:", "mov dword ptr gs:[{exit_kind}], 10", "jmp 5f",
    // Does an access touch what is watched? rcx is its address, the guest's own rcx is spilled. Flags
    // are kept in registers: the stack is the guest's.
    "clew_check_string:",
    "mov gs:[{spill} + 8], rax", "mov gs:[{spill} + 16], rdx", "mov gs:[{spill} + 24], rbx",
    "lahf", "seto al",
    "mov gs:[{checked_flags}], rax",
    // As many bytes on either side as it can touch at all, more than the address space has at most.
    "mov rax, 0x100000000000",
    "mov rdx, gs:[{spill}]",
    "cmp rdx, rax",
    "cmova rdx, rax",
    "imul rdx, gs:[{checked_len}]",
    "lea rax, [rcx + rdx + 8]",
    "mov gs:[{checked_end}], rax",
    "mov rax, rcx",
    "sub rcx, rdx",
    // From 0 on, if it were below.
    "cmp rcx, rax",
    "mov eax, 0",
    "cmova rcx, rax",
    "jmp 3f",
    ".p2align 4",
    "clew_check:",
    "mov gs:[{spill} + 8], rax", "mov gs:[{spill} + 16], rdx", "mov gs:[{spill} + 24], rbx",
    "lahf", "seto al",
    "mov gs:[{checked_flags}], rax",
    "mov rax, gs:[{checked_len}]",
    "add rax, rcx",
    "mov gs:[{checked_end}], rax",
    "3:",
    "mov rax, gs:[{checked_list}]",
    "shl rax, 4",
    "mov rdx, gs:[rax + {watched}]",
    "mov rbx, gs:[rax + {watched} + 8]",
    // The first range that ends behind the access's start.
    "4:",
    "test rbx, rbx",
    "jz 6f",
    "mov rax, rbx",
    "shr rax, 1",
    "shl rax, 4",
    "cmp [rdx + rax + 8], rcx",
    "ja 7f",
    "lea rdx, [rdx + rax + 16]",
    "shr rax, 4",
    "not rax",
    "add rbx, rax",
    "jmp 4b",
    "7:",
    "shr rax, 4",
    "mov rbx, rax",
    "jmp 4b",
    "6:",
    "mov rcx, gs:[{checked_end}]",
    "cmp [rdx], rcx",
    "mov rax, gs:[{checked_flags}]",
    "mov rdx, gs:[{spill} + 16]", "mov rbx, gs:[{spill} + 24]", "mov rcx, gs:[{spill}]",
    "jb 8f",
    "add al, 0x7f",
    "sahf",
    "mov rax, gs:[{spill} + 8]",
    "jmp qword ptr gs:[{checked_back}]",
    "8:",
    "mov rcx, gs:[{checked_pc}]",
    "mov gs:[{exit_arg}], rcx",
    "mov rcx, gs:[{spill}]",
    "add al, 0x7f",
    "sahf",
    "mov rax, gs:[{spill} + 8]",
    "jmp clew_exit_watch",
    ".p2align 6",
    "5:",
    "mov gs:[{r} + 0], rax", "mov gs:[{r} + 8], rcx", "mov gs:[{r} + 16], rdx",
    "mov gs:[{r} + 24], rbx", "mov gs:[{r} + 32], rsp", "mov gs:[{r} + 40], rbp",
    "mov gs:[{r} + 48], rsi", "mov gs:[{r} + 56], rdi",
    "mov gs:[{r} + 64], r8", "mov gs:[{r} + 72], r9",
    "mov gs:[{r} + 80], r10", "mov gs:[{r} + 88], r11",
    "mov gs:[{r} + 96], r12", "mov gs:[{r} + 104], r13",
    "mov gs:[{r} + 112], r14", "mov gs:[{r} + 120], r15",
    "mov rsp, gs:[{engine_rsp}]",
    "pushfq",
    "pop rax",
    "mov gs:[{flags}], rax",
    // AC would fault the engine's own unaligned loads; DF its string instructions.
    "test eax, 0x40400",
    "jnz 7f",
    "6:",
    "vmovdqu gs:[{ymm} + 0], ymm0", "vmovdqu gs:[{ymm} + 32], ymm1",
    "vmovdqu gs:[{ymm} + 64], ymm2", "vmovdqu gs:[{ymm} + 96], ymm3",
    "vmovdqu gs:[{ymm} + 128], ymm4", "vmovdqu gs:[{ymm} + 160], ymm5",
    "vmovdqu gs:[{ymm} + 192], ymm6", "vmovdqu gs:[{ymm} + 224], ymm7",
    "vmovdqu gs:[{ymm} + 256], ymm8", "vmovdqu gs:[{ymm} + 288], ymm9",
    "vmovdqu gs:[{ymm} + 320], ymm10", "vmovdqu gs:[{ymm} + 352], ymm11",
    "vmovdqu gs:[{ymm} + 384], ymm12", "vmovdqu gs:[{ymm} + 416], ymm13",
    "vmovdqu gs:[{ymm} + 448], ymm14", "vmovdqu gs:[{ymm} + 480], ymm15",
    "vzeroupper",
    "stmxcsr gs:[{mxcsr}]",
    "mov eax, gs:[{mxcsr}]",
    // Unmasked exceptions or another rounding mode must not reach the engine's arithmetic.
    "and eax, 0xffc0",
    "cmp eax, 0x1f80",
    "jne 8f",
    "9:",
    "mov rax, gs:[{engine_fs}]",
    "wrfsbase rax",
    "mov dword ptr gs:[{in_guest}], 0",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
    "ret",
    "7:", "push 0x202", "popfq", "jmp 6b",
    "8:", "push 0x1f80", "ldmxcsr [rsp]", "pop rax", "jmp 9b",
    engine_rsp = const offset_of!(GsBlock, engine_rsp),
    engine_fs = const offset_of!(GsBlock, engine_fs),
    in_guest = const offset_of!(GsBlock, in_guest),
    attention = const offset_of!(GsBlock, attention),
    exit_kind = const offset_of!(GsBlock, exit_kind),
    attn = const Exit::Attention as u32,
    mxcsr = const offset_of!(GsBlock, mxcsr),
    ymm = const offset_of!(GsBlock, ymm),
    resume = const offset_of!(GsBlock, resume),
    spill = const offset_of!(GsBlock, spill),
    watched = const offset_of!(GsBlock, watched),
    checked_len = const CHECKED_LEN,
    checked_list = const CHECKED_LIST,
    checked_back = const CHECKED_BACK,
    checked_pc = const CHECKED_PC,
    exit_arg = const EXIT_ARG,
    checked_end = const CHECKED_END,
    checked_flags = const CHECKED_FLAGS,
    r = const REGS,
    flags = const REGS + offset_of!(Regs, rflags),
    fs = const REGS + offset_of!(Regs, fs_base),
);

unsafe extern "C" {
    fn clew_switch_enter();
    fn clew_exit_link();
    fn clew_exit_indirect();
    fn clew_exit_budget();
    fn clew_exit_budget_rcx();
    fn clew_exit_syscall();
    fn clew_exit_emulate();
    fn clew_exit_stale();
    fn clew_exit_fault();
    fn clew_exit_step();
    fn clew_exit_break();
    fn clew_exit_watch();
    fn clew_check();
    fn clew_check_string();
}

/// Runs translated code from `gs.resume` until it leaves the cache.
///
/// # Safety
/// `gs` is this thread's gs base, and `gs.resume` is an entry of the code cache for `gs.regs.rip`.
#[inline]
pub unsafe fn enter(gs: &mut GsBlock) -> Exit {
    super::borrower::rests();
    // SAFETY: the asm keeps the C calling convention: it saves and restores callee-saved
    // registers on this stack and clobbers only what a call may.
    unsafe {
        // The pointer is not used, but it tells the compiler that `gs` is read and written.
        asm!("call {}", sym clew_switch_enter, in("rdi") &raw mut *gs, clobber_abi("C"));
    }
    super::borrower::works();
    Exit::from_u32(gs.exit_kind)
}

/// Where a host signal handler sends a thread whose translated code faulted.
pub fn exit_fault_address() -> u64 {
    clew_exit_fault as *const () as u64
}

/// Fills in the exit routines, and remembers the engine's fs base.
pub fn install(gs: &mut GsBlock) {
    let routines: [unsafe extern "C" fn(); EXIT_ROUTINES] = [
        clew_exit_link,
        clew_exit_indirect,
        clew_exit_budget,
        clew_exit_syscall,
        clew_exit_emulate,
        clew_exit_stale,
        clew_exit_fault,
        clew_exit_step,
        clew_exit_budget_rcx,
        clew_exit_break,
        clew_exit_watch,
        clew_check,
        clew_check_string,
    ];
    for (slot, routine) in gs.exits.iter_mut().zip(routines) {
        *slot = routine as *const () as u64;
    }
    gs.engine_fs = fs_base();
}

fn fs_base() -> u64 {
    let base;
    // SAFETY: reads a register; FSGSBASE is checked at start-up.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    base
}

/// Makes `gs` this kernel thread's gs base.
pub fn set_gs(gs: *const GsBlock) {
    // SAFETY: the engine has no other use of gs; nothing in Rust or musl reads it.
    unsafe { asm!("wrgsbase {}", in(reg) gs, options(nostack)) };
}

/// The guest's whole x87, SSE and AVX state: vectors from `gs`, x87 from the CPU, where the
/// guest left it (the engine never touches x87).
pub fn save_extended(gs: &mut GsBlock, area: &mut Xsave) {
    area.0[512..576].fill(0);
    // SAFETY: xsave64 writes 832 bytes for components 0-2 into a 64-byte aligned area of that size.
    unsafe {
        asm!("xsave64 [{}]", in(reg) area.0.as_mut_ptr(), in("eax") 1u32, in("edx") 0u32,
            options(nostack));
    }
    // Opcode and addresses of the last x87 instruction: those of its translation.
    area.0[6..24].fill(0);
    area.0[24..28].copy_from_slice(&gs.mxcsr.to_le_bytes());
    area.0[28..32].copy_from_slice(&0xffffu32.to_le_bytes());
    for (i, ymm) in gs.ymm.iter().enumerate() {
        area.0[160 + 16 * i..176 + 16 * i].copy_from_slice(&ymm[..16]);
        area.0[576 + 16 * i..592 + 16 * i].copy_from_slice(&ymm[16..]);
    }
    // Which components are in their initial state is a matter of the microarchitecture; say that
    // all are in use, so that recordings and frames don't depend on it.
    area.0[512..520].copy_from_slice(&7u64.to_le_bytes());
    area.0[520..576].fill(0);
}

/// The reverse of [`save_extended`].
pub fn load_extended(gs: &mut GsBlock, area: &Xsave) {
    // SAFETY: restores x87 alone from a valid standard-format area; the header is ours or checked.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) area.0.as_ptr(), in("eax") 1u32, in("edx") 0u32,
            options(nostack));
    }
    let in_use = area.0[512];
    gs.mxcsr = u32::from_le_bytes(area.0[24..28].try_into().expect("four bytes"));
    for (i, ymm) in gs.ymm.iter_mut().enumerate() {
        ymm.fill(0);
        if in_use & 2 != 0 {
            ymm[..16].copy_from_slice(&area.0[160 + 16 * i..176 + 16 * i]);
        }
        if in_use & 4 != 0 {
            ymm[16..].copy_from_slice(&area.0[576 + 16 * i..592 + 16 * i]);
        }
    }
}
