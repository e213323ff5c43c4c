//! All times that a place was come to. In: a place, a condition, expressions to print there. Out: positions, with the values that the
//! expressions had.

use clew_recording::event::ThreadId;
use clew_timeline::{Position, Target};
use serde::Serialize;

use crate::condition::Condition;
use crate::debugger::{Debugger, Location};
use crate::going::{Came, Stopper};
use crate::{Direction, Error, Result, Spot};

/// All executions of a place, or as many as were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Executions {
    pub executions: Vec<Execution>,
    /// There are no more.
    pub complete: bool,
    /// Somebody interrupted: these are the executions until then.
    pub interrupted: bool,
    /// Where the place has code.
    pub locations: Vec<Location>,
}

/// A thread came to the place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Execution {
    pub position: String,
    pub thread: ThreadId,
    /// For each expression; or why it has no value there.
    pub values: Vec<std::result::Result<String, String>>,
}

impl Debugger {
    /// All times that any thread comes to a place, from the beginning of the program's life to its end, with the values of
    /// expressions there; where there is a condition, those times at which it is true. It stays where it is.
    pub fn executions(
        &mut self,
        spot: &Spot,
        condition: Option<&str>,
        expressions: &[String],
        most: usize,
    ) -> Result<Executions> {
        for text in expressions.iter().map(String::as_str).chain(condition) {
            let text = text.trim();
            clew_symbols::expr::check(text)
                .map_err(|problem| Error::Expression(problem.pointed(text)))?;
        }
        let addresses = self.addresses_of(spot)?;
        let stoppers: Vec<Stopper> = addresses
            .iter()
            .map(|&address| Stopper {
                address,
                condition: Condition::Always,
            })
            .collect();
        let mut locations = Vec::new();
        for address in addresses {
            locations.push(self.location_ever(address)?);
        }
        let (here, thread, hidden) = (self.timeline.position()?, self.thread, self.hidden);
        // What was told of this place, or is wanted to be other than it was, holds when it stands here again.
        let told = std::mem::take(&mut self.kept);
        let pokes = std::mem::take(&mut self.pokes);
        let mut found = Executions {
            executions: Vec::new(),
            complete: false,
            interrupted: false,
            locations,
        };
        self.timeline.seek(Target::Start)?;
        let looked = self.executed(&stoppers, condition, expressions, most, &mut found);
        self.return_to(here)?;
        (self.thread, self.hidden) = (thread, hidden);
        (self.kept, self.pokes) = (told, pokes);
        looked?;
        Ok(found)
    }

    fn return_to(&mut self, here: Position) -> Result<()> {
        self.timeline.seek(Target::Position(here))?;
        self.moved();
        Ok(())
    }

    fn executed(
        &mut self,
        stoppers: &[Stopper],
        condition: Option<&str>,
        expressions: &[String],
        most: usize,
        found: &mut Executions,
    ) -> Result<()> {
        loop {
            match self.search_any(Direction::Forward, None, stoppers, false, None)? {
                Came::Stopper(_) => {}
                Came::Interrupted => {
                    found.interrupted = true;
                    return Ok(());
                }
                _ => {
                    found.complete = true;
                    return Ok(());
                }
            }
            if found.executions.len() >= most {
                return Ok(());
            }
            let thread = self.timeline.at().thread;
            let wanted = |text: &str| text.trim().to_string();
            let holds = match condition.map(wanted) {
                None => true,
                // As at a breakpoint, where nobody can say it counts.
                Some(condition) => self.look(thread, |evaluator| {
                    let value = evaluator.evaluate(&condition);
                    value
                        .and_then(|value| evaluator.truth(&value))
                        .unwrap_or(true)
                })?,
            };
            if !holds {
                continue;
            }
            let mut values = Vec::new();
            for expression in expressions {
                values.push(match self.evaluate(thread, 0, expression) {
                    Ok(node) => Ok(node.text),
                    Err(error @ Error::Timeline(_)) => return Err(error),
                    Err(error) => Err(error.to_string()),
                });
            }
            found.executions.push(Execution {
                position: self.timeline.position()?.to_string(),
                thread,
                values,
            });
        }
    }
}
