//! What this processor can do, so that guests for newer instructions are skipped elsewhere; and how busy it is.

use std::fs;
use std::sync::OnceLock;

use libtest_mimic::Completion;

/// Whether `/proc/cpuinfo` lists the flag.
pub fn has(flag: &str) -> bool {
    static FLAGS: OnceLock<Vec<String>> = OnceLock::new();
    let flags = FLAGS.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("flags"));
        let flags = line.and_then(|line| line.split_once(':'));
        let flags = flags.map(|(_, flags)| flags.split_whitespace());
        flags.into_iter().flatten().map(str::to_owned).collect()
    });
    flags.iter().any(|known| known == flag)
}

/// What to say of a test that needs it, where the processor hasn't got it.
pub fn skipped_without(flag: &str) -> Option<Completion> {
    (!has(flag)).then(|| Completion::ignored_with(format!("this processor has no {flag}")))
}

/// How many programs want to run for each processor, on the last minute's average.
pub fn load() -> u32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    (first.unwrap_or(0.0) / cores as f64) as u32
}
