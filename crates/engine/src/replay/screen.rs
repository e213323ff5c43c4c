//! Output of several replaying processes goes in as it comes, and out in the order in which it was
//! made when it was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clew_recording::event::StreamId;

/// So much may wait for a piece that doesn't come (its process was cut off, or the recording is
/// made up) before it is shown without.
const MOST_HELD: usize = 256 << 20;

pub struct Screen {
    order: Order,
    held: BTreeMap<(u64, u64), Piece>,
    bytes: usize,
}

enum Order {
    /// By the numbers that all outputs of all processes have; this is the next.
    Numbers(u64),
    /// One process only, whose programs ran one after the other: the streams that aren't over.
    Streams(BTreeSet<StreamId>, u64),
}

struct Piece {
    to: u8,
    last: bool,
    bytes: Vec<u8>,
}

impl Screen {
    /// For all processes.
    pub fn of_all() -> Screen {
        // The channel counts from 1.
        Screen::new(Order::Numbers(1))
    }

    /// For the streams of one process.
    pub fn of(streams: BTreeSet<StreamId>) -> Screen {
        Screen::new(Order::Streams(streams, 0))
    }

    fn new(order: Order) -> Screen {
        Screen {
            order,
            held: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub fn add(
        &mut self,
        stream: StreamId,
        order: u64,
        part: u32,
        to: u8,
        last: bool,
        bytes: &[u8],
    ) {
        let key = match &mut self.order {
            Order::Numbers(_) => (order, part as u64),
            Order::Streams(streams, count) => {
                if streams.first().is_none_or(|&first| stream <= first) {
                    return print(to, bytes);
                }
                *count += 1;
                (stream as u64, *count)
            }
        };
        let bytes = bytes.to_vec();
        self.bytes += bytes.len();
        if let Some(old) = self.held.insert(key, Piece { to, last, bytes }) {
            self.bytes -= old.bytes.len();
        }
        self.show();
        if self.bytes > MOST_HELD {
            self.flush();
        }
    }

    /// Nothing more comes from this stream.
    pub fn ended(&mut self, stream: StreamId) {
        if let Order::Streams(streams, _) = &mut self.order {
            streams.remove(&stream);
            self.show();
        }
    }

    /// Shows what has its turn.
    fn show(&mut self) {
        while let Some(entry) = self.held.first_entry() {
            let (first, _) = *entry.key();
            let turn = match &self.order {
                Order::Numbers(next) => first <= *next,
                Order::Streams(streams, _) => {
                    streams.first().is_none_or(|&stream| first <= stream as u64)
                }
            };
            if !turn {
                break;
            }
            let piece = entry.remove();
            self.bytes -= piece.bytes.len();
            print(piece.to, &piece.bytes);
            if let (Order::Numbers(next), true) = (&mut self.order, piece.last) {
                *next = first + 1;
            }
        }
    }

    /// All that is left: of streams that were cut off, numbers are missing.
    pub fn flush(&mut self) {
        self.bytes = 0;
        for ((number, _), piece) in std::mem::take(&mut self.held) {
            print(piece.to, &piece.bytes);
            if let (Order::Numbers(next), true) = (&mut self.order, piece.last) {
                *next = number.saturating_add(1);
            }
        }
    }
}

fn print(to: u8, bytes: &[u8]) {
    // A closed pipe is the reader's wish to see no more.
    if to == 2 {
        let _ = std::io::stderr().write_all(bytes);
    } else {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }
}
