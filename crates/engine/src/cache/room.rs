//! Host memory for translations: how much a region gets, where, and how it is given back.

use std::ops::Range;

use crate::layout;

/// Room for the translations of one image: most code expands less than twofold, and of a large
/// image only a part ever runs. A region that fills up all the same starts over.
pub(super) fn room_for(text: u64) -> u64 {
    let small = text * 4 + (256 << 10);
    let large = text + text / 4 + (6 << 20);
    small.min(large).min(80 << 20).next_multiple_of(4096)
}

/// Maps memory for translations at a fixed place; pages cost nothing until they are used.
pub(super) fn map_code(range: &Range<u64>) -> std::io::Result<()> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let map = || unsafe {
        crate::syscall!(
            libc::SYS_mmap,
            range.start,
            range.end - range.start,
            prot,
            flags,
            -1i64,
            0
        )
    };
    let at = crate::memory::reserve::asked(map);
    if at == range.start as i64 {
        Ok(())
    } else {
        Err(std::io::Error::from_raw_os_error(-at as i32))
    }
}

/// Room for translations wherever the atlas has nothing: from the top of the range down, and less
/// than wished for where the range is crowded.
pub(super) fn map_anywhere(wish: u64) -> Range<u32> {
    const STEP: u64 = 256 << 10;
    let area = layout::IMAGE_CODE;
    let mut room = wish;
    while room >= LEAST_ROOM {
        let mut at = (area.end - room) / STEP * STEP;
        while at >= area.start {
            match map_code(&(at..at + room)) {
                Ok(()) => return at as u32..(at + room) as u32,
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) => at -= STEP,
                Err(e) => panic!("no memory for translations: {e}"),
            }
        }
        room = (room / 2).next_multiple_of(4096);
    }
    panic!("the address range for translations is used up");
}

/// Smaller regions would start over all the time.
const LEAST_ROOM: u64 = 192 << 10;

/// Gives the memory of dropped translations back.
pub(super) fn unmap_code(range: &Range<u32>) {
    // SAFETY: the region that used this memory is gone, and nothing leads there: the dispatch
    // table is rebuilt before guest code runs again.
    unsafe { crate::syscall!(libc::SYS_munmap, range.start, range.end - range.start) };
}
