//! The command line: verbs, flags and their help.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use clew_engine::kernel::chaos::Kinds;
use clew_engine::program::Sched;

pub use crate::answers::arguments::{CALLS_HELP, Calls, OUTPUT_HELP, Output, WRITES_HELP, Writes};
pub use crate::diagnose::arguments::{ALERTS_HELP, Alerts, HEAP_HELP, Heap, WHY_HELP, Why};
pub use crate::diagnose::delta::{Diagnose, HELP as DIAGNOSE_HELP};
pub use crate::hunt::arguments::{ExplainRun, Guard, HUNT_HELP, Hunt};
pub use crate::recordings::arguments::*;
pub use crate::weave::{RELOG_HELP, Relog};

#[derive(Debug, Parser)]
#[command(
    name = "clew",
    version,
    about = "Record, replay and ask: a debugger for failures that happen once",
    after_help = "Examples:\n  \
        clew record ./server --port 8080  record a run of a program\n  \
        clew hunt ./test                  run it under many schedules until it fails\n  \
        clew replay                       repeat the latest recording, exactly\n  \
        clew debug                        look into it with gdb, forwards and backwards\n  \
        clew why                          how it came to the failure\n  \
        clew view                         look at it in a browser\n  \
        clew watch 'list->length > 100'   where a condition becomes true\n  \
        clew calls handle_request         all calls of a function, with arguments and results\n  \
        clew writes total                 all changes of a variable\n  \
        clew output                       what it printed, and when\n  \
        clew ls                           what has been recorded\n  \
        clew dump server-1 | less         every event of a recording\n  \
        clew run --stats -- make -j2      run without recording, and say what it took\n\n\
        Recordings are in $CLEW_DIR, else $XDG_DATA_HOME/clew, else ~/.local/share/clew."
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// All of it, for those who describe it.
pub fn definition() -> clap::Command {
    crate::tasks::by_task(<Line as clap::CommandFactory>::command())
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and record the run
    #[command(after_help = RECORD_HELP)]
    Record(Record),

    /// Repeat a recorded run, instruction by instruction
    #[command(after_help = REPLAY_HELP)]
    Replay(Replay),

    /// Open gdb on a recording: forwards, backwards, what-ifs
    #[command(after_help = DEBUG_HELP)]
    Debug(Debug),

    /// Run a program under many schedules until it fails, and keep that recording
    #[command(after_help = HUNT_HELP)]
    Hunt(Hunt),

    /// Make a recorded failure small: the fewest preemptions that it needs
    #[command(after_help = crate::hunt::minimize::HELP)]
    Minimize(crate::hunt::minimize::Minimize),

    /// Removes what a hunt that was killed leaves
    #[command(name = clew_hunt::guard::COMMAND, hide = true)]
    HuntGuard(Guard),

    /// Tells a hunt the lines of a run
    #[command(name = clew_hunt::explain::COMMAND, hide = true)]
    ExplainRun(ExplainRun),

    /// Tells a hunt what threads of a recorded run share
    #[command(name = clew_hunt::idiom::profile::COMMAND, hide = true)]
    HuntProfile(crate::profile::Profiled),

    /// Find where a condition becomes true, or false
    #[command(after_help = WATCH_HELP, override_usage = "clew watch [OPTIONS] [REC] <EXPR>")]
    Watch(Watch),
    /// Find the line that last changed a value, in a recording of Python or Perl
    #[command(after_help = crate::language::LAST_HELP, override_usage = "clew last [OPTIONS] [REC] <EXPR>")]
    Last(crate::language::Last),

    /// Where a value comes from: back to where it was computed or came in
    #[command(after_help = crate::origin::HELP, override_usage = "clew origin [OPTIONS] [REC] <WHAT>")]
    Origin(crate::origin::Origin),

    /// All that a value depends on: what it was computed from, and what decided
    #[command(after_help = crate::slice::HELP, override_usage = "clew slice [OPTIONS] [REC] [WHAT]\n       clew slice run [-o FOLDER] [REC] NAME")]
    Slice(crate::slice::Slice),

    /// What happened before what: interactions of threads, and the order between them
    #[command(after_help = crate::order::HELP)]
    Order(Box<crate::order::Order>),

    /// Accesses of threads to the same memory that nothing orders
    #[command(after_help = crate::races::HELP)]
    Races(crate::races::RacesLine),

    /// Tell all calls of a function: arguments, results, callers, positions
    #[command(after_help = CALLS_HELP)]
    Calls(Calls),

    /// Tell all changes of a variable: before, after, lines, positions
    #[command(after_help = WRITES_HELP)]
    Writes(Writes),

    /// Tell what was written to standard output and error, with positions
    #[command(after_help = OUTPUT_HELP)]
    Output(Output),

    /// Say how it came to the failure, in terms of the source
    #[command(after_help = WHY_HELP)]
    Why(Why),

    /// Compare failing runs with passing ones: which accesses of threads or handlers are different, and are they the cause
    #[command(after_help = DIAGNOSE_HELP, override_usage = "clew diagnose [OPTIONS] [--] [PROG]...")]
    Diagnose(Diagnose),

    /// Tell everything notable: crashes, assertions, exceptions, failed calls, children
    #[command(after_help = ALERTS_HELP)]
    Alerts(Alerts),

    /// Tell who allocated and freed memory: of an address, at a position, never, wrongly
    #[command(after_help = HEAP_HELP, override_usage = "clew heap [OPTIONS] [REC] [ADDR]")]
    Heap(Heap),

    /// Run debug code of your own in the replay: prints, counters, checks
    #[command(after_help = crate::probe::HELP)]
    Probe(crate::probe::Probe),

    /// Look at a recording in a browser: threads over time, source, values, histories
    #[command(after_help = crate::serving::view::HELP)]
    View(crate::serving::view::View),

    /// Serve an editor: the Debug Adapter Protocol
    #[command(after_help = crate::serving::dap::HELP)]
    Dap(crate::serving::dap::Dap),

    /// Serve an agent: the Model Context Protocol
    #[command(after_help = crate::serving::mcp::HELP)]
    Mcp(crate::serving::mcp::Mcp),

    /// Make an exact recording of a woven one
    #[command(after_help = RELOG_HELP)]
    Relog(Relog),

    /// Make a region of a recording a recording of its own
    #[command(after_help = crate::cut::HELP)]
    Cut(crate::cut::Cut),

    /// Make a recording of what `clew record --keep-last` has kept so far
    #[command(after_help = crate::tail::HELP)]
    Save(crate::tail::Save),

    /// What is being recorded now: how it stands, and a recording of what there is
    #[command(after_help = crate::ctl::HELP)]
    Ctl(crate::ctl::Ctl),

    /// List the recordings: name, program, when, how it ended, length, size
    #[command(after_help = LS_HELP)]
    Ls(Ls),

    /// Show what a recording holds: processes and threads, counts, sizes, the machine
    #[command(after_help = INFO_HELP)]
    Info(Info),

    /// Print the events of a recording, one per line
    #[command(after_help = DUMP_HELP)]
    Dump(Dump),

    /// Remove recordings
    #[command(after_help = RM_HELP)]
    Rm(Rm),

    /// Put a recording into one file, to send or to keep
    #[command(after_help = PACK_HELP)]
    Pack(Pack),

    /// Take a recording out of a packed file
    #[command(after_help = UNPACK_HELP)]
    Unpack(Unpack),

    /// Make a file for whoever looks for the cause of a replay that diverges
    #[command(after_help = REPORT_HELP)]
    Report(Report),

    /// Print completions for a shell
    #[command(after_help = crate::describe::COMPLETIONS_HELP)]
    Completions(crate::describe::Completions),

    /// Print the manual page, or write those of all commands
    #[command(after_help = crate::describe::MAN_HELP)]
    Man(crate::describe::Man),

    /// Check what this machine allows, and say how to fix what it doesn't
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),

    /// Run a program under the engine, with nothing recorded
    #[command(
        after_help = "Exit status: the program's own; 126 if it can't be executed, 127 if there is \
        none of that name, 125 if the engine gave up.\n\n\
        Examples:\n  \
        clew run ls -l\n  \
        clew run --stats -- python3 -c 'print(1)'"
    )]
    Run(Run),

    /// Show or clear the saved translations of this user
    #[command(
        after_help = "The folder is $CLEW_CACHE, else $XDG_CACHE_HOME/clew, else ~/.cache/clew. It \
        is kept below 1 GiB by itself, and clearing it is always safe: the next run of each \
        program is slower, that is all.\n\n\
        Exit status: 0, or 1 if the folder can't be read, cleared or trusted.\n\n\
        Examples:\n  \
        clew cache\n  \
        clew cache --clear"
    )]
    Cache(Cache),
}

