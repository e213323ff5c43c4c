//! From ELF headers to a plan of what to map where. Pure: bytes in, plan or problem out.
//!
//! The rules are those of the kernel's `load_elf_binary`; bytes may come from anyone.

use std::ops::Range;

use crate::layout;
use crate::memory::mapping::{PAGE, page_down, page_up};

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    NotElf,
    Bits32,
    Machine(u16),
    Corrupt(&'static str),
}

const EM_386: u16 = 3;
const EM_X86_64: u16 = 62;
const PHENT: u64 = 56;
const MOST_HEADERS: u64 = 65536;
const LONGEST_PATH: u64 = 4096;

/// What the ELF header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// To be loaded at the addresses it was linked for?
    pub fixed: bool,
    pub entry: u64,
    phoff: u64,
    phnum: u16,
}

impl Header {
    /// Where in the file the program headers are (at most 64 KiB).
    pub fn program_headers(&self) -> Range<u64> {
        self.phoff..self.phoff + self.phnum as u64 * PHENT
    }
}

/// What to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub fixed: bool,
    pub entry: u64,
    /// Address of the program headers, if a segment holds them.
    pub phdr: Option<u64>,
    pub phnum: u16,
    pub segments: Vec<Segment>,
    /// File range of the interpreter's path.
    pub interpreter: Option<Range<u64>>,
    pub exec_stack: bool,
    /// First to last page.
    pub span: Range<u64>,
    /// The load address minus `span.start` must be a multiple of this power of two.
    pub align: u64,
}

/// One PT_LOAD. Addresses are those the file was linked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub prot: i32,
    /// Pages that show the file, and the file offset of the first one.
    pub file: Option<(Range<u64>, u64)>,
    /// Bytes behind the file's part on its last page, to be cleared.
    pub clear: Range<u64>,
    /// Zero pages behind.
    pub zero: Range<u64>,
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..)?.first_chunk().copied()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..)?.first_chunk().copied()?))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..)?.first_chunk().copied()?))
}

/// Reads the ELF header at the start of `head`.
pub fn header(head: &[u8]) -> Result<Header, Problem> {
    if !head.starts_with(b"\x7fELF") {
        return Err(Problem::NotElf);
    }
    let cut = Problem::Corrupt("the file ends in its header");
    let machine = u16_at(head, 18).ok_or(cut)?;
    if machine == EM_386 || (machine == EM_X86_64 && head[4] == 1) {
        return Err(Problem::Bits32);
    }
    // Files of the other byte order have their machine number in it too.
    match (head[5], machine) {
        (2, m) => return Err(Problem::Machine(m.swap_bytes())),
        (_, EM_X86_64) => {}
        (_, m) => return Err(Problem::Machine(m)),
    }
    let fixed = match u16_at(head, 16) {
        Some(2) => true,
        Some(3) => false,
        _ => {
            return Err(Problem::Corrupt(
                "neither an executable nor a shared object",
            ));
        }
    };
    let entry = u64_at(head, 24).ok_or(cut)?;
    let phoff = u64_at(head, 32).ok_or(cut)?;
    let (size, phnum) = (u16_at(head, 54).ok_or(cut)?, u16_at(head, 56).ok_or(cut)?);
    if size as u64 != PHENT || phnum == 0 || phnum as u64 * PHENT > MOST_HEADERS {
        return Err(Problem::Corrupt("impossible program headers"));
    }
    if phoff
        .checked_add(MOST_HEADERS)
        .is_none_or(|end| end > i64::MAX as u64)
    {
        return Err(Problem::Corrupt("program headers outside the file"));
    }
    Ok(Header {
        fixed,
        entry,
        phoff,
        phnum,
    })
}

