//! Line tables: a unit's line program in; the line of an address, and addresses of a line, out.

use crate::functions::{short_text, text};
use crate::{Error, Module, Unit};
use gimli::ColumnType;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// The path as the compiler was given it, with its directory where that was relative.
    pub file: Arc<str>,
    /// 0 where the compiler says that an instruction belongs to no line.
    pub line: u32,
    /// 0 where the compiler doesn't say.
    pub column: u32,
    /// Whether a statement starts at the address, which makes it a good place for a breakpoint.
    pub is_stmt: bool,
}

/// An address where a line of the source starts; the address is the module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineAddress {
    pub address: u64,
    pub line: Line,
}

#[derive(Debug)]
pub(crate) struct LineTable {
    pub files: Files,
    rows: OnceLock<Result<Rows, Error>>,
}

/// The paths of a unit's files, by their numbers, made when they are asked for.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<OnceLock<Option<Arc<str>>>>);

#[derive(Debug, Default)]
struct Rows {
    /// In address order, each a part of `rows`.
    sequences: Vec<(Range<u64>, Range<usize>)>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    file: u32,
    line: u32,
    column: u32,
    is_stmt: bool,
    prologue_end: bool,
}

impl Files {
    fn read(unit: Unit<'_>) -> Files {
        let Some(program) = &unit.line_program else {
            return Files::default();
        };
        let header = program.header();
        let count = header.file_names().len() + usize::from(header.version() < 5);
        Files((0..count).map(|_| OnceLock::new()).collect())
    }

    /// The file of that number; `unit` is one that this table belongs to.
    pub fn get(&self, unit: Unit<'_>, number: u64) -> Option<&Arc<str>> {
        let slot = self.0.get(usize::try_from(number).ok()?)?;
        slot.get_or_init(|| path(unit, number).map(Arc::from))
            .as_ref()
    }

    /// Which of the files `wanted` means.
    fn meant(&self, unit: Unit<'_>, wanted: &str) -> Vec<bool> {
        let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let wanted_last = last(wanted);
        let each = |number: u64| {
            // Most files are told apart by their last parts alone.
            let name = file_name(unit, number)?;
            let path = if last(&name) == wanted_last {
                self.get(unit, number)
            } else {
                None
            };
            Some(path_means(wanted, path?))
        };
        (0..self.0.len() as u64)
            .map(|number| each(number).unwrap_or(false))
            .collect()
    }
}

/// A file's name as the table has it.
fn file_name(unit: Unit<'_>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    // Before version 5, file 0 was no file.
    if number == 0 && header.version() < 5 {
        return None;
    }
    text(unit, header.file(number)?.path_name()).ok()
}

/// A file's name with its directory.
fn path(unit: Unit<'_>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let home = unit.comp_dir.as_ref().map_or_else(String::new, short_text);
    let name = file_name(unit, number)?;
    let file = header.file(number)?;
    let directory = match file.directory(header) {
        Some(directory) if file.directory_index() != 0 || header.version() >= 5 => {
            join(&home, &text(unit, directory).unwrap_or_default())
        }
        _ => home,
    };
    Some(join(&directory, &name))
}

/// A path in a directory; an absolute one stays as it is.
fn join(directory: &str, path: &str) -> String {
    if directory.is_empty() || path.starts_with('/') {
        path.into()
    } else if path.is_empty() {
        directory.into()
    } else {
        format!("{}/{path}", directory.trim_end_matches('/'))
    }
}

/// Whether `wanted` ("a.c", "src/a.c", "/home/x/src/a.c") means the file: its last components.
pub(crate) fn path_means(wanted: &str, file: &str) -> bool {
    let components = |path: &str| -> Vec<String> {
        let kept = path
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        let mut out: Vec<String> = Vec::new();
        for part in kept {
            if part == ".." && out.last().is_some_and(|last| last != "..") {
                out.pop();
            } else {
                out.push(part.into());
            }
        }
        out
    };
    let (wanted_parts, file_parts) = (components(wanted), components(file));
    if wanted.starts_with('/') {
        return wanted_parts == file_parts;
    }
    !wanted_parts.is_empty() && file_parts.ends_with(&wanted_parts)
}

