//! stdio: streams whose bytes come and go through this library, and whose order among threads is kept for each.
//!
//! The C library reads and writes by calls of its own, which can't be taken the place of. So every stream
//! is one made by `fopencookie`, with functions of this library behind it; all else is the C library's own code, in a
//! replay too. Each function that takes a stream goes through a piece of code that has the stream's turn before and gives it
//! on behind, whatever the arguments are.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::export;
use crate::fail;
use crate::format::Op;
use crate::io;
use crate::order::{advance, begin as begin_event, done, held, turn};
use crate::real;
use crate::sys;
use crate::thread::{DEEPEST, OFF, RECORD, Thread, me};

type P = *mut c_void;

/// What `fopencookie` is given.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Functions {
    read: extern "C" fn(P, *mut u8, usize) -> i64,
    write: extern "C" fn(P, *const u8, usize) -> i64,
    seek: extern "C" fn(P, *mut i64, c_int) -> c_int,
    close: extern "C" fn(P) -> c_int,
}

const FUNCTIONS: Functions = Functions {
    read,
    write,
    seek,
    close,
};

/// A stream that this library knows.
struct Stream {
    file: AtomicUsize,
    clock: AtomicU64,
    /// Who has it, and how often.
    owner: AtomicUsize,
    waiting: AtomicU32,
    depth: AtomicU32,
    /// Its descriptor, plus one.
    fd: AtomicU32,
}

const STREAMS: usize = 4096;
static ALL: [Stream; STREAMS] = [const {
    Stream {
        file: AtomicUsize::new(0),
        clock: AtomicU64::new(0),
        owner: AtomicUsize::new(0),
        waiting: AtomicU32::new(0),
        depth: AtomicU32::new(0),
        fd: AtomicU32::new(0),
    }
}; STREAMS];

/// A stream's place, the same for all who ask.
fn stream(file: usize) -> &'static Stream {
    let key = if file == 0 { 1 } else { file };
    let mut at = (key >> 4).wrapping_mul(0x9e37_79b1) % STREAMS;
    for _ in 0..STREAMS {
        let one = &ALL[at];
        let found = one.file.load(Ordering::Acquire);
        if found == key
            || found == 0
                && one
                    .file
                    .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
        {
            return one;
        }
        if one.file.load(Ordering::Acquire) == key {
            return one;
        }
        at = (at + 1) % STREAMS;
    }
    fail::stop("the program has opened too many streams for a woven recording");
}

// ---- what is behind a stream. Where it is called from doesn't say anything, so the site is a constant.

extern "C" fn read(cookie: P, to: *mut u8, len: usize) -> i64 {
    // SAFETY: the C library's own buffer.
    unsafe { io::read_at(cookie as c_int, to, len, 1) }
}

extern "C" fn write(cookie: P, from: *const u8, len: usize) -> i64 {
    let mut done = 0;
    // SAFETY: the C library's own buffer.
    unsafe {
        while done < len {
            let written = io::write_at(cookie as c_int, from.add(done), len - done, 1);
            if written < 0 {
                break;
            }
            done += written as usize;
        }
    }
    // Less than all is an error, which it is told by nothing at all.
    if done == len { len as i64 } else { 0 }
}

extern "C" fn seek(cookie: P, at: *mut i64, from: c_int) -> c_int {
    // SAFETY: the C library's own variable.
    unsafe {
        let now = io::seek_at(cookie as c_int, *at, from);
        if now < 0 {
            return -1;
        }
        *at = now;
    }
    0
}

extern "C" fn close(cookie: P) -> c_int {
    // SAFETY: a descriptor of the stream's.
    unsafe { io::close_at(cookie as c_int, 1) as c_int }
}

unsafe fn make(fd: c_int, mode: *const c_char) -> P {
    // SAFETY: the program's mode; the descriptor is open.
    unsafe {
        let file = real::fopencookie()(fd as usize as P, mode, FUNCTIONS);
        if !file.is_null() {
            let stream = stream(file as usize);
            stream.clock.store(0, Ordering::Relaxed);
            stream.fd.store(fd as u32 + 1, Ordering::Release);
        }
        file
    }
}

unsafe extern "C" {
    static mut stdin: P;
    static mut stdout: P;
    static mut stderr: P;
}

