//! `make bench`: every row of the speed tables, natively, under `clew run` and under two other
//! translators, and recorded and replayed, in turn; medians and ratios to native of the same session
//! come out.
//!
//! * [`rows`]: the work and its targets
//! * [`inputs`]: the files it works on, made here, the same everywhere
//! * [`translator`]: ways to run a command
//! * [`measure`]: one run to CPU time, wall time and memory
//! * [`report`]: the tables, for people, README and machines
//! * [`recorded`], [`recorded_report`]: the same for record and replay
//! * [`travel`], [`travel_report`]: what a person waits for in gdb and `clew watch`
//! * [`weave`]: woven recording against native
//! * [`probe`]: what debug code in a replay costs
//! * [`why`]: what it takes to explain a failure
//! * [`slice`]: slices, what they cost and what precision is worth

mod inputs;
mod measure;
mod probe;
mod recorded;
mod recorded_report;
mod report;
mod rows;
mod slice;
mod translator;
mod travel;
mod travel_report;
mod weave;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use measure::Sample;
use recorded::Bench;
use recorded_report::Line;
use report::Result;
use rows::Row;
use translator::Translator;

/// Measures clew against native, valgrind and qemu.
#[derive(Parser)]
#[command(about, long_about = None)]
struct Options {
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Runs per row (the other translators get at most three)
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Only these translators, beside native
    #[arg(long, value_name = "TRANSLATOR", value_delimiter = ',')]
    only: Vec<String>,
    /// Only one of the tables: run, record (with replay), travel, weave, slice, probe, or why
    #[arg(long, value_name = "TABLE", value_parser = ["run", "record", "travel", "weave", "slice", "probe", "why"])]
    table: Option<String>,
    /// The command to measure
    #[arg(long, value_name = "PATH", env = "CLEW")]
    clew: Option<PathBuf>,
    /// Print only: leave README.md and docs/ alone
    #[arg(long)]
    dry: bool,
    /// List the rows
    #[arg(long)]
    list: bool,
}

/// Runs of each row for record and replay: they take long.
const MOST_RECORDED: usize = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for row in rows::all() {
            println!("run     {}", row.name);
        }
        for row in rows::recorded() {
            println!("record  {}", row.name);
        }
        for (name, _) in travel::ROWS {
            println!("travel  {name}");
        }
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("clew-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> std::result::Result<(), String> {
    let clew = options.clew.clone().unwrap_or_else(beside_us);
    let clew = std::path::absolute(clew).map_err(|error| error.to_string())?;
    if !clew.exists() {
        return Err(format!("{} is missing: make build", clew.display()));
    }
    let chosen = |name: &str| {
        let named = |part: &String| name.contains(part.as_str());
        options.row.is_empty() || options.row.iter().any(named)
    };
    let wanted = |table: &str| options.table.as_deref().is_none_or(|only| only == table);
    let translators: Vec<Translator> = Translator::all(&clew)
        .into_iter()
        .filter(|translator| translator.is_wanted(&options.only))
        .collect();
    let dir = inputs::prepare()?;
    let mut results = Vec::new();
    for row in rows::all() {
        if wanted("run") && chosen(row.name) {
            let result = measure_row(&row, &translators, &dir, options.runs);
            report::print_row(&result, results.is_empty());
            results.push(result);
        }
    }
    let bench = Bench::new(&clew, &dir);
    let mut lines = Vec::new();
    for row in rows::recorded() {
        if wanted("record") && chosen(row.name) {
            let times = bench.measure(&row, options.runs.min(MOST_RECORDED));
            let line = Line::new(row, times);
            recorded_report::print(&line, lines.is_empty());
            lines.push(line);
        }
    }
    let bench = travel::Bench::new(&clew, &dir);
    let mut travels = Vec::new();
    for &(name, measure) in travel::ROWS {
        if wanted("travel") && chosen(name) {
            let measured = measure(&bench);
            let row = travel_report::Row { name, measured };
            travel_report::print(&row);
            travels.push(row);
        }
    }
    // A partial table must not replace a whole one.
    let partial = !options.row.is_empty() || !options.only.is_empty();
    if wanted("weave") && !partial {
        let bench = weave::Bench {
            clew: &clew,
            dir: &dir,
            runs: options.runs,
        };
        let rows = bench.measure()?;
        print!("{}", weave::table(&rows));
        if !options.dry {
            weave::write(&rows)?;
        }
        if options.table.is_some() {
            return Ok(());
        }
    }
    if wanted("probe") && !partial {
        let bench = probe::Bench {
            clew: &clew,
            dir: &dir,
        };
        let rows = bench.measure(options.runs.min(MOST_RECORDED))?;
        print!("{}", probe::table(&rows));
        if !options.dry {
            probe::write(&rows)?;
        }
        if options.table.is_some() {
            return Ok(());
        }
    }
    if wanted("why") && !partial {
        let bench = why::Bench {
            clew: &clew,
            dir: &dir,
        };
        let rows = bench.measure(options.runs.min(MOST_RECORDED))?;
        print!("{}", why::table(&rows));
        if !options.dry {
            why::write(&rows)?;
        }
        if options.table.is_some() {
            return Ok(());
        }
    }
    if wanted("slice") && !partial {
        let bench = slice::Bench {
            clew: &clew,
            dir: &dir,
        };
        let rows = bench.measure()?;
        print!("{}", slice::table(&rows));
        if !options.dry {
            slice::write(&rows)?;
        }
        if options.table.is_some() {
            return Ok(());
        }
    }
    if options.dry || partial {
        return Ok(());
    }
    if options.table.is_some() {
        return report::write_one(&results, &lines, &travels).map_err(|error| error.to_string());
    }
    report::write(&results, &lines, &travels, options.runs).map_err(|error| error.to_string())
}

/// One warm-up each, then the translators in turn, so that a change of the machine's mood
/// meets all of them.
fn measure_row(
    row: &Row,
    translators: &[Translator],
    dir: &std::path::Path,
    runs: usize,
) -> Result {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); translators.len()];
    let mut failed: Vec<Option<String>> = vec![None; translators.len()];
    for round in 0..=runs {
        for (number, translator) in translators.iter().enumerate() {
            if failed[number].is_some() || samples[number].len() >= translator.most_runs(runs) {
                continue;
            }
            match translator.run(row, dir) {
                Ok(sample) if round > 0 || !translator.needs_warm_up() => {
                    samples[number].push(sample);
                }
                Ok(_) => {}
                Err(error) => failed[number] = Some(error),
            }
        }
    }
    report::summarise(row, translators, samples, failed)
}

fn beside_us() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.with_file_name("clew")
}
