//! Brings a process up: from a request to run a program to the executor's first round.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cache::CodeCache;
use crate::cache::atlas::Atlas;
use crate::cache::store::Store;
use crate::context::{GsBlock, RSP};
use crate::executor::Executor;
use crate::guest::access;
use crate::guest::signals::Signals;
use crate::guest::threads::Threads;
use crate::handover::Handover;
use crate::host::kernel_thread::Role;
use crate::host::sigset::SigSet;
use crate::host::{altstack, crash, handlers, switch, time, virtual_clock};
use crate::kernel::descriptors::Hidden;
use crate::kernel::{Kernel, descriptors, procfs, stop};
use crate::loader::{self, LoadError, Resolved};
use crate::lockstep::Lockstep;
use crate::memory::Memory;
use crate::program::{Options, Program, Sched, StatsFor};
use crate::record::files::Files;
use crate::record::{Recorder, Standard};
use crate::scripts;
use crate::syscall;

/// The flags a program starts with: interrupts on, and the bit that is always set.
const RFLAGS: u64 = 0x202;
const MXCSR: u32 = 0x1f80;
const ARCH_SET_GS: u64 = 0x1001;

/// A program to run in this process, and what it inherits.
pub struct Request {
    pub program: Resolved,
    pub envp: Vec<CString>,
    pub handover: Handover,
}

impl Request {
    /// The first program of a run.
    pub fn first(program: Resolved, envp: Vec<CString>, options: Options) -> Request {
        let mut handover = Handover {
            options,
            exe_fd: -1,
            ..Handover::default()
        };
        handover.stats.is_main = true;
        choose_seed(&mut handover.options);
        if let Some(script) = &handover.options.script {
            scripts::keep(script, &mut handover.own.hidden);
        }
        if handover.options.stats != StatsFor::Nobody {
            handover.own.hidden.keep_stderr();
        }
        Request {
            program,
            envp,
            handover,
        }
    }

    /// What a guest's exec asked for: the last variable of the environment says so.
    /// One that can't be understood ends the process: the arguments are the guest's, and must not be taken for the
    /// command's own.
    pub fn handed_over(argv: &[CString], envp: &[&CStr]) -> Option<Result<Request, LoadError>> {
        let (last, envp) = envp.split_last()?;
        let mut handover = Handover::decode(last)?.unwrap_or_else(|error| {
            stop::warn(&error.to_string());
            stop::exit(stop::STATUS)
        });
        scripts::find(&handover.own.hidden, &mut handover.options);
        let found = if handover.exe_fd >= 0 {
            let found = loader::resolve_at(handover.exe_fd, c"", libc::AT_EMPTY_PATH, argv);
            descriptors::close(handover.exe_fd);
            found
        } else {
            loader::resolve(&handover.exe, argv)
        };
        Some(found.map(|mut program| {
            program.execfn = handover.execfn.clone();
            Request {
                program,
                envp: envp.iter().map(|&variable| variable.to_owned()).collect(),
                handover,
            }
        }))
    }
}

/// A run without a seed gets one; where it matters, it is said, so that the run can be made again.
fn choose_seed(options: &mut Options) {
    if options.seed.is_some() {
        return;
    }
    // Short enough to be typed.
    let mut seed = 0u32;
    // SAFETY: the kernel writes four bytes; should it fail, 0 is as good a seed as any.
    unsafe { syscall!(libc::SYS_getrandom, &raw mut seed, 4, 0) };
    options.seed = Some(u64::from(seed));
    if matches!(options.sched, Sched::Random | Sched::Pct) {
        stop::warn(&format!("--sched {} --seed {seed}", options.sched.name()));
    }
}

/// Runs the program in this process, to its end.
pub fn run(request: Request) -> ! {
    let record = request.handover.options.record.as_ref();
    let before = record.map_or(0, |record| record.before);
    match executor(request) {
        Ok(mut executor) => {
            executor.take_over_process();
            executor.record_start(before);
            executor.run()
        }
        Err(error) => {
            stop::warn(&error.to_string());
            stop::exit(error.exit_status())
        }
    }
}

