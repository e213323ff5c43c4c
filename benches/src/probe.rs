//! Debug code in replays: a program that calls a function a million times goes in; what a probe there costs over the replay
//! itself comes out, as a table in docs/probe.md between its markers.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::measure;

const LIMIT: Duration = Duration::from_secs(600);
const CALLS: u64 = 1_000_000;

const PROGRAM: &str = "static volatile long sum;
__attribute__((noipa)) void step(long n) { sum += n; }
__attribute__((noipa)) void once(long n) { sum -= n; }
int main(void)
{
    for (long n = 0; n < 1000000; n++) step(n);
    once(1);
    return 0;
}
";

/// What is measured, the debug code, and what it must cost and is to cost at most, in seconds over the replay.
const PROBES: [(&str, &str, f64, f64); 2] = [
    ("`count++`", "static long count; count++;", 1.0, 0.3),
    ("`printf` to a file", "printf(\"%ld\\n\", n);", 2.0, 2.0),
];

pub struct Row {
    name: &'static str,
    cpu: Duration,
    /// With the same code at a place that is reached once: what starting, compiling and replaying take.
    without: Duration,
    must: f64,
    aim: f64,
}

pub struct Bench<'a> {
    pub clew: &'a Path,
    pub dir: &'a Path,
}

impl Bench<'_> {
    pub fn measure(&self, runs: usize) -> Result<Vec<Row>, String> {
        let (source, program) = (self.dir.join("probed.c"), self.dir.join("probed"));
        std::fs::write(&source, PROGRAM).map_err(|error| error.to_string())?;
        let mut compile = Command::new("gcc");
        compile.args(["-g", "-O1", "-o"]).arg(&program).arg(&source);
        let compiled = compile.status().map_err(|error| error.to_string())?;
        let folder = self.dir.join("probed.recording");
        let _ = std::fs::remove_dir_all(&folder);
        let mut record = Command::new(self.clew);
        record.args(["record", "-o"]).arg(&folder).arg(&program);
        let recorded = record.status().map_err(|error| error.to_string())?;
        if !compiled.success() || !recorded.success() {
            return Err("the program for probes can't be made or recorded".into());
        }
        let rows = PROBES.iter().map(|&(name, code, must, aim)| {
            Ok(Row {
                name,
                cpu: self.median(&folder, "step", code, runs)?,
                without: self.median(&folder, "once", code, runs)?,
                must,
                aim,
            })
        });
        let rows = rows.collect();
        let _ = std::fs::remove_dir_all(&folder);
        rows
    }

    fn median(
        &self,
        folder: &Path,
        place: &str,
        code: &str,
        runs: usize,
    ) -> Result<Duration, String> {
        let out = self.dir.join("probed.out");
        let mut times = Vec::new();
        for _ in 0..runs.max(1) {
            let mut probe = Command::new(self.clew);
            probe.arg("probe").arg(folder).args(["--at", place, code]);
            probe.arg("--out").arg(&out);
            times.push(measure::run(&mut probe, None, LIMIT)?.cpu);
        }
        let _ = std::fs::remove_file(&out);
        times.sort();
        Ok(times[times.len() / 2])
    }
}

pub fn table(rows: &[Row]) -> String {
    let mut all = String::from(
        "| debug code | runs | CPU time over the replay | a second | must | aim |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let over = row.cpu.saturating_sub(row.without).as_secs_f64().max(0.001);
        let _ = writeln!(
            all,
            "| {} | {:.0} M | **{over:.2} s** | {:.2} M | {} s | {} s |",
            row.name,
            CALLS as f64 / 1e6,
            CALLS as f64 / 1e6 / over,
            row.must,
            row.aim,
        );
    }
    all
}

const BEGIN: &str = "<!-- probe:begin -->\n";
const END: &str = "<!-- probe:end -->";

/// Puts the table into docs/probe.md.
pub fn write(rows: &[Row]) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/probe.md");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let parts = text.split_once(BEGIN);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, behind) = parts.ok_or("docs/probe.md has no place for the table")?;
    let text = format!("{before}{BEGIN}{}{END}{behind}", table(rows));
    std::fs::write(&path, text).map_err(|error| error.to_string())
}
