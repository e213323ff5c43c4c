//! `clew pack` and `clew unpack`: one portable file, and back.

use std::ffi::CStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::arguments::{Pack, Unpack};
use super::strip::{self, Stripped};
use super::{find, find_exact, name, place};
use crate::outcome;
use crate::text;
use clew_recording::folder::{self, PACKED};
use clew_recording::pack::{self, Allowed, PackError};
use clew_recording::summary::is_being_written;

pub fn pack(line: &Pack, envp: &[&CStr]) -> i32 {
    let folder = match find(envp, line.recording.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return text::failed(&error),
    };
    let name = name(&folder);
    // Of a woven recording, the exact one is packed: it needs nothing of this machine.
    let folder = match find_exact(envp, line.recording.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return text::failed(&error),
    };
    if is_being_written(&folder) {
        return text::failed(&format!(
            "{name} is still being recorded; pack it when it is done"
        ));
    }
    let file = match &line.output {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{name}.{PACKED}")),
    };
    if file.exists() {
        let file = file.display();
        return text::failed(&format!(
            "{file} exists; remove it, or give another with -o"
        ));
    }
    let stripped = match line.strip_env {
        true => match strip::without_environment(&folder, envp) {
            Ok(stripped) => Some(stripped),
            Err(error) => return text::failed(&error),
        },
        false => None,
    };
    let folder = stripped
        .as_ref()
        .map_or(folder.as_path(), |stripped| stripped.folder());
    let before = pack::size(folder).bytes;
    let mut progress = Progress::new("packing", &name);
    match pack::pack(folder, &file, &mut |done, total| {
        progress.go_on(done, total)
    }) {
        Ok(bytes) => {
            progress.clear();
            let (file, size, before) = (file.display(), text::size(bytes), text::size(before));
            text::print(&format!("packed: {file}, {size} ({before} unpacked)\n"));
            eprintln!("clew: {}", text::plain(&contents(stripped.as_ref())));
            0
        }
        Err(error) => failed(&error, &progress),
    }
}

/// What whoever gets the file will see.
fn contents(stripped: Option<&Stripped>) -> String {
    let all = "it holds the program's memory, and the files that it had mapped";
    match stripped {
        None => format!("{all}, and its environment: --strip-env leaves out what it can of that"),
        Some(stripped) => format!("{all}; {}", stripped.told()),
    }
}

pub fn unpack(line: &Unpack, envp: &[&CStr]) -> i32 {
    let all = match place(envp) {
        Ok(all) => all,
        Err(error) => return text::failed(&error),
    };
    let named = match &line.name {
        Some(name) => Ok(name.clone()),
        None => name_of(&line.file),
    };
    let name = match named {
        Ok(name) => name,
        Err(error) => return text::failed(&error),
    };
    if let Err(error) = folder::check_name(&name) {
        return text::failed(&format!("{error}; choose a name with -n"));
    }
    let folder = all.dir().join(&name);
    if folder.symlink_metadata().is_ok() {
        return text::failed(&format!(
            "there is a recording {name} already; choose a name with -n"
        ));
    }
    if let Err(error) = all.make() {
        return text::failed(&error);
    }
    let mut progress = Progress::new("unpacking", &name);
    let mut go_on = |done, total| progress.go_on(done, total);
    let allowed = Allowed {
        most: line.limit,
        large: line.large,
    };
    match pack::unpack(&line.file, &folder, allowed, &mut go_on) {
        Ok(()) => {
            progress.clear();
            // Replay and the like take the latest: it is the one that was asked for last.
            let _ = all.set_latest(&folder);
            let size = text::size(pack::size(&folder).bytes);
            text::print(&format!("unpacked: {name}, {size}\n"));
            0
        }
        Err(error) => failed(&error, &progress),
    }
}

/// The name that a packed recording says it had.
fn name_of(file: &Path) -> Result<String, PackError> {
    pack::packed_name(file).map(|meta| meta.name)
}

fn failed(error: &PackError, progress: &Progress) -> i32 {
    progress.clear();
    if let PackError::Interrupted = error {
        outcome::die_by(STOP.load(Ordering::Relaxed));
    }
    text::failed(error)
}

/// The signal that asks to stop, once it came.
static STOP: AtomicI32 = AtomicI32::new(0);

extern "C" fn stop(signo: i32) {
    STOP.store(signo, Ordering::Relaxed);
}

/// What is done, on a terminal after a second; and whether to go on, so that an interrupted pack leaves
/// nothing behind.
struct Progress {
    what: &'static str,
    name: String,
    began: Instant,
    shown: Option<Instant>,
    on_terminal: bool,
}

impl Progress {
    fn new(what: &'static str, name: &str) -> Progress {
        for signo in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler only stores to an atomic. One that is ignored stays so (nohup).
            unsafe {
                let handler = stop as extern "C" fn(i32) as libc::sighandler_t;
                if libc::signal(signo, handler) == libc::SIG_IGN {
                    libc::signal(signo, libc::SIG_IGN);
                }
            }
        }
        Progress {
            what,
            name: text::plain(name),
            began: Instant::now(),
            shown: None,
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn go_on(&mut self, done: u64, total: u64) -> bool {
        let due = self.on_terminal
            && match self.shown {
                None => self.began.elapsed() > Duration::from_secs(1),
                Some(last) => last.elapsed() > Duration::from_millis(100),
            };
        if due {
            let (what, name) = (self.what, &self.name);
            let percent = if total > done {
                format!(", {} %", done as u128 * 100 / u128::from(total))
            } else {
                String::new()
            };
            eprint!("\r\x1b[Kclew: {what} {name}: {}{percent}", text::size(done));
            self.shown = Some(Instant::now());
        }
        STOP.load(Ordering::Relaxed) == 0
    }

    fn clear(&self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
