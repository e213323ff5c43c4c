//! `clew order -o`: a run in another order, as a recording. In: what was gathered of a recording, and which order is meant. Out: a
//! recording that was replayed once; where to stand in it, or which race made it diverge.

use std::ffi::CStr;
use std::path::Path;

use clew_engine::replay::tree::{Ending, Request};
use clew_order::Gathered;
use clew_order::graph::Graph;
use clew_order::races::{Race, Suppressions, races};
use clew_order::reorder::{Along, Reorder, Reordered};
use clew_recording::event::{StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_recording::{folder, log, meta};
use clew_symbols::Modules;
use clew_timeline::{Position, Settings, Target, Timeline};
use serde_json::json;

use super::{Order, by, next_of, told};
use crate::arguments::Engine;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG};
use crate::replay::{CANT_REPLAY, shown};
use crate::{recordings, run, text, variables};

/// So many values of racing accesses are looked up.
const MOST_VALUES: usize = 8;

/// Makes the recording, and tells what came of it.
pub fn written(
    line: &Order,
    asked: &mut Asked,
    gathered: &Gathered,
    modules: &Modules,
    output: &Path,
    envp: &[&CStr],
) -> Result<i32, Failed> {
    let (along, stand) = meant(line, asked, gathered, modules)?;
    let log = asked.log()?;
    let reorder = Reorder::new(
        &mut asked.timeline,
        &mut asked.program,
        modules,
        gathered,
        log,
    )?;
    let order = along.order(&gathered.interactions);
    let reordered = reorder.order(&along.targets(&gathered.interactions));
    asked.done();
    let stream = asked.timeline.stream();
    let new = write(&asked.recording, stream, &reordered, output)?;
    let variable = |name: &str| variables::get(envp, name);
    let options = run::options(&Engine::default(), &variable).map_err(|m| Failed(WRONG, m))?;
    let mut request = Request::all(options.clone());
    request.unlocked = line.which.replaying.no_jail;
    let unable = |why: String| Failed(CANT_REPLAY, why);
    let outcome = shown(&new, &request, "replaying the new order").map_err(unable)?;
    if let Some(why) = outcome.unable.first() {
        return Err(unable(why.clone()));
    }
    if !outcome.lost.is_empty() {
        return Err(unable(
            "the replay of the new order died without a word".into(),
        ));
    }
    let stream = asked.timeline.stream();
    let ended = outcome.ends.get(&stream).map(|end| end.ending);
    if outcome.divergences.is_empty() && ended == Some(Ending::CutOff) && is_whole(asked) {
        return Err(unable(
            "the new order lacks its end; please report it".into(),
        ));
    }
    let at = stand.and_then(|(thread, at)| reordered.position(thread, at));
    let told = Told {
        line,
        gathered,
        output,
        at,
        thread: stand.map(|(thread, _)| thread),
    };
    match outcome.divergences.first() {
        None => {
            told.made(asked, modules, &reordered, &order);
            Ok(0)
        }
        Some(diverged) => {
            let mut settings = Settings::new(options);
            settings.unlocked = line.which.replaying.no_jail;
            let why = format!(
                "thread {} did something else after event {} of the new order: expected {}, found {}",
                diverged.thread, diverged.event, diverged.expected, diverged.found
            );
            told.diverged(asked, &new, settings, &reordered, &why)
        }
    }
}

/// Whether the recorded process came to its end.
fn is_whole(asked: &Asked) -> bool {
    let info = asked.recording.info(asked.timeline.stream());
    info.is_some_and(|info| info.is_complete())
}

/// Along which order, and where to stand.
#[allow(clippy::type_complexity)]
fn meant(
    line: &Order,
    asked: &mut Asked,
    gathered: &Gathered,
    modules: &Modules,
) -> Result<(Along, Option<(ThreadId, Position)>), Failed> {
    if let Some((thread, at)) = line.minima {
        next_of(gathered, thread, at)?;
        return Ok((Along::Minima(thread), Some((thread, at))));
    }
    if let Some((thread, at)) = line.maxima {
        let target = next_of(gathered, thread, at)?;
        return Ok((Along::Maxima(thread, target), Some((thread, at))));
    }
    match &line.by {
        Some(file) => {
            let names = clew_order::Names::new(asked.program.catalog(), modules, &gathered.threads);
            Ok((Along::By(by(gathered, &names, file)?), None))
        }
        None => Err(Failed(
            WRONG,
            "-o makes a recording in another order: say which, with --minima, --maxima or --by"
                .into(),
        )),
    }
}

