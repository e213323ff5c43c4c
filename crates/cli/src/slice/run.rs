//! `clew slice run`: a recording in which only a slice is executed. In: a slice that was saved. Out: a new recording, in which the
//! value is the same; that is checked.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use clew_recording::folder;
use clew_recording::log;
use clew_recording::meta::{self, Meta};
use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Question, slice as closure};
use clew_slice::events::Events;
use clew_slice::execution;
use clew_slice::gaps::{Wanted, gaps};
use clew_slice::origin::Value;
use clew_timeline::{Position, Target, Timeline};
use serde_json::json;

use super::Slice;
use super::saved::Saved;
use super::way::Way;
use crate::asking::{Asked, Failed, WRONG};
use crate::progress::Progress;
use crate::recordings::{self, strip::copy_into};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::text;

/// Members that are known one by one; what lies before the oldest of them is executed.
const MOST_MEMBERS: usize = 16_000_000;
/// Each leap costs a replay about as much as some thousand instructions.
const MOST_LEAPS: usize = 20_000;

pub fn run(line: &Slice, words: &[String], envp: &[&CStr]) -> Result<i32, Failed> {
    let (recording, name) = match words {
        [name] => (None, name),
        [recording, name] => (Some(OsStr::new(recording)), name),
        _ => {
            let why = "clew slice run takes the name that a slice was saved by\nas in: clew slice crash total --save total; clew slice run crash total";
            return Err(Failed(WRONG, why.into()));
        }
    };
    let mut asked = Asked::open(recording, &line.which, Target::Start, envp)?;
    let folder = asked.recording.folder().to_owned();
    let saved = Saved::read(&folder, name)?;
    let (at, question) = (saved.at()?, saved.question()?);
    match asked.timeline.stream() == saved.stream {
        true => {
            asked.timeline.seek(Target::Position(at))?;
        }
        false => asked = asked.another(saved.stream, Target::Position(at))?,
    }
    let log = asked.log()?;
    let events = Events::read(log.clone())?;
    let modules = asked.program.modules(&mut asked.timeline)?;
    let bounds = Bounds {
        from: saved.from(),
        members: MOST_MEMBERS,
        ..Bounds::default()
    };
    let timeline = &mut asked.timeline;
    let kinds = saved.kinds();
    let found = closure(timeline, log, modules.clone(), &question, kinds, bounds)?;
    let mut kept: Vec<Position> = found.members.iter().map(|one| one.position).collect();
    kept.push(at);
    kept.sort_unstable();
    let wanted = Wanted {
        shortest: line.shortest.max(1),
        most: MOST_LEAPS,
        from: match found.count > found.members.len() as u64 {
            true => kept[0],
            false => Position::after(0),
        },
    };
    let (gaps, instructions) = gaps(timeline, &events, &kept, wanted)?;
    asked.done();
    let target = target(line, &folder, name, envp)?;
    let made = make(&mut asked, &gaps, &target, &question, at);
    let leaps = made.inspect_err(|_| {
        let _ = std::fs::remove_dir_all(&target);
    })?;
    let way = Way::new(&saved.what, &found, &modules, &leaps);
    let failed = |error| Failed(1, format!("{}: {error}", target.display()));
    way.write(&target).map_err(failed)?;
    let size = |folder: &Path| std::fs::metadata(folder.join(log::NAME)).map_or(0, |log| log.len());
    let left = instructions - leaps.left_out;
    let shown = recordings::name(&target);
    let text = match line.which.json {
        true => {
            let all = json!({
                "recording": target,
                "what": saved.what,
                "statements": way.statements.len(),
                "members": found.count,
                "instructions": instructions,
                "executed": left,
                "leaps": leaps.count(),
                "injected_bytes": leaps.bytes,
                "log_bytes": size(&target),
                "position": leaps.moved(at).map(|at| at.to_string()),
            });
            format!("{all:#}\n")
        }
        false => {
            let at = leaps.moved(at).map(|at| at.to_string()).unwrap_or_default();
            format!(
                "{}\n  {} of {} are executed ({:.1}%), {} over the rest; {} of log\n  checked: the value is the same, at {at}, and all that the recording compares\n  {} statements: clew debug {shown}, then clew slice next\n",
                text::plain(&saved.what),
                text::count(left),
                text::counted(instructions, "instruction"),
                100.0 * left as f64 / instructions.max(1) as f64,
                text::counted(leaps.count() as u64, "leap"),
                text::size(size(&target)),
                text::count(way.statements.len() as u64),
            )
        }
    };
    text::print(&text);
    Ok(0)
}

