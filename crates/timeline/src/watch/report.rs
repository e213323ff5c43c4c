//! What a watch found, in words. In: a report. Out: text for people, safe to print.

use super::{Found, Report, Seen};
use crate::transition::Flip;

impl Report {
    /// Whether a flip was found.
    pub fn is_found(&self) -> bool {
        !self.flips.is_empty()
    }

    /// In words for people; each flip's position, stack and values. `paint`: how titles look.
    pub fn text(&self, paint: &dyn Fn(Tint, &str) -> String) -> String {
        let mut out = String::new();
        let mut say = |line: String| {
            out.push_str(line.trim_end());
            out.push('\n');
        };
        if !self.samples.is_empty() {
            let ends = [&self.from].into_iter();
            for seen in ends.chain(&self.samples).chain([&self.to]) {
                say(format!(
                    "{:>16}  {}",
                    seen.position.to_string(),
                    plain(&seen.text)
                ));
            }
            say(String::new());
        }
        if self.flips.is_empty() {
            say(self.nothing());
            return out;
        }
        for (n, found) in self.flips.iter().enumerate() {
            if n > 0 {
                say(String::new());
            }
            found.describe(&self.expression, paint, &mut say);
        }
        out
    }

    /// Why there is no flip.
    fn nothing(&self) -> String {
        let word = |seen: &Seen| match seen.truth {
            Some(true) => "true".to_string(),
            Some(false) => "false".to_string(),
            None => plain(&seen.text),
        };
        let (from, to) = (&self.from, &self.to);
        let ends = match (from.truth, to.truth) {
            (Some(a), Some(b)) if a == b => {
                format!(
                    "{} is {a} at both ends ({} and {})",
                    self.expression, from.position, to.position
                )
            }
            _ => format!(
                "{} is {} at {}, {} at {}",
                self.expression,
                word(from),
                from.position,
                word(to),
                to.position
            ),
        };
        let defined = self.samples.iter().filter(|seen| seen.truth.is_some());
        let truths: Vec<bool> = defined.filter_map(|seen| seen.truth).collect();
        match (self.samples.len(), truths.first()) {
            (0, _) => format!(
                "{ends}: no flip to search for. --sample N looks at N places in between; --from and --to \
                 choose others."
            ),
            (looked, None) => format!(
                "{ends}, and undefined at {looked} places in between. --sample N looks at more."
            ),
            (looked, Some(truth)) => format!(
                "{ends}, and {truth} wherever it is defined among {looked} places in between. --sample N \
                 looks at more; --from and --to choose others."
            ),
        }
    }
}

/// What a piece of a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Title,
    Position,
    Source,
    Faint,
}

impl Found {
    /// The function of a frame.
    pub fn function(&self, frame: usize) -> &str {
        let function = self.stack.frames.get(frame);
        let function = function.and_then(|frame| frame.function.as_deref());
        function.unwrap_or("??")
    }

    fn describe(
        &self,
        expression: &str,
        paint: &dyn Fn(Tint, &str) -> String,
        say: &mut dyn FnMut(String),
    ) {
        let became = self.flip.to();
        let position = self.flip.before().to_string();
        let place = paint(Tint::Position, &position);
        let title = paint(Tint::Title, &format!("{expression} becomes {became}"));
        match &self.flip {
            Flip::At { .. } => say(format!("{title} at {place}")),
            Flip::Across { after, why, .. } => {
                say(format!(
                    "{title} somewhere between {place} and {after}: it is undefined in between"
                ));
                say(format!("  ({})", plain(why)));
            }
        }
        let thread = &self.thread;
        let name = plain(&thread.name);
        let function = self.function(0);
        say(format!(
            "  thread {} ({name}, tid {}) in {}",
            thread.number,
            thread.tid,
            plain(function)
        ));
        if self.frame > 0 {
            say(format!(
                "  called from {}",
                plain(self.function(self.frame))
            ));
        }
        if let Some(event) = &self.event {
            say(format!("  by {event}"));
        }
        if let Some(line) = &self.line {
            say(format!("  {}:{}", plain(&line.file), line.line));
            if let Some(source) = &self.source {
                let number = line.line.to_string();
                let text = paint(Tint::Source, &plain(source));
                say(format!("  {}  {text}", paint(Tint::Faint, &number)));
            }
        }
        say(String::new());
        let width = self
            .values
            .iter()
            .map(|change| change.expression.chars().count());
        let width = width.max().unwrap_or(0).min(40);
        for change in &self.values {
            let fill = " ".repeat(width.saturating_sub(change.expression.chars().count()));
            let (before, after) = (plain(&change.before), plain(&change.after));
            let expression = plain(&change.expression);
            if before == after {
                say(format!("  {expression}{fill}  {before}"));
            } else {
                say(format!("  {expression}{fill}  {before} -> {after}"));
            }
        }
        say(String::new());
        for (n, frame) in self.stack.frames.iter().enumerate() {
            say(format!("  #{n:<3}{}", plain(&frame.to_string())));
        }
    }
}

/// A program's strings without what a terminal would obey.
fn plain(text: &str) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::new();
    for c in text.chars() {
        if odd(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}
