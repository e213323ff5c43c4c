//! The order of threads, from within gdb: `clew minima`, `maxima`, `order`, `lc-break`, `proceed`, `event`. In: such a command, and
//! where the program stands. Out: where to go, in the order that was recorded or in another one; text.
//!
//! Another order is another recording, in a folder that goes with the session. Everything else in gdb works on it as always.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clew_gdb::Ordered;
use clew_order::graph::Graph;
use clew_order::reorder::{Along, Reorder};
use clew_order::{Gathered, Interaction, Names, show};
use clew_recording::event::{StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{Position, Settings, Timeline};

use super::written::write;
use crate::text;

type Done<T> = Result<T, String>;

/// What is known of a session's program.
pub struct Stepping {
    recording: Recording,
    stream: StreamId,
    settings: Settings,
    parent: PathBuf,
    known: Option<Known>,
    /// Folders of other orders; they go with this.
    made: Vec<PathBuf>,
}

/// What was gathered of the recording.
struct Known {
    timeline: Timeline,
    program: Program,
    gathered: Gathered,
    modules: Modules,
    reorder: Option<Reorder>,
    /// The order that is gone along now, none for the recorded one: what it is made of, and all events in it.
    order: Option<(Vec<usize>, Vec<usize>)>,
    /// Where each event is over, in that order.
    places: Vec<Position>,
}

impl Drop for Stepping {
    fn drop(&mut self) {
        for folder in &self.made {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Stepping {
    pub fn new(
        recording: &Recording,
        stream: StreamId,
        settings: Settings,
        parent: &Path,
    ) -> Stepping {
        Stepping {
            recording: recording.clone(),
            stream,
            settings,
            parent: parent.into(),
            known: None,
            made: Vec::new(),
        }
    }

    /// Answers a command.
    pub fn asked(
        &mut self,
        timeline: &mut Timeline,
        thread: ThreadId,
        words: &str,
    ) -> Done<Ordered> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let rest = rest.trim();
        if word == "known" && self.known.is_none() {
            return Ok(Ordered::default());
        }
        let here = timeline.position().map_err(|error| error.to_string())?;
        self.gather()?;
        let known = self.known.as_ref().ok_or("nothing is known")?;
        match (word, rest) {
            ("known", _) | ("order", "table") => Ok(Ordered {
                text: known.table(here),
                ..Ordered::default()
            }),
            ("order", "") => self.recorded(here),
            ("minima" | "maxima", rest) => {
                let thread = match rest {
                    "" => thread,
                    rest => known.thread(rest)?,
                };
                self.other(here, thread, word == "maxima")
            }
            ("lc-break", rest) => known.clock(here, thread, rest),
            ("event", "next") => known.event(here, thread, true),
            ("event", "prev") => known.event(here, thread, false),
            ("proceed", rest) => {
                let thread = known.thread(rest)?;
                self.proceed(here, thread)
            }
            _ => Err(format!(
                "clew {word} doesn't take {rest:?}; help clew {word} shows what it takes"
            )),
        }
    }

    fn gather(&mut self) -> Done<()> {
        if self.known.is_some() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let timeline = Timeline::open(&self.recording, self.stream, self.settings.clone());
        let mut timeline = timeline.map_err(|error| failed(&error))?;
        let mut program = Program::new(&self.recording);
        let log = self.recording.stream(self.stream);
        let log = log.map_err(|error| failed(&error))?;
        let (gathered, modules) =
            clew_order::gather(&mut timeline, &mut program, log).map_err(|error| failed(&error))?;
        let places = gathered.interactions.iter().map(show::over).collect();
        self.known = Some(Known {
            timeline,
            program,
            gathered,
            modules,
            reorder: None,
            order: None,
            places,
        });
        Ok(())
    }

    /// Back to the recorded order, at the same place of the thread that runs here.
    fn recorded(&mut self, here: Position) -> Done<Ordered> {
        let known = self.known.as_mut().ok_or("nothing is known")?;
        if known.order.is_none() {
            return Ok(Ordered {
                text: "This is the order that was recorded.\n".into(),
                ..Ordered::default()
            });
        }
        let was = known.was(here)?;
        known.order = None;
        known.places = known.gathered.interactions.iter().map(show::over).collect();
        let timeline = Timeline::open(&self.recording, self.stream, self.settings.clone());
        let timeline = timeline.map_err(|error| error.to_string())?;
        Ok(Ordered {
            other: Some((self.recording.clone(), timeline)),
            position: Some(was.map_or(here, |(_, at)| at)),
            text: "In the order that was recorded.\n".into(),
        })
    }

    /// Along minima or maxima from here on, for a thread.
    fn other(&mut self, here: Position, thread: ThreadId, maxima: bool) -> Done<Ordered> {
        let known = self.known.as_mut().ok_or("nothing is known")?;
        known.look(&self.recording, self.stream)?;
        // Where the thread stands, in the recorded order.
        let was = match known.was(here)? {
            Some((running, at)) if running == thread => Some(at),
            _ => None,
        };
        let next = known.next(here, thread);
        let stand = match (was, next) {
            (Some(at), _) => at,
            (None, Some(next)) => show::place(&known.gathered.interactions[next]),
            (None, None) => {
                return Err(format!(
                    "thread {thread} does nothing any more that others could see"
                ));
            }
        };
        let all = &known.gathered.interactions;
        let target =
            (0..all.len()).find(|&n| all[n].thread == thread && show::place(&all[n]) >= stand);
        let along = match (maxima, target) {
            (false, _) => Along::Minima(thread),
            (true, Some(target)) => Along::Maxima(thread, target),
            (true, None) => return Err(format!("thread {thread} has no event behind here")),
        };
        let order = along.targets(all);
        let what = match maxima {
            false => format!("thread {thread} first, of the others what it needs"),
            true => format!("the others first, as far as they come without thread {thread}"),
        };
        self.along(order, thread, stand, &what)
    }

    /// A thread's next event now.
    fn proceed(&mut self, here: Position, thread: ThreadId) -> Done<Ordered> {
        let known = self.known.as_mut().ok_or("nothing is known")?;
        let next = known.next(here, thread);
        let next = next.ok_or_else(|| format!("thread {thread} has no event left"))?;
        let all = &known.gathered.interactions;
        let is_done = |n: usize| known.places[n] <= here;
        if let Some(first) = Graph::of(all).before(next).find(|&before| !is_done(before)) {
            return Err(format!(
                "impossible: first must come\n{}",
                known.told(first)
            ));
        }
        let present: Vec<usize> = match &known.order {
            Some((_, order)) => order.clone(),
            None => (0..all.len()).collect(),
        };
        let (done, left): (Vec<usize>, Vec<usize>) = present.iter().partition(|&&n| is_done(n));
        let mut order = done;
        order.push(next);
        order.extend(left.into_iter().filter(|&n| n != next));
        let stand = show::over(&all[next]);
        known.look(&self.recording, self.stream)?;
        let told = known.told(next);
        self.along(order, thread, stand, told.trim())
    }

    /// Makes the run in an order; stands at a place of the old one, of that thread.
    fn along(
        &mut self,
        order: Vec<usize>,
        thread: ThreadId,
        stand: Position,
        what: &str,
    ) -> Done<Ordered> {
        let known = self.known.as_mut().ok_or("nothing is known")?;
        let reorder = known.reorder.as_ref().ok_or("nothing is known")?;
        let reordered = reorder.order(&order);
        let name = format!("clew-order-{}-{}", std::process::id(), self.made.len());
        let folder = self.parent.join(name);
        self.made.push(folder.clone());
        let new = write(&self.recording, self.stream, &reordered, &folder);
        let new = new.map_err(|failed| failed.1)?;
        let timeline = Timeline::open(&new, self.stream, self.settings.clone());
        let timeline = timeline.map_err(|error| error.to_string())?;
        let position = reordered.position(thread, stand);
        let all = known.gathered.interactions.iter();
        known.places = all
            .map(|one| {
                let over = show::over(one);
                reordered.position(one.thread, over).unwrap_or(over)
            })
            .collect();
        known.order = Some((order, reordered.interactions));
        Ok(Ordered {
            other: Some((new, timeline)),
            position,
            text: format!("In another order: {what}.\n"),
        })
    }
}

impl Known {
    /// What must stay in order; it takes four replays, once.
    fn look(&mut self, recording: &Recording, stream: StreamId) -> Done<()> {
        if self.reorder.is_some() {
            return Ok(());
        }
        let log = recording
            .stream(stream)
            .map_err(|error| error.to_string())?;
        let found = Reorder::new(
            &mut self.timeline,
            &mut self.program,
            &self.modules,
            &self.gathered,
            log,
        );
        self.reorder = Some(found.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The thread that runs at a place, and where that was in the recorded order.
    fn was(&mut self, here: Position) -> Done<Option<(ThreadId, Position)>> {
        match (&self.order, &self.reorder) {
            (Some((order, _)), Some(reorder)) => Ok(reorder.order(order).original(here)),
            _ => {
                let to = clew_timeline::Target::Position(here);
                self.timeline.seek(to).map_err(|error| error.to_string())?;
                Ok(Some((self.timeline.at().thread, here)))
            }
        }
    }

    fn thread(&self, word: &str) -> Done<ThreadId> {
        let number = word.parse().ok();
        let known = number.filter(|number| self.gathered.threads.contains_key(number));
        known.ok_or_else(|| {
            let all: Vec<String> = self.gathered.threads.keys().map(u32::to_string).collect();
            format!(
                "{word:?} is no thread's number; there are {}",
                all.join(", ")
            )
        })
    }

    fn of(&self, thread: ThreadId) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let all = &self.gathered.interactions;
        (0..all.len()).filter(move |&n| all[n].thread == thread)
    }

    /// A thread's first event that isn't over here.
    fn next(&self, here: Position, thread: ThreadId) -> Option<usize> {
        self.of(thread).find(|&n| self.places[n] > here)
    }

    fn told(&self, n: usize) -> String {
        let names = Names::new(
            self.program.catalog(),
            &self.modules,
            &self.gathered.threads,
        );
        let one = &self.gathered.interactions[n];
        let line = names.line(one.site).short().unwrap_or_default();
        text::plain(&format!(
            "LC {}  thread {}  {} {}  {line}",
            one.t,
            one.thread,
            one.kind.code(),
            names.object(&self.gathered.objects[one.object as usize])
        ))
    }

    /// Goes to where an event is over.
    fn to(&self, n: usize) -> Ordered {
        Ordered {
            other: None,
            position: Some(self.places[n]),
            text: format!("{}\n", self.told(n)),
        }
    }

    fn event(&self, here: Position, thread: ThreadId, forward: bool) -> Done<Ordered> {
        let found = match forward {
            true => self.next(here, thread),
            false => self.of(thread).rev().find(|&n| self.places[n] < here),
        };
        let which = if forward { "behind" } else { "before" };
        found
            .map(|n| self.to(n))
            .ok_or_else(|| format!("thread {thread} has no event {which} this place"))
    }

    fn clock(&self, here: Position, thread: ThreadId, rest: &str) -> Done<Ordered> {
        let (thread, number) = match rest.split_once(':') {
            Some((word, number)) => (self.thread(word)?, number),
            None => (thread, rest),
        };
        let wanted: u64 = number
            .parse()
            .map_err(|_| "lc-break takes a Lamport time, or THREAD:TIME".to_string())?;
        let all = &self.gathered.interactions;
        let mut later = self.of(thread).filter(|&n| self.places[n] > here);
        let found = later.find(|&n| all[n].t >= wanted);
        found.map(|n| self.to(n)).ok_or_else(|| {
            let last = self.of(thread).last().map_or(0, |n| all[n].t);
            format!(
                "from here on, thread {thread}'s clock doesn't come to {wanted}; its last is {last}"
            )
        })
    }

    /// The paper's table: what each thread does next, its clock, what it waits for.
    fn table(&self, here: Position) -> String {
        let all: &[Interaction] = &self.gathered.interactions;
        let graph = Graph::of(all);
        let mut out = String::new();
        for &thread in self.gathered.threads.keys() {
            let clock = self.of(thread).rev().find(|&n| self.places[n] <= here);
            let clock = clock.map_or(0, |n| all[n].t);
            let Some(next) = self.next(here, thread) else {
                let _ = writeln!(out, "  {thread:<3} LC {clock:<5} nothing is left");
                continue;
            };
            let _ = writeln!(out, "  {thread:<3} LC {clock:<5} next: {}", self.told(next));
            let first = graph.before(next).find(|&n| self.places[n] > here);
            if let Some(first) = first {
                let _ = writeln!(out, "               after: {}", self.told(first));
            }
        }
        out
    }
}
