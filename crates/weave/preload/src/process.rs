//! Processes, identities, what the system is like; and what a woven recording doesn't hold.

use core::ffi::{c_char, c_int, c_void};

use crate::export;
use crate::fail;
use crate::format::Op;
use crate::heap;
use crate::input::{When, ask, noted, replays};
use crate::order::{Ordered, critical};
use crate::real::{self, result};
use crate::sys;
use crate::thread::{OFF, me};

type P = *mut c_void;

macro_rules! identities {
    ($($name:ident = $nr:literal;)*) => {$(
        export! { fn $name(; site = "rdi") -> i64 {
            // SAFETY: asks for a number; likewise below.
            unsafe { ask(Op::Identity, site, $nr, When::Never, None, || sys!($nr), |_, _| {}) }
        }}
    )*};
}
identities! {
    getpid = 39;
    getppid = 110;
    gettid = 186;
    getuid = 102;
    geteuid = 107;
    getgid = 104;
    getegid = 108;
    getpgrp = 111;
}

// ---- the system

unsafe fn number(op: Op, site: usize, asked: u64, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: see above.
    unsafe { ask(op, site, asked, When::Never, None, make, |_, _| {}) }
}
export! { fn sysconf(name: c_int; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { number(Op::System, site, name as u64, || real::sysconf()(name)) }
}}
export! { fn get_nprocs(; site = "rdi") -> c_int {
    // SAFETY: see above.
    unsafe { number(Op::System, site, 1, || real::get_nprocs()().into()) as c_int }
}}
export! { fn get_nprocs_conf(; site = "rdi") -> c_int {
    // SAFETY: see above.
    unsafe { number(Op::System, site, 2, || real::get_nprocs_conf()().into()) as c_int }
}}
export! { fn sched_getcpu(; site = "rdi") -> c_int {
    // SAFETY: see above.
    unsafe {
        let mut cpu = 0u32;
        let at = (&raw mut cpu).cast::<u8>();
        number(Op::System, site, 3, || match sys!(309, at, 0, 0) {
            0 => i64::from(*at.cast::<u32>()),
            error => error,
        }) as c_int
    }
}}
unsafe fn filling(
    site: usize,
    nr: u64,
    to: *mut u8,
    len: usize,
    make: impl FnOnce() -> i64,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        ask(
            Op::System,
            site,
            nr,
            When::Never,
            None,
            make,
            |got, each| {
                if got >= 0 && !to.is_null() {
                    each(to, len)
                }
            },
        )
    }
}
export! { fn sched_getaffinity(pid: c_int, len: usize, to: *mut u8; site = "rcx") -> i64 {
    // SAFETY: see above. The kernel fills a part; the C library zeroes the rest.
    unsafe {
        let got = filling(site, 204, to, len, || {
            core::ptr::write_bytes(to, 0, len);
            sys!(204, pid, len, to)
        });
        if got > 0 { 0 } else { result(got) }
    }
}}
export! { fn pthread_getaffinity_np(handle: usize, len: usize, to: *mut u8; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe {
        -filling(site, 1204, to, len, || {
            let real: unsafe extern "C" fn(usize, usize, *mut u8) -> c_int = core::mem::transmute(real::next("pthread_getaffinity_np\0"));
            -i64::from(real(handle, len, to))
        }) as c_int
    }
}}
export! { fn uname(to: *mut u8; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(site, 63, to, 390, || sys!(63, to))) }
}}
export! { fn sysinfo(to: *mut u8; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(site, 99, to, 112, || sys!(99, to))) }
}}
export! { fn getrlimit(what: c_int, to: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(site, 97, to, 16, || sys!(97, what, to))) }
}}
export! { fn getrlimit64(what: c_int, to: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(site, 97, to, 16, || sys!(97, what, to))) }
}}
export! { fn setrlimit(what: c_int, from: P; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(number(Op::System, site, 160, || sys!(160, what, from))) }
}}
export! { fn gethostname(to: *mut u8, len: usize; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe {
        let mut names = [0u8; 390];
        let at = names.as_mut_ptr();
        let got = result(filling(site, 63, at, 390, || sys!(63, at)));
        let end = names[65..130].iter().position(|&byte| byte == 0).unwrap_or(64);
        if end >= len {
            return result(-36);
        }
        core::ptr::copy_nonoverlapping(at.add(65), to, end + 1);
        got
    }
}}

// ---- random numbers of the C library: one state for all threads

static mut RANDOM: Ordered = Ordered::new();

