//! `clew pack` and `clew unpack`: one portable file, and back.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use super::arguments::{Pack, Unpack};
use super::strip::{self, Stripped};
use super::{find, find_exact, name, place};
use crate::outcome;
use crate::progress::Progress;
use crate::text;
use clew_recording::folder::{self, PACKED};
use clew_recording::landings;
use clew_recording::pack::{self, Allowed, PackError};
use clew_recording::summary::{self, is_being_written};

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
    take_signals();
    let mut progress = Progress::new(&format!("packing {name}"));
    let packed = pack::pack(folder, &file, &mut |done, total| {
        go_on(&mut progress, done, total)
    });
    drop(progress);
    match packed {
        Ok(bytes) => {
            let (file, size, before) = (file.display(), text::size(bytes), text::size(before));
            text::print(&format!("packed: {file}, {size} ({before} unpacked)\n"));
            eprintln!("clew: {}", text::plain(&contents(stripped.as_ref())));
            0
        }
        Err(error) => failed(&error),
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
    take_signals();
    let mut progress = Progress::new(&format!("unpacking {name}"));
    let allowed = Allowed {
        most: line.limit,
        large: line.large,
    };
    let unpacked = pack::unpack(&line.file, &folder, allowed, &mut |done, total| {
        go_on(&mut progress, done, total)
    });
    drop(progress);
    match unpacked {
        Ok(()) => {
            // What can be made again isn't packed by us, and isn't taken from strangers.
            for name in [summary::FILE, landings::FILE] {
                let _ = std::fs::remove_file(folder.join(name));
            }
            // Replay and the like take the latest: it is the one that was asked for last.
            let _ = all.set_latest(&folder);
            let size = text::size(pack::size(&folder).bytes);
            text::print(&format!("unpacked: {name}, {size}\n"));
            0
        }
        Err(error) => failed(&error),
    }
}

/// The name that a packed recording says it had.
fn name_of(file: &Path) -> Result<String, PackError> {
    pack::packed_name(file).map(|meta| meta.name)
}

fn failed(error: &PackError) -> i32 {
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

/// Takes the signals that would end this process, so that an interrupted pack leaves nothing behind.
fn take_signals() {
    for signo in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic. One that is ignored stays so (nohup).
        unsafe {
            let handler = stop as extern "C" fn(i32) as libc::sighandler_t;
            if libc::signal(signo, handler) == libc::SIG_IGN {
                libc::signal(signo, libc::SIG_IGN);
            }
        }
    }
}

/// Shows what is done; whether to go on.
fn go_on(progress: &mut Progress, done: u64, total: u64) -> bool {
    let part = if total > done {
        done as f64 / total as f64
    } else {
        0.0
    };
    progress.show_with(part, &text::size(done));
    STOP.load(Ordering::Relaxed) == 0
}
