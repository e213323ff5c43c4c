//! Where a condition flips. In: two positions, and a probe that says at a position if the condition holds.
//! Out: one instruction, or event, before which it is one thing and behind which the other.
//!
//! The way between two positions at which the verdicts differ is halved by work, which leads to a single
//! tick or event after log2 many probes, and then by single instructions. Each halving leaves a snapshot,
//! so no part of the program is replayed more than a few times.
//!
//! If the condition is *undefined* where it is probed (its function crashes, a variable isn't there),
//! what lies left and right of that place is searched for one where it is defined. If there is none in
//! between, all that can be said is that it flips across a stretch where it is undefined.

use crate::seek::position_of;
use crate::timeline::Timeline;
use crate::{Direction, Error, Position, Result, Target};
use clew_engine::replay::worker::protocol::{Goal, Take, Why};

/// Whether a condition holds somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    True,
    False,
    /// In words, why not.
    Undefined(String),
}

impl Verdict {
    /// None if undefined.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Verdict::True => Some(true),
            Verdict::False => Some(false),
            Verdict::Undefined(_) => None,
        }
    }
}

impl From<bool> for Verdict {
    fn from(truth: bool) -> Verdict {
        match truth {
            true => Verdict::True,
            false => Verdict::False,
        }
    }
}

/// Where a condition flips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flip {
    /// By the one instruction, or event, between these two.
    At {
        before: Position,
        after: Position,
        /// What it becomes.
        to: bool,
    },
    /// Somewhere between these two: it was undefined at all places in between that were looked at.
    Across {
        before: Position,
        after: Position,
        to: bool,
        /// Why it is undefined right behind `before`.
        why: String,
    },
}

impl Flip {
    pub fn before(&self) -> Position {
        match self {
            Flip::At { before, .. } | Flip::Across { before, .. } => *before,
        }
    }

    pub fn after(&self) -> Position {
        match self {
            Flip::At { after, .. } | Flip::Across { after, .. } => *after,
        }
    }

    /// What it becomes.
    pub fn to(&self) -> bool {
        match self {
            Flip::At { to, .. } | Flip::Across { to, .. } => *to,
        }
    }
}

/// A condition's verdict at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    pub position: Position,
    /// The way from the beginning, as [`crate::At::work`].
    pub work: u64,
    pub verdict: Verdict,
}

/// A stretch where it is undefined is looked into at so many places before it is believed.
const LOOKS: u64 = 15;
/// Looking for the first flip, so many places are looked at in each stretch, and so many times.
const DENSITY: u64 = 12;
const MOST_ROUNDS: usize = 64;
/// Instructions between two ticks; more of them are some stranger's invention.
const MOST_STEPS: usize = 1 << 20;

/// One position where the condition flips between two at which it differs. Leaves the timeline just before it.
pub fn transition(
    timeline: &mut Timeline,
    from: Position,
    to: Position,
    probe: impl FnMut(&mut Timeline) -> Result<Verdict>,
) -> Result<std::result::Result<Flip, (Verdict, Verdict)>> {
    let mut search = Search::new(timeline, probe);
    let a = search.look(Target::Position(from))?;
    let b = search.look(Target::Position(to))?;
    match (a.verdict.truth(), b.verdict.truth()) {
        (Some(x), Some(y)) if x != y => search.between(a, b).map(Ok),
        _ => Ok(Err((a.verdict, b.verdict))),
    }
}

/// A search for flips, and how many places it has looked at.
pub struct Search<'a, P> {
    timeline: &'a mut Timeline,
    probe: P,
    pub probes: usize,
}