/// The new recording; nothing of it stays if it can't be written.
pub fn write(
    recording: &Recording,
    stream: StreamId,
    reordered: &Reordered<'_>,
    output: &Path,
) -> Result<Recording, Failed> {
    let failed = |why: &dyn std::fmt::Display| Failed(CANT_REPLAY, why.to_string());
    let old = recording.folder();
    let new = folder::create_at(output).map_err(|why| Failed(WRONG, why.to_string()))?;
    let made = || -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        recordings::strip::copy_into(old, &new).map_err(|error| text(&error))?;
        rename(&new).map_err(|error| text(&error))?;
        reordered
            .write(recording, stream, &new.join(log::NAME))
            .map_err(|error| text(&error))
    };
    if let Err(why) = made() {
        let _ = std::fs::remove_dir_all(&new);
        return Err(failed(&format!("{}: {why}", output.display())));
    }
    Recording::open(&new).map_err(|error| failed(&error))
}

/// A recording is called like its folder.
fn rename(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let file = folder.join(meta::FILE);
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    if let Some(name) = folder.file_name() {
        value["name"] = name.to_string_lossy().into();
    }
    std::fs::write(file, serde_json::to_vec_pretty(&value)?)?;
    Ok(())
}

struct Told<'a> {
    line: &'a Order,
    gathered: &'a Gathered,
    output: &'a Path,
    at: Option<Position>,
    thread: Option<ThreadId>,
}

