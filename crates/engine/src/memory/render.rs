//! The guest's `/proc/self/maps`.
//!
//! Addresses and protection come from the map of mappings; names, devices, inodes and how far the
//! stack has grown from the host's own file, where the real mapping lies at the same address.

use std::borrow::Cow;
use std::io::{self, Write};

use super::Memory;
use super::host::{self, Line};
use super::mapping::{Backing, Mapping};

/// Names begin in this column, as `seq_pad` does it in the kernel.
const NAME_COLUMN: usize = 73;

/// A line to be.
struct Row<'a> {
    start: u64,
    end: u64,
    prot: i32,
    shared: bool,
    offset: u64,
    dev: Cow<'a, str>,
    ino: Cow<'a, str>,
    name: Cow<'a, [u8]>,
}

impl Row<'_> {
    fn continued_by(&self, next: &Row<'_>) -> bool {
        let file = self.ino != "0";
        self.end == next.start
            && (self.prot, self.shared) == (next.prot, next.shared)
            && (&self.dev, &self.ino, &self.name) == (&next.dev, &next.ino, &next.name)
            && (!file || self.offset + (self.end - self.start) == next.offset)
    }

    fn print(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        let bit = |bit, c| if self.prot & bit != 0 { c } else { '-' };
        let (r, w, x) = (
            bit(libc::PROT_READ, 'r'),
            bit(libc::PROT_WRITE, 'w'),
            bit(libc::PROT_EXEC, 'x'),
        );
        let s = if self.shared { 's' } else { 'p' };
        let Row {
            start,
            end,
            offset,
            dev,
            ino,
            ..
        } = self;
        // Writing to a vector can't fail.
        let _ = write!(
            out,
            "{start:08x}-{end:08x} {r}{w}{x}{s} {offset:08x} {dev} {ino} "
        );
        if !self.name.is_empty() {
            let width = out.len() - begin;
            out.resize(out.len() + NAME_COLUMN.saturating_sub(width), b' ');
            out.extend_from_slice(&self.name);
        }
        out.push(b'\n');
    }
}

impl Memory {
    /// The text of `/proc/self/maps` for the guest.
    pub fn maps_text(&self) -> io::Result<Vec<u8>> {
        let host = host::maps()?;
        Ok(self.render(&host))
    }

    fn render(&self, host: &[u8]) -> Vec<u8> {
        let lines: Vec<Line> = host
            .split(|&b| b == b'\n')
            .filter_map(host::parse_line)
            .collect();
        let mut out = Vec::new();
        let mut pending: Option<Row> = None;
        for m in self.iter() {
            let from = lines.partition_point(|l| l.range.end <= m.start);
            for line in lines[from..].iter().take_while(|l| l.range.start < m.end) {
                let row = self.row(m, line);
                match &mut pending {
                    Some(last) if last.continued_by(&row) => last.end = row.end,
                    _ => {
                        if let Some(last) = pending.replace(row) {
                            last.print(&mut out);
                        }
                    }
                }
            }
        }
        if let Some(last) = pending {
            last.print(&mut out);
        }
        out
    }

    /// The part of a guest mapping that one real mapping backs.
    fn row<'a>(&self, m: &Mapping, line: &Line<'a>) -> Row<'a> {
        let start = m.start.max(line.range.start);
        let name: &[u8] = match m.backing {
            Backing::Heap => b"[heap]",
            Backing::Stack => b"[stack]",
            Backing::Vdso => b"[vdso]",
            _ => line.name,
        };
        let offset = if line.ino == "0" {
            0
        } else {
            line.offset + (start - line.range.start)
        };
        let mut row = Row {
            start,
            end: m.end.min(line.range.end),
            prot: m.prot,
            shared: m.shared,
            offset,
            dev: line.dev.into(),
            ino: line.ino.into(),
            name: name.into(),
        };
        // What is really mapped may be a copy, which is none of the guest's business.
        if let Backing::File { file, .. } = m.backing
            && let Some(path) = self.originals.shown_path(&file)
        {
            let (major, minor) = (libc::major(file.dev), libc::minor(file.dev));
            row.dev = format!("{major:02x}:{minor:02x}").into();
            row.ino = file.ino.to_string().into();
            row.name = path.into();
        }
        row
    }
}
