//! What a hunt says about a program's lines. In: an explained run, a minimized one. Out: text for people.

use clew_hunt::explain::{Explained, Preemption, Spot, Waiting, WaitsFor, Who};
use clew_hunt::minimize::{Minimized, Smaller, Stopped};

use crate::text::{self, Style};

/// So many preemptions are shown.
const MOST: usize = 20;

/// A deadlock: who waits for whom. `note` is what the recording says, without lines.
pub fn deadlock(note: &str, explained: Option<&Result<Explained, String>>) -> String {
    let mut out = String::new();
    let mut say = |line: &str| out.push_str(&format!("  {}\n", text::plain(line)));
    let rows = match explained {
        Some(Ok(explained)) => &explained.deadlock[..],
        _ => &[],
    };
    for line in note.lines() {
        let row = rows.iter().find(|row| {
            let its = line.strip_prefix("thread ");
            let its = its.and_then(|rest| rest.split(' ').next());
            its.is_some_and(|tid| tid == row.thread.tid.to_string())
        });
        match row {
            Some(row) => say(&waits(row)),
            None => say(line),
        }
    }
    match explained {
        Some(Err(why)) => say(&format!("(no lines: {why})")),
        Some(Ok(explained)) if explained.deadlock.is_empty() => say("(no lines)"),
        _ => {}
    }
    out
}

/// A death by a signal: where, and what was called from where.
pub fn crash(explained: Option<&Result<Explained, String>>) -> String {
    let Some(Ok(Explained {
        crash: Some(crash), ..
    })) = explained
    else {
        return String::new();
    };
    let mut out = String::new();
    let of = match crash.program.is_empty() {
        true => String::new(),
        false => format!(" of process {}", crash.pid),
    };
    let place = match crash.stack.first() {
        Some(spot) if spot.inside.is_some() => "was",
        _ => "was at",
    };
    let mut before = format!("{}{of} {place}", who(&crash.thread));
    for spot in &crash.stack {
        out.push_str(&format!("  {}\n", text::plain(&format!("{before} {spot}"))));
        if let Some(source) = &spot.source {
            out.push_str(&format!("      {}\n", text::plain(source)));
        }
        before = "called from".into();
    }
    if !crash.program.is_empty() {
        let words = crash.program.join(" ");
        out.push_str(&format!("  (clew debug {words} shows that process)\n"));
    }
    out
}

/// `thread 7 waits for the lock b at 0x1f0 (a.c:12 in f), which thread 8 has, taken at a.c:10 in f`
fn waits(row: &Waiting) -> String {
    let lock = row.lock.as_deref().unwrap_or("?");
    let variable = row.variable.as_deref();
    let what = match (row.waits_for, variable) {
        (WaitsFor::Lock, Some(name)) => format!("for the lock `{name}` at {lock}"),
        (WaitsFor::Lock, None) => format!("for the lock at {lock}"),
        (WaitsFor::End, _) => format!("for thread {} to end", row.other.unwrap_or(0)),
        (WaitsFor::Wake, Some(name)) => format!("at `{name}` ({lock}) to be woken"),
        (WaitsFor::Wake, None) => format!("at {lock} to be woken"),
    };
    let mut line = format!("{} waits {what} ({})", who(&row.thread), row.at.caller());
    if row.waits_for == WaitsFor::Lock {
        let owner = match row.other {
            Some(other) if other == row.thread.tid => "it has itself".into(),
            other => format!("thread {} has", other.unwrap_or(0)),
        };
        line.push_str(&format!(", which {owner}"));
        if let Some(taken) = &row.taken {
            line.push_str(&format!(", taken at {}", taken.caller()));
        }
    }
    line
}

fn who(who: &Who) -> String {
    match &who.name {
        Some(name) => format!("thread {} ({name})", who.tid),
        None => format!("thread {}", who.tid),
    }
}

/// What came of minimizing `name`. `again`: the command that follows a schedule.
pub fn minimized(
    name: &str,
    minimized: &Minimized,
    style: Style,
    again: &dyn Fn(&Smaller) -> String,
) -> String {
    let name = text::plain(name);
    match minimized {
        Minimized::Smaller(smaller) => smaller_text(smaller, style, again),
        Minimized::NotAgain { tries, with_plan } => {
            let plan = match with_plan {
                0 => format!("neither did it with the options of {name}, in as many tries: "),
                n => format!("with the options of {name} it did {n} times: "),
            };
            let so = match with_plan {
                0 => "it depends on more than the schedule",
                _ => "the schedule alone doesn't bring it about",
            };
            format!(
                "not minimized: {name} didn't fail again when its schedule was followed, in {tries} tries; {plan}{so}\n"
            )
        }
        Minimized::Stopped(stopped) => {
            format!("not minimized: {}\n", stopped_text(*stopped))
        }
        Minimized::Failed(why) => format!("not minimized: {}\n", text::plain(why)),
    }
}

