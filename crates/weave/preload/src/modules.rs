//! The program and its libraries: their names for the recording, and what an address is called in a message.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;

use crate::fail::Text;
use crate::real;
use crate::sys::nr;

#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const Segment,
    count: u16,
}

#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    at: usize,
    physical: usize,
    file_size: usize,
    size: usize,
    align: usize,
}

struct Search<'a> {
    site: usize,
    text: &'a mut Text,
}

extern "C" fn look(info: *mut c_void, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: as dl_iterate_phdr gives them, and `place` below.
    unsafe {
        let (info, search) = (&*info.cast::<Info>(), &mut *search.cast::<Search>());
        for n in 0..info.count as usize {
            let segment = &*info.headers.add(n);
            let start = info.base.wrapping_add(segment.at);
            if segment.kind == 1 && (start..start.wrapping_add(segment.size)).contains(&search.site)
            {
                let name = CStr::from_ptr(info.name).to_str().unwrap_or("");
                let name = if name.is_empty() { "the program" } else { name };
                let _ = write!(search.text, " ({name}+{:#x})", search.site - info.base);
                return 1;
            }
        }
    }
    0
}

/// Adds where in the program that is.
pub fn place(text: &mut Text, site: usize) {
    if site != 0 {
        let mut search = Search { site, text };
        // SAFETY: calls back with what lives during the call.
        unsafe { real::dl_iterate_phdr()(look, (&raw mut search).cast()) };
    }
}

extern "C" fn write_name(info: *mut c_void, _size: usize, fd: *mut c_void) -> c_int {
    // SAFETY: as dl_iterate_phdr gives it.
    unsafe {
        let name = CStr::from_ptr((*info.cast::<Info>()).name).to_bytes();
        crate::sys!(nr::WRITE, fd as i64, name.as_ptr(), name.len());
        crate::sys!(nr::WRITE, fd as i64, c"\n".as_ptr(), 1);
    }
    0
}

/// Appends the names of all libraries to the file at `path`.
pub fn list(path: &CStr) {
    // SAFETY: a file of the recording's own.
    unsafe {
        let fd = crate::sys!(
            nr::OPENAT,
            -100,
            path.as_ptr(),
            0o2000000 | 0o2000 | 0o100 | 1,
            0o600
        );
        if fd >= 0 {
            real::dl_iterate_phdr()(write_name, fd as *mut c_void);
            crate::sys!(nr::CLOSE, fd);
        }
    }
}

/// Appends the names of all files that are mapped, but for the program's own mappings: the C library maps what it knows
/// of languages, and a replay must find it.
pub fn list_mapped(path: &CStr) {
    const PIECE: usize = 64 << 10;
    let (own, own_end) = crate::io::MAPS;
    // SAFETY: files of the recording's own and the kernel's; the memory is this function's.
    unsafe {
        let maps = crate::sys!(nr::OPENAT, -100, c"/proc/self/maps".as_ptr(), 0o2000000);
        let fd = crate::sys!(
            nr::OPENAT,
            -100,
            path.as_ptr(),
            0o2000000 | 0o2000 | 0o100 | 1,
            0o600
        );
        if maps < 0 || fd < 0 {
            return;
        }
        let memory = crate::sys::map(PIECE);
        let mut have = 0;
        loop {
            let got = crate::sys!(nr::READ, maps, memory.add(have), PIECE - have);
            if got <= 0 {
                break;
            }
            have += got as usize;
            let bytes = core::slice::from_raw_parts(memory, have);
            let mut done = 0;
            while let Some(len) = bytes[done..].iter().position(|&byte| byte == b'\n') {
                let line = &bytes[done..done + len + 1];
                done += len + 1;
                let start = line
                    .iter()
                    .take_while(|&&byte| byte != b'-')
                    .fold(0usize, |all, &byte| {
                        all << 4 | (byte as char).to_digit(16).unwrap_or(0) as usize
                    });
                if let Some(at) = line.iter().position(|&byte| byte == b'/')
                    && !(own..own_end).contains(&start)
                {
                    crate::sys!(nr::WRITE, fd, line.as_ptr().add(at), line.len() - at);
                }
            }
            core::ptr::copy(memory.add(done), memory, have - done);
            have -= done;
        }
        crate::sys!(nr::MUNMAP, memory, PIECE);
        crate::sys!(nr::CLOSE, maps);
        crate::sys!(nr::CLOSE, fd);
    }
}