impl Command {
    /// Does it run guest code in this process or in ones that it starts?
    pub fn translates(&self) -> bool {
        !matches!(
            self,
            Command::Ls(_)
                | Command::Info(_)
                | Command::Rm(_)
                | Command::Pack(_)
                | Command::Unpack(_)
                | Command::HuntGuard(_)
                | Command::Doctor(_)
                | Command::Completions(_)
                | Command::Man(_)
                | Command::Cache(_)
        )
    }
}

#[derive(Debug, Args)]
pub struct Cache {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Remove everything that is saved
    #[arg(long)]
    pub clear: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub engine: Engine,

    #[command(flatten)]
    pub guest: Guest,
}

/// What is to be run.
#[derive(Debug, Args)]
pub struct Guest {
    /// The program, looked up in PATH, and its arguments
    #[arg(
        value_name = "PROG",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// How it is run, recorded or not.
#[derive(Debug, Default, Args)]
pub struct Engine {
    #[command(flatten)]
    pub schedule: Schedule,

    /// Show the program only what nearly every CPU has (x86-64-v3, no random numbers from the CPU), so that a recording
    /// replays on other machines
    #[arg(long)]
    pub portable: bool,

    /// Neither use nor keep saved translations
    #[arg(long)]
    pub no_cache: bool,

