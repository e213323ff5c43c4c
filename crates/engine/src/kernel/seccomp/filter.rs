//! A seccomp filter: classic BPF over a call's number, address and arguments. In: the program as the guest gives it. Out:
//! whether the kernel would take it; what it says of a call.

/// The longest that the kernel takes.
const MOST: usize = 4096;
/// What a filter can look at: number, architecture, instruction pointer, six arguments.
const DATA: usize = 64;
const SCRATCH: usize = 16;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

// Classes, sizes, modes and operations of an instruction's code, as linux/bpf_common.h has them.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const MEM: u16 = 0x60;
const X: u16 = 0x08;
const A: u16 = 0x10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

impl Instruction {
    pub fn from_bytes(bytes: [u8; 8]) -> Instruction {
        let [a, b, jt, jf, k @ ..] = bytes;
        Instruction {
            code: u16::from_le_bytes([a, b]),
            jt,
            jf,
            k: u32::from_le_bytes(k),
        }
    }

    pub fn to_bytes(self) -> [u8; 8] {
        let [a, b] = self.code.to_le_bytes();
        let [c, d, e, f] = self.k.to_le_bytes();
        [a, b, self.jt, self.jf, c, d, e, f]
    }

    fn class(self) -> u16 {
        self.code & 7
    }
}

/// A call that is judged.
pub struct Subject {
    pub nr: u32,
    /// Behind the `syscall` instruction.
    pub ip: u64,
    pub args: [u64; 6],
}

impl Subject {
    fn bytes(&self) -> [u8; DATA] {
        let mut bytes = [0; DATA];
        bytes[..4].copy_from_slice(&self.nr.to_le_bytes());
        bytes[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ip.to_le_bytes());
        for (n, arg) in self.args.iter().enumerate() {
            bytes[16 + n * 8..24 + n * 8].copy_from_slice(&arg.to_le_bytes());
        }
        bytes
    }
}