export! { fn random(; site = "rdi") -> i64 {
    // SAFETY: see above.
    unsafe { critical(me(), &raw mut RANDOM, Op::Library, || real::random()()) }
}}
export! { fn rand(; site = "rdi") -> c_int {
    // SAFETY: see above.
    unsafe { critical(me(), &raw mut RANDOM, Op::Library, || real::rand()()) }
}}
export! { fn srandom(seed: u32; site = "rsi") -> () {
    // SAFETY: see above.
    unsafe { critical(me(), &raw mut RANDOM, Op::Library, || real::srandom()(seed)) }
}}
export! { fn srand(seed: u32; site = "rsi") -> () {
    // SAFETY: see above.
    unsafe { critical(me(), &raw mut RANDOM, Op::Library, || real::srand()(seed)) }
}}

// ---- paths

export! { fn realpath(path: *const c_char, to: *mut u8; site = "rdx") -> *mut u8 {
    // SAFETY: see above.
    unsafe { resolved(path, to, site) }
}}
export! { fn __realpath_chk(path: *const c_char, to: *mut u8, room: usize; site = "rcx") -> *mut u8 {
    let _ = room;
    // SAFETY: see above.
    unsafe { resolved(path, to, site) }
}}
export! { fn canonicalize_file_name(path: *const c_char; site = "rsi") -> *mut u8 {
    // SAFETY: see above.
    unsafe { resolved(path, core::ptr::null_mut(), site) }
}}
unsafe fn resolved(path: *const c_char, to: *mut u8, site: usize) -> *mut u8 {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut u8;
        fn free(memory: *mut u8);
    }
    const LONGEST: usize = 4096;
    // SAFETY: see above. Without room, the C library makes some.
    unsafe {
        let given = !to.is_null();
        let to = if given { to } else { malloc(LONGEST) };
        let got = ask(
            Op::Stat,
            site,
            3,
            When::After,
            None,
            || {
                if real::realpath()(path, to).is_null() {
                    return -i64::from(*real::__errno_location());
                }
                core::ffi::CStr::from_ptr(to.cast())
                    .to_bytes_with_nul()
                    .len() as i64
            },
            |got, each| each(to, got.max(0) as usize),
        );
        if result(got) < 0 {
            if !given {
                free(to);
            }
            return core::ptr::null_mut();
        }
        to
    }
}

// ---- other processes

export! { fn fork(; site = "rdi") -> c_int {
    // SAFETY: the child goes on alone, unrecorded; a replay has none.
    unsafe {
        if !noted() {
            return real::fork()();
        }
        let result_of = ask(Op::Fork, site, 0, When::Before, None, || {
            heap::lock();
            let pid = real::fork()();
            heap::unlock();
            if pid == 0 {
                (*me()).mode = OFF;
            }
            match pid {
                -1 => -i64::from(*real::__errno_location()),
                pid => pid.into(),
            }
        }, |_, _| {});
        result(result_of) as c_int
    }
}}
export! { fn waitpid(pid: c_int, status: *mut u8, options: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::WaitChild, site, 61, When::After, None, || sys!(61, pid, status, options, 0),
            |got, each| if got > 0 && !status.is_null() { each(status, 4) }))
    }
}}
export! { fn wait(status: *mut u8; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::WaitChild, site, 61, When::After, None, || sys!(61, -1, status, 0, 0),
            |got, each| if got > 0 && !status.is_null() { each(status, 4) }))
    }
}}
export! { fn wait4(pid: c_int, status: *mut u8, options: c_int, usage: *mut u8; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::WaitChild, site, 61, When::After, None, || sys!(61, pid, status, options, usage),
            |got, each| if got > 0 {
                if !status.is_null() { each(status, 4) }
                if !usage.is_null() { each(usage, 144) }
            }))
    }
}}
export! { fn kill(pid: c_int, signal: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(ask(Op::Kill, site, signal as u64, When::Before, None, || sys!(62, pid, signal), |_, _| {})) }
}}
export! { fn system(command: *const c_char; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { ask(Op::Fork, site, 1, When::After, None, || real::system()(command).into(), |_, _| {}) as c_int }
}}
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut u8,
    path: P,
    actions: P,
    attributes: P,
    argv: P,
    envp: P,
) -> c_int {
    // SAFETY: see above.
    unsafe { spawn("posix_spawn\0", pid, path, actions, attributes, argv, envp) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut u8,
    path: P,
    actions: P,
    attributes: P,
    argv: P,
    envp: P,
) -> c_int {
    // SAFETY: see above.
    unsafe { spawn("posix_spawnp\0", pid, path, actions, attributes, argv, envp) }
}
unsafe fn spawn(
    name: &str,
    pid: *mut u8,
    path: P,
    actions: P,
    attributes: P,
    argv: P,
    envp: P,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        ask(
            Op::Fork,
            0,
            2,
            When::Before,
            None,
            || {
                let real: unsafe extern "C" fn(*mut u8, P, P, P, P, P) -> c_int =
                    core::mem::transmute(real::next(name));
                real(pid, path, actions, attributes, argv, envp).into()
            },
            |got, each| {
                if got == 0 && !pid.is_null() {
                    each(pid, 4)
                }
            },
        ) as c_int
    }
}
export! { fn _exit(status: c_int; site = "rsi") -> () {
    leave(status, site);
}}
export! { fn _Exit(status: c_int; site = "rsi") -> () {
    leave(status, site);
}}
fn leave(status: c_int, site: usize) {
    let _ = site;
    if noted() {
        crate::start::exiting();
    }
    sys::exit(status);
}

