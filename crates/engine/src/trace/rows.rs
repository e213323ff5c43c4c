//! How a worker tells its commander what blocks there are: rows, one after the other, each with its length before it.
//! Blocks and ends are numbered in the order in which they come.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row {
    /// The code of a block, in the order in which it is run through: where each piece stands, and its bytes.
    Block {
        pieces: Vec<(u64, Vec<u8>)>,
    },
    End(End),
}

/// Where a block can be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub block: u32,
    /// How many of its instructions were executed.
    pub count: u16,
    /// Bytes of slots in the entry.
    pub size: u16,
    /// Ticks that the last of them counted: 0 or 1.
    pub ticks: u8,
}

impl Row {
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("plain data");
        let mut row = (bytes.len() as u32).to_le_bytes().to_vec();
        row.extend(bytes);
        row
    }

    /// All whole rows; none if they aren't rows.
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Row>> {
        let mut rows = Vec::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_first_chunk::<4>()?;
            let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rows.push(postcard::from_bytes(row).ok()?);
            bytes = rest;
        }
        Some(rows)
    }
}
