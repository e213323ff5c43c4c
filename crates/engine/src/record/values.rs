//! Answers of fast time calls, as one record: each as difference to the one before.

use clew_recording::bytes::{LONGEST, Malformed, Reader, Writer};

use crate::host::time::BUFFER;

/// The most bytes that a full buffer takes.
const ROOM: usize = 3 * LONGEST * BUFFER;

/// Encodes the answers into `room`; what they take.
pub fn encode(values: &[[u64; 3]], room: &mut Vec<u8>) -> usize {
    room.resize(ROOM, 0);
    let mut out = Writer::new(room);
    let mut last = [0u64; 3];
    for value in values {
        for (new, old) in value.iter().zip(&mut last) {
            out.signed(new.wrapping_sub(*old) as i64);
            *old = *new;
        }
    }
    out.len()
}

/// Decodes them into `into`; how many there are.
pub fn decode(bytes: &[u8], into: &mut [[u64; 3]]) -> Result<usize, Malformed> {
    let mut input = Reader::new(bytes);
    let mut last = [0u64; 3];
    let mut count = 0;
    while !input.is_empty() {
        for word in &mut last {
            *word = word.wrapping_add(input.signed()? as u64);
        }
        *into.get_mut(count).ok_or(Malformed)? = last;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let values: Vec<[u64; 3]> = (0..BUFFER as u64)
            .map(|n| {
                [
                    n % 3,
                    1_700_000_000 + n / 100,
                    n.wrapping_mul(987_654_321) % 1_000_000_000,
                ]
            })
            .collect();
        let mut room = Vec::new();
        let len = encode(&values, &mut room);
        let mut back = vec![[0; 3]; BUFFER];
        assert_eq!(decode(&room[..len], &mut back), Ok(BUFFER));
        assert_eq!(back, values);
        assert_eq!(decode(&room[..len], &mut back[..9]), Err(Malformed));
    }
}