/// A program that the kernel would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// None for one that the kernel would refuse.
    pub fn new(program: Vec<Instruction>) -> Option<Filter> {
        let len = program.len();
        if len == 0 || len > MOST || program[len - 1].class() != RET {
            return None;
        }
        for (at, one) in program.iter().enumerate() {
            if !fits(*one, at, len) {
                return None;
            }
        }
        loads_are_stored(&program).then_some(Filter(program))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// What it says. Every jump goes forwards, so it comes to an end.
    pub fn run(&self, subject: &Subject) -> u32 {
        let data = subject.bytes();
        let (mut a, mut x) = (0u32, 0u32);
        let mut scratch = [0u32; SCRATCH];
        let mut at = 0;
        while let Some(one) = self.0.get(at) {
            at += 1;
            let k = one.k;
            let operand = if one.code & X != 0 { x } else { k };
            match one.class() {
                LD => {
                    a = match one.code & 0xe0 {
                        IMM => k,
                        ABS => {
                            let from = k as usize;
                            let word = data.get(from..from + 4);
                            word.map_or(0, |word| {
                                u32::from_le_bytes([word[0], word[1], word[2], word[3]])
                            })
                        }
                        MEM => scratch[k as usize % SCRATCH],
                        _ => DATA as u32,
                    }
                }
                LDX => {
                    x = match one.code & 0xe0 {
                        IMM => k,
                        MEM => scratch[k as usize % SCRATCH],
                        _ => DATA as u32,
                    }
                }
                ST => scratch[k as usize % SCRATCH] = a,
                STX => scratch[k as usize % SCRATCH] = x,
                ALU => match one.code & 0xf0 {
                    0x00 => a = a.wrapping_add(operand),
                    0x10 => a = a.wrapping_sub(operand),
                    0x20 => a = a.wrapping_mul(operand),
                    // The kernel ends a filter that divides by zero with 0: the thread is killed.
                    0x30 => match a.checked_div(operand) {
                        Some(quotient) => a = quotient,
                        None => return 0,
                    },
                    0x40 => a |= operand,
                    0x50 => a &= operand,
                    // Only the lower five bits of what is in X count.
                    0x60 => a = a.wrapping_shl(operand),
                    0x70 => a = a.wrapping_shr(operand),
                    0x80 => a = a.wrapping_neg(),
                    _ => a ^= operand,
                },
                JMP => {
                    let holds = match one.code & 0xf0 {
                        0x00 => {
                            at = at.saturating_add(k as usize);
                            continue;
                        }
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(if holds { one.jt } else { one.jf });
                }
                RET => {
                    return match one.code & 0x18 {
                        A => a,
                        _ => k,
                    };
                }
                _ => match one.code & 0xf8 {
                    0x00 => x = a,
                    _ => a = x,
                },
            }
        }
        0
    }
}

/// Whether an instruction is one that seccomp's filters may have.
fn fits(one: Instruction, at: usize, len: usize) -> bool {
    let within = |offset: u32| (offset as usize) < len - at - 1;
    let in_scratch = (one.k as usize) < SCRATCH;
    match one.code {
        // A word of the data; its length.
        0x20 => one.k.is_multiple_of(4) && (one.k as usize) < DATA,
        0x80 | 0x81 => true,
        // Constants.
        0x00 | 0x01 => true,
        // Scratch memory.
        0x60 | 0x61 | 0x02 | 0x03 => in_scratch,
        0x06 | 0x16 => true,
        // Between A and X.
        0x07 | 0x87 => true,
        code if code & 7 == ALU => match code & 0xf8 {
            0x30 => one.k != 0,
            0x60 | 0x70 => one.k < 32,
            0x00 | 0x10 | 0x20 | 0x40 | 0x50 | 0x80 | 0xa0 => true,
            0x08 | 0x18 | 0x28 | 0x38 | 0x48 | 0x58 | 0x68 | 0x78 | 0xa8 => true,
            _ => false,
        },
        0x05 => within(one.k),
        code if code & 7 == JMP => {
            matches!(
                code & 0xf8,
                0x10 | 0x18 | 0x20 | 0x28 | 0x30 | 0x38 | 0x40 | 0x48
            ) && within(one.jt.into())
                && within(one.jf.into())
        }
        _ => false,
    }
}

/// What is read of scratch memory was written before, on every way there.
fn loads_are_stored(program: &[Instruction]) -> bool {
    let mut before = vec![u16::MAX; program.len()];
    let mut stored = 0u16;
    for (at, one) in program.iter().enumerate() {
        stored &= before[at];
        match one.code {
            0x02 | 0x03 => stored |= 1 << one.k,
            0x60 | 0x61 if stored & 1 << one.k == 0 => return false,
            0x05 => {
                before[at + 1 + one.k as usize] &= stored;
                stored = u16::MAX;
            }
            code if code & 7 == JMP => {
                before[at + 1 + usize::from(one.jt)] &= stored;
                before[at + 1 + usize::from(one.jf)] &= stored;
                stored = u16::MAX;
            }
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A call that no kernel knows, so that only a filter can answer it.
    const NUMBER: u32 = 1000;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;

    fn op(code: u16, k: u32) -> Instruction {
        Instruction {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    /// What the kernel makes of a filter.
    #[derive(Debug, PartialEq)]
    enum Verdict {
        Refused,
        /// What a call returns under it.
        Errno(i64),
        Killed,
    }

    fn kernel(program: &[Instruction], args: [u64; 6]) -> Verdict {
        let raw: Vec<[u8; 8]> = program.iter().map(|one| one.to_bytes()).collect();
        let prog = libc::sock_fprog {
            len: raw.len() as u16,
            filter: raw.as_ptr() as *mut libc::sock_filter,
        };
        // SAFETY: a page that both have; a child that makes calls only. It has no descriptors of its own: those of other
        // tests would stay open in it.
        unsafe {
            let (both, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            );
            let told =
                libc::mmap(std::ptr::null_mut(), 4096, both, flags, -1, 0).cast::<[i64; 2]>();
            assert_ne!(told.cast(), libc::MAP_FAILED);
            *told = [i64::MIN; 2];
            let how = libc::CLONE_FILES | libc::SIGCHLD;
            let pid = libc::syscall(libc::SYS_clone, how, 0, 0, 0, 0);
            if pid == 0 {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let set = libc::syscall(libc::SYS_seccomp, 1, 0, &raw const prog);
                (*told)[0] = set;
                if set == 0 {
                    let [a, b, c, d, e, f] = args;
                    let got = libc::syscall(i64::from(NUMBER), a, b, c, d, e, f);
                    (*told)[1] = if got == -1 {
                        i64::from(*libc::__errno_location())
                    } else {
                        -1
                    };
                }
                libc::_exit(0);
            }
            assert!(pid > 0);
            libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
            let got = *told;
            libc::munmap(told.cast(), 4096);
            match got {
                [0, i64::MIN] => Verdict::Killed,
                [0, errno] => Verdict::Errno(errno),
                _ => Verdict::Refused,
            }
        }
    }

    /// Instructions that may be right, and often aren't.
    fn instruction() -> impl Strategy<Value = Instruction> {
        let codes = prop::sample::select(vec![
            0x20, 0x80, 0x81, 0x00, 0x01, 0x60, 0x61, 0x02, 0x03, 0x06, 0x16, 0x07, 0x87, 0x04,
            0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0xa4, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c,
            0x5c, 0x6c, 0x7c, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x28,
            0x94, 0x0e, 0x40u16,
        ]);
        let k = prop_oneof![
            0..4u32,
            0..80u32,
            prop::sample::select(vec![16, 20, 24, 28, 32, 56, 60, u32::MAX, 0x8000_0000]),
            any::<u32>()
        ];
        (codes, 0..4u8, 0..4u8, k).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

        /// What it takes and says is what the kernel takes and says.
        #[test]
        fn as_the_kernel(body in prop::collection::vec(instruction(), 0..12), args in any::<[u64; 6]>()) {
            // Other calls are allowed; the answer is twelve bits of A as errno.
            let mut program = vec![op(0x20, 0), Instruction { code: 0x15, jt: 1, jf: 0, k: NUMBER }, op(0x06, ALLOW)];
            let ends = [0x06, 0x16];
            program.extend(body.iter().filter(|one| !ends.contains(&one.code)));
            program.extend([op(0x54, 0x7ff), op(0x44, ERRNO), op(0x16, 0)]);
            // Where the call is made isn't known here.
            program.retain(|one| one.code != 0x20 || !matches!(one.k, 8 | 12));
            let ours = match Filter::new(program.clone()) {
                None => Verdict::Refused,
                Some(filter) => {
                    let said = filter.run(&Subject { nr: NUMBER, ip: 0, args });
                    match said & 0xffff_0000 {
                        ERRNO => match (said & 0xffff).min(4095) {
                            // No error at all: the call returns 0.
                            0 => Verdict::Errno(-1),
                            errno => Verdict::Errno(i64::from(errno)),
                        },
                        // Allowed, logged, traced, notified: there is no such call, and nobody to ask.
                        0x7fff_0000 | 0x7ffc_0000 | 0x7ff0_0000 | 0x7fc0_0000 => Verdict::Errno(libc::ENOSYS.into()),
                        _ => Verdict::Killed,
                    }
                }
            };
            prop_assert_eq!(ours, kernel(&program, args));
        }
    }
}
