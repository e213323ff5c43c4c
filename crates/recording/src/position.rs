//! A place in the life of one program, as people write it and analyses compare it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state after so many events of the stream (with all their effects), then so many ticks of the
/// thread that runs there, then so many single instructions.
///
/// One thread runs between two events, and an instruction that ticks begins the next tick, so the
/// positions of a stream are totally ordered, in the order of their fields.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    pub event: u64,
    pub ticks: u64,
    pub steps: u64,
}

impl Position {
    /// Right after an event and its effects.
    pub const fn after(event: u64) -> Position {
        Position {
            event,
            ticks: 0,
            steps: 0,
        }
    }
}

/// `event`, `event+ticks` or `event+ticks+steps`, without what is zero at the end.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Position {
                event,
                ticks: 0,
                steps: 0,
            } => write!(f, "{event}"),
            Position {
                event,
                ticks,
                steps: 0,
            } => write!(f, "{event}+{ticks}"),
            Position {
                event,
                ticks,
                steps,
            } => write!(f, "{event}+{ticks}+{steps}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no position; one is EVENT, EVENT+TICKS or EVENT+TICKS+STEPS, as in 1204+77+3")]
pub struct NoPosition(pub String);

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Position, NoPosition> {
        let mut numbers = [0; 3];
        let parts: Vec<&str> = text.trim().split('+').collect();
        if parts.len() > numbers.len() {
            return Err(NoPosition(text.into()));
        }
        for (number, part) in numbers.iter_mut().zip(parts) {
            *number = part
                .replace(',', "")
                .parse()
                .map_err(|_| NoPosition(text.into()))?;
        }
        let [event, ticks, steps] = numbers;
        Ok(Position {
            event,
            ticks,
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        for text in ["0", "17", "17+4", "17+0+3", "1204+77+3"] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        assert_eq!("1,204".parse::<Position>().unwrap(), Position::after(1204));
        for text in ["", "x", "1+", "1+2+3+4", "-1"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn in_order() {
        let order = ["1", "1+0+1", "1+1", "1+1+9", "1+2", "2"];
        let positions = order.map(|text| text.parse::<Position>().unwrap());
        assert!(positions.is_sorted_by(|a, b| a < b));
    }
}