/// Takes the place of the standard streams.
///
/// # Safety
/// Before the program uses them.
pub unsafe fn begin() {
    // SAFETY: the caller's.
    unsafe {
        const UNBUFFERED: c_int = 2;
        const LINES: c_int = 1;
        stdin = make(0, c"r".as_ptr());
        stdout = make(1, c"w".as_ptr());
        stderr = make(2, c"w".as_ptr());
        let buffering = real::setvbuf();
        buffering(stderr, core::ptr::null_mut(), UNBUFFERED, 0);
        if io::is_terminal(1) {
            buffering(stdout, core::ptr::null_mut(), LINES, 0);
        }
    }
}

/// Flags of `open` for a mode of `fopen`.
unsafe fn flags(mode: *const c_char) -> Option<c_int> {
    // SAFETY: a C string.
    let mode = unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes();
    let plus = mode
        .iter()
        .take_while(|&&byte| byte != b',')
        .any(|&byte| byte == b'+');
    let access = |alone: c_int| if plus { 2 } else { alone };
    let mut flags = match mode.first()? {
        b'r' => access(0),
        b'w' => access(1) | 0o1100,
        b'a' => access(1) | 0o2100,
        _ => return None,
    };
    if mode.contains(&b'e') {
        flags |= 0o2000000;
    }
    if mode.contains(&b'x') {
        flags |= 0o200;
    }
    Some(flags)
}

unsafe fn open_stream(path: *const c_char, mode: *const c_char, site: usize) -> P {
    // SAFETY: the program's own arguments, passed on.
    unsafe {
        let Some(flags) = flags(mode) else {
            real::set_errno(22);
            return core::ptr::null_mut();
        };
        let fd = io::open_at(-100, path, flags, 0o666, site);
        if fd < 0 {
            return core::ptr::null_mut();
        }
        make(fd as c_int, mode)
    }
}

export! { fn fopen(path: *const c_char, mode: *const c_char; site = "rdx") -> P {
    // SAFETY: see above.
    unsafe { open_stream(path, mode, site) }
}}
export! { fn fopen64(path: *const c_char, mode: *const c_char; site = "rdx") -> P {
    // SAFETY: see above.
    unsafe { open_stream(path, mode, site) }
}}
export! { fn fdopen(fd: c_int, mode: *const c_char; site = "rdx") -> P {
    // SAFETY: see above.
    unsafe { make(fd, mode) }
}}
export! { fn fileno(file: P; site = "rsi") -> c_int {
    fd_of(file)
}}
export! { fn fileno_unlocked(file: P; site = "rsi") -> c_int {
    fd_of(file)
}}
fn fd_of(file: P) -> c_int {
    match stream(file as usize).fd.load(Ordering::Acquire) {
        0 => {
            real::set_errno(9);
            -1
        }
        fd => fd as c_int - 1,
    }
}
export! { fn fclose(file: P; site = "rsi") -> c_int {
    // SAFETY: the program's stream.
    unsafe {
        let active = enter(file, site);
        let closed = real::fclose()(file);
        if active != 0 {
            let one = stream(file as usize);
            leave();
            one.clock.store(0, Ordering::Relaxed);
            one.fd.store(0, Ordering::Release);
        }
        closed
    }
}}

// ---- turns

fn active() -> Option<&'static mut Thread> {
    // SAFETY: the calling thread's own record.
    unsafe { me().as_mut().filter(|t| t.mode != OFF && t.depth == 0) }
}

unsafe fn take(t: &mut Thread, file: usize, site: usize) {
    let stream = stream(file);
    let mine = &raw const *t as usize;
    if stream.owner.load(Ordering::Relaxed) == mine {
        stream.depth.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the calling thread's own; streams are never gone.
    unsafe {
        let replays = t.mode != RECORD;
        if replays {
            let entry = begin_event(t, Op::Stream, site);
            turn(t, stream.clock.as_ptr(), &entry);
        }
        while stream
            .owner
            .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            stream.waiting.fetch_add(1, Ordering::SeqCst);
            // The low half of the owner's address is as good as all of it.
            let word = &*stream.owner.as_ptr().cast::<AtomicU32>();
            let seen = stream.owner.load(Ordering::SeqCst);
            if seen != 0 {
                sys::futex_wait(word, seen as u32, 0);
            }
            stream.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        stream.depth.store(1, Ordering::Relaxed);
        if replays {
            done(t);
        } else {
            held(t, stream.clock.as_ptr(), Op::Stream, site);
        }
    }
}

unsafe fn give(t: &mut Thread, file: usize) {
    let stream = stream(file);
    if stream.depth.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    // SAFETY: it is this thread's turn.
    unsafe {
        if t.mode != RECORD && t.mode != OFF {
            advance(stream.clock.as_ptr());
        }
        stream.owner.store(0, Ordering::SeqCst);
        if stream.waiting.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&*stream.owner.as_ptr().cast::<AtomicU32>(), 1);
        }
    }
}

