//! Runs small pieces of assembly through the cache and compares with what they must do.

use std::arch::global_asm;

use super::CodeCache;
use super::atlas::SharedAtlas;
use crate::context::{Exit, GsBlock, RAX, RCX, RSP};
use crate::host::switch;
use crate::memory::Memory;
use crate::program::Options;
use crate::stats::Stats;

global_asm!(
    ".macro piece name",
    "    .global piece_\\name",
    "    piece_\\name:",
    ".endm",
    // A loop with a call and a return in it, flags carried over the loop's end by jrcxz-like code.
    "piece sum",
    "    mov ecx, 1000",
    "    xor eax, eax",
    "1:  call 2f",
    "    dec ecx",
    "    jnz 1b",
    "    syscall",
    "2:  add rax, rcx",
    "    ret",
    // Flags live across a backward branch: adc chain.
    "piece carry",
    "    mov ecx, 64",
    "    xor eax, eax",
    "    stc",
    "3:  adc rax, 0x10",
    "    lea rcx, [rcx - 1]",
    "    jrcxz 4f",
    "    jmp 3b",
    "4:  syscall",
    // Returns with live flags, indirect calls, jump tables.
    "piece indirect",
    "    xor eax, eax",
    "    mov ebx, 300",
    "    lea rdx, [rip + 7f]",
    "5:  stc",
    "    call rdx",
    "    adc rax, 0",
    "    dec ebx",
    "    jnz 5b",
    "    syscall",
    "7:  inc rax",
    "    ret",
    // Loops that are made tight, comparisons that are repeated, flags live and dead across ticks.
    "piece loops",
    "    xor eax, eax",
    "    mov ecx, 50",
    "8:  add rax, rcx",
    "    dec ecx",
    "    jnz 8b",
    "    mov edx, 40",
    "9:  adc rax, 3",
    "    dec edx",
    "    cmp edx, 20",
    "    ja 9b",
    "    setb bl",
    "    lea rsi, [rip + piece_loops]",
    "10: movzx edi, byte ptr [rsi]",
    "    add rax, rdi",
    "    inc rsi",
    "    cmp dil, 0x0f",
    "    jne 10b",
    "    cmp edx, 7",
    "    sbb rax, 5",
    "    mov ecx, 6",
    "11: add rax, 1",
    "    loop 11b",
    "    syscall",
    // All kinds of accesses; rdi is the data, 4 KiB, in whose midst it points.
    "piece memory",
    "    mov [rdi], eax",
    "    mov rbx, [rdi + 8]",
    "    add qword ptr [rdi + 16], 1",
    "    push rax",
    "    push qword ptr [rdi + 24]",
    "    pop qword ptr [rdi + 32]",
    "    pop rax",
    "    mov ecx, 3",
    "    mov [rdi + rcx*8 + 40], cl",
    "    movups xmm0, [rdi + 61]",
    "    movups [rdi + 77], xmm0",
    "    vmovdqu ymm1, [rdi + 100]",
    "    vmovdqu [rdi + 127], ymm1",
    "    call 12f",
    "    lea rsi, [rdi + 512]",
    "    push rdi",
    "    mov ecx, 9",
    "    rep movsw",
    "    mov ecx, 7",
    "    std",
    "    rep stosd",
    "    cld",
    "    pop rdi",
    "    push rdi",
    "    movsq",
    "    stosb",
    "    mov ecx, -1",
    "    repne scasb",
    "    pop rdi",
    "    mov edx, 8 * 300 + 3",
    "    bts [rdi], rdx",
    "    mov rdx, -77",
    "    btr [rdi], rdx",
    "    bt dword ptr [rdi + 4], 9",
    "    mov ebx, 16",
    "    lock xadd [rdi + 700], rbx",
    "    cmpxchg [rdi + 708], rbx",
    "    cmpxchg16b [rdi + 720]",
    "    push rbp",
    "    mov rbp, rsp",
    "    enter 16, 0",
    "    leave",
    "    enter 32, 3",
    "    leave",
    "    leave",
    "    lea rbx, [rdi + 800]",
    "    mov eax, 5",
    "    xlatb",
    "    vpcmpeqd ymm2, ymm2, ymm2",
    "    vpxor xmm3, xmm3, xmm3",
    "    vpsrldq ymm2, ymm2, 8",
    "    vpslld xmm2, xmm2, 3",
    "    vmovdqa ymm4, ymm2",
    "    vpgatherdd ymm5, [rdi + ymm3*4 + 900], ymm4",
    "    vpmaskmovd [rdi + 950], ymm2, ymm1",
    "    vmaskmovps ymm6, ymm2, [rdi + 1000]",
    "    maskmovdqu xmm1, xmm2",
    "    mov rdx, fs:[0]",
    "    xor ecx, ecx",
    "    mov rdx, fs:[rcx]",
    "    pushfq",
    "    popfq",
    "    fnstcw [rdi + 1040]",
    "    fldcw [rdi + 1040]",
    "    fxrstor [rdi + 1104]",
    "    nop dword ptr [rdi + 8]",
    "    prefetcht0 [rdi + 8]",
    "    lea rdx, [rdi + 16]",
    "    cmp [rdi + 64], dl",
    "    jne 13f",
    "    mov byte ptr [rdi], 1",
    "13: mov byte ptr [rip + piece_memory + 0x2000], 0x90",
    "    mov al, [rip + piece_memory]",
    "    jmp 14f",
    "14:",
    "    syscall",
    "12: mov [rdi + 200], rsp",
    "    ret",
    // Writes in a loop, as fast as they come.
    "piece writes",
    "15: mov [rdi + rcx], eax",
    "    dec rcx",
    "    jnz 15b",
    "    syscall",
    "piece end",
);

