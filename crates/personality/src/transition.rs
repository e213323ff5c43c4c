//! The line that makes a condition true, or false. In: an expression of the language. Out: one line, the stack there, and
//! values before and after it.
//!
//! As in FReD: a condition that is one thing at one place and another later is asked in the middle until nothing is
//! left in between. Places are beginnings of lines, so that half-done statements don't count. Where names aren't known it is
//! undefined, and the search goes round.

use clew_recording::event::ThreadId;
use clew_timeline::{At, Position, Target};

use crate::going::{Why, Wish};
use crate::{Error, Frame, Question, Result, Session, Value, What};

/// Places that are looked at before a search, evenly over the whole.
const SAMPLES: u64 = 24;
/// In a stretch where it is undefined, so many places are tried.
const LOOKS: u64 = 7;

/// A condition's value at the beginning of a line.
#[derive(Clone, Debug)]
pub struct Probe {
    pub position: Position,
    pub value: Value,
    work: u64,
    at: At,
}

/// The line that flips a condition.
#[derive(Clone, Debug)]
pub struct Flip {
    pub before: Probe,
    pub after: Probe,
    /// What it becomes.
    pub to: bool,
    /// It was undefined wherever it was asked in between.
    pub across: bool,
    pub thread: ThreadId,
    /// Of the line, innermost first.
    pub stack: Vec<Frame>,
    /// Parts of the expression.
    pub values: Vec<Changed>,
    /// The instruction that does it, where that was asked for.
    pub exactly: Option<Position>,
}

/// A value before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub expression: String,
    pub before: Value,
    pub after: Value,
}

/// What to look for, and where.
#[derive(Clone, Debug, Default)]
pub struct Sought<'a> {
    pub expression: &'a str,
    pub from: Option<Target>,
    pub to: Option<Target>,
    /// Also inside the line, to the instruction.
    pub any_place: bool,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Searched {
    pub flip: Option<Flip>,
    /// At the beginning and at the end of where was looked, or of where it is defined.
    pub first: Probe,
    pub last: Probe,
    pub probes: usize,
}

impl Session {
    /// A line that flips a condition to what it is at the end. Stands before it afterwards; where there is none, where it
    /// stood before.
    pub fn transition(&mut self, sought: &Sought<'_>) -> Result<Searched> {
        let here = self.view.timeline.at();
        let found = Search {
            session: self,
            sought,
            probes: 0,
        }
        .run();
        self.stand(here, &found)?;
        found
    }

    /// The line that last changed an expression's value, as far as was looked: places between that line and the end at which
    /// it is the same are looked at, not all. Stands before it afterwards, as [`Session::transition`] does.
    pub fn last_change(&mut self, sought: &Sought<'_>) -> Result<Searched> {
        let here = self.view.timeline.at();
        let found = Search {
            session: self,
            sought,
            probes: 0,
        }
        .run_last();
        self.stand(here, &found)?;
        found
    }

    fn stand(&mut self, here: At, found: &Result<Searched>) -> Result<()> {
        let at = match found {
            Ok(Searched {
                flip: Some(flip), ..
            }) => flip.before.at,
            _ => here,
        };
        Ok(self.view.timeline.return_to(at)?)
    }
}

struct Search<'a, 'b> {
    session: &'a mut Session,
    sought: &'b Sought<'b>,
    probes: usize,
}

impl Search<'_, '_> {
    /// Values at the beginning, at the end, and at some places in between.
    fn survey(&mut self) -> Result<Vec<Probe>> {
        self.session.begin()?;
        if let Some(from) = self.sought.from {
            self.session.view.timeline.seek(from)?;
            self.on_line()?;
        }
        let first = self.probe()?;
        let timeline = &mut self.session.view.timeline;
        timeline.seek(self.sought.to.unwrap_or(Target::End))?;
        self.go_to_line()?;
        let last = self.probe()?;
        let mut all = self.samples(&first, &last)?;
        // Names are forgotten at an interpreter's end; most are known in the main program's last line.
        if last.value.truth().is_none()
            && let Some((thread, frame)) = self.session.main.clone()
        {
            self.session.view.timeline.return_to(last.at)?;
            self.session.plain(Wish::BackNext { thread, frame })?;
            let position = self.session.position()?;
            if first.position < position && position < last.position {
                let at = all.partition_point(|one| one.position < position);
                let probe = self.probe()?;
                all.insert(at, probe);
            }
        }
        Ok(all)
    }

