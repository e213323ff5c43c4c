//! Numbers to bytes and back: little-endian base-128 ("varint"), zigzag for signed differences.
//!
//! The reader takes bytes from strangers: every read is checked and nothing is allocated.

/// Bytes that end too early or say something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed data")]
pub struct Malformed;

/// The most bytes that a number takes.
pub const LONGEST: usize = 10;

/// Where bytes are put. The caller has made sure that there is room.
pub struct Writer<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(room: &'a mut [u8]) -> Writer<'a> {
        Writer { room, at: 0 }
    }

    pub fn len(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    #[inline]
    pub fn byte(&mut self, value: u8) {
        self.room[self.at] = value;
        self.at += 1;
    }

    #[inline]
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.room[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Room for so many bytes, to be filled by the caller.
    #[inline]
    pub fn hole(&mut self, len: usize) -> &mut [u8] {
        self.at += len;
        &mut self.room[self.at - len..self.at]
    }

    /// A length and that many bytes.
    pub fn string(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes(bytes);
    }

    /// Sets a byte that was put before.
    pub fn patch(&mut self, at: usize, value: u8) {
        self.room[at] = value;
    }
}

/// Bytes to take numbers from.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = (byte & 0x7f) as u64;
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    #[inline]
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(unzigzag(self.number()?))
    }

    #[inline]
    pub fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    #[inline]
    pub fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        if len > self.rest.len() {
            return Err(Malformed);
        }
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// A length and that many bytes.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.number()?;
        self.bytes(len)
    }
}

#[inline]
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
