//! Woven recording: a program of small loops and real compressors go in, run natively and woven in turn; a table of
//! medians and ratios comes out, in docs/weave.md between its markers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::measure;

const LIMIT: Duration = Duration::from_secs(120);
/// What compresses, with `data` as its last argument.
const REAL: [&[&str]; 4] = [
    &["pigz", "-p2", "-c"],
    &["xz", "-T2", "-2", "-c", "--block-size=2MiB"],
    &["zstd", "-T2", "-9", "-c"],
    &["pbzip2", "-p2", "-c"],
];

/// One row: native and woven, in nanoseconds.
pub struct Row {
    pub name: String,
    pub native: f64,
    pub woven: f64,
}

pub struct Bench<'a> {
    pub clew: &'a Path,
    pub dir: &'a Path,
    pub runs: usize,
}

impl Bench<'_> {
    pub fn measure(&self) -> Result<Vec<Row>, String> {
        let mut rows = self.loops()?;
        for command in REAL {
            rows.push(self.real(command)?);
        }
        Ok(rows)
    }

    /// `clew record --weave`, into a folder that is removed again.
    fn woven(&self, program: &[&str]) -> (Command, PathBuf) {
        let folder = self.dir.join("woven");
        let _ = std::fs::remove_dir_all(&folder);
        let mut command = Command::new(self.clew);
        command
            .args(["record", "--hunted", "--weave", "-o"])
            .arg(&folder)
            .arg("--")
            .args(program);
        command
            .current_dir(self.dir)
            .env("CLEW_DIR", self.dir.join("recordings"));
        (command, folder)
    }

    fn loops(&self) -> Result<Vec<Row>, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("weave.c");
        let program = self.dir.join("weave-loops");
        let built = Command::new("gcc")
            .args(["-O2", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("weave.c can't be compiled".into());
        }
        let program = program.to_string_lossy().into_owned();
        let (mut native, mut woven) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            native.push(lines(&mut Command::new(&program))?);
            woven.push(lines(&mut self.woven(&[&program]).0)?);
        }
        let names = native
            .first()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone());
        let rows = names.enumerate().map(|(n, name)| {
            let of = |all: &[Vec<(String, f64)>]| {
                median(
                    all.iter()
                        .filter_map(|one| one.get(n))
                        .map(|one| one.1)
                        .collect(),
                )
            };
            Row {
                name,
                native: of(&native),
                woven: of(&woven),
            }
        });
        Ok(rows.collect())
    }

    fn real(&self, command: &[&str]) -> Result<Row, String> {
        let words: Vec<&str> = command.iter().copied().chain(["data"]).collect();
        let (mut native, mut woven) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            let mut plain = Command::new(words[0]);
            plain.args(&words[1..]).current_dir(self.dir);
            native.push(measure::run(&mut plain, None, LIMIT)?.cpu.as_nanos() as f64);
            let (mut command, folder) = self.woven(&words);
            woven.push(measure::run(&mut command, None, LIMIT)?.cpu.as_nanos() as f64);
            let _ = std::fs::remove_dir_all(folder);
        }
        Ok(Row {
            name: words[..words.len() - 1].join(" "),
            native: median(native),
            woven: median(woven),
        })
    }
}

/// `name: number` lines that a command prints.
fn lines(command: &mut Command) -> Result<Vec<(String, f64)>, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parsed = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Ok(parsed.collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.1} ns"),
        1e3..1e6 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// The table as Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from("| what | native | woven | ratio |\n|---|---|---|---|\n");
    for row in rows {
        let ratio = row.woven / row.native;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {ratio:.2} |",
            row.name,
            time(row.native),
            time(row.woven)
        );
    }
    out
}

/// Puts it into docs/weave.md.
pub fn write(rows: &[Row]) -> Result<(), String> {
    const BEGIN: &str = "<!-- weave:begin -->\n";
    const END: &str = "<!-- weave:end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/weave.md");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        return Err("docs/weave.md has no markers for its table".into());
    };
    let new = format!(
        "{}{}{}",
        &text[..begin + BEGIN.len()],
        table(rows),
        &text[end..]
    );
    std::fs::write(&path, new).map_err(|error| error.to_string())
}
