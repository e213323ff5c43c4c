//! A module's call frame information: `.eh_frame` and `.debug_frame` in, the entry for an address
//! out.

use crate::elf::Elf;
use crate::{Module, Reader};
use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, FrameDescriptionEntry, ParsedEhFrameHdr,
    UnwindSection,
};
use std::ops::Range;
use std::sync::OnceLock;

/// Functions by address, with where their entries start.
type Index = Vec<(Range<u64>, usize)>;

#[derive(Debug)]
pub(crate) struct Cfi {
    bases: BaseAddresses,
    eh: Option<Eh>,
    debug: Option<(DebugFrame<Reader>, OnceLock<Index>)>,
}

#[derive(Debug)]
struct Eh {
    section: EhFrame<Reader>,
    /// The linker's table for a binary search.
    header: Option<ParsedEhFrameHdr<Reader>>,
    /// Our own, for when there is none.
    index: OnceLock<Index>,
}

/// The unwind information of the function around an address.
pub(crate) enum Found<'a> {
    Eh(
        &'a EhFrame<Reader>,
        &'a BaseAddresses,
        FrameDescriptionEntry<Reader>,
    ),
    Debug(
        &'a DebugFrame<Reader>,
        &'a BaseAddresses,
        FrameDescriptionEntry<Reader>,
    ),
}

impl Cfi {
    pub fn load(module: &Module) -> Cfi {
        let elf = &module.elf;
        let address = |name| elf.section(name).map(|section| section.address);
        let mut bases = BaseAddresses::default();
        if let Some(text) = address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(".got") {
            bases = bases.set_got(got);
        }
        let header = elf
            .section(".eh_frame_hdr")
            .map(|section| section.address..section.address.saturating_add(section.size))
            .or(elf.eh_frame_hdr.clone());
        if let Some(header) = &header {
            bases = bases.set_eh_frame_hdr(header.start);
        }
        let header =
            header.and_then(|range| EhFrameHdr::from(elf.mapped(range)?).parse(&bases, 8).ok());
        let frames = eh_frame(elf, header.as_ref());
        let eh = frames.map(|(start, data)| {
            bases = std::mem::take(&mut bases).set_eh_frame(start);
            let mut section = EhFrame::from(data);
            section.set_address_size(8);
            Eh {
                section,
                header,
                index: OnceLock::new(),
            }
        });
        let debug = module.separate.iter().chain([elf]).find_map(|file| {
            let data = file
                .data(".debug_frame")
                .ok()
                .filter(|data| !data.is_empty())?;
            let mut section = DebugFrame::from(data);
            section.set_address_size(8);
            Some((section, OnceLock::new()))
        });
        Cfi { bases, eh, debug }
    }

    pub fn find(&self, address: u64) -> Option<Found<'_>> {
        if let Some(eh) = &self.eh {
            let table = eh.header.as_ref().and_then(|header| header.table());
            let found = match table {
                Some(table) => table
                    .fde_for_address(&eh.section, &self.bases, address, EhFrame::cie_from_offset)
                    .ok(),
                None => indexed(&eh.section, &self.bases, &eh.index, address),
            };
            if let Some(entry) = found {
                return Some(Found::Eh(&eh.section, &self.bases, entry));
            }
        }
        let (section, index) = self.debug.as_ref()?;
        let entry = indexed(section, &self.bases, index, address)?;
        Some(Found::Debug(section, &self.bases, entry))
    }
}

/// Where `.eh_frame` starts and its bytes: the section, or, if section headers were stripped,
/// what the table for searches points at.
fn eh_frame(elf: &Elf, header: Option<&ParsedEhFrameHdr<Reader>>) -> Option<(u64, Reader)> {
    if let Some(section) = elf
        .section(".eh_frame")
        .filter(|section| !section.file.is_empty())
    {
        return Some((section.address, elf.section_data(section).ok()?));
    }
    let start = header?.eh_frame_ptr().direct().ok()?;
    let segment = elf.segments.iter().find(|segment| {
        start
            .checked_sub(segment.address)
            .is_some_and(|inside| inside < segment.file_size)
    })?;
    Some((
        start,
        elf.mapped(start..segment.address.checked_add(segment.file_size)?)?,
    ))
}

fn indexed<S>(
    section: &S,
    bases: &BaseAddresses,
    index: &OnceLock<Index>,
    address: u64,
) -> Option<FrameDescriptionEntry<Reader>>
where
    S: UnwindSection<Reader>,
    S::Offset: From<usize>,
{
    let index = index.get_or_init(|| {
        let mut all = Index::new();
        let mut entries = section.entries(bases);
        // A failure ends the reading; entries before it are good.
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            if let Ok(entry) = partial.parse(S::cie_from_offset)
                && entry.len() > 0
            {
                all.push((entry.initial_address()..entry.end_address(), entry.offset()));
            }
        }
        all.sort_by_key(|(range, _)| range.start);
        all
    });
    let after = index.partition_point(|(range, _)| range.start <= address);
    let (range, offset) = index.get(after.checked_sub(1)?)?;
    if !range.contains(&address) {
        return None;
    }
    section
        .fde_from_offset(bases, S::Offset::from(*offset), S::cie_from_offset)
        .ok()
}