    fn run_last(&mut self) -> Result<Searched> {
        let all = self.survey()?;
        let (first, last) = (all[0].clone(), all[all.len() - 1].clone());
        let mut flip = None;
        let mut samples = all;
        // Places behind the change that was found are looked at, until nothing differs there.
        while let Some(n) = samples.iter().rposition(|one| one.value != last.value) {
            let (a, b) = (samples[n].clone(), samples[n + 1].clone());
            let (before, after) = self.halve(a, b, false, |value| *value != last.value)?;
            samples = self.samples(&after, &last)?;
            flip = Some((before, after));
        }
        let flip = match flip {
            Some((before, after)) => {
                let to = last.value.truth().unwrap_or(true);
                Some(self.tell(before, after, to)?)
            }
            None => None,
        };
        Ok(Searched {
            flip,
            first,
            last,
            probes: self.probes,
        })
    }

    fn run(&mut self) -> Result<Searched> {
        let expression = self.sought.expression;
        let mut all = self.survey()?;
        all.dedup_by(|a, b| a.position == b.position);
        // The end of where it is defined.
        if let Some(defined) = all.iter().rposition(|probe| probe.value.truth().is_some()) {
            if defined + 1 < all.len() {
                let (a, b) = (all[defined].clone(), all[defined + 1].clone());
                all.truncate(defined + 1);
                let defined = |value: &Value| value.truth().is_some();
                let (last, _) = self.halve(a, b, false, defined)?;
                all.push(last);
            }
        } else {
            let why = all.last().map(|probe| probe.value.text());
            return Err(Error::Refused(format!(
                "{expression}: undefined at all {} places that were looked at: {}",
                all.len(),
                why.unwrap_or_default()
            )));
        }
        let (first, last) = (all[0].clone(), all[all.len() - 1].clone());
        let to = last
            .value
            .truth()
            .ok_or(Error::Refused("undefined".into()))?;
        let flip = self.first_flip(&all, to)?;
        Ok(Searched {
            flip,
            first,
            last,
            probes: self.probes,
        })
    }

    /// The first pair of places between which it becomes `to`, halved.
    fn first_flip(&mut self, all: &[Probe], to: bool) -> Result<Option<Flip>> {
        let defined: Vec<&Probe> = all
            .iter()
            .filter(|probe| probe.value.truth().is_some())
            .collect();
        let mut pairs = defined.windows(2);
        let pair = pairs
            .find(|pair| pair[0].value.truth() == Some(!to) && pair[1].value.truth() == Some(to));
        let pair = match pair {
            Some(pair) => (pair[0].clone(), pair[1].clone()),
            // It was so at all places that were looked at. Between being undefined and that it may have been otherwise.
            None => {
                let Some(b) = defined.first() else {
                    return Ok(None);
                };
                let at = all.iter().position(|probe| probe.position == b.position);
                let Some(at) = at.filter(|&at| at > 0) else {
                    return Ok(None);
                };
                let is_defined = |value: &Value| value.truth().is_none();
                let (_, first) =
                    self.halve(all[at - 1].clone(), (*b).clone(), false, is_defined)?;
                match first.value.truth() {
                    Some(truth) if truth != to => (first, (*b).clone()),
                    _ => return Ok(None),
                }
            }
        };
        self.flip(pair.0, pair.1, to).map(Some)
    }

    fn flip(&mut self, a: Probe, b: Probe, to: bool) -> Result<Flip> {
        // Where it is undefined all around, that counts as not yet.
        let (before, after) = self.halve(a, b, true, |value| value.truth() != Some(to))?;
        self.tell(before, after, to)
    }

    fn tell(&mut self, before: Probe, after: Probe, to: bool) -> Result<Flip> {
        let across = before.value.truth().is_none();
        // The line that began last needn't have done it: it may have returned, and its caller's line, which began before,
        // goes on; or another thread's. The instruction decides.
        let exactly = self.inside(&before, &after)?;
        let thread = self.session.thread();
        let mut stack = match self.session.stack_of(thread) {
            // In the midst of a call a frame may be half made.
            Err(Error::Refused(_)) => Vec::new(),
            stack => stack?,
        };
        if stack.iter().all(|frame| frame.hidden) {
            self.session.view.timeline.return_to(before.at)?;
            stack = self.session.stack()?;
        }
        if let Some(shown) = stack.iter().position(|frame| !frame.hidden) {
            stack.drain(..shown);
        }
        let exactly = Some(exactly).filter(|_| self.sought.any_place);
        let values = self.values(&before, &after)?;
        Ok(Flip {
            before,
            after,
            to,
            across,
            thread,
            stack,
            values,
            exactly,
        })
    }

