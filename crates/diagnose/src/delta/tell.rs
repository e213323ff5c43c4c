//! A suspect in words. In: a pattern, and the run that it is told from. Out: sentences with lines and positions, and what
//! to do about it where the pattern tells.

use std::collections::BTreeSet;

use clew_calls::names;
use clew_order::Names;
use clew_timeline::Mark;

use super::patterns::{Act, Note, Shape, What};
use super::rank::Ranked;
use super::trace::Run;
use super::{Suspect, Told};
use crate::Result;
use crate::scene::{Scene, Site};

/// Threads and frames that are looked at for a variable of a function.
const MOST_THREADS: usize = 8;
const MOST_FRAMES: usize = 12;

pub fn tell(
    scene: &mut Scene<'_>,
    recording: String,
    failing: &[Run],
    passing: &[Run],
    ranked: Ranked,
) -> Result<Suspect> {
    let run = &failing[ranked.run];
    let mut acts = Vec::new();
    for (n, act) in ranked.instance.acts.iter().enumerate() {
        let mut told = told(scene, run, act)?;
        // What a write wrote is what stands there when the next one comes.
        if act.what == What::Write {
            let next = &ranked.instance.acts[n + 1..];
            let same = next.iter().find(|next| next.cell == act.cell);
            let near = matches!(
                ranked.key.shape,
                Shape::Wr | Shape::Ww | Shape::Rwr | Shape::Wwr
            );
            told.value = same.filter(|_| near).and_then(|next| next.value);
        }
        acts.push(told);
    }
    // What a read that came too early should have waited for.
    let awaited = match ranked.key.shape {
        Shape::Early => awaited(scene, passing, &ranked)?,
        _ => None,
    };
    let also = awaited.as_ref().map(|(site, _)| site);
    let variable = variable(scene, run, &ranked, &acts, also)?;
    let mut suspect = Suspect {
        pattern: ranked.key.shape,
        recording,
        variable,
        failing: ranked.failing,
        passing: ranked.passing,
        acts,
        sentences: Vec::new(),
        advice: None,
        score: ranked.score,
        key: ranked.key.clone(),
        confirmed: None,
    };
    let races = |a: &Act, b: &Act| {
        let same = |pair: &(u64, u64)| *pair == (a.site, b.site) || *pair == (b.site, a.site);
        run.story.races.iter().any(same)
    };
    let instance = &ranked.instance.acts;
    let unordered = instance.len() > 1 && races(&instance[0], &instance[1]);
    let figures = (failing.len(), passing.len());
    sentences(&mut suspect, &ranked, awaited, unordered, figures);
    Ok(suspect)
}

/// An act with its line.
fn told(scene: &mut Scene<'_>, run: &Run, act: &Act) -> Result<Told> {
    let site = site(scene, act)?;
    let handler = act
        .handler
        .map(|(signo, _)| names::signal(signo).to_string());
    let by = match &handler {
        Some(signal) => format!("the handler of {signal}"),
        None if act.thread == 0 => "the main thread".into(),
        None => format!("thread {}", act.thread),
    };
    let (_, program) = scene.debugger.timeline_and_program();
    let gathered = &run.story.gathered;
    let names = Names::new(program.catalog(), &run.story.modules, &gathered.threads);
    let held = run.story.locks.get(act.locks as usize);
    let held = held.map_or(&[][..], Vec::as_slice);
    let locks = held.iter();
    let locks = locks.map(|&lock| names.object(&gathered.objects[lock as usize]));
    Ok(Told {
        what: act.what,
        by,
        thread: act.thread,
        handler,
        locks: locks.collect(),
        value: act.value.filter(|_| act.what == What::Read),
        site,
    })
}

/// The program's own line: of the instruction, or of who called the library.
fn site(scene: &mut Scene<'_>, act: &Act) -> Result<Site> {
    let position = match act.at {
        at if at == Mark::default() => scene.debugger.stand_at_end()?,
        at if at.pc == 0 => return Ok(Site::default()),
        at => scene.position(at)?,
    };
    if let Some(site) = scene.own_line(act.site, position, act.thread) {
        return Ok(site);
    }
    scene.site_at(position, act.thread)
}

/// A write that came before that read in passing runs, and its line.
fn awaited(scene: &mut Scene<'_>, passing: &[Run], ranked: &Ranked) -> Result<Option<(Site, u32)>> {
    let (read, names) = (ranked.key.sites[0], &ranked.key.names);
    let found = passing.iter().find_map(|run| {
        let mut all = run.patterns.iter().filter(|(key, _)| {
            key.shape == Shape::Wr && key.sites[1] == read && key.names == *names
        });
        all.next().map(|(_, instance)| instance.acts[0])
    });
    let Some(write) = found else {
        return Ok(None);
    };
    let here = scene.here()?;
    let line = scene.own_line(write.site, here, write.thread);
    Ok(line.map(|line| (line, write.thread)))
}

