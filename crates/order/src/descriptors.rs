//! Which descriptors lead to the same thing. In: calls that make, copy and close descriptors. Out: a number for each
//! pipe, socket, file behind them, and what is known of it.

use rustc_hash::FxHashMap;

/// What is behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    pub label: String,
    /// Made to talk to others: what is written to it may be read by another thread.
    pub talks: bool,
}

#[derive(Debug, Default)]
pub struct Descriptors {
    open: FxHashMap<i32, u32>,
    pub channels: Vec<Channel>,
}

impl Descriptors {
    fn made(&mut self, fds: &[i32], label: String, talks: bool) {
        let number = self.channels.len() as u32;
        self.channels.push(Channel { label, talks });
        for &fd in fds {
            self.open.insert(fd, number);
        }
    }

    /// What a descriptor leads to; one that was there from the beginning is made now.
    pub fn of(&mut self, fd: i32) -> u32 {
        if let Some(&number) = self.open.get(&fd) {
            return number;
        }
        let label = match fd {
            0 => "stdin".into(),
            1 => "stdout".into(),
            2 => "stderr".into(),
            fd => format!("fd {fd}"),
        };
        self.made(&[fd], label, false);
        self.channels.len() as u32 - 1
    }

    pub fn talks(&self, channel: u32) -> bool {
        let channel = self.channels.get(channel as usize);
        channel.is_some_and(|channel| channel.talks)
    }

    /// Two descriptors that a call has written to memory.
    pub fn pair(&mut self, nr: i64, bytes: &[u8]) {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4)?;
            Some(i32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (Some(one), Some(other)) = (number(0), number(4)) else {
            return;
        };
        let label = match nr {
            libc::SYS_socketpair => format!("socketpair {one}, {other}"),
            _ => format!("pipe {other} -> {one}"),
        };
        self.made(&[one, other], label, true);
    }

    /// A call has returned.
    pub fn called(&mut self, nr: i64, args: &[u64; 6], result: i64) {
        let (first, fd) = (args[0] as i32, result as i32);
        if result < 0 {
            return;
        }
        match nr {
            libc::SYS_close => drop(self.open.remove(&first)),
            libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 => self.copied(first, fd),
            libc::SYS_fcntl if matches!(args[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                self.copied(first, fd)
            }
            libc::SYS_eventfd | libc::SYS_eventfd2 => {
                self.made(&[fd], format!("eventfd {fd}"), true)
            }
            libc::SYS_socket | libc::SYS_accept | libc::SYS_accept4 => {
                self.made(&[fd], format!("socket {fd}"), true)
            }
            libc::SYS_mq_open => self.made(&[fd], format!("message queue {fd}"), true),
            libc::SYS_open | libc::SYS_openat | libc::SYS_creat | libc::SYS_openat2 => {
                self.made(&[fd], format!("file {fd}"), false)
            }
            libc::SYS_timerfd_create => self.made(&[fd], format!("timerfd {fd}"), false),
            libc::SYS_signalfd | libc::SYS_signalfd4 if first < 0 => {
                self.made(&[fd], format!("signalfd {fd}"), false)
            }
            libc::SYS_inotify_init | libc::SYS_inotify_init1 => {
                self.made(&[fd], format!("inotify {fd}"), false)
            }
            _ => {}
        }
    }

    fn copied(&mut self, from: i32, to: i32) {
        let channel = self.of(from);
        self.open.insert(to, channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_copies_lead_to_one_thing() {
        let mut all = Descriptors::default();
        let none = [0; 6];
        all.pair(libc::SYS_pipe2, &[3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(all.of(3), all.of(4));
        all.called(libc::SYS_dup2, &[4, 9, 0, 0, 0, 0], 9);
        all.called(libc::SYS_close, &[4, 0, 0, 0, 0, 0], 0);
        assert_eq!(all.of(3), all.of(9));
        all.called(libc::SYS_eventfd2, &none, 4);
        assert_ne!(all.of(3), all.of(4));
        assert!(all.talks(all.open[&4]) && all.talks(all.open[&9]));
        // A call that failed makes nothing, and what is cut is nothing.
        all.called(libc::SYS_eventfd2, &none, -24);
        all.pair(libc::SYS_pipe, &[1, 0, 0]);
        assert_eq!(all.channels.len(), 2);
        let stdin = all.of(0);
        assert!(!all.talks(stdin));
        assert_eq!(all.channels[stdin as usize].label, "stdin");
    }
}