fn stopped_text(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Runs => "the runs are used up",
        Stopped::Time => "the time is used up",
        Stopped::Interrupted => "interrupted",
    }
}

fn smaller_text(smaller: &Smaller, style: Style, again: &dyn Fn(&Smaller) -> String) -> String {
    let name = text::plain(&smaller.name);
    let mut out = format!(
        "minimized: {}, {}, with {} instead of {} ({} in {})\n",
        style.bold(&name),
        style.bad(&text::plain(&smaller.why)),
        text::counted(smaller.preemptions, "preemption"),
        text::count(smaller.before),
        text::counted(smaller.runs, "run"),
        text::duration(smaller.elapsed.as_nanos() as u64),
    );
    let mut say = |line: String| out.push_str(&format!("  {line}\n"));
    if let Some(stopped) = smaller.stopped {
        let why = stopped_text(stopped);
        say(format!("{why}; fewer may be enough"));
    }
    if smaller.preemptions == 0 {
        say("no preemption is needed: the order in which threads run is enough, or any is".into());
    }
    match &smaller.explained {
        Ok(explained) => {
            for preemption in explained.preemptions.iter().take(MOST) {
                for line in switched(preemption, style) {
                    say(line);
                }
            }
            let more = explained.all_preemptions.saturating_sub(MOST as u64);
            if more > 0 {
                say(format!("and {} more", text::count(more)));
            }
        }
        Err(why) => say(format!("(no lines: {})", text::plain(why))),
    }
    let (failed, tried) = smaller.confirmed;
    if failed < tried {
        say(format!(
            "followed {tried} times more, this schedule failed {failed} times: it isn't all that matters"
        ));
    }
    let program = smaller.explained.as_ref().map(|told| &told.program[..]);
    let mut debug = vec!["clew".into(), "debug".into(), smaller.name.clone()];
    debug.extend_from_slice(program.unwrap_or_default());
    let mut row = |what: &str, command: String| say(format!("{what:9}{command}"));
    row("replay", format!("clew replay {name}"));
    row("debug", text::command(&debug));
    row("again", again(smaller));
    out
}

/// A preemption, in some lines.
pub fn switched(preemption: &Preemption, style: Style) -> Vec<String> {
    let mut lines = vec![format!(
        "{} was switched away here (at {}): {}",
        text::plain(&who(&preemption.thread)),
        preemption.position,
        text::plain(&preemption.at.to_string()),
    )];
    let source = |spot: &Spot| {
        let source = spot.source.as_deref().map(text::plain);
        source.map(|source| format!("    {}", style.faint(&source)))
    };
    lines.extend(source(&preemption.at));
    let (to, goes_on) = (text::plain(&who(&preemption.to)), &preemption.goes_on);
    let place = text::plain(&goes_on.to_string());
    lines.push(match (preemption.begins, &goes_on.source) {
        (true, Some(_)) => format!("to this line of {to}, which begins: {place}"),
        // It stands in the C library still.
        (true, None) => format!("to {to}, which begins"),
        (false, _) => format!("to this line of {to}: {place}"),
    });
    lines.extend(source(goes_on));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadlock_reads_well() {
        let spot = |line| Spot {
            function: Some("transfer".into()),
            file: Some("/src/bank.c".into()),
            line: Some(line),
            inside: Some("pthread_mutex_lock".into()),
            ..Spot::default()
        };
        let who = |tid| Who {
            number: 1,
            tid,
            name: None,
        };
        let explained = Explained {
            deadlock: vec![Waiting {
                thread: who(8),
                waits_for: WaitsFor::Lock,
                lock: Some("0x1f0".into()),
                variable: Some("accounts[1].lock".into()),
                other: Some(9),
                at: spot(31),
                taken: Some(spot(29)),
            }],
            ..Explained::default()
        };
        let note = "no thread can ever go on\nthread 7 waits for thread 8 to end\n\
                    thread 8 waits for the lock at 0x1f0, which thread 9 has";
        assert_eq!(
            deadlock(note, Some(&Ok(explained))),
            "  no thread can ever go on\n  thread 7 waits for thread 8 to end\n  thread 8 waits for the lock \
             `accounts[1].lock` at 0x1f0 (bank.c:31 in transfer), which thread 9 has, taken at bank.c:29 in transfer\n"
        );
        let without = deadlock(note, Some(&Err("it took too long".into())));
        assert!(without.ends_with("which thread 9 has\n  (no lines: it took too long)\n"));
    }
}