impl Rows {
    fn read(module: &Module, unit: Unit<'_>) -> Result<Rows, Error> {
        let Some(program) = unit.line_program.clone() else {
            return Ok(Rows::default());
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut sequences = Vec::new();
        let mut start = 0;
        let mut machine = program.rows();
        // A failure ends the reading; whole sequences before it are good.
        while let Ok(Some((_, row))) = machine.next_row() {
            if !row.end_sequence() {
                rows.push(Row {
                    address: row.address(),
                    file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                    line: row
                        .line()
                        .map_or(0, |line| u32::try_from(line.get()).unwrap_or(0)),
                    column: match row.column() {
                        ColumnType::LeftEdge => 0,
                        ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
                    },
                    is_stmt: row.is_stmt(),
                    prologue_end: row.prologue_end(),
                });
                continue;
            }
            let sequence = &rows[start..];
            let low = sequence.first().map_or(0, |row| row.address);
            // Addresses of dropped functions start near 0 or at the top; and no later row may
            // have a lower address, on which the search relies.
            let sorted = sequence.is_sorted_by_key(|row| row.address);
            if !sequence.is_empty() && sorted && row.address() > low && module.is_code(low) {
                sequences.push((low..row.address(), start..rows.len()));
                start = rows.len();
            } else {
                rows.truncate(start);
            }
        }
        rows.truncate(start);
        sequences.sort_by_key(|(addresses, _)| addresses.start);
        Ok(Rows { sequences, rows })
    }

    /// The row of an address; it is a statement's if one starts at this very address.
    fn at(&self, address: u64) -> Option<Row> {
        let after = self
            .sequences
            .partition_point(|(addresses, _)| addresses.start <= address);
        // Sequences don't overlap in well-formed tables; a few are tried for those that do.
        let (_, rows) = self.sequences[..after]
            .iter()
            .rev()
            .take(8)
            .find(|(addresses, _)| addresses.contains(&address))?;
        let rows = &self.rows[rows.clone()];
        let last = rows
            .partition_point(|row| row.address <= address)
            .checked_sub(1)?;
        // Of several rows for one address the last tells where its instruction is from.
        let mut found = rows[last];
        let same = rows[..=last]
            .iter()
            .rev()
            .take_while(|row| row.address == found.address);
        found.is_stmt = found.address == address && same.into_iter().any(|row| row.is_stmt);
        Some(found)
    }
}

impl LineTable {
    pub fn read(unit: Unit<'_>) -> LineTable {
        LineTable {
            files: Files::read(unit),
            rows: OnceLock::new(),
        }
    }

    fn rows(&self, module: &Module, unit: Unit<'_>) -> Result<&Rows, Error> {
        self.rows
            .get_or_init(|| Rows::read(module, unit))
            .as_ref()
            .map_err(Error::clone)
    }

    fn line(&self, unit: Unit<'_>, row: &Row) -> Option<Line> {
        let file = self.files.get(unit, u64::from(row.file))?.clone();
        Some(Line {
            file,
            line: row.line,
            column: row.column,
            is_stmt: row.is_stmt,
        })
    }
}

impl Module {
    /// The line of the instruction at (or around) an address; none without debugging information.
    pub fn line_at(&self, address: u64) -> Result<Option<Line>, Error> {
        for number in self.units_at(address)? {
            let (table, unit) = (self.lines(number)?, self.skeleton(number)?);
            if let Some(row) = table.rows(self, unit)?.at(address) {
                return Ok(table.line(unit, &row));
            }
        }
        Ok(None)
    }

    /// Where a line's code starts: an address for each function (or inlined call) that has code
    /// for it. If the line has no code, the next one that does, as gdb does it; `file` may be the
    /// last components of a path.
    pub fn addresses_of(&self, file: &str, line: u32) -> Result<Vec<LineAddress>, Error> {
        let mut best: Option<u32> = None;
        let mut seen = HashSet::new();
        let mut found: Vec<LineAddress> = Vec::new();
        for number in 0..self.unit_count()? {
            let (Ok(table), Ok(unit)) = (self.lines(number), self.skeleton(number)) else {
                continue;
            };
            // Units of types share the table of the unit that uses them.
            if !seen.insert(std::ptr::from_ref(table)) {
                continue;
            }
            let wanted = table.files.meant(unit, file);
            if !wanted.contains(&true) {
                continue;
            }
            let rows = table.rows(self, unit)?;
            for (_, range) in &rows.sequences {
                let mut before = None;
                for row in &rows.rows[range.clone()] {
                    let here = (row.file, row.line);
                    let begins = before.replace(here) != Some(here);
                    let wanted = wanted.get(row.file as usize).copied().unwrap_or(false);
                    if !wanted || !row.is_stmt || row.line < line || !begins {
                        continue;
                    }
                    if best.is_none_or(|best| row.line < best) {
                        best = Some(row.line);
                        found.clear();
                    }
                    if best == Some(row.line)
                        && let Some(line) = table.line(unit, row)
                    {
                        found.push(LineAddress {
                            address: row.address,
                            line,
                        });
                    }
                }
            }
        }
        self.first_of_each_function(found)
    }

    /// Where the statements of a file begin, for each of its lines that has code: an address for each function (or inlined
    /// call). `file` may be the last components of a path.
    pub fn lines_of(&self, file: &str) -> Result<Vec<LineAddress>, Error> {
        let mut by_line: BTreeMap<u32, Vec<LineAddress>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for number in 0..self.unit_count()? {
            let (Ok(table), Ok(unit)) = (self.lines(number), self.skeleton(number)) else {
                continue;
            };
            if !seen.insert(std::ptr::from_ref(table)) {
                continue;
            }
            let wanted = table.files.meant(unit, file);
            if !wanted.contains(&true) {
                continue;
            }
            let rows = table.rows(self, unit)?;
            for (_, range) in &rows.sequences {
                let mut before = None;
                for row in &rows.rows[range.clone()] {
                    let here = (row.file, row.line);
                    let begins = before.replace(here) != Some(here);
                    let wanted = wanted.get(row.file as usize).copied().unwrap_or(false);
                    if wanted
                        && row.is_stmt
                        && row.line != 0
                        && begins
                        && let Some(line) = table.line(unit, row)
                    {
                        by_line.entry(row.line).or_default().push(LineAddress {
                            address: row.address,
                            line,
                        });
                    }
                }
            }
        }
        let mut all = Vec::new();
        for found in by_line.into_values() {
            all.extend(self.first_of_each_function(found)?);
        }
        Ok(all)
    }

