//! The command line of the commands about recordings: flags and their help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clew_recording::process::ProcessName;

use crate::arguments::{Engine, Guest};
use crate::weave::Weave;

pub const RECORD_HELP: &str = "\
The program runs in this very process: exit status, signals, terminal and job control are its own. \
Its children are recorded too. Recordings are named for the program (ls-1, ls-2, ...); `latest` is \
the last one begun.

Exit status: the program's own; 126 if it can't be executed, 127 if there is none of that name, 125 \
if nothing can be recorded or the engine gave up, 2 for a wrong command line.

Examples:
  clew record ./server --port 8080
  clew record -n crash --sched random --seed 7 -- ./test --all
  clew record -o /mnt/big/run1 make -j4
  clew record --keep-if fail -- cargo test
  clew record --from 'parse_request#3' --to 'parse_request#3$' ./server";

pub const REPLAY_HELP: &str = "\
REC is a recording's name, its folder, or nothing for the latest one. The replayed program prints \
what it printed; it touches no file, socket or terminal besides.

Exit status: the recorded program's own, or its death by the same signal; 124 if the replay \
diverged from the recording; 123 if the recording ends before the program did; 0 if --to's event was \
reached; 125 if it can't be replayed here; 1 if it can't be read; 2 for a wrong command line.

Examples:
  clew replay
  clew replay --verify -q crash
  clew replay crash --pid 4711 --to 1200";

pub const DEBUG_HELP: &str = "\
REC is a recording's name, its folder, or nothing for the latest one. gdb starts on this terminal, with your \
settings and what is given behind --; all of its commands work, and so do reverse-continue, reverse-step \
and the like. The recording can't be changed: what you assign or call happens in a copy. `help clew` in gdb \
shows what there is besides.

WHERE is start, end, an event's number (`clew dump` shows them) or a position as `clew when` in gdb tells it. \
The default is the end if the program was killed by a signal, else the start.

A recording of an interpreter (python, perl) is opened in that language, with a prompt like pdb's, unless something \
is given for gdb or --personality says c.

Exit status: gdb's; 125 if the recording can't be replayed here; 127 if there is no gdb; 1 if it can't be read; \
2 for a wrong command line.

Examples:
  clew debug
  clew debug crash -- -ex bt
  clew debug make-1 --pid 4711 --at 1200
  clew debug server --serve /tmp/server.sock
  clew debug script-1 --personality python";

pub const WATCH_HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. EXPR is a C expression over the program's \
variables. It may call the program's own functions, which happens in copies that are thrown away; where one crashes or \
never returns, EXPR is undefined. If EXPR is true at one end and false at the other, an instruction (or system call) \
is found that flips it, by looking at about as many places as the run's length has bits. It may flip more than \
once: then it is one of these places, and with --first the earliest, as far as hundreds of looks can tell.

Names mean what they mean at the ends: a variable of a function that is being called there, else a global one. \
::x is a global, f::x a variable of the function f, 'file.c'::x a file's own. Functions without debugging information \
need a cast that says what they return: (int) f(1).

POS is start, end, an event's number (`clew dump` shows them) or a position as this command and `clew when` in \
gdb tell it. The default is from the first instruction of main to the end.

Exit status: 0 if a flip is found; 1 if none is; 2 for a wrong command line or expression; 124 if the replay \
diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew watch 'has_cycle() == 1'
  clew watch crash 'session.parent == &root'
  clew watch crash '!locked && !is_circular()' --first
  clew watch crash 'list->length > 100' --sample 50
  clew watch crash 'count(head) == total' --from 1200 --to 1300+500 --json
  clew watch bank --lang python 'sum(a.n for a in accounts) == 2000'";

pub const LS_HELP: &str = "\
The first look at a large recording takes a moment: it is read once, and what it is about is kept.

Exit status: 0, or 1 if the folder can't be read.

Examples:
  clew ls
  clew ls --json | jq -r '.recordings[] | select(.end.how == \"killed\") | .name'";