    /// Print counters to stderr at the end: ticks, blocks and bytes translated, cache exits
    #[arg(long, value_name = "WHOSE", num_args = 0..=1, require_equals = true,
        default_missing_value = "main")]
    pub stats: Option<Whose>,

    /// Switches for debugging the engine, with commas between them: trace, bisect=N, dump=N..M, calls,
    /// lockstep[=N], stretch=N, spread=N, turns, sharing, hook (see CONTRIBUTING).
    /// The environment variable CLEW_DEBUG says the same
    #[arg(long, value_name = "SWITCHES", hide = true)]
    pub debug: Option<String>,
}

/// Who runs when.
#[derive(Clone, Debug, Default, Args)]
pub struct Schedule {
    /// How threads share the processor: fair (in turns), random (short turns in random order, to
    /// find races), pct (random priorities that change at a few random places)
    #[arg(long, value_name = "POLICY", default_value = "fair", value_parser = sched)]
    pub sched: Sched,

    /// Follow the turns in FILE: which thread runs, and where in its own life its turn ends (see docs/recording.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sched", "depth", "length"])]
    pub script: Option<PathBuf>,

    /// Make the policy's decisions as with this number before; random if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// For pct: how many ordering constraints a bug needs, one more than priorities change
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub depth: Option<u32>,

    /// For random and pct: how much work the threads do in a run, in ticks (a system call is 64), so that turns
    /// and changes of priority fit; `clew hunt` measures it
    #[arg(long, value_name = "TICKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub length: Option<u64>,

    /// What the program's clocks, sleeps and timers follow: real time, or virtual, which begins the same in every run and jumps
    /// when all threads wait
    #[arg(long, value_name = "WHICH", default_value = "real", value_enum)]
    pub time: Time,

    /// Do what the kernel may do to a program and seldom does: delays, short (reads and writes), eintr, wakes (in another
    /// order), memory (is refused); without a list, all but the last
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
        default_missing_value = ALL_CHAOS, value_parser = Kinds::parse)]
    pub chaos: Option<Kinds>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Time {
    #[default]
    Real,
    Virtual,
}

/// What `--chaos` is without a list.
pub const ALL_CHAOS: &str = "delays,short,eintr,wakes";

