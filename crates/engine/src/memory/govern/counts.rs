//! How often pages of shared memory changed hands: what the process does goes in, a line for the debugging switch `sharing` comes out.

use std::time::Instant;

#[derive(Default)]
pub struct Counts {
    /// Pages that were acquired when they were touched; how often others had to be waited for.
    pub touches: u64,
    pub waits: u64,
    /// How often the process came back, the pages that it regained, and those that it closed.
    pub backs: u64,
    pub regained: u64,
    pub closed: u64,
    /// How often it stepped aside.
    pub asides: u64,
    /// Nanoseconds that it waited for pages, or aside.
    waited: u64,
}

impl Counts {
    /// The process has waited since `begin`.
    pub fn waited(&mut self, begin: Instant) {
        self.waited += begin.elapsed().as_nanos() as u64;
    }

    /// `None` if there is nothing to tell.
    pub fn line(&self) -> Option<String> {
        let Counts {
            touches,
            waits,
            backs,
            regained,
            closed,
            asides,
            waited,
        } = *self;
        let milliseconds = waited / 1_000_000;
        (touches != 0).then(|| {
            format!(
                "sharing: {touches} touches ({waits} waited), back {backs} times ({regained} pages regained, {closed} closed), \
                 {asides} times aside; {milliseconds} ms waited"
            )
        })
    }
}