impl<'a, P: FnMut(&mut Timeline) -> Result<Verdict>> Search<'a, P> {
    pub fn new(timeline: &'a mut Timeline, probe: P) -> Search<'a, P> {
        Search {
            timeline,
            probe,
            probes: 0,
        }
    }

    /// The verdict at a position.
    pub fn look(&mut self, at: Target) -> Result<Probed> {
        self.timeline.seek(at)?;
        self.look_here()
    }

    fn look_here(&mut self) -> Result<Probed> {
        self.probes += 1;
        let position = self.timeline.position()?;
        let work = self.timeline.at().work;
        let verdict = (self.probe)(self.timeline)?;
        Ok(Probed {
            position,
            work,
            verdict,
        })
    }

    /// Verdicts at so many places between two, evenly by work; both of them included.
    pub fn samples(&mut self, a: Probed, b: Probed, count: usize) -> Result<Vec<Probed>> {
        let (from, to) = (a.work, b.work);
        let mut all = vec![a];
        for n in 1..=count as u128 {
            let part = u128::from(to.saturating_sub(from)) * n / (count as u128 + 1);
            self.timeline.go_to_work(from + part as u64)?;
            let position = self.timeline.position()?;
            let last = all.last().map(|probed| probed.position);
            if last.is_some_and(|last| position > last) && position < b.position {
                let probed = self.look_here()?;
                all.push(probed);
            }
        }
        all.push(b);
        Ok(all)
    }

    /// One flip between two places whose verdicts differ. Leaves the timeline just before it.
    pub fn between(&mut self, mut a: Probed, mut b: Probed) -> Result<Flip> {
        let (Some(from), Some(to)) = (a.verdict.truth(), b.verdict.truth()) else {
            return Err(Error::Refused(
                "the condition is undefined at an end".into(),
            ));
        };
        loop {
            let Some(middle) = self.middle(&a, &b)? else {
                self.timeline.seek(Target::Position(a.position))?;
                return Ok(Flip::At {
                    before: a.position,
                    after: b.position,
                    to,
                });
            };
            match middle.verdict.truth() {
                Some(truth) if truth == from => a = middle,
                Some(_) => b = middle,
                None => match self.around(&mut a, &mut b, middle, from)? {
                    None => {}
                    Some(why) => {
                        self.timeline.seek(Target::Position(a.position))?;
                        return Ok(Flip::Across {
                            before: a.position,
                            after: b.position,
                            to,
                            why,
                        });
                    }
                },
            }
        }
    }

    /// From a flip on, earlier ones: looks at many places between `from` and the flip, the nearer to the flip the
    /// denser, and goes on from the first at which it holds already what it flips to. The earliest that
    /// was seen; there may be one that nobody has looked at.
    pub fn first(&mut self, from: &Probed, flip: Flip) -> Result<Flip> {
        let mut flip = flip;
        for _ in 0..MOST_ROUNDS {
            self.timeline.seek(Target::Position(flip.before()))?;
            let (before, work) = (flip.before(), self.timeline.at().work);
            match self.earlier(from, before, work, flip.to())? {
                Some(there) => flip = self.between(from.clone(), there)?,
                None => break,
            }
        }
        self.timeline.seek(Target::Position(flip.before()))?;
        Ok(flip)
    }

    /// A place before that one with that verdict: in stretches each half as long as the one before it.
    fn earlier(
        &mut self,
        from: &Probed,
        before: Position,
        work: u64,
        wanted: bool,
    ) -> Result<Option<Probed>> {
        let mut length = work.saturating_sub(from.work);
        let mut start = from.work;
        while length > 0 {
            let stretch = length.div_ceil(2);
            let looks = DENSITY.min(stretch);
            let mut last = None;
            for n in 0..looks {
                let part = u128::from(stretch) * u128::from(n) / u128::from(looks);
                self.timeline.go_to_work(start + part as u64)?;
                let position = self.timeline.position()?;
                if position <= from.position || position >= before || Some(position) == last {
                    continue;
                }
                last = Some(position);
                let probed = self.look_here()?;
                if probed.verdict.truth() == Some(wanted) {
                    return Ok(Some(probed));
                }
            }
            start += stretch;
            length -= stretch;
        }
        Ok(None)
    }

    /// From a place where it is undefined, looks left and right for one where it isn't, and brings `a` or `b`
    /// there such that the undefined stretch no longer lies between them. If all between them is
    /// undefined: why it is so right behind `a`.
    fn around(
        &mut self,
        a: &mut Probed,
        b: &mut Probed,
        undefined: Probed,
        from: bool,
    ) -> Result<Option<String>> {
        let (mut left, mut right) = (undefined.clone(), undefined);
        let (mut left_open, mut right_open) = (true, true);
        while left_open || right_open {
            if left_open {
                match self.middle(a, &left)? {
                    None => left_open = false,
                    Some(middle) => match middle.verdict.truth() {
                        Some(truth) if truth == from => *a = middle,
                        // The flip is left of all that is undefined.
                        Some(_) => {
                            *b = middle;
                            return Ok(None);
                        }
                        None => left = middle,
                    },
                }
            }
            if right_open {
                match self.middle(&right, b)? {
                    None => right_open = false,
                    Some(middle) => match middle.verdict.truth() {
                        Some(truth) if truth == from => {
                            *a = middle;
                            return Ok(None);
                        }
                        Some(_) => *b = middle,
                        None => right = middle,
                    },
                }
            }
        }
        // Both edges are known; what is in between may still be defined here and there.
        let (start, end) = (left.work, right.work);
        for n in 1..=LOOKS {
            let part = u128::from(end.saturating_sub(start)) * u128::from(n);
            let work = start + (part / u128::from(LOOKS + 1)) as u64;
            self.timeline.go_to_work(work)?;
            let position = self.timeline.position()?;
            if position <= left.position || position >= right.position {
                continue;
            }
            let probed = self.look_here()?;
            match probed.verdict.truth() {
                Some(truth) if truth == from => {
                    *a = probed;
                    return Ok(None);
                }
                Some(_) => {
                    *b = probed;
                    return Ok(None);
                }
                None => {}
            }
        }
        match left.verdict {
            Verdict::Undefined(why) => Ok(Some(why)),
            _ => Err(Error::Lost),
        }
    }

    /// The verdict somewhere between two places, about halfway; none if there is nothing in between.
    fn middle(&mut self, a: &Probed, b: &Probed) -> Result<Option<Probed>> {
        let (from, to) = ((a.position, a.work), (b.position, b.work));
        match self.timeline.go_between(from, to)? {
            true => self.look_here().map(Some),
            false => Ok(None),
        }
    }
}

impl Timeline {
    /// A position about halfway between two others; none if there is nothing in between.
    pub fn between(&mut self, a: Position, b: Position) -> Result<Option<Position>> {
        self.seek(Target::Position(b))?;
        let to = (b, self.at().work);
        self.seek(Target::Position(a))?;
        let from = (a, self.at().work);
        match self.go_between(from, to)? {
            true => self.position().map(Some),
            false => Ok(None),
        }
    }

