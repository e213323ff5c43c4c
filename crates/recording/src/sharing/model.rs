//! The rules tried out: three processes with small programs in, every order of their steps looked at.
//!
//! The table's steps are [`Rules`]' own, and what a process knows of its pages is a [`Hold`]. Around them a process does
//! what the engine does, in the same order. After each step, in every state that can be reached:
//!
//! - a process that touches a page finds there what its replay has (so nothing that others did went unseen, and
//!   nobody else can have changed it meanwhile);
//! - if a program isn't at its end, somebody can make a step that changes something: nobody waits for ever.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use super::rules::{GOVERNED, Member, Page, Rules, Taken, Use, Who, doing};
use super::versions::{self, Mark, Version};
use super::{Entry, Hold, Lost};

const PROCESSES: usize = 3;
const PAGES: usize = 3;
/// Page `n` belongs to object `OBJECT[n]`.
const OBJECT: [u64; PAGES] = [1, 1, 2];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Maps an object.
    Map(u64),
    Unmap(u64),
    /// An instruction that adds to these pages.
    Add(&'static [Entry]),
    /// A system call that waits, for as long as the others like.
    Wait,
}
use Op::*;

/// What a process is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Its next operation.
    Next,
    /// Has asked for a page and waits.
    ForPage(Entry),
    /// Has asked others to govern an object, to be mapped then.
    ForOthers(u64),
    /// Knows whether others have the object; contents are written down, or left to the first touch.
    Mapping(u64, bool),
    InKernel,
    Aside,
    Dead,
}

/// What a process has of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum View {
    None,
    Free,
    Governed {
        /// Its contents were written down when it was mapped.
        known: bool,
    },
}

#[derive(Clone)]
struct Process {
    at: usize,
    phase: Phase,
    views: [View; 3],
    open: [bool; PAGES],
    hold: Hold,
    /// What a replay has in each page.
    replay: [Option<u8>; PAGES],
    /// A page was acquired for an instruction that hasn't been executed yet.
    fresh: bool,
}

/// The table, as numbers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Numbers {
    pages: [[u32; 3]; PAGES],
    members: [(u32, u32, u32, Vec<u64>); PROCESSES],
    uses: Vec<(u64, u32, u32)>,
    uses_end: u32,
}

#[derive(Clone)]
struct World {
    table: Numbers,
    memory: [u8; PAGES],
    /// Pages, of one word each, when they last changed hands, and in which version.
    copies: [Option<([u64; 1], [Mark; 1])>; PAGES],
    versions: [Version; PAGES],
    processes: [Process; PROCESSES],
}

const USES: usize = 8;

impl World {
    fn new() -> World {
        let process = Process {
            at: 0,
            phase: Phase::Next,
            views: [View::None; 3],
            open: [false; PAGES],
            hold: Hold::default(),
            replay: [None; PAGES],
            fresh: false,
        };
        let mut table = Numbers::default();
        table.uses.resize(USES, (0, 0, 0));
        World {
            table,
            memory: [0; PAGES],
            copies: [None; PAGES],
            versions: [0; PAGES],
            processes: [process.clone(), process.clone(), process],
        }
    }

    /// All have object 1, governed, as after forks.
    fn forked() -> World {
        let mut world = World::new();
        for (n, process) in world.processes.iter_mut().enumerate() {
            process.views[1] = View::Governed { known: true };
            process.replay = [Some(0), Some(0), None];
            world.table.uses[n] = (1, n as u32 + 1, GOVERNED);
        }
        world.table.uses_end = PROCESSES as u32;
        world
    }

