//! Range steps (`vCont;r`). In: a thread and a range of addresses. Out: where it has left them.
//!
//! The ways out of the range are read from its code, and the first one that is taken is found in one search, however often a
//! loop inside runs. Instructions whose way isn't known beforehand (returns, jumps through registers) are stepped singly.

use std::ops::Range;

use clew_recording::event::ThreadId;
use clew_timeline::{Break, Direction, EventStop, Reason, Stop, Stops};
use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::session::Session;
use crate::{Result, wire};

/// Longer ranges, or those with more ways out, are stepped through.
const LONGEST: u64 = 1 << 16;
const MOST_WAYS: usize = 1_000;

/// What leads out of a range of code.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    /// Addresses outside that its instructions lead to.
    out: Vec<u64>,
    /// Instructions inside that may lead anywhere.
    unknown: Vec<u64>,
}

/// None if it isn't all code.
fn ways(code: &[u8], range: &Range<u64>) -> Option<Ways> {
    let mut ways = Ways::default();
    let mut decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
    while decoder.ip() < range.end {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let mut leads = |to: u64| {
            if !range.contains(&to) {
                ways.out.push(to);
            }
        };
        let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        match instruction.flow_control() {
            FlowControl::Next => leads(instruction.next_ip()),
            FlowControl::UnconditionalBranch | FlowControl::Call if direct => {
                leads(instruction.near_branch_target());
                // What it returns to, should that be inside, is come to only from outside.
                leads(instruction.next_ip());
            }
            FlowControl::ConditionalBranch if direct => {
                leads(instruction.near_branch_target());
                leads(instruction.next_ip());
            }
            // A system call is a call too, but not to somewhere.
            FlowControl::Call => leads(instruction.next_ip()),
            _ => ways.unknown.push(instruction.ip()),
        }
    }
    ways.out.sort_unstable();
    ways.out.dedup();
    (ways.out.len() + ways.unknown.len() <= MOST_WAYS).then_some(ways)
}

impl Session<'_> {
    /// Instructions of a thread as long as they are in this range.
    pub(crate) fn step_range(&mut self, thread: ThreadId, range: Range<u64>) -> Result<Stop> {
        let wanted = self.timeline.stops().clone();
        let ways = self.ways(&range)?;
        let done = self.leave(thread, &range, ways.as_ref(), &wanted);
        self.timeline.set_stops(wanted);
        done
    }

    fn ways(&mut self, range: &Range<u64>) -> Result<Option<Ways>> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 || len > LONGEST {
            return Ok(None);
        }
        // The last instruction may not end with the range.
        let mut code = vec![0; len as usize + 16];
        let got = self.timeline.read(range.start, &mut code)?;
        Ok(ways(&code[..got], range))
    }

    fn leave(
        &mut self,
        thread: ThreadId,
        range: &Range<u64>,
        ways: Option<&Ways>,
        wanted: &Stops,
    ) -> Result<Stop> {
        let own = |addr: &u64| Break {
            addr: *addr,
            thread: Some(thread),
            conditions: Vec::new(),
        };
        let search = ways.map(|ways| {
            let mut stops = wanted.clone();
            // Where gdb has a breakpoint, with a condition or without, it is a way out all the same.
            let out = ways.out.iter().chain(&ways.unknown);
            stops.breaks.extend(out.map(own));
            // A handler lies elsewhere.
            stops.events.signals = !0;
            stops
        });
        loop {
            self.timeline.set_stops(wanted.clone());
            let stop = self.timeline.step(Direction::Forward, thread)?;
            let goes_on = stop.reason == Reason::Arrived
                && stop.thread == thread
                && range.contains(&stop.pc)
                && !self.points.has_break(stop.pc);
            if !goes_on {
                return Ok(stop);
            }
            let interrupted = match &self.wire {
                Some(wire) => wire::held(wire).wants_interrupt(),
                None => false,
            };
            if interrupted {
                return Ok(Stop {
                    reason: Reason::Interrupted,
                    ..stop
                });
            }
            let (Some(ways), Some(search)) = (ways, &search) else {
                continue;
            };
            if ways.unknown.contains(&stop.pc) {
                continue;
            }
            self.timeline.set_stops(search.clone());
            let stop = loop {
                let stop = self.timeline.run(Direction::Forward, None)?;
                match stop.reason {
                    // Another thread's, which gdb doesn't want to hear of.
                    Reason::Event(EventStop::Signal { signo })
                        if stop.thread != thread && !wants(wanted, signo) => {}
                    _ => break stop,
                }
            };
            let mine = stop.thread == thread;
            match stop.reason {
                Reason::Break if mine && !range.contains(&stop.pc) => {
                    return Ok(Stop {
                        reason: Reason::Arrived,
                        ..stop
                    });
                }
                Reason::Break if mine && !self.points.has_break(stop.pc) => {}
                // It is about to get one; the step leads into the handler.
                Reason::Event(EventStop::Signal { signo }) if mine && !wants(wanted, signo) => {}
                _ => return Ok(stop),
            }
        }
    }
}

fn wants(stops: &Stops, signo: i32) -> bool {
    let bit = u32::try_from(signo - 1).ok().filter(|bit| *bit < 64);
    bit.is_some_and(|bit| stops.events.signals & 1 << bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_out_of_a_loop() {
        // 0x1000: add eax, 1; call 0x2000; cmp eax, 5; jne 0x1000; jmp rax
        let code = [
            0x83, 0xc0, 0x01, 0xe8, 0xf8, 0x0f, 0, 0, 0x83, 0xf8, 0x05, 0x75, 0xf3, 0xff, 0xe0,
        ];
        let all = ways(&code, &(0x1000..0x100f)).unwrap();
        assert_eq!(
            (&all.out[..], &all.unknown[..]),
            (&[0x2000][..], &[0x100d][..])
        );
        // Without the last one it ends by falling through.
        let some = ways(&code, &(0x1000..0x100d)).unwrap();
        assert_eq!(some.out, [0x100d, 0x2000]);
        assert_eq!(ways(&code[..4], &(0x1000..0x100d)), None);
    }
}
