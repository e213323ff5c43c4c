//! Turns samples into the table: on the terminal as it grows, in README.md between its
//! markers, in docs/bench.md with memory, and in docs/bench.json for machines.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::Sample;
use crate::recorded_report::{self, Line};
use crate::rows::{Measure, Row};
use crate::translator::Translator;
use crate::travel_report::{self, Row as Travel};

/// A measured row.
pub struct Result {
    name: &'static str,
    wall: bool,
    must: f64,
    aim: f64,
    cells: Vec<Cell>,
}

/// What one translator made of a row.
struct Cell {
    translator: &'static str,
    outcome: std::result::Result<Median, String>,
}

struct Median {
    time: Duration,
    max_rss_kib: i64,
}

pub fn summarise(
    row: &Row,
    translators: &[Translator],
    samples: Vec<Vec<Sample>>,
    failed: Vec<Option<String>>,
) -> Result {
    let wall = row.measure != Measure::Cpu;
    let cells = translators.iter().zip(samples.into_iter().zip(failed));
    let cells = cells.map(|(translator, (samples, failed))| Cell {
        translator: translator.name,
        outcome: match failed {
            Some(error) => Err(error),
            None => median(&samples, wall).ok_or_else(|| "no runs".to_owned()),
        },
    });
    Result {
        name: row.name,
        wall,
        must: row.must,
        aim: row.aim,
        cells: cells.collect(),
    }
}

fn median(samples: &[Sample], wall: bool) -> Option<Median> {
    let mut times: Vec<Duration> = samples
        .iter()
        .map(|sample| if wall { sample.wall } else { sample.cpu })
        .collect();
    times.sort_unstable();
    let max_rss_kib = samples.iter().map(|sample| sample.max_rss_kib).max()?;
    Some(Median {
        time: times[times.len() / 2],
        max_rss_kib,
    })
}

impl Result {
    fn median(&self, translator: &str) -> Option<&Median> {
        let cell = self
            .cells
            .iter()
            .find(|cell| cell.translator == translator)?;
        cell.outcome.as_ref().ok()
    }

    fn ratio(&self, translator: &str) -> Option<f64> {
        let native = self.median("native")?.time.as_secs_f64();
        Some(self.median(translator)?.time.as_secs_f64() / native)
    }

    /// The ratio as the table shows it, with what it means for the targets.
    fn shown(&self, translator: &str) -> String {
        self.ratio(translator)
            .map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
    }

    fn verdict(&self) -> &'static str {
        match self.ratio("clew") {
            None => "–",
            Some(ratio) if ratio <= self.aim => "aim met",
            Some(ratio) if ratio <= self.must => "met",
            Some(_) => "missed",
        }
    }

    fn native(&self) -> String {
        self.median("native")
            .map_or_else(|| "–".to_owned(), |median| duration(median.time))
    }
}

pub fn duration(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1000.0),
    }
}

/// One line on the terminal; before the first, the heads.
pub fn print_row(result: &Result, first: bool) {
    if first {
        println!(
            "{:<28} {:>9} {:>7} {:>9} {:>7} {:>6} {:>6}",
            "work", "native", "clew", "valgrind", "qemu", "must", "aim"
        );
    }
    println!(
        "{:<28} {:>9} {:>7} {:>9} {:>7} {:>6} {:>6}  {}",
        result.name,
        result.native(),
        result.shown("clew"),
        result.shown("valgrind"),
        result.shown("qemu"),
        result.must,
        result.aim,
        result.verdict()
    );
    let failures = result
        .cells
        .iter()
        .filter_map(|cell| Some((cell.translator, cell.outcome.as_ref().err()?)));
    for (translator, error) in failures {
        println!("{:<28} {translator}: {error}", "");
    }
}

/// Writes README's tables, docs/bench.md and docs/bench.json.
pub fn write(
    results: &[Result],
    lines: &[Line],
    travels: &[Travel],
    runs: usize,
) -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("benches is in the repository");
    let docs = root.join("docs");
    fs::create_dir_all(&docs)?;
    fs::write(
        docs.join("bench.json"),
        json_text(results, lines, travels, runs),
    )?;
    fs::write(docs.join("bench.md"), page(results, lines, travels, runs))?;
    write_one(results, lines, travels)
}

