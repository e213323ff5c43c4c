//! Schedules that choose at visible operations alone: accesses to memory that several threads touch, locks among them, and the
//! beginnings of threads. In: a profile of a run, and dice. Out: a schedule.
//!
//! A run of thousands of ticks has some dozens of places where it matters who is next. [`walk`] chooses there at random, in four
//! ways from the literature; [`hold`] keeps threads where they are until others have come far, or are where they are.

mod hold;
mod ops;
mod walk;

use clew_recording::script::Script;

use crate::dice::Dice;
use crate::idiom::steer::Course;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Who is next is chosen by how many operations each has left, so that all interleavings of some chosen ones are as likely
    /// (selectively uniform random walk: Zhao, Wu, Xiong, Liu, Chen; ASPLOS 2025).
    Surw,
    /// Each operation has a priority of its own, drawn again when another that conflicts with it goes first (partial order sampling:
    /// Yuan, Yang, Gu; CAV 2018).
    Pos,
    /// Priorities of threads that change at a few operations (as `pct`, whose places are ticks).
    Points,
    /// Threads one after the other, with a few delays (Emmi, Qadeer, Rakamarić; POPL 2011).
    Delay,
    /// One thread stays where it is, for as long as others can go on.
    Hold,
    /// Several threads are led each to a place, and go on from there in a random order.
    Meet,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Surw => "surw",
            Kind::Pos => "pos",
            Kind::Points => "points",
            Kind::Delay => "delay",
            Kind::Hold => "hold",
            Kind::Meet => "meet",
        }
    }

    /// A schedule of this kind; None if the profile shows nothing to choose from.
    pub fn script(self, course: &Course, dice: &mut Dice) -> Option<Script> {
        let turns = match self {
            Kind::Hold => hold::hold(course, dice),
            Kind::Meet => hold::meet(course, dice),
            _ => walk::walk(self, course, dice),
        }?;
        (turns.len() <= MOST_TURNS).then(|| Script {
            process: course.profile().process.clone(),
            turns,
        })
    }
}

/// Longer schedules aren't worth their cost.
const MOST_TURNS: usize = 20_000;
