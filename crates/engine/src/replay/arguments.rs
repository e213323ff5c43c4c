//! What a call passes to the kernel behind its pointers: paths, data that it writes. It isn't in the
//! log, since a replay computes it again; so a replay is asked.

use clew_recording::event::Call;

use crate::guest::access;
use crate::kernel::table::{self, Arg, Len};
use crate::kernel::{outputs, sent};

/// As much of an argument is told.
pub const SHOWN: usize = 256;

/// An argument of a call that is a pointer, with what it points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub index: u8,
    /// How much there is, of which `bytes` is the beginning.
    pub len: u64,
    pub bytes: Vec<u8>,
}

/// The arguments of a call that the current thread has just come to.
pub fn of(call: &Call) -> Vec<Argument> {
    let known = table::lookup(call.nr as u64);
    let mut found = Vec::new();
    for (index, kind) in known.args.iter().enumerate() {
        let addr = call.args[index];
        let told = match *kind {
            Arg::Str => string(addr),
            Arg::In(len) => length(len, call).and_then(|len| data(addr, len)),
            _ => None,
        };
        if let Some((len, bytes)) = told {
            let index = index as u8;
            found.push(Argument { index, len, bytes });
        }
    }
    // Vectors and messages: what they gather, in place of their addresses.
    let gathered = sent::written_bytes(known, &call.args, i64::MAX);
    if let (Some(ranges), false) = (gathered, found.iter().any(|argument| argument.index == 1)) {
        let len = ranges.iter().map(|&(_, len)| len).sum();
        let mut bytes = Vec::new();
        for (addr, len) in ranges {
            let room = (SHOWN - bytes.len()) as u64;
            bytes.extend(data(addr, len.min(room)).map_or_else(Vec::new, |(_, some)| some));
        }
        found.push(Argument {
            index: 1,
            len,
            bytes,
        });
    }
    found
}

fn string(addr: u64) -> Option<(u64, Vec<u8>)> {
    let bytes = access::read_cstr(addr, SHOWN).ok()?;
    // Longer than shown: one more than that, so that it shows.
    let len = bytes.len() as u64 + (bytes.len() == SHOWN) as u64;
    Some((len, bytes))
}

fn data(addr: u64, len: u64) -> Option<(u64, Vec<u8>)> {
    let mut bytes = vec![0; outputs::accessible(addr, len.min(SHOWN as u64)) as usize];
    access::read_bytes(addr, &mut bytes).ok()?;
    Some((len, bytes))
}

fn length(len: Len, call: &Call) -> Option<u64> {
    let arg = |i: u8| call.args[i as usize];
    match len {
        Len::Arg(i) | Len::Ret(i) => Some(arg(i)),
        // Structures, whose bytes tell nobody anything.
        _ => None,
    }
}
