//! The frame that a signal leaves on the guest's stack, byte for byte as the kernel builds it
//! (`rt_sigframe`), and the way back. Pure: registers in, bytes out, and the reverse.

use super::altstack::AltStack;
use super::{SigSet, Siginfo, Trap};
use crate::context::{RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Regs, Xsave};

/// Return address, ucontext, siginfo.
pub const FRAME: usize = 8 + UCONTEXT + 128;
pub const UCONTEXT: usize = 304;
/// The extended state and the magic word behind it.
pub const XSTATE: usize = 832 + 4;
const MACHINE: usize = 40;
const MASK: usize = 296;
const RED_ZONE: u64 = 128;

/// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
const UC_FLAGS: u64 = 7;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// x87, SSE, AVX: all that guests are shown.
const XFEATURES: u64 = 7;
/// cs, gs, fs, ss as 16-bit fields.
const SEGMENTS: u64 = 0x33 | 0x2b << 48;
/// What a handler may change in rflags.
const USER_FLAGS: u64 = 0x5_0dd5;
const MXCSR_MASK: u32 = 0xffff;

/// Where the kernel keeps each register in `sigcontext`, by hardware number.
const ORDER: [usize; 16] = [
    8, 9, 10, 11, 12, 13, 14, 15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP,
];

/// Addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub frame: u64,
    pub xstate: u64,
}

/// Where the frame goes; None if an alternate stack overflows.
pub fn place(rsp: u64, altstack: &AltStack, on_altstack: bool) -> Option<Place> {
    let nested = altstack.in_use(rsp);
    let entering = on_altstack && altstack.status(rsp) == 0;
    let top = if entering {
        altstack.base.wrapping_add(altstack.size)
    } else {
        rsp.wrapping_sub(RED_ZONE)
    };
    let xstate = top.wrapping_sub(XSTATE as u64) & !63;
    let frame = (xstate.wrapping_sub(FRAME as u64) & !15).wrapping_sub(8);
    if (nested || entering) && !altstack.holds(frame) {
        return None;
    }
    Some(Place { frame, xstate })
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
fn get(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
fn get32(bytes: &[u8], at: usize) -> u32 {
    get(&[&bytes[at..at + 4], &[0; 4]].concat(), 0) as u32
}

/// What a frame says besides registers.
pub struct Details<'a> {
    pub info: &'a Siginfo,
    pub restorer: u64,
    pub altstack: AltStack,
    pub mask: SigSet,
    pub trap: Trap,
}

/// The bytes at [`Place::frame`].
pub fn build(regs: &Regs, place: Place, details: &Details) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    put(&mut bytes, 0, details.restorer);
    let uc = &mut bytes[8..8 + UCONTEXT];
    put(uc, 0, UC_FLAGS);
    for (i, word) in details.altstack.to_words().into_iter().enumerate() {
        put(uc, 16 + 8 * i, word);
    }
    for (i, &reg) in ORDER.iter().enumerate() {
        put(uc, MACHINE + 8 * i, regs.gpr[reg]);
    }
    let rest = [
        regs.rip,
        regs.rflags,
        SEGMENTS,
        details.trap.err,
        details.trap.trapno,
        details.mask.0,
        details.trap.cr2,
        place.xstate,
    ];
    for (i, word) in rest.into_iter().enumerate() {
        put(uc, MACHINE + 128 + 8 * i, word);
    }
    put(uc, MASK, details.mask.0);
    bytes[8 + UCONTEXT..].copy_from_slice(&details.info.0);
    bytes
}

/// The bytes at [`Place::xstate`]. Which components the CPU calls "in use" differs from run to
/// run; the frame says all of them, with their values.
pub fn build_xstate(area: &Xsave) -> [u8; XSTATE] {
    let mut bytes = [0; XSTATE];
    bytes[..832].copy_from_slice(&area.0);
    bytes[464..512].fill(0);
    bytes[464..468].copy_from_slice(&MAGIC1.to_le_bytes());
    bytes[468..472].copy_from_slice(&(XSTATE as u32).to_le_bytes());
    bytes[472..480].copy_from_slice(&XFEATURES.to_le_bytes());
    bytes[480..484].copy_from_slice(&832u32.to_le_bytes());
    bytes[512..576].fill(0);
    bytes[512..520].copy_from_slice(&XFEATURES.to_le_bytes());
    bytes[832..].copy_from_slice(&MAGIC2.to_le_bytes());
    bytes
}

/// What `rt_sigreturn` takes from a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    pub mask: SigSet,
    pub altstack: AltStack,
    /// Address of the extended state, or 0 for the initial one.
    pub xstate: u64,
}

/// Reads a ucontext back into `regs`.
pub fn parse(uc: &[u8; UCONTEXT], regs: &mut Regs) -> Restored {
    for (i, &reg) in ORDER.iter().enumerate() {
        regs.gpr[reg] = get(uc, MACHINE + 8 * i);
    }
    regs.rip = get(uc, MACHINE + 128);
    regs.rflags = (regs.rflags & !USER_FLAGS) | (get(uc, MACHINE + 136) & USER_FLAGS);
    Restored {
        mask: SigSet(get(uc, MASK)).blockable(),
        altstack: AltStack::from_words([get(uc, 16), get(uc, 24), get(uc, 32)]),
        xstate: get(uc, MACHINE + 184),
    }
}

