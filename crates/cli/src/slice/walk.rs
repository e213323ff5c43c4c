//! Along a slice, the program standing at each statement. In: lines that somebody types, or gdb's. Out: statements, stacks
//! and values there.

use std::io::{BufRead, IsTerminal, Write};

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, slice as closure};
use clew_slice::failure::what_failed;
use clew_slice::tour::Tour;
use clew_symbols::expr::Bindings;
use clew_timeline::program::Program;
use clew_timeline::{Position, Target, Timeline};

use super::way::Way;
use crate::asking::{Asked, Failed, meant};
use crate::text;

const HELP: &str = "\
up               to the statement that uses this
down [N]         to the one that it uses, or another of those
next, prev [N]   along the list: older, newer
N                to a statement by its number
list             the statements around
bt               the stack here
print EXPR       a value here
quit
";

/// The slice of a value where a timeline stands, or of what failed; it stays there.
pub fn tour(
    timeline: &mut Timeline,
    program: &mut Program,
    recording: &Recording,
    what: &str,
) -> Result<Tour, String> {
    let question = match what {
        "" => {
            what_failed(timeline, program, recording)
                .map_err(|error| error.to_string())?
                .ok_or("nothing failed here; ask for a value: clew slice EXPRESSION")?
                .question
        }
        what => Question {
            values: vec![meant(timeline, program, what).map_err(|failed| failed.1)?.0],
            here: false,
        },
    };
    let log = recording.stream(timeline.stream());
    let log = log.map_err(|error| error.to_string())?;
    let modules = program
        .modules(timeline)
        .map_err(|error| error.to_string())?;
    let (kinds, bounds) = (Kinds::default(), Bounds::default());
    let found = closure(timeline, log, modules.clone(), &question, kinds, bounds);
    let found = found.map_err(|error| error.to_string())?;
    Tour::new(found, &modules).ok_or_else(|| {
        "nothing was computed for it: it was there from the beginning, or came in by a call".into()
    })
}

/// What `clew slice` does in gdb: a word goes along the slice that was asked for last, all else asks. Where to, and what to say.
pub fn in_gdb(
    last: &mut Option<Tour>,
    timeline: &mut Timeline,
    program: &mut Program,
    recording: &Recording,
    words: &str,
) -> Result<(Option<Position>, String), String> {
    let word = words.split_whitespace().next().unwrap_or_default();
    let number = word.parse::<usize>().is_ok();
    if !Tour::is_word(word) && !number {
        let new = last.insert(tour(timeline, program, recording, words)?);
        return Ok((Some(new.position()), new.list()));
    }
    // An execution slice has its statements with it.
    if last.is_none()
        && let Some(way) = Way::of(recording.folder()).map_err(|failed| failed.1)?
    {
        let here = timeline.position().map_err(|error| error.to_string())?;
        return way.go(words, here);
    }
    let all = "there is no slice yet; ask for one: clew slice EXPRESSION";
    let tour = last.as_mut().ok_or(all)?;
    if word == "list" {
        return Ok((None, tour.list()));
    }
    tour.go(words)?;
    Ok((Some(tour.position()), tour.here()))
}

/// Goes along a slice as somebody types.
pub fn interactively(asked: &mut Asked, mut tour: Tour) -> Result<(), Failed> {
    told(&tour.list());
    let stdin = std::io::stdin();
    let prompts = stdin.is_terminal();
    asked.timeline.seek(Target::Position(tour.position()))?;
    let mut input = stdin.lock();
    while let Some(line) = typed(&mut input, prompts) {
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => {}
            "q" | "quit" | "exit" => break,
            "help" => text::print(HELP),
            "l" | "list" => told(&tour.list()),
            "bt" | "backtrace" => stack(asked, tour.thread())?,
            "p" | "print" => value(asked, rest)?,
            _ => match tour.go(line) {
                Ok(()) => {
                    asked.timeline.seek(Target::Position(tour.position()))?;
                    told(&tour.here());
                }
                Err(why) => told(&why),
            },
        }
    }
    Ok(())
}

/// A line, after a prompt if somebody is there to see it; none at the end.
fn typed(input: &mut impl BufRead, prompts: bool) -> Option<String> {
    if prompts {
        text::print("slice> ");
        let _ = std::io::stdout().flush();
    }
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line),
    }
}

fn told(text: &str) {
    let lines = text.lines().map(|line| format!("{}\n", text::plain(line)));
    text::print(&lines.collect::<String>());
}

fn stack(asked: &mut Asked, thread: u32) -> Result<(), Failed> {
    let stack = asked.program.stack(&mut asked.timeline, thread)?;
    for (n, frame) in stack.frames.iter().enumerate() {
        let function = frame.function.as_deref().unwrap_or("??");
        let at = match &frame.line {
            Some(line) => format!("{}:{}", line.file, line.line),
            None => format!("{:#x}", frame.pc),
        };
        told(&format!("#{n:<3} {function} at {at}"));
    }
    Ok(())
}

fn value(asked: &mut Asked, what: &str) -> Result<(), Failed> {
    const TICKS: u64 = 10_000_000;
    let (timeline, program) = (&mut asked.timeline, &mut asked.program);
    let answer = program.evaluate(timeline, what, &mut Bindings::default(), TICKS);
    let text = match answer.map(|answer| answer.value) {
        Ok(Ok(value)) => format!("{what} = {}\n", value.text),
        Ok(Err(problem)) => format!("{}\n", problem.pointed(what)),
        Err(error) => format!("{error}\n"),
    };
    told(&text);
    Ok(())
}
