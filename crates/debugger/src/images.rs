//! Which files were mapped when. In: the log of a stream. Out: programs and libraries with their addresses, loads and
//! unloads with their positions; all of them, whenever they were there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use clew_recording::event::{Effect, Record};
use clew_recording::maps::{Backing, Change, Source};
use clew_symbols::{Mapping, Modules};
use clew_timeline::{Position, Target};
use serde::Serialize;

use crate::debugger::{Debugger, hexadecimal};
use crate::{Error, Result};

/// Files that were ever mapped as programs or libraries.
pub(crate) struct Images {
    /// All at once. Where one came in the place of another, the first counts.
    pub modules: Modules,
    /// As they were at the start.
    first: Vec<Part>,
    changes: Vec<Moved>,
}

/// A part of a file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    range: Range<u64>,
    offset: u64,
    copy: String,
    name: String,
}

struct Moved {
    /// Events done, with this one.
    event: u64,
    /// What is there from now on; none if it is nothing that counts.
    range: Range<u64>,
    part: Option<Part>,
}

/// A program or library came, or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loaded {
    /// Behind the event that did it.
    pub position: String,
    /// It came; else it went.
    pub loaded: bool,
    /// As the program knew it.
    pub name: String,
    /// Where it begins.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
}

impl Debugger {
    /// What is mapped at any time of the program's life.
    pub(crate) fn images(&mut self) -> Result<Arc<Images>> {
        if let Some(known) = &self.images {
            return Ok(known.clone());
        }
        let here = self.timeline.position()?;
        self.timeline.seek(Target::Start)?;
        let mut first = Vec::new();
        for mapping in self.timeline.mappings()? {
            if let Some(copy) = mapping.copy {
                first.push(Part {
                    range: mapping.start..mapping.end,
                    offset: mapping.offset,
                    copy,
                    name: mapping.name,
                });
            }
        }
        let mut modules = self.program.modules(&mut self.timeline)?;
        let start = self.timeline.start().event;
        self.timeline.seek(Target::Position(here))?;
        let changes = self.mapped_later(start)?;
        for part in changes.iter().filter_map(|moved| moved.part.as_ref()) {
            let free = modules.find(part.range.start).is_none();
            if free && let Some(module) = self.program.module(&part.copy, &part.name) {
                let mapping = Mapping {
                    range: part.range.clone(),
                    offset: part.offset,
                };
                modules.map(&module, &mapping);
            }
        }
        let images = Arc::new(Images {
            modules,
            first,
            changes,
        });
        self.images = Some(images.clone());
        Ok(images)
    }

    /// Changes of mapped files behind so many events.
    fn mapped_later(&self, start: u64) -> Result<Vec<Moved>> {
        let unreadable =
            |error: clew_recording::reader::ReadError| Error::Recording(error.to_string());
        let mut reader = self.recording.stream(self.stream()).map_err(unreadable)?;
        let mut changes = Vec::new();
        loop {
            let bytes = match reader.next_in_place() {
                Ok(Some(Record::Effect(Effect::Map(bytes)))) => bytes.to_vec(),
                Ok(Some(_)) => continue,
                // A torn end ends it here as everywhere.
                Ok(None) | Err(_) => return Ok(changes),
            };
            let event = reader.position();
            if event <= start {
                continue;
            }
            match Change::decode(&bytes) {
                Ok(Change::Map {
                    mapping,
                    source,
                    path,
                }) => {
                    let range = mapping.pages.start..mapping.pages.end;
                    let copy = match source {
                        Source::Copy { name, offset } => Some((name, offset)),
                        _ => None,
                    };
                    let is_file = matches!(mapping.backing, Backing::File { .. });
                    let part = copy.filter(|_| is_file).map(|(copy, offset)| Part {
                        range: range.clone(),
                        offset,
                        copy,
                        name: String::from_utf8_lossy(&path).into_owned(),
                    });
                    changes.push(Moved { event, range, part });
                }
                Ok(Change::Unmap(pages)) => changes.push(Moved {
                    event,
                    range: pages.start..pages.end,
                    part: None,
                }),
                _ => {}
            }
        }
    }

    /// Programs and libraries as they came and went, in order; those of the start are among them.
    pub fn libraries(&mut self) -> Result<Vec<Loaded>> {
        let images = self.images()?;
        let mut all = Vec::new();
        // Parts that are there, by where they begin.
        let mut there: BTreeMap<u64, Part> = BTreeMap::new();
        let start = self.timeline.start();
        let first = images
            .first
            .iter()
            .map(|part| (start, Some(part), &part.range));
        let later = images.changes.iter().map(|moved| {
            let position = Position::after(moved.event);
            (position, moved.part.as_ref(), &moved.range)
        });
        for (position, part, range) in first.chain(later) {
            let position = position.to_string();
            let gone: Vec<u64> = there
                .values()
                .filter(|old| old.range.start < range.end && range.start < old.range.end)
                .map(|old| old.range.start)
                .collect();
            for at in gone {
                let Some(old) = there.remove(&at) else {
                    continue;
                };
                for rest in [
                    old.range.start..range.start.min(old.range.end),
                    range.end.max(old.range.start)..old.range.end,
                ] {
                    if !rest.is_empty() {
                        let part = Part {
                            offset: old.offset + (rest.start - old.range.start),
                            range: rest,
                            ..old.clone()
                        };
                        there.insert(part.range.start, part);
                    }
                }
                let same = |other: &Part| other.copy == old.copy;
                let replaced = part.is_some_and(same) || there.values().any(same);
                if !replaced && self.is_image(&old) {
                    all.push(Loaded {
                        position: position.clone(),
                        loaded: false,
                        name: old.name.clone(),
                        address: old.range.start,
                    });
                }
            }
            if let Some(part) = part {
                let new = !there.values().any(|other| other.copy == part.copy);
                if new && self.is_image(part) {
                    all.push(Loaded {
                        position,
                        loaded: true,
                        name: part.name.clone(),
                        address: part.range.start,
                    });
                }
                there.insert(part.range.start, part.clone());
            }
        }
        Ok(all)
    }

    fn is_image(&mut self, part: &Part) -> bool {
        let module = self.program.module(&part.copy, &part.name);
        module.is_some_and(|module| module.bias(part.range.start, part.offset).is_some())
    }
}
