//! All of a process's memory, told so that another process can have the same: mappings in, changes and contents out.
//!
//! A replayed process tells its own. Of a recorded one a forked copy does, while the process goes on; what a fork doesn't
//! copy is set [`Aside`] before.
//!
//! What a mapping shows by itself isn't told: zeroes, and the pages of the recording's files as they are there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use clew_recording::event::LONGEST_PIECE;
use clew_recording::maps::{Change, OnFork, Source};
use clew_recording::tail::PartId;

use super::apply::OpenFile;
use super::checksum::each_page;
use super::file::FileIdentity;
use super::log::pages;
use super::mapping::{Backing, Mapping, PAGE};
use super::objects::Shown;
use super::{Memory, file, govern, host};
use crate::record::files::NewState;
use crate::{sys, syscall};

/// Who is told.
pub trait Told {
    fn change(&mut self, change: &Change);
    /// At most [`LONGEST_PIECE`] bytes.
    fn contents(&mut self, addr: u64, bytes: &[u8]);
}

type Page = [u8; PAGE as usize];
const ZEROES: Page = [0; PAGE as usize];

/// What a forked copy of a recorded process doesn't have as it was: memory that is shared with others, and what isn't
/// given to children.
#[derive(Default)]
pub struct Aside {
    shown: Vec<Shown>,
    ranges: Vec<Range<u64>>,
    pages: BTreeMap<u64, Box<Page>>,
}

