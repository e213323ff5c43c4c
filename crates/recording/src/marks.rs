//! Marks: places that a recorded program has named itself. In: a stream. Out: their names and positions.
//!
//! A mark is a note of a certain form, behind the call that made it.

use crate::event::{Event, Record, StreamId};
use crate::position::Position;
use crate::reader::{ReadError, Recording};

/// How such a note begins.
const BEGIN: &str = "mark: ";

/// The note for a mark.
pub fn note(name: &str) -> String {
    format!("{BEGIN}{name}")
}

/// The name of the mark that a note is, if it is one.
pub fn name(note: &str) -> Option<&str> {
    note.strip_prefix(BEGIN)
}

/// All marks of a stream, in order.
pub fn all(recording: &Recording, stream: StreamId) -> Result<Vec<(String, Position)>, ReadError> {
    let mut marks = Vec::new();
    let mut reader = recording.stream(stream)?;
    while let Some(record) = reader.next()? {
        let named = match &record {
            Record::Event(Event::Note(text)) => name(text).map(str::to_owned),
            _ => None,
        };
        if let Some(name) = named {
            marks.push((name, Position::after(reader.position())));
        }
    }
    Ok(marks)
}

/// The mark that `text` names, the Nth of its name as `NAME#N`; or what there is instead.
pub fn find(
    recording: &Recording,
    stream: StreamId,
    text: &str,
) -> Result<Result<Position, String>, ReadError> {
    let marks = all(recording, stream)?;
    let named = |name: &str, number: usize| {
        let found = marks.iter().filter(|(mark, _)| mark == name);
        found
            .map(|(_, position)| *position)
            .nth(number.checked_sub(1)?)
    };
    let numbered = text
        .rsplit_once('#')
        .and_then(|(name, number)| named(name, number.parse().ok()?));
    Ok(named(text, 1).or(numbered).ok_or_else(|| {
        let mut names: Vec<&str> = marks.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names.truncate(20);
        match names.is_empty() {
            true => "the program has made no marks (clew.h)".into(),
            false => format!("there is no mark {text:?}; there are {}", names.join(", ")),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_whether_it_is_a_mark() {
        assert_eq!(name(&note("request 7")), Some("request 7"));
        assert_eq!(name("the child of a vfork was killed"), None);
    }
}
