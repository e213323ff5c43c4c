//! Packets that make the program go. In: `vCont`, `bc`, `bs`, `c`, `s`. Out: what is to be done.

use clew_recording::event::ThreadId;

use crate::hex;
use crate::ids::{Id, Which};

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    Continue,
    /// One instruction of this thread.
    Step(ThreadId),
    /// Until this thread leaves these addresses.
    Range {
        thread: ThreadId,
        start: u64,
        end: u64,
    },
}

/// One action of a `vCont` and whom it is for.
struct Action<'a> {
    what: &'a [u8],
    whose: Option<Id>,
}

/// `vCont;action[:thread];action...`, what is behind `vCont`. `default`: who steps if nobody is named;
/// `known` gives a thread's number.
///
/// Who isn't told to step runs as it did when it was recorded: threads can't be held back.
pub fn parse(
    text: &[u8],
    default: ThreadId,
    known: impl Fn(i32) -> Option<ThreadId>,
) -> Option<Resume> {
    let mut resume = None;
    for action in text.strip_prefix(b";")?.split(|&byte| byte == b';') {
        let mut parts = action.splitn(2, |&byte| byte == b':');
        let action = Action {
            what: parts.next()?,
            whose: match parts.next() {
                Some(id) => Some(Id::parse(id)?),
                None => None,
            },
        };
        let thread = match action.whose.map(|id| id.tid) {
            Some(Which::One(tid)) => known(tid),
            _ => Some(default),
        };
        let found = match action.what.split_first()? {
            // Which signal the program got is recorded; another it can't get.
            (b'c' | b'C', _) => Resume::Continue,
            (b's' | b'S', _) => Resume::Step(thread?),
            (b'r', range) => {
                let (start, end) = hex::pair(range, b',')?;
                Resume::Range {
                    thread: thread?,
                    start,
                    end,
                }
            }
            // It stands already.
            (b't', _) => continue,
            _ => return None,
        };
        // A step of one thread is what the others' going on serves.
        match resume {
            None | Some(Resume::Continue) => resume = Some(found),
            Some(_) => {}
        }
    }
    resume
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Resume> {
        parse(text.as_bytes(), 7, |tid| (tid == 0x20).then_some(2))
    }

    #[test]
    fn actions() {
        assert_eq!(parsed(";c"), Some(Resume::Continue));
        assert_eq!(parsed(";C0b:p1f.20;c"), Some(Resume::Continue));
        assert_eq!(parsed(";s:p1f.20;c:p1f.-1"), Some(Resume::Step(2)));
        assert_eq!(parsed(";c:p1f.-1;s:20"), Some(Resume::Step(2)));
        assert_eq!(parsed(";s"), Some(Resume::Step(7)));
        assert_eq!(
            parsed(";r10,20:p1f.20;c"),
            Some(Resume::Range {
                thread: 2,
                start: 0x10,
                end: 0x20
            })
        );
        for bad in ["", ";", ";x", ";s:p1f.21", ";r10:20", ";s:y"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
