//! What threads do to each other, over a whole life. In: known functions, and memory that threads share. Out: calls and
//! returns of those functions, accesses to that memory, one after the other, as a worker comes to them.

use std::time::Duration;

use clew_engine::replay::worker::protocol::{Goal, Granules, Interactions, Observation};
use clew_engine::replay::worker::told::Told;

use crate::touches::result;
use crate::{Error, Position, Result, Timeline};

/// More memory than this isn't looked at: pieces that lie apart.
const MOST_RANGES: usize = 1 << 20;

/// Who hears of interactions.
pub trait Hears {
    /// All that was told before doesn't count: it begins again.
    fn begins(&mut self);
    fn hears(&mut self, told: Told);
}

impl Timeline {
    /// Which memory several threads touch and at least one writes, from where the second thread begins to the end, and
    /// whether that is all. The timeline stays where it is.
    pub fn sharing(&mut self) -> Result<(Vec<Granules>, bool)> {
        self.pool.begin();
        self.up_to_divergence(|timeline| {
            let Some(begin) = timeline.story.second_thread()? else {
                return Ok((Vec::new(), true));
            };
            // A fork's life may begin with the threads' making behind it.
            let begin = Position::after(begin).max(timeline.start());
            let mut worker = timeline.worker_at(Goal::Position(begin))?;
            let mut buffer = timeline.pool.buffer()?;
            buffer.ring().clear(&[]);
            let look = Observation::Sharing;
            let (_, complete) =
                worker.observe(look, Goal::End, &mut buffer, Duration::MAX, None)?;
            if timeline.pool.interrupted() {
                return Err(Error::Interrupted);
            }
            let mut granules: Vec<Granules> = result(buffer.ring())?;
            let all = complete && granules.len() <= MOST_RANGES;
            granules.truncate(MOST_RANGES);
            Ok((granules, all))
        })
    }

    /// Tells of interactions from the start to the end. The timeline stays where it is.
    pub fn interactions(&mut self, asked: &Interactions, hears: &mut dyn Hears) -> Result<()> {
        self.pool.begin();
        let asked = postcard::to_stdvec(asked).map_err(|_| Error::Lost)?;
        self.up_to_divergence(|timeline| {
            hears.begins();
            let start = timeline.start();
            let mut worker = timeline.worker_at(Goal::Position(start))?;
            let mut buffer = timeline.pool.buffer()?;
            buffer.ring().clear(&asked);
            let mut sense = true;
            let mut sink = |_: &_, segment: Vec<u8>| match Told::read_all(&segment) {
                Some(all) => all.into_iter().for_each(|told| hears.hears(told)),
                None => sense = false,
            };
            let look = Observation::Interactions;
            worker.observe(look, Goal::End, &mut buffer, Duration::MAX, Some(&mut sink))?;
            if timeline.pool.interrupted() {
                return Err(Error::Interrupted);
            }
            sense.then_some(()).ok_or(Error::Lost)
        })
    }
}
