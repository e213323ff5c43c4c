//! Breakpoints and watchpoints. In: `Z` and `z` packets. Out: what a timeline is to stop at.

use clew_timeline::{Break, Calls, Events, Stops, Watch, WatchKind};

use crate::hex;

/// What gdb has inserted. The same may be inserted twice, and is removed once.
#[derive(Default)]
pub struct Points {
    breaks: Vec<Point>,
    watches: Vec<Watched>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Point {
    addr: u64,
    hard: bool,
    conditions: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    kind: Kind,
    watch: Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Soft,
    Hard,
    Write,
    Read,
    Access,
}

impl Kind {
    fn parse(digit: u8) -> Option<Kind> {
        Some(match digit {
            b'0' => Kind::Soft,
            b'1' => Kind::Hard,
            b'2' => Kind::Write,
            b'3' => Kind::Read,
            b'4' => Kind::Access,
            _ => return None,
        })
    }

    /// How a stop reply names it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Soft => "swbreak",
            Kind::Hard => "hwbreak",
            Kind::Write => "watch",
            Kind::Read => "rwatch",
            Kind::Access => "awatch",
        }
    }

    fn watch(self) -> WatchKind {
        match self {
            Kind::Read => WatchKind::Read,
            Kind::Access => WatchKind::Access,
            _ => WatchKind::Change,
        }
    }
}

/// `Z type,addr,kind;conditions;cmds:...` without its letter, taken apart.
struct Request {
    kind: Kind,
    addr: u64,
    len: u64,
    conditions: Vec<Vec<u8>>,
}

impl Request {
    fn parse(text: &[u8]) -> Option<Request> {
        let (head, tail) = match text.iter().position(|&byte| byte == b';') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &b""[..]),
        };
        let (&kind, rest) = head.split_first()?;
        let (addr, len) = hex::pair(rest.strip_prefix(b",")?, b',')?;
        Some(Request {
            kind: Kind::parse(kind)?,
            addr,
            len,
            conditions: conditions(tail)?,
        })
    }
}

/// `X length,bytecode` again and again. Commands to be run by the target weren't offered.
fn conditions(mut text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    while let Some(rest) = text.strip_prefix(b"X") {
        let comma = rest.iter().position(|&byte| byte == b',')?;
        let len = usize::try_from(hex::number(&rest[..comma])?).ok()?;
        let digits = rest.get(comma + 1..)?;
        let code = digits.get(..len.checked_mul(2)?)?;
        all.push(hex::bytes(code)?);
        text = &digits[len * 2..];
        text = text.strip_prefix(b";").unwrap_or(text);
    }
    text.is_empty().then_some(all)
}

impl Points {
    /// `None` if the packet makes no sense.
    pub fn insert(&mut self, packet: &[u8]) -> Option<()> {
        let request = Request::parse(packet)?;
        let hard = match request.kind {
            Kind::Soft => false,
            Kind::Hard => true,
            kind => {
                let watch = Watch {
                    addr: request.addr,
                    len: request.len,
                    kind: kind.watch(),
                };
                let watched = Watched { kind, watch };
                if !self.watches.contains(&watched) {
                    self.watches.push(watched);
                }
                return Some(());
            }
        };
        let addr = request.addr;
        // Inserting it again is how gdb changes conditions.
        self.breaks.retain(|p| (p.addr, p.hard) != (addr, hard));
        self.breaks.push(Point {
            addr,
            hard,
            conditions: request.conditions,
        });
        Some(())
    }

    pub fn remove(&mut self, packet: &[u8]) -> Option<()> {
        let request = Request::parse(packet)?;
        let addr = request.addr;
        match request.kind {
            Kind::Soft => self.breaks.retain(|p| p.addr != addr || p.hard),
            Kind::Hard => self.breaks.retain(|p| p.addr != addr || !p.hard),
            kind => self
                .watches
                .retain(|w| w.kind != kind || w.watch.addr != addr || w.watch.len != request.len),
        }
        Some(())
    }

    pub fn clear(&mut self) {
        *self = Points::default();
    }

    pub fn has_break(&self, addr: u64) -> bool {
        self.breaks.iter().any(|point| point.addr == addr)
    }

    /// Which kind of breakpoint it was.
    pub fn kind_at(&self, addr: u64) -> Kind {
        let soft = |point: &Point| point.addr == addr && !point.hard;
        let hard = |point: &Point| point.addr == addr && point.hard;
        match self.breaks.iter().any(hard) && !self.breaks.iter().any(soft) {
            true => Kind::Hard,
            false => Kind::Soft,
        }
    }