impl Told<'_> {
    /// How to stand there.
    fn command(&self) -> Option<String> {
        let at = self.at?;
        let output = self.output.display().to_string();
        let words = ["clew", "debug", &output, "--at", &at.to_string()].map(String::from);
        Some(text::command(&words))
    }

    fn made(&self, asked: &Asked, modules: &Modules, reordered: &Reordered<'_>, wanted: &[usize]) {
        let graph = Graph::of(&self.gathered.interactions);
        // Locks that somebody waited for keep more in order than the program's events do.
        let same = reordered.interactions.iter().zip(wanted);
        let earlier = same
            .enumerate()
            .find(|(_, (is, asked))| is != asked)
            .map(|(n, _)| n)
            .filter(|_| !self.is_equivalent(&graph, &reordered.interactions, wanted));
        let count = self.gathered.interactions.len();
        if self.line.which.json {
            let all = json!({
                "recording": self.output.display().to_string(),
                "events": reordered.interactions,
                "position": self.at.map(|at| at.to_string()),
                "thread": self.thread,
                "same": true,
            });
            text::print(&format!("{all}\n"));
            return;
        }
        let mut out = format!(
            "{}: {} in another order; each thread does the same, to its end\n",
            text::plain(&self.output.display().to_string()),
            text::counted(count as u64, "event")
        );
        if let Some(n) = earlier {
            let names =
                clew_order::Names::new(asked.program.catalog(), modules, &self.gathered.threads);
            let first = told(self.gathered, &names, reordered.interactions[n]);
            out.push_str(&format!(
                "not quite the order that was asked for: a thread waited in the midst of a call, which others saw; so this came \
                 first:\n{}\n",
                text::plain(&first)
            ));
        }
        if let (Some(command), Some(thread)) = (self.command(), self.thread) {
            out.push_str(&format!("thread {thread} stands there: {command}\n"));
        }
        text::print(&out);
    }

    /// Whether all threads' interactions come in an order that differs only where it doesn't matter.
    fn is_equivalent(&self, graph: &Graph, is: &[usize], wanted: &[usize]) -> bool {
        let Some((thread, _)) = self.line.minima.or(self.line.maxima) else {
            return false;
        };
        // What was done when the thread did each of its own is what counts.
        let of = |n: &usize| self.gathered.interactions[*n].thread == thread;
        let before = |order: &[usize]| -> Vec<usize> {
            let own = order.iter().enumerate().filter(|(_, n)| of(n));
            own.map(|(at, _)| at).collect()
        };
        graph.allows(is).is_ok() && before(is) == before(wanted)
    }

    /// A divergence is an answer: which accesses came in another order.
    fn diverged(
        &self,
        asked: &mut Asked,
        new: &Recording,
        settings: Settings,
        reordered: &Reordered<'_>,
        why: &str,
    ) -> Result<i32, Failed> {
        let log = asked.log()?;
        let none = Suppressions::default();
        let found = races(&mut asked.timeline, &mut asked.program, log, &none)?;
        let position = |text: &Option<String>| text.as_deref()?.parse::<Position>().ok();
        let swapped = |race: &Race| -> Option<bool> {
            let (first, second) = (
                position(&race.first.position)?,
                position(&race.second.position)?,
            );
            let place = |at: Position| (at.event, at.ticks);
            reordered
                .is_before(place(first), place(second))
                .map(|before| !before)
        };
        let mut real: Vec<&Race> = found.races.iter().filter(|r| r.hidden.is_none()).collect();
        real.sort_by_key(|race| swapped(race) != Some(true));
        let mut values = Vec::new();
        let stream = asked.timeline.stream();
        let mut other = Timeline::open(new, stream, settings).ok();
        for race in real.iter().take(MOST_VALUES) {
            let mut both = [None, None];
            for (n, side) in [&race.first, &race.second].into_iter().enumerate() {
                let Some(at) = position(&side.position) else {
                    continue;
                };
                let old = value(&mut asked.timeline, at, race);
                let now = reordered.position(side.thread, at);
                let now = other
                    .as_mut()
                    .and_then(|other| now.and_then(|at| value(other, at, race)));
                both[n] = Some((old, now));
            }
            values.push(both);
        }
        if self.line.which.json {
            let told: Vec<_> = real
                .iter()
                .zip(&values)
                .map(|(race, values)| {
                    let seen =
                        values.map(|one| one.map(|(old, now)| json!({ "was": old, "now": now })));
                    json!({ "race": race, "changed": swapped(race), "values": seen })
                })
                .collect();
            let all = json!({
                "recording": self.output.display().to_string(),
                "same": false,
                "why": why,
                "races": told,
            });
            text::print(&format!("{all}\n"));
            return Ok(NOT_FOUND);
        }
        let style = text::Style::stdout();
        let mut out = format!("{}\n\n", text::plain(why));
        if real.is_empty() {
            out.push_str(
                "no race was found that would explain it: please report it (clew report), it may be an error of clew\n",
            );
        }
        for (n, race) in real.iter().enumerate() {
            let head = match swapped(race) {
                Some(true) => format!("race {}, in another order now", n + 1),
                _ => format!("race {}", n + 1),
            };
            out.push_str(&crate::races::told(&asked.name, &head, race, style));
            for (side, seen) in [&race.first, &race.second]
                .into_iter()
                .zip(values.get(n).copied().unwrap_or_default())
            {
                let Some((Some(old), Some(now))) = seen else {
                    continue;
                };
                out.push_str(&format!(
                    "  before the {} by thread {}: {old:#x}, in the new order {now:#x}\n",
                    side.what, side.thread
                ));
            }
            out.push('\n');
        }
        out.push_str(&format!(
            "{} replays up to there\n",
            text::plain(&self.output.display().to_string())
        ));
        text::print(&out);
        Ok(NOT_FOUND)
    }
}

/// What stands where they race, up to eight bytes of it.
fn value(timeline: &mut Timeline, at: Position, race: &Race) -> Option<u64> {
    timeline.seek(Target::Position(at)).ok()?;
    if timeline.position().ok()? != at {
        return None;
    }
    let mut bytes = [0; 8];
    let len = race.bytes.clamp(1, 8) as usize;
    let read = timeline.read(race.address, &mut bytes[..len]).ok()?;
    (read == len).then(|| u64::from_le_bytes(bytes))
}