    /// The instruction that does it. Stands there afterwards.
    fn inside(&mut self, a: &Probe, b: &Probe) -> Result<Position> {
        let (mut low, mut high) = (a.position, b.position);
        while let Some(middle) = self.session.view.timeline.between(low, high)? {
            self.session.view.timeline.seek(Target::Position(middle))?;
            self.probes += 1;
            match self.value_here(self.sought.expression)? == b.value {
                true => high = middle,
                false => low = middle,
            }
        }
        self.session.view.timeline.seek(Target::Position(low))?;
        Ok(low)
    }

    /// The whole expression, and the sides of a comparison.
    fn values(&mut self, before: &Probe, after: &Probe) -> Result<Vec<Changed>> {
        let mut parts = vec![self.sought.expression.trim()];
        parts.extend(sides(self.sought.expression));
        let mut sides = Vec::new();
        for probe in [before, after] {
            self.session.view.timeline.return_to(probe.at)?;
            let question = Question {
                frame: 0,
                anywhere: true,
                what: What::Values(&parts),
            };
            let Session {
                view, personality, ..
            } = &mut *self.session;
            sides.push(personality.ask(view, &question)?.values);
        }
        let after = sides.pop().unwrap_or_default();
        let before = sides.pop().unwrap_or_default();
        let changed = before
            .into_iter()
            .zip(after)
            .map(|((expression, before), (_, after))| Changed {
                expression,
                before,
                after,
            });
        Ok(changed.collect())
    }

    fn samples(&mut self, first: &Probe, last: &Probe) -> Result<Vec<Probe>> {
        let mut all = vec![first.clone()];
        let way = last.work.saturating_sub(first.work);
        for n in 1..=SAMPLES {
            let part = u128::from(way) * u128::from(n) / u128::from(SAMPLES + 1);
            self.session
                .view
                .timeline
                .go_to_work(first.work + part as u64)?;
            self.on_line()?;
            let position = self.session.position()?;
            let so_far = all[all.len() - 1].position;
            if position > so_far && position < last.position {
                all.push(self.probe()?);
            }
        }
        all.push(last.clone());
        Ok(all)
    }

    /// Two neighbouring lines between `a`, for which something is so, and `b`, for which it isn't. `around`: places where
    /// it is undefined are left out, where there are others.
    fn halve(
        &mut self,
        mut a: Probe,
        mut b: Probe,
        around: bool,
        so: impl Fn(&Value) -> bool,
    ) -> Result<(Probe, Probe)> {
        while let Some(middle) = self.middle(&a, &b)? {
            // Of a place where it is undefined nothing follows, if one near it knows.
            let unknown = middle.value.truth().is_none() && a.value.truth().is_some();
            let middle = match around && unknown {
                true => self.around(&a, &b, middle)?,
                false => middle,
            };
            match so(&middle.value) {
                true => a = middle,
                false => b = middle,
            }
        }
        Ok((a, b))
    }

    /// A place between two where it is defined, if there is one.
    fn around(&mut self, a: &Probe, b: &Probe, undefined: Probe) -> Result<Probe> {
        let way = b.work.saturating_sub(a.work);
        for n in 1..=LOOKS {
            let part = u128::from(way) * u128::from(n) / u128::from(LOOKS + 1);
            self.session
                .view
                .timeline
                .go_to_work(a.work + part as u64)?;
            self.on_line()?;
            let position = self.session.position()?;
            if position <= a.position || position >= b.position {
                continue;
            }
            let probe = self.probe()?;
            if probe.value.truth().is_some() {
                return Ok(probe);
            }
        }
        Ok(undefined)
    }

