//! Orders that are known: the paper's figure 3, each kind of interaction, and generated programs that log their own order; all
//! compared with a small model of the paper's algorithms that knows nothing of this crate.
//!
//! `CLEW_SEED=N` generates the same programs, `CLEW_PROGRAMS=N` more of them.

#[path = "common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::{Random, ask, build, generate, guest, record, test, tests};
use serde_json::Value;

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CLEW_SEED").unwrap_or(u64::from(std::process::id()) * 7919 + 1);
    let programs = number("CLEW_PROGRAMS").unwrap_or(8);
    tests(vec![
        test("figure 3", figure3),
        test("every kind", kinds),
        test("what is shown of it", shown),
        test("generated programs", move || {
            println!("CLEW_SEED={seed} generates the same");
            (0..programs).for_each(|n| generated(seed + n));
        }),
    ])
}

/// An event of `clew order --json`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    kind: String,
    thread: u64,
    object: u64,
    name: String,
    t: u64,
}

fn events(folder: &Path, more: &[&str]) -> (Vec<Event>, BTreeSet<(usize, usize)>, Value) {
    let mut words = vec!["order", folder.to_str().unwrap(), "--json"];
    words.extend(more);
    let value: Value = serde_json::from_str(&ask(&words, 0)).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_string();
    let event = |one: &Value| Event {
        kind: text(one, "type"),
        thread: one["thread"].as_u64().unwrap(),
        object: one["object"].as_u64().unwrap(),
        name: text(one, "name"),
        t: one["t"].as_u64().unwrap(),
    };
    let all = value["events"].as_array().unwrap().iter().map(event);
    let edge = |one: &Value| {
        let end = |n: usize| one[n].as_u64().unwrap() as usize;
        (end(0), end(1))
    };
    let edges = value["edges"].as_array().unwrap().iter().map(edge);
    (all.collect(), edges.collect(), value)
}

/// Equation 3, one event after the other.
fn model_times(all: &[Event]) -> Vec<u64> {
    let mut clocks: BTreeMap<(bool, u64), u64> = BTreeMap::new();
    let mut times = Vec::new();
    for event in all {
        let (thread, object) = ((true, event.thread), (false, event.object));
        let of = |key| clocks.get(&key).copied().unwrap_or(0);
        let t = of(thread).max(of(object)) + 1;
        clocks.insert(thread, t);
        clocks.insert(object, t);
        times.push(t);
    }
    times
}

/// Definition 4, by the letter: from times alone.
fn model_edges(all: &[Event]) -> BTreeSet<(usize, usize)> {
    let mut edges = BTreeSet::new();
    for (a, ea) in all.iter().enumerate() {
        let sets: [&dyn Fn(&Event) -> bool; 2] =
            [&|e| e.thread == ea.thread, &|e| e.object == ea.object];
        for set in sets {
            // No event of the set lies closer before it.
            let before = all.iter().enumerate().filter(|(_, e)| set(e) && e.t < ea.t);
            if let Some((b, _)) = before.max_by_key(|(_, e)| e.t) {
                edges.insert((b, a));
            }
        }
    }
    edges
}

/// Figure 4: what is executed to have executed `target`, by recursion.
fn model_proceed(
    target: usize,
    all: &[Event],
    edges: &BTreeSet<(usize, usize)>,
    clocks: &mut BTreeMap<u64, u64>,
    done: &mut Vec<usize>,
) {
    let thread = all[target].thread;
    while clocks.get(&thread).copied().unwrap_or(0) < all[target].t {
        // Run the thread until its next event.
        let next = (0..all.len()).find(|n| all[*n].thread == thread && !done.contains(n));
        let next = next.expect("an event up to the target");
        let others: Vec<usize> = edges
            .iter()
            .filter(|(from, to)| *to == next && all[*from].thread != thread)
            .map(|(from, _)| *from)
            .collect();
        for other in others {
            model_proceed(other, all, edges, clocks, done);
        }
        done.push(next);
        clocks.insert(thread, all[next].t);
    }
}

fn check(all: &[Event], edges: &BTreeSet<(usize, usize)>) {
    let times: Vec<u64> = all.iter().map(|event| event.t).collect();
    assert_eq!(times, model_times(all), "Lamport times");
    assert_eq!(*edges, model_edges(all), "edges by definition 4");
}

