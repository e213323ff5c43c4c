//! A gdb of one's own. In: a session, and what the user says to gdb. Out: gdb on the terminal, connected
//! through a socket in a folder that only this user can enter, and its exit status.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::session::Session;
use crate::{Error, Result, hex};

const SCRIPT: &str = include_str!("clew.py");
/// A socket's path can't be longer.
const LONGEST_PATH: usize = 107;

/// A folder for one session: socket, script, links to the recorded files. Goes when it is dropped.
pub struct Folder {
    path: PathBuf,
    /// Held as long as the session lives.
    _lock: File,
}

const PREFIX: &str = "clew-debug-";
/// A folder that is younger may not be locked yet.
const YOUNG: Duration = Duration::from_secs(60);

impl Folder {
    /// Makes it below `parent`, or below /tmp if that has too long a name.
    pub fn new(parent: &Path) -> Result<Folder> {
        let name = format!("{PREFIX}XXXXXX");
        let long = parent.as_os_str().len() + name.len() + "/socket".len() + 2 > LONGEST_PATH;
        let parent = if long { Path::new("/tmp") } else { parent };
        let failed = |error| Error::Launch {
            what: format!(
                "{}: no folder for the session can be made (TMPDIR names another place)",
                parent.display()
            ),
            error,
        };
        let template = parent.join(name).into_os_string().into_vec();
        let template =
            CString::new(template).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let template = template.into_raw();
        // SAFETY: mkdtemp changes the string in place, without its length; it is ours again afterwards.
        let (made, path) = unsafe {
            let made = !libc::mkdtemp(template).is_null();
            (made, CString::from_raw(template))
        };
        if !made {
            return Err(failed(io::Error::last_os_error()));
        }
        let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
        let lock = lock(&path).map_err(failed)?;
        sweep(parent);
        let folder = Folder { path, _lock: lock };
        let write = || {
            std::fs::create_dir(folder.root())?;
            let root = hex::text(folder.root().as_os_str().as_bytes());
            let script = format!("ROOT = bytes.fromhex('{root}').decode()\n{SCRIPT}");
            std::fs::write(folder.script(), script)
        };
        write().map_err(failed)?;
        Ok(folder)
    }

    /// What gdb takes for the file system.
    pub fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    fn script(&self) -> PathBuf {
        self.path.join("clew.py")
    }

    fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// What gdb must be told before, and the connection itself.
    fn arguments(&self, socket: &Path) -> Vec<OsString> {
        let with = |text: &str, path: &Path| {
            let mut line = OsString::from(text);
            line.push(path);
            line
        };
        vec![
            "-iex".into(),
            // A search may take long, and so may its answer.
            "set remotetimeout 100000".into(),
            "-iex".into(),
            with("set sysroot ", &self.root()),
            "-iex".into(),
            with("source ", &self.script()),
            "-iex".into(),
            // The recorded files may be a stranger's, and would bring scripts of theirs. The one above has asked what
            // the user wants and loads this machine's.
            "set auto-load off".into(),
            "-ex".into(),
            with("clew attach ", socket),
        ]
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let file = File::create(folder.join("lock"))?;
    file.try_lock()?;
    Ok(file)
}

/// Removes what sessions left behind that were killed.
fn sweep(parent: &Path) {
    let left = |path: &Path| {
        let meta = std::fs::symlink_metadata(path).ok()?;
        // SAFETY: only tells a number.
        let own = meta.uid() == unsafe { libc::geteuid() };
        let old = meta.modified().ok()?.elapsed().ok()? > YOUNG;
        if !meta.is_dir() || !own || !old {
            return None;
        }
        File::open(path.join("lock")).ok()?.try_lock().ok()
    };
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(PREFIX.as_bytes()) && left(&entry.path()).is_some() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Links in it aren't followed.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Starts gdb and serves it until it ends; its exit status.
pub fn debug(
    session: &mut Session,
    folder: &Folder,
    gdb: &OsStr,
    arguments: &[OsString],
) -> Result<i32> {
    let socket = folder.socket();
    let listener = listen(&socket)?;
    take_signals();
    let mut command = Command::new(gdb);
    command
        .arg("-q")
        .args(folder.arguments(&socket))
        .args(arguments);
    // SAFETY: prctl is all that happens between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // If this process is killed, gdb has nothing to talk to.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|error| Error::Launch {
        what: format!(
            "{}: can't be started; --gdb or CLEW_GDB names another gdb",
            gdb.display()
        ),
        error,
    })?;
    let served = serve_child(session, &listener, &mut child);
    let _ = std::fs::remove_file(&socket);
    drop(listener);
    if ended() {
        // SAFETY: a signal to a child that hasn't been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    }
    let status = child.wait().map_err(Error::Wire)?;
    served?;
    Ok(code(status))
}

fn serve_child(session: &mut Session, listener: &UnixListener, child: &mut Child) -> Result<()> {
    let gone = pidfd(child)?;
    while !ended() {
        let fds = [listener.as_raw_fd(), gone.as_raw_fd()];
        let [connects, ends] = ready(fds)?;
        if connects {
            let (stream, _) = listener.accept()?;
            session.serve(stream, ended)?;
        } else if ends {
            break;
        }
    }
    Ok(())
}

/// Serves any gdb that connects to this path, one after the other, until a signal ends it. `told` gets the line to
/// start one with.
pub fn serve(
    session: &mut Session,
    folder: &Folder,
    path: &Path,
    told: impl FnOnce(&[OsString]),
) -> Result<()> {
    let listener = listen(path)?;
    take_signals();
    ENDS_ON_INTERRUPT.store(true, Ordering::Relaxed);
    let absolute = std::path::absolute(path)?;
    told(&folder.arguments(&absolute));
    let mut serving = || {
        while !ended() {
            let [connects, _] = ready([listener.as_raw_fd(), -1])?;
            if connects {
                let (stream, _): (UnixStream, _) = listener.accept()?;
                session.serve(stream, ended)?;
            }
        }
        Ok(())
    };
    let served = serving();
    let _ = std::fs::remove_file(path);
    served
}

fn listen(path: &Path) -> Result<UnixListener> {
    // SAFETY: umask only sets a number of this process; nothing else runs in it.
    let mask = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(mask) };
    listener.map_err(|error| Error::Launch {
        what: format!("{}: no socket can be made there", path.display()),
        error,
    })
}

fn code(status: ExitStatus) -> i32 {
    let signal = status.signal().map_or(0, |signo| 128 + signo);
    status.code().unwrap_or(signal)
}

fn pidfd(child: &Child) -> Result<OwnedFd> {
    // SAFETY: makes a descriptor, or not.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits until one can be read, or a signal comes.
fn ready(fds: [i32; 2]) -> Result<[bool; 2]> {
    let mut polls = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: two pollfds, which live here.
    let found = unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
    if found < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok([false; 2]),
            _ => Err(error.into()),
        };
    }
    Ok(polls.map(|poll| poll.revents != 0))
}

static ENDED: AtomicBool = AtomicBool::new(false);
static ENDS_ON_INTERRUPT: AtomicBool = AtomicBool::new(false);

fn ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// Ctrl-C on the terminal is for gdb, which passes it on if it concerns us. What would kill this process ends
/// it properly, so that nothing is left behind.
fn take_signals() {
    extern "C" fn taken(signo: i32) {
        let interrupt = matches!(signo, libc::SIGINT | libc::SIGQUIT);
        if !interrupt || ENDS_ON_INTERRUPT.load(Ordering::Relaxed) {
            ENDED.store(true, Ordering::Relaxed);
        }
    }
    for signo in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an action of zeroes is valid; the handler only stores a flag. Without SA_RESTART,
        // so that waits end.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = taken as extern "C" fn(i32) as usize;
            libc::sigaction(signo, &raw const action, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_goes() {
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let path = folder.path.clone();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(folder.script().is_file());
        let listener = listen(&folder.socket()).unwrap();
        let mode = std::fs::metadata(folder.socket()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        drop((listener, folder));
        assert!(!path.exists());
    }

    #[test]
    fn long_paths_are_avoided() {
        let folder = Folder::new(Path::new(&format!("/{}", "x".repeat(200)))).unwrap();
        assert!(folder.path.starts_with("/tmp"));
    }
}