/// Before a function of stdio: has the stream's turn, and remembers where to return to. 0 if nobody asks for that.
extern "C" fn enter(file: P, site: usize) -> usize {
    let Some(t) = active() else {
        return 0;
    };
    // SAFETY: set before the program runs.
    let file = unsafe {
        match file as usize {
            1 => stdout,
            2 => stdin,
            3 => stderr,
            _ => file,
        }
    };
    let at = t.nested as usize;
    if at == DEEPEST {
        fail::stop("stdio called itself too often");
    }
    // SAFETY: the calling thread's own.
    unsafe { take(t, file as usize, site) };
    t.returns[at] = site;
    t.files[at] = file as usize;
    t.nested += 1;
    1
}

/// Behind it: where to return to.
extern "C" fn leave() -> usize {
    // SAFETY: after `enter`, by the same thread.
    unsafe {
        let t = &mut *me();
        t.nested -= 1;
        let at = t.nested as usize;
        give(t, t.files[at]);
        t.returns[at]
    }
}

export! { fn flockfile(file: P; site = "rsi") -> () {
    if let Some(t) = active() {
        // SAFETY: the calling thread's own.
        unsafe { take(t, file as usize, site) };
    }
}}
export! { fn funlockfile(file: P; site = "rsi") -> () {
    if let Some(t) = active() {
        // SAFETY: the calling thread's own.
        unsafe { give(t, file as usize) };
    }
}}

/// Functions of stdio, and where their stream is: in a register, or a variable of the C library.
macro_rules! around {
    ($reals:ident $find:ident $enter:ident $leave:ident: $($name:ident $file:literal;)*) => {
        #[allow(non_upper_case_globals)]
        mod $reals { $(pub static mut $name: usize = 0;)* }
        /// Looks them up.
        ///
        /// # Safety
        /// Before there are threads.
        pub unsafe fn $find() {
            // SAFETY: the caller's.
            unsafe { $($reals::$name = real::next(concat!(stringify!($name), "\0"));)* }
        }
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rax", "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9",
                    "sub rsp, 128",
                    "movups [rsp], xmm0", "movups [rsp+16], xmm1", "movups [rsp+32], xmm2", "movups [rsp+48], xmm3",
                    "movups [rsp+64], xmm4", "movups [rsp+80], xmm5", "movups [rsp+96], xmm6", "movups [rsp+112], xmm7",
                    concat!("mov rdi, ", $file),
                    "mov rsi, [rsp+184]",
                    "call {enter}",
                    "mov r10, rax",
                    "movups xmm0, [rsp]", "movups xmm1, [rsp+16]", "movups xmm2, [rsp+32]", "movups xmm3, [rsp+48]",
                    "movups xmm4, [rsp+64]", "movups xmm5, [rsp+80]", "movups xmm6, [rsp+96]", "movups xmm7, [rsp+112]",
                    "add rsp, 128",
                    "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi", "pop rax",
                    "test r10, r10",
                    "jz 2f",
                    // The caller's return address goes, so that arguments on the stack are where they belong.
                    "add rsp, 8",
                    "call [rip + {real}]",
                    "push rax", "push rdx", "sub rsp, 16", "movups [rsp], xmm0",
                    "call {leave}",
                    "mov r11, rax",
                    "movups xmm0, [rsp]", "add rsp, 16", "pop rdx", "pop rax",
                    "jmp r11",
                    "2:",
                    "jmp [rip + {real}]",
                    enter = sym $enter, leave = sym $leave, real = sym $reals::$name,
                )
            }
        )*
    };
}

