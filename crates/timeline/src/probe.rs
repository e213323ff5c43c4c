//! Probes: debug code that runs in a replay. In: a module and where its probes run, and a stretch. Out: what they tell, as it
//! comes, and what became of them.

use clew_engine::replay::worker::protocol::Goal;
use clew_engine::replay::worker::protocol::probing::{Module, Summary, Told};

use crate::stretches::Then;
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
        let module = postcard::to_stdvec(module).map_err(|_| Error::Nonsense)?;
        self.probe_stretch(&module, from, to, sink)
    }

    /// The same on all cores: parts of the way are probed at once, each with a state of its own. What they tell comes in
    /// the order of the way.
    pub fn probe_parts(
        &mut self,
        module: &Module,
        from: Position,
        to: Option<Position>,
        sink: &mut dyn FnMut(Vec<Told>),
    ) -> Result<Probed> {
        self.pool.begin();
        let module = postcard::to_stdvec(module).map_err(|_| Error::Nonsense)?;
        let mut whole = Probed {
            summary: Summary::default(),
            complete: true,
        };
        let came = self.in_stretches(
            from,
            to,
            |timeline, stretch| {
                let mut all = Vec::new();
                let mut keep = |told: Vec<Told>| all.extend(told);
                let probed =
                    timeline.probe_stretch(&module, stretch.from, stretch.to, &mut keep)?;
                Ok((all, probed))
            },
            |_, _, answer| {
                let (told, part) = answer?;
                sink(told);
                whole.add(part);
                Ok(match whole.complete {
                    true => Then::GoOn,
                    false => Then::Enough,
                })
            },
        )?;
        whole.complete &= came.rest.is_none() && !came.interrupted;
        Ok(whole)
    }

    fn probe_stretch(
        &mut self,
        module: &[u8],
        from: Position,
        to: Option<Position>,
        sink: &mut dyn FnMut(Vec<Told>),
    ) -> Result<Probed> {
        let mut worker = self.worker_at(Goal::Position(from))?;
        let mut buffer = self.pool.buffer()?;
        buffer.ring().clear(module);
        let goal = to.map_or(Goal::End, Goal::Position);
        let (_, complete) = worker.probe(goal, &mut buffer, sink)?;
        let summary: Summary = result(buffer.ring())?;
        Ok(Probed { summary, complete })
    }
}

impl Probed {
    /// What became of the next part.
    fn add(&mut self, part: Probed) {
        let (all, one) = (&mut self.summary, part.summary);
        all.hits.resize(all.hits.len().max(one.hits.len()), 0);
        for (sum, hits) in all.hits.iter_mut().zip(&one.hits) {
            *sum += hits;
        }
        all.failed += one.failed;
        all.undone += one.undone;
        // A worker counts those since the stream's beginning.
        all.checks = all.checks.max(one.checks);
        all.ended |= one.ended;
        self.complete &= part.complete;
    }
}
