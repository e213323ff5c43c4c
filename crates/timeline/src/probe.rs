//! Probes: debug code that runs in a replay. In: a module and where its probes run, and a stretch. Out: what they tell, as it
//! comes, and what became of them.

use clew_engine::replay::worker::protocol::Goal;
use clew_engine::replay::worker::protocol::probing::{Module, Summary, Told};

use crate::touches::result;
use crate::{Error, Position, Result, Timeline};

/// What became of probes.
pub struct Probed {
    pub summary: Summary,
    /// The end of the stretch was reached.
    pub complete: bool,
}

impl Timeline {
    /// Runs probes between two positions. The timeline stays where it is.
    pub fn probe(
        &mut self,
        module: &Module,
        from: Position,
        to: Option<Position>,
        sink: &mut dyn FnMut(Vec<Told>),
    ) -> Result<Probed> {
        self.pool.begin();
        let mut worker = self.worker_at(Goal::Position(from))?;
        let mut buffer = self.pool.buffer()?;
        let module = postcard::to_stdvec(module).map_err(|_| Error::Lost)?;
        buffer.ring().clear(&module);
        let goal = to.map_or(Goal::End, Goal::Position);
        let (_, complete) = worker.probe(goal, &mut buffer, sink)?;
        let summary: Summary = result(buffer.ring())?;
        Ok(Probed { summary, complete })
    }
}