// Where registers are on the stack: rdi +168, rsi +160, rdx +152, rcx +144, r8 +136. Numbers are standard streams.
around! {
    reals find enter leave:
    fprintf "[rsp+168]";
    vfprintf "[rsp+168]";
    __fprintf_chk "[rsp+168]";
    __vfprintf_chk "[rsp+168]";
    fgetc "[rsp+168]";
    getc "[rsp+168]";
    _IO_getc "[rsp+168]";
    getc_unlocked "[rsp+168]";
    fgetc_unlocked "[rsp+168]";
    fflush "[rsp+168]";
    fflush_unlocked "[rsp+168]";
    fseek "[rsp+168]";
    fseeko "[rsp+168]";
    fseeko64 "[rsp+168]";
    ftell "[rsp+168]";
    ftello "[rsp+168]";
    ftello64 "[rsp+168]";
    rewind "[rsp+168]";
    fgetpos "[rsp+168]";
    fgetpos64 "[rsp+168]";
    fsetpos "[rsp+168]";
    fsetpos64 "[rsp+168]";
    clearerr "[rsp+168]";
    feof "[rsp+168]";
    ferror "[rsp+168]";
    setvbuf "[rsp+168]";
    setbuf "[rsp+168]";
    setbuffer "[rsp+168]";
    setlinebuf "[rsp+168]";
    fscanf "[rsp+168]";
    vfscanf "[rsp+168]";
    __isoc99_fscanf "[rsp+168]";
    __isoc99_vfscanf "[rsp+168]";
    __isoc23_fscanf "[rsp+168]";
    __isoc23_vfscanf "[rsp+168]";
    __uflow "[rsp+168]";
    __overflow "[rsp+168]";
    __underflow "[rsp+168]";
    getw "[rsp+168]";
    fputc "[rsp+160]";
    putc "[rsp+160]";
    _IO_putc "[rsp+160]";
    fputs "[rsp+160]";
    ungetc "[rsp+160]";
    fputc_unlocked "[rsp+160]";
    putc_unlocked "[rsp+160]";
    fputs_unlocked "[rsp+160]";
    putw "[rsp+160]";
    fgets "[rsp+152]";
    fgets_unlocked "[rsp+152]";
    getline "[rsp+152]";
    fread "[rsp+144]";
    fwrite "[rsp+144]";
    fread_unlocked "[rsp+144]";
    fwrite_unlocked "[rsp+144]";
    getdelim "[rsp+144]";
    __getdelim "[rsp+144]";
    __fgets_chk "[rsp+144]";
    __fgets_unlocked_chk "[rsp+144]";
    __fread_chk "[rsp+136]";
    __fread_unlocked_chk "[rsp+136]";
    printf "1";
    vprintf "1";
    puts "1";
    putchar "1";
    putchar_unlocked "1";
    __printf_chk "1";
    __vprintf_chk "1";
    getchar "2";
    getchar_unlocked "2";
    scanf "2";
    vscanf "2";
    __isoc99_scanf "2";
    __isoc99_vscanf "2";
    __isoc23_scanf "2";
    __isoc23_vscanf "2";
    perror "3";
    psignal "3";
    warn "3";
    vwarn "3";
    warnx "3";
    vwarnx "3";
    err "3";
    verr "3";
    errx "3";
    verrx "3";
    error "3";
    error_at_line "3";
}

// Functions that read files of the C library's own and keep what they found. How much memory they ask for depends on
// who asked first and where files are, so it comes from the heap apart.

extern "C" fn enter_apart(_: P, site: usize) -> usize {
    let Some(t) = active() else {
        return 0;
    };
    let at = t.nested as usize;
    if at == DEEPEST {
        fail::stop("functions of the C library called each other too often");
    }
    t.returns[at] = site;
    t.nested += 1;
    t.depth += 1;
    1
}

extern "C" fn leave_apart() -> usize {
    // SAFETY: after `enter_apart`, by the same thread.
    let t = unsafe { &mut *me() };
    t.depth -= 1;
    t.nested -= 1;
    t.returns[t.nested as usize]
}

around! {
    apart find_apart enter_apart leave_apart:
    newlocale "0";
    bindtextdomain "0";
    textdomain "0";
    bind_textdomain_codeset "0";
    gettext "0";
    dgettext "0";
    dcgettext "0";
    ngettext "0";
    dngettext "0";
    dcngettext "0";
    tzset "0";
    localtime "0";
    localtime_r "0";
    mktime "0";
    strftime "0";
    ctime "0";
    ctime_r "0";
    iconv_open "0";
    getpwnam "0";
    getpwuid "0";
    getpwnam_r "0";
    getpwuid_r "0";
    getgrnam "0";
    getgrgid "0";
    getgrnam_r "0";
    getgrgid_r "0";
}