    /// Goes about halfway between two places, each with its work; false if there is nothing in between.
    fn go_between(&mut self, a: (Position, u64), b: (Position, u64)) -> Result<bool> {
        let mut way = b.1.saturating_sub(a.1) / 2;
        while way > 0 {
            self.go_to_work(a.1 + way)?;
            let position = self.position()?;
            if position <= a.0 {
                break;
            }
            if position < b.0 {
                return Ok(true);
            }
            // An event counts for a lot: what is before it may be less than half of the way.
            way /= 2;
        }
        let Some(position) = self.halfway(a.0, b.0)? else {
            return Ok(false);
        };
        self.seek(Target::Position(position))?;
        Ok(true)
    }

    /// Halfway between two positions that are close to each other, by single steps.
    fn halfway(&mut self, a: Position, b: Position) -> Result<Option<Position>> {
        // Within a tick instructions are counted.
        if (a.event, a.ticks) == (b.event, b.ticks) {
            let steps = a.steps + (b.steps - a.steps) / 2;
            return Ok((steps > a.steps).then_some(Position { steps, ..a }));
        }
        self.seek(Target::Position(a))?;
        let mut way = Vec::new();
        loop {
            self.step_any(Direction::Forward)?;
            let position = self.position()?;
            if position >= b {
                break;
            }
            // The whole ticks in between are a better way to go.
            if way.len() > MOST_STEPS || way.last() == Some(&position) {
                return Err(Error::Lost);
            }
            way.push(position);
        }
        Ok(match way.len() {
            0 => None,
            len => Some(way[len / 2]),
        })
    }

    /// Goes to the first tick or event with so much work behind it.
    pub fn go_to_work(&mut self, work: u64) -> Result<()> {
        self.pool.begin();
        let near = self.snapshots.tell(|all| {
            all.iter()
                .filter(|snapshot| snapshot.work() <= work)
                .max_by_key(|snapshot| snapshot.position)
                .map(|snapshot| (snapshot.position, snapshot.work()))
        });
        let here = position_of(&self.at).map(|position| (position, self.at.work));
        let from = match (near, here) {
            (Some((near, _)), Some((here, done))) if done <= work && here > near => here,
            (Some((near, _)), _) => near,
            (None, _) => self.start(),
        };
        let mut worker = match here {
            // The one that stands here stays behind as a snapshot.
            Some((here, _)) if here == from => self.worker()?.fork()?,
            _ => self.fork_before(from)?,
        };
        let stopped = self.travel(&mut worker, Goal::Work(work), Take::None)?;
        if stopped.why == Why::Interrupted {
            return Err(Error::Interrupted);
        }
        self.settle(worker);
        Ok(())
    }
}