/// What the program calls the memory.
fn variable(
    scene: &mut Scene<'_>,
    run: &Run,
    ranked: &Ranked,
    told: &[Told],
    also: Option<&Site>,
) -> Result<String> {
    let mut all = Vec::new();
    let acts = &ranked.instance.acts;
    for (n, name) in ranked.key.names.iter().enumerate() {
        let act = acts.get(n);
        // Of a pair, the lines of each: the first two accesses are to the one and to the other.
        let of = |k: &usize| {
            let same = ranked.key.shape != Shape::Pair || acts[*k].cell == acts[n].cell;
            same && told[*k].what != What::Free
        };
        let sites = (0..acts.len()).filter(of).map(|k| &told[k].site);
        let sources = sites.chain(also).filter_map(|site| site.source.as_deref());
        let sources: Vec<&str> = sources.collect();
        let name = match name.split_once(' ') {
            Some(("block", back)) => block(scene, back, &sources)?,
            Some(("memory", _)) => match act {
                Some(act) => local(scene, act)?.unwrap_or_else(|| name.clone()),
                None => name.clone(),
            },
            _ => exact(scene, run, ranked, name),
        };
        if !all.contains(&name) {
            all.push(name);
        }
    }
    Ok(all.join(" and "))
}

/// With the element that it was, if that is the only one.
fn exact(scene: &mut Scene<'_>, run: &Run, ranked: &Ranked, name: &str) -> String {
    let (_, program) = scene.debugger.timeline_and_program();
    let threads = &run.story.gathered.threads;
    let names = Names::new(program.catalog(), &run.story.modules, threads);
    let all: BTreeSet<String> = ranked
        .instance
        .acts
        .iter()
        .filter_map(|act| names.variable(act.addr))
        .filter(|one| super::trace::without_elements(one) == name)
        .collect();
    match all.len() {
        1 => all.into_iter().next().unwrap_or_default(),
        _ => name.to_string(),
    }
}

/// A block of the heap: the member that all lines name, and who allocated it.
fn block(scene: &mut Scene<'_>, back: &str, sources: &[&str]) -> Result<String> {
    let back = back.split(' ').next().unwrap_or(back);
    let back = back.trim_start_matches("0x");
    let back = u64::from_str_radix(back, 16).unwrap_or(0);
    let here = scene.here()?;
    let line = scene.own_line(back.wrapping_sub(1), here, 0);
    let made = line.and_then(|line| line.short());
    let made = made.map_or("the heap".into(), |line| {
        format!("memory allocated at {line}")
    });
    let lines: BTreeSet<&str> = sources.iter().copied().collect();
    let mut common = members(sources.first().unwrap_or(&""));
    common.retain(|one| lines.iter().all(|line| members(line).contains(one)));
    // One line alone may name several, and says nothing about which.
    Ok(match &common[..] {
        [member] if lines.len() > 1 => format!("{member} ({made})"),
        _ => made,
    })
}

/// Members that a line of C, C++ or Rust names: `job->refs`.
fn members(line: &str) -> Vec<String> {
    let line = line.split("//").next().unwrap_or(line);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = Vec::new();
    for (at, arrow) in line.match_indices("->").chain(line.match_indices('.')) {
        let rest = &line[at + arrow.len()..];
        let member: String = rest.chars().take_while(|&c| word(c)).collect();
        let call = rest[member.len()..].trim_start().starts_with('(');
        if !member.is_empty() && !call && !member.starts_with(|c: char| c.is_ascii_digit()) {
            all.push(member);
        }
    }
    all
}

/// A variable of a function that is under way.
fn local(scene: &mut Scene<'_>, act: &Act) -> Result<Option<String>> {
    if act.at.pc == 0 {
        return Ok(None);
    }
    let position = scene.position(act.at)?;
    scene.go(position)?;
    let threads = scene.debugger.threads()?;
    for thread in threads.iter().take(MOST_THREADS) {
        for frame in 0..MOST_FRAMES {
            let Ok(scopes) = scene.debugger.scopes(thread.number, frame) else {
                break;
            };
            let nodes = scopes.iter().flat_map(|scope| &scope.variables);
            let inside = |node: &&clew_debugger::Node| {
                let (Some(start), Some(size)) = (node.address, node.size) else {
                    return false;
                };
                act.addr.wrapping_sub(start) < size
            };
            if let Some(node) = nodes.into_iter().find(inside).cloned() {
                return Ok(Some(within(scene, &node, act.addr, 0)?));
            }
        }
    }
    Ok(None)
}