/// Makes a plan from the program headers in `table` for a file of `size` bytes.
pub fn plan(header: &Header, table: &[u8], size: u64) -> Result<Image, Problem> {
    let mut image = Image {
        fixed: header.fixed,
        entry: header.entry,
        phdr: None,
        phnum: header.phnum,
        segments: Vec::new(),
        interpreter: None,
        exec_stack: false,
        span: Range {
            start: u64::MAX,
            end: 0,
        },
        align: PAGE,
    };
    if table.len() as u64 != header.phnum as u64 * PHENT {
        return Err(Problem::Corrupt("the file ends in its program headers"));
    }
    for ph in table.chunks_exact(PHENT as usize) {
        let cut = Problem::Corrupt("program header");
        let flags = u32_at(ph, 4).ok_or(cut)?;
        let field = |at| u64_at(ph, at).ok_or(cut);
        let part = Part {
            prot: prot(flags),
            offset: field(8)?,
            vaddr: field(16)?,
            filesz: field(32)?,
            memsz: field(40)?,
        };
        match u32_at(ph, 0).ok_or(cut)? {
            1 => add_segment(&mut image, header.phoff, &part, field(48)?, size)?,
            3 if image.interpreter.is_none() => image.interpreter = Some(interpreter(&part)?),
            0x6474_e551 => image.exec_stack = part.prot & libc::PROT_EXEC != 0,
            _ => {}
        }
    }
    if image.span.is_empty() {
        return Err(Problem::Corrupt("nothing to load"));
    }
    Ok(image)
}

/// The numbers of a program header.
struct Part {
    prot: i32,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    memsz: u64,
}

fn prot(flags: u32) -> i32 {
    let bit = |flag, prot| if flags & flag != 0 { prot } else { 0 };
    bit(4, libc::PROT_READ) | bit(2, libc::PROT_WRITE) | bit(1, libc::PROT_EXEC)
}

fn interpreter(part: &Part) -> Result<Range<u64>, Problem> {
    let bad = Problem::Corrupt("interpreter path");
    if !(2..=LONGEST_PATH).contains(&part.filesz) {
        return Err(bad);
    }
    let end = part
        .offset
        .checked_add(part.filesz)
        .filter(|&end| end <= i64::MAX as u64);
    Ok(part.offset..end.ok_or(bad)?)
}

fn add_segment(
    image: &mut Image,
    phoff: u64,
    part: &Part,
    align: u64,
    size: u64,
) -> Result<(), Problem> {
    if part.filesz > part.memsz {
        return Err(Problem::Corrupt(
            "a segment is smaller in memory than in the file",
        ));
    }
    if part.memsz == 0 {
        return Ok(());
    }
    let outside = Problem::Corrupt("a segment outside the address space");
    let end = part
        .vaddr
        .checked_add(part.memsz)
        .filter(|&e| e <= layout::ADDRESS_END);
    let end = end.ok_or(outside)?;
    let (start, end) = (page_down(part.vaddr), page_up(end).ok_or(outside)?);
    let segment = segment(part, end, size)?;

    let table = part.offset..part.offset.saturating_add(part.filesz);
    if image.phdr.is_none() && table.contains(&phoff) {
        image.phdr = Some(part.vaddr.wrapping_add(phoff - part.offset));
    }
    if align.is_power_of_two() {
        image.align = image.align.max(align.min(1 << 30));
    }
    image.span = image.span.start.min(start)..image.span.end.max(end);
    image.segments.push(segment);
    Ok(())
}

