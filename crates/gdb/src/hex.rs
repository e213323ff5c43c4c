//! Numbers and bytes as the protocol writes them. In: text from the wire. Out: values, and back.

/// Appends bytes, two digits each.
pub fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

pub fn text(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    put(&mut out, bytes);
    String::from_utf8(out).expect("digits are ASCII")
}

/// Bytes from pairs of digits.
pub fn bytes(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    digits.chunks_exact(2).map(pair).collect()
}

/// A number, most significant digit first.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |value, &d| Some(value << 4 | u64::from(digit(d)?)))
}

/// Two numbers with a separator between them.
pub fn pair(text: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((number(&text[..at])?, number(&text[at + 1..])?))
}

fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(text(&[0, 0x7f, 0xff]), "007fff");
        assert_eq!(bytes(b"007fFF"), Some(vec![0, 0x7f, 0xff]));
        assert_eq!(bytes(b"0"), None);
        assert_eq!(bytes(b"0g"), None);
        assert_eq!(number(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(number(b"10000000000000000"), None);
        assert_eq!(number(b""), None);
        assert_eq!(pair(b"10,20", b','), Some((16, 32)));
        assert_eq!(pair(b"10", b','), None);
    }
}