/// The graph of the paper's figure 3, if thread2 comes first, or the same with both exchanged.
fn figure3() {
    let folder = record(&guest("figure2", &[]), &["--sched", "fair"], Some("5\n"));
    let (all, edges, _) = events(&folder, &[]);
    check(&all, &edges);
    let of = |thread: u64| -> Vec<(String, u64)> {
        let own = all.iter().filter(|event| event.thread == thread);
        own.map(|event| (event.kind.clone(), event.t)).collect()
    };
    let story = |words: &str| -> Vec<(String, u64)> {
        let words = words.split(' ').map(|word| word.split_once(':').unwrap());
        words
            .map(|(kind, t)| (kind.into(), t.parse().unwrap()))
            .collect()
    };
    let main = story("SI:1 RD:2 TC:3 TC:4 SP:5 JN:9 JN:11");
    let first = |created: u64| story(&format!("TCX:{created} SW:6 SP:7 EX:8"));
    let second = |created: u64| story(&format!("TCX:{created} SW:8 SP:9 EX:10"));
    if of(1) == first(4) {
        assert_eq!(of(2), second(5));
        assert_eq!(of(0), main);
        let names: Vec<(&str, u64)> = all.iter().map(|e| (e.kind.as_str(), e.thread)).collect();
        let at = |kind, thread| {
            names
                .iter()
                .position(|name| *name == (kind, thread))
                .unwrap()
        };
        // The arrows between columns.
        let between: BTreeSet<(usize, usize)> = edges
            .iter()
            .copied()
            .filter(|(from, to)| all[*from].thread != all[*to].thread)
            .collect();
        let (tc, jn) = (at("TC", 0), at("JN", 0));
        let joins: Vec<usize> = (jn..all.len()).filter(|n| all[*n].kind == "JN").collect();
        let expected = [
            (tc, at("TCX", 1)),
            (tc + 1, at("TCX", 2)),
            (at("SP", 0), at("SW", 1)),
            (at("SP", 1), at("SW", 2)),
            (at("EX", 1), joins[0]),
            (at("EX", 2), joins[1]),
        ];
        assert_eq!(between, expected.into_iter().collect());
    } else {
        assert_eq!(
            of(2),
            second(5)
                .iter()
                .map(|(k, t)| (k.clone(), *t))
                .collect::<Vec<_>>()
        );
    }
    // What thread 2 of figure 5's kind needs: Replay Minima at its SW.
    minima(&folder, &all, &edges, 1);
}

/// `--minima` and `--maxima` of some events against the model.
fn minima(folder: &Path, all: &[Event], edges: &BTreeSet<(usize, usize)>, seed: u64) {
    let mut random = Random(seed.wrapping_mul(77) | 1);
    let (_, _, value) = events(folder, &[]);
    for _ in 0..2 {
        let target = random.below(all.len() as u64) as usize;
        let position = value["events"][target]["position"].as_str().unwrap();
        let at = format!("{}@{position}", all[target].thread);
        let order = |mode: &str| -> Vec<usize> {
            let told = ask(&["order", folder.to_str().unwrap(), mode, &at, "--json"], 0);
            let value: Value = serde_json::from_str(&told).unwrap();
            let order = value["order"].as_array().unwrap().iter();
            order.map(|n| n.as_u64().unwrap() as usize).collect()
        };
        let least = order("--minima");
        // Positions are to the tick: another one of the thread may be meant.
        let meant = *least.last().unwrap();
        assert_eq!(all[meant].thread, all[target].thread);
        let mut done = Vec::new();
        model_proceed(meant, all, edges, &mut BTreeMap::new(), &mut done);
        let set = |order: &[usize]| order.iter().copied().collect::<BTreeSet<usize>>();
        assert_eq!(set(&least), set(&done), "minima at {meant}");
        possible(&least, edges);
        // All that doesn't depend on it, and it.
        let mut depends = BTreeSet::from([meant]);
        for &(from, to) in edges {
            // Edges are sorted by where they come from, and lead onwards.
            if depends.contains(&from) {
                depends.insert(to);
            }
        }
        let most = order("--maxima");
        assert_eq!(most.last(), Some(&meant));
        let mut free: BTreeSet<usize> = (0..all.len()).filter(|n| !depends.contains(n)).collect();
        free.insert(meant);
        assert_eq!(set(&most), free, "maxima at {meant}");
        possible(&most, edges);
    }
}

