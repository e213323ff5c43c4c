//! Stop replies. In: why and where the program stands. Out: the `T` packet that tells gdb.

use clew_timeline::Registers;

use crate::{hex, ids, registers};

/// gdb's numbers for signals that stand for no signal of the program's.
pub const NOTHING: i32 = 0;
pub const TRAP: i32 = 5;
pub const INTERRUPTED: i32 = 2;

/// Why it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// gdb's number.
    pub signal: i32,
    /// `watch:1000;`, `swbreak:;` and the like.
    pub reason: String,
    pub tid: i32,
}

impl Report {
    pub fn plain(signal: i32, tid: i32) -> Report {
        Report {
            signal,
            reason: String::new(),
            tid,
        }
    }

    pub fn with(reason: impl Into<String>, tid: i32) -> Report {
        Report {
            signal: TRAP,
            reason: reason.into(),
            tid,
        }
    }

    /// The packet, with the registers that gdb asks for first in any case.
    pub fn packet(&self, pid: i32, registers: Option<&Registers>) -> Vec<u8> {
        let id = ids::text(pid, self.tid);
        let mut text = format!("T{:02x}{}thread:{id};", self.signal, self.reason);
        for number in registers::EXPEDITED {
            let value = registers.and_then(|registers| registers::get(registers, None, number));
            if let Some(value) = value {
                text.push_str(&format!("{number:02x}:{};", hex::text(&value)));
            }
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_gdb_reads_it() {
        let report = Report::with("watch:1000;", 0x20);
        assert_eq!(report.packet(0x1f, None), b"T05watch:1000;thread:p1f.20;");
        let registers = Registers {
            words: [0x11; 20],
            extended: vec![0; 832],
        };
        let packet = Report::plain(11, 1).packet(1, Some(&registers));
        let packet = String::from_utf8(packet).unwrap();
        assert_eq!(
            packet,
            "T0bthread:p1.1;06:1100000000000000;07:1100000000000000;10:1100000000000000;"
        );
    }
}
