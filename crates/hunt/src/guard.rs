//! Nothing is left of a hunt that is killed. In: process groups and folders of runs, as lines on a pipe. Out, when the pipe's
//! other end is gone: the groups are ended, the folders removed.
//!
//! The guard is a process of its own (`clew hunt-guard`), out of reach of the terminal's Ctrl-C.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// The hidden command that guards.
pub const COMMAND: &str = "hunt-guard";

/// The hunt's end of the pipe.
#[derive(Debug)]
pub struct Guard {
    pipe: Mutex<Option<ChildStdin>>,
    process: Mutex<Child>,
}

impl Guard {
    /// Starts the guard of the folders in `dir` whose names begin with `prefix`.
    pub fn start(exe: &Path, dir: &Path, prefix: &str) -> io::Result<Guard> {
        let mut process = Command::new(exe)
            .arg(COMMAND)
            .args([dir.as_os_str(), OsStr::new(prefix)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take();
        Ok(Guard {
            pipe: Mutex::new(pipe),
            process: Mutex::new(process),
        })
    }

    /// A run began, as this process group.
    pub fn begins(&self, group: u32) {
        self.tell(&format!("+{group}\n"));
    }

    pub fn ended(&self, group: u32) {
        self.tell(&format!("-{group}\n"));
    }

    fn tell(&self, line: &str) {
        if let Ok(mut pipe) = self.pipe.lock()
            && let Some(pipe) = pipe.as_mut()
        {
            // Without a guard the hunt goes on; only a kill would leave things behind.
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(mut pipe) = self.pipe.lock() {
            pipe.take();
        }
        if let Ok(mut process) = self.process.lock() {
            let _ = process.wait();
        }
    }
}

/// The guard's life.
pub fn guard(input: impl BufRead, dir: &Path, prefix: &str) {
    let mut groups = BTreeMap::new();
    for line in input.lines().map_while(Result::ok) {
        let Ok(change) = line.parse::<i32>() else {
            continue;
        };
        match change {
            1.. => groups.insert(change, ()),
            _ => groups.remove(&change.saturating_neg()),
        };
    }
    for pid in groups.into_keys().filter_map(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    // Whoever was just killed may still be adding files.
    for _ in 0..50 {
        if remove_runs(dir, prefix) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes the folders of runs; how many there were.
fn remove_runs(dir: &Path, prefix: &str) -> usize {
    let runs = runs(dir, prefix);
    for run in &runs {
        let _ = std::fs::remove_dir_all(run);
    }
    runs.len()
}

fn runs(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let ours = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(prefix));
    entries
        .flatten()
        .filter(|entry| ours(&entry.file_name()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_runs_go_and_others_stay() {
        let dir = std::env::temp_dir().join(format!("clew-guard-{}", std::process::id()));
        for name in [".hunt-7-1", ".hunt-7-2", ".hunt-71-1", "kept-1"] {
            std::fs::create_dir_all(dir.join(name).join("files")).unwrap();
        }
        guard(
            "+2147483000\n-2147483000\nodd\n".as_bytes(),
            &dir,
            ".hunt-7-",
        );
        let left: Vec<_> = runs(&dir, "");
        assert_eq!(left.len(), 2, "{left:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
