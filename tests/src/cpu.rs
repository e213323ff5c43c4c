//! What this processor can do, so that guests for newer instructions are skipped elsewhere.

use std::fs;
use std::sync::OnceLock;

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