fn possible(order: &[usize], edges: &BTreeSet<(usize, usize)>) {
    let place = |n: usize| order.iter().position(|one| *one == n);
    for &(from, to) in edges {
        if let Some(to) = place(to) {
            assert!(place(from).expect("what comes before it") < to);
        }
    }
}

/// What is done to each object, by whom.
fn by_object(all: &[Event]) -> BTreeMap<String, String> {
    let mut objects: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in all {
        let what = format!("{}{}", event.kind, event.thread);
        objects.entry(event.name.clone()).or_default().push(what);
    }
    let joined = objects.into_iter().map(|(name, all)| (name, all.join(" ")));
    joined.collect()
}

fn kinds() {
    let folder = record(&guest("kinds", &["-lrt"]), &[], None);
    let (all, edges, value) = events(&folder, &[]);
    check(&all, &edges);
    let objects = by_object(&all);
    let is = |name: &str, expected: &str| {
        let found = objects.get(name).map_or("", String::as_str);
        assert_eq!(found, expected, "{name} of {objects:#?}");
    };
    is("accounts[1].lock", "ML1 MU1");
    is("busy", "MI0 ML0 MLF1 MLF1 MU0 MD0");
    is("table", "LI0 LR0 LR1 LF1 LU1 LU0 LW0 LU0");
    is("spin", "PI0 PL1 PU1");
    is("sem", "SI0 SW1 SF1 SP0 SD0");
    is("once", "ON0 ON4");
    is("counter", "AT0 AT0 AT5");
    is("word", "FK6");
    is("thread 1", "TC0 TCX1 EX1 JN0");
    // Who comes first to the condition and the barrier is the scheduler's choice.
    let ready = &objects["ready"];
    assert!(
        ready.starts_with("CI0 ") && ready.ends_with(" CB0"),
        "{ready}"
    );
    assert_eq!(ready.contains("CW2"), ready.contains("CX2"));
    let mut met: Vec<&str> = objects["barrier"].split(' ').collect();
    met.sort_unstable();
    assert_eq!(met, ["BA0", "BA3", "BI0", "BX0", "BX3"]);
    let begins = |start: &str, expected: &str| {
        let found = objects.iter().find(|(name, _)| name.starts_with(start));
        let found = found.map_or("", |(_, all)| all.as_str());
        assert_eq!(found, expected, "{start} of {objects:#?}");
    };
    begins("pipe", "WR7 RD0");
    begins("socketpair", "WR7 RD0");
    begins("eventfd", "WR7 RD0");
    let queues: Vec<&String> = objects
        .iter()
        .filter(|(name, _)| name.starts_with("message queue"))
        .map(|(_, all)| all)
        .collect();
    assert_eq!(queues, ["QS7 QR0", "QS7 QR0"]);
    begins("semaphore set", "SV7 SV0");
    is("SIGUSR1 to thread 0", "KS8 KD0");
    is("SIGUSR2", "KS0 KD0");
    begins("process", "FO0 WT0");
    assert!(objects["thread 9"].starts_with("TC0 "), "{objects:#?}");
    assert!(objects["thread 9"].contains("DT0"), "{objects:#?}");
    // Lines are the program's own.
    let source = include_str!("guests/kinds.c");
    for (what, text) in [
        ("ML", "pthread_mutex_lock(&accounts[1].lock)"),
        ("QR", "mq_receive("),
        ("WT", "waitpid(child"),
        ("AT", "atomic_fetch_add(&counter"),
        ("KS", "pthread_kill("),
        ("TC", "pthread_create(&thread, NULL, start"),
    ] {
        let expected = source.lines().position(|line| line.contains(text)).unwrap() + 1;
        let lines = value["events"].as_array().unwrap().iter();
        let mut lines = lines
            .filter(|one| one["type"] == what)
            .map(|one| one["line"].as_u64());
        assert!(
            lines.any(|line| line == Some(expected as u64)),
            "{what} at line {expected}"
        );
    }
}