/// Reads an extended state back; None if the CPU would refuse it. `magic2` is the word behind
/// the area, if it could be read.
pub fn parse_xstate(bytes: &[u8; 832], magic2: Option<u32>) -> Option<Xsave> {
    let init = Xsave::default();
    let mut area = Xsave(*bytes);
    let ours = get32(bytes, 464) == MAGIC1
        && get32(bytes, 468) as usize == XSTATE
        && get32(bytes, 480) == 832
        && magic2 == Some(MAGIC2);
    let present = if ours {
        if bytes[520..576].iter().any(|&b| b != 0) {
            return None;
        }
        get(bytes, 512) & get(bytes, 472) & XFEATURES
    } else {
        // A plain FXSAVE area, as somebody may have built it: no AVX state.
        3
    };
    if present & 6 != 0 && get32(bytes, 24) & !MXCSR_MASK != 0 {
        return None;
    }
    if present & 1 == 0 {
        area.0[..24].copy_from_slice(&init.0[..24]);
        area.0[32..160].fill(0);
    }
    if present & 2 == 0 {
        area.0[160..416].fill(0);
    }
    if present & 6 == 0 {
        area.0[24..32].copy_from_slice(&init.0[24..32]);
    }
    if present & 4 == 0 {
        area.0[576..832].fill(0);
    }
    area.0[416..512].fill(0);
    area.0[512..576].fill(0);
    area.0[512] = XFEATURES as u8;
    Some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs() -> Regs {
        let mut regs = Regs {
            rip: 0x1234,
            rflags: 0x246,
            ..Regs::default()
        };
        for (i, reg) in regs.gpr.iter_mut().enumerate() {
            *reg = 0x1000 + i as u64;
        }
        regs
    }

    #[test]
    fn place_is_the_kernels() {
        let none = AltStack::default();
        let at = place(0x10_0000, &none, true).unwrap();
        assert_eq!(at.xstate % 64, 0);
        assert_eq!(at.frame % 16, 8);
        assert!(at.xstate + XSTATE as u64 <= 0x10_0000 - 128);
        let alt = AltStack {
            base: 0x20_0000,
            size: 0x4000,
            flags: 0,
        };
        let at = place(0x10_0000, &alt, true).unwrap();
        assert!(alt.holds(at.frame) && at.xstate + 896 >= 0x20_4000);
        assert_eq!(
            place(0x20_0100, &alt, true),
            None,
            "nested handler overflows the stack"
        );
    }

    #[test]
    fn round_trip() {
        let regs_in = regs();
        let alt = AltStack {
            base: 0x20_0000,
            size: 0x4000,
            flags: 0,
        };
        let at = place(regs_in.gpr[RSP] + 0x10_0000, &alt, false).unwrap();
        let info = Siginfo::fault(11, 1, 0xdead);
        let trap = Trap {
            trapno: 14,
            err: 6,
            cr2: 0xdead,
        };
        let details = Details {
            info: &info,
            restorer: 0x77,
            altstack: alt,
            mask: SigSet(0x5),
            trap,
        };
        let bytes = build(&regs_in, at, &details);
        assert_eq!(get(&bytes, 0), 0x77);
        let mut uc = [0; UCONTEXT];
        uc.copy_from_slice(&bytes[8..8 + UCONTEXT]);
        let mut regs_out = Regs {
            rflags: 0x202,
            ..Regs::default()
        };
        let restored = parse(&uc, &mut regs_out);
        assert_eq!(regs_out, regs_in);
        assert_eq!(
            restored,
            Restored {
                mask: SigSet(5),
                altstack: alt,
                xstate: at.xstate
            }
        );
    }

    /// Against the C library's idea of the layout.
    #[test]
    fn offsets_match_libc() {
        use std::mem::offset_of;
        assert_eq!(MACHINE, offset_of!(libc::ucontext_t, uc_mcontext));
        assert_eq!(MASK, offset_of!(libc::ucontext_t, uc_sigmask));
        let gregs = offset_of!(libc::mcontext_t, gregs);
        assert_eq!(gregs, 0);
        for (i, reg) in [
            (13, libc::REG_RAX),
            (15, libc::REG_RSP),
            (16, libc::REG_RIP),
            (17, libc::REG_EFL),
            (22, libc::REG_CR2),
        ] {
            assert_eq!(i, reg);
        }
    }

    #[test]
    fn xstate_round_trip() {
        let mut area = Xsave::default();
        area.0[160] = 9;
        area.0[600] = 8;
        let bytes = build_xstate(&area);
        let mut body = [0; 832];
        body.copy_from_slice(&bytes[..832]);
        let back = parse_xstate(&body, Some(get32(&bytes, 832))).unwrap();
        assert_eq!((back.0[160], back.0[600], back.0[0]), (9, 8, 0x7f));
        // Without its magic word only the legacy part counts.
        let back = parse_xstate(&body, None).unwrap();
        assert_eq!((back.0[160], back.0[600]), (9, 0));
        body[26] = 1;
        assert!(
            parse_xstate(&body, Some(MAGIC2)).is_none(),
            "reserved bits of MXCSR"
        );
    }
}
