//! The command lines of `clew heap`, `clew alerts` and `clew why`, and their help.

use std::path::PathBuf;

use clap::Args;

use crate::answers::arguments::Which;

#[derive(Debug, Args)]
pub struct Heap {
    /// The recording (default: the latest), and an address or an expression whose value is one
    #[arg(value_name = "REC ADDR", num_args = 0..=2)]
    pub words: Vec<String>,

    /// Tell what is never freed
    #[arg(long, conflicts_with = "at")]
    pub leaks: bool,

    /// Tell what is allocated at a position; with an expression, where it is evaluated (default: the end)
    #[arg(long, value_name = "POS")]
    pub at: Option<String>,

    /// Tell at most N blocks, or places
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub most: u64,

    /// Tell all calls, in order
    #[arg(long, conflicts_with_all = ["leaks", "at"])]
    pub all: bool,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Alerts {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Tell data races too: takes another replay
    #[arg(long)]
    pub races: bool,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Why {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// What it should have printed to standard output: why is the first difference there?
    #[arg(long, value_name = "FILE")]
    pub expected: Option<PathBuf>,

    /// Run the program again, in its folder, to find the few switches of threads that it takes; keeps a smaller recording
    #[arg(long, conflicts_with = "expected")]
    pub minimize: bool,

    #[command(flatten)]
    pub which: Which,
}

pub const HEAP_HELP: &str = "\
Without an address: how much was allocated and freed, and frees that were wrong (twice, of what is no block, by another \
family of functions). With one: every block that was ever there, with who allocated and freed it. What `malloc` and its \
relatives, `operator new`, mimalloc's and jemalloc's functions give is seen; allocators within the program aren't.

Exit status: 0 if there is something to tell; 1 if there is nothing; 2 for a wrong command line or expression; 124 if the \
replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew heap
  clew heap crash 0x20000000a2a0
  clew heap crash 'job->client' --at 812+40
  clew heap server --leaks";

pub const ALERTS_HELP: &str = "\
Crashes, failed assertions, signals, exceptions, panics, sanitizers' reports, system calls that failed in unusual ways, wrong \
frees, deadlocks, waits of more than a second, children that failed: each with its position, for clew debug --at.

Exit status: 0 if there is something to tell; 1 if there is nothing; 2 for a wrong command line; 124 if the replay \
diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew alerts
  clew alerts server-1 --json | jq -r '.alerts[].kind'";

pub const WHY_HELP: &str = "\
How it came to the failure: what failed, the value that was wrong, where that came from, who allocated and freed the memory, \
which other thread interfered. Each sentence has a position, for clew debug --at. What isn't read from the recording but \
concluded is marked. Where the cause isn't known, it says what it looked at (docs/why.md).

Exit status: 0 if a cause is told; 1 if there is no failure, or no cause is found; 2 for a wrong command line; 124 if the \
replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew why
  clew why crash --json
  clew why report-1 --expected right.txt
  clew why jobs-1 --minimize             and the one switch of threads that it takes";
