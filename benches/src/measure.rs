//! One run of a command goes in, its cost comes out: CPU time of the whole process tree,
//! wall time, and the largest process's memory.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub cpu: Duration,
    pub wall: Duration,
    pub max_rss_kib: i64,
}

/// Runs the command to its end; an error if it fails, or takes longer than `limit`.
pub fn run(command: &mut Command, input: Option<File>, limit: Duration) -> Result<Sample, String> {
    let stdin = input.map_or_else(Stdio::null, Stdio::from);
    command
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.process_group(0);
    let start = Instant::now();
    let child = command.spawn().map_err(|error| error.to_string())?;
    let pid = i32::try_from(child.id()).expect("a process id");
    let (done, ended) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let late = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            // SAFETY: a plain system call on a process group that this function started.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
        late
    });
    let waited = wait(pid);
    let wall = start.elapsed();
    drop(done);
    let late = watch.join().expect("the watch does not panic");
    let (status, usage) = waited.map_err(|error| error.to_string())?;
    if late {
        return Err("too slow".to_owned());
    }
    if status != 0 {
        return Err(format!("failed (wait status {status:#x})"));
    }
    Ok(Sample {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        wall,
        max_rss_kib: usage.ru_maxrss,
    })
}

/// wait4, whose usage counts the child and all descendants that were waited for.
fn wait(pid: i32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the right types.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if waited == pid {
            return Ok((status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn time(value: libc::timeval) -> Duration {
    let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
    let micros = u64::try_from(value.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
