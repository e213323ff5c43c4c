//! An ELF file's table of contents: bytes in; sections, segments, build id and links to other
//! files out. Damaged tables give an error or fewer entries, never a panic.

use crate::{Bytes, Error, Reader, xz};
use gimli::LittleEndian;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use object::elf;
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _, SectionHeader as _};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

type Header = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;

/// A file with more sections than this is not a linked program.
const MAX_SECTIONS: usize = 1 << 12;
/// Nor one with more segments than this.
const MAX_SEGMENTS: usize = 1 << 8;
/// Up to this size, a section may say any compression ratio.
const ANY_RATIO: u64 = 16 << 20;
/// A better ratio than debugging information has.
const MAX_RATIO: u64 = 128;

#[derive(Debug)]
pub(crate) struct Elf {
    /// Where the bytes came from.
    pub path: PathBuf,
    pub bytes: Bytes,
    pub sections: Vec<Section>,
    pub segments: Vec<Segment>,
    pub build_id: Option<Vec<u8>>,
    /// `.gnu_debuglink`: the debug file's name and its checksum.
    pub debug_link: Option<(PathBuf, u32)>,
    /// `.gnu_debugaltlink`: the file shared by several debug files, and its build id.
    pub alt_link: Option<(PathBuf, Vec<u8>)>,
    /// Addresses of `.eh_frame_hdr`, as the program header says.
    pub eh_frame_hdr: Option<Range<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub size: u64,
    /// Where its bytes lie in the file; empty for those without bytes.
    pub file: Range<usize>,
    /// Another section's index, as the section's kind defines.
    pub link: usize,
}

/// A part of the file that is mapped when the program runs.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub address: u64,
    pub offset: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub executable: bool,
}

impl Elf {
    pub fn open(path: &Path) -> Result<Elf, Error> {
        Elf::parse(Bytes::map(path)?, path)
    }

