//! Probes: a user's debug code, run at chosen places of a replay. In: a module and where its probes run, in a buffer. Out:
//! what they print, as it comes, and how often each ran, in the buffer's place.
//!
//! The guest isn't changed by it: registers, ticks and answers of time calls are set aside while debug code runs
//! (`run`), which has memory of its own (`space`), and system calls that are answered here (`answers`), and of files
//! what it was given (`files`). What it may do to the world is what any replay may: nothing. At the end registers and memory are compared with the recording's checksums.

mod answers;
mod files;
mod run;
mod space;

use clew_recording::event::{Event, Record};
use rustc_hash::FxHashMap;

use self::run::Runner;
use super::observe::{Observer, Sight, Stays};
use super::protocol::probing::{Hit, Module, Summary, When};
use super::protocol::{Goal, Mark, Reply, Why};
use super::serve::Worker;
use super::trace::tell;
use super::travel::{Done, Halt};
use crate::cache::instruments::{Instruments, Watched};
use crate::replay::Machine;
use crate::trace::buffer::Buffer;

/// After so many probes it looks for commands.
const AT_ONCE: u32 = 1 << 14;

struct Probes {
    runner: Runner,
    /// By the instruction that they run before.
    at: FxHashMap<u64, Vec<u32>>,
    /// Others, by number.
    others: Vec<(u32, When)>,
    watches: Vec<(u32, Watched)>,
    hits: Vec<u64>,
    failed: u64,
    left: u32,
    /// A probe failed, and that was to be the end.
    over: bool,
}

impl Probes {
    fn run(&mut self, machine: &mut Machine, event: u64, probe: u32, extra: [u64; 2]) {
        let (pc, sp) = machine.place_now();
        let hit = Hit {
            probe,
            at: Mark {
                event,
                ticks: machine.since(),
                pc,
                sp,
            },
            thread: machine.current,
        };
        let regs = machine.registers_now();
        if let Some(hits) = self.hits.get_mut(probe as usize) {
            *hits += 1;
        }
        if !self.runner.call(machine, hit, &regs, extra) {
            self.failed += 1;
            self.over |= self.runner.module.stop_at_errors;
        }
    }

    /// The current thread is about to execute an instruction.
    fn look(&mut self, machine: &mut Machine, event: u64) {
        let pc = machine.gs.regs.rip;
        if let Some(at) = self.at.get(&pc) {
            for n in 0..at.len() {
                let probe = self.at[&pc][n];
                self.run(machine, event, probe, [0; 2]);
            }
        }
        if self.watches.is_empty() {
            return;
        }
        for access in machine.code.accesses(machine.gs) {
            let touched = |(_, watched): &&(u32, Watched)| {
                access.touches(&watched.range)
                    && (access.read && watched.reads || access.write && watched.writes)
            };
            let touched: Vec<u32> = self
                .watches
                .iter()
                .filter(touched)
                .map(|&(n, _)| n)
                .collect();
            for probe in touched {
                self.run(machine, event, probe, [access.addr, access.len]);
            }
        }
    }

    /// Something other than an instruction has happened, or is going to.
    fn happens(&mut self, worker: &mut Worker, what: impl Fn(&When) -> bool) {
        let event = worker.reader.position();
        for n in 0..self.others.len() {
            let (probe, when) = self.others[n];
            if what(&when) {
                self.run(&mut worker.machine, event, probe, [0; 2]);
            }
        }
    }

    fn hand_over(&mut self, worker: &Worker) {
        for told in self.runner.take_told() {
            worker.channel.send(&Reply::Told(told));
        }
    }

    fn ends_here(&self) -> Option<Why> {
        self.over.then_some(Why::Interrupted)
    }
}

/// The system call that the next event is, and the signal.
fn next(worker: &mut Worker) -> Done<(Option<u32>, bool)> {
    let Some(Record::Event(event)) = worker.reader.peek()? else {
        return Ok((None, false));
    };
    Ok(match event {
        Event::Call(call) => (Some(call.nr), false),
        Event::Signal { .. } | Event::Killed { .. } => (None, true),
        _ => (None, false),
    })
}

