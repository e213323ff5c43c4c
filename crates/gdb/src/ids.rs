//! Names of threads on the wire. In: `p1f.20`, `20`, `-1`. Out: which process and thread are meant.

use crate::hex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Any,
    All,
    One(i32),
}

/// A thread, and its process where that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    pub pid: Option<Which>,
    pub tid: Which,
}

impl Id {
    pub fn parse(text: &[u8]) -> Option<Id> {
        let Some(rest) = text.strip_prefix(b"p") else {
            return Some(Id {
                pid: None,
                tid: which(text)?,
            });
        };
        let mut parts = rest.splitn(2, |&byte| byte == b'.');
        let pid = which(parts.next()?)?;
        // Without a thread, all of the process.
        let tid = parts.next().map_or(Some(Which::All), which)?;
        Some(Id {
            pid: Some(pid),
            tid,
        })
    }

    /// Whether it may mean something of this process.
    pub fn is_in(&self, pid: i32) -> bool {
        match self.pid {
            Some(Which::One(other)) => other == pid,
            _ => true,
        }
    }
}

fn which(digits: &[u8]) -> Option<Which> {
    match digits {
        b"-1" => Some(Which::All),
        _ => match i32::try_from(hex::number(digits)?).ok()? {
            0 => Some(Which::Any),
            number => Some(Which::One(number)),
        },
    }
}

pub fn text(pid: i32, tid: i32) -> String {
    format!("p{pid:x}.{tid:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written() {
        let id = Id::parse(b"p1f.20").unwrap();
        assert_eq!(id.pid, Some(Which::One(0x1f)));
        assert_eq!(id.tid, Which::One(0x20));
        assert!(id.is_in(0x1f) && !id.is_in(2));
        assert_eq!(Id::parse(text(31, 32).as_bytes()), Some(id));
        assert_eq!(Id::parse(b"p1.-1").unwrap().tid, Which::All);
        assert_eq!(Id::parse(b"p1").unwrap().tid, Which::All);
        assert_eq!(Id::parse(b"0").unwrap().tid, Which::Any);
        assert!(Id::parse(b"-1").unwrap().is_in(7));
        for bad in [&b""[..], b"p", b"x", b"p1.x", b"ffffffff"] {
            assert_eq!(Id::parse(bad), None);
        }
    }
}
