//! Regions of debug code in a copy of a program's source. In: the text with `rdb_begin` … `rdb_end`. Out: the regions, and
//! the text as it was compiled, in which lines have the numbers that the recorded program knows.
//!
//! A marker stands alone on its line, or at least nothing of the program stands beside it: what remains without regions
//! must be the program's own lines, one to one.

use crate::Error;

/// A piece of debug code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub text: String,
    /// The line of the copy that the text begins in.
    pub line: u32,
    /// The program's line that follows it.
    pub before: u32,
}

/// A source file, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    pub regions: Vec<Region>,
    /// Without them.
    pub program: String,
}

const BEGIN: &str = "rdb_begin";
const END: &str = "rdb_end";

/// A line without comments that open and close in it, to see what else it has.
fn marker(line: &str) -> &str {
    let line = line.split("//").next().unwrap_or(line);
    line.trim().trim_end_matches(';').trim()
}

/// Takes a source file apart. `name` is for messages.
pub fn part(text: &str, name: &str) -> Result<Parted, Error> {
    let mut parted = Parted {
        regions: Vec::new(),
        program: String::new(),
    };
    let mut open: Option<(u32, String)> = None;
    // A conditional around a region alone goes with it.
    let mut lines = 0;
    let wrong = |number: u32, what: &str| Error::Region(format!("{name}:{number}: {what}"));
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match (marker(line), &mut open) {
            (BEGIN, None) => open = Some((number + 1, String::new())),
            (BEGIN, Some(_)) => {
                return Err(wrong(number, "rdb_begin within a region: end that first"));
            }
            (END, Some(_)) => {
                let (line, text) = open.take().expect("it was just there");
                parted.regions.push(Region {
                    text,
                    line,
                    before: lines + 1,
                });
            }
            (END, None) => return Err(wrong(number, "rdb_end without rdb_begin")),
            (_, Some((_, region))) => region.push_str(line),
            (other, None) if other.contains(BEGIN) || other.contains(END) => {
                let what = "rdb_begin and rdb_end stand on lines of their own";
                return Err(wrong(number, what));
            }
            (_, None) => {
                parted.program.push_str(line);
                lines += 1;
            }
        }
    }
    match open {
        Some((line, _)) => Err(wrong(line - 1, "rdb_begin without rdb_end")),
        None => Ok(parted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_go_and_lines_stay() {
        let text = "a\nrdb_begin\n  x;\n  y;\nrdb_end\nb\nrdb_begin;\nz;\nrdb_end // so\nc\n";
        let parted = part(text, "t.c").unwrap();
        assert_eq!(parted.program, "a\nb\nc\n");
        let [first, second] = &parted.regions[..] else {
            panic!("two regions")
        };
        assert_eq!(
            (first.line, first.before, &first.text[..]),
            (3, 2, "  x;\n  y;\n")
        );
        assert_eq!((second.line, second.before), (8, 3));
    }

    #[test]
    fn markers_come_in_pairs() {
        for text in [
            "rdb_begin\n",
            "rdb_end\n",
            "rdb_begin\nrdb_begin\nrdb_end\n",
            "x; rdb_begin\nrdb_end\n",
        ] {
            assert!(part(text, "t.c").is_err(), "{text:?}");
        }
    }
}
