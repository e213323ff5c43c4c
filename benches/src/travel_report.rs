//! Measured rows of time travel go in; their table comes out: terminal, Markdown, JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::report::duration;
use crate::travel::{Amount, Measured};

/// A measured row.
pub struct Row {
    pub name: &'static str,
    pub measured: Result<Measured, String>,
}

impl Row {
    fn met(&self) -> bool {
        matches!(&self.measured, Ok(measured) if measured.found <= measured.must)
    }

    fn cells(&self) -> [String; 3] {
        match &self.measured {
            Ok(measured) => [
                shown(measured.found),
                shown(measured.must),
                measured.note.clone(),
            ],
            Err(_) => ["–".to_owned(), "–".to_owned(), "failed".to_owned()],
        }
    }
}

fn shown(amount: Amount) -> String {
    match amount {
        Amount::Time(time) => duration(time),
        Amount::Bytes(bytes) => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// One line on the terminal.
pub fn print(row: &Row) {
    let [found, must, note] = row.cells();
    let verdict = if row.met() { "met" } else { "missed" };
    println!("{:<58} {found:>9} {must:>9}  {verdict:<7} {note}", row.name);
    if let Err(error) = &row.measured {
        println!("{error}");
    }
}

/// The table in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from("| what | measured | must | |\n|---|---|---|---|\n");
    for row in rows {
        let [found, must, note] = row.cells();
        let _ = writeln!(out, "| {} | **{found}** | {must} | {note} |", row.name);
    }
    out
}

pub fn json(rows: &[Row]) -> Value {
    let number = |amount: Amount| match amount {
        Amount::Time(time) => json!({ "seconds": time.as_secs_f64() }),
        Amount::Bytes(bytes) => json!({ "bytes": bytes }),
    };
    let one = |row: &Row| match &row.measured {
        Ok(measured) => json!({
            "name": row.name,
            "found": number(measured.found),
            "must": number(measured.must),
            "met": row.met(),
            "note": measured.note,
        }),
        Err(error) => json!({ "name": row.name, "error": error }),
    };
    rows.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_row_meets_its_target_or_not() {
        let row = |found| Row {
            name: "x",
            measured: Ok(Measured {
                found: Amount::Time(Duration::from_millis(found)),
                must: Amount::Time(Duration::from_millis(50)),
                note: "n".into(),
            }),
        };
        assert!(row(50).met() && !row(51).met());
        assert!(table(&[row(40)]).contains("| x | **40 ms** | 50 ms | n |"));
        let failed = Row {
            name: "y",
            measured: Err("why".into()),
        };
        assert!(!failed.met() && table(&[failed]).contains("| y | **–** | – | failed |"));
    }
}
