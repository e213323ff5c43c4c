//! The xz format, as far as `.gnu_debugdata` uses it: a stream of LZMA2 blocks in, bytes out.
//! Checksums aren't compared, since the bytes are an ELF file that is checked as it is read.

/// Why a stream couldn't be decompressed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XzError {
    /// The stream ends too early, or says what it can't mean.
    Damaged,
    /// A filter other than LZMA2, as for executable code.
    Filter,
    /// More bytes than allowed.
    TooLong,
}

/// Decompresses a stream to at most `limit` bytes.
pub(crate) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, XzError> {
    let rest = input.strip_prefix(b"\xfd7zXZ\0").ok_or(XzError::Damaged)?;
    let flags = rest.get(..6).ok_or(XzError::Damaged)?;
    // How long the checksum after each block is, by its kind.
    let check = match flags[1] & 0xf {
        0 => 0,
        kind => 4usize << ((kind - 1) / 3),
    };
    let mut at = 12;
    let mut out = Vec::new();
    loop {
        // A header's size in words; 0 starts the index, after the last block.
        let words = usize::from(*input.get(at).ok_or(XzError::Damaged)?);
        if words == 0 {
            return Ok(out);
        }
        let header = input
            .get(at..at + (words + 1) * 4)
            .ok_or(XzError::Damaged)?;
        check_filters(header)?;
        at += header.len();
        let body = input.get(at..).ok_or(XzError::Damaged)?;
        at += lzma2(body, &mut out, limit)?;
        at = at.next_multiple_of(4) + check;
    }
}