    /// One step of the rules, by process `n`.
    fn step<T>(&mut self, n: usize, step: impl FnOnce(&Rules, Who) -> T) -> T {
        let number = AtomicU32::new;
        let pages: Vec<Page> = (self.table.pages.iter())
            .map(|&[owner, next, used]| Page {
                key: 1.into(),
                owner: number(owner),
                next: number(next),
                used: number(used),
                // What they are for happens here.
                copy: number(0),
                version: number(0),
            })
            .collect();
        let members: Vec<Member> = (self.table.members.iter())
            .map(|(doing, waits_for, wanted, letters)| {
                let letter = |n: usize| AtomicU64::new(letters.get(n).copied().unwrap_or(0));
                Member {
                    doing: number(*doing),
                    waits_for: number(*waits_for),
                    wanted: number(*wanted),
                    since: number(0),
                    pid: 0.into(),
                    tid: 0.into(),
                    locks: number(0),
                    namespace: 0.into(),
                    overflow: number(0),
                    count: number(letters.len() as u32),
                    letters: std::array::from_fn(letter),
                }
            })
            .collect();
        let uses: Vec<Use> = (self.table.uses.iter())
            .map(|&(object, stream, governed)| Use {
                object: object.into(),
                stream: number(stream),
                governed: number(governed),
            })
            .collect();
        let uses_end = number(self.table.uses_end);
        let dead = |index: usize| self.processes[index].phase == Phase::Dead;
        let living = |stream: u32| {
            let index = (stream as usize).checked_sub(1)?;
            (!dead(index)).then_some(index)
        };
        let rules = Rules {
            uses: &uses,
            uses_end: &uses_end,
            members: &members,
            pages: &pages,
            living: &living,
        };
        let who = Who {
            stream: n as u32 + 1,
            index: n,
        };
        let result = step(&rules, who);
        self.table.pages =
            std::array::from_fn(|n| [&pages[n].owner, &pages[n].next, &pages[n].used].map(get));
        self.table.members = std::array::from_fn(|n| {
            let member = &members[n];
            let letters = member.letters[..get(&member.count) as usize].iter();
            let letters = letters.map(|letter| letter.load(Relaxed)).collect();
            let [doing, waits_for, wanted] =
                [&member.doing, &member.waits_for, &member.wanted].map(get);
            (doing, waits_for, wanted, letters)
        });
        self.table.uses = (uses.iter())
            .map(|used| {
                (
                    used.object.load(Relaxed),
                    get(&used.stream),
                    get(&used.governed),
                )
            })
            .collect();
        self.table.uses_end = get(&uses_end);
        result
    }

    /// What `publish` does in the engine: a page was taken, of which the taker's replay has a version, or isn't known to.
    /// True if that is out of date, so that what is in the page is written down.
    fn publish(&mut self, n: usize, taken: &Taken, seen: Option<Version>) -> bool {
        let at = taken.entry as usize;
        let now = [self.memory[at] as u64];
        let version = match &mut self.copies[at] {
            None if taken.from.is_none() => return true,
            None => {
                self.copies[at] = Some((now, [Mark::default()]));
                1
            }
            Some((copy, marks)) => versions::publish(copy, marks, self.versions[at], &now),
        };
        self.versions[at] = version;
        self.step(n, |rules, _| rules.published(taken, version));
        let (Some((_, marks)), Some(seen)) = (&self.copies[at], seen) else {
            return true;
        };
        let mut changed = false;
        versions::changed(marks, seen, |_| changed = true);
        changed
    }

    /// Letters are read; which pages were taken, and are wanted again?
    fn read_letters(&mut self, n: usize) -> (Vec<Lost>, Vec<Lost>) {
        let mut letters = Vec::new();
        self.step(n, |rules, me| {
            rules.letters(me, |letter| letters.push(letter))
        });
        let hold = &mut self.processes[n].hold;
        let lost: Vec<Lost> = letters.into_iter().filter_map(|l| hold.read(l)).collect();
        let wanted = lost.iter().copied().filter(|&lost| hold.wants(lost));
        let wanted = wanted.collect();
        (lost, wanted)
    }

    /// What `come_back` does in the engine when the process goes on.
    fn is_back(&mut self, n: usize) {
        let (lost, wanted) = self.read_letters(n);
        let mut regained = Vec::new();
        self.step(n, |rules, me| {
            rules.regain(me, &wanted, |taken, seen| regained.push((taken, seen)));
        });
        for (taken, seen) in &regained {
            let at = taken.entry as usize;
            if self.publish(n, taken, Some(*seen)) {
                self.processes[n].replay[at] = Some(self.memory[at]);
            }
        }
        for (entry, seen) in lost {
            if !regained.iter().any(|(taken, _)| taken.entry == entry) {
                let process = &mut self.processes[n];
                process.hold.lose(entry, seen);
                process.open[entry as usize] = false;
            }
        }
        self.govern(n);
    }

