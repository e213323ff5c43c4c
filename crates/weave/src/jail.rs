//! Runs a recorded program locked in by the kernel. In: what to run; out: its end, and which files it missed.
//!
//! A woven recording may come from a stranger, and a replay runs its program natively. A seccomp filter leaves it its own
//! memory, threads, standard output and files that are open. Whatever it opens, the kernel asks this process for, which
//! opens files of the recording only. There is one exec, before any code of the recording runs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::folder::{DATA, FILES, Files, LIBRARY, LOG, REPORT, Woven};
use crate::launch::plain;

/// What is to be run.
pub struct Run<'a> {
    pub woven: &'a Woven,
    pub files: &'a Files,
    pub program: &'a Path,
    pub argv: &'a [OsString],
    pub envp: &'a [OsString],
    pub report: &'a File,
    pub jailed: bool,
    pub quiet: bool,
}

/// A file in memory.
pub fn memory(len: u64) -> io::Result<File> {
    // SAFETY: a name, and a descriptor that is this process's own.
    let file = unsafe {
        let fd = libc::memfd_create(c"report".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.set_len(len)?;
    Ok(file)
}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown end".into(),
    }
}

/// Whom signals are passed to.
static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    let pid = CHILD.load(Ordering::Relaxed);
    if pid > 0 {
        // SAFETY: sends a signal to this process's own child.
        unsafe { libc::kill(pid, signal) };
    }
}

/// From here on signals that would end this process are its child's, which has those of the terminal already.
pub fn pass_signals(pid: u32) {
    CHILD.store(pid as i32, Ordering::Relaxed);
    let pass = pass_on as extern "C" fn(libc::c_int);
    // SAFETY: the handler makes one call that may be made there.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, pass as libc::sighandler_t);
        }
    }
}

