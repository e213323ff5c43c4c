//! Single instructions, executed by the processor. In: code, registers and memory. Out: what they are afterwards, or that
//! it faulted. A child process stands still for it; its memory is shared.

use std::ptr;

/// Where code and data are, in both processes: low, so that absolute operands reach it.
pub const CODE: u64 = 0x3000_0000;
pub const DATA: u64 = CODE + 0x1000;
pub const DATA_LEN: usize = 0x1800;

#[derive(Clone, PartialEq)]
pub struct State {
    pub general: [u64; 16],
    pub flags: u64,
    pub rip: u64,
    /// As `xsave` lays it out.
    pub extended: Vec<u8>,
    pub memory: Vec<u8>,
}

pub struct Native {
    child: libc::pid_t,
    regs: libc::user_regs_struct,
    extended: Vec<u8>,
}

const NT_X86_XSTATE: usize = 0x202;
const XSTATE_BV: usize = 512;

impl Native {
    pub fn new() -> Native {
        // SAFETY: the mapping is at addresses that nothing else has, and the child calls nothing but the kernel.
        unsafe {
            let len = 0x1000 + DATA_LEN.next_multiple_of(0x1000);
            let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let mapped = libc::mmap(CODE as *mut _, len, protection, flags, -1, 0);
            assert_eq!(mapped as u64, CODE);
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
            let mut native = Native {
                child,
                regs: std::mem::zeroed(),
                extended: vec![0; 0x4000],
            };
            native.wait();
            let to = &mut native.regs as *mut libc::user_regs_struct;
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, to);
            let mut io = native.io();
            libc::ptrace(libc::PTRACE_GETREGSET, child, NT_X86_XSTATE, &mut io);
            native.extended.truncate(io.iov_len);
            native
        }
    }

    fn io(&mut self) -> libc::iovec {
        libc::iovec {
            iov_base: self.extended.as_mut_ptr().cast(),
            iov_len: self.extended.len(),
        }
    }

    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: the status is ours.
        let done = unsafe { libc::waitpid(self.child, &mut status, 0) };
        assert!(
            done == self.child && libc::WIFSTOPPED(status),
            "{status:#x}"
        );
        libc::WSTOPSIG(status)
    }

    pub fn extended_len(&self) -> usize {
        self.extended.len()
    }

    /// Executes one instruction, all repetitions of it.
    pub fn run(&mut self, code: &[u8], before: &State) -> Option<State> {
        let all = &before.general;
        let regs = &mut self.regs;
        [regs.rax, regs.rcx, regs.rdx, regs.rbx] = [all[0], all[1], all[2], all[3]];
        [regs.rsp, regs.rbp, regs.rsi, regs.rdi] = [all[4], all[5], all[6], all[7]];
        [regs.r8, regs.r9, regs.r10, regs.r11] = [all[8], all[9], all[10], all[11]];
        [regs.r12, regs.r13, regs.r14, regs.r15] = [all[12], all[13], all[14], all[15]];
        regs.rip = before.rip;
        regs.eflags = before.flags | 0x202;
        // Not in a system call: the kernel would restart it.
        regs.orig_rax = u64::MAX;
        self.extended.copy_from_slice(&before.extended);
        // x87, SSE and AVX: what isn't marked isn't loaded.
        self.extended[XSTATE_BV] = 7;
        // SAFETY: the mapping is ours, and as long; the child stands still.
        unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), before.rip as *mut u8, code.len());
            ptr::copy_nonoverlapping(before.memory.as_ptr(), DATA as *mut u8, DATA_LEN);
            let from = &self.regs as *const libc::user_regs_struct;
            assert_eq!(libc::ptrace(libc::PTRACE_SETREGS, self.child, 0, from), 0);
            let mut io = self.io();
            let set = libc::ptrace(libc::PTRACE_SETREGSET, self.child, NT_X86_XSTATE, &mut io);
            assert_eq!(set, 0);
        }
        let repeats = 1 << 12;
        for _ in 0..repeats {
            // SAFETY: the child stands still, and what it writes to is ours.
            unsafe {
                libc::ptrace(libc::PTRACE_SINGLESTEP, self.child, 0, 0);
                if self.wait() != libc::SIGTRAP {
                    return None;
                }
                let to = &mut self.regs as *mut libc::user_regs_struct;
                libc::ptrace(libc::PTRACE_GETREGS, self.child, 0, to);
            }
            if self.regs.rip != before.rip {
                return Some(self.state());
            }
        }
        None
    }

    fn state(&mut self) -> State {
        let mut memory = vec![0; DATA_LEN];
        // SAFETY: as above.
        unsafe {
            ptr::copy_nonoverlapping(DATA as *const u8, memory.as_mut_ptr(), DATA_LEN);
            let mut io = self.io();
            libc::ptrace(libc::PTRACE_GETREGSET, self.child, NT_X86_XSTATE, &mut io);
        }
        let regs = &self.regs;
        State {
            general: [
                regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi,
                regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
            ],
            flags: regs.eflags,
            rip: regs.rip,
            extended: self.extended.clone(),
            memory,
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the child is ours.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, ptr::null_mut(), 0);
        }
    }
}