/// Makes the new recording's folder.
fn target(line: &Slice, folder: &Path, name: &str, envp: &[&CStr]) -> Result<PathBuf, Failed> {
    let failed = |error: folder::FolderError| Failed(1, error.to_string());
    match &line.output {
        Some(path) => folder::create_at(path).map_err(failed),
        None => {
            let place = recordings::place(envp).map_err(failed)?;
            let name = format!("{}-{name}", recordings::name(folder));
            place.create(&name).map_err(failed)
        }
    }
}

/// Writes it, and checks it.
fn make(
    asked: &mut Asked,
    gaps: &[clew_slice::gaps::Gap],
    target: &Path,
    question: &Question,
    at: Position,
) -> Result<execution::Leaps, Failed> {
    let failed =
        |error: &dyn std::fmt::Display| Failed(1, format!("{}: {error}", target.display()));
    copy_into(asked.recording.folder(), target).map_err(|error| failed(&error))?;
    let mut meta = Meta::read(target).map_err(|error| failed(&error))?;
    meta.capture = meta::SLICE.into();
    meta.name = recordings::name(target);
    meta.write(target).map_err(|error| failed(&error))?;
    let mut progress = Progress::new("leaving out what isn't in the slice");
    let (timeline, recording) = (&mut asked.timeline, &asked.recording);
    let leaps = execution::write(
        timeline,
        recording,
        gaps,
        &target.join(log::NAME),
        &mut |done| {
            progress.show(done);
        },
    )?;
    drop(progress);
    let different = |what: &str| {
        let why = format!(
            "the execution slice isn't the same: {what}; nothing was kept\nplease report this, with the recording (clew pack)"
        );
        Failed(DIVERGED, why)
    };
    let new = Recording::open(target).map_err(|error| Failed(CANT_REPLAY, error.to_string()))?;
    let there = leaps
        .moved(at)
        .ok_or_else(|| different("its question is left out"))?;
    let mut slice = asked.of(&new, asked.timeline.stream())?;
    slice.seek(Target::Position(there))?;
    if slice.position()? != there {
        return Err(different(&format!("it doesn't come to {there}")));
    }
    asked.timeline.seek(Target::Position(at))?;
    if values(&mut slice, question)? != values(&mut asked.timeline, question)? {
        return Err(different("the value differs"));
    }
    // Whatever the recording compares on the way is compared.
    slice.seek(Target::End)?;
    Ok(leaps)
}

/// What is asked about, and the place, where a timeline stands.
fn values(timeline: &mut Timeline, question: &Question) -> Result<Vec<Vec<u8>>, Failed> {
    let at = timeline.at();
    let mut all = vec![at.pc.to_le_bytes().to_vec(), at.sp.to_le_bytes().to_vec()];
    for value in &question.values {
        all.push(match value {
            Value::Memory { addr, len } => {
                let mut bytes = vec![0; *len as usize];
                let read = timeline.read(*addr, &mut bytes)?;
                bytes.truncate(read);
                bytes
            }
            // All of them: which is which doesn't matter here.
            Value::Register { thread, .. } => match timeline.registers(*thread)? {
                Some(registers) => {
                    let words = registers.words.iter().flat_map(|word| word.to_le_bytes());
                    words.chain(registers.extended).collect()
                }
                None => Vec::new(),
            },
        });
    }
    Ok(all)
}