pub fn run(run: Run) -> io::Result<(ExitStatus, Vec<String>)> {
    let mut command = Command::new(run.program);
    command.args(run.argv).env_clear().stdin(Stdio::null());
    for variable in run.envp {
        let bytes = variable.as_bytes();
        if let Some(at) = bytes
            .iter()
            .position(|&byte| byte == b'=')
            .filter(|&at| at > 0)
        {
            command.env(
                OsStr::from_bytes(&bytes[..at]),
                OsStr::from_bytes(&bytes[at + 1..]),
            );
        }
    }
    if run.quiet {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    if !run.jailed {
        std::fs::write(run.woven.path(REPORT), "")?;
        let file = crate::replay::report_file(run.woven).map_err(io::Error::other)?;
        let mut child = command.spawn()?;
        let status = child.wait()?;
        let mut bytes = vec![0; 4096 + 65536];
        file.read_exact_at(&mut bytes, 0)?;
        run.report.write_all_at(&bytes, 0)?;
        copy(&file, run.report)?;
        return Ok((status, Vec::new()));
    }
    let (ours, theirs) = UnixStream::pair()?;
    let control = theirs.as_raw_fd();
    let mut filter = filter(control);
    // SAFETY: the closure makes system calls only, and allocates nothing: another thread may hold the allocator's lock.
    unsafe { command.pre_exec(move || lock_in(&mut filter, control)) };
    let (woven, files, report) = (
        run.woven.clone(),
        run.files.clone(),
        run.report.try_clone()?,
    );
    // While the child is being started it already asks.
    let server = std::thread::spawn(move || serve(&ours, &woven, &files, &report));
    let child = command.spawn();
    drop(theirs);
    let status = child.and_then(|mut child| child.wait());
    let missed = server.join().unwrap_or_else(|_| Ok(Vec::new()))?;
    Ok((status?, missed))
}

fn copy(from: &File, to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        let n = from.read_at(&mut piece, at)?;
        if n == 0 {
            break;
        }
        to.write_all_at(&piece[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

// ---- the filter

const ALLOW: u32 = 0x7fff_0000;
const ASK: u32 = 0x7fc0_0000;
const KILL: u32 = 0x8000_0000;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

const fn refuse(errno: i32) -> u32 {
    0x0005_0000 | errno as u32
}

/// Whatever the arguments are: the process's own memory, threads, signals to itself, and files that are open.
const ANY: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_arch_prctl,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_membarrier,
    libc::SYS_restart_syscall,
];

/// Stands for the process's own number, until that is known.
const OWN_PID: u32 = 0x7fff_fffe;

/// What threads are made with: all of these.
const THREAD: u32 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u32;

#[derive(Default)]
struct Filter(Vec<libc::sock_filter>);

impl Filter {
    fn put(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        self.0.push(libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        });
    }

    fn load(&mut self, offset: u32) {
        self.put(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    }

    fn argument(&mut self, n: u32) {
        self.load(16 + 8 * n);
    }

    fn equal(&mut self, k: u32, jt: u8, jf: u8) {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    }

    fn answer(&mut self, with: u32) {
        self.put(libc::BPF_RET | libc::BPF_K, with, 0, 0);
    }

    fn call(&mut self, nr: i64, answer: u32) {
        self.equal(nr as u32, 0, 1);
        self.answer(answer);
    }

    /// More is looked at: `rules` must answer on all ways.
    fn call_with(&mut self, nr: i64, rules: impl FnOnce(&mut Filter)) {
        let mut inner = Filter::default();
        rules(&mut inner);
        self.equal(nr as u32, 0, inner.0.len() as u8);
        self.0.append(&mut inner.0);
    }

    /// Allowed if argument `n` is one of these, else refused.
    fn one_of(&mut self, n: u32, values: &[u32]) {
        self.argument(n);
        for &value in values {
            self.equal(value, 0, 1);
            self.answer(ALLOW);
        }
        self.answer(refuse(libc::EPERM));
    }
}

/// The filter; `OWN_PID` stands for a number that isn't known yet.
fn filter(control: RawFd) -> Filter {
    let mut filter = Filter::default();
    filter.load(4);
    filter.equal(AUDIT_ARCH_X86_64, 1, 0);
    filter.answer(KILL);
    filter.load(0);
    for &nr in ANY {
        filter.call(nr, ALLOW);
    }
    for nr in [libc::SYS_open, libc::SYS_openat, libc::SYS_execve] {
        filter.call(nr, ASK);
    }
    for nr in [libc::SYS_write, libc::SYS_writev] {
        filter.call_with(nr, |rules| rules.one_of(0, &[1, 2]));
    }
    filter.call_with(libc::SYS_sendmsg, |rules| {
        rules.one_of(0, &[control as u32])
    });
    filter.call_with(libc::SYS_tgkill, |rules| rules.one_of(0, &[OWN_PID]));
    let commands = [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
    ];
    filter.call_with(libc::SYS_fcntl, |rules| {
        rules.one_of(1, &commands.map(|command| command as u32))
    });
    // Threads, but no processes. Who finds no clone3 uses clone, whose flags can be looked at.
    filter.call_with(libc::SYS_clone, |rules| {
        rules.argument(0);
        rules.put(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, THREAD, 0, 0);
        rules.equal(THREAD, 0, 1);
        rules.answer(ALLOW);
        rules.answer(refuse(libc::EPERM));
    });
    filter.call(libc::SYS_clone3, refuse(libc::ENOSYS));
    // Of an open file, or of nothing.
    filter.call_with(libc::SYS_newfstatat, |rules| {
        rules.argument(3);
        rules.put(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            libc::AT_EMPTY_PATH as u32,
            0,
            0,
        );
        rules.equal(0, 1, 0);
        rules.answer(ALLOW);
        rules.answer(refuse(libc::ENOENT));
    });
    // Limits are told, not changed.
    filter.call_with(libc::SYS_prlimit64, |rules| {
        rules.argument(2);
        rules.equal(0, 0, 3);
        rules.load(16 + 8 * 2 + 4);
        rules.equal(0, 0, 1);
        rules.answer(ALLOW);
        rules.answer(refuse(libc::EPERM));
    });
    for nr in [
        libc::SYS_access,
        libc::SYS_faccessat,
        libc::SYS_readlink,
        libc::SYS_stat,
        libc::SYS_readlinkat,
    ] {
        filter.call(nr, refuse(libc::ENOENT));
    }
    filter.answer(refuse(libc::EPERM));
    filter
}

/// In the child: from here on the filter holds. Its listener goes to the parent.
fn lock_in(filter: &mut Filter, control: RawFd) -> io::Result<()> {
    let failed = io::Error::last_os_error;
    // SAFETY: system calls with memory that lives during them.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(failed());
        }
        let pid = libc::getpid() as u32;
        for instruction in filter
            .0
            .iter_mut()
            .filter(|instruction| instruction.k == OWN_PID)
        {
            instruction.k = pid;
        }
        let program = libc::sock_fprog {
            len: filter.0.len() as u16,
            filter: filter.0.as_ptr().cast_mut(),
        };
        const SET_MODE_FILTER: libc::c_long = 1;
        const NEW_LISTENER: libc::c_long = 8;
        let listener = libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            NEW_LISTENER,
            &raw const program,
        );
        if listener < 0 {
            return Err(failed());
        }
        send(control, listener as RawFd)?;
        libc::close(listener as RawFd);
        // Everything else is closed by the exec.
        libc::close(control);
    }
    Ok(())
}

