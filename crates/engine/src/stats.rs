//! Counters behind `clew run --stats`.

use crate::context::EXIT_KINDS;

#[derive(Debug, Default)]
pub struct Stats {
    pub ticks: u64,
    pub blocks: u64,
    pub guest_bytes: u64,
    pub host_bytes: u64,
    pub exits: [u64; EXIT_KINDS],
}
