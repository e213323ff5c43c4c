//! Which other thread interfered. In: an explanation, and the data races of the run. Out: for a line that the explanation
//! names, the other thread's access to the same memory that nothing orders.

use clew_order::races::{Race, Side, Suppressions, races};
use clew_recording::event::Event;

use super::Asking;
use crate::Result;
use crate::delta::trace::ordered;
use crate::scene::{Site, is_own_file};

/// So many are told: the first at lines that were told.
const MOST: usize = 1;

impl Asking<'_> {
    /// Looks for races at the lines that were told.
    pub fn interferes(&mut self) -> Result<()> {
        let mut several = false;
        self.scene.debugger.events(|event, _, _| {
            several |= matches!(event, Event::NewThread { .. });
            !several
        })?;
        if !several {
            return Ok(());
        }
        let stream = self.scene.debugger.stream();
        let log = self.scene.debugger.recording().stream(stream);
        let log = log.map_err(|error| crate::Error::Recording(error.to_string()))?;
        let (timeline, program) = self.scene.debugger.timeline_and_program();
        let found = races(timeline, program, log, &Suppressions::default()).map_err(ordered)?;
        let mut told = 0;
        for race in found.races.iter().filter(|race| race.hidden.is_none()) {
            if told < MOST && self.tell_race(race) {
                told += 1;
            }
        }
        Ok(())
    }

    /// Tells a race if one of its lines was told, and the other is another thread's.
    fn tell_race(&mut self, race: &Race) -> bool {
        let named = |side: &Side| {
            let line = (side.line.file.as_deref(), side.line.line);
            let sites = self.answer.statements.iter();
            let mut sites = sites.filter_map(|statement| statement.site.as_ref());
            line.1.is_some() && sites.any(|site| (site.file.as_deref(), site.line) == line)
        };
        let (own, other) = match (named(&race.first), named(&race.second)) {
            (_, true) => (&race.second, &race.first),
            (true, false) => (&race.first, &race.second),
            (false, false) => return false,
        };
        let Some(position) = other.position.clone() else {
            return false;
        };
        let Some(file) = other.line.file.clone().filter(|file| is_own_file(file)) else {
            return false;
        };
        let what = match &race.variable {
            Some(name) => format!("`{name}`"),
            None => format!("{} at {:#x}", bytes(race.bytes), race.address),
        };
        let did = |side: &Side| match side.what {
            "write" => "writes",
            "free" => "frees",
            _ => "reads",
        };
        let line = other.line.line;
        let site = Site {
            position,
            thread: other.thread,
            function: other.line.function.clone(),
            source: line.and_then(|line| self.scene.source(&file, line)),
            file: Some(file),
            line,
            inside: None,
        };
        let text = format!(
            "Thread {} {} {what} here, which thread {} {} at {}, and nothing orders the two: a data race.",
            other.thread,
            did(other),
            own.thread,
            did(own),
            own.line.short().unwrap_or_default(),
        );
        self.say(text, Some(site));
        true
    }
}

fn bytes(count: u64) -> String {
    match count {
        1 => "a byte".into(),
        count => format!("{count} bytes"),
    }
}
