//! `clew order`: what happened before what, in a recorded run.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use clap::Args;
use clew_order::graph::Graph;
use clew_order::show::{self, Shown, Wanted, diagram, page};
use clew_order::{Gathered, Kind, Names};
use clew_recording::event::ThreadId;
use clew_timeline::{Position, Target};
use serde_json::json;

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG};
use crate::replay::CANT_REPLAY;
use crate::text;

pub mod stepping;
mod written;

pub const HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. An event is what a thread does to an object that others \
use: it makes, ends or joins a thread, takes or gives a lock, waits, signals, posts, sends, reads, touches memory with an atomic \
instruction. Each has a Lamport time (LC): one more than the thread's and the object's last. Between two events that no \
chain of arrows connects, nothing says which came first: the recording shows one order of several.

POS is an event's number in the log, or a position as other commands tell it; T is a thread's number. TYPE is a short name \
as in the diagram (ML), words (mutex-lock), or their first (mutex).

With -o the same run becomes a recording of its own in that order, in which each thread does what it did, instruction for instruction: \
NEW can be replayed, debugged and asked like any other. It is replayed once and compared, event by event. If it diverges, some \
thread has seen data in another state, and the racing accesses are told.

--minima tells the least that must happen before thread T comes to POS, --maxima all that can happen without it, in an \
order that is possible. --by checks an order of one's own: numbers of events, as --json counts them, in a file; a choice \
that is impossible is refused, and the event that must come first named.

Exit status: 0; 1 if there is no such event, or an order is impossible; 2 for a wrong command line; 124 if the replay diverged \
before anything was found; 125 if the recording can't be read, or replayed here.

Examples:
  clew order                             the diagram of the latest recording
  clew order crash --around 8120 --object queue.lock
  clew order crash --html order.html     the same to zoom and click
  clew order crash --json | jq '.events[] | select(.type == \"ML\")'
  clew order crash --table --at 8120     what each thread does next there
  clew order crash --minima 2@8120       what thread 2 needs to come there
  clew order crash --minima 2@8120 -o early    the run with that first";

#[derive(Debug, Args)]
pub struct Order {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Only events of these threads
    #[arg(long, value_name = "T", value_delimiter = ',')]
    pub thread: Vec<ThreadId>,

    /// Only events of objects whose names have this in them
    #[arg(long, value_name = "NAME")]
    pub object: Vec<String>,

    /// Only events of these types
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = kinds)]
    pub kinds: Vec<Kinds>,

    /// The events nearest to a position
    #[arg(long, value_name = "POS", conflicts_with_all = ["from", "to"])]
    pub around: Option<Position>,

    /// From here on
    #[arg(long, value_name = "POS")]
    pub from: Option<Position>,

    /// Up to here
    #[arg(long, value_name = "POS")]
    pub to: Option<Position>,

    /// Show at most N events (default: 200 in a diagram, all elsewhere)
    #[arg(long, value_name = "N")]
    pub most: Option<usize>,

    /// Print a graph for `dot`
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,

    /// Write a page to zoom and click
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "dot"])]
    pub html: Option<PathBuf>,

    /// Show what each thread does next
    #[arg(long, conflicts_with_all = ["dot", "html"])]
    pub table: bool,

    /// For --table: where (default: the start)
    #[arg(long, value_name = "POS", requires = "table")]
    pub at: Option<Position>,

    /// Tell the least that must happen before thread T comes to a position
    #[arg(long, value_name = "T@POS", value_parser = place, conflicts_with_all = ["table", "dot", "html"])]
    pub minima: Option<(ThreadId, Position)>,

    /// Tell all that can happen before thread T goes on from a position
    #[arg(long, value_name = "T@POS", value_parser = place, conflicts_with_all = ["minima", "table", "dot", "html"])]
    pub maxima: Option<(ThreadId, Position)>,

    /// Check an order of one's own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["minima", "maxima", "table", "dot", "html"])]
    pub by: Option<PathBuf>,

    /// Make that order a recording of its own, in this folder
    #[arg(short, long, value_name = "NEW")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub which: Which,
}

/// What a word for types means.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<Kind>);

fn kinds(text: &str) -> Result<Kinds, String> {
    match Kind::named(text) {
        found if found.is_empty() => Err(
            "no such type; one is as in the diagram (ML), in words (mutex-lock), or their first (mutex)"
                .into(),
        ),
        found => Ok(Kinds(found)),
    }
}

