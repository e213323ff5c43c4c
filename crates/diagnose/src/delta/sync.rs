//! What isn't an access: threads that wait for each other for ever, and a wait whose signal came before it. In: the
//! interactions of a run, and calls that never returned. Out: patterns, if there are any.

use std::collections::HashMap;

use clew_order::story::{Accessed, Story};
use clew_order::{Interaction, Kind, Names, ObjectKey};
use clew_recording::event::ThreadId;

use super::patterns::{Act, Instance, Key, Note, Patterns, Shape, What};
use super::trace::{line_number, without_elements};

pub fn patterns(story: &Story, names: &Names<'_>) -> Patterns {
    let mut all = Patterns::new();
    deadlock(story, names, &mut all);
    lost_signal(story, names, &mut all);
    all
}

fn act(story: &Story, names: &Names<'_>, one: &Interaction, what: What) -> Act {
    let addr = match story.gathered.objects[one.object as usize].key {
        ObjectKey::Memory { addr, .. } => addr,
        _ => 0,
    };
    Act {
        what,
        thread: one.thread,
        handler: None,
        at: one.at,
        site: one.site,
        line: line_number(names, one.site),
        addr,
        len: 1,
        reads: false,
        locked: false,
        value: None,
        locks: 0,
        name: 0,
        cell: 0,
    }
}

fn add(all: &mut Patterns, shape: Shape, names: Vec<String>, acts: Vec<Act>) {
    let mut sites: Vec<(u64, bool)> = acts.iter().map(|act| (act.line, false)).collect();
    // Who of the threads comes first says nothing.
    if shape == Shape::Deadlock {
        sites.sort_unstable();
        sites.dedup();
    }
    let key = Key {
        shape,
        names,
        sites,
        note: Note::Any,
    };
    let instance = Instance {
        acts,
        last: usize::MAX,
        span: 0,
    };
    all.insert(key, instance);
}

fn takes(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::MutexLock | Kind::SpinLock | Kind::RwRead | Kind::RwWrite
    )
}

fn gives(kind: Kind) -> bool {
    matches!(kind, Kind::MutexUnlock | Kind::SpinUnlock | Kind::RwUnlock)
}

/// Each waits for a lock that the next one has.
fn deadlock(story: &Story, names: &Names<'_>, all: &mut Patterns) {
    let gathered = &story.gathered;
    let mut held: HashMap<u32, &Interaction> = HashMap::new();
    for one in &gathered.interactions {
        if takes(one.kind) {
            held.insert(one.object, one);
        } else if gives(one.kind) {
            held.remove(&one.object);
        }
    }
    let waits: HashMap<ThreadId, &Interaction> = gathered
        .unfinished
        .iter()
        .filter(|one| takes(one.kind))
        .map(|one| (one.thread, one))
        .collect();
    let mut threads: Vec<ThreadId> = waits.keys().copied().collect();
    threads.sort_unstable();
    for &first in &threads {
        let (mut acts, mut objects, mut at) = (Vec::new(), Vec::new(), first);
        let closed = loop {
            let Some(wait) = waits.get(&at) else {
                break false;
            };
            let Some(holder) = held.get(&wait.object) else {
                break false;
            };
            acts.push(act(story, names, holder, What::Lock));
            acts.push(act(story, names, wait, What::Wait));
            objects.push(wait.object);
            at = holder.thread;
            if at == first {
                break true;
            }
            if objects.len() > waits.len() {
                break false;
            }
        };
        if closed {
            let name = |object: &u32| names.object(&gathered.objects[*object as usize]);
            let mut names: Vec<String> = objects.iter().map(name).collect();
            names.sort();
            names.dedup();
            let mut plain: Vec<String> = names.iter().map(|name| without_elements(name)).collect();
            plain.dedup();
            return add(all, Shape::Deadlock, plain, acts);
        }
    }
}

/// A wait that never ended, and the last signal, which came before it.
fn lost_signal(story: &Story, names: &Names<'_>, all: &mut Patterns) {
    let gathered = &story.gathered;
    for wait in &gathered.unfinished {
        if wait.kind != Kind::CondWait {
            continue;
        }
        let began = gathered.interactions.iter().rposition(|one| {
            (one.kind, one.thread, one.object) == (Kind::CondWait, wait.thread, wait.object)
        });
        let Some(began) = began else {
            continue;
        };
        let signals = |one: &Interaction| {
            matches!(one.kind, Kind::CondSignal | Kind::CondBroadcast) && one.object == wait.object
        };
        let after = gathered.interactions[began..].iter().any(signals);
        let before = gathered.interactions[..began].iter().rposition(signals);
        let Some(before) = before.filter(|_| !after) else {
            continue;
        };
        let signal = &gathered.interactions[before];
        // Whoever waited then heard it.
        let earlier = &gathered.interactions[..before];
        let of = |kind: Kind| {
            let same = |one: &&Interaction| one.kind == kind && one.object == wait.object;
            earlier.iter().filter(same).count()
        };
        let waiting = of(Kind::CondWait) > of(Kind::CondWoken);
        if waiting || signal.thread == wait.thread {
            continue;
        }
        let mut acts = vec![
            act(story, names, signal, What::Signal),
            act(story, names, wait, What::Wait),
        ];
        // What the waiter had looked at before, and the other wrote meanwhile.
        if let Some((read, write)) =
            looked(story, names, (wait.thread, signal.thread), (before, began))
        {
            acts.insert(0, write);
            acts.insert(0, read);
        }
        let object = names.object(&gathered.objects[wait.object as usize]);
        let mut all_names = vec![without_elements(&object)];
        if acts.len() == 4
            && let Some(name) = names.variable(acts[1].addr)
        {
            all_names.push(without_elements(&name));
        }
        add(all, Shape::LostSignal, all_names, acts);
    }
}

/// The last read by one thread before a wait, of what the other wrote after that and before its signal.
fn looked(
    story: &Story,
    names: &Names<'_>,
    (waiter, signaller): (ThreadId, ThreadId),
    (signalled, waited): (usize, usize),
) -> Option<(Act, Act)> {
    let overlap = |a: &Accessed, b: &Accessed| a.addr < b.addr + b.len && b.addr < a.addr + a.len;
    let place = |n: usize| (n, &story.accesses[n]);
    let all = 0..story.accesses.len();
    let mut writes = all.clone().rev().map(place).filter(|(_, one)| {
        one.thread == signaller && one.write && !one.locked && one.after <= signalled
    });
    writes.find_map(|(at, write)| {
        let mut reads = all.clone().take(at).rev().map(place);
        let (_, read) = reads.find(|(_, one)| {
            one.thread == waiter && one.read && one.after <= waited && overlap(one, write)
        })?;
        let of = |one: &Accessed, what| Act {
            what,
            thread: one.thread,
            handler: None,
            at: one.at,
            site: one.site,
            line: line_number(names, one.site),
            addr: one.addr,
            len: one.len,
            reads: one.read,
            locked: false,
            value: one.value,
            locks: one.locks,
            name: 0,
            cell: 0,
        };
        Some((of(read, What::Read), of(write, What::Write)))
    })
}
