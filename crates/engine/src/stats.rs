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
    /// This is the process that `clew run` started.
    pub is_main: bool,
}

impl Stats {
    /// A new process counts from zero.
    pub fn start_over(&mut self) {
        *self = Stats::default();
    }

    /// For the next engine of a process that execs.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![
            self.is_main as u64,
            self.ticks,
            self.blocks,
            self.guest_bytes,
            self.host_bytes,
        ];
        words.extend_from_slice(&self.exits);
        words
    }

    pub fn from_words(words: &[u64]) -> Option<Stats> {
        let (&[is_main, ticks, blocks, guest_bytes, host_bytes], exits) =
            words.split_first_chunk()?;
        Some(Stats {
            ticks,
            blocks,
            guest_bytes,
            host_bytes,
            exits: exits.try_into().ok()?,
            is_main: is_main != 0,
        })
    }

    /// The lines to print, ticks first.
    fn lines(&self) -> Vec<(String, u64)> {
        let mut lines = vec![
            ("ticks".into(), self.ticks),
            ("blocks".into(), self.blocks),
            ("guest bytes".into(), self.guest_bytes),
            ("host bytes".into(), self.host_bytes),
        ];
        for (kind, &count) in self.exits.iter().enumerate() {
            let name = format!("{:?}", Exit::from_u32(kind as u32)).to_lowercase();
            lines.push((format!("exits, {name}"), count));
        }
        lines
    }
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
        assert_eq!(Stats::from_words(&stats.to_words()), Some(stats));
        assert_eq!(Stats::from_words(&[1, 2]), None);
    }

    #[test]
    fn ticks_come_first() {
        let lines = Stats::default().lines();
        assert_eq!(lines[0], ("ticks".to_string(), 0));
        assert_eq!(lines.len(), 4 + EXIT_KINDS);
    }
}
