//! Interactions as people and programs read them. In: what was gathered, and which of it is wanted. Out: rows with names, lines
//! and positions; a diagram, a graph for `dot`, a page, JSON, the table of what threads do next.

use clew_recording::event::ThreadId;
use clew_timeline::{Mark, Position, Timeline};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Result;
use crate::gather::Gathered;
use crate::graph::Graph;
use crate::interaction::{Interaction, Kind};
use crate::names::{Line, Names};

pub mod diagram;
pub mod page;

/// So many positions are found to the instruction; of more, to the tick.
const MOST_EXACT: usize = 5_000;

/// Which interactions are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub threads: Vec<ThreadId>,
    /// Parts of objects' names.
    pub objects: Vec<String>,
    pub kinds: Vec<Kind>,
    pub from: Option<Position>,
    pub to: Option<Position>,
    /// So many before and after a position.
    pub around: Option<(Position, usize)>,
}

/// One interaction, with names.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(rename = "type")]
    pub code: &'static str,
    pub words: &'static str,
    pub thread: ThreadId,
    pub object: u32,
    pub name: String,
    pub t: u64,
    pub position: String,
    #[serde(flatten)]
    pub line: Line,
    /// The thread that was made, joined or signalled, or that woke this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<ThreadId>,
}

/// What is shown: rows in the order in which they happened, and edges between them.
pub struct Shown {
    pub rows: Vec<Row>,
    /// By their numbers among the rows.
    pub edges: Vec<(usize, usize)>,
    /// Numbers of the threads, and names.
    pub threads: Vec<(ThreadId, String)>,
    /// Edges from what isn't shown: the row, and the thread that the edge comes from.
    pub from_elsewhere: Vec<(usize, ThreadId)>,
    /// All interactions that there are.
    pub all: usize,
    pub complete: bool,
}

/// Where it is, without going there: what the log tells is over behind its event.
pub fn place(one: &Interaction) -> Position {
    match one.at.pc {
        0 if one.kind == Kind::ThreadCreated => Position::after(one.at.event),
        0 => Position::after(one.at.event + 1),
        _ => Position {
            event: one.at.event,
            ticks: one.at.ticks,
            steps: 0,
        },
    }
}

/// Where it is over, likewise.
pub fn over(one: &Interaction) -> Position {
    match one.over.pc {
        0 => place(one),
        _ => Position {
            event: one.over.event,
            ticks: one.over.ticks,
            steps: 0,
        },
    }
}

impl Wanted {
    /// The numbers of those that are wanted, in order.
    pub fn of(&self, gathered: &Gathered, names: &Names<'_>) -> Vec<usize> {
        let objects: Vec<bool> = gathered
            .objects
            .iter()
            .map(|object| {
                self.objects.is_empty() || {
                    let name = names.object(object);
                    self.objects.iter().any(|part| name.contains(part.as_str()))
                }
            })
            .collect();
        let wanted = |one: &Interaction| {
            let at = place(one);
            (self.threads.is_empty() || self.threads.contains(&one.thread))
                && objects[one.object as usize]
                && (self.kinds.is_empty() || self.kinds.contains(&one.kind))
                && self.from.is_none_or(|from| at >= from)
                && self.to.is_none_or(|to| at <= to)
        };
        let all = gathered.interactions.iter().enumerate();
        let mut found: Vec<usize> = all.filter(|(_, one)| wanted(one)).map(|(n, _)| n).collect();
        if let Some((position, most)) = self.around {
            let after = found.partition_point(|&n| place(&gathered.interactions[n]) < position);
            let end = found.len().min(after + most);
            found = found[after.saturating_sub(most)..end].to_vec();
        }
        found
    }
}

/// Names, lines and positions of chosen ones, in order.
pub fn shown(
    timeline: &mut Timeline,
    gathered: &Gathered,
    names: &Names<'_>,
    chosen: &[usize],
) -> Result<Shown> {
    let exact = match chosen.len() <= MOST_EXACT {
        true => exact(timeline, gathered, chosen)?,
        false => Vec::new(),
    };
    let objects: Vec<String> = gathered
        .objects
        .iter()
        .map(|one| names.object(one))
        .collect();
    let rows = chosen.iter().enumerate().map(|(row, &n)| {
        let one = &gathered.interactions[n];
        let position = exact.get(row).copied().unwrap_or_else(|| place(one));
        Row {
            code: one.kind.code(),
            words: one.kind.words(),
            thread: one.thread,
            object: one.object,
            name: objects[one.object as usize].clone(),
            t: one.t,
            position: position.to_string(),
            line: names.line(one.site),
            other: one.other,
        }
    });
    let rows: Vec<Row> = rows.collect();
    let graph = Graph::of(&gathered.interactions);
    let mut row_of = vec![usize::MAX; gathered.interactions.len()];
    for (row, &n) in chosen.iter().enumerate() {
        row_of[n] = row;
    }
    let (mut edges, mut from_elsewhere) = (Vec::new(), Vec::new());
    for (row, &n) in chosen.iter().enumerate() {
        for before in graph.before(n) {
            let thread = gathered.interactions[before].thread;
            match row_of[before] {
                usize::MAX if thread != rows[row].thread => from_elsewhere.push((row, thread)),
                usize::MAX => {}
                before => edges.push((before, row)),
            }
        }
    }
    let known = gathered.threads.keys().copied();
    let shown = |thread: &ThreadId| rows.iter().any(|row| row.thread == *thread);
    let threads = known
        .filter(shown)
        .map(|thread| (thread, names.thread(thread)));
    Ok(Shown {
        threads: threads.collect(),
        edges,
        from_elsewhere,
        all: gathered.interactions.len(),
        complete: gathered.complete,
        rows,
    })
}

