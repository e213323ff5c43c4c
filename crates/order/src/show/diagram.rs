//! The diagram for a terminal: threads as columns, Lamport time downwards, arrows from one column to another. In: what is
//! shown. Out: lines of text.

use clew_recording::event::ThreadId;

use super::Shown;

/// Columns of text for each thread, if there is room.
const WIDEST: usize = 22;
const NARROWEST: usize = 10;
/// For time and position, and for the line at the end.
const MARGIN: usize = 30;

/// `width` of the terminal; `plain` makes text that nobody else's terminal is upset by; `colour` of an object.
pub fn draw(
    shown: &Shown,
    width: usize,
    plain: &dyn Fn(&str) -> String,
    colour: &dyn Fn(u32, &str) -> String,
) -> String {
    let count = shown.threads.len().max(1);
    let column = (width.saturating_sub(MARGIN + 6) / count).clamp(NARROWEST, WIDEST);
    let at = |thread: ThreadId| shown.threads.iter().position(|(one, _)| *one == thread);
    let mut text = format!("{:>6}  ", "LC");
    for (_, name) in &shown.threads {
        text.push_str(&fit(&plain(name), column));
    }
    text.push('\n');
    // Where each thread's line begins and ends.
    let lives: Vec<(usize, usize)> = shown
        .threads
        .iter()
        .map(|(thread, _)| {
            let of = |row: &super::Row| row.thread == *thread;
            let first = shown.rows.iter().position(of).unwrap_or(usize::MAX);
            let last = shown.rows.iter().rposition(of).unwrap_or(0);
            (first, last)
        })
        .collect();
    let mut arrows: Vec<Option<usize>> = vec![None; shown.rows.len()];
    for &(from, to) in &shown.edges {
        if shown.rows[from].thread != shown.rows[to].thread {
            arrows[to] = at(shown.rows[from].thread);
        }
    }
    for &(row, thread) in &shown.from_elsewhere {
        arrows[row] = arrows[row].or(at(thread));
    }
    for (n, row) in shown.rows.iter().enumerate() {
        let Some(mine) = at(row.thread) else { continue };
        text.push_str(&format!("{:>6}  ", row.t));
        let label = format!("{} {}", row.code, plain(&row.name));
        for (k, &(first, last)) in lives.iter().enumerate() {
            let lives = (first..=last).contains(&n);
            let arrow = arrows[n].filter(|&from| from != mine);
            let cell = match arrow {
                _ if k == mine => {
                    let (left, right) = match arrow {
                        Some(from) if from < mine => ("▶ ", ""),
                        Some(_) => ("", " ◀"),
                        None => ("", ""),
                    };
                    let room = column - 1 - left.chars().count() - right.chars().count();
                    let label = cut(&label, room);
                    let used = left.chars().count() + label.chars().count() + right.chars().count();
                    let fill = match arrow {
                        Some(from) if from > mine => "─",
                        _ => " ",
                    };
                    let label = colour(row.object, &label);
                    format!("{left}{label}{right}{}", fill.repeat(column - used))
                }
                Some(from) if k == from && from < mine => format!("├{}", "─".repeat(column - 1)),
                Some(from) if k == from => format!("┤{}", " ".repeat(column - 1)),
                Some(from) if (from.min(mine)..from.max(mine)).contains(&k) => {
                    let mark = if lives { "┼" } else { "─" };
                    format!("{mark}{}", "─".repeat(column - 1))
                }
                _ if lives => format!("│{}", " ".repeat(column - 1)),
                _ => " ".repeat(column),
            };
            text.push_str(&cell);
        }
        let line = row
            .line
            .short()
            .map(|line| plain(&line))
            .unwrap_or_default();
        text.push_str(&format!(" {:<14} {line}\n", row.position));
    }
    text
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.into(),
        false => {
            let kept: String = text.chars().take(most.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

fn fit(text: &str, width: usize) -> String {
    let text = cut(text, width - 1);
    let used = text.chars().count();
    format!("{text}{}", " ".repeat(width - used))
}