unsafe extern "C" {
    fn piece_sum();
    fn piece_carry();
    fn piece_indirect();
    fn piece_loops();
    fn piece_memory();
    fn piece_writes();
    fn piece_end();
}

/// What the code of a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Mutable,
    Image,
}

struct Machine {
    gs: &'static mut GsBlock,
    memory: Memory,
    code: CodeCache,
    stats: Stats,
    base: u64,
}

impl Machine {
    fn run_all(test: impl Fn(&mut Machine)) {
        for body in [Body::Mutable, Body::Image] {
            Machine::with(body, &test);
        }
    }

    /// Tests share one address space, so only one machine may exist at a time.
    fn with(body: Body, test: impl FnOnce(&mut Machine)) {
        static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE.lock();
        let gs = GsBlock::map().expect("one machine at a time");
        gs.mxcsr = 0x1f80;
        gs.regs.rflags = 0x202;
        switch::install(gs);
        switch::set_gs(gs);
        let mut memory = Memory::default();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        let base = memory.mmap(0, 0x4000, 7, flags, -1, 0).unwrap();
        let len = piece_end as *const () as usize - piece_sum as *const () as usize;
        assert!(len < 0x1000);
        // SAFETY: the pieces are this test's own code; the mapping was just made.
        unsafe {
            std::ptr::copy_nonoverlapping(
                piece_sum as *const () as *const u8,
                base as *mut u8,
                len,
            );
        }
        if body == Body::Image {
            // SAFETY: a new file in memory.
            let fd = unsafe { libc::memfd_create(c"image".as_ptr(), 0) };
            // SAFETY: writes from the mapping made above.
            assert_eq!(unsafe { libc::write(fd, base as *const _, 0x1000) }, 0x1000);
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
            memory.mmap(base, 0x1000, 5, flags, fd, 0).unwrap();
            // SAFETY: the mapping stays.
            unsafe { libc::close(fd) };
        }
        let code = CodeCache::new(&Options::default(), None, SharedAtlas::default()).unwrap();
        let mut machine = Machine {
            gs,
            memory,
            code,
            stats: Stats::default(),
            base,
        };
        test(&mut machine);
        machine.code.unmap();
        let range = crate::layout::PRIVATE_CODE;
        // SAFETY: unmaps what `CodeCache::new` mapped; nothing uses it any more.
        unsafe {
            crate::syscall!(libc::SYS_munmap, range.start, range.end - range.start);
            crate::syscall!(libc::SYS_munmap, base, 0x4000u64);
            crate::syscall!(
                libc::SYS_munmap,
                crate::layout::GS_BLOCK,
                size_of::<GsBlock>()
            );
        }
    }