    /// The files that it was compiled from, each once.
    pub fn sources(&self) -> Result<Vec<Arc<str>>, Error> {
        let mut all = BTreeSet::new();
        for number in 0..self.unit_count()? {
            let (Ok(table), Ok(unit)) = (self.lines(number), self.skeleton(number)) else {
                continue;
            };
            let files = 0..table.files.0.len() as u64;
            all.extend(files.filter_map(|file| table.files.get(unit, file).cloned()));
        }
        Ok(all.into_iter().collect())
    }

    /// The lowest address in each function or inlined call.
    fn first_of_each_function(
        &self,
        mut found: Vec<LineAddress>,
    ) -> Result<Vec<LineAddress>, Error> {
        found.sort_by_key(|one| one.address);
        let mut seen = HashSet::new();
        let mut first = Vec::new();
        for one in found {
            let innermost = match self.function_die(one.address)? {
                Some((die, _)) => {
                    let calls = self.inlined_at(die, one.address)?;
                    Some(calls.last().map_or(die, |call| call.die))
                }
                None => None,
            };
            // Without a function each address stands for itself.
            if innermost.is_none_or(|die| seen.insert(die)) {
                first.push(one);
            }
        }
        Ok(first)
    }

    /// Where statements start in a part of the code, in order of their addresses.
    pub fn statements(&self, part: Range<u64>) -> Result<Vec<LineAddress>, Error> {
        let mut found = Vec::new();
        for number in self.units_at(part.start)? {
            let (table, unit) = (self.lines(number)?, self.skeleton(number)?);
            let rows = table.rows(self, unit)?;
            for (addresses, range) in &rows.sequences {
                if addresses.end <= part.start || part.end <= addresses.start {
                    continue;
                }
                let rows = &rows.rows[range.clone()];
                let inside = |row: &&Row| row.is_stmt && part.contains(&row.address);
                for row in rows.iter().filter(inside) {
                    if let Some(line) = table.line(unit, row) {
                        let address = row.address;
                        found.push(LineAddress { address, line });
                    }
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        // Of several rows for one address the last tells where its instruction is from.
        found.sort_by_key(|one| one.address);
        found.reverse();
        found.dedup_by_key(|one| one.address);
        found.reverse();
        Ok(found)
    }

    /// Where the body of a function starts, after it has set up its frame, so that variables are
    /// where DWARF says: the second line of its code, as gdb takes it, or where the compiler marks
    /// it. The entry itself if lines don't tell.
    pub fn body_of(&self, entry: u64) -> Result<u64, Error> {
        let Some((_, part)) = self.function_die(entry)? else {
            return Ok(entry);
        };
        for number in self.units_at(entry)? {
            let rows = self.lines(number)?.rows(self, self.skeleton(number)?)?;
            let Some((_, range)) = rows
                .sequences
                .iter()
                .find(|(addresses, _)| addresses.contains(&entry))
            else {
                continue;
            };
            let rows = &rows.rows[range.clone()];
            let rows = &rows[rows.partition_point(|row| row.address < entry)..];
            let rows = &rows[..rows.partition_point(|row| row.address < part.end)];
            if let Some(marked) = rows.iter().find(|row| row.prologue_end) {
                return Ok(marked.address);
            }
            let second = rows
                .iter()
                .find(|row| row.address > entry && row.line != 0 && row.is_stmt);
            return Ok(second.map_or(entry, |row| row.address));
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_meant_by_its_last_components() {
        assert!(path_means("a.c", "/x/src/a.c"));
        assert!(path_means("src/a.c", "/x/src/a.c"));
        assert!(path_means("./src/a.c", "/x/src/../src/a.c"));
        assert!(path_means("/x/src/a.c", "/x/./src/a.c"));
        assert!(!path_means("c/a.c", "/x/src/a.c"));
        assert!(!path_means("/src/a.c", "/x/src/a.c"));
        assert!(!path_means("", "/x/src/a.c"));
    }

    #[test]
    fn relative_paths_lie_in_the_directory() {
        assert_eq!(join("/x", "a.c"), "/x/a.c");
        assert_eq!(join("/x/", "a.c"), "/x/a.c");
        assert_eq!(join("/x", "/y/a.c"), "/y/a.c");
        assert_eq!(join("", "a.c"), "a.c");
        assert_eq!(join("/x", ""), "/x");
    }
}
