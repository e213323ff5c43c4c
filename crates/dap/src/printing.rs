//! Log points. In: a place, a condition, a message with expressions. Out: the message for every time that the place was come to, over
//! the whole recording at once; nobody needs to go there.

use clew_debugger::{BreakpointId, Spot};
use serde_json::json;

use crate::session::{Failed, Open};
use crate::stops::Count;
use crate::wire::Outbox;

/// More lines of one log point aren't told.
const MOST: usize = 5_000;

/// A log point.
#[derive(Clone, PartialEq)]
pub struct Print {
    pub spot: Spot,
    pub condition: Option<String>,
    pub count: Option<Count>,
    pub message: String,
}

/// A piece of a message.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    /// Number among the expressions.
    Value(usize),
}

/// A message as text and expressions in braces. A brace that isn't closed is text.
fn pieces(message: &str) -> (Vec<Piece<'_>>, Vec<String>) {
    let (mut pieces, mut expressions) = (Vec::new(), Vec::new());
    let mut rest = message;
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else {
            break;
        };
        pieces.push(Piece::Text(&rest[..open]));
        pieces.push(Piece::Value(expressions.len()));
        expressions.push(rest[open + 1..open + length].trim().to_string());
        rest = &rest[open + length + 1..];
    }
    pieces.push(Piece::Text(rest));
    (pieces, expressions)
}

impl Open {
    /// Tells what all new log points print. Before the editor has set all it wants, nothing.
    pub fn print(&mut self, out: &Outbox) {
        if !self.begun {
            return;
        }
        for (id, print) in std::mem::take(&mut self.stops.unprinted) {
            let why = match self.print_one(id, &print, out) {
                Ok(()) => continue,
                Err(Failed::Cancelled) => "interrupted".into(),
                Err(Failed::Because(why)) => why,
            };
            let said = format!("clew: the log point {:?}: {why}\n", print.message);
            out.event("output", json!({"category": "important", "output": said}));
        }
    }

    fn print_one(&mut self, id: BreakpointId, print: &Print, out: &Outbox) -> Result<(), Failed> {
        let (pieces, expressions) = pieces(&print.message);
        let condition = print.condition.as_deref();
        // With a count, some of them aren't told.
        let most = match print.count {
            None => MOST,
            Some(_) => usize::MAX,
        };
        let found = self
            .debugger
            .executions(&print.spot, condition, &expressions, most)?;
        let known = self.debugger.breakpoints().iter().find(|one| one.id == id);
        let place = known.and_then(|one| one.locations.first()).cloned();
        let counted = (1..).zip(&found.executions);
        let counted = counted.filter(|(n, _)| print.count.is_none_or(|count| count.counts(*n)));
        let mut told = 0;
        for (_, execution) in counted.take(MOST) {
            let mut text = format!("{}  ", execution.position);
            for piece in &pieces {
                match piece {
                    Piece::Text(part) => text.push_str(part),
                    Piece::Value(n) => match &execution.values[*n] {
                        Ok(value) => text.push_str(value),
                        Err(why) => text.push_str(&format!("<{why}>")),
                    },
                }
            }
            let mut body = json!({"category": "console", "output": format!("{text}\n")});
            if let Some(at) = &place
                && let (Some(file), Some(line)) = (&at.file, at.line)
            {
                body["source"] = json!({"path": file});
                body["line"] = (line + self.references.first_line - 1).into();
            }
            out.event("output", body);
            told += 1;
        }
        let said = match (found.interrupted, found.complete, told) {
            (true, ..) => "(interrupted: these are the first)".to_string(),
            (_, _, 0) => format!("(nothing comes to the log point {:?})", print.message),
            (_, true, told) if told < MOST => return Ok(()),
            _ => format!("(the first {MOST}; with a condition there are fewer)"),
        };
        out.event(
            "output",
            json!({"category": "console", "output": format!("{said}\n")}),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_expressions() {
        use Piece::*;
        let (found, expressions) = pieces("a {x + 1}, {y}{z} {open");
        assert_eq!(
            found,
            [
                Text("a "),
                Value(0),
                Text(", "),
                Value(1),
                Text(""),
                Value(2),
                Text(" {open"),
            ]
        );
        assert_eq!(expressions, ["x + 1", "y", "z"]);
        assert_eq!(pieces("").0, [Text("")]);
    }
}