    fn start(&mut self, piece: unsafe extern "C" fn()) {
        let offset = piece as *const () as u64 - piece_sum as *const () as u64;
        self.gs.regs.rip = self.base + offset;
        self.gs.regs.gpr[RSP] = self.base + 0x4000 - 64;
        self.gs.regs.fs_base = self.gs.engine_fs;
    }

    fn run(&mut self, piece: unsafe extern "C" fn(), budget: i64) -> (u64, i64) {
        self.start(piece);
        let mut ticks = 0;
        loop {
            self.gs.ticks_left = budget;
            let exit = self.code.enter(self.gs, &mut self.memory, &mut self.stats);
            ticks += budget - self.gs.ticks_left;
            match exit {
                Exit::Syscall => return (self.gs.regs.gpr[RAX], ticks),
                Exit::Budget => {}
                other => panic!("unexpected {other:?} at {:#x}", self.gs.regs.rip),
            }
        }
    }

    /// The same with a signal waiting all the time: nothing is entered where it could be followed,
    /// and from elsewhere exactly one tick is run, none of them lost.
    fn run_called(&mut self, piece: unsafe extern "C" fn()) -> (u64, i64) {
        const PLENTY: i64 = 1 << 40;
        self.start(piece);
        self.gs.clear_ticks();
        self.gs.add_ticks(PLENTY);
        loop {
            self.gs.attention = 1;
            let before = (self.gs.regs.rip, self.gs.ticks_in_hand());
            let exit = self.code.enter(self.gs, &mut self.memory, &mut self.stats);
            assert_eq!(exit, Exit::Attention);
            assert_eq!(before, (self.gs.regs.rip, self.gs.ticks_in_hand()));
            let exit = self.code.go_on(self.gs, &mut self.memory, &mut self.stats);
            assert_eq!(self.gs.attention, 1, "the signal isn't forgotten");
            let used = before.1 - self.gs.ticks_in_hand();
            match exit {
                Exit::Syscall => {
                    let ticks = PLENTY - self.gs.ticks_in_hand();
                    self.gs.attention = 0;
                    self.gs.clear_ticks();
                    return (self.gs.regs.gpr[RAX], ticks);
                }
                Exit::Budget => assert_eq!(used, 1),
                other => panic!("unexpected {other:?} at {:#x}", self.gs.regs.rip),
            }
            self.gs.give_back();
        }
    }

    /// The same one instruction at a time.
    fn run_stepwise(&mut self, piece: unsafe extern "C" fn()) -> (u64, i64) {
        self.start(piece);
        self.gs.ticks_left = 1 << 40;
        loop {
            let exit = self
                .code
                .step(self.gs, &mut self.memory, &mut self.stats, 1);
            match exit {
                Exit::Syscall => return (self.gs.regs.gpr[RAX], (1 << 40) - self.gs.ticks_left),
                Exit::Step | Exit::Indirect => {}
                other => panic!("unexpected {other:?} at {:#x}", self.gs.regs.rip),
            }
        }
    }
}

mod instruments;
mod shadow;
mod trace;

#[test]
fn pieces_compute_the_same_at_any_budget() {
    type Piece = (unsafe extern "C" fn(), u64);
    let pieces: [Piece; 3] = [
        (piece_sum, 500_500),
        (piece_carry, 64 * 0x10 + 1),
        (piece_indirect, 600),
    ];
    Machine::run_all(|machine| {
        for (piece, expected) in pieces {
            let (value, ticks) = machine.run(piece, 1 << 40);
            assert_eq!(value, expected);
            for budget in [1, 2, 3, 7, 100] {
                assert_eq!(
                    machine.run(piece, budget),
                    (expected, ticks),
                    "budget {budget}"
                );
            }
            assert_eq!(machine.run_stepwise(piece), (expected, ticks));
            assert_eq!(machine.gs.regs.gpr[RCX], machine.gs.regs.rip);
            assert_eq!(machine.run_called(piece), (expected, ticks));
        }
    });
}
