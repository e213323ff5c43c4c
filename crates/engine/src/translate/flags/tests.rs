//! The CPU says what an instruction overwrites: run with a flag set and with the same flag clear, whatever
//! [`kills`] names must come out the same.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{ALL, hardware, kills};

/// rax to r15 without rsp, then the flags.
type State = [u64; 16];
const FLAGS: usize = 15;

/// A page with code around one instruction.
struct Bench(*mut u8);

impl Bench {
    fn new() -> Bench {
        // SAFETY: a fresh mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        Bench(page.cast())
    }

    /// Runs the instruction with these registers and flags; the flags behind it.
    fn run(&self, instruction: &[u8], state: &State) -> u64 {
        let mut code = Vec::new();
        // push rbx, rbp, r12 to r15, and rdi, where the state is
        code.extend([
            0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x57,
        ]);
        // push [rdi + flags]; popf
        code.extend([0xff, 0x77, FLAGS as u8 * 8, 0x9d]);
        for (slot, register) in (0..16u8).filter(|&r| r != 4).enumerate() {
            if register != 7 {
                // mov register, [rdi + slot]
                let rex = 0x48 | (register >> 3) << 2;
                code.extend([rex, 0x8b, 0x47 | (register & 7) << 3, slot as u8 * 8]);
            }
        }
        // mov rdi, [rdi + its own]
        code.extend([0x48, 0x8b, 0x7f, 6 * 8]);
        code.extend(instruction);
        // pushf; pop rax; pop rdi; then the others; cld; ret
        code.extend([
            0x9c, 0x58, 0x5f, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xfc,
            0xc3,
        ]);
        // SAFETY: the page is ours and long enough; what runs are these few instructions, which keep to the
        // calling convention but for xmm and mask registers.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.0, code.len());
            let run: extern "sysv64" fn(*const State) -> u64 = std::mem::transmute(self.0);
            run(state)
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Small numbers, powers and zero are where flags differ.
    fn operand(&mut self) -> u64 {
        let word = self.next();
        match word % 5 {
            0 => 0,
            1 => word >> 32 & 0x3f,
            2 => u64::MAX << (word >> 40 & 63),
            _ => word,
        }
    }
}

/// Instructions that write flags and can be run anywhere.
fn is_harmless(ins: &Instruction) -> bool {
    use Mnemonic::*;
    let known = match ins.mnemonic() {
        Add | Or | Adc | Sbb | And | Sub | Xor | Cmp | Test | Inc | Dec | Neg | Not | Shl | Shr
        | Sar | Sal | Rol | Ror | Rcl | Rcr | Shld | Shrd | Bsf | Bsr | Bt | Bts | Btr | Btc
        | Imul | Mul | Xadd | Cmpxchg | Comiss | Ucomiss | Comisd | Ucomisd | Ptest | Sahf
        | Cmc | Clc | Stc | Bswap | Lahf => true,
        Tzcnt | Andn | Blsi | Blsr | Blsmsk | Bextr => is_x86_feature_detected!("bmi1"),
        Bzhi => is_x86_feature_detected!("bmi2"),
        Lzcnt => is_x86_feature_detected!("lzcnt"),
        Popcnt => is_x86_feature_detected!("popcnt"),
        Adcx | Adox => is_x86_feature_detected!("adx"),
        Vptest | Vtestps | Vtestpd | Vcomiss | Vucomisd => is_x86_feature_detected!("avx"),
        _ => false,
    };
    let plain = |op| match ins.op_kind(op) {
        OpKind::Register => {
            let register = ins.op_register(op).full_register();
            register != Register::RSP && register != Register::None
        }
        OpKind::NearBranch64 | OpKind::Memory => false,
        _ => !ins.is_string_instruction(),
    };
    known && !ins.has_lock_prefix() && (0..ins.op_count()).all(plain)
}

/// Bytes that are likely to be one of those.
fn candidate(random: &mut Random) -> [u8; 15] {
    let mut bytes = [0; 15];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    let mut at = 0;
    let choice = random.next();
    for (bit, prefix) in [(0, 0x66), (1, 0xf3), (2, 0xf2)] {
        if choice >> (8 + 2 * bit) & 3 == 0 {
            bytes[at] = prefix;
            at += 1;
        }
    }
    if choice & 0x10 != 0 {
        bytes[at] = 0x40 | (choice >> 32) as u8 & 15;
        at += 1;
    }
    if choice & 0x20 != 0 {
        bytes[at] = 0x0f;
        at += 1;
    } else if choice & 0x1_c000 == 0 {
        bytes[at] = 0xc4;
        bytes[at + 1] = bytes[at + 1] & 0xe0 | 2;
        at += 2;
    }
    // A register as operand, mostly.
    bytes[at + 1] |= 0xc0;
    bytes
}

#[test]
fn what_is_killed_is_written_by_this_cpu() {
    let (bench, mut random) = (Bench::new(), Random(0x1234_5678_9abc_def1));
    let arithmetic = hardware(ALL) as u64;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..400_000 {
        let bytes = candidate(&mut random);
        let ins = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
        if ins.is_invalid() || !is_harmless(&ins) {
            continue;
        }
        let killed = hardware(kills(&ins)) as u64;
        let read = hardware(ins.rflags_read()) as u64;
        seen.insert((format!("{:?}", ins.mnemonic()), killed != 0));
        for _ in 0..4 {
            let mut state: State = std::array::from_fn(|_| random.operand());
            let same = random.next() & read & arithmetic;
            let mut after = |others: u64| {
                state[FLAGS] = 2 | same | others & arithmetic & !read;
                bench.run(&bytes[..ins.len()], &state)
            };
            let (clear, set) = (after(0), after(u64::MAX));
            assert_eq!(
                clear & killed,
                set & killed,
                "{:?} {:02x?}: {killed:#x} is left as it was",
                ins.mnemonic(),
                &bytes[..ins.len()]
            );
        }
    }
    let names: std::collections::BTreeSet<_> = seen.iter().map(|(name, _)| name).collect();
    assert!(names.len() > 35, "only {names:?} came up");
    assert!(seen.contains(&("Shl".into(), true)) && seen.contains(&("Shl".into(), false)));
}

#[test]
fn what_is_undefined_is_not_killed() {
    let killed = |bytes: &[u8]| kills(&Decoder::with_ip(64, bytes, 0x1000, 0).decode());
    use iced_x86::RflagsBits as F;
    // imul eax, ebx; mul rbx; div rbx; bsf eax, ebx
    assert_eq!(killed(&[0x0f, 0xaf, 0xc3]), F::CF | F::OF);
    assert_eq!(killed(&[0x48, 0xf7, 0xe3]), F::CF | F::OF);
    assert_eq!(killed(&[0x48, 0xf7, 0xf3]), 0);
    assert_eq!(killed(&[0x0f, 0xbc, 0xc3]), F::ZF);
    // shl eax, cl; shl eax, 1; shl eax, 3; shl eax, 32, which is by zero
    assert_eq!(killed(&[0xd3, 0xe0]), 0);
    assert_eq!(killed(&[0xd1, 0xe0]), ALL & !F::AF);
    assert_eq!(killed(&[0xc1, 0xe0, 3]), ALL & !F::AF & !F::OF);
    assert_eq!(killed(&[0xc1, 0xe0, 32]), 0);
    // and eax, ebx; bt eax, 3
    assert_eq!(killed(&[0x21, 0xd8]), ALL & !F::AF);
    assert_eq!(killed(&[0x0f, 0xba, 0xe0, 3]), F::CF);
}
