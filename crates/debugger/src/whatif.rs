//! What if. In: something of the program that is in memory, and a value for it. Out: it has that value, in a copy that is asked
//! instead of the program, until the program moves.

use clew_recording::event::ThreadId;
use clew_symbols::expr::Evaluator;
use clew_symbols::value::{Value, Within};

use crate::debugger::Debugger;
use crate::values::{MOST, Node, ValueId};
use crate::{Error, Result};

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settable<'a> {
    /// What an expression names.
    Expression(&'a str),
    /// A part of a value that was told, by its name.
    Part(ValueId, &'a str),
}

impl Debugger {
    /// Sets something to the value of an expression in a frame. Nothing of the recording changes: from now on values and memory of this
    /// position are told as if it were so. Going anywhere ends that.
    pub fn set_value(
        &mut self,
        thread: ThreadId,
        frame: usize,
        what: Settable<'_>,
        expression: &str,
    ) -> Result<Node> {
        let (thread, within) = match what {
            Settable::Expression(_) => (thread, None),
            Settable::Part(id, _) => {
                let held = self.kept.get(id)?;
                (held.thread, Some(held.within))
            }
        };
        let text = expression.trim();
        let shown = frame + self.hidden_in(thread);
        let made = self.look(thread, |evaluator| {
            evaluator.choose_frame(shown).then(|| {
                let target = target(evaluator, what, within.as_ref())?;
                let value = evaluator.evaluate(text);
                value
                    .and_then(|value| evaluator.assignment(&target, &value))
                    .map_err(|problem| problem.pointed(text))
            })
        })?;
        let made = made.ok_or(Error::Frame(frame))?;
        self.pokes.push(made.map_err(Error::Expression)?);
        let now = match what {
            Settable::Expression(name) => self.evaluate(thread, frame, name),
            Settable::Part(id, name) => {
                let parts = self.children(id, 0, MOST)?;
                let found = parts.into_iter().find(|part| part.name == name);
                found.ok_or_else(|| Error::Expression(none(name)))
            }
        };
        if now.is_err() {
            self.pokes.pop();
        }
        now
    }

    /// Whether something was set here.
    pub fn is_changed(&self) -> bool {
        !self.pokes.is_empty()
    }
}

fn target(
    evaluator: &mut Evaluator<'_>,
    what: Settable<'_>,
    within: Option<&Within>,
) -> std::result::Result<Value, String> {
    match (what, within) {
        (Settable::Part(_, name), Some(within)) => {
            let parts = evaluator.view().some(within, 0, MOST);
            let found = parts.into_iter().find(|part| part.name == name);
            let found = found.ok_or_else(|| none(name))?;
            found.value.map_err(|error| error.to_string())
        }
        (Settable::Part(_, name), None) => Err(none(name)),
        (Settable::Expression(text), _) => evaluator
            .evaluate(text)
            .map_err(|problem| problem.pointed(text)),
    }
}

fn none(name: &str) -> String {
    format!("there is no {name} in it")
}