fn place(text: &str) -> Result<(ThreadId, Position), String> {
    let wrong = || "a thread and a position, as in 2@8120+3".to_string();
    let (thread, position) = text.split_once('@').ok_or_else(wrong)?;
    let thread = thread.parse().map_err(|_| wrong())?;
    let position = position
        .parse()
        .map_err(|error: clew_recording::position::NoPosition| error.to_string())?;
    Ok((thread, position))
}

/// Rows of a diagram that somebody reads.
const ROWS: usize = 200;
/// On each side of a position.
const AROUND: usize = 20;
const AHEAD: usize = 4;

pub fn order(line: &Order, envp: &[&CStr]) -> i32 {
    match answer(line, envp) {
        Ok(status) => status,
        Err(failed) => failed.tell(),
    }
}

fn answer(line: &Order, envp: &[&CStr]) -> Result<i32, Failed> {
    let word = line.recording.as_deref().map(OsStr::new);
    let mut asked = Asked::open(word, &line.which, Target::Start, envp)?;
    let log = asked.log()?;
    let (gathered, modules) = clew_order::gather(&mut asked.timeline, &mut asked.program, log)?;
    if let Some(folder) = &line.output {
        return written::written(line, &mut asked, &gathered, &modules, folder, envp);
    }
    asked.done();
    let names = Names::new(asked.program.catalog(), &modules, &gathered.threads);
    if line.table {
        let at = line.at.unwrap_or_else(|| asked.timeline.start());
        return Ok(table(line, &gathered, &names, at));
    }
    let order = match &line.by {
        Some(file) => Some(by(&gathered, &names, file)?),
        None => executed(line, &gathered)?,
    };
    if let Some(order) = order {
        return Ok(told_in_order(line, &gathered, &names, &order));
    }
    let around = line.most.map_or(AROUND, |most| most.div_ceil(2));
    let wanted = Wanted {
        threads: line.thread.clone(),
        objects: line.object.clone(),
        kinds: line
            .kinds
            .iter()
            .flat_map(|kinds| kinds.0.clone())
            .collect(),
        from: line.from,
        to: line.to,
        around: line.around.map(|at| (at, around)),
    };
    let mut chosen = wanted.of(&gathered, &names);
    let found = chosen.len();
    let is_diagram = !line.which.json && !line.dot && line.html.is_none();
    let most = line
        .most
        .unwrap_or(if is_diagram { ROWS } else { usize::MAX });
    chosen.truncate(most);
    let shown = show::shown(&mut asked.timeline, &gathered, &names, &chosen)?;
    if line.which.json {
        let all = show::as_json(&shown, &gathered, &names);
        text::print(&format!("{all}\n"));
    } else if line.dot {
        text::print(&show::as_dot(&shown));
    } else if let Some(file) = &line.html {
        let page = page::page(&shown, &asked.name);
        std::fs::write(file, page)
            .map_err(|error| Failed(CANT_REPLAY, format!("{}: {error}", file.display())))?;
        let count = text::counted(shown.rows.len() as u64, "event");
        text::print(&format!(
            "{}: {count}\n",
            text::plain(&file.display().to_string())
        ));
    } else {
        text::print(&as_text(&shown, &gathered, found));
    }
    Ok(match found {
        0 => NOT_FOUND,
        _ => 0,
    })
}

/// Columns of the terminal.
fn width() -> usize {
    const USUAL: usize = 120;
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel fills in the structure.
    let known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    match usize::from(size.ws_col) {
        0 => USUAL,
        _ if !known => USUAL,
        columns => columns,
    }
}

fn as_text(shown: &Shown, gathered: &Gathered, found: usize) -> String {
    let style = text::Style::stdout();
    let colour = |object: u32, label: &str| match object % 5 {
        0 => style.good(label),
        1 => style.warn(label),
        2 => style.bold(label),
        3 => style.bad(label),
        _ => label.to_string(),
    };
    let mut out = match shown.rows.is_empty() {
        true => String::new(),
        false => diagram::draw(shown, width(), &|name| text::plain(name), &colour),
    };
    let all = text::counted(shown.all as u64, "event");
    let threads = text::counted(gathered.threads.len() as u64, "thread");
    out.push_str(&style.faint(&format!("{all} of {threads}")));
    if found > shown.rows.len() {
        let left = text::count((found - shown.rows.len()) as u64);
        out.push_str(&format!("; {left} more (--from, --around, --most, --html)"));
    }
    if !gathered.complete {
        out.push_str("; there are more than can be kept");
    }
    out.push('\n');
    out
}