    /// The process comes back if it can, or goes on waiting, or has waited long enough.
    fn come_back(&self, n: usize, then: impl Fn(&mut World)) -> Vec<World> {
        let mut back = self.clone();
        let (_, wanted) = back.read_letters(n);
        back.step(n, |rules, me| rules.busy(me, &wanted));
        let mut after = Vec::new();
        if !wanted.is_empty() && back.table.members[n].0 == doing::AWAY {
            after.push(back.clone());
        }
        back.is_back(n);
        then(&mut back);
        after.push(back);
        after
    }

    fn govern(&mut self, n: usize) {
        for object in self.step(n, |rules, me| rules.to_govern(me)) {
            let process = &mut self.processes[n];
            if process.views[object as usize] == View::Free {
                process.views[object as usize] = View::Governed { known: true };
                for page in (0..PAGES).filter(|&page| OBJECT[page] == object) {
                    process.open[page] = false;
                }
            }
            self.step(n, |rules, me| rules.governed(me, object));
        }
    }

    fn opened(&mut self, n: usize, taken: &Taken) {
        let Taken { entry, first, .. } = *taken;
        let at = entry as usize;
        let seen = self.processes[n].hold.seen(entry);
        let told = self.publish(n, taken, seen);
        let process = &mut self.processes[n];
        process.hold.acquired(entry, (OBJECT[at], entry as u64));
        let known = matches!(
            process.views[OBJECT[at] as usize],
            View::Governed { known: true }
        );
        process.open[at] = true;
        if told && !(first && known) {
            process.replay[at] = Some(self.memory[at]);
        }
    }

    /// All states after a step of process `n`.
    fn steps(&self, n: usize, program: &[Op]) -> Vec<World> {
        let mut after = Vec::new();
        let mut next = self.clone();
        match self.processes[n].phase {
            Phase::Dead => {}
            Phase::Next => {
                if !self.processes[n].fresh && self.table.members[n].2 != 0
                    || self.processes[n].hold.is_asked()
                {
                    after.extend(self.served(n));
                }
                match program.get(self.processes[n].at) {
                    None => {
                        next.processes[n].phase = Phase::Dead;
                        after.push(next);
                    }
                    Some(&op) => {
                        if next.operation(n, op) {
                            after.push(next);
                        }
                    }
                }
            }
            Phase::ForPage(entry) => {
                match next.step(n, |rules, me| rules.take_or_wait(me, entry)) {
                    Ok(taken) => {
                        next.opened(n, &taken);
                        next.is_back(n);
                        next.processes[n].phase = Phase::Next;
                    }
                    Err(waits) => assert_ne!(waits.owner, n),
                }
                after.push(next);
            }
            Phase::ForOthers(object) => {
                after = self.come_back(n, |world| world.join(n, object));
            }
            Phase::Mapping(object, others) => {
                let joined = next.step(n, |rules, me| rules.use_object(me, object));
                let governed = others || joined.is_some_and(|joined| joined.others);
                let (memory, process) = (next.memory, &mut next.processes[n]);
                for page in (0..PAGES).filter(|&page| OBJECT[page] == object) {
                    process.open[page] = !governed;
                    process.replay[page] = (!governed).then_some(memory[page]);
                }
                process.views[object as usize] = if governed {
                    View::Governed { known: false }
                } else {
                    View::Free
                };
                process.phase = Phase::Next;
                process.at += 1;
                after.push(next);
            }
            Phase::InKernel | Phase::Aside => {
                after = self.come_back(n, |world| world.processes[n].phase = Phase::Next);
            }
        }
        after
    }

    /// What `serve` does in the engine, where the stint is over and where it isn't.
    fn served(&self, n: usize) -> [World; 2] {
        let mut early = self.clone();
        early.read_letters(n);
        early.step(n, |rules, me| rules.regain(me, &[], |_, _| {}));
        early.govern(n);
        let mut late = early.clone();
        if late.processes[n].hold.is_asked() {
            let asked = late.processes[n].hold.take_asked();
            late.step(n, |rules, me| rules.aside(me, &asked));
            late.processes[n].phase = Phase::Aside;
        }
        [early, late]
    }

    fn join(&mut self, n: usize, object: u64) {
        let joined = self.step(n, |rules, me| rules.use_object(me, object));
        let joined = joined.expect("room in the table");
        self.processes[n].phase = if joined.wait_for.is_empty() {
            Phase::Mapping(object, joined.others)
        } else {
            self.step(n, |rules, me| rules.away(me, None));
            Phase::ForOthers(object)
        };
    }

