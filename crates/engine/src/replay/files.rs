//! The copies of files in a recording, opened before the process is locked in: from then on it can
//! open nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use clew_recording::reader::Recording;

#[derive(Clone, Default)]
pub struct Files(Arc<HashMap<String, OwnedFd>>);

impl Files {
    /// Opens all of them, and makes room for that many descriptors.
    pub fn open(recording: &Recording) -> io::Result<Files> {
        let names = recording.file_names()?;
        allow_descriptors(names.len() as u64);
        let mut files = HashMap::new();
        for name in names {
            let file = recording.file(&name)?;
            files.insert(name, OwnedFd::from(file));
        }
        Ok(Files(Arc::new(files)))
    }

    /// Another descriptor of the file.
    pub fn get(&self, name: &str) -> io::Result<OwnedFd> {
        match self.0.get(name) {
            Some(file) => file.as_fd().try_clone_to_owned(),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{name} is missing from the recording's files"),
            )),
        }
    }
}

/// Descriptors that a replay needs besides those it knows the number of: channels, pipes, files in memory.
const OTHERS: u64 = 128;

/// Sees to it that so many more descriptors can be had, as far as the limit may be raised; returns how many there are.
/// The guest isn't shown this limit: what it was told is in the recording.
pub(super) fn allow_descriptors(more: u64) -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes and reads one rlimit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let wanted = (open + more + OTHERS).min(limit.rlim_max);
        if limit.rlim_cur < wanted {
            limit.rlim_cur = wanted;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    limit.rlim_cur.saturating_sub(open + OTHERS)
}
