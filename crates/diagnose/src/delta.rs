//! What is different when it fails. In: recordings of a program that fails and of the same that passes. Out: patterns of
//! accesses that failing runs have and passing ones don't, best first, each with its lines, threads, values and locks.
//!
//! After "OS-level replay analysis": where it fails and which variables that could involve ([`scope`]), all accesses to them
//! (`trace`), and the difference between the runs (`patterns`, `sync`, `rank`). What the paper leaves to the future, memory of the
//! heap and several variables at once, is looked at too.

pub mod confirm;
pub mod patterns;
mod rank;
pub mod scope;
mod signals;
mod sync;
pub mod tell;
pub mod trace;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clew_debugger::Debugger;
use clew_recording::summary::{self, End};
use serde::Serialize;

use crate::Result;
use crate::scene::Scene;
use patterns::Shape;
use scope::{Failure, Named};
use trace::Run;

/// So many suspects are told.
const MOST: usize = 3;
/// So many are looked at for those: several may say the same.
const LOOK: usize = 8;
/// So many writes of a run are compared, and so many passing runs with the failing one.
const MOST_WRITES: usize = 10_000;
const MOST_PRINTED: usize = 4;
/// What separates so much worse than the best isn't told.
const FAR: f64 = 0.4;

/// What is asked.
pub struct Question<'a> {
    pub failing: &'a [PathBuf],
    pub passing: &'a [PathBuf],
    pub named: Option<Named>,
    /// Look at all variables alike, and not first at those that the failing functions touch.
    pub all: bool,
    pub open: &'a dyn Fn(&Path) -> Result<Debugger>,
    /// So many recordings of so many are done.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// The difference between failing and passing runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Diagnosis {
    /// What failed, in words.
    pub failure: String,
    /// Where, if somebody knows.
    pub at: Option<crate::scene::Site>,
    /// The recording that positions are of.
    pub recording: String,
    pub failing: usize,
    pub passing: usize,
    /// Accesses to shared memory in the first failing run.
    pub accesses: usize,
    pub suspects: Vec<Suspect>,
    /// Some accesses weren't looked at: there are too many.
    pub complete: bool,
    /// Memory that was looked at besides what several threads touch.
    #[serde(skip)]
    pub ranges: Vec<Range<u64>>,
}

/// A pattern that failing runs have.
#[derive(Clone, Debug, Serialize)]
pub struct Suspect {
    pub pattern: Shape,
    /// The recording that its positions are of.
    pub recording: String,
    /// As the program calls it.
    pub variable: String,
    pub failing: usize,
    pub passing: usize,
    /// In the order in which they happened.
    pub acts: Vec<Told>,
    /// What it is, in sentences.
    pub sentences: Vec<String>,
    pub advice: Option<String>,
    pub score: f64,
    /// By which the pattern is made and prevented.
    #[serde(skip)]
    pub key: patterns::Key,
    /// So often it failed with the order forced, and without it, each of so many.
    pub confirmed: Option<Confirmed>,
}

/// What came of forcing an order, and of forbidding it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Confirmed {
    pub with: Option<(u64, u64)>,
    pub without: Option<(u64, u64)>,
    /// Just this order was forced, and not a whole schedule that has it.
    pub forced: bool,
    pub forbidden: bool,
}

impl Confirmed {
    /// It always fails with the order.
    pub fn is_enough(&self) -> bool {
        self.with.is_some_and(|(failed, of)| failed == of && of > 0)
    }

    /// It always fails with it, and never without.
    pub fn is_clear(&self) -> bool {
        self.is_enough() && self.without.is_some_and(|(failed, _)| failed == 0)
    }
}

/// An act as people read it.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    pub what: patterns::What,
    pub by: String,
    pub thread: u32,
    pub handler: Option<String>,
    pub site: crate::scene::Site,
    /// What was read or written, where that is known.
    pub value: Option<u64>,
    pub locks: Vec<String>,
}

