//! Where to stop. In: what people write. Out: spots, and who is meant when one is hit.

use crate::{Error, Result};

/// A place in a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// The file by its name, or the end of its path.
    Line { file: String, line: u32 },
    /// A function's first line; with its classes or without.
    Function { name: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    pub number: u32,
    pub spot: Spot,
    pub condition: Option<String>,
    /// Gone when it was hit.
    pub temporary: bool,
    pub hits: u64,
}

impl Spot {
    /// `FILE:LINE`, `LINE` of this file, or a function.
    pub fn parse(text: &str, here: Option<&str>) -> Result<Spot> {
        let text = text.trim();
        let number = |text: &str| text.parse::<u32>().ok().filter(|&line| line > 0);
        if let Some((file, line)) = text.rsplit_once(':')
            && let Some(line) = number(line)
            && !file.is_empty()
        {
            let file = file.into();
            return Ok(Spot::Line { file, line });
        }
        match (number(text), here) {
            (Some(line), Some(file)) => Ok(Spot::Line {
                file: file.into(),
                line,
            }),
            (None, _) if is_name(text) => Ok(Spot::Function { name: text.into() }),
            _ => Err(Error::Refused(format!(
                "{text:?} is no place; one is FILE:LINE, LINE of this file, or a function's name"
            ))),
        }
    }
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spot::Line { file, line } => write!(f, "{file}:{line}"),
            Spot::Function { name } => write!(f, "{name}"),
        }
    }
}

/// A function's, with its classes (`Bank.move`) or its packages (`Bank::move`). A single colon is nobody's: it comes before a
/// line's number.
fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "_.<>".contains(c);
    let mut parts = text.split("::");
    parts.all(|part| part.chars().all(inside) && !part.is_empty())
        && text.starts_with(|c: char| c.is_alphabetic() || "_<".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let line = |file: &str, line| Spot::Line {
            file: file.into(),
            line,
        };
        assert_eq!(Spot::parse("a/b.py:12", None).unwrap(), line("a/b.py", 12));
        assert_eq!(Spot::parse("7", Some("c.py")).unwrap(), line("c.py", 7));
        let name = "Bank.move".to_string();
        assert_eq!(
            Spot::parse("Bank.move", None).unwrap(),
            Spot::Function { name }
        );
        let name = "Bank::move".to_string();
        assert_eq!(
            Spot::parse("Bank::move", None).unwrap(),
            Spot::Function { name }
        );
        assert!(Spot::parse("7", None).is_err());
        assert!(Spot::parse("a b", Some("c.py")).is_err());
        assert!(Spot::parse("x.py:0", None).is_err());
        assert!(Spot::parse("Bank::", None).is_err());
    }
}