impl Aside {
    /// Whether a checksum of the copy's memory would be that of the process.
    pub fn is_shared_only(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl Memory {
    /// Of a recorded process: what is to be set aside before a copy is made. Why not, in words, if it isn't this
    /// process's at the moment.
    pub fn set_aside(&self) -> Result<Aside, String> {
        if !govern::closed().is_empty() {
            return Err("shared memory is another process's".into());
        }
        let mut aside = Aside {
            shown: govern::shown(),
            ..Aside::default()
        };
        let keep = |at: u64, pages: &mut BTreeMap<u64, Box<Page>>, zeroes: bool| {
            let mut page = Box::new(ZEROES);
            if self.show(at, &mut page[..]) && (zeroes || *page != ZEROES) {
                pages.insert(at, page);
            }
        };
        for (range, ..) in &aside.shown {
            for at in range.clone().step_by(PAGE as usize) {
                keep(at, &mut aside.pages, false);
            }
        }
        let all = host::swap_in_use();
        for m in self.iter().filter(|m| m.on_fork != OnFork::default()) {
            let file = matches!(m.backing, Backing::File { .. });
            aside.ranges.push(m.start..m.end);
            each_page(m, all, &mut |at| keep(at, &mut aside.pages, file));
        }
        Ok(aside)
    }

    /// A file for the state of a recorded process; the error is an errno.
    pub fn new_state(&self, part: PartId) -> Result<(OwnedFd, NewState), i32> {
        let log = self.log.as_ref().ok_or(libc::EPIPE)?;
        log.files.new_state(part)
    }

    /// A copy of a recorded process tells all there is.
    pub fn tell_recorded(&self, aside: &Aside, told: &mut dyn Told) -> Result<(), String> {
        let Some(log) = &self.log else {
            return Err("nothing is recorded".into());
        };
        let mut open = |name: &str| {
            let copy = log.files.reopen(name);
            copy.map_err(std::io::Error::from_raw_os_error)
        };
        self.tell(&mut open, Some(aside), told)
    }

    /// What is in a page; false if nothing can be read there.
    fn seen(&self, at: u64, aside: Option<&Aside>, page: &mut [u8]) -> bool {
        let Some(aside) = aside else {
            return self.show(at, page);
        };
        if let Some(kept) = aside.pages.get(&at) {
            page.copy_from_slice(&kept[..]);
            return true;
        }
        !aside.ranges.iter().any(|range| range.contains(&at)) && self.show(at, page)
    }

    /// Tells all there is; or why that can't be told.
    pub fn tell(
        &self,
        open_file: OpenFile,
        aside: Option<&Aside>,
        told: &mut dyn Told,
    ) -> Result<(), String> {
        // Swapped out isn't never there: see `checksum`.
        let all = host::swap_in_use();
        told.change(&Change::Break(self.brk.end));
        let mut contents = Vec::new();
        for mapping in self.iter() {
            self.tell_mapping(mapping, all, (open_file, aside), &mut contents, told)?;
        }
        if self.iter().any(|m| m.backing == Backing::Stack) {
            told.change(&Change::Stack(self.stack_floor));
        }
        // Behind the mappings: one that is made forgets the images that it covers.
        for image in &self.images {
            told.change(&Change::Image {
                file: image.file.into(),
                pages: pages(&image.range),
            });
        }
        self.tell_contents(&contents, aside, told)?;
        for range in govern::closed() {
            told.change(&Change::Close(pages(&range)));
        }
        Ok(())
    }

    /// Tells of one mapping, or of each part of it that shows other memory; puts the pages whose contents are to be
    /// told into `contents`, in order.
    fn tell_mapping(
        &self,
        mapping: &Mapping,
        all: bool,
        (open_file, aside): (OpenFile, Option<&Aside>),
        contents: &mut Vec<u64>,
        told: &mut dyn Told,
    ) -> Result<(), String> {
        let range = mapping.start..mapping.end;
        let no = |errno: i32| {
            format!(
                "shared memory: {}",
                std::io::Error::from_raw_os_error(errno)
            )
        };
        let shown = match aside {
            Some(aside) => inside(&aside.shown, &range),
            None => self.objects.shown_in(range.clone()).map_err(no)?,
        };
        let mut at = range.start;
        for (part, object, offset, size) in shown {
            if at < part.start {
                self.tell_own(
                    &mapping.slice(at, part.start),
                    all,
                    (open_file, aside),
                    contents,
                    told,
                )?;
            }
            let source = Source::Object {
                object,
                offset,
                size,
                copy: None,
            };
            self.tell_map(&mapping.slice(part.start, part.end), source, told);
            contents.extend(part.clone().step_by(PAGE as usize).filter(|&at| {
                let mut page = ZEROES;
                self.seen(at, aside, &mut page) && page != ZEROES
            }));
            at = part.end;
        }
        if at < range.end {
            self.tell_own(
                &mapping.slice(at, range.end),
                all,
                (open_file, aside),
                contents,
                told,
            )?;
        }
        Ok(())
    }

    /// Memory of this process alone.
    fn tell_own(
        &self,
        mapping: &Mapping,
        all: bool,
        (open_file, aside): (OpenFile, Option<&Aside>),
        contents: &mut Vec<u64>,
        told: &mut dyn Told,
    ) -> Result<(), String> {
        let Backing::File { file, offset, .. } = mapping.backing else {
            self.tell_map(mapping, Source::Zero, told);
            if let Some(aside) = aside.filter(|_| mapping.on_fork != OnFork::default()) {
                let kept = aside.pages.range(mapping.start..mapping.end);
                contents.extend(kept.map(|(&at, _)| at));
                return Ok(());
            }
            each_page(mapping, all, &mut |at| {
                let mut page = ZEROES;
                if self.seen(at, aside, &mut page) && page != ZEROES {
                    contents.push(at);
                }
            });
            return Ok(());
        };
        if let Some(name) = self.originals.copy(&file) {
            let different = match (open_file(name), aside) {
                (Ok(copy), _) => self.different(mapping, offset, &copy, aside)?,
                // It has given up the rights that it takes.
                (Err(_), Some(_)) => self.written(mapping, offset, &file, aside),
                (Err(error), None) => return Err(format!("file {name}: {error}")),
            };
            if let Some(different) = different {
                let source = Source::Copy {
                    name: name.to_owned(),
                    offset,
                };
                self.tell_map(mapping, source, told);
                contents.extend(different);
                return Ok(());
            }
        }
        // As long as what can be read.
        let mut end = mapping.start;
        for at in (mapping.start..mapping.end).step_by(PAGE as usize) {
            let mut page = ZEROES;
            if self.seen(at, aside, &mut page) {
                end = at + PAGE;
                if page != ZEROES {
                    contents.push(at);
                }
            }
        }
        let size = offset.saturating_add(end - mapping.start);
        self.tell_map(mapping, Source::Logged { offset, size }, told);
        Ok(())
    }

    fn tell_map(&self, mapping: &Mapping, source: Source, told: &mut dyn Told) {
        let path = match mapping.backing {
            Backing::File { file, .. } => self.originals.path(&file).unwrap_or_default().to_vec(),
            _ => Vec::new(),
        };
        told.change(&Change::Map {
            mapping: mapping.into(),
            source,
            path,
        });
        if mapping.on_fork != OnFork::default() {
            told.change(&Change::OnFork {
                pages: pages(&(mapping.start..mapping.end)),
                what: mapping.on_fork,
            });
        }
    }

    /// The pages of a mapping that aren't as in the file; `None` if more or less of the file can be read than there is.
    fn different(
        &self,
        mapping: &Mapping,
        offset: u64,
        copy: &OwnedFd,
        aside: Option<&Aside>,
    ) -> Result<Option<Vec<u64>>, String> {
        let no = |errno: i32| std::io::Error::from_raw_os_error(errno).to_string();
        let size = file::stat(copy.as_raw_fd()).map_err(no)?.identity.size;
        let mut different = Vec::new();
        for at in (mapping.start..mapping.end).step_by(PAGE as usize) {
            let place = offset + (at - mapping.start);
            let mut here = ZEROES;
            if self.seen(at, aside, &mut here) != (place < size) {
                return Ok(None);
            }
            if place < size && here != read_page(copy, place).map_err(no)? {
                different.push(at);
            }
        }
        Ok(Some(different))
    }

    /// The pages of a mapping that may be other than in a file that can't be looked at; `None` if more or less of it can be
    /// read than there was.
    fn written(
        &self,
        mapping: &Mapping,
        offset: u64,
        file: &FileIdentity,
        aside: Option<&Aside>,
    ) -> Option<Vec<u64>> {
        let same = mapping.immutable() && !self.originals.is_part(file);
        let mut written = Vec::new();
        for at in (mapping.start..mapping.end).step_by(PAGE as usize) {
            let there = offset + (at - mapping.start) < file.size;
            if self.seen(at, aside, &mut { ZEROES }) != there {
                return None;
            }
            if there && !same {
                written.push(at);
            }
        }
        Some(written)
    }

    /// Pages that follow each other are told together.
    fn tell_contents(
        &self,
        at: &[u64],
        aside: Option<&Aside>,
        told: &mut dyn Told,
    ) -> Result<(), String> {
        let mut piece: Vec<u8> = Vec::with_capacity(LONGEST_PIECE);
        let mut range: Range<u64> = 0..0;
        for &at in at {
            if at != range.end || piece.len() + PAGE as usize > LONGEST_PIECE {
                if !piece.is_empty() {
                    told.contents(range.start, &piece);
                }
                piece.clear();
                range = at..at;
            }
            let from = piece.len();
            piece.resize(from + PAGE as usize, 0);
            if !self.seen(at, aside, &mut piece[from..]) {
                return Err(format!("memory at {at:#x} can't be read"));
            }
            range.end = at + PAGE;
        }
        if !piece.is_empty() {
            told.contents(range.start, &piece);
        }
        Ok(())
    }
}

/// What of `range` shows shared memory.
fn inside(shown: &[Shown], range: &Range<u64>) -> Vec<Shown> {
    let mut parts: Vec<Shown> = shown
        .iter()
        .filter(|(at, ..)| at.start < range.end && range.start < at.end)
        .map(|(at, object, offset, size)| {
            let part = at.start.max(range.start)..at.end.min(range.end);
            let offset = offset + (part.start - at.start);
            (part, *object, offset, *size)
        })
        .collect();
    parts.sort_by_key(|(at, ..)| at.start);
    parts
}

/// A page of a file; zeroes behind its end.
fn read_page(file: &OwnedFd, at: u64) -> Result<Page, i32> {
    let mut page = ZEROES;
    let mut done = 0;
    while done < page.len() {
        let rest = &mut page[done..];
        let fd = file.as_raw_fd();
        // SAFETY: the kernel writes at most so many bytes there.
        let read = unsafe {
            syscall!(
                libc::SYS_pread64,
                fd,
                rest.as_mut_ptr(),
                rest.len(),
                at + done as u64
            )
        };
        match read {
            0 => break,
            read if sys::is_err(read) => return Err(-read as i32),
            read => done += read as usize,
        }
    }
    Ok(page)
}