fn executor(request: Request) -> Result<Executor, LoadError> {
    let Request {
        program: resolved,
        envp,
        handover,
    } = request;
    let options = handover.options;
    let mut stats = handover.stats;
    if options.stats != StatsFor::Nobody {
        stats.start_clock();
    }
    let store = open_store(&options);
    let atlas = Atlas::open(store.as_ref());
    let mut memory = Memory::new(Box::new(atlas.clone()));
    let gs = new_gs_block();
    if options.virtual_time {
        virtual_clock::install(gs);
    }
    let recorder = open_recorder(&options, &handover.own.hidden);
    if recorder.is_some() {
        memory.record_changes(Files::new(handover.own.hidden.files));
        access::keep_notes();
        time::record(gs);
    }
    let entry = loader::load(&mut memory, &resolved, &envp, None, options.portable)?;
    gs.regs.rip = entry.pc;
    gs.regs.gpr[RSP] = entry.sp;
    gs.regs.rflags = RFLAGS;
    gs.mxcsr = MXCSR;

    let mut kernel = Kernel::default();
    kernel.own = handover.own;
    kernel.own.made_up_proc = !procfs::announce(&entry);
    kernel.entry = Some(entry);
    let code = match CodeCache::new(&options, store, atlas) {
        Ok(code) => code,
        Err(_) => {
            return Err(LoadError::OutOfMemory {
                path: resolved.exe.path,
            });
        }
    };
    let program = Program {
        exe: resolved.exe_path(),
        execfn: resolved.execfn,
        argv: resolved.argv,
        envp,
    };
    name_process(&program);
    let mut threads = Threads::default();
    if let Some(thread) = threads.get_mut(0) {
        thread.tsc_faults = kernel.own.tsc_faults;
        thread.rules = kernel.own.rules.clone();
    }
    Ok(Executor {
        gs,
        memory,
        code,
        threads,
        signals: Signals::default(),
        kernel,
        program,
        recorder,
        lockstep: Lockstep::new(&options),
        options,
        stats,
    })
}

/// Without the recording that was asked for there is nothing to run for.
fn open_recorder(options: &Options, hidden: &Hidden) -> Option<Box<Recorder>> {
    let record = options.record.as_ref()?;
    let standard = Standard::from_words(record.standard);
    match Recorder::open(hidden.recording, record.stream, record.first, standard) {
        Ok(recorder) => Some(Box::new(recorder)),
        Err(error) => {
            stop::warn(&format!("can't go on recording: {error}"));
            stop::exit(stop::STATUS)
        }
    }
}

/// The folder for saved translations; a bad one is told about once, in the first process.
fn open_store(options: &Options) -> Option<Store> {
    let folder = options.cache_dir.as_deref()?;
    Store::open(folder).or_else(|_| Store::open_own()).ok()
}

/// Where the cache may be kept, by the environment; made if need be. The error says why a folder
/// isn't used.
pub fn cache_folder(
    get: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<Option<std::path::PathBuf>, String> {
    let Some(folder) = Store::location(get) else {
        return Ok(None);
    };
    match Store::open(&folder) {
        Ok(_) => Ok(Some(folder)),
        // Read-only homes are common in containers, and nothing to complain about.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && folder.exists() => {
            Err(error.to_string())
        }
        Err(_) => Ok(None),
    }
}

pub(crate) fn new_gs_block() -> &'static mut GsBlock {
    let Some(gs) = GsBlock::map() else {
        stop::warn("not enough memory to start");
        stop::exit(stop::STATUS);
    };
    switch::install(gs);
    switch::set_gs(gs);
    time::install(gs);
    gs
}

/// What a replaying process needs of [`Executor::take_over_process`]: gs, and handlers for faults.
pub(crate) fn install_handlers(gs: &mut GsBlock) {
    let block = std::ptr::from_mut(gs);
    crash::install(block);
    gs.host.set_role(Role::Executor);
    // SAFETY: the block lives as long as the process, and nothing else uses gs.
    unsafe { syscall!(libc::SYS_arch_prctl, ARCH_SET_GS, block) };
    let stack = altstack::map(altstack::EXECUTOR_SIZE);
    assert!(stack != 0, "no memory for the signal handlers' stack");
    altstack::install(stack, altstack::EXECUTOR_SIZE);
    for sig in (1..=64).filter(|&sig| SigSet::SYNCHRONOUS.contains(sig)) {
        handlers::set_for_guest(sig, &handlers::Action::default(), false);
    }
}

/// The process's name for `ps`, as exec gives it: the last part of the path, or of the file's own
/// path if only a descriptor was given.
fn name_process(program: &Program) {
    let execfn = program.execfn.to_bytes();
    let real = program.exe.as_os_str().as_bytes();
    let path = match execfn.strip_prefix(b"/dev/fd/") {
        Some(fd) if !fd.contains(&b'/') => real.strip_suffix(b" (deleted)").unwrap_or(real),
        _ => execfn,
    };
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(b"");
    let mut comm = [0u8; 16];
    let len = name.len().min(15);
    comm[..len].copy_from_slice(&name[..len]);
    // SAFETY: the kernel reads a string of at most 16 bytes.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NAME, comm.as_ptr()) };
}

/// Whether clew can start itself again for a guest's exec; if not by `/proc`, keeps a descriptor
/// of `path`, its own executable.
pub fn ensure_restart(request: &mut Request, path: &Path) {
    // SAFETY: a constant path.
    let found = unsafe { syscall!(libc::SYS_access, c"/proc/self/exe".as_ptr(), libc::X_OK) };
    if found != 0 {
        request.handover.own.hidden.keep_file(path);
    }
}
