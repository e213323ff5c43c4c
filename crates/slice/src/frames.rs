//! What control still has to be explained, on the way back. In: calls, returns and branches of a thread, the last first.
//! Out: the branch or call on which something depends that a slice has.
//!
//! A function's run is known by where its return address stands. Runs that are left in other ways than by returning
//! (`longjmp`, exceptions) have no such beginning: what is open in them is known by its function.

use std::ops::Range;

use crate::code::{Code, Id};
use crate::live::Who;
use crate::threads::ByThread;

/// No member wants it: the question does.
const NOBODY: Who = 0;

/// A thread's runs of functions, the innermost last.
#[derive(Default)]
pub struct Frames {
    frames: Vec<Frame>,
    /// Where it goes on behind what is looked at.
    next: Option<u64>,
    /// Something counts in what it was started for.
    started: Option<Who>,
}

#[derive(Default)]
struct Frame {
    /// Where its return address stands; not known of those that one began in.
    slot: Option<u64>,
    /// A signal's handler is above.
    signal: bool,
    open: Vec<Open>,
    /// Something in it depends on being called at all.
    called: Option<Who>,
    /// The block that was opened last, and its function and that one's graph: its instructions are opened one after the
    /// other.
    last: Option<(Id, u32, u32, bool)>,
    extent: Range<u64>,
}

/// Something whose branch wasn't found yet.
#[derive(Clone, Copy)]
struct Open {
    function: Option<Id>,
    /// Of the function's graph, when the block was looked up.
    version: u32,
    block: Option<u32>,
    pc: u64,
    who: Who,
}

impl Open {
    fn block(&mut self, code: &mut Code) -> Option<u32> {
        let function = self.function?;
        if self.version != code.version(function) || self.block.is_none() {
            self.block = code.block(function, self.pc);
            self.version = code.version(function);
        }
        self.block
    }
}

impl Frames {
    pub fn set_next(&mut self, pc: Option<u64>) {
        self.next = pc;
    }

    fn top(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        self.frames.last_mut().expect("just made")
    }

    /// Whether a branch may be what something depends on.
    pub fn is_open(&self) -> bool {
        self.frames
            .last()
            .is_some_and(|frame| !frame.open.is_empty())
    }

    /// Nothing of it counts.
    pub fn forget(&mut self) {
        self.frames.clear();
    }

    /// Whether anything in it is still to be explained.
    pub fn is_wanted(&self) -> bool {
        let wanted = |frame: &Frame| !frame.open.is_empty() || frame.called.is_some();
        self.frames.iter().any(wanted)
    }

    /// Whether what is at `pc` is in the block that was opened last, so that nothing is left to do.
    pub fn has_open(&self, code: &Code, pc: u64, who: Who) -> bool {
        self.frames.last().is_some_and(|top| {
            let same = |(id, version, _, member): &(Id, u32, u32, bool)| {
                *version == code.version(*id) && (*member || who == NOBODY)
            };
            top.extent.contains(&pc) && top.last.as_ref().is_some_and(same)
        })
    }

    /// What is at `pc` was executed and counts: who wants it depends on why.
    pub fn open(&mut self, code: &mut Code, pc: u64, who: Who) {
        let function = code.function(pc);
        if function.is_some_and(|id| code.is_stub(id)) {
            self.called(who);
            return;
        }
        let mut new = Open {
            function,
            version: 0,
            block: None,
            pc,
            who,
        };
        let block = new.block(code);
        let extent = function
            .zip(block)
            .and_then(|(id, block)| code.extent_of(id, block));
        let top = self.top();
        let here = function
            .zip(block)
            .map(|(id, block)| (id, new.version, block, who != NOBODY));
        if here.is_some() && top.last == here {
            return;
        }
        top.last = here;
        top.extent = extent.unwrap_or(0..0);
        let all = &mut top.open;
        let known = all.iter_mut().find_map(|open| {
            let same = open.function == function
                && match block {
                    Some(_) => open.block(code) == block,
                    None => open.pc == pc,
                };
            same.then_some(open)
        });
        match known {
            // A member says more than the question itself.
            Some(open) if open.who == NOBODY => open.who = who,
            Some(_) => {}
            None => all.push(new),
        }
    }

    /// What counts depends on the function being called, and on nothing in it.
    pub fn called(&mut self, who: Who) {
        self.top().called.get_or_insert(who);
    }

