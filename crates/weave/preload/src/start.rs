//! The library's begin and end: finds out whether this process is to be recorded or replayed.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;

use crate::fail;
use crate::format::*;
use crate::heap;
use crate::log;
use crate::modules;
use crate::order;
use crate::real;
use crate::stdio;
use crate::sys::nr;
use crate::tape;
use crate::thread::{self, RECORD, REPLAY, Thread};
use crate::threads;

const VARIABLE: &[u8] = b"CLEW_WEAVE=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const LONGEST: usize = 4096;

/// Where the recording is, with room for a file's name.
pub static mut FOLDER: [u8; LONGEST] = [0; LONGEST];
static mut FOLDER_LEN: usize = 0;

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *mut *mut c_char) = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin(_argc: c_int, argv: *const *const c_char, envp: *mut *mut c_char) {
    // SAFETY: the loader passes the program's own arrays; there are no threads yet.
    unsafe {
        real::find();
        stdio::find();
        stdio::find_apart();
        let Some(word) = take_variables(envp) else {
            return;
        };
        let (record, folder) = match word {
            [b'c', rest @ ..] => (true, rest),
            [b'p', rest @ ..] => (false, rest),
            _ => return,
        };
        if folder.len() + 16 > LONGEST {
            return;
        }
        let to = &raw mut FOLDER;
        core::ptr::copy_nonoverlapping(folder.as_ptr(), to.cast(), folder.len());
        FOLDER_LEN = folder.len();
        let t = if record {
            begin_recording()
        } else {
            Some(begin_replay())
        };
        let Some(t) = t else {
            return;
        };
        (*t).arena = heap::main_arena();
        threads::prepare();
        thread::set_me(t);
        start_event(t, argv, envp);
        stdio::begin();
        if record {
            modules::list(file(b"/modules\0"));
        }
    }
}

/// A file of the recording.
pub unsafe fn file(name: &[u8]) -> &'static CStr {
    // SAFETY: set once, before there are threads; there is room for a name.
    unsafe {
        let at = (&raw mut FOLDER).cast::<u8>();
        core::ptr::copy_nonoverlapping(name.as_ptr(), at.add(FOLDER_LEN), name.len());
        CStr::from_ptr(at.cast())
    }
}

