//! Answers of clew's own commands. In: an analysis and a place. Out: what the command printed as JSON, or said why not.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Host;
use crate::desks::process_of;
use crate::jobs::Job;
use crate::question::{Analysis, Place};

/// It is looked so often whether somebody still waits.
const OFTEN: Duration = Duration::from_millis(20);
/// No more is told of what a command complains about.
const MOST_COMPLAINTS: usize = 1 << 20;
/// No answer is longer.
const LONGEST: u64 = 256 << 20;

/// Flags that a page may give.
const FLAGS: [&str; 14] = [
    "--data",
    "--address",
    "--forward",
    "--control",
    "--libraries",
    "--moves",
    "--all",
    "--leaks",
    "--table",
    "--first",
    "--depth",
    "--most",
    "--around",
    "--from",
];
/// Those with a value that is given with them, as in `--depth=40`.
const MORE: [&str; 3] = ["--minima", "--maxima", "--to"];

fn allowed(flag: &str) -> bool {
    let name = flag.split('=').next().unwrap_or(flag);
    FLAGS.contains(&name) || MORE.contains(&name)
}

/// The recording and process, as commands take them.
fn which(host: &dyn Host, place: &Place) -> Result<(String, Vec<String>), String> {
    let (recording, _) = host.recording();
    let process = process_of(recording, place.stream)?;
    let mut words = Vec::new();
    if let Some(name) = process.name {
        words.extend(["--pid".into(), name.to_string()]);
    }
    if let Some(exec) = process.exec {
        words.extend(["--exec".into(), exec.to_string()]);
    }
    Ok((recording.folder().display().to_string(), words))
}

pub fn analyse(
    host: &dyn Host,
    job: &Arc<Job>,
    place: &Place,
    analysis: Analysis,
    expression: Option<&str>,
    flags: &[String],
) -> Result<Value, String> {
    let name = match analysis {
        Analysis::Why => "why",
        Analysis::Alerts => "alerts",
        Analysis::Races => "races",
        Analysis::Order => "order",
        Analysis::Slice => "slice",
        Analysis::Origin => "origin",
        Analysis::Heap => "heap",
        Analysis::Watch => "watch",
    };
    let (recording, process) = which(host, place)?;
    let mut words = vec![name.to_string(), "--json".into()];
    words.extend(process);
    if let Some(flag) = flags.iter().find(|flag| !allowed(flag)) {
        return Err(format!("{name} isn't asked with {flag}"));
    }
    words.extend(flags.iter().cloned());
    let looks = matches!(
        analysis,
        Analysis::Slice | Analysis::Origin | Analysis::Heap
    );
    // Without an expression they are about the failure, or the whole life.
    if looks && expression.is_some() {
        words.push(format!("--at={}", place.at));
    }
    // What is asked may begin with a minus sign.
    words.extend(["--".into(), recording]);
    words.extend(expression.map(str::to_string));
    run(host, job, &words)
}

pub fn diagnose(
    host: &dyn Host,
    job: &Arc<Job>,
    fail: &[String],
    pass: &[String],
) -> Result<Value, String> {
    let mut words = vec![
        "diagnose".to_string(),
        "--json".into(),
        "--confirm=0".into(),
    ];
    words.extend(fail.iter().map(|name| format!("--fail={name}")));
    words.extend(pass.iter().map(|name| format!("--pass={name}")));
    run(host, job, &words)
}

pub fn recordings(host: &dyn Host, job: &Arc<Job>) -> Result<Value, String> {
    run(host, job, &["ls".into(), "--json".into()])
}

/// Events whose text has these letters in it, capitals or not.
pub fn search(
    host: &dyn Host,
    job: &Arc<Job>,
    place: &Place,
    text: &str,
    most: usize,
) -> Result<Value, String> {
    let (recording, _) = which(host, place)?;
    let process = process_of(host.recording().0, place.stream)?;
    let mut words = vec!["dump".to_string(), "--json".into()];
    if let Some(name) = process.name {
        words.extend(["--pid".into(), name.to_string()]);
    }
    words.extend(["--".into(), recording]);
    let mut child = host.command(&words)?;
    let wanted = text.to_lowercase();
    let mut found = Vec::new();
    let mut complete = true;
    let Some(output) = child.stdout.take() else {
        return Err("a command of clew said nothing".into());
    };
    let guard = Guard(child, job.clone());
    let guard = guard.watched();
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { break };
        if job.is_cancelled() {
            complete = false;
            break;
        }
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let says = event["text"].as_str().unwrap_or_default();
        if event["stream"] != place.stream || !says.to_lowercase().contains(&wanted) {
            continue;
        }
        if found.len() >= most {
            complete = false;
            break;
        }
        found.push(json!({
            "position": event["event"].as_u64().unwrap_or(1).saturating_sub(1).max(1).to_string(),
            "event": event["event"],
            "kind": event["kind"],
            "thread": event["thread"],
            "text": says,
        }));
    }
    drop(guard);
    Ok(json!({"events": found, "complete": complete}))
}

/// A child that ends when nobody waits for it any more.
struct Guard(Child, Arc<Job>);

/// Ends the child when it is dropped.
struct Watching {
    over: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<Option<i32>>>,
}

impl Guard {
    fn watched(mut self) -> Watching {
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = over.clone();
        let thread = std::thread::spawn(move || {
            loop {
                match self.0.try_wait() {
                    Ok(Some(status)) => return status.code(),
                    Err(_) => return None,
                    Ok(None) => {}
                }
                if self.1.is_cancelled() || told.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = self.0.kill();
                    let _ = self.0.wait();
                    return None;
                }
                std::thread::sleep(OFTEN);
            }
        });
        Watching {
            over,
            thread: Some(thread),
        }
    }
}

impl Watching {
    /// Its status, when it has ended by itself.
    fn status(mut self) -> Option<i32> {
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.over.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a command complains about; lines about its progress are for who waits.
fn said(errors: impl Read, job: &Job) -> String {
    let mut text = String::new();
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix("clew-progress ") {
            Some(rest) => {
                let done = rest.split(' ').next().and_then(|part| part.parse().ok());
                done.into_iter().for_each(|done| job.set_progress(done));
            }
            None if text.len() < MOST_COMPLAINTS => text.push_str(&format!("{line}\n")),
            None => {}
        }
    }
    text
}

/// Runs a command to its end; what it printed.
fn run(host: &dyn Host, job: &Arc<Job>, words: &[String]) -> Result<Value, String> {
    let mut child = host.command(words)?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let guard = Guard(child, job.clone()).watched();
    let shown = job.clone();
    let complaints = std::thread::spawn(move || errors.map(|errors| said(errors, &shown)));
    let mut text = Vec::new();
    if let Some(output) = output {
        let read = output.take(LONGEST).read_to_end(&mut text);
        read.map_err(|error| error.to_string())?;
    }
    let status = guard.status();
    let complaint = complaints.join().ok().flatten().unwrap_or_default();
    if job.is_cancelled() {
        return Err("cancelled".into());
    }
    // Statuses from 2 on are about the question or the recording; others tell what was found.
    match (serde_json::from_slice(&text), status) {
        (Ok(value), Some(_)) => Ok(value),
        _ => Err(match complaint.trim() {
            "" => format!("clew {} ended with {status:?}", words[0]),
            said => said.trim_start_matches("clew: ").to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_to_who_waits() {
        let job = Job::new();
        let text = "clew: one\nclew-progress 0.2500 searching\nclew-progress nonsense\ntwo";
        assert_eq!(said(text.as_bytes(), &job), "clew: one\ntwo\n");
        assert_eq!(job.progress(), 0.25);
    }
}