    /// A return from the address in this slot: what was before it is inside of the function.
    pub fn returned(&mut self, slot: u64) {
        self.frames.push(Frame {
            slot: Some(slot),
            ..Frame::default()
        });
    }

    /// A call that put its return address into this slot: what was before it is outside. Who wants the call, if anything
    /// in it counts.
    pub fn call(&mut self, code: &mut Code, pc: u64, slot: u64) -> Option<Who> {
        let who = self.called_by(code, slot);
        if who.is_some() && code.starts(pc) {
            self.started = self.started.or(who);
            return None;
        }
        who
    }

    fn called_by(&mut self, code: &mut Code, slot: u64) -> Option<Who> {
        let mut who = None;
        while let Some(frame) = self.frames.last()
            && frame.slot.is_some_and(|inner| inner <= slot)
        {
            let exact = frame.slot == Some(slot);
            let frame = self.frames.pop().expect("there is one");
            let open = frame.open.first().map(|open| open.who);
            who = frame.called.or(open).or(who);
            if exact {
                return who;
            }
        }
        let callee = self.next.and_then(|pc| code.function(pc));
        who.or_else(|| self.leave(callee))
    }

    /// Whatever is open in a function isn't any more. Who wanted it.
    fn leave(&mut self, function: Option<Id>) -> Option<Who> {
        let top = self.top();
        let mut who = top.called.take();
        top.last = None;
        top.open.retain(|open| {
            let leaves = open.function == function;
            if leaves {
                who.get_or_insert(open.who);
            }
            !leaves
        });
        who
    }

    /// A branch at `pc`, by a register or memory if `indirect`. Who depends on it.
    pub fn branch(&mut self, code: &mut Code, pc: u64, indirect: bool) -> Option<Who> {
        let function = code.function(pc);
        let next = self.next;
        let there = next.and_then(|next| code.function(next));
        if indirect && function != there {
            return self.tail(code, pc, there);
        }
        if let (Some(id), Some(next), true) = (function, next, indirect) {
            code.jumped(id, pc, next);
        }
        if !self.is_open() {
            return None;
        }
        let Some(id) = function else {
            // Nothing is known of this code: the last branch before counts.
            return self.leave(None);
        };
        let block = code.block(id, pc)?;
        let top = self.frames.last_mut()?;
        let mut who = None;
        for open in top.open.iter_mut().filter(|open| open.function == function) {
            open.block(code);
        }
        let dependents = code.dependents(id, block)?;
        top.last = None;
        top.open.retain(|open| {
            let depends = open.function == function
                && open.block.is_some_and(|block| dependents.contains(block));
            if depends {
                who.get_or_insert(open.who);
            }
            !depends
        });
        who
    }

    /// A direct jump.
    pub fn jump(&mut self, code: &mut Code, pc: u64, target: u64) -> Option<Who> {
        if !self.is_open() {
            return None;
        }
        let there = code.function(target);
        match code.function(pc) != there {
            true => self.tail(code, pc, there),
            false => None,
        }
    }

    /// A jump into another function is a call of it.
    fn tail(&mut self, code: &mut Code, pc: u64, there: Option<Id>) -> Option<Who> {
        let who = self.leave(there)?;
        // Stubs, and the dynamic linker, which binds functions when they are first called, only stand between.
        let between = code.function(pc).is_some_and(|id| code.is_stub(id)) || code.is_linker(pc);
        if between {
            self.called(who);
            return None;
        }
        Some(who)
    }

    /// The thread begins: who wants anything that it did.
    pub fn begun(&mut self) -> Option<Who> {
        let frames = std::mem::take(&mut self.frames);
        let wanted = |frame: &Frame| frame.called.or(frame.open.first().map(|open| open.who));
        frames.iter().find_map(wanted).or(self.started.take())
    }

    /// A handler has returned to what it had interrupted.
    pub fn handled(&mut self) {
        self.frames.push(Frame {
            signal: true,
            ..Frame::default()
        });
    }

    /// A signal arrived here: what was before it is what it interrupted.
    pub fn interrupted(&mut self, code: &mut Code) {
        match self.frames.iter().rposition(|frame| frame.signal) {
            Some(at) => self.frames.truncate(at),
            None => {
                let handler = self.next.and_then(|pc| code.function(pc));
                self.leave(handler);
            }
        }
        self.next = None;
    }
}

/// All threads'.
pub type Threads = ByThread<Frames>;
