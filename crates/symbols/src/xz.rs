//! The xz format, as `.gnu_debugdata` has it: a stream in, its bytes out, at most as many as allowed.

use std::io::Read;

use lzma_rust2::XzReader;

/// A stream's dictionary, in KiB: `xz -9` takes 64 MiB.
const MEMORY: u32 = 128 << 10;

/// Decompresses a stream; none if it is damaged, too long, or wants too much memory.
pub(crate) fn decompress(input: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let reader = XzReader::new_mem_limit(input, false, MEMORY);
    let len = reader.take(limit as u64 + 1).read_to_end(&mut plain).ok()?;
    (len <= limit).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello hello hello hello' | xz -9 --check=crc32`
    const HELLO: &[u8] = include_bytes!("../tests/programs/hello.xz");

    #[test]
    fn a_small_stream() {
        let plain = &b"hello hello hello hello"[..];
        assert_eq!(decompress(HELLO, 100).as_deref(), Some(plain));
        assert_eq!(decompress(HELLO, 23).as_deref(), Some(plain));
        assert_eq!(decompress(HELLO, 22), None);
        assert_eq!(decompress(b"", 100).unwrap_or_default(), b"");
    }

    /// Whatever is changed, it is noticed, or says the same.
    #[test]
    fn damage_does_no_harm() {
        let whole = decompress(HELLO, 100);
        for length in 1..HELLO.len() {
            assert_eq!(decompress(&HELLO[..length], 100), None, "{length} bytes");
        }
        for at in 0..HELLO.len() {
            for value in [0, 1, 0x5d, 0x7f, 0x80, 0xe0, 0xff] {
                let mut bytes = HELLO.to_vec();
                bytes[at] = value;
                let found = decompress(&bytes, 1000);
                assert!(found.is_none() || found == whole, "byte {at} is {value}");
            }
        }
    }
}
