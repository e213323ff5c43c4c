//! Which pattern explains the failure. In: the patterns of failing and passing runs. Out: those that tell them apart, best
//! first.
//!
//! What counts is how well a pattern separates: the part of failing runs that have it, less the part of passing ones. Among
//! those that do so equally, small things decide: kinds that are bugs by themselves, lines of the program, functions near
//! the failure, and accesses close to each other and to the end.

use std::collections::{HashMap, HashSet};

use super::patterns::{Act, Instance, Key, Note, Shape, What};
use super::scope::Failure;
use super::trace::Run;
use crate::scene::{Scene, is_own_file, plain_name};

/// A pattern and what is known of it.
#[derive(Clone, Debug)]
pub struct Ranked {
    pub key: Key,
    pub failing: usize,
    pub passing: usize,
    pub score: f64,
    /// The first failing run that has it.
    pub run: usize,
    pub instance: Instance,
}

/// A site as far as it matters here.
#[derive(Clone, Debug, Default)]
struct Place {
    own: bool,
    function: String,
}

pub fn rank(
    scene: &mut Scene<'_>,
    failing: &[Run],
    passing: &[Run],
    failure: &Failure,
    all: bool,
) -> Vec<Ranked> {
    let mut keys: HashMap<&Key, (usize, usize)> = HashMap::new();
    for (n, run) in failing.iter().enumerate() {
        for key in run.patterns.keys() {
            keys.entry(key).or_insert((n, 0)).1 += 1;
        }
    }
    let mut places: HashMap<u64, Place> = HashMap::new();
    // How near to the failure each variable is used: in its function, or so many calls further up.
    let mut levels: HashMap<&str, usize> = HashMap::new();
    let mut seen: HashSet<u64> = HashSet::new();
    for (key, (run, _)) in &keys {
        for act in &failing[*run].patterns[*key].acts {
            if seen.insert(act.line) {
                places.insert(act.line, place(scene, act.site));
            }
            let function = &places[&act.line].function;
            let level = failure.functions.iter().position(|one| one == function);
            if let (Some(level), [name]) = (level, &key.names[..]) {
                let known = levels.entry(name).or_insert(level);
                *known = level.min(*known);
            }
        }
    }
    // What the failing value was read from goes by other addresses in other runs, and by the same names.
    let mut read: HashSet<&String> = HashSet::new();
    for (key, instance) in failing.first().iter().flat_map(|run| &run.patterns) {
        let was = |act: &Act| {
            let end = act.addr.saturating_add(act.len);
            let mut ranges = failure.read.iter();
            ranges.any(|range| range.start < end && act.addr < range.end)
        };
        if instance.acts.iter().any(was) {
            read.extend(&key.names);
        }
    }
    let executed: HashSet<u64> = passing.iter().flat_map(|run| &run.lines).copied().collect();
    let awaited = awaited(failing, passing);
    let mut ranked: Vec<Ranked> = Vec::new();
    for (key, (run, count)) in keys {
        // What nobody else ever writes isn't read too early.
        if key.shape == Shape::Early && !awaited.contains(&(key.sites[0].0, &key.names[0])) {
            continue;
        }
        let passes = passing
            .iter()
            .filter(|run| run.patterns.contains_key(key))
            .count();
        let part = |n: usize, of: usize| n as f64 / of.max(1) as f64;
        let separates = part(count, failing.len()) - part(passes, passing.len());
        if separates <= 0.0 {
            continue;
        }
        let instance = &failing[run].patterns[key];
        let own = key
            .sites
            .iter()
            .filter(|(site, _)| places[site].own)
            .count();
        if own == 0 {
            continue;
        }
        let named = |name: &String| levels.get(name.as_str()).copied();
        let level = key.names.iter().filter_map(named).min();
        let mut score = separates;
        score += kind(key);
        // Each is atomic, and meant to be.
        if instance.acts.iter().all(|act| act.locked) {
            score -= 0.06;
        }
        score -= 0.25 * part(key.sites.len() - own, key.sites.len());
        // Code that only failing runs execute is what the failure made happen, not what made it.
        let freed = instance.acts[0].what == What::Free;
        let by_accesses = !matches!(key.shape, Shape::Deadlock | Shape::LostSignal) && !freed;
        if by_accesses && !passing.is_empty() {
            let new = key
                .sites
                .iter()
                .filter(|(site, _)| !executed.contains(site));
            score -= 0.3 * part(new.count(), key.sites.len());
        }
        if !all {
            score += match level {
                Some(0) => 0.05,
                Some(1) => 0.03,
                Some(_) => 0.02,
                None => 0.0,
            };
            if key.names.iter().any(|name| read.contains(name)) {
                score += 0.03;
            }
        }
        let total = failing[run].accesses.max(1) as f64;
        let from_end = total - (instance.last as f64).min(total);
        score += 0.02 * (1.0 - from_end / total);
        score -= 0.06 * (instance.span as f64 / total).min(1.0);
        ranked.push(Ranked {
            key: key.clone(),
            failing: count,
            passing: passes,
            score,
            run,
            instance: instance.clone(),
        });
    }
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.key.cmp(&b.key)));
    ranked
}

/// Reads that come after another's write in some run, or before it: by instruction and variable.
fn awaited<'a>(failing: &'a [Run], passing: &'a [Run]) -> HashSet<(u64, &'a String)> {
    let keys = failing
        .iter()
        .chain(passing)
        .flat_map(|run| run.patterns.keys());
    let read = |key: &'a Key| {
        let site = match key.shape {
            Shape::Wr => key.sites[1].0,
            Shape::Rw => key.sites[0].0,
            _ => return None,
        };
        Some((site, &key.names[0]))
    };
    keys.filter_map(read).collect()
}

/// Some kinds are bugs by themselves, others are what threads do all the time.
fn kind(key: &Key) -> f64 {
    let shape = match key.shape {
        Shape::Deadlock | Shape::LostSignal => 0.5,
        Shape::Rwr | Shape::Rww | Shape::Wwr | Shape::Wrw => 0.06,
        Shape::Pair => 0.05,
        Shape::Rrw => 0.06,
        Shape::Early => 0.03,
        Shape::Rw | Shape::Wr | Shape::Ww => 0.0,
    };
    let note = match key.note {
        Note::Any => 0.0,
        Note::Again => -0.01,
        Note::Value(_) => -0.03,
    };
    shape + note
}

fn place(scene: &mut Scene<'_>, site: u64) -> Place {
    let Ok(location) = scene.debugger.location_ever(site) else {
        return Place::default();
    };
    let file = location.file.as_deref();
    Place {
        own: location.line.is_some() && file.is_some_and(is_own_file),
        function: plain_name(location.function.as_deref().unwrap_or("")).to_string(),
    }
}