/// Takes this library's variables from the environment, so that the program sees its own.
unsafe fn take_variables(envp: *mut *mut c_char) -> Option<&'static [u8]> {
    let mut found = None;
    // SAFETY: the environment is an array of strings that ends with NULL, and nobody else uses it yet.
    unsafe {
        let (mut from, mut to) = (envp, envp);
        while !(*from).is_null() {
            let text = CStr::from_ptr(*from).to_bytes();
            let mut keep = true;
            if let Some(word) = text.strip_prefix(VARIABLE) {
                found = Some(word);
                keep = false;
            } else if let Some(value) = text.strip_prefix(PRELOAD) {
                // This library is the first in the list.
                match value.iter().position(|&byte| byte == b':') {
                    None => keep = false,
                    Some(colon) => {
                        let rest = value.len() - colon;
                        let at = (*from).cast::<u8>().add(PRELOAD.len());
                        core::ptr::copy(at.add(colon + 1), at, rest);
                    }
                }
            }
            if keep {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = core::ptr::null_mut();
    }
    found
}

/// A descriptor out of the program's way.
unsafe fn aside(fd: i64) -> i64 {
    // SAFETY: descriptors of this library's own.
    unsafe {
        if fd < 0 {
            return fd;
        }
        let mut limits = [0u64; 2];
        sys!(302, 0, 7, 0, limits.as_mut_ptr());
        let high = limits[0].clamp(32, 65536) as i64 - 8;
        // 1030: F_DUPFD_CLOEXEC.
        let new = sys!(nr::FCNTL, fd, 1030, high);
        if new < 0 {
            return fd;
        }
        sys!(nr::CLOSE, fd);
        new
    }
}

unsafe fn open(name: &[u8], flags: i64) -> i64 {
    // SAFETY: a file of the recording's own. 0o2000000: O_CLOEXEC.
    unsafe {
        aside(sys!(
            nr::OPENAT,
            -100,
            file(name).as_ptr(),
            flags | 0o2000000
        ))
    }
}

unsafe fn size(fd: i64) -> i64 {
    // SAFETY: a descriptor of this library's own. 8: lseek.
    unsafe { sys!(8, fd, 0, 2) }
}

unsafe fn begin_recording() -> Option<*mut Thread> {
    // SAFETY: before there are threads.
    unsafe {
        let pid = sys!(nr::GETPID) as u32;
        let fd = open(b"/log\0", 2);
        let len = size(fd);
        if fd < 0 || len < FIRST as i64 {
            return None;
        }
        let at = sys!(nr::MMAP, 0, len, 3, 1, fd, 0);
        if at < 0 {
            fail::stop("the log can't be mapped; is there a limit on memory (ulimit -v)?");
        }
        let header = at as *mut Header;
        if (*header).magic != MAGIC || ((*header).pid != 0 && (*header).pid != pid) {
            return None;
        }
        log::LOG_FD.store(fd as i32, Ordering::Relaxed);
        log::DATA_FD.store(open(b"/data\0", 2) as i32, Ordering::Relaxed);
        log::MAPPED.store(len as usize, Ordering::Relaxed);
        log::HEADER.store(header, Ordering::Relaxed);
        (*header).pid = pid;
        (*header).state = RUNNING;
        (*header).threads = 1;
        (*header).images += 1;
        let t = thread::new(RECORD, 1);
        let Some(at) = log::first(1) else {
            fail::stop("the disk is full");
        };
        (*header).first = at;
        log::attach(&mut *t, at);
        Some(t)
    }
}

unsafe fn begin_replay() -> *mut Thread {
    // SAFETY: before there are threads.
    unsafe {
        let fd = open(b"/log\0", 0);
        let len = size(fd);
        let at = sys!(nr::MMAP, 0, len, 1, 2, fd, 0);
        if fd < 0 || len < FIRST as i64 || at < 0 {
            fail::diverge("the log can't be opened");
        }
        sys!(nr::CLOSE, fd);
        tape::LOG.store(at as *mut u8, Ordering::Relaxed);
        tape::LEN.store(len as usize, Ordering::Relaxed);
        tape::DATA_FD.store(open(b"/data\0", 0) as i32, Ordering::Relaxed);
        let fd = open(b"/report\0", 2);
        if fd >= 0 {
            let len = HEADS as usize + REPORTED as usize * size_of::<Head>();
            let at = sys!(nr::MMAP, 0, len, 3, 1, fd, 0);
            if at > 0 {
                let report = at as *mut Report;
                (*report).state = RUNNING;
                fail::REPORT.store(report, Ordering::Release);
            }
            sys!(nr::CLOSE, fd);
        }
        let header = at as *const Header;
        if (*header).magic != MAGIC || (*header).version != VERSION {
            fail::diverge("the log is damaged, or of another version");
        }
        let t = thread::new(REPLAY, 1);
        threads::attach_replay(&mut *t, (*header).first);
        t
    }
}

/// The first event: what the program was given.
unsafe fn start_event(t: *mut Thread, argv: *const *const c_char, envp: *const *mut c_char) {
    // SAFETY: the calling thread; arrays of strings, each followed by NULL.
    unsafe {
        if (*t).mode == REPLAY {
            order::begin(&mut *t, Op::Start, 0);
            return order::done(&mut *t);
        }
        let mut parts = [(core::ptr::null::<u8>(), 0usize); 2];
        let (first, count) = area(argv.cast());
        parts[0] = (first, count);
        let (first, count) = area(envp.cast());
        parts[1] = (first, count);
        let result = Some(parts[0].1 as i64);
        let entry = log::Entry {
            op: Op::Start,
            hash: 0,
            turn: None,
            result,
            sum: None,
            flags: 0,
            payload: Some(&parts),
        };
        order::full(&mut *t, 0, 0, entry);
    }
}

/// The strings of an array, one after the other with their NULs, in memory of their own.
unsafe fn area(array: *const *const c_char) -> (*const u8, usize) {
    // SAFETY: strings that live; the copy is as long as they are.
    unsafe {
        let (mut len, mut n) = (0, 0);
        while !(*array.add(n)).is_null() {
            len += CStr::from_ptr(*array.add(n)).to_bytes().len() + 1;
            n += 1;
        }
        let copy = crate::sys::map(len.max(1));
        let mut at = copy;
        for n in 0..n {
            let text = CStr::from_ptr(*array.add(n)).to_bytes_with_nul();
            core::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
            at = at.add(text.len());
        }
        (copy, len)
    }
}

/// The process exits: stdio is flushed after this.
extern "C" fn end() {
    exiting();
}

/// Replaying, the others come as far as they did before it does.
pub fn exiting() {
    // SAFETY: the calling thread's own.
    unsafe {
        let t = thread::me();
        let Some(t) = t.as_mut() else {
            return;
        };
        match t.mode {
            RECORD => {
                modules::list_mapped(file(b"/modules\0"));
                order::plain(t, Op::Exit, 0);
                (*log::header()).state = EXITED;
            }
            REPLAY => {
                order::begin(t, Op::Exit, 0);
                fail::wait_for_others(t);
                order::done(t);
                let report = fail::REPORT.load(Ordering::Acquire);
                if !report.is_null() && (*report).state == RUNNING {
                    (*report).state = EXITED;
                }
            }
            _ => {}
        }
    }
}