/// A message with one descriptor in it.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fd: RawFd,
}

unsafe fn send(to: RawFd, fd: RawFd) -> io::Result<()> {
    let mut byte = 0u8;
    let mut piece = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = Control {
        // SAFETY: plain numbers.
        header: unsafe { std::mem::zeroed() },
        fd,
    };
    control.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<RawFd>()) as _;
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: everything lives during the call.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        // Not the C library's wrapper: the filter knows this call only.
        if libc::sendmsg(to, &raw const message, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn receive(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = 0u8;
    let mut piece = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: everything lives during the call; the descriptor that came is ours.
    unsafe {
        let mut control: Control = std::mem::zeroed();
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        let got = libc::recvmsg(from.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        if got == 0 || control.header.cmsg_type != libc::SCM_RIGHTS || control.fd <= 0 {
            return Ok(None);
        }
        Ok(Some(OwnedFd::from_raw_fd(control.fd)))
    }
}

// ---- who answers

#[repr(C)]
#[derive(Clone, Copy)]
struct Asked {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    pc: u64,
    args: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct Given {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const REPLY: libc::c_ulong = 0xc018_2101;
const GIVE: libc::c_ulong = 0x4018_2103;
/// The call is made as it is.
const CONTINUE: u32 = 1;

/// Answers until the program has ended. Which files it asked for in vain.
fn serve(
    control: &UnixStream,
    woven: &Woven,
    files: &Files,
    report: &File,
) -> io::Result<Vec<String>> {
    let Some(listener) = receive(control)? else {
        return Ok(Vec::new());
    };
    let mut missed: Vec<String> = Vec::new();
    let mut begun = false;
    loop {
        // SAFETY: structures as the kernel knows them.
        unsafe {
            let mut asked: Asked = std::mem::zeroed();
            let mut poll = libc::pollfd {
                fd: listener.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            if libc::poll(&raw mut poll, 1, -1) < 0 {
                continue;
            }
            if poll.revents & libc::POLLIN == 0 {
                return Ok(missed);
            }
            if libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut asked) != 0 {
                continue;
            }
            let mut answer = Answer {
                id: asked.id,
                value: 0,
                error: -libc::EPERM,
                flags: 0,
            };
            if i64::from(asked.nr) == libc::SYS_execve {
                // Made by this very program, before anything of the recording's runs.
                if !begun {
                    begun = true;
                    (answer.error, answer.flags) = (0, CONTINUE);
                }
            } else {
                let (at, flags) = match i64::from(asked.nr) == libc::SYS_open {
                    true => (asked.args[0], asked.args[1]),
                    false => (asked.args[1], asked.args[2]),
                };
                match path(asked.pid, at)
                    .and_then(|path| Ok((open(&path, flags, woven, files, report)?, path)))
                {
                    Ok((Some(file), _)) => {
                        let given = Given {
                            id: asked.id,
                            flags: 0,
                            source: file.as_raw_fd() as u32,
                            target: 0,
                            target_flags: (flags & libc::O_CLOEXEC as u64) as u32,
                        };
                        let fd = libc::ioctl(listener.as_raw_fd(), GIVE as _, &raw const given);
                        (answer.value, answer.error) =
                            (fd.into(), if fd < 0 { -libc::EMFILE } else { 0 });
                    }
                    Ok((None, path)) => {
                        answer.error = -libc::ENOENT;
                        let name = path.to_string_lossy().into_owned();
                        let tried = path.starts_with(&woven.dir);
                        if missed.len() < 20 && !tried && !missed.contains(&name) {
                            missed.push(name);
                        }
                    }
                    Err(_) => answer.error = -libc::EACCES,
                }
            }
            libc::ioctl(listener.as_raw_fd(), REPLY as _, &raw mut answer);
        }
    }
}

/// The string at an address of the program's.
fn path(pid: u32, at: u64) -> io::Result<PathBuf> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut bytes = Vec::new();
    // Not over a page's end before the string's: what follows may not be there.
    while bytes.len() < libc::PATH_MAX as usize {
        let from = at + bytes.len() as u64;
        let mut piece = vec![0; 256.min(4096 - (from % 4096) as usize)];
        let n = memory.read_at(&mut piece, from)?;
        let end = piece[..n].iter().position(|&byte| byte == 0);
        bytes.extend_from_slice(&piece[..end.unwrap_or(n)]);
        if end.is_some() {
            return Ok(PathBuf::from(OsStr::from_bytes(&bytes)));
        }
        if n == 0 {
            break;
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

/// The file of the recording that is meant. None if there is none.
fn open(
    path: &Path,
    flags: u64,
    woven: &Woven,
    files: &Files,
    report: &File,
) -> io::Result<Option<File>> {
    let writes = flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64;
    if path == woven.path(REPORT) {
        return report.try_clone().map(Some);
    }
    if writes {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let copies = woven.path(FILES);
    let own = [LOG, DATA, LIBRARY]
        .iter()
        .any(|name| path == woven.path(name));
    let copy = path
        .strip_prefix(&copies)
        .ok()
        .and_then(Path::to_str)
        .filter(|name| plain(name));
    let known = files
        .copies
        .values()
        .any(|name| Some(name.as_str()) == copy);
    let file = if own || known {
        path.to_owned()
    } else {
        match files
            .copies
            .get(&normal(path, files))
            .filter(|name| plain(name))
        {
            Some(name) => copies.join(name),
            // A folder on the way to a file; nothing can be read of it.
            None if files
                .copies
                .keys()
                .any(|copy| Path::new(copy).starts_with(path) && path.is_absolute()) =>
            {
                return folder(&copies).map(Some);
            }
            None => return Ok(None),
        }
    };
    // A link in a stranger's folder would lead out of it.
    use std::os::unix::fs::OpenOptionsExt;
    match File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&file)
    {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        _ => Ok(None),
    }
}

/// A folder that can be looked at, but not into.
fn folder(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
}

/// A path as it stands in the list of copies.
fn normal(path: &Path, files: &Files) -> String {
    let mut all = PathBuf::from(&files.cwd);
    for part in path.components() {
        match part {
            Component::RootDir => all = PathBuf::from("/"),
            Component::ParentDir => {
                all.pop();
            }
            Component::Normal(name) => all.push(name),
            _ => {}
        }
    }
    all.to_string_lossy().into_owned()
}
