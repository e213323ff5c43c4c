//! Measured rows of record and replay go in; their table comes out: terminal, Markdown, JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::recorded::Times;
use crate::report::duration;
use crate::rows::{Recorded, Work};

/// A measured row.
pub struct Line {
    row: Recorded,
    times: Result<Times, String>,
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

impl Line {
    pub fn new(row: Recorded, times: Result<Times, String>) -> Line {
        Line { row, times }
    }

    fn native(&self) -> Option<Duration> {
        median(&self.times.as_ref().ok()?.native)
    }

    fn ratio(&self, of: impl Fn(&Times) -> Option<Duration>) -> Option<f64> {
        let time = of(self.times.as_ref().ok()?)?;
        Some(time.as_secs_f64() / self.native()?.as_secs_f64())
    }

    fn record(&self) -> Option<f64> {
        self.ratio(|times| median(&times.record))
    }

    fn replay(&self) -> Option<f64> {
        self.ratio(|times| median(&times.replay))
    }

    /// How many recorded runs were within the target, of how many, where each counts.
    fn within(&self) -> Option<(usize, usize)> {
        let (Work::Each(_), Ok(times)) = (self.row.work, &self.times) else {
            return None;
        };
        let limit = self.native()?.as_secs_f64() * self.row.must;
        let good = times.record.iter().filter(|t| t.as_secs_f64() <= limit);
        Some((good.count(), times.record.len()))
    }

    /// Megabytes: own data, and with copied files.
    fn sizes(&self) -> String {
        let show = |[own, all]: [f64; 2]| format!("{own:.2} / {all:.1}");
        let found = self.times.as_ref().ok().map(|times| show(times.sizes));
        found.unwrap_or_else(|| "–".to_owned())
    }

    fn size_limits(&self) -> String {
        let show = |[own, all]: [f64; 2]| format!("{own:.1} / {all:.1}");
        self.row.sizes.map_or_else(|| "–".to_owned(), show)
    }

    /// What misses its target.
    fn missed(&self) -> Vec<&'static str> {
        let mut missed = Vec::new();
        let above = |found: Option<f64>, limit: Option<f64>| match (found, limit) {
            (Some(found), Some(limit)) => found > limit,
            (None, Some(_)) => true,
            _ => false,
        };
        if above(self.record(), Some(self.row.must)) {
            missed.push("record");
        }
        if above(self.replay(), self.row.replay) {
            missed.push("replay");
        }
        if self.within().is_some_and(|(good, all)| good < all) {
            missed.push("each run");
        }
        if let (Ok(times), Some(limits)) = (&self.times, self.row.sizes)
            && times.sizes.iter().zip(limits).any(|(a, b)| *a > b)
        {
            missed.push("size");
        }
        missed
    }

    fn error(&self) -> Option<&str> {
        self.times.as_ref().err().map(String::as_str)
    }
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// One line on the terminal; before the first, the heads.
pub fn print(line: &Line, first: bool) {
    if first {
        println!(
            "{:<40} {:>8} {:>6} {:>5} {:>5} {:>6} {:>5}  {:<13} {:<12}",
            "work", "native", "record", "must", "aim", "replay", "must", "MB, log/all", "must"
        );
    }
    let missed = line.missed();
    let native = line.native().map_or_else(|| "–".to_owned(), duration);
    println!(
        "{:<40} {:>8} {:>6} {:>5} {:>5} {:>6} {:>5}  {:<13} {:<12} {}",
        line.row.name,
        native,
        shown(line.record()),
        line.row.must,
        line.row.aim,
        shown(line.replay()),
        shown(line.row.replay),
        line.sizes(),
        line.size_limits(),
        if missed.is_empty() {
            "met".to_owned()
        } else {
            format!("missed: {}", missed.join(", "))
        }
    );
    if let Some((good, all)) = line.within() {
        println!("{:<40} {good} of {all} within {}", "", line.row.must);
    }
    if let Some(error) = line.error() {
        println!("{:<40} {error}", "");
    }
}

/// The table in Markdown.
pub fn table(lines: &[Line]) -> String {
    let mut out = String::from(
        "| work | native | record | must | aim | replay | must | MB: log / with files | must |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for line in lines {
        let _ = writeln!(
            out,
            "| {} | {} | **{}** | {} | {} | **{}** | {} | {} | {} |",
            line.row.name,
            line.native().map_or_else(|| "–".to_owned(), duration),
            shown(line.record()),
            line.row.must,
            line.row.aim,
            shown(line.replay()),
            line.row
                .replay
                .map_or_else(|| "–".to_owned(), |must| must.to_string()),
            line.sizes(),
            line.size_limits(),
        );
    }
    out
}

/// What is said below the table.
pub fn notes(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        if let Some((good, all)) = line.within() {
            let (name, must) = (line.row.name, line.row.must);
            let _ = writeln!(
                out,
                "- {name}: {good} of {all} recorded runs took at most {must} times as long."
            );
        }
        if let Some(error) = line.error() {
            let _ = writeln!(out, "- {}: {error}", line.row.name);
        }
    }
    out
}

pub fn json(lines: &[Line]) -> Value {
    let one = |line: &Line| {
        let times = line.times.as_ref();
        json!({
            "name": line.row.name,
            "native_seconds": line.native().map(|time| time.as_secs_f64()),
            "record": line.record(),
            "record_must": line.row.must,
            "record_aim": line.row.aim,
            "replay": line.replay(),
            "replay_must": line.row.replay,
            "log_mb": times.map(|times| times.sizes[0]).ok(),
            "all_mb": times.map(|times| times.sizes[1]).ok(),
            "missed": line.missed(),
            "error": line.error(),
        })
    };
    lines.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(record: u64, sizes: [f64; 2]) -> Line {
        let ms = |n| vec![Duration::from_millis(n); 3];
        let row = crate::rows::recorded().into_iter().next().unwrap();
        Line::new(
            row,
            Ok(Times {
                native: ms(100),
                record: ms(record),
                replay: ms(110),
                sizes,
            }),
        )
    }

    #[test]
    fn what_is_above_its_target_is_told() {
        assert!(line(120, [1.0, 2.0]).missed().is_empty());
        assert_eq!(line(130, [1.0, 2.0]).missed(), ["record"]);
        assert_eq!(line(120, [9.0, 2.0]).missed(), ["size"]);
        assert!(table(&[line(120, [1.0, 2.0])]).contains("| **1.20** | 1.25 |"));
    }
}