    pub fn parse(bytes: Bytes, path: &Path) -> Result<Elf, Error> {
        let broken = |what: &str| Error::Elf {
            path: path.into(),
            what: what.into(),
        };
        let data: &[u8] = &bytes;
        let header = Header::parse(data).map_err(|error| broken(&error.to_string()))?;
        if !header.is_little_endian() || header.e_machine(LE) != elf::EM_X86_64 {
            return Err(broken("it is for another processor"));
        }
        // Without section headers (some packers drop them) the segments still serve to unwind.
        let sections = match header.sections(LE, data) {
            Ok(table) => table
                .iter()
                .take(MAX_SECTIONS)
                .map(|section| {
                    let name = table.section_name(LE, section).unwrap_or(b"");
                    let (offset, size) = section.file_range(LE).unwrap_or((0, 0));
                    Section {
                        name: String::from_utf8_lossy(name).into_owned(),
                        kind: section.sh_type(LE),
                        flags: section.sh_flags(LE),
                        address: section.sh_addr(LE),
                        size: section.sh_size(LE),
                        file: inside(offset, size, data.len()),
                        link: section.sh_link(LE) as usize,
                    }
                })
                .collect(),
            Err(_) => Vec::new(),
        };
        let headers = header.program_headers(LE, data).unwrap_or(&[]);
        let mut segments = Vec::new();
        let mut eh_frame_hdr = None;
        let mut build_id = None;
        for segment in headers.iter().take(MAX_SEGMENTS) {
            let address = segment.p_vaddr(LE);
            match segment.p_type(LE) {
                elf::PT_LOAD => segments.push(Segment {
                    address,
                    offset: segment.p_offset(LE),
                    file_size: segment.p_filesz(LE),
                    memory_size: segment.p_memsz(LE),
                    executable: segment.p_flags(LE) & elf::PF_X != 0,
                }),
                elf::PT_GNU_EH_FRAME => {
                    eh_frame_hdr = Some(address..address.saturating_add(segment.p_memsz(LE)));
                }
                elf::PT_NOTE if build_id.is_none() => {
                    build_id = segment
                        .notes(LE, data)
                        .ok()
                        .flatten()
                        .and_then(find_build_id);
                }
                _ => {}
            }
        }
        let mut this = Elf {
            path: path.into(),
            bytes: bytes.clone(),
            sections,
            segments,
            build_id,
            debug_link: None,
            alt_link: None,
            eh_frame_hdr,
        };
        if this.build_id.is_none() {
            // Separate debug files keep the note only as a section.
            this.build_id = this.section(".note.gnu.build-id").and_then(|section| {
                find_build_id(NoteIterator::new(LE, 4, &data[section.file.clone()]).ok()?)
            });
        }
        this.debug_link = this.section(".gnu_debuglink").and_then(|section| {
            let (name, rest) = c_string(&data[section.file.clone()])?;
            // The checksum follows, aligned to four bytes.
            let at = (name.len() + 1).next_multiple_of(4) - (name.len() + 1);
            let crc = rest.get(at..at + 4)?;
            Some((path_of(name), u32::from_le_bytes(crc.try_into().ok()?)))
        });
        this.alt_link = this.section(".gnu_debugaltlink").and_then(|section| {
            let (name, id) = c_string(&data[section.file.clone()])?;
            Some((path_of(name), id.to_vec()))
        });
        Ok(this)
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The section's bytes, decompressed; empty if there is no such section. Old compressed
    /// sections, whose names start with `.z`, are found under the plain name.
    pub fn data(&self, name: &str) -> Result<Reader, Error> {
        let old = || {
            name.strip_prefix('.')
                .and_then(|rest| self.section(&format!(".z{rest}")))
        };
        match self.section(name).or_else(old) {
            Some(section) => self.section_data(section),
            None => Ok(Reader::new(Bytes::from(Vec::new()), LittleEndian)),
        }
    }

    pub fn section_data(&self, section: &Section) -> Result<Reader, Error> {
        let broken = |what: &str| Error::Section {
            path: self.path.clone(),
            section: section.name.clone(),
            what: what.into(),
        };
        let raw = &self.bytes[section.file.clone()];
        let (format, size, skip) = if section.flags & u64::from(elf::SHF_COMPRESSED) != 0 {
            let word = |at: usize| {
                raw.get(at..at + 8)
                    .map(|b| u64::from_le_bytes(b.try_into().unwrap_or([0; 8])))
            };
            let (Some(kind), Some(size)) = (word(0), word(8)) else {
                return Err(broken("the compression header is cut off"));
            };
            (kind as u32, size, 24)
        } else if section.name.starts_with(".z") && raw.starts_with(b"ZLIB") {
            let Some(size) = raw.get(4..12).and_then(|size| size.try_into().ok()) else {
                return Err(broken("the compression header is cut off"));
            };
            (elf::ELFCOMPRESS_ZLIB, u64::from_be_bytes(size), 12)
        } else {
            let whole = Reader::new(self.bytes.clone(), LittleEndian);
            return Ok(whole.range(section.file.clone()));
        };
        let packed = raw
            .get(skip..)
            .ok_or_else(|| broken("the compression header is cut off"))?;
        if size > ANY_RATIO && size / MAX_RATIO > packed.len() as u64 {
            return Err(broken(
                "it says to decompress to more than its bytes can hold",
            ));
        }
        let plain = match format {
            elf::ELFCOMPRESS_ZLIB => {
                let mut plain = vec![0; size as usize];
                let once = std::iter::once(packed);
                let length = decompress_slice_iter_to_slice(&mut plain, once, true, false);
                match length {
                    Ok(length) if length == plain.len() => plain,
                    Ok(_) => return Err(broken("it decompresses to less than it says")),
                    Err(status) => {
                        return Err(broken(&format!("it doesn't decompress: {status:?}")));
                    }
                }
            }
            elf::ELFCOMPRESS_ZSTD => zstd::bulk::decompress(packed, size as usize)
                .map_err(|error| broken(&error.to_string()))?,
            other => return Err(broken(&format!("its compression {other} is unknown"))),
        };
        Ok(Reader::new(Bytes::from(plain), LittleEndian))
    }

    /// The large compressed sections with debugging information, under their plain names,
    /// decompressed at once on several threads.
    pub fn unpacked(&self) -> HashMap<String, Result<Reader, Error>> {
        const LARGE: usize = 64 << 10;
        const MAX_THREADS: usize = 16;
        let first = |section: &Section| {
            self.section(&section.name)
                .is_some_and(|first| std::ptr::eq(first, section))
        };
        let large = |section: &&Section| {
            section.file.len() >= LARGE
                && first(section)
                && (section.name.starts_with(".zdebug_")
                    || (section.name.starts_with(".debug_")
                        && section.flags & u64::from(elf::SHF_COMPRESSED) != 0))
        };
        std::thread::scope(|scope| {
            let unpack = |section| {
                let thread = std::thread::Builder::new();
                let work = move || self.section_data(section);
                // Without a thread the section is decompressed when it is needed.
                thread
                    .spawn_scoped(scope, work)
                    .ok()
                    .map(|thread| (section, thread))
            };
            let threads: Vec<_> = self
                .sections
                .iter()
                .filter(large)
                .take(MAX_THREADS)
                .filter_map(unpack)
                .collect();
            let joined = threads.into_iter().filter_map(|(section, thread)| {
                let name = section.name.replacen(".zdebug_", ".debug_", 1);
                Some((name, thread.join().ok()?))
            });
            joined.collect()
        })
    }

    /// The ELF file with a symbol table that some distributions put, compressed, into stripped
    /// files (`.gnu_debugdata`); none if there is none or it is damaged.
    pub fn small_debug_file(&self) -> Option<Elf> {
        let section = self.section(".gnu_debugdata")?;
        let limit = (section.file.len() as u64)
            .saturating_mul(MAX_RATIO)
            .min(64 << 20);
        let plain = xz::decompress(&self.bytes[section.file.clone()], limit as usize)?;
        Elf::parse(Bytes::from(plain), &self.path).ok()
    }

    /// Address ranges of executable segments.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> {
        let executable = self.segments.iter().filter(|segment| segment.executable);
        executable
            .map(|segment| segment.address..segment.address.saturating_add(segment.memory_size))
    }

    /// What the file holds for `address..address + size` of the program, where nothing has moved.
    pub fn mapped(&self, range: Range<u64>) -> Option<Reader> {
        let segment = self.segments.iter().find(|segment| {
            range.start >= segment.address
                && range
                    .end
                    .checked_sub(segment.address)
                    .is_some_and(|end| end <= segment.file_size)
        })?;
        let start = (range.start - segment.address).checked_add(segment.offset)?;
        let file = inside(start, range.end.checked_sub(range.start)?, self.bytes.len());
        let whole = Reader::new(self.bytes.clone(), LittleEndian);
        (!file.is_empty()).then(|| whole.range(file))
    }
}

/// The part of the range that lies in a file of `len` bytes.
fn inside(offset: u64, size: u64, len: usize) -> Range<usize> {
    let start = offset.min(len as u64);
    let end = offset.saturating_add(size).min(len as u64);
    start as usize..end as usize
}

fn find_build_id(mut notes: NoteIterator<'_, Header>) -> Option<Vec<u8>> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec()).filter(|id| id.len() > 1);
        }
    }
    None
}

fn c_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}