fn table(line: &Order, gathered: &Gathered, names: &Names<'_>, at: Position) -> i32 {
    let rows = show::table(gathered, names, at, line.most.unwrap_or(AHEAD));
    if line.which.json {
        let all = json!({ "position": at.to_string(), "threads": rows });
        text::print(&format!("{all:#}\n"));
        return 0;
    }
    let mut out = format!("at {at}\n");
    for row in rows {
        let style = text::Style::stdout();
        let name = style.bold(&text::plain(&row.name));
        let left = text::counted(row.left as u64, "event");
        out.push_str(&format!("{name}: LC {}, {left} to come\n", row.t));
        for next in &row.next {
            out.push_str(&format!("    {}\n", text::plain(next)));
        }
        if let Some(first) = &row.waits_for {
            out.push_str(&format!("    after {}\n", text::plain(first)));
        }
    }
    text::print(&out);
    0
}

/// One event as a line.
fn told(gathered: &Gathered, names: &Names<'_>, n: usize) -> String {
    let one = &gathered.interactions[n];
    let object = names.object(&gathered.objects[one.object as usize]);
    let at = names.line(one.site).short().unwrap_or_default();
    format!(
        "{n:>6}  LC {:<5} thread {:<3} {:<3} {object}  {}  {at}",
        one.t,
        one.thread,
        one.kind.code(),
        show::place(one),
    )
}

/// What is executed under Replay Minima or Maxima, if that is asked for.
fn executed(line: &Order, gathered: &Gathered) -> Result<Option<Vec<usize>>, Failed> {
    let Some((thread, at)) = line.minima.or(line.maxima) else {
        return Ok(None);
    };
    let target = next_of(gathered, thread, at)?;
    let graph = Graph::of(&gathered.interactions);
    Ok(Some(match line.minima.is_some() {
        true => graph.minima(target),
        false => graph.maxima(target),
    }))
}

/// The first event of a thread at or behind a position.
fn next_of(gathered: &Gathered, thread: ThreadId, at: Position) -> Result<usize, Failed> {
    let all = &gathered.interactions;
    let of = |n: &usize| all[*n].thread == thread;
    let target = (0..all.len())
        .filter(of)
        .find(|&n| show::place(&all[n]) >= at);
    target.ok_or_else(|| {
        let last = (0..all.len()).rev().find(of);
        let hint = match last {
            Some(n) => format!("its last is at {}", show::place(&all[n])),
            None => {
                let threads: Vec<String> = gathered.threads.keys().map(u32::to_string).collect();
                format!("there are threads {}", threads.join(", "))
            }
        };
        Failed(
            NOT_FOUND,
            format!("thread {thread} has no event at or behind {at}; {hint}"),
        )
    })
}

fn told_in_order(line: &Order, gathered: &Gathered, names: &Names<'_>, order: &[usize]) -> i32 {
    if line.which.json {
        let events: Vec<_> = order.iter().map(|&n| told(gathered, names, n)).collect();
        let all = json!({ "order": order, "events": events });
        text::print(&format!("{all}\n"));
        return 0;
    }
    let mut out = String::new();
    for &n in order {
        out.push_str(&format!("{}\n", text::plain(&told(gathered, names, n))));
    }
    let left = gathered.interactions.len() - order.len();
    let count = text::counted(order.len() as u64, "event");
    let left = text::count(left as u64);
    out.push_str(&format!("possible: {count}; {left} others\n"));
    text::print(&out);
    0
}

/// The order that a file says, if it is possible.
fn by(gathered: &Gathered, names: &Names<'_>, file: &Path) -> Result<Vec<usize>, Failed> {
    let wrong = |message: String| Failed(WRONG, format!("{}: {message}", file.display()));
    let words = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut order = Vec::new();
    for word in words.split_whitespace() {
        let number = word
            .parse()
            .ok()
            .filter(|&n: &usize| n < gathered.interactions.len());
        order.push(number.ok_or_else(|| {
            let most = gathered.interactions.len();
            wrong(format!(
                "{word:?} is no event's number; there are {most}, from 0 on"
            ))
        })?);
    }
    match Graph::of(&gathered.interactions).allows(&order) {
        Ok(()) => Ok(order),
        Err(impossible) => Err(Failed(
            NOT_FOUND,
            format!(
                "impossible:\n{}\ncan't come before\n{}",
                told(gathered, names, impossible.second),
                told(gathered, names, impossible.first)
            ),
        )),
    }
}