export! { fn sigwait(set: P, signal: *mut u8; site = "rdx") -> c_int {
    // SAFETY: see above. The error is the result.
    unsafe {
        -ask(Op::Kill, site, 1, When::After, None, || loop {
            match sys!(128, set, 0, 0, 8) {
                -4 => {}
                got => {
                    *signal.cast::<c_int>() = got as c_int;
                    break got.min(0);
                }
            }
        }, |got, each| if got == 0 { each(signal, 4) }) as c_int
    }
}}
export! { fn sigwaitinfo(set: P, info: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { wait_signal(set, info, core::ptr::null_mut(), site) }
}}
export! { fn sigtimedwait(set: P, info: *mut u8, time: P; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { wait_signal(set, info, time, site) }
}}
unsafe fn wait_signal(set: P, info: *mut u8, time: P, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            Op::Kill,
            site,
            2,
            When::After,
            None,
            || sys!(128, set, info, time, 8),
            |got, each| {
                if got > 0 && !info.is_null() {
                    each(info, 128)
                }
            },
        ))
    }
}
export! { fn pthread_kill(handle: usize, signal: c_int; site = "rdx") -> c_int {
    // SAFETY: see above. For threads that wait for signals; a replay has none to send.
    unsafe {
        ask(Op::Kill, site, signal as u64, When::Before, None, || {
            let real: unsafe extern "C" fn(usize, c_int) -> c_int = core::mem::transmute(real::next("pthread_kill\0"));
            real(handle, signal).into()
        }, |_, _| {}) as c_int
    }
}}

// ---- what isn't woven

macro_rules! refused {
    ($($name:ident = $what:literal;)*) => {$(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            extern "C" fn refuse() -> usize {
                if noted() && !replays() {
                    fail::unseen(concat!("the program calls ", stringify!($name), " (", $what,
                        "), which a woven recording can't hold; record it with: clew record"));
                }
                // SAFETY: looked up by its name.
                unsafe { real::next(concat!(stringify!($name), "\0")) }
            }
            // All registers that arguments may be in are kept.
            core::arch::naked_asm!(
                "push rax", "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9",
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp+16], xmm1", "movups [rsp+32], xmm2", "movups [rsp+48], xmm3",
                "movups [rsp+64], xmm4", "movups [rsp+80], xmm5", "movups [rsp+96], xmm6", "movups [rsp+112], xmm7",
                "call {refuse}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp+16]", "movups xmm2, [rsp+32]", "movups xmm3, [rsp+48]",
                "movups xmm4, [rsp+64]", "movups xmm5, [rsp+80]", "movups xmm6, [rsp+96]", "movups xmm7, [rsp+112]",
                "add rsp, 128",
                "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi", "pop rax",
                "jmp r11",
                refuse = sym refuse
            )
        }
    )*};
}
refused! {
    popen = "a pipe from a program";
    freopen = "a stream for another file";
    freopen64 = "a stream for another file";
    tmpfile = "a file without a name";
    dprintf = "formatted output to a descriptor";
    vdprintf = "formatted output to a descriptor";
    __dprintf_chk = "formatted output to a descriptor";
    mq_open = "message queues";
    msgget = "message queues";
    semget = "semaphores of System V";
    shmget = "shared memory";
    shm_open = "shared memory";
    sem_open = "named semaphores";
    vfork = "a child in the same memory";
    execl = "another program";
    execlp = "another program";
    execle = "another program";
    execv = "another program";
    execvp = "another program";
    execvpe = "another program";
    execve = "another program";
    fexecve = "another program";
    clone = "threads of its own making";
    getaddrinfo = "names of machines";
    gethostbyname = "names of machines";
    wprintf = "wide characters";
    fgetwc = "wide characters";
    fputwc = "wide characters";
    fwprintf = "wide characters";
    io_setup = "asynchronous input and output";
    aio_read = "asynchronous input and output";
    aio_write = "asynchronous input and output";
    timer_create = "timers that send signals";
    setitimer = "timers that send signals";
    alarm = "timers that send signals";
    signalfd = "signals from a descriptor";
    pause = "waiting for signals";
    sigsuspend = "waiting for signals";
    scandir = "a folder";
    nftw = "a folder";
    ftw = "a folder";
    glob = "a folder";
    mkstemp = "a temporary file";
    mkstemp64 = "a temporary file";
    mkdtemp = "a temporary folder";
    seekdir = "a place in a folder";
    sbrk = "memory by brk";
    brk = "memory by brk";
}