/// Choices of what is shown, and ways to show it.
fn shown() {
    let folder = record(&guest("kinds", &["-lrt"]), &[], None);
    let name = folder.to_str().unwrap();
    let (all, _, value) = events(&folder, &[]);
    let count = |more: &[&str]| events(&folder, more).0;
    let of_main = count(&["--thread", "0"]);
    assert!(of_main.len() < all.len() && of_main.iter().all(|event| event.thread == 0));
    let of_busy = count(&["--object", "busy"]);
    assert_eq!(of_busy.len(), 6);
    let mutexes = count(&["--type", "mutex"]);
    assert!(mutexes.iter().all(|event| event.kind.starts_with('M')));
    assert_eq!(count(&["--type", "SW,SP"]).len(), 2);
    assert_eq!(count(&["--type", "thread-create"]).len(), 9);
    let middle = value["events"][all.len() / 2]["position"].as_str().unwrap();
    let before = count(&["--to", middle]).len();
    let after = count(&["--from", middle]).len();
    assert!(before + after >= all.len() && before.max(after) < all.len());
    assert_eq!(count(&["--around", middle, "--most", "10"]).len(), 10);
    // What there isn't.
    ask(&["order", name, "--object", "nothing like that"], 1);
    ask(&["order", name, "--type", "nonsense"], 2);
    ask(&["order", name, "--minima", "77@1"], 1);
    ask(&["order", name, "--minima", "1"], 2);
    // The diagram has a column for each thread, and arrows.
    let diagram = ask(&["order", name], 0);
    for part in ["ML accou", "▶", "main", "1 locks", "kinds.c:"] {
        assert!(diagram.contains(part), "{part} in\n{diagram}");
    }
    let dot = ask(&["order", name, "--dot"], 0);
    assert!(dot.starts_with("digraph order {") && dot.contains(" -> "));
    let page = folder.with_extension("html");
    ask(&["order", name, "--html", page.to_str().unwrap()], 0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("accounts[1].lock") && page.contains("thread create"));
    // At the start nothing is executed; each thread's first waits for its making.
    let table: Value =
        serde_json::from_str(&ask(&["order", name, "--table", "--json"], 0)).unwrap();
    let rows = table["threads"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let left: u64 = rows.iter().map(|row| row["left"].as_u64().unwrap()).sum();
    assert_eq!(left as usize, all.len());
    assert!(rows[1]["waits_for"].as_str().unwrap().starts_with("TC "));
    // An order of one's own: as it was is possible, a join before its thread's end isn't.
    let order = folder.with_extension("order");
    let write = |numbers: &[usize]| {
        let words: Vec<String> = numbers.iter().map(usize::to_string).collect();
        std::fs::write(&order, words.join("\n")).unwrap();
    };
    let mut numbers: Vec<usize> = (0..all.len()).collect();
    write(&numbers);
    ask(&["order", name, "--by", order.to_str().unwrap()], 0);
    let join = all.iter().position(|event| event.kind == "JN").unwrap();
    let exit = all.iter().position(|event| event.kind == "EX").unwrap();
    numbers.swap(join, exit);
    write(&numbers);
    ask(&["order", name, "--by", order.to_str().unwrap()], 1);
    write(&[all.len()]);
    ask(&["order", name, "--by", order.to_str().unwrap()], 2);
}

fn generated(seed: u64) {
    println!("seed {seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let program = build(&format!("generated-{seed}"), &generate(&mut random), &[]);
    let seed_text = seed.to_string();
    let schedule = ["--sched", "random", "--seed", &seed_text];
    let (folder, output) = common::recorded(&program, &schedule, None);
    let (all, edges, _) = events(&folder, &[]);
    check(&all, &edges);
    for line in output.lines() {
        let (name, logged) = line.split_once(' ').unwrap_or((line, ""));
        // Having a lock is a deed; so is having it again behind a wait.
        let taken = all.iter().filter(|event| event.name == name);
        let taken = taken.filter(|event| matches!(event.kind.as_str(), "ML" | "SW"));
        let who: Vec<String> = taken.map(|event| event.thread.to_string()).collect();
        assert_eq!(who.join(" "), logged, "{name}");
    }
    minima(&folder, &all, &edges, seed);
    // Nothing in it races.
    ask(&["races", folder.to_str().unwrap()], 0);
}