pub const INFO_HELP: &str = "\
REC is a recording's name, its folder, or nothing for the latest one.

Exit status: 0, or 1 if it can't be read.

Examples:
  clew info
  clew info crash --json | jq .ticks";

pub const DUMP_HELP: &str = "\
REC is a recording's name, its folder, or nothing for the latest one. Events are numbered from 1 in \
each process image (what begins with an exec or a fork); --from, --to and `clew replay --to` use these \
numbers. Shown are seconds since the start, the thread's id, and what happened; data that the kernel wrote is in \
quotes, shortened (--full shows all). Events that only carry the time aren't shown, except by --json.

Exit status: 0, or 1 if it can't be read.

Examples:
  clew dump | less
  clew dump crash --pid 4711 --from 1200 --to 1300
  clew dump --all --json | jq -c 'select(.kind == \"signal\")'";

pub const RM_HELP: &str = "\
Exit status: 0, or 1 if one of them is still being recorded, isn't there or can't be removed; the \
others are removed all the same.

Examples:
  clew rm ls-1 ls-2
  clew rm --all";

pub const PACK_HELP: &str = "\
The file has everything that a replay needs: copies of the files that the program had mapped, its environment \
variables, and what it read, received and had in memory. Send it to people whom you would let see that.

--strip-env overwrites the values of environment variables where each program got them, and leaves out comparisons of \
memory, which would differ. The result is replayed before it is packed; a variable without which it diverges keeps its \
value, and is named. What the program read or received elsewhere (files, sockets) and its own copies aren't changed: \
values that appear there are named too.

Exit status: 0, or 1 if it can't be read or written.

Examples:
  clew pack crash
  clew pack -o /tmp/for-anna.clew crash";

pub const UNPACK_HELP: &str = "\
A packed file may come from a stranger: only plain files are taken from it, into a new folder among \
the recordings. If anything is wrong with it nothing is left behind.

Exit status: 0, or 1 if it is damaged, too large, or can't be written.

Examples:
  clew unpack crash.clew
  clew unpack -n theirs crash.clew && clew replay theirs";

pub const REPORT_HELP: &str = "\
REC is a recording's name, its folder, or nothing for the latest one. It is replayed; if the replay isn't what was \
recorded, a file is written that says where, on both sides, with the events and the translated code around, the \
machine, the program's command line and the files that it had mapped (names and build-ids). The program's memory, \
its environment and its files aren't in it, unless you ask for them: --with-memory adds the log, which holds what the \
program read and its environment; --with-files adds copies of the program and its libraries. With both, the recording \
can be replayed from the file. `tar --zstd -xf FILE` shows all.

Exit status: 0 if a report was written; 1 if there is nothing to report, or it can't be read or written; 125 if it \
can't be replayed here; 2 for a wrong command line.

Examples:
  clew report
  clew report crash -o /tmp/for-clew.tar.zst
  clew report crash --with-memory --with-files
  clew report crash --json | jq '.divergences[0].noticed'";

pub const DOCTOR_HELP: &str = "\
Exit status: 0 if recording and replaying will work (warnings included), 1 if something is in the way.

Examples:
  clew doctor
  clew doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'";

#[derive(Debug, Args)]
pub struct Record {
    /// The folder of this recording itself, instead of a new one among the others; must be new or empty
    #[arg(short, long, value_name = "DIR", conflicts_with = "name")]
    pub output: Option<PathBuf>,

    /// What to call the recording
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,