/// Positions to the instruction.
fn exact(timeline: &mut Timeline, gathered: &Gathered, chosen: &[usize]) -> Result<Vec<Position>> {
    let marked = |n: &&usize| gathered.interactions[**n].at.pc != 0;
    let marks: Vec<Mark> = chosen
        .iter()
        .filter(marked)
        .map(|&n| gathered.interactions[n].at)
        .collect();
    let mut found = timeline.positions(&marks)?.into_iter();
    let position = |&n: &usize| {
        let one = &gathered.interactions[n];
        match one.at.pc {
            0 => place(one),
            _ => found.next().unwrap_or_else(|| place(one)),
        }
    };
    Ok(chosen.iter().map(position).collect())
}

/// `{"events": …, "edges": …}`.
pub fn as_json(shown: &Shown, gathered: &Gathered, names: &Names<'_>) -> Value {
    let threads = shown.threads.iter().map(|(number, name)| {
        let facts = gathered.threads.get(number);
        json!({ "thread": number, "name": name, "tid": facts.map(|facts| facts.tid) })
    });
    let objects = gathered.objects.iter().map(|object| names.object(object));
    json!({
        "events": shown.rows,
        "edges": shown.edges,
        "threads": threads.collect::<Vec<_>>(),
        "objects": objects.collect::<Vec<_>>(),
        "all": shown.all,
        "complete": shown.complete,
    })
}

/// For `dot`: a column for each thread.
pub fn as_dot(shown: &Shown) -> String {
    let mut text =
        String::from("digraph order {\n  rankdir=TB;\n  node [shape=box, fontname=monospace];\n");
    for (thread, name) in &shown.threads {
        let name = quoted(name);
        text.push_str(&format!(
            "  subgraph cluster_{thread} {{\n    label={name};\n"
        ));
        for (n, row) in shown
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.thread == *thread)
        {
            let label = quoted(&format!(
                "{} {}\n{} LC {}",
                row.code, row.name, row.position, row.t
            ));
            text.push_str(&format!("    e{n} [label={label}];\n"));
        }
        text.push_str("  }\n");
    }
    for (from, to) in &shown.edges {
        text.push_str(&format!("  e{from} -> e{to};\n"));
    }
    text.push_str("}\n");
    text
}

/// A string of `dot`'s, whatever is in it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The paper's table: of each thread, what it hasn't executed at a position; its time, and what its next one waits for.
#[derive(Clone, Debug, Serialize)]
pub struct Ahead {
    pub thread: ThreadId,
    pub name: String,
    /// Its Lamport time there.
    pub t: u64,
    /// How many are still to come, and the first of them.
    pub left: usize,
    pub next: Vec<String>,
    /// What has to happen first: another thread's, that isn't executed either.
    pub waits_for: Option<String>,
}

pub fn table(gathered: &Gathered, names: &Names<'_>, at: Position, most: usize) -> Vec<Ahead> {
    let all = &gathered.interactions;
    let done = all.partition_point(|one| place(one) <= at);
    let graph = Graph::of(all);
    let tell = |n: usize| {
        let one = &all[n];
        let object = names.object(&gathered.objects[one.object as usize]);
        format!("{} {object} (LC {})", one.kind.code(), one.t)
    };
    let threads = gathered.threads.keys();
    let rows = threads.map(|&thread| {
        let of = |n: &usize| all[*n].thread == thread;
        let last = (0..done).rev().find(of);
        let ahead: Vec<usize> = (done..all.len()).filter(of).collect();
        let needs = ahead.first().and_then(|&next| {
            let open = |&before: &usize| before >= done && all[before].thread != thread;
            graph.before(next).find(open)
        });
        Ahead {
            thread,
            name: names.thread(thread),
            t: last.map_or(0, |n| all[n].t),
            left: ahead.len(),
            next: ahead.iter().take(most).map(|&n| tell(n)).collect(),
            waits_for: needs.map(|n| format!("{} of thread {}", tell(n), all[n].thread)),
        }
    });
    rows.collect()
}
