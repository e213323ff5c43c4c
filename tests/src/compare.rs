//! Two outcomes, native and under clew, go in; a verdict with the first difference, and
//! the commands that show it again, comes out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libtest_mimic::Failed;

use crate::header::Header;
use crate::run::{Job, Outcome};
use crate::scratch;

/// Runs `job` natively and under clew in turn and compares all that can be seen:
/// output, ending, and the files left in its working directory.
pub fn native_and_clew(job: &Job, header: &Header, prepare: &dyn Fn()) -> Result<(), Failed> {
    native_and(job, &job.under_clew(&[]), header, prepare).map(drop)
}

/// The same with any way to run it under clew; what came of that.
pub fn native_and(
    job: &Job,
    clew_job: &Job,
    header: &Header,
    prepare: &dyn Fn(),
) -> Result<Outcome, Failed> {
    scratch::empty(&job.dir);
    prepare();
    let native = job.run();
    let native_files = files(&job.dir, &header.ignore);
    if !native.ended(&header.status) {
        return Err(report(
            &format!("the native run {}, not as its header says", native.ending()),
            &native,
            &[("native", job)],
        ));
    }
    scratch::empty(&job.dir);
    prepare();
    let clew = clew_job.run();
    let clew_files = files(&job.dir, &header.ignore);
    let difference = difference(("native", &native), ("clew", &clew))
        .or_else(|| differing_file(("native", &native_files), ("clew", &clew_files)));
    match difference {
        None => Ok(clew),
        Some(what) => Err(report(&what, &clew, &[("native", job), ("clew", clew_job)])),
    }
}

/// What differs between the two, named, if anything.
pub fn difference(one: (&str, &Outcome), other: (&str, &Outcome)) -> Option<String> {
    let printed = |what: &str, of: fn(&Outcome) -> &[u8]| {
        first_difference(what, (one.0, of(one.1)), (other.0, of(other.1)))
    };
    let stdout = printed("stdout", |outcome| &outcome.stdout);
    if one.1.status == other.1.status {
        return stdout.or_else(|| printed("stderr", |outcome| &outcome.stderr));
    }
    let endings = format!(
        "endings differ: {} {}, {} {}",
        one.0,
        one.1.ending(),
        other.0,
        other.1.ending()
    );
    Some(match stdout {
        None => endings,
        Some(printed) => format!("{endings}\n{printed}"),
    })
}

fn first_difference(what: &str, one: (&str, &[u8]), other: (&str, &[u8])) -> Option<String> {
    if one.1 == other.1 {
        return None;
    }
    let texts = [one.1, other.1].map(String::from_utf8_lossy);
    let [mut lines, mut others] = [texts[0].lines(), texts[1].lines()];
    for number in 1.. {
        let (a, b) = (lines.next(), others.next());
        if a != b || a.is_none() {
            let show = |line: Option<&str>| line.unwrap_or("(nothing)").to_owned();
            return Some(format!(
                "{what} differs at line {number}\n  {}: {}\n  {}: {}",
                one.0,
                show(a),
                other.0,
                show(b)
            ));
        }
    }
    None
}

/// Name, kind and contents of everything below a directory.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What is below `dir`, but for files with names like those in `ignore`.
pub fn files(dir: &Path, ignore: &[String]) -> Files {
    let mut found = Files::new();
    collect(dir, dir, ignore, &mut found);
    found
}

fn collect(root: &Path, dir: &Path, ignore: &[String], found: &mut Files) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root).expect("found below root");
        let name = name.to_string_lossy().into_owned();
        let ignored = ignore.iter().any(|pattern| matches(pattern, &name));
        let Ok(data) = path.symlink_metadata() else {
            continue;
        };
        if ignored {
            continue;
        }
        let mut contents = format!("{:o} ", data.permissions().mode()).into_bytes();
        if data.is_dir() {
            collect(root, &path, ignore, found);
        } else if data.is_symlink() {
            let target = fs::read_link(&path).unwrap_or_default();
            contents.extend(target.to_string_lossy().bytes());
        } else if data.is_file() {
            contents.extend(fs::read(&path).unwrap_or_default());
        }
        found.insert(name, contents);
    }
}

/// `*` at either end of the pattern stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (None, None) => name == pattern,
    }
}

/// The first file that isn't the same on both sides.
pub fn differing_file(one: (&str, &Files), other: (&str, &Files)) -> Option<String> {
    for (name, contents) in one.1 {
        match other.1.get(name) {
            None => return Some(format!("file {name} is there only {}", one.0)),
            Some(found) if found != contents => {
                return Some(format!("file {name} differs: {}, {}", one.0, other.0));
            }
            Some(_) => {}
        }
    }
    let extra = other.1.keys().find(|name| !one.1.contains_key(*name))?;
    Some(format!("file {extra} is there only {}", other.0))
}

/// The exit status, if it wasn't a signal.
pub fn code(outcome: &Outcome) -> Option<i32> {
    outcome.status.and_then(|status| status.code())
}

/// All that it printed.
pub fn text(outcome: &Outcome) -> String {
    let mut text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&outcome.stderr));
    text
}

/// Fails with what was printed, unless all is fine.
pub fn check(fine: bool, what: &str, outcome: &Outcome) -> Result<(), Failed> {
    match fine {
        true => Ok(()),
        false => Err(format!("{what} ({:?})\n{}", outcome.status, text(outcome)).into()),
    }
}

/// A failure with what was printed and how to see it again.
pub fn report(what: &str, outcome: &Outcome, jobs: &[(&str, &Job)]) -> Failed {
    let mut text = format!(
        "{what}\nending: {}\n{}",
        outcome.ending(),
        outcome.printed()
    );
    for (name, job) in jobs {
        text.push_str(&format!("--- {name}: {}\n", job.shell_line()));
    }
    Failed::from(text)
}
