//! Memory that call-backs watch. In: a file of debug code, and where expressions are known. Out: the file with a name in the place
//! of each expression, and the memory that each name means.

use std::collections::HashMap;

use clew_debugger::{Debugger, Direction, Spot, Wanted};

use crate::Error;

/// Where watched memory is, and how long: by name.
pub type Watched = HashMap<String, (u64, u64)>;

const MACROS: [&str; 3] = ["CLEW_ON_READ(", "CLEW_ON_WRITE(", "CLEW_ON_ACCESS("];

/// A call-back's arguments: where they stand, the expression, and a length.
struct Asked<'a> {
    start: usize,
    end: usize,
    expression: &'a str,
    len: Option<&'a str>,
}

/// What call-backs watch that is more than a name.
fn asked(text: &str) -> Vec<Asked<'_>> {
    let mut all = Vec::new();
    for name in MACROS {
        for (at, _) in text.match_indices(name) {
            let start = at + name.len();
            let (mut depth, mut comma, mut end) = (0, None, None);
            for (n, c) in text[start..].char_indices() {
                match c {
                    '(' | '[' => depth += 1,
                    ')' if depth == 0 => {
                        end = Some(start + n);
                        break;
                    }
                    ')' | ']' => depth -= 1,
                    ',' if depth == 0 => comma = Some(start + n),
                    _ => {}
                }
            }
            let Some(end) = end else { continue };
            let expression = text[start..comma.unwrap_or(end)].trim();
            let len = comma.map(|comma| text[comma + 1..end].trim());
            let is_name = expression
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || len.is_some() {
                all.push(Asked {
                    start,
                    end,
                    expression,
                    len,
                });
            }
        }
    }
    all.sort_by_key(|one| one.start);
    all
}

/// Puts names for expressions. They mean what they do where `main` begins, or at `from`.
pub fn named(
    debugger: &mut Debugger,
    from: &str,
    text: &str,
    watched: &mut Watched,
) -> Result<String, Error> {
    let asked = asked(text);
    if asked.is_empty() {
        return Ok(text.into());
    }
    debugger.seek(from)?;
    if from == "start" {
        let main = debugger.add_breakpoint(Wanted::at(Spot::Function("main".into())))?;
        debugger.go(Direction::Forward)?;
        debugger.remove_breakpoint(main.id)?;
    }
    let thread = debugger.thread();
    let mut named = String::new();
    let mut at = 0;
    for one in asked {
        let node = debugger.evaluate(thread, 0, one.expression)?;
        let len = match one.len.map(str::parse) {
            Some(Ok(len)) => Some(len),
            Some(Err(_)) => None,
            None => node.size,
        };
        let (Some(address), Some(len @ 1..)) = (node.address, len) else {
            return Err(Error::Place(format!(
                "{} can't be watched: it isn't memory, or its length isn't a number",
                one.expression
            )));
        };
        let name = format!("__clew_watch_{}", watched.len());
        named.push_str(&text[at..one.start]);
        named.push_str(&name);
        at = one.end;
        watched.insert(name, (address, len));
    }
    named.push_str(&text[at..]);
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_found() {
        let text =
            "CLEW_ON_WRITE(total) {}\nCLEW_ON_READ(a.b[(2)]) {}\nCLEW_ON_ACCESS(*list, 16) {}";
        let all: Vec<(&str, Option<&str>)> = asked(text)
            .iter()
            .map(|one| (one.expression, one.len))
            .collect();
        assert_eq!(all, [("a.b[(2)]", None), ("*list", Some("16"))]);
    }
}