    fn operation(&mut self, n: usize, op: Op) -> bool {
        match op {
            Map(object) => self.join(n, object),
            Unmap(object) => {
                let held = self.processes[n].hold.of_object(object);
                self.step(n, |rules, me| {
                    rules.leave_object(me, object);
                    for &entry in &held {
                        rules.release(me, entry);
                    }
                });
                let process = &mut self.processes[n];
                for entry in held {
                    process.hold.lose(entry, None);
                    process.open[entry as usize] = false;
                }
                process.views[object as usize] = View::None;
                process.at += 1;
            }
            Wait => {
                self.step(n, |rules, me| rules.away(me, None));
                self.processes[n].phase = Phase::InKernel;
                self.processes[n].at += 1;
            }
            Add(pages) => {
                let closed = pages.iter().find(|&&p| !self.processes[n].open[p as usize]);
                if let Some(&entry) = closed {
                    self.touch(n, entry);
                    return true;
                }
                let process = &mut self.processes[n];
                for &page in pages {
                    let page = page as usize;
                    assert_eq!(
                        process.replay[page],
                        Some(self.memory[page]),
                        "process {n}'s replay has something else in page {page}"
                    );
                    self.memory[page] = (self.memory[page] + 1) % 2;
                    process.replay[page] = Some(self.memory[page]);
                }
                process.fresh = false;
                process.at += 1;
            }
        }
        true
    }

    fn touch(&mut self, n: usize, entry: Entry) {
        self.processes[n].fresh = true;
        match self.step(n, |rules, me| rules.take_or_wait(me, entry)) {
            Ok(taken) => self.opened(n, &taken),
            Err(_) => self.processes[n].phase = Phase::ForPage(entry),
        }
    }

    /// The state, to be compared with others.
    fn key(&self) -> u128 {
        let half = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, &self.table, self.memory).hash(&mut hasher);
            (self.copies, self.versions).hash(&mut hasher);
            for p in &self.processes {
                (p.at, p.phase, p.views, p.open, p.replay, p.fresh).hash(&mut hasher);
                p.hold.summary().hash(&mut hasher);
            }
            hasher.finish() as u128
        };
        half(1) << 64 | half(2)
    }
}

fn get(number: &AtomicU32) -> u32 {
    number.load(Relaxed)
}

/// Looks at every order; how many states there are.
fn explore(begin: World, programs: [&[Op]; PROCESSES]) -> usize {
    let mut seen = HashSet::from([begin.key()]);
    let mut open = vec![begin];
    while let Some(world) = open.pop() {
        let key = world.key();
        let mut moves = false;
        for (n, program) in programs.iter().enumerate() {
            for next in world.steps(n, program) {
                let next_key = next.key();
                moves |= next_key != key;
                if seen.insert(next_key) {
                    open.push(next);
                }
            }
        }
        let done = |p: &Process| p.phase == Phase::Dead;
        assert!(
            moves || world.processes.iter().all(done),
            "nobody can go on: {:?}",
            world.processes.map(|p| (p.at, p.phase))
        );
        assert!(seen.len() < 2_000_000, "too many states to look at");
    }
    println!("{} states", seen.len());
    seen.len()
}

#[test]
fn pages_that_all_use() {
    let waits: &[Op] = &[Add(&[0]), Wait, Add(&[0])];
    let states = explore(World::forked(), [waits, waits, &[Add(&[0])]]);
    assert!(states > 1000);
}

#[test]
fn two_pages_at_once_in_either_order() {
    let (one, other): (&[Op], &[Op]) = (&[Add(&[0, 1])], &[Add(&[1, 0])]);
    let states = explore(World::forked(), [one, other, &[Wait]]);
    assert!(states > 1000);
}

#[test]
fn who_waits_for_a_page_is_asked_to_govern() {
    let states = explore(
        World::forked(),
        [
            &[Map(2), Add(&[2]), Add(&[0])],
            &[Add(&[0]), Map(2), Add(&[2])],
            &[Wait],
        ],
    );
    assert!(states > 1000);
}

#[test]
fn objects_are_left_and_mapped_again() {
    let comes_and_goes: &[Op] = &[Map(2), Add(&[2]), Unmap(2)];
    let states = explore(
        World::new(),
        [comes_and_goes, comes_and_goes, &[Map(2), Wait, Add(&[2])]],
    );
    assert!(states > 1000);
}