    /// Let threads run natively, in parallel, and note their order and the input only: exact for programs without data
    /// races (docs/weave.md). HOW is strict, or anyway: also what can't be seen to be so
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "strict",
        value_enum, conflicts_with_all = ["sched", "script", "seed", "chaos", "portable"])]
    pub weave: Option<Weave>,

    #[command(flatten)]
    pub engine: Engine,

    /// When the disk is full: stop the program, or let it go on unrecorded
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Full::Stop)]
    pub on_full: Full,

    /// When all threads wait for each other for good: wait with them, or end the program there
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Deadlock::Wait)]
    pub on_deadlock: Deadlock,

    /// Keep the recording only if the run ends so; may be given several times: fail, exit!=0, exit=N, signal, deadlock,
    /// output=REGEX, or a command (docs/regions.md). With fail, of its processes only those that failed
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<crate::keep::KeepIf>, conflicts_with = "weave")]
    pub keep_if: Vec<crate::keep::KeepIf>,

    /// Keep the last part only: so much of the log (64M, 2G), or of the time (30s, 5min, 1h); `clew save` makes a
    /// recording of it meanwhile (docs/regions.md)
    #[arg(long, value_name = "AMOUNT", value_parser = crate::tail::limit, conflicts_with_all = ["weave", "from", "to"])]
    pub keep_last: Option<clew_recording::tail::Limit>,

    /// Keep a region only, from here on: cut out of the whole recording when the program has ended. WHEN as for `clew cut`:
    /// a function, FILE:LINE, ticks:N, time:T, calls:N, signal:NAME, output:REGEX
    #[arg(long, value_name = "WHEN", value_parser = crate::when::word, conflicts_with = "weave")]
    pub from: Option<String>,

    /// Where that region ends
    #[arg(long, value_name = "WHEN", value_parser = crate::when::word, conflicts_with = "weave")]
    pub to: Option<String>,

    /// A run of `clew hunt`: it isn't made the latest recording
    #[arg(long, hide = true)]
    pub hunted: bool,

    #[command(flatten)]
    pub guest: Guest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Full {
    Stop,
    Continue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Deadlock {
    Wait,
    Stop,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// Which process to replay (default: the program that was recorded)
    #[arg(long, value_name = "P")]
    pub pid: Option<ProcessName>,

    /// Compare memory too wherever the recording has a checksum of it, not only at the end, and say
    /// how much was compared
    #[arg(long)]
    pub verify: bool,

    /// Stop after this event and what it changed (`clew dump` numbers them)
    #[arg(long, value_name = "EVENT")]
    pub to: Option<u64>,

    /// Don't print what the program printed
    #[arg(short, long)]
    pub quiet: bool,

    /// Replay without locking the processes in, on a kernel without seccomp; only for recordings that
    /// you trust like the program itself
    #[arg(long)]
    pub no_jail: bool,
}

#[derive(Debug, Args)]
pub struct Debug {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// Which process (default: the program that was recorded)
    #[arg(long, value_name = "P")]
    pub pid: Option<ProcessName>,

    /// Which program of a process that has run several, one exec after the other: 1 is the first
    /// (default: the last)
    #[arg(long, value_name = "N")]
    pub exec: Option<usize>,

    /// Where to begin: start, end, an event or a position
    #[arg(long, value_name = "WHERE", value_parser = clew_gdb::parse_target)]
    pub at: Option<clew_timeline::Target>,

    /// The prompt: of the recorded program's language (python, perl), or gdb (c); by default what the program is,
    /// and gdb if something is given for it
    #[arg(long, value_name = "LANGUAGE", value_parser = ["python", "perl", "c"])]
    pub personality: Option<String>,

    /// The gdb to start (default: $CLEW_GDB, else gdb)
    #[arg(long, value_name = "PROG")]
    pub gdb: Option<OsString>,

    /// Don't start gdb: make a socket of this name for one that is started otherwise
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["gdb", "arguments"])]
    pub serve: Option<PathBuf>,

    /// Megabytes of memory that snapshots may take (default: a quarter of the machine's, or of the control group's limit)
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..0x100_0000))]
    pub memory: Option<u64>,

    /// Replay without locking the processes in, on a kernel without seccomp; only for recordings that
    /// you trust like the program itself
    #[arg(long)]
    pub no_jail: bool,

    /// Show what gdb and clew say to each other, on stderr
    #[arg(long, hide = true)]
    pub trace_packets: bool,

    /// For gdb
    #[arg(value_name = "GDB-ARGS", last = true)]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// The recording (default: the latest), and the expression
    #[arg(value_name = "REC EXPR", num_args = 1..=2, required = true)]
    pub words: Vec<String>,

    /// Where to begin
    #[arg(long, value_name = "POS", value_parser = clew_gdb::parse_target)]
    pub from: Option<clew_timeline::Target>,

    /// Where to end
    #[arg(long, value_name = "POS", value_parser = clew_gdb::parse_target)]
    pub to: Option<clew_timeline::Target>,

    /// EXPR is of the recorded program's language (python, perl): the line is told that flips it (docs/languages.md)
    #[arg(long, value_name = "LANGUAGE", value_parser = clew_personality::LANGUAGES, conflicts_with_all = ["first", "sample"])]
    pub lang: Option<String>,

    /// With --lang: look inside the line too, for the instruction
    #[arg(long, requires = "lang")]
    pub any_place: bool,

    /// Search for the earliest flip: looks at many more places, and is the slower
    #[arg(long)]
    pub first: bool,

    /// Look at N places in between, evenly spread, and search for each change that is seen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub sample: Option<u32>,

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

    /// Megabytes of memory that snapshots may take (default: a quarter of the machine's, or of the control group's limit)
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..0x100_0000))]
    pub memory: Option<u64>,

    /// Replay without locking the processes in, on a kernel without seccomp; only for recordings that
    /// you trust like the program itself
    #[arg(long)]
    pub no_jail: bool,
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Info {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Dump {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// Events of this process (default: the program that was recorded)
    #[arg(long, value_name = "P")]
    pub pid: Option<ProcessName>,

    /// Events of all processes, by time
    #[arg(long, conflicts_with = "pid")]
    pub all: bool,

    /// From this event on
    #[arg(long, value_name = "A")]
    pub from: Option<u64>,

    /// Up to this event, which is shown
    #[arg(long, value_name = "B")]
    pub to: Option<u64>,

    /// Print JSON, an object per line
    #[arg(long)]
    pub json: bool,

    /// Show data in full
    #[arg(long)]
    pub full: bool,

    /// Don't replay to find out what calls passed to the kernel (paths, data): show addresses
    #[arg(long)]
    pub quick: bool,

    /// Instead of events, the turns of the threads, as `clew record --script` takes them: of the process with the most work
    #[arg(long, conflicts_with_all = ["pid", "all", "from", "to", "json", "full", "quick"])]
    pub turns: bool,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// The recordings, by name or folder
    #[arg(value_name = "REC", required_unless_present = "all")]
    pub recordings: Vec<OsString>,

    /// All recordings that aren't still being made
    #[arg(long, conflicts_with = "recordings")]
    pub all: bool,

    /// Also one that is still being recorded
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Pack {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// The file to write (default: NAME.clew here; one that exists isn't replaced)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Overwrite the values of environment variables, wherever the program replays without them, and say
    /// which are left
    #[arg(long)]
    pub strip_env: bool,
}

#[derive(Debug, Args)]
pub struct Report {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// The file to write (default: NAME.report.tar.zst here; one that exists isn't replaced)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Add the log: what the program read, and its environment
    #[arg(long)]
    pub with_memory: bool,

    /// Add copies of the files that the program had mapped: itself, libraries
    #[arg(long)]
    pub with_files: bool,

    /// Print JSON: the file, what is in it, and each divergence
    #[arg(long)]
    pub json: bool,

    /// Replay without locking the processes in, on a kernel without seccomp; only for recordings that
    /// you trust like the program itself
    #[arg(long)]
    pub no_jail: bool,
}

#[derive(Debug, Args)]
pub struct Unpack {
    /// The packed recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What to call it (default: as it was called)
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,

    /// At most so many bytes are unpacked
    #[arg(long, value_name = "BYTES", default_value_t = clew_recording::pack::MOST_BYTES)]
    pub limit: u64,

    /// Even if it is more than 100 times as large unpacked: a file that is made to fill disks is, a
    /// recording seldom
    #[arg(long)]
    pub large: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