fn sched(name: &str) -> Result<Sched, String> {
    Sched::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Sched::ALL.iter().map(|sched| sched.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whose {
    /// The process that clew starts
    Main,
    /// Each process, children with their pid in front
    All,
}

/// Reads the command line; on error or for help, prints it and gives the exit status.
pub fn parse(argv: &[&CStr]) -> Result<Command, i32> {
    let words = argv.iter().map(|arg| OsStr::from_bytes(arg.to_bytes()));
    if let Some(command) = parse_quickly(words.clone()) {
        return Ok(command);
    }
    let line = definition()
        .try_get_matches_from(words)
        .and_then(|matches| Line::from_arg_matches(&matches));
    match line {
        Ok(line) => Ok(line.command),
        Err(error) => {
            let _ = error.print();
            Err(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

/// The commands that run programs, without building the definition of all others first, which would take a tenth of a
/// short program's time. None if it is another one, or wrong: whoever knows all of them says so.
fn parse_quickly<'a>(mut words: impl Iterator<Item = &'a OsStr> + Clone) -> Option<Command> {
    fn of<A: Args>(words: impl Iterator<Item = OsString>) -> Option<A> {
        let mut command = A::augment_args(clap::Command::new("clew"));
        let mut matches = command.try_get_matches_from_mut(words).ok()?;
        A::from_arg_matches_mut(&mut matches).ok()
    }
    let name = words.next()?.to_owned();
    let verb = words.next()?.to_str()?;
    let words = std::iter::once(name).chain(words.map(OsStr::to_owned));
    match verb {
        "run" => of(words).map(Command::Run),
        "record" => of(words).map(Command::Record),
        "replay" => of(words).map(Command::Replay),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&CStr]) -> Run {
        match parse(argv).unwrap() {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_programs_flags_are_its_own() {
        let line = run(&[c"clew", c"run", c"--stats", c"ls", c"-l", c"--stats=x"]);
        assert_eq!(line.engine.stats, Some(Whose::Main));
        assert_eq!(line.guest.program, ["ls", "-l", "--stats=x"]);
        let line = run(&[c"clew", c"run", c"--stats=all", c"--", c"-odd", c"--"]);
        assert_eq!(line.engine.stats, Some(Whose::All));
        assert_eq!(line.guest.program, ["-odd", "--"]);
        assert_eq!(
            run(&[c"clew", c"run", c"ls", c"--", c"x"]).guest.program,
            ["ls", "--", "x"]
        );
    }

    /// Both ways to read a command line give the same.
    #[test]
    fn quick_is_the_same() {
        let lines: &[&[&str]] = &[
            &["clew", "run", "ls", "-l"],
            &["clew", "run", "--stats=all", "--", "-odd", "--"],
            &["clew", "run", "--stats", "ls", "--stats=x"],
            &[
                "clew", "record", "-o", "x", "--sched", "random", "--seed", "7", "prog", "--", "a",
            ],
            &["clew", "record", "--name", "x", "--weave", "prog"],
            &["clew", "replay"],
            &["clew", "replay", "--verify", "rec", "--to", "7"],
            &["clew", "run"],
            &["clew", "run", "--help"],
            &["clew", "record", "--nonsense", "x"],
            &["clew", "record", "--version"],
            &["clew", "--version", "run"],
            &["clew", "ls"],
            &["clew"],
        ];
        for line in lines {
            let words = line.iter().map(OsStr::new);
            let whole = Line::try_parse_from(words.clone());
            let whole = whole.ok().map(|line| format!("{:?}", line.command));
            let quick = parse_quickly(words).map(|command| format!("{command:?}"));
            if quick.is_some() {
                assert_eq!(quick, whole, "{line:?}");
            }
            let runs = matches!(line.get(1), Some(&("run" | "record" | "replay")));
            assert_eq!(quick.is_some(), runs && whole.is_some(), "{line:?}");
        }
    }

    #[test]
    fn a_program_is_needed() {
        assert_eq!(parse(&[c"clew", c"run"]).unwrap_err(), 2);
        assert_eq!(parse(&[c"clew", c"--version"]).unwrap_err(), 0);
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Line::command().debug_assert();
    }
}