/// Whether LZMA2 is the block's only filter.
fn check_filters(header: &[u8]) -> Result<(), XzError> {
    let flags = header[1];
    let mut rest = &header[2..];
    // The sizes before and after, if they are there, in seven bits a byte.
    for present in [flags & 0x40 != 0, flags & 0x80 != 0] {
        if present {
            let end = rest
                .iter()
                .position(|byte| byte & 0x80 == 0)
                .ok_or(XzError::Damaged)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 3 != 0 || rest.first() != Some(&0x21) {
        Err(XzError::Filter)
    } else {
        Ok(())
    }
}

/// Adds the bytes of a block; says how much of the input it took.
fn lzma2(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<usize, XzError> {
    let mut at = 0;
    let mut start = out.len();
    let mut decoder: Option<Lzma> = None;
    let short = |at: usize| {
        let bytes = input.get(at..at + 2).ok_or(XzError::Damaged)?;
        Ok(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) + 1)
    };
    loop {
        let control = *input.get(at).ok_or(XzError::Damaged)?;
        match control {
            0 => return Ok(at + 1),
            // Bytes as they are.
            1 | 2 => {
                let size = short(at + 1)?;
                let bytes = input.get(at + 3..at + 3 + size).ok_or(XzError::Damaged)?;
                if control == 1 {
                    start = out.len();
                }
                if out.len() + size > limit {
                    return Err(XzError::TooLong);
                }
                out.extend_from_slice(bytes);
                at += 3 + size;
            }
            3..=0x7f => return Err(XzError::Damaged),
            _ => {
                let size = (usize::from(control & 0x1f) << 16) + short(at + 1)?;
                let packed = short(at + 3)?;
                at += 5;
                if control >= 0xe0 {
                    start = out.len();
                }
                if control >= 0xc0 {
                    decoder = Some(Lzma::new(*input.get(at).ok_or(XzError::Damaged)?)?);
                    at += 1;
                } else if control >= 0xa0 {
                    decoder = decoder.as_ref().map(Lzma::reset);
                }
                let decoder = decoder.as_mut().ok_or(XzError::Damaged)?;
                let chunk = input.get(at..at + packed).ok_or(XzError::Damaged)?;
                if out.len() + size > limit {
                    return Err(XzError::TooLong);
                }
                decoder.decode(chunk, out, start, size)?;
                at += packed;
            }
        }
    }
}

/// A probability of a bit being 0, in parts of 2048.
type Probability = u16;
const EVEN: Probability = 1024;

/// Reads bits by their probabilities.
struct Bits<'a> {
    input: &'a [u8],
    range: u32,
    code: u32,
}

impl<'a> Bits<'a> {
    fn new(input: &'a [u8]) -> Result<Bits<'a>, XzError> {
        let (first, rest) = input.split_first_chunk::<5>().ok_or(XzError::Damaged)?;
        let code = u32::from_be_bytes([first[1], first[2], first[3], first[4]]);
        Ok(Bits {
            input: rest,
            range: u32::MAX,
            code,
        })
    }

    fn refill(&mut self) -> Result<(), XzError> {
        if self.range < 1 << 24 {
            let (&byte, rest) = self.input.split_first().ok_or(XzError::Damaged)?;
            self.input = rest;
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(byte);
        }
        Ok(())
    }

    fn bit(&mut self, probability: &mut Probability) -> Result<usize, XzError> {
        self.refill()?;
        let bound = (self.range >> 11) * u32::from(*probability);
        if self.code < bound {
            self.range = bound;
            *probability += (2048 - *probability) >> 5;
            Ok(0)
        } else {
            self.range -= bound;
            self.code -= bound;
            *probability -= *probability >> 5;
            Ok(1)
        }
    }

    /// Bits that are as likely 0 as 1.
    fn even(&mut self, count: u32) -> Result<usize, XzError> {
        let mut value = 0;
        for _ in 0..count {
            self.refill()?;
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | usize::from(bit);
        }
        Ok(value)
    }

    /// A number whose bits' probabilities form a tree, highest bit first.
    fn tree(&mut self, tree: &mut [Probability]) -> Result<usize, XzError> {
        let mut node = 1;
        while node < tree.len() {
            node = node << 1 | self.bit(&mut tree[node])?;
        }
        Ok(node - tree.len())
    }

    /// The same, lowest bit first.
    fn tree_reversed(&mut self, tree: &mut [Probability], count: u32) -> Result<usize, XzError> {
        let (mut node, mut value) = (1, 0);
        for index in 0..count {
            let bit = self.bit(tree.get_mut(node).ok_or(XzError::Damaged)?)?;
            node = node << 1 | bit;
            value |= bit << index;
        }
        Ok(value)
    }
}

/// How lengths of matches are coded.
struct Lengths {
    choice: [Probability; 2],
    low: [[Probability; 8]; 16],
    middle: [[Probability; 8]; 16],
    high: [Probability; 256],
}

impl Lengths {
    fn new() -> Lengths {
        Lengths {
            choice: [EVEN; 2],
            low: [[EVEN; 8]; 16],
            middle: [[EVEN; 8]; 16],
            high: [EVEN; 256],
        }
    }

    fn decode(&mut self, bits: &mut Bits<'_>, position: usize) -> Result<usize, XzError> {
        Ok(2 + if bits.bit(&mut self.choice[0])? == 0 {
            bits.tree(&mut self.low[position])?
        } else if bits.bit(&mut self.choice[1])? == 0 {
            8 + bits.tree(&mut self.middle[position])?
        } else {
            16 + bits.tree(&mut self.high)?
        })
    }
}

struct Lzma {
    properties: u8,
    /// How many bits of the byte before choose a literal's probabilities, how many of the
    /// position do, and how many of the position choose other probabilities.
    literal_context: u32,
    literal_position: u32,
    position_bits: u32,
    state: usize,
    /// The last four distances.
    distances: [usize; 4],
    literals: Vec<[Probability; 0x300]>,
    is_match: [[Probability; 16]; 12],
    is_repeat: [Probability; 12],
    is_repeat0: [Probability; 12],
    is_repeat1: [Probability; 12],
    is_repeat2: [Probability; 12],
    is_long: [[Probability; 16]; 12],
    slots: [[Probability; 64]; 4],
    special: [Probability; 128],
    align: [Probability; 16],
    lengths: Lengths,
    repeat_lengths: Lengths,
}

impl Lzma {
    fn new(properties: u8) -> Result<Lzma, XzError> {
        let number = u32::from(properties);
        let (literal_context, literal_position, position_bits) =
            (number % 9, number / 9 % 5, number / 45);
        if position_bits > 4 || literal_context + literal_position > 4 {
            return Err(XzError::Damaged);
        }
        Ok(Lzma {
            properties,
            literal_context,
            literal_position,
            position_bits,
            state: 0,
            distances: [0; 4],
            literals: vec![[EVEN; 0x300]; 1 << (literal_context + literal_position)],
            is_match: [[EVEN; 16]; 12],
            is_repeat: [EVEN; 12],
            is_repeat0: [EVEN; 12],
            is_repeat1: [EVEN; 12],
            is_repeat2: [EVEN; 12],
            is_long: [[EVEN; 16]; 12],
            slots: [[EVEN; 64]; 4],
            special: [EVEN; 128],
            align: [EVEN; 16],
            lengths: Lengths::new(),
            repeat_lengths: Lengths::new(),
        })
    }

    /// As at the start, with the same properties.
    fn reset(&self) -> Lzma {
        Lzma::new(self.properties).unwrap_or_else(|_| unreachable!("the properties were checked"))
    }

    /// Adds `size` bytes from a chunk. Matches reach back to `start` at most.
    fn decode(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<u8>,
        start: usize,
        size: usize,
    ) -> Result<(), XzError> {
        let mut bits = Bits::new(chunk)?;
        let end = out.len() + size;
        while out.len() < end {
            let position = (out.len() - start) & ((1 << self.position_bits) - 1);
            let state = self.state;
            if bits.bit(&mut self.is_match[state][position])? == 0 {
                let byte = self.literal(&mut bits, &out[start..])?;
                out.push(byte);
                self.state = match state {
                    0..4 => 0,
                    4..10 => state - 3,
                    _ => state - 6,
                };
                continue;
            }
            let length = if bits.bit(&mut self.is_repeat[state])? == 0 {
                let length = self.lengths.decode(&mut bits, position)?;
                let distance = self.distance(&mut bits, length)?;
                let [first, second, third, _] = self.distances;
                self.distances = [distance, first, second, third];
                self.state = if state < 7 { 7 } else { 10 };
                length
            } else {
                self.repeated(&mut bits, position)?
            };
            let back = self.distances[0] + 1;
            if back > out.len() - start || length > end - out.len() {
                return Err(XzError::Damaged);
            }
            for _ in 0..length {
                out.push(out[out.len() - back]);
            }
        }
        Ok(())
    }

    fn literal(&mut self, bits: &mut Bits<'_>, before: &[u8]) -> Result<u8, XzError> {
        let last = usize::from(before.last().copied().unwrap_or(0));
        let position = before.len() & ((1 << self.literal_position) - 1);
        let context = (position << self.literal_context) + (last >> (8 - self.literal_context));
        let tree = &mut self.literals[context];
        let mut node = 1;
        if self.state >= 7 {
            // After a match the byte that would have followed it is a hint.
            let at = before
                .len()
                .checked_sub(self.distances[0] + 1)
                .ok_or(XzError::Damaged)?;
            let mut hint = usize::from(before[at]);
            while node < 0x100 {
                hint <<= 1;
                let expected = hint >> 8 & 1;
                let bit = bits.bit(&mut tree[(1 + expected) * 0x100 + node])?;
                node = node << 1 | bit;
                if bit != expected {
                    break;
                }
            }
        }
        while node < 0x100 {
            node = node << 1 | bits.bit(&mut tree[node])?;
        }
        Ok(node as u8)
    }

    fn distance(&mut self, bits: &mut Bits<'_>, length: usize) -> Result<usize, XzError> {
        let slot = bits.tree(&mut self.slots[(length - 2).min(3)])?;
        if slot < 4 {
            return Ok(slot);
        }
        let count = (slot >> 1) as u32 - 1;
        let base = (2 | (slot & 1)) << count;
        Ok(if slot < 14 {
            base + bits.tree_reversed(&mut self.special[base - slot..], count)?
        } else {
            base + (bits.even(count - 4)? << 4) + bits.tree_reversed(&mut self.align, 4)?
        })
    }

    /// A match at one of the last distances, which becomes the last one; says its length.
    fn repeated(&mut self, bits: &mut Bits<'_>, position: usize) -> Result<usize, XzError> {
        let state = self.state;
        if bits.bit(&mut self.is_repeat0[state])? == 0 {
            if bits.bit(&mut self.is_long[state][position])? == 0 {
                self.state = if state < 7 { 9 } else { 11 };
                return Ok(1);
            }
        } else {
            let which = if bits.bit(&mut self.is_repeat1[state])? == 0 {
                1
            } else {
                2 + bits.bit(&mut self.is_repeat2[state])?
            };
            self.distances[..=which].rotate_right(1);
        }
        self.state = if state < 7 { 8 } else { 11 };
        self.repeat_lengths.decode(bits, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello hello hello hello' | xz -9 --check=crc32`
    const HELLO: &[u8] = include_bytes!("../tests/programs/hello.xz");

    #[test]
    fn a_small_stream() {
        assert_eq!(
            decompress(HELLO, 100).as_deref(),
            Ok(&b"hello hello hello hello"[..])
        );
        assert_eq!(decompress(HELLO, 22), Err(XzError::TooLong));
        assert_eq!(decompress(b"", 100), Err(XzError::Damaged));
    }

    #[test]
    fn damage_does_no_harm() {
        for length in 0..HELLO.len() {
            let _ = decompress(&HELLO[..length], 100);
        }
        for at in 0..HELLO.len() {
            for value in [0, 1, 0x5d, 0x7f, 0x80, 0xe0, 0xff] {
                let mut bytes = HELLO.to_vec();
                bytes[at] = value;
                let _ = decompress(&bytes, 1000);
            }
        }
    }
}