impl Observer for Probes {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        Instruments {
            breaks: self.at.keys().copied().collect(),
            watches: self
                .watches
                .iter()
                .map(|(_, watched)| watched.clone())
                .collect(),
            ..Instruments::default()
        }
    }

    fn here(&mut self, worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        self.left = AT_ONCE;
        self.hand_over(worker);
        Ok(self.ends_here().or(reached.then_some(Why::Goal)))
    }

    fn due(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        if !self.others.is_empty() {
            let (call, signal) = next(worker)?;
            self.happens(worker, |when| match *when {
                When::Call { nr, after: false } => call.is_some() && (nr.is_none() || nr == call),
                When::Signal => signal,
                _ => false,
            });
        }
        Ok(self.ends_here())
    }

    fn done(&mut self, worker: &mut Worker) -> Done {
        use super::protocol::EventStop;
        if !self.others.is_empty() {
            let came_by = worker.came_by;
            let call = match came_by {
                Some(EventStop::CallOut { nr }) => Some(nr),
                _ => None,
            };
            let thread = worker.machine.new_thread.is_some();
            self.happens(worker, |when| match *when {
                When::Call { nr, after: true } => call.is_some() && (nr.is_none() || nr == call),
                When::Thread => thread,
                _ => false,
            });
        }
        Ok(())
    }

    fn single(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        if !worker.past {
            let events = worker.reader.position();
            self.look(&mut worker.machine, events);
        }
        Ok(self.ends_here())
    }

    fn passes(&mut self, sight: Sight<'_>) -> bool {
        self.look(sight.machine, sight.events);
        self.left = self.left.saturating_sub(1);
        !self.over && !self.runner.is_much() && self.left > 0
    }

    fn stays(&mut self, worker: &mut Worker) -> Stays {
        self.hand_over(worker);
        match self.ends_here() {
            Some(why) => Stays::Stop(why),
            None => Stays::Passed,
        }
    }
}

impl Worker {
    /// Goes to the goal and runs the probes that stand in the buffer.
    pub(super) fn probes(&mut self, goal: Goal, buffer: &mut Buffer) -> Done<Reply> {
        let module = postcard::from_bytes::<Module>(&buffer.result());
        let module = module.map_err(|_| Halt::Refused("no probes to run".into()))?;
        let (mut at, mut others, mut watches) = (
            FxHashMap::<u64, Vec<u32>>::default(),
            Vec::new(),
            Vec::new(),
        );
        for (n, probe) in (0..).zip(&module.probes) {
            match probe.when {
                When::Pc(pc) => at.entry(pc).or_default().push(n),
                When::Access {
                    addr,
                    len,
                    reads,
                    writes,
                } => watches.push((
                    n,
                    Watched {
                        range: addr..addr.saturating_add(len),
                        reads,
                        writes,
                    },
                )),
                when => others.push((n, when)),
            }
        }
        let hits = vec![0; module.probes.len()];
        let runner = Runner::start(&mut self.machine, module).map_err(Halt::Refused)?;
        let mut probes = Probes {
            runner,
            at,
            others,
            watches,
            hits,
            failed: 0,
            left: AT_ONCE,
            over: false,
        };
        let stopped = self
            .pass_silent()
            .and_then(|()| self.observe(goal, &mut probes));
        self.instrument(false);
        let stopped = stopped?;
        let ended = stopped.why == Why::End && !self.at_limit();
        probes.runner.end(&mut self.machine);
        probes.hand_over(self);
        if ended {
            self.compare_end()?;
        }
        let summary = Summary {
            hits: probes.hits,
            failed: probes.failed,
            checks: self.machine.checks,
            ended,
            undone: probes.runner.undone,
        };
        let complete = stopped.why != Why::Interrupted;
        tell(buffer, &summary, stopped, complete)
    }

    /// The stream's last event and the checks behind it, which compare registers and all memory.
    fn compare_end(&mut self) -> Done {
        while self.reader.peek()?.is_some() {
            self.apply()?;
        }
        Ok(())
    }
}
