//! What debug code that runs in a replay (`clew-probe`) needs: places as addresses, all files with debugging
//! information, and a way to run a module over a stretch.

use clew_symbols::Modules;
use clew_symbols::variables::Catalog;
use clew_timeline::Probed;
use clew_timeline::probing::{Module, Told};

use crate::breakpoints::Spot;
use crate::debugger::{Debugger, Location, location_at};
use crate::{Error, Result};

impl Debugger {
    /// Where a place has code, at any time of the program's life.
    pub fn addresses(&mut self, spot: &Spot) -> Result<Vec<u64>> {
        self.addresses_of(spot)
    }

    /// Programs and libraries that were ever mapped.
    pub fn modules(&mut self) -> Result<Modules> {
        Ok(self.images()?.modules.clone())
    }

    /// What has been read of their debugging information.
    pub fn catalog(&self) -> &Catalog {
        self.program.catalog()
    }

    /// What is at an address of any program or library that was ever mapped.
    pub fn anywhere(&mut self, address: u64) -> Result<Location> {
        Ok(location_at(&self.images()?.modules, address))
    }

    /// Runs debug code from one position to another; `start` and `end` are positions, too. `parts`: several parts of the
    /// way at once, each with a state of its own.
    pub fn probe(
        &mut self,
        module: &Module,
        (from, to): (&str, &str),
        parts: bool,
        sink: &mut dyn FnMut(Vec<Told>),
    ) -> Result<Probed> {
        let from = match from.trim() {
            "start" => self.timeline.start(),
            text => self.position_of(text)?,
        };
        let to = match to.trim() {
            "end" => None,
            text => Some(self.position_of(text)?),
        };
        if to.is_some_and(|to| to < from) {
            return Err(Error::Place("a stretch ends behind its start".into()));
        }
        Ok(match parts {
            true => self.timeline.probe_parts(module, from, to, sink)?,
            false => self.timeline.probe(module, from, to, sink)?,
        })
    }
}
