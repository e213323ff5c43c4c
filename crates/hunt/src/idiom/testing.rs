//! Made-up profiles for tests.

use clew_recording::event::ThreadId;
use clew_recording::script::Point;

use super::profile::{Access, Life, Profile};

/// What happened, told in order.
#[derive(Default)]
pub struct Story {
    profile: Profile,
    events: u64,
}

impl Story {
    pub fn made(&mut self, thread: ThreadId, maker: ThreadId) -> &mut Story {
        self.events += 1;
        let life = Life {
            maker,
            begun: self.events,
            ended: None,
        };
        self.profile.lives.insert(thread, life);
        self
    }

    pub fn ended(&mut self, thread: ThreadId) -> &mut Story {
        self.events += 1;
        if let Some(life) = self.profile.lives.get_mut(&thread) {
            life.ended = Some(self.events);
        }
        self
    }

    pub fn read(&mut self, thread: ThreadId, pc: u64, addr: u64) -> &mut Story {
        self.access(thread, pc, addr, false, false)
    }

    pub fn write(&mut self, thread: ThreadId, pc: u64, addr: u64) -> &mut Story {
        self.access(thread, pc, addr, true, false)
    }

    pub fn locked(&mut self, thread: ThreadId, pc: u64, addr: u64) -> &mut Story {
        self.access(thread, pc, addr, true, true)
    }

    fn access(
        &mut self,
        thread: ThreadId,
        pc: u64,
        addr: u64,
        write: bool,
        locked: bool,
    ) -> &mut Story {
        let earlier = self.profile.accesses.iter().filter(|a| a.thread == thread);
        let point = Point {
            ticks: 10 * (earlier.count() as u64 + 1),
            ..Point::default()
        };
        self.profile.accesses.push(Access {
            thread,
            point,
            pc,
            addr,
            len: 4,
            write,
            locked,
            event: self.events,
        });
        self
    }

    /// Everything between 0x10 and 0x1000 is the program's own code.
    pub fn profile(&self) -> Profile {
        let mut profile = self.profile.clone();
        profile.own = vec![(0x10, 0x1000)];
        profile
    }
}
