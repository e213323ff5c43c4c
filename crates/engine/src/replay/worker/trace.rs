//! Observing into a buffer: what was asked for, from here to a goal; and the trace, which needs no more than that.

use serde::Serialize;

use super::observe::Observer;
use super::protocol::{BUFFERS, Goal, Observation, Reply, Stopped, Why};
use super::serve::Worker;
use super::travel::{Done, Halt};
use crate::cache::instruments::Instruments;
use crate::trace::Special;
use crate::trace::buffer::Buffer;

/// All that there is to see is written by translated code, and where instructions are executed and events applied.
struct Tracing;

impl Observer for Tracing {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        Instruments {
            trace: true,
            ..Instruments::default()
        }
    }
}

/// Hands a result over.
pub(super) fn tell<T: Serialize + ?Sized>(
    buffer: &mut Buffer,
    result: &T,
    stopped: Stopped,
    complete: bool,
) -> Done<Reply> {
    let bytes = postcard::to_stdvec(result).expect("plain data");
    if !buffer.set_result(&bytes) {
        return Err(Halt::Refused(
            "more was found than there is room for".into(),
        ));
    }
    Ok(Reply::Observed { stopped, complete })
}

impl Worker {
    pub(super) fn observation(&mut self, look: Observation, goal: Goal, n: u32) -> Done<Reply> {
        if n as usize >= BUFFERS {
            return Err(Halt::Refused(format!("there is no buffer {n}")));
        }
        let buffer = Buffer::map(self.buffers + n as i32);
        let no_room = |error| Halt::Refused(format!("no room for what is seen: {error}"));
        let mut buffer = buffer.map_err(no_room)?;
        match look {
            Observation::Sharing => self.survey(goal, &mut buffer),
            Observation::Touches { most } => self.collect(goal, most, &mut buffer),
            Observation::Functions { most } => self.functions(goal, most, &mut buffer),
            Observation::Changes { addr, len, most } => {
                self.changes(goal, (addr, len), most, &mut buffer)
            }
            Observation::Interactions => self.interactions(goal, buffer),
            Observation::Probes => self.probes(goal, &mut buffer),
            Observation::Trace => self.trace(goal, buffer),
        }
    }

    fn trace(&mut self, goal: Goal, buffer: Buffer) -> Done<Reply> {
        self.pass_silent()?;
        let machine = &mut self.machine;
        machine.code.trace_into(machine.gs, Some(buffer));
        let stopped = self.observe(goal, &mut Tracing);
        self.machine.trace_thread();
        let machine = &mut self.machine;
        let understood = machine.code.trace_flush(machine.gs);
        machine.code.trace_into(machine.gs, None);
        self.instrument(false);
        let stopped = stopped?;
        let complete = understood && stopped.why != Why::Interrupted;
        Ok(Reply::Observed { stopped, complete })
    }

    /// An event was applied that was due where the thread stood at `pc`.
    pub(super) fn trace_event(&mut self, pc: u64) {
        let machine = &mut self.machine;
        if machine.code.is_traced() {
            let words = [self.reader.position() - 1, pc];
            machine.code.trace_put(machine.gs, Special::Event, &words);
        }
    }
}
