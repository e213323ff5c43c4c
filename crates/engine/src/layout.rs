//! Where things live in the one address space that engine and guest share.
//!
//! Images and the code cache lie below 2 GiB so that every rel32 and RIP-relative operand of a
//! copied instruction reaches, and so that a guest pc is a sign-extended imm32. Stacks, the heap
//! and large anonymous maps live in a high arena. The engine itself is linked to
//! 0x5555… and has its own maps at 0x7f…, above both; nothing of it ever lies in these ranges.

use std::ops::Range;

/// The lowest address a guest may map (the kernel's usual `mmap_min_addr`).
pub const LOWEST: u64 = 0x1_0000;

/// Position-independent images, one fixed place for each file (see `cache::atlas`).
pub const IMAGES: Range<u64> = 0x1000_0000..0x2800_0000;

/// Other low mappings: hints near an image, MAP_32BIT, small executable anonymous maps (JITs).
pub const LOW_ANON: Range<u64> = IMAGES.end..0x5000_0000;

/// Left to programs that ask for these very addresses: SBCL's are built for the ones from 0x5000_0000 to 0x5ac0_0000.
/// Nothing is put here unasked.
pub const BY_REQUEST: Range<u64> = LOW_ANON.end..0x5b00_0000;

/// Translations of mutable code (JITs, self-modifying), never saved.
pub const PRIVATE_CODE: Range<u64> = BY_REQUEST.end..CONFINED_TABLES.start;

/// Where indirect branches of confined code are looked up, of a probe's module and of what it calls (`cache::confined`).
pub const CONFINED_TABLES: Range<u64> = 0x62f0_0000..0x6300_0000;

/// Translations of images, one fixed place for each file.
pub const IMAGE_CODE: Range<u64> = 0x6300_0000..GS_BLOCK;

/// The block at `gs` (`context::GsBlock`), in reach of all translations.
pub const GS_BLOCK: u64 = 0x7ef0_0000;

/// Which granules of guest memory are watched (`translate::checks::Filter`), behind that block.
pub const WATCH_FILTER: u64 = 0x7efe_0000;

/// Which states of a granule translated code passes when it reads and when it writes (`cache::shadow`).
pub const SHADOW_READS: u64 = 0x7ef9_0000;
pub const SHADOW_WRITES: u64 = 0x7efa_0000;

/// All of the code cache and the block behind it: no guest mapping may overlap it.
pub const CODE_CACHE: Range<u64> = PRIVATE_CODE.start..0x7f00_0000;

/// Guest memory above the code cache. Above AddressSanitizer's shadow and below the engine.
pub const HIGH: Range<u64> = 0x2000_0000_0000..0x4000_0000_0000;

/// Program break of every guest (natively behind the executable).
pub const HEAP: Range<u64> = 0x2000_0000_0000..0x2100_0000_0000;

/// Anonymous and other maps without a reason to be low; filled from the top down.
pub const HIGH_MAPS: Range<u64> = 0x2100_0000_0000..0x3fff_0000_0000;

/// Top of the main thread's stack.
pub const STACK_TOP: u64 = 0x3fff_ffff_f000;

/// Where the main thread's stack may grow; nothing else is placed there without being asked to.
pub const STACK: Range<u64> = HIGH_MAPS.end..STACK_TOP;

/// The page of the synthetic vdso (see `vdso`), the last one of [`LOW_ANON`].
pub const VDSO: u64 = LOW_ANON.end - 0x1000;

/// The engine's executable, which is linked to a fixed address in this range, and its heap. (Test
/// programs are static-pies, which the kernel puts here or among the maps.)
pub const ENGINE_IMAGE: Range<u64> = 0x5555_0000_0000..0x5700_0000_0000;

/// A state for each granule of guest memory, where somebody asks who touches it (`cache::shadow`).
pub const SHADOW: u64 = 0x56f0_0000_0000;

/// A probe's module and all memory of its own: 4 GiB that differ from all else in the upper half of their addresses, by
/// which writes to other memory are told (`translate::checks`). The first and the last page stay empty.
pub const PROBE: Range<u64> = 0x56d0_0000_0000..0x56d1_0000_0000;

/// What traces go through (`trace::buffer`).
pub const TRACE: u64 = 0x56e0_0000_0000;

/// Where the kernel puts the engine's own mappings, stack and vdso.
pub const ENGINE_MAPS: Range<u64> = 0x7d00_0000_0000..ADDRESS_END;

/// End of the user's half of the address space.
pub const ADDRESS_END: u64 = 0x7fff_ffff_f000;

/// Ranges that hold engine memory and that no guest mapping may touch.
pub const ENGINE: [Range<u64>; 3] = [CODE_CACHE, ENGINE_IMAGE, ENGINE_MAPS];

/// The parts of a range that a guest may own, in order.
pub fn guest_parts(range: Range<u64>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = range.start.max(LOWEST);
    let end = range.end.min(ADDRESS_END);
    let mut taken = ENGINE;
    taken.sort_by_key(|r| r.start);
    for engine in taken {
        let until = engine.start.min(end);
        if at < until {
            parts.push(at..until);
        }
        at = at.max(engine.end);
    }
    if at < end {
        parts.push(at..end);
    }
    parts
}

/// Everything that a guest may own.
pub fn is_guest(addr: u64, len: u64) -> bool {
    let Some(end) = addr.checked_add(len) else {
        return false;
    };
    addr >= LOWEST && end <= ADDRESS_END && !ENGINE.iter().any(|r| addr < r.end && r.start < end)
}
