//! Races that somebody knows of. In: a file in ThreadSanitizer's format. Out: which races it means.

use super::{Race, Side};

/// Kinds that ThreadSanitizer knows and that aren't about races.
const OTHERS: &[&str] = &["thread", "mutex", "signal", "deadlock", "called_from_lib"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    text: String,
    pattern: String,
    /// The innermost frame alone counts.
    top: bool,
}

impl Suppressions {
    /// `race:PATTERN` or `race_top:PATTERN`, one a line; what begins with # is a remark.
    pub fn parse(text: &str) -> Result<Suppressions, String> {
        let mut all = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (kind, pattern) = line.split_once(':').unwrap_or((line, ""));
            let top = match kind {
                "race" => false,
                "race_top" => true,
                other if OTHERS.contains(&other) => continue,
                _ => {
                    return Err(format!(
                        "line {}: {line:?} is no suppression; one is race:PATTERN or race_top:PATTERN",
                        n + 1
                    ));
                }
            };
            if pattern.is_empty() {
                return Err(format!(
                    "line {}: a pattern is missing behind {kind}:",
                    n + 1
                ));
            }
            all.push(Rule {
                text: line.into(),
                pattern: pattern.into(),
                top,
            });
        }
        Ok(Suppressions(all))
    }

    /// What hides a race, if something does.
    pub fn matches(&self, race: &Race) -> Option<String> {
        let rule = self.0.iter().find(|rule| {
            let meant = |side: &Side| {
                let most = if rule.top { 1 } else { usize::MAX };
                let stack = side.stack.iter().take(most);
                let lines = stack.chain([&side.line].into_iter().filter(|_| !rule.top));
                let mut texts =
                    lines.flat_map(|line| [&line.function, &line.file, &line.module].into_iter());
                texts.any(|text| text.as_deref().is_some_and(|text| rule.means(text)))
            };
            let variable = race.variable.as_deref();
            meant(&race.first)
                || meant(&race.second)
                || !rule.top && variable.is_some_and(|name| rule.means(name))
        })?;
        Some(format!("suppressed by {}", rule.text))
    }
}

impl Rule {
    fn means(&self, text: &str) -> bool {
        matches(&self.pattern, text)
    }
}

/// Somewhere in the text; `*` is anything, `^` the beginning, `$` the end.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, mut anchored) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (pattern, ends) = match pattern.strip_suffix('$') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let parts: Vec<&str> = pattern.split('*').collect();
    let mut rest = text;
    for (n, part) in parts.iter().enumerate() {
        let last = n + 1 == parts.len();
        if last && ends {
            return match anchored {
                true => rest == *part,
                false => rest.ends_with(part),
            };
        }
        let at = match anchored {
            true => rest.starts_with(part).then_some(0),
            false => rest.find(part),
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
        anchored = false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_elsewhere() {
        for (pattern, text, meant) in [
            ("foo", "a_foo_b", true),
            ("^foo", "a_foo_b", false),
            ("foo$", "a_foo", true),
            ("^foo$", "foo", true),
            ("^foo$", "foofoo", false),
            ("a*b", "xaxxbx", true),
            ("a*b$", "axbx", false),
            ("^a*c*b$", "acb", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), meant, "{pattern} {text}");
        }
    }

    #[test]
    fn files_are_read_or_told_what_is_wrong() {
        let read = Suppressions::parse("# known\n\nrace:^counter$\nmutex:other\nrace_top:f*\n");
        assert_eq!(read.unwrap().0.len(), 2);
        assert!(
            Suppressions::parse("races:x")
                .unwrap_err()
                .contains("line 1")
        );
        assert!(Suppressions::parse("race:").is_err());
    }
}