    /// A watchpoint by its number among the stops, and the address in it that gdb should be told.
    pub fn touched(&self, number: usize, addr: u64) -> Option<(Kind, u64)> {
        let Watched { kind, watch } = *self.watches.get(number)?;
        let last = watch.addr.saturating_add(watch.len.saturating_sub(1));
        // The access may have begun before it.
        Some((kind, addr.clamp(watch.addr, last)))
    }

    pub fn stops(&self, events: Events) -> Stops {
        let mut breaks: Vec<Break> = Vec::new();
        for point in &self.breaks {
            match breaks.iter_mut().find(|b| b.addr == point.addr) {
                // One without conditions always stops.
                Some(there) if there.conditions.is_empty() || point.conditions.is_empty() => {
                    there.conditions.clear();
                }
                Some(there) => there.conditions.extend(point.conditions.iter().cloned()),
                None => breaks.push(Break {
                    addr: point.addr,
                    thread: None,
                    conditions: point.conditions.clone(),
                }),
            }
        }
        Stops {
            breaks,
            watches: self.watches.iter().map(|watched| watched.watch).collect(),
            events,
            sites: Vec::new(),
        }
    }
}

/// `QCatchSyscalls:0`, `:1` or `:1;nr;nr...`, what is behind the colon.
pub fn calls(text: &[u8]) -> Option<Calls> {
    let mut parts = text.split(|&byte| byte == b';');
    match parts.next()? {
        b"0" => Some(Calls::None),
        b"1" => {
            let numbers: Option<Vec<u32>> = parts
                .map(|digits| u32::try_from(hex::number(digits)?).ok())
                .collect();
            let numbers = numbers?;
            Some(match numbers.is_empty() {
                true => Calls::All,
                false => Calls::These(numbers),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(points: &Points) -> Stops {
        points.stops(Events::default())
    }

    #[test]
    fn breakpoints_come_and_go() {
        let mut points = Points::default();
        points.insert(b"0,401000,1").unwrap();
        points.insert(b"0,401000,1").unwrap();
        points.insert(b"1,402000,1").unwrap();
        assert_eq!(stops(&points).breaks.len(), 2);
        assert_eq!(points.kind_at(0x402000), Kind::Hard);
        assert_eq!(points.kind_at(0x401000), Kind::Soft);
        points.remove(b"0,401000,1").unwrap();
        points.remove(b"1,401000,1").unwrap();
        assert_eq!(stops(&points).breaks.len(), 1);
        assert!(points.has_break(0x402000));
        for bad in [&b"5,1,1"[..], b"0", b"0,x,1", b"", b"0,1,1;X2,00"] {
            assert_eq!(points.insert(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn conditions_are_bytecode() {
        let mut points = Points::default();
        points.insert(b"0,10,1;X3,220027;X1,27").unwrap();
        let conditions = vec![vec![0x22, 0, 0x27], vec![0x27]];
        assert_eq!(stops(&points).breaks[0].conditions, conditions);
        // Without a separator, as some write it.
        points.insert(b"0,10,1;X3,220027X1,27").unwrap();
        assert_eq!(stops(&points).breaks[0].conditions, conditions);
        // One that is always true beside it.
        points.insert(b"1,10,1").unwrap();
        assert_eq!(stops(&points).breaks[0].conditions, Vec::<Vec<u8>>::new());
        points.insert(b"0,10,1").unwrap();
        assert_eq!(stops(&points).breaks.len(), 1);
    }

    #[test]
    fn watchpoints_have_any_size() {
        let mut points = Points::default();
        points.insert(b"2,1000,1000").unwrap();
        points.insert(b"4,1000,8").unwrap();
        let watches = stops(&points).watches;
        assert_eq!(watches[0].len, 0x1000);
        assert_eq!(watches[1].kind, WatchKind::Access);
        assert_eq!(points.touched(0, 0xff8), Some((Kind::Write, 0x1000)));
        assert_eq!(points.touched(1, 0x1004), Some((Kind::Access, 0x1004)));
        assert_eq!(points.touched(2, 0), None);
        points.remove(b"2,1000,8").unwrap();
        points.remove(b"2,1000,1000").unwrap();
        assert_eq!(stops(&points).watches.len(), 1);
    }

    #[test]
    fn calls_to_catch() {
        assert_eq!(calls(b"0"), Some(Calls::None));
        assert_eq!(calls(b"1"), Some(Calls::All));
        assert_eq!(calls(b"1;1;e7"), Some(Calls::These(vec![1, 0xe7])));
        assert_eq!(calls(b"1;x"), None);
        assert_eq!(calls(b""), None);
    }
}
