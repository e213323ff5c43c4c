//! The processes that belong to one: who they are, and whether they are gone.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::run::wait_readable;

/// A process, as `/proc` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    pub group: i32,
    pub name: String,
}

/// A process with all its descendants, and all in their process groups.
pub struct Family {
    groups: Vec<i32>,
    members: Vec<(Process, OwnedFd)>,
}

impl Family {
    /// As it is now; `root` leads its process group.
    pub fn of(root: Pid) -> Family {
        let all = processes();
        let mut pids = vec![root.as_raw_nonzero().get()];
        let mut known = 0;
        while known < pids.len() {
            let parent = pids[known];
            known += 1;
            for process in &all {
                let pid = process.pid.as_raw_nonzero().get();
                if process.parent == parent && !pids.contains(&pid) {
                    pids.push(pid);
                }
            }
        }
        let raw = |process: &Process| process.pid.as_raw_nonzero().get();
        // A group that one of them leads is theirs alone.
        let groups: Vec<i32> = pids
            .iter()
            .copied()
            .filter(|pid| all.iter().any(|process| process.group == *pid))
            .collect();
        let members = all
            .into_iter()
            .filter(|process| groups.contains(&process.group) || pids.contains(&raw(process)));
        let opened = members.filter_map(|process| {
            let fd = pidfd_open(process.pid, PidfdFlags::empty()).ok()?;
            Some((process, fd))
        });
        let members = opened.collect();
        Family { groups, members }
    }

    pub fn members(&self) -> impl Iterator<Item = &Process> {
        self.members.iter().map(|(process, _)| process)
    }

    /// Waits until none of them lives, nor any that joined their group since; who still does when the time
    /// is over.
    pub fn outlived(self, limit: Duration) -> Vec<Process> {
        let end = Instant::now() + limit;
        let mut waiting = self.members;
        loop {
            let over = |(_, fd): &(Process, OwnedFd)| {
                wait_readable(fd.as_fd(), end.saturating_duration_since(Instant::now()))
            };
            waiting.retain(|member| !over(member));
            let groups = &self.groups;
            let later = processes()
                .into_iter()
                .filter(|process| groups.contains(&process.group));
            let later: Vec<_> = later
                .filter_map(|process| {
                    let fd = pidfd_open(process.pid, PidfdFlags::empty()).ok()?;
                    Some((process, fd))
                })
                .collect();
            if Instant::now() >= end || (waiting.is_empty() && later.is_empty()) {
                let left = waiting.into_iter().chain(later);
                return left.map(|(process, _)| process).collect();
            }
            waiting.extend(later);
        }
    }
}

/// All that live: what only waits to be waited for doesn't.
fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let read = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may hold anything.
        let (start, rest) = text.rsplit_once(") ")?;
        let (_, name) = start.split_once('(')?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let name = name.to_owned();
        (state != "Z" && state != "X").then_some(Process {
            pid,
            parent,
            group,
            name,
        })
    };
    entries.flatten().filter_map(read).collect()
}
