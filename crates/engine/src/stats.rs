//! Counters behind `clew run --stats`.

use crate::context::{EXIT_KINDS, Exit};
use crate::executor::Executor;
use crate::kernel::stop;
use crate::program::StatsFor;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub ticks: u64,
    pub blocks: u64,
    pub guest_bytes: u64,
    pub host_bytes: u64,
    pub exits: [u64; EXIT_KINDS],
    /// Nanoseconds in translated code, and in the engine (and the kernel) after each kind of exit.
    /// Only taken when they will be printed: reading the clock costs as much as a short exit.
    guest_time: u64,
    exit_time: [u64; EXIT_KINDS],
    clock: Option<Clock>,
    /// This is the process that `clew run` started.
    pub is_main: bool,
}

/// Since when time goes to which account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    since: u64,
    /// The exit being handled; None before the first.
    after: Option<Exit>,
}

impl Stats {
    /// Takes times from now on.
    pub fn start_clock(&mut self) {
        self.clock = Some(Clock {
            since: now(),
            after: None,
        });
    }

    /// Translated code is about to run.
    #[inline]
    pub fn entering(&mut self) {
        if let Some(clock) = &mut self.clock {
            let now = now();
            if let Some(exit) = clock.after {
                self.exit_time[exit as usize] += now - clock.since;
            }
            clock.since = now;
        }
    }

    /// Translated code came back.
    #[inline]
    pub fn left(&mut self, exit: Exit) {
        self.exits[exit as usize] += 1;
        if let Some(clock) = &mut self.clock {
            let now = now();
            self.guest_time += now - clock.since;
            *clock = Clock {
                since: now,
                after: Some(exit),
            };
        }
    }

    /// A new process counts from zero.
    pub fn start_over(&mut self) {
        let timed = self.clock.is_some();
        *self = Stats::default();
        if timed {
            self.start_clock();
        }
    }

    /// For the next engine of a process that execs.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![
            self.is_main as u64,
            self.ticks,
            self.blocks,
            self.guest_bytes,
            self.host_bytes,
            self.guest_time,
        ];
        words.extend_from_slice(&self.exits);
        words.extend_from_slice(&self.exit_time);
        words
    }

    pub fn from_words(words: &[u64]) -> Option<Stats> {
        let (&[is_main, ticks, blocks, guest_bytes, host_bytes, guest_time], rest) =
            words.split_first_chunk()?;
        let (exits, exit_time) = rest.split_at_checked(EXIT_KINDS)?;
        Some(Stats {
            ticks,
            blocks,
            guest_bytes,
            host_bytes,
            exits: exits.try_into().ok()?,
            guest_time,
            exit_time: exit_time.try_into().ok()?,
            clock: None,
            is_main: is_main != 0,
        })
    }

    /// The lines to print, ticks first.
    fn lines(&self) -> Vec<(String, String)> {
        let counters = [
            ("ticks", self.ticks),
            ("blocks", self.blocks),
            ("guest bytes", self.guest_bytes),
            ("host bytes", self.host_bytes),
        ];
        let mut lines: Vec<(String, String)> = counters
            .map(|(name, count)| (name.into(), count.to_string()))
            .into();
        lines.push(("time, guest".into(), milliseconds(self.guest_time)));
        for (kind, (&count, &time)) in self.exits.iter().zip(&self.exit_time).enumerate() {
            let name = format!("{:?}", Exit::from_u32(kind as u32)).to_lowercase();
            lines.push((format!("exits, {name}"), count.to_string()));
            lines.push((format!("time, {name}"), milliseconds(time)));
        }
        lines
    }
}

fn milliseconds(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Executor {
    /// Prints the counters if the user asked for this process's. For every way out: exit, a fatal
    /// signal, the engine's own end.
    pub fn report_stats(&mut self) {
        let prefix = match self.options.stats {
            StatsFor::All if !self.stats.is_main => format!("[{}] ", std::process::id()),
            StatsFor::All | StatsFor::Main if self.stats.is_main => String::new(),
            _ => return,
        };
        let fd = match self.kernel.own.hidden.stats {
            fd @ 0.. => fd,
            _ => 2,
        };
        let lines: Vec<String> = self
            .stats
            .lines()
            .into_iter()
            .map(|(name, value)| format!("{prefix}{name}: {value}"))
            .collect();
        stop::line(fd, &lines.join("\nclew: "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_an_exec() {
        let mut stats = Stats {
            ticks: 1,
            blocks: 2,
            guest_bytes: 3,
            host_bytes: 4,
            is_main: true,
            ..Stats::default()
        };
        stats.exits[EXIT_KINDS - 1] = 9;
        stats.exit_time[0] = 10;
        stats.guest_time = 11;
        assert_eq!(Stats::from_words(&stats.to_words()), Some(stats));
        assert_eq!(Stats::from_words(&[1, 2]), None);
    }

    #[test]
    fn ticks_come_first() {
        let lines = Stats::default().lines();
        assert_eq!(lines[0], ("ticks".to_string(), "0".to_string()));
        assert_eq!(lines.len(), 5 + 2 * EXIT_KINDS);
    }

    #[test]
    fn time_goes_to_the_guest_and_to_exits() {
        let mut stats = Stats::default();
        stats.start_clock();
        stats.entering();
        stats.left(Exit::Syscall);
        while now() == stats.clock.unwrap().since {}
        stats.entering();
        assert!(stats.exit_time[Exit::Syscall as usize] > 0);
        assert_eq!(stats.exit_time.iter().filter(|&&t| t > 0).count(), 1);
        assert_eq!(milliseconds(1_234_567), "1.234 ms");
    }
}
