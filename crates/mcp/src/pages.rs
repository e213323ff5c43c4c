//! Answers in parts. In: a text of any length. Out: its first part, and a word that gives the next.

use std::collections::VecDeque;

/// An agent reads so much at once.
const LONGEST: usize = 12_000;
/// Rests that are kept; older ones must be asked for anew.
const KEPT: usize = 16;

#[derive(Default)]
pub struct Pages {
    rests: VecDeque<(u64, String)>,
    last: u64,
}

impl Pages {
    /// The first part; what there is to say about the rest is its last line.
    pub fn first(&mut self, text: String) -> String {
        if text.len() <= LONGEST {
            return text;
        }
        let end = cut(&text);
        let (part, rest) = text.split_at(end);
        self.last += 1;
        let lines = rest.lines().count();
        self.rests.push_back((self.last, rest.to_string()));
        if self.rests.len() > KEPT {
            self.rests.pop_front();
        }
        let token = self.last;
        format!("{part}\n({lines} more lines: call `more` with token {token})")
    }

    pub fn next(&mut self, token: u64) -> Result<String, String> {
        let known = self.rests.iter().position(|(number, _)| *number == token);
        match known.and_then(|at| self.rests.remove(at)) {
            Some((_, rest)) => Ok(self.first(rest)),
            None => Err(format!(
                "there is no rest {token} any more; ask the question again"
            )),
        }
    }
}

/// Where a line ends, if one does; never within a letter.
fn cut(text: &str) -> usize {
    let mut end = LONGEST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end]
        .rfind('\n')
        .filter(|at| *at > 0)
        .map_or(end, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole() {
        for letter in ["a\n", "ä", "\n", "0123456789\n"] {
            let whole = letter.repeat(40_000 / letter.len());
            let mut pages = Pages::default();
            let mut told = pages.first(whole.clone());
            let mut all = String::new();
            while let Some(at) = told.rfind("\n(") {
                let token = told.rsplit("token ").next().unwrap().trim_end_matches(')');
                let token = token.parse().unwrap();
                assert!(at <= LONGEST);
                all.push_str(&told[..at]);
                assert!(pages.first("short".into()) == "short");
                told = pages.next(token).unwrap();
                assert!(pages.next(token).is_err());
            }
            all.push_str(&told);
            assert_eq!(all, whole);
        }
    }
}