fn segment(part: &Part, end: u64, size: u64) -> Result<Segment, Problem> {
    let start = page_down(part.vaddr);
    if part.filesz == 0 {
        return Ok(Segment {
            prot: part.prot,
            file: None,
            clear: 0..0,
            zero: start..end,
        });
    }
    let before = part.vaddr - start;
    let Some(offset) = part
        .offset
        .checked_sub(before)
        .filter(|o| o.is_multiple_of(PAGE))
    else {
        return Err(Problem::Corrupt(
            "a segment's address and offset don't fit together",
        ));
    };
    let outside = Problem::Corrupt("a segment outside the file");
    if offset
        .checked_add(part.memsz)
        .is_none_or(|e| e > i64::MAX as u64)
    {
        return Err(outside);
    }
    // Within the address space, since memsz is no less.
    let file_end = part.vaddr + part.filesz;
    let pages_end = page_up(file_end).ok_or(outside)?;
    let mut clear = 0..0;
    if part.memsz > part.filesz && file_end < pages_end && part.prot & libc::PROT_WRITE != 0 {
        // The page must exist in the file, or clearing it faults.
        if offset + (page_down(file_end) - start) >= size {
            return Err(outside);
        }
        clear = file_end..pages_end;
    }
    Ok(Segment {
        prot: part.prot,
        file: Some((start..pages_end, offset)),
        clear,
        zero: pages_end..end.max(pages_end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own_headers() -> (Vec<u8>, u64) {
        use std::io::Read;
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        let size = exe.metadata().unwrap().len();
        let mut head = Vec::new();
        exe.take(4096).read_to_end(&mut head).unwrap();
        (head, size)
    }

    fn parse(head: &[u8], size: u64) -> Result<Image, Problem> {
        let header = header(head)?;
        let range = header.program_headers();
        let table = head.get(range.start as usize..).unwrap_or_default();
        plan(
            &header,
            &table[..table.len().min((range.end - range.start) as usize)],
            size,
        )
    }

    #[test]
    fn plans_the_test_program_itself() {
        let (head, size) = own_headers();
        let image = parse(&head, size).unwrap();
        assert!(!image.fixed && !image.exec_stack && image.segments.len() >= 3);
        assert_eq!(image.phdr, Some(64));
        assert!(
            image
                .segments
                .iter()
                .any(|s| s.prot == libc::PROT_READ | libc::PROT_EXEC)
        );
        assert!(
            image
                .segments
                .iter()
                .any(|s| !s.clear.is_empty() || !s.zero.is_empty())
        );
    }

    #[test]
    fn names_what_is_not_for_us() {
        let (head, size) = own_headers();
        let with = |changes: &[(usize, u8)]| {
            let mut head = head.clone();
            changes.iter().for_each(|&(at, b)| head[at] = b);
            parse(&head, size).unwrap_err()
        };
        assert_eq!(with(&[(0, 0)]), Problem::NotElf);
        assert_eq!(with(&[(4, 1), (18, 3)]), Problem::Bits32);
        assert_eq!(with(&[(4, 1)]), Problem::Bits32);
        assert_eq!(with(&[(18, 183)]), Problem::Machine(183));
        assert_eq!(with(&[(5, 2), (18, 0), (19, 22)]), Problem::Machine(22));
        assert!(matches!(with(&[(16, 1)]), Problem::Corrupt(_)));
        assert!(matches!(with(&[(56, 0), (57, 0)]), Problem::Corrupt(_)));
        assert!(matches!(header(&head[..40]), Err(Problem::Corrupt(_))));
        assert_eq!(header(b""), Err(Problem::NotElf));
    }

    /// Whatever a plan holds, it is safe to carry out.
    fn check(image: &Image) {
        assert!(image.span.start < image.span.end && image.span.end <= layout::ADDRESS_END);
        assert!(image.align.is_power_of_two());
        for s in &image.segments {
            let file = s.file.clone().unwrap_or((s.zero.start..s.zero.start, 0));
            for r in [&file.0, &s.zero] {
                assert!(r.start % PAGE == 0 && r.end % PAGE == 0 && r.start <= r.end);
                assert!(r.is_empty() || image.span.start <= r.start && r.end <= image.span.end);
            }
            assert_eq!(file.1 % PAGE, 0);
            assert!(s.clear.is_empty() || file.0.end - s.clear.start < PAGE);
            assert!(s.clear.is_empty() || file.0.end == s.clear.end);
        }
        if let Some(i) = &image.interpreter {
            assert!(i.end - i.start <= LONGEST_PATH);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn hostile_headers_never_panic(
            changes in prop::collection::vec((0..900usize, any::<u8>()), 0..12),
            wide in prop::collection::vec((0..110usize, prop::sample::select(vec![
                0, 1, 0xfff, 0x1000, 0x7fff_ffff_f000, i64::MAX as u64, u64::MAX, u64::MAX - 0xfff,
            ])), 0..4),
            len in prop_oneof![Just(4096usize), 0..4096usize],
            size in any::<u64>(),
        ) {
            let (mut head, _) = own_headers();
            changes.iter().for_each(|&(at, b)| head[at] = b);
            for &(at, value) in &wide {
                head[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
            }
            if let Ok(image) = parse(&head[..len], size) {
                check(&image);
            }
        }
    }
}