/// What a passing run printed that ended as this one did: of several, the one that this agrees with for longest.
fn expected(
    debugger: &mut Debugger,
    failure: &Failure,
    passing: &[PathBuf],
    open: &dyn Fn(&Path) -> Result<Debugger>,
) -> Result<Option<Vec<u8>>> {
    let Some(status) = failure.status else {
        return Ok(None);
    };
    let printed = |debugger: &mut Debugger| -> Result<Vec<u8>> {
        let all = debugger.output(MOST_WRITES)?;
        let own = all.into_iter().filter(|one| one.to == 1);
        Ok(own.flat_map(|one| one.bytes).collect())
    };
    let own = printed(debugger)?;
    let mut best: Option<(usize, Vec<u8>)> = None;
    for path in passing.iter().take(MOST_PRINTED) {
        let ended = summary::of(path).map(|summary| summary.end);
        if !matches!(ended, Ok(End::Exited { status: other }) if other == status) {
            continue;
        }
        let other = printed(&mut open(path)?)?;
        let same = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
        if other != own && best.as_ref().is_none_or(|(most, _)| same > *most) {
            best = Some((same, other));
        }
    }
    Ok(best.map(|(_, printed)| printed))
}

/// Finds out.
pub fn diagnose(question: &mut Question<'_>) -> Result<Diagnosis> {
    let count = question.failing.len() + question.passing.len();
    let mut done = 0;
    let mut traced = |path: &Path, failure: &mut Option<Failure>, fails: bool| -> Result<Run> {
        let mut debugger = (question.open)(path)?;
        let mut crash = None;
        if fails {
            let named = question.named.as_ref().filter(|_| failure.is_none());
            let own = scope::failure(&mut Scene::new(&mut debugger)?, named)?;
            crash = own.crash;
            if failure.is_none() {
                let mut own = own;
                if named.is_none() {
                    let expected = expected(&mut debugger, &own, question.passing, question.open)?;
                    // What can't be followed leaves the scope as it is.
                    let _ = own.follow(&mut debugger, expected.as_deref());
                }
                *failure = Some(own);
            }
        }
        let ranges = failure.as_ref().map_or(&[][..], |failure| &failure.ranges);
        let run = trace::trace(&mut debugger, ranges, crash);
        done += 1;
        (question.progress)(done, count);
        run
    };
    let mut failure = None;
    let mut failing = Vec::new();
    for path in question.failing {
        failing.push(traced(path, &mut failure, true)?);
    }
    let mut passing = Vec::new();
    for path in question.passing {
        passing.push(traced(path, &mut failure, false)?);
    }
    let failure = failure.unwrap_or_default();
    let Some(first) = question.failing.first() else {
        return Ok(Diagnosis::default());
    };
    let mut debugger = (question.open)(first)?;
    let ranked = {
        let mut scene = Scene::new(&mut debugger)?;
        rank::rank(&mut scene, &failing, &passing, &failure, question.all)
    };
    drop(debugger);
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let mut diagnosis = Diagnosis {
        failure: failure.words.clone(),
        at: failure.site.clone(),
        recording: name(first),
        failing: failing.len(),
        passing: passing.len(),
        accesses: failing.first().map_or(0, |run| run.accesses),
        suspects: Vec::new(),
        ranges: failure.ranges.clone(),
        complete: failing.iter().chain(&passing).all(|run| run.story.complete),
    };
    for ranked in ranked.into_iter().take(LOOK) {
        let best = diagnosis.suspects.first().map(|first| first.score);
        let far = best.is_some_and(|best| ranked.score < best - FAR);
        if diagnosis.suspects.len() >= MOST || far {
            break;
        }
        let path = &question.failing[ranked.run];
        let mut debugger = (question.open)(path)?;
        let mut scene = Scene::new(&mut debugger)?;
        let recording = name(path);
        let suspect = tell::tell(&mut scene, recording, &failing, &passing, ranked)?;
        // The same lines again, with other instructions or another condition, say nothing new.
        let lines = |one: &Suspect| {
            let short = |told: &Told| told.site.short();
            let mut all: Vec<_> = one.acts.iter().map(short).collect();
            all.sort();
            all.dedup();
            (one.variable.clone(), all)
        };
        if !diagnosis
            .suspects
            .iter()
            .any(|one| lines(one) == lines(&suspect))
        {
            diagnosis.suspects.push(suspect);
        }
    }
    Ok(diagnosis)
}
