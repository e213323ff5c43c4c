//! Text in XML, and documents in pieces as `qXfer` asks for them.

use crate::hex;
use crate::wire::{self, LONGEST};

/// Text for an attribute. What XML can't hold at all becomes a question mark.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// A piece of an object, `offset,length` in hexadecimal: `m` and data if more follows, else `l`.
pub fn piece(object: &[u8], window: &[u8]) -> Option<Vec<u8>> {
    let (offset, len) = hex::pair(window, b',')?;
    let from = usize::try_from(offset).ok()?.min(object.len());
    let len = usize::try_from(len).ok()?;
    let rest = &object[from..];
    let mut reply = vec![b'l'];
    let taken = wire::escape(&mut reply, &rest[..rest.len().min(len)], LONGEST - 8);
    if taken < rest.len() {
        reply[0] = b'm';
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other() {
        assert_eq!(piece(b"abc", b"0,2").unwrap(), b"mab");
        assert_eq!(piece(b"abc", b"2,2").unwrap(), b"lc");
        assert_eq!(piece(b"abc", b"3,2").unwrap(), b"l");
        assert_eq!(piece(b"abc", b"ff,2").unwrap(), b"l");
        assert_eq!(piece(b"a#", b"0,9").unwrap(), b"la}\x03");
        assert_eq!(piece(b"abc", b"0"), None);
        let long = piece(&[b'#'; LONGEST], b"0,ffffff").unwrap();
        assert!(long[0] == b'm' && long.len() <= LONGEST);
    }

    #[test]
    fn names_may_hold_anything() {
        assert_eq!(escaped("a<\"b\">&\u{1b}é"), "a&lt;&quot;b&quot;&gt;&amp;?é");
    }
}
