//! Conditions of breakpoints that are asked in the midst of a run. In: a condition's text, and the code in which it is asked.
//! Out: agent code that is false only where the condition is.
//!
//! Known are comparisons of a function's own variable with a small number, also several with `and` between them. Whatever else a
//! variable may be, a float or unbound, counts as true here: who stops there evaluates the whole condition.

use super::code::{Code, string};
use super::layout::{ITEMS, Layout, SIZE, TYPE};
use crate::agent::Code as Agent;
use crate::{Result, View};

/// In code: flags, and the names of its variables; in frames: the variables.
const FLAGS: u64 = 48;
const NAMES: u64 = 96;
const VARIABLES: u64 = 72;
/// `CO_OPTIMIZED`: its variables are in the frame.
const IN_FRAME: u64 = 1;
const MOST_VARIABLES: u64 = 1_000;
/// In numbers: the first 30 bits.
const DIGIT: u64 = 24;
const MOST: i64 = 1 << 29;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    Unequal,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

/// What of a condition is known, from its beginning on.
fn parts(text: &str) -> Vec<(&str, Compare, i64)> {
    let simple = |c: char| c.is_alphanumeric() || "_ <>=!-".contains(c);
    let others = ["or", "if", "lambda"];
    if !text.chars().all(simple) || text.split(' ').any(|word| others.contains(&word)) {
        return Vec::new();
    }
    let operators = [
        ("==", Compare::Equal),
        ("!=", Compare::Unequal),
        ("<=", Compare::AtMost),
        (">=", Compare::AtLeast),
        ("<", Compare::Less),
        (">", Compare::Greater),
    ];
    let part = |part: &'_ str| -> Option<(usize, usize, Compare, i64)> {
        let found = operators.iter().find(|(sign, _)| part.contains(sign))?;
        let at = part.find(found.0)?;
        let (name, number) = (part[..at].trim(), part[at + found.0.len()..].trim());
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        let plain = |n: &i64| n.abs() < MOST && n.to_string() == number;
        let number = number.parse().ok().filter(plain)?;
        let from = part.find(name)?;
        is_name.then_some((from, from + name.len(), found.1, number))
    };
    // What comes behind something that isn't known may never be evaluated.
    text.split(" and ")
        .map_while(|text| part(text).map(|(from, to, how, n)| (&text[from..to], how, n)))
        .collect()
}

/// The condition at a site in this code, whose frame is in that register; none if nothing of it is known.
pub fn agent(
    view: &mut View,
    layout: &Layout,
    tagged: bool,
    code: &Code,
    register: u8,
    text: &str,
) -> Result<Option<Agent>> {
    let number_type = view.address("PyLong_Type")?;
    let mut all: Option<Agent> = None;
    for (name, how, number) in parts(text) {
        let Some(at) = variable(view, layout, code, name)? else {
            break;
        };
        let frame = Agent::new().register(register);
        let value = frame.word(VARIABLES + at * 8);
        let is_none = value.clone().equals(0);
        let is_other = value.clone().word(TYPE).equals(number_type).not();
        let digit = value.clone().half(DIGIT);
        // From 3.12 on: two bits for the sign (0, or 1 for zero, or 2 if negative), the digits' count above a third one.
        let size = value.word(SIZE);
        let (is_long, sign) = match tagged {
            true => (
                size.clone().less_unsigned(16).not(),
                Agent::new().constant(1).minus(size.masked(3)),
            ),
            false => (size.clone().plus(1).less_unsigned(3).not(), size),
        };
        let value = sign.times(digit);
        let number = number as u64;
        let holds = match how {
            Compare::Equal => value.equals(number),
            Compare::Unequal => value.equals(number).not(),
            Compare::Less => value.less(number),
            Compare::AtLeast => value.less(number).not(),
            Compare::AtMost => value.less(number.wrapping_add(1)),
            Compare::Greater => value.less(number.wrapping_add(1)).not(),
        };
        let holds = is_none.or(is_other.or(is_long.or(holds)));
        all = Some(match all {
            Some(before) => before.and(holds),
            None => holds,
        });
    }
    Ok(all.filter(Agent::fits))
}

/// Which of a function's variables this is.
fn variable(view: &mut View, layout: &Layout, code: &Code, name: &str) -> Result<Option<u64>> {
    if view.word(code.address + FLAGS)? & IN_FRAME == 0 {
        return Ok(None);
    }
    let names = view.word(code.address + NAMES)?;
    let count = view.word(names + SIZE)?;
    if count > MOST_VARIABLES {
        return Ok(None);
    }
    for n in 0..count {
        let item = view.word(names + ITEMS + n * 8)?;
        if string(view, layout, item)? == name {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_with_numbers_are_known() {
        assert_eq!(parts("n == 13"), [("n", Compare::Equal, 13)]);
        assert_eq!(parts("amount<=-1 and k > 7 and f.x == 1"), []);
        assert_eq!(
            parts("amount<=-1 and k > 7"),
            [("amount", Compare::AtMost, -1), ("k", Compare::Greater, 7)]
        );
        // Known as far as the first that isn't.
        assert_eq!(parts("a == 1 and b and c == 2"), [("a", Compare::Equal, 1)]);
        assert_eq!(parts("a == 1 or b == 2"), []);
        assert_eq!(parts("a == 1 and b == 2 or c"), []);
        assert_eq!(parts("a == 1 and b if c else d"), []);
        assert_eq!(parts("a == 013"), []);
        assert_eq!(parts("1 < a"), []);
        assert_eq!(parts("1 < a < 3"), []);
        assert_eq!(parts("not a == 1"), []);
        assert_eq!(parts("a == 10000000000"), []);
    }
}