    /// The beginning of a line between two others, about halfway; none if they are neighbours.
    fn middle(&mut self, a: &Probe, b: &Probe) -> Result<Option<Probe>> {
        let way = b.work.saturating_sub(a.work) / 2;
        if way > 0 {
            self.session.view.timeline.go_to_work(a.work + way)?;
            self.on_line()?;
            let position = self.session.position()?;
            if position > a.position && position < b.position {
                return self.probe().map(Some);
            }
        }
        // The last one before `b`, which may be `a` itself.
        self.session.view.timeline.return_to(b.at)?;
        if way > 0 {
            self.session.view.timeline.go_to_work(a.work + way)?;
        }
        self.back()?;
        let position = self.session.position()?;
        if position > a.position && position < b.position {
            return self.probe().map(Some);
        }
        if way == 0 {
            return Ok(None);
        }
        // All lines between them lie in one half that has no beginning in it: go by lines.
        self.session.view.timeline.return_to(a.at)?;
        self.on_next()?;
        let position = self.session.position()?;
        match position > a.position && position < b.position {
            true => self.probe().map(Some),
            false => Ok(None),
        }
    }

    /// On to the beginning of a line, unless one begins here.
    fn on_line(&mut self) -> Result<()> {
        let Session {
            view, personality, ..
        } = &mut *self.session;
        match personality.moment(view)? {
            Some(moment) if moment.begins && !moment.frame.hidden => Ok(()),
            _ => self.on_next(),
        }
    }

    /// Back to the beginning of a line, unless one begins here.
    fn go_to_line(&mut self) -> Result<()> {
        let Session {
            view, personality, ..
        } = &mut *self.session;
        match personality.moment(view)? {
            Some(moment) if moment.begins && !moment.frame.hidden => Ok(()),
            _ => self.back(),
        }
    }

    fn on_next(&mut self) -> Result<()> {
        self.session.plain(Wish::Step { thread: None })
    }

    fn back(&mut self) -> Result<()> {
        self.session.plain(Wish::Back { thread: None })
    }

    fn probe(&mut self) -> Result<Probe> {
        self.probes += 1;
        let position = self.session.position()?;
        let at = self.session.view.timeline.at();
        let value = self.value_here(self.sought.expression)?;
        Ok(Probe {
            position,
            value,
            work: at.work,
            at,
        })
    }

    fn value_here(&mut self, expression: &str) -> Result<Value> {
        let question = Question {
            frame: 0,
            anywhere: true,
            what: What::Values(&[expression]),
        };
        let Session {
            view, personality, ..
        } = &mut *self.session;
        let told = personality.ask(view, &question)?;
        let value = told.values.into_iter().next();
        Ok(value.map_or(Value::Undefined("no answer".into()), |(_, value)| value))
    }
}

impl Session {
    /// A move without breakpoints, which nobody undoes.
    fn plain(&mut self, wish: Wish) -> Result<()> {
        let breakpoints = std::mem::take(&mut self.breakpoints);
        let raises = std::mem::take(&mut self.at_raises);
        let went = self.go(wish);
        self.breakpoints = breakpoints;
        self.at_raises = raises;
        match went?.why {
            Why::Interrupted => Err(clew_timeline::Error::Interrupted.into()),
            _ => Ok(()),
        }
    }
}

/// The two sides of a comparison that isn't inside anything.
fn sides(expression: &str) -> Vec<&str> {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let (mut depth, mut quote) = (0i32, None);
    let bytes = expression.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth -= 1,
            _ if depth == 0 && expression.is_char_boundary(at) => {
                let found = OPERATORS
                    .iter()
                    .find(|operator| expression[at..].starts_with(**operator));
                if let Some(operator) = found {
                    let left = expression[..at].trim();
                    let right = expression[at + operator.len()..].trim();
                    // A chain of comparisons, or and-ed ones, has no two sides.
                    let simple = |side: &str| {
                        !side.is_empty()
                            && ![" and ", " or ", " not ", " if "]
                                .iter()
                                .any(|word| side.contains(word))
                    };
                    let literal =
                        |side: &str| side.starts_with(|c: char| c.is_ascii_digit() || c == '\'');
                    return match simple(left) && simple(right) {
                        true => [left, right]
                            .into_iter()
                            .filter(|side| !literal(side))
                            .collect(),
                        false => Vec::new(),
                    };
                }
            }
            _ => {}
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_have_sides() {
        assert_eq!(
            sides("sum(a.n for a in x) == 2000"),
            ["sum(a.n for a in x)"]
        );
        assert_eq!(sides("f(a < b) >= limit"), ["f(a < b)", "limit"]);
        assert_eq!(sides("a == 1 and b == 2"), Vec::<&str>::new());
        assert_eq!(sides("x is None"), Vec::<&str>::new());
    }
}
