//! Slices: recordings of real programs go in; how long the slice of the last output takes, its memory, and what precision is
//! worth come out, as a table in docs/slice.md between its markers.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::measure;

const LIMIT: Duration = Duration::from_secs(600);

/// Programs with `data` as input; what they write last is asked about.
const PROGRAMS: [(&str, &str); 3] = [
    ("bzip2", "head -c 400000 data | bzip2 -c"),
    ("sort", "head -c 200000 data | strings | sort"),
    (
        "perl",
        "perl -e 'my $s = 0; $s += $_ * 7 % 31 for 1..100000; print \"$s\\n\"'",
    ),
];

pub struct Row {
    name: &'static str,
    instructions: u64,
    members: u64,
    cpu: Duration,
    wall: Duration,
    mebibytes: i64,
    /// Members without telling saved registers apart, and without finding out where jumps lead.
    without_pairs: u64,
    without_jumps: u64,
    run: Executed,
}

/// The execution slice.
struct Executed {
    /// Instructions of the recording, and of those the ones that are left; leaps over the others.
    all: u64,
    left: u64,
    leaps: u64,
    /// CPU time of replaying the recording, and the slice.
    replay: Duration,
    replay_slice: Duration,
}

pub struct Bench<'a> {
    pub clew: &'a Path,
    pub dir: &'a Path,
}

impl Bench<'_> {
    pub fn measure(&self) -> Result<Vec<Row>, String> {
        PROGRAMS.iter().map(|one| self.row(one.0, one.1)).collect()
    }

    fn row(&self, name: &'static str, line: &str) -> Result<Row, String> {
        let folder = self.dir.join("sliced");
        let _ = std::fs::remove_dir_all(&folder);
        // The last of a pipeline is recorded alone: the others only feed it.
        let (feed, program) = line.rsplit_once(" | ").unwrap_or(("true", line));
        let clew = self.clew.display();
        let recorded = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "{feed} | {clew} record -o {} {program} > /dev/null",
                folder.display()
            ))
            .current_dir(self.dir)
            .status();
        if !recorded.is_ok_and(|status| status.success()) {
            return Err(format!("{line} can't be recorded"));
        }
        let ask = |more: &[&str]| {
            let mut command = Command::new(self.clew);
            command.args(["slice", "--libraries", "--json", "--depth", "1"]);
            command.args(more).arg(&folder);
            command
        };
        let sample = measure::run(&mut ask(&[]), None, LIMIT)?;
        let (members, instructions) = counts(&mut ask(&["--save", "bench"]))?;
        let run = self.executed(&folder)?;
        let (without_pairs, _) = counts(&mut ask(&["--no-pairs"]))?;
        let (without_jumps, _) = counts(&mut ask(&["--no-jumps"]))?;
        let _ = std::fs::remove_dir_all(&folder);
        Ok(Row {
            name,
            instructions,
            members,
            cpu: sample.cpu,
            wall: sample.wall,
            mebibytes: sample.max_rss_kib >> 10,
            without_pairs,
            without_jumps,
            run,
        })
    }

    fn executed(&self, folder: &Path) -> Result<Executed, String> {
        let slice = self.dir.join("executed");
        let _ = std::fs::remove_dir_all(&slice);
        let mut command = Command::new(self.clew);
        command.args(["slice", "run", "--json", "-o"]);
        command.arg(&slice).arg(folder).arg("bench");
        let told = json(&mut command)?;
        let number = |name: &str| told[name].as_u64().ok_or(format!("no {name}"));
        let replay = |folder: &Path| {
            let mut command = Command::new(self.clew);
            command.arg("replay").arg(folder);
            command.stdout(std::process::Stdio::null());
            measure::run(&mut command, None, LIMIT).map(|sample| sample.cpu)
        };
        let run = Executed {
            all: number("instructions")?,
            left: number("executed")?,
            leaps: number("leaps")?,
            replay: replay(folder)?,
            replay_slice: replay(&slice)?,
        };
        let _ = std::fs::remove_dir_all(&slice);
        Ok(run)
    }
}

/// Members of a slice, and instructions that were looked through.
fn counts(command: &mut Command) -> Result<(u64, u64), String> {
    let json = json(command)?;
    let number = |name: &str| json[name].as_u64().ok_or(format!("no {name}"));
    Ok((number("count")?, number("instructions")?))
}

fn json(command: &mut Command) -> Result<serde_json::Value, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

pub fn table(rows: &[Row]) -> String {
    let mut all = String::from(
        "| program | instructions | in the slice | CPU time | time | memory | more without pairs | more without jumps | executed in the execution slice | its replay |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let millions = |count: u64| format!("{:.2} M", count as f64 / 1e6);
        let more = |count: u64| {
            let members = row.members.max(1) as f64;
            format!("{:+.2}%", 100.0 * (count as f64 - members) / members)
        };
        let _ = writeln!(
            all,
            "| {} | {} | {} | {:.2} s | {:.2} s | {} MiB | {} | {} | {} | {} |",
            row.name,
            millions(row.instructions),
            millions(row.members),
            row.cpu.as_secs_f64(),
            row.wall.as_secs_f64(),
            row.mebibytes,
            more(row.without_pairs),
            more(row.without_jumps),
            format_args!(
                "{:.1}%, {} leaps",
                100.0 * row.run.left as f64 / row.run.all.max(1) as f64,
                row.run.leaps
            ),
            format_args!(
                "{:.2} s, of {:.2} s",
                row.run.replay_slice.as_secs_f64(),
                row.run.replay.as_secs_f64()
            ),
        );
    }
    all
}

const BEGIN: &str = "<!-- slice:begin -->\n";
const END: &str = "<!-- slice:end -->";

/// Puts the table into docs/slice.md.
pub fn write(rows: &[Row]) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/slice.md");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let parts = text.split_once(BEGIN);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, behind) = parts.ok_or("docs/slice.md has no place for the table")?;
    let text = format!("{before}{BEGIN}{}{END}{behind}", table(rows));
    std::fs::write(&path, text).map_err(|error| error.to_string())
}