/// Writes README's tables; one of which nothing was measured stays as it is.
pub fn write_one(results: &[Result], lines: &[Line], travels: &[Travel]) -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("benches is in the repository");
    let readme = root.join("README.md");
    let mut text = fs::read_to_string(&readme).unwrap_or_default();
    let tables = [
        ("bench", table(results), results.is_empty()),
        (
            "bench-record",
            recorded_report::table(lines),
            lines.is_empty(),
        ),
        (
            "bench-travel",
            travel_report::table(travels),
            travels.is_empty(),
        ),
    ];
    for (name, table, none) in tables {
        if none {
            continue;
        }
        match between_markers(&text, name, &table) {
            Some(changed) => text = changed,
            None => eprintln!(
                "clew-bench: README.md has no <!-- {name}:begin --> ... <!-- {name}:end -->"
            ),
        }
    }
    fs::write(readme, text)
}

/// Puts the table between the markers of that name.
fn between_markers(text: &str, name: &str, table: &str) -> Option<String> {
    let begin = format!("<!-- {name}:begin -->");
    let start = text.find(&begin)? + begin.len();
    let end = start + text[start..].find(&format!("<!-- {name}:end -->"))?;
    Some(format!("{}\n{table}{}", &text[..start], &text[end..]))
}

fn table(results: &[Result]) -> String {
    let mut out = String::from(
        "| work | native | clew run | valgrind none | qemu-user | must | aim |\n|---|---|---|---|---|---|---|\n",
    );
    for result in results {
        let wall = if result.wall { " (wall)" } else { "" };
        let _ = writeln!(
            out,
            "| {}{wall} | {} | **{}** | {} | {} | {} | {} |",
            result.name,
            result.native(),
            result.shown("clew"),
            result.shown("valgrind"),
            result.shown("qemu"),
            result.must,
            result.aim
        );
    }
    out
}

fn page(results: &[Result], lines: &[Line], travels: &[Travel], runs: usize) -> String {
    let mut out = format!(
        "# Speed\n\n`make bench` wrote this page. Ratios to native in the same session: CPU time (user and \
         system, whole process tree), or wall time where it says so. Medians of {runs} runs after a warm-up, \
         translators in turn; one run each for valgrind and qemu. Machine: {}.\n\n{}\n",
        machine(),
        table(results)
    );
    let _ = write!(
        out,
        "## Record and replay\n\nWall time, ratios to native in the same session; medians of at most 3 runs. \
         Sizes in MB: the log, and with the copies of mapped files (which recordings beside each other share). \
         The size to meet is half of what rr with counters in software takes.\n\n{}\n{}\n",
        recorded_report::table(lines),
        recorded_report::notes(lines),
    );
    let _ = write!(
        out,
        "## Time travel\n\nWall time of whole commands in gdb, or of `clew watch`.\n\n{}\n",
        travel_report::table(travels),
    );
    out.push_str("## Memory\n\nPeak resident set of the largest process, MiB.\n\n| work | native | clew run | more |\n|---|---|---|---|\n");
    for result in results {
        let (Some(native), Some(clew)) = (result.median("native"), result.median("clew")) else {
            continue;
        };
        let (native, clew) = (native.max_rss_kib / 1024, clew.max_rss_kib / 1024);
        let _ = writeln!(
            out,
            "| {} | {native} | {clew} | {} |",
            result.name,
            clew - native
        );
    }
    out.push_str("\n## Notes\n\n");
    for result in results {
        for cell in &result.cells {
            if let Err(error) = &cell.outcome {
                let _ = writeln!(out, "- {}, {}: {error}", result.name, cell.translator);
            }
        }
    }
    out
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = text
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = model.map_or("unknown processor", |(_, model)| model);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

fn json_text(results: &[Result], lines: &[Line], travels: &[Travel], runs: usize) -> String {
    let rows: Vec<Value> = results.iter().map(row_json).collect();
    let recorded = recorded_report::json(lines);
    let travel = travel_report::json(travels);
    let value = json!({
        "machine": machine(), "runs": runs, "rows": rows, "recorded": recorded, "travel": travel,
    });
    serde_json::to_string_pretty(&value).expect("plain values") + "\n"
}

fn row_json(result: &Result) -> Value {
    let cells = result.cells.iter().map(|cell| {
        let value = match &cell.outcome {
            Ok(median) => json!({
                "seconds": median.time.as_secs_f64(),
                "ratio": result.ratio(cell.translator),
                "max_rss_kib": median.max_rss_kib,
            }),
            Err(error) => json!({ "error": error }),
        };
        (cell.translator.to_owned(), value)
    });
    json!({
        "name": result.name,
        "measure": if result.wall { "wall" } else { "cpu" },
        "must": result.must,
        "aim": result.aim,
        "results": cells.collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_what_is_between_the_markers() {
        let text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let new = between_markers(text, "x", "new\n").unwrap();
        assert_eq!(new, text.replace("old", "new"));
        assert_eq!(between_markers("none", "x", "new"), None);
    }
}
