//! Back to where an exception was raised. In: a place. Out: the raise, with all frames as they were.

use clew_timeline::{Direction, Reason, Stops};

use crate::going::{Stop, Why};
use crate::{Error, Raised, Result, Session};

impl Session {
    /// Back to where the last exception was raised. Where the program is over that is the one that came out of it: telling of
    /// it raises others, in some versions of some languages.
    pub fn raised(&mut self) -> Result<Stop> {
        self.remember();
        let here = self.view.timeline.at();
        let found = self.find_raise();
        match &found {
            Ok(Stop { why: Why::Raised }) => {}
            Ok(Stop { why: Why::Start }) => self.begin()?,
            _ => self.view.timeline.return_to(here)?,
        }
        found
    }

    fn find_raise(&mut self) -> Result<Stop> {
        let is_over = match self.stack() {
            Err(Error::Refused(_)) => true,
            stack => stack?.is_empty(),
        };
        if is_over {
            let here = self.view.timeline.at();
            let why = self.back_to(true, |raised| raised.ends)?;
            let what = match why {
                Why::Raised => self.personality.raised(&mut self.view)?,
                Why::Interrupted => return Ok(Stop { why }),
                _ => None,
            };
            match what {
                Some(Raised { new: true, .. }) => return Ok(Stop { why }),
                Some(ended) => {
                    let of_it = |raised: &Raised| raised.new && raised.what == ended.what;
                    let why = self.back_to(false, of_it)?;
                    return Ok(Stop { why });
                }
                None => self.view.timeline.return_to(here)?,
            }
        }
        let why = self.back_to(false, |raised| raised.new)?;
        Ok(Stop { why })
    }

    fn back_to(&mut self, ends: bool, wanted: impl Fn(&Raised) -> bool) -> Result<Why> {
        let lowest = self.lowest();
        loop {
            let stops = self.personality.raises(&mut self.view, ends)?;
            self.view.timeline.set_stops(stops.unwrap_or_default());
            let stop = self.view.timeline.run(Direction::Backward, lowest);
            self.view.timeline.set_stops(Stops::default());
            match stop?.reason {
                Reason::Interrupted => return Ok(Why::Interrupted),
                Reason::Break => {}
                _ => return Ok(Why::Start),
            }
            let raised = self.personality.raised(&mut self.view)?;
            if raised.is_some_and(|raised| wanted(&raised)) {
                return Ok(Why::Raised);
            }
        }
    }
}
