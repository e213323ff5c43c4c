//! The command lines of `clew calls`, `clew writes` and `clew output`, and their help.

use clap::Args;
use clew_recording::process::ProcessName;

use crate::replaying::Replaying;

/// Which process of a recording, and how to replay it.
#[derive(Debug, Default, Args)]
pub struct Which {
    /// Which process (default: the program that was recorded)
    #[arg(long, value_name = "P")]
    pub pid: Option<ProcessName>,

    /// Which program of a process that has run several, one exec after the other: 1 is the first
    /// (default: the last)
    #[arg(long, value_name = "N")]
    pub exec: Option<usize>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub replaying: Replaying,
}

#[derive(Debug, Args)]
pub struct Calls {
    /// The function, with its namespaces or without
    #[arg(value_name = "FUNCTION")]
    pub function: String,

    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Tell at most N calls
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub most: u64,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Writes {
    /// A C expression that has a place in memory: a variable, a member, an element, what a pointer points at
    #[arg(value_name = "EXPR")]
    pub expression: String,

    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Where names mean what they mean, and pointers point where they point (default: the end)
    #[arg(long, value_name = "POS", default_value = "end")]
    pub at: String,

    /// Tell at most N changes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub most: u64,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Output {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Tell at most N writes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub most: u64,

    #[command(flatten)]
    pub which: Which,
}

pub const CALLS_HELP: &str = "\
Each call of the run, in order: its position, thread, arguments, what it returned and the line that called it. Calls \
within calls are indented. A call that was left by an exception or a long jump says so. Where the compiler put a copy of \
the function instead of a call, that is said: those calls aren't told.

Exit status: 0 if there are calls; 1 if there are none; 2 for a wrong command line or an unknown function; 124 if the \
replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew calls handle_request
  clew calls 'Queue::push' server-1 --most 50
  clew calls malloc --json | jq '.calls | length'";

pub const WRITES_HELP: &str = "\
Each change of the variable's memory, in order: its position, thread, what was there before and after, and the line. Of a \
variable of a function, the changes of one call: the one that --at is in. To write what is there already is no change.

POS is start, end, or a position as clew tells it.

Exit status: 0 if it changes; 1 if it doesn't; 2 for a wrong command line or expression; 124 if the replay diverged; 125 \
if the recording can't be read, or replayed here.

Examples:
  clew writes total
  clew writes 'session.parent' crash
  clew writes 'list->length' crash --at 1204+77 --json";

pub const OUTPUT_HELP: &str = "\
Everything that the process wrote to its standard output and error, in order, each with its position: clew debug --at POS \
shows the stack that wrote it.

Exit status: 0 if there is output; 1 if there is none; 2 for a wrong command line; 124 if the replay diverged; 125 if \
the recording can't be read, or replayed here.

Examples:
  clew output
  clew output server-1 --json | jq -r '.output[] | select(.to == 2) | .position'";