/// The member of a variable that an address is in.
fn within(
    scene: &mut Scene<'_>,
    node: &clew_debugger::Node,
    addr: u64,
    depth: usize,
) -> Result<String> {
    let Some(id) = node
        .id
        .filter(|_| depth < 4 && node.children > 0 && !node.numbered)
    else {
        return Ok(node.name.clone());
    };
    let parts = scene.debugger.children(id, 0, node.children)?;
    let part = parts.iter().find(|part| {
        let place = part.address.zip(part.size);
        place.is_some_and(|(start, size)| addr.wrapping_sub(start) < size)
    });
    Ok(match part {
        Some(part) => format!("{}.{}", node.name, within(scene, part, addr, depth + 1)?),
        None => node.name.clone(),
    })
}

fn sentences(
    suspect: &mut Suspect,
    ranked: &Ranked,
    awaited: Option<(Site, u32)>,
    unordered: bool,
    (failing, passing): (usize, usize),
) {
    let v = format!("`{}`", suspect.variable);
    let acts = suspect.acts.clone();
    let acts = &acts[..];
    let at = |n: usize| acts[n].site.to_string();
    let by = |n: usize| acts[n].by.clone();
    let did = |n: usize| match acts[n].what {
        What::Read => "read",
        What::Write => "written",
        What::Free => "freed",
        What::Lock => "locked",
        What::Wait => "waited for",
        What::Signal => "signalled",
    };
    let value = |n: usize| match acts[n].value {
        Some(value) => format!(", {}", number(value)),
        None => String::new(),
    };
    let (mut said, mut advice): (Vec<String>, Option<String>) = (Vec::new(), None);
    let held = |n: usize| match &acts[n].locks[..] {
        [] => None,
        locks => Some(locks.join(" and ")),
    };
    let section = |a: usize, c: usize| {
        let line = |n: usize| acts[n].site.short().unwrap_or_default();
        (line(a), line(c))
    };
    match ranked.key.shape {
        Shape::Rwr | Shape::Rww | Shape::Wwr | Shape::Wrw | Shape::Rrw if acts.len() == 3 => {
            said.push(format!(
                "{v} was {} by {} ({}{}), then {} by {} ({}{}), before {} {} it ({}{}): an atomicity violation ({}).",
                did(0), by(0), at(0), value(0), did(1), by(1), at(1), value(1), by(2),
                match acts[2].what { What::Read => "read", What::Free => "freed", _ => "wrote" },
                at(2), value(2), ranked.key.shape.name(),
            ));
            match ranked.key.note {
                Note::Again => said.push(
                    "The last access finds the value that the first one found: it can't tell that it was written in between."
                        .into(),
                ),
                Note::Value(value) => said.push(format!(
                    "Runs in which the last access finds {} fail; with another value they may pass.",
                    number(value)
                )),
                Note::Any => {}
            }
            let (from, to) = section(0, 2);
            if acts[1].handler.is_some() {
                let signal = acts[1].handler.clone().unwrap_or_default();
                advice = Some(format!("block {signal} from {from} to {to}"));
            } else {
                let locks: Vec<&String> = acts[0].locks.iter().collect();
                let both = locks.iter().find(|lock| acts[2].locks.contains(lock));
                advice = Some(match both {
                    Some(lock) => {
                        said.push(format!(
                            "{} holds {lock} at both places, but gives it up between them.",
                            capital(&by(0))
                        ));
                        format!("hold {lock} from {from} to {to}")
                    }
                    None => match held(0).or(held(2)).or(held(1)) {
                        Some(lock) => format!(
                            "hold {lock} from {from} to {to}, and at {}",
                            acts[1].site.short().unwrap_or_default()
                        ),
                        None => {
                            said.push("No lock is held at these places.".into());
                            format!(
                                "hold one lock from {from} to {to}, and at {}",
                                acts[1].site.short().unwrap_or_default()
                            )
                        }
                    },
                });
            }
        }
        Shape::Rw | Shape::Wr | Shape::Ww if acts.len() == 2 => {
            said.push(format!(
                "{v} was {} by {} ({}{}), and then {} by {} ({}{}): {}.",
                did(0),
                by(0),
                at(0),
                value(0),
                did(1),
                by(1),
                at(1),
                value(1),
                match (acts[0].what, unordered) {
                    (What::Free, _) => "used after it was freed".to_string(),
                    (_, true) => format!("a data race ({})", ranked.key.shape.name()),
                    (_, false) => format!(
                        "an order that passing runs don't have ({})",
                        ranked.key.shape.name()
                    ),
                },
            ));
            if let Note::Value(value) = ranked.key.note {
                said.push(format!("Runs in which it finds {} fail.", number(value)));
            }
            let handler = acts.iter().find_map(|told| told.handler.clone());
            advice = Some(match (&acts[0].what, handler) {
                (_, Some(signal)) => {
                    let main = acts.iter().find(|told| told.handler.is_none());
                    let line = main.and_then(|told| told.site.short()).unwrap_or_default();
                    format!(
                        "block {signal} from {line} until what was read there is used, or read it again"
                    )
                }
                (What::Free, _) => format!(
                    "let {} wait for {} (join it, or count its users) before {}",
                    by(0),
                    by(1),
                    acts[0].site.short().unwrap_or_default()
                ),
                _ if acts[0].site.same_line(&acts[1].site) => {
                    format!("let one thread at a time be at {}", section(0, 1).0)
                }
                _ => format!(
                    "let {} come before {}: a join, a condition, or one lock for both",
                    acts[1].site.short().unwrap_or_default(),
                    acts[0].site.short().unwrap_or_default()
                ),
            });
        }
        Shape::Early => {
            said.push(format!(
                "{v} was read by {} ({}{}) before any other thread had written it: an order violation.",
                by(0), at(0), value(0)
            ));
            if let Some((site, thread)) = awaited {
                said.push(format!(
                    "In passing runs thread {thread} has written it before ({site})."
                ));
                advice = Some(format!(
                    "let {} wait until {} is done",
                    acts[0].site.short().unwrap_or_default(),
                    site.short().unwrap_or_default()
                ));
                suspect_write(suspect, site, thread);
            }
        }
        Shape::Pair if acts.len() == 4 => {
            said.push(format!(
                "{v} belong together: {} writes both ({} and {}), and {} read both ({} and {}), one of them before and one after that: \
                 it saw one old and one new.",
                by(0), at(0), at(1), by(2), at(2), at(3)
            ));
            advice = Some(format!(
                "hold one lock over both writes, and over both reads ({} to {})",
                acts[2].site.short().unwrap_or_default(),
                acts[3].site.short().unwrap_or_default()
            ));
        }
        Shape::Deadlock => {
            for two in acts.chunks(2) {
                let [lock, wait] = two else { continue };
                said.push(format!(
                    "{} has a lock since {}, which {} waits for at {}.",
                    capital(&lock.by),
                    lock.site,
                    wait.by,
                    wait.site
                ));
            }
            said.push(format!("They take {v} in different orders: a deadlock."));
            advice = Some("take these locks in one order everywhere".into());
        }
        Shape::LostSignal => {
            let n = acts.len();
            if n == 4 {
                said.push(format!(
                    "{} looked ({}), then {} wrote ({}) and signalled ({}), and only then {} waits ({}): the signal is lost.",
                    capital(&by(0)), at(0), by(1), at(1), at(2), by(3), at(3)
                ));
            } else {
                said.push(format!(
                    "{} signalled {v} ({}) before {} waits for it ({}): the signal is lost.",
                    capital(&by(0)),
                    at(0),
                    by(1),
                    at(1)
                ));
            }
            advice = Some(format!(
                "look under the lock that the wait at {} gives away, and keep it in between",
                acts[n - 1].site.short().unwrap_or_default()
            ));
        }
        _ => {}
    }
    said.push(match passing {
        0 => format!(
            "{} of {failing} failing runs have it; there is no passing run to compare with.",
            ranked.failing
        ),
        passing => format!(
            "{} of {failing} failing runs have it, {} of {passing} passing ones.",
            ranked.failing, ranked.passing
        ),
    });
    suspect.sentences = said;
    suspect.advice = advice;
}

/// The write that should have come first is part of what is told.
fn suspect_write(suspect: &mut Suspect, site: Site, thread: u32) {
    suspect.acts.push(Told {
        what: What::Write,
        by: format!("thread {thread}"),
        thread,
        handler: None,
        site: Site {
            position: String::new(),
            ..site
        },
        value: None,
        locks: Vec::new(),
    });
}

fn number(value: u64) -> String {
    match value {
        0..=0xffff => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_line() {
        assert_eq!(members("if (jobs[i]->refs == 0) abort(); // a.b"), ["refs"]);
        assert_eq!(members("x = view.start + 1.5;"), ["start"]);
        assert_eq!(members("queue->push(job.id)"), ["id"]);
    }
}