/// Calls by number: a futex is synchronisation that nobody else sees.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall() {
    extern "C" fn look(nr: i64) -> usize {
        if noted() && !replays() {
            let what = match nr {
                202 => {
                    "the program synchronises by futexes of its own (Rust's standard library, libgomp and others do), which \
                    a woven recording doesn't see; record it with: clew record"
                }
                // gettid and the like change nothing; getcpu and membarrier neither.
                324 => return 0,
                _ => {
                    "the program makes system calls by number (syscall), which a woven recording doesn't see; record it with: \
                    clew record"
                }
            };
            fail::unseen(what);
        }
        0
    }
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {look}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "mov rax, rdi", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov r10, r8", "mov r8, r9", "mov r9, [rsp+8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "push rax",
        "call {errno}",
        "pop rcx", "neg ecx", "mov [rax], ecx", "mov rax, -1",
        "ret",
        look = sym look,
        errno = sym errno
    )
}
extern "C" fn errno() -> *mut c_int {
    // SAFETY: the C library's own place for it.
    unsafe { real::__errno_location() }
}

// ---- signals: handlers of the program's may run at any time, which nobody notes

/// The program's handlers. They run, but a recording in which one did isn't exact.
static mut HANDLERS: [usize; 65] = [0; 65];

extern "C" fn handled(signal: c_int, info: P, context: P) {
    // SAFETY: the program's handler, for which it was set. Faults happen again in a replay by themselves.
    unsafe {
        if noted() && !replays() && !matches!(signal, 4 | 5 | 7 | 8 | 11) {
            fail::unseen(
                "a signal came for which the program has a handler, and a woven recording can't hold that; record it with: clew record",
            );
        }
        let handler: extern "C" fn(c_int, P, P) =
            core::mem::transmute(HANDLERS[signal as usize & 63]);
        handler(signal, info, context);
    }
}

#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

export! { fn sigaction(signal: c_int, new: *const Action, old: *mut Action; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe { set_handler(signal, new, old) }
}}
unsafe fn set_handler(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: see above.
    unsafe {
        if !noted() || !(1..64).contains(&signal) {
            return real::sigaction()(signal, new.cast(), old.cast());
        }
        let before = HANDLERS[signal as usize];
        let mut ours;
        let mut pass = new;
        if let Some(new) = new.as_ref()
            && new.handler > 1
        {
            ours = core::ptr::read(new);
            HANDLERS[signal as usize] = new.handler;
            ours.handler = handled as *const () as usize;
            ours.flags |= 4;
            pass = &raw const ours;
        }
        let done = real::sigaction()(signal, pass.cast(), old.cast());
        if let Some(old) = old.as_mut()
            && old.handler == handled as *const () as usize
        {
            old.handler = before;
        }
        done
    }
}
export! { fn signal(signal: c_int, handler: usize; site = "rdx") -> usize {
    // SAFETY: see above. 0x10000000: SA_RESTART.
    unsafe {
        let new = Action { handler, mask: [0; 16], flags: 0x1000_0000, restorer: 0 };
        let mut old = Action { handler: 0, mask: [0; 16], flags: 0, restorer: 0 };
        match set_handler(signal, &raw const new, &raw mut old) {
            0 => old.handler,
            _ => usize::MAX,
        }
    }
}}

export! { fn setlocale(what: c_int, name: *const c_char; site = "rdx") -> P {
    // SAFETY: see above. The C library finds what it knows of languages by itself; a replay has copies.
    unsafe {
        let Some(t) = me().as_mut().filter(|_| noted()) else {
            return real::setlocale()(what, name);
        };
        // How much memory that takes depends on where files are.
        t.depth += 1;
        let found = real::setlocale()(what, name);
        t.depth -= 1;
        if t.mode == crate::thread::RECORD && !name.is_null() {
            crate::modules::list_mapped(crate::start::file(b"/modules\0"));
        }
        found
    }
}}

export! { fn dlopen(path: *const c_char, flags: c_int; site = "rdx") -> P {
    // SAFETY: see above. A replay opens the recording's copy.
    unsafe {
        let handle = real::dlopen()(path, flags);
        if noted() && !replays() {
            crate::modules::list(crate::start::file(b"/modules\0"));
        }
        handle
    }
}}
