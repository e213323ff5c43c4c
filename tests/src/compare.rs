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
    let clew_job = job.under_clew(&[]);
    let clew = clew_job.run();
    let clew_files = files(&job.dir, &header.ignore);
    let difference =
        difference(&native, &clew).or_else(|| differing_file(&native_files, &clew_files));
    match difference {
        None => Ok(()),
        Some(what) => Err(report(
            &what,
            &clew,
            &[("native", job), ("clew", &clew_job)],
        )),
    }
}

/// What differs between the two, if anything.
pub fn difference(native: &Outcome, clew: &Outcome) -> Option<String> {
    if native.status != clew.status {
        let endings = format!(
            "endings differ: native {}, clew {}",
            native.ending(),
            clew.ending()
        );
        let printed = first_difference("stdout", &native.stdout, &clew.stdout);
        return Some(match printed {
            None => endings,
            Some(printed) => format!("{endings}\n{printed}"),
        });
    }
    first_difference("stdout", &native.stdout, &clew.stdout)
        .or_else(|| first_difference("stderr", &native.stderr, &clew.stderr))
}

fn first_difference(name: &str, native: &[u8], clew: &[u8]) -> Option<String> {
    if native == clew {
        return None;
    }
    let native = String::from_utf8_lossy(native);
    let clew = String::from_utf8_lossy(clew);
    let (mut native, mut clew) = (native.lines(), clew.lines());
    for number in 1.. {
        let (a, b) = (native.next(), clew.next());
        if a != b || a.is_none() {
            let show = |line: Option<&str>| line.unwrap_or("(nothing)").to_owned();
            return Some(format!(
                "{name} differs at line {number}\n  native: {}\n  clew:   {}",
                show(a),
                show(b)
            ));
        }
    }
    None
}

/// Name, kind and contents of everything below a directory.
type Files = BTreeMap<String, Vec<u8>>;

fn files(dir: &Path, ignore: &[String]) -> Files {
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

fn differing_file(native: &Files, clew: &Files) -> Option<String> {
    for (name, contents) in native {
        match clew.get(name) {
            None => return Some(format!("file {name} is missing after the clew run")),
            Some(other) if other != contents => return Some(format!("file {name} differs")),
            Some(_) => {}
        }
    }
    let extra = clew.keys().find(|name| !native.contains_key(*name))?;
    Some(format!("file {extra} is there only after the clew run"))
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
