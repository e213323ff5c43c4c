//! The `#!` line, read by the kernel's rules (`binfmt_script`). Pure.

/// What a script asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Shebang<'a> {
    pub interpreter: &'a [u8],
    /// Everything behind it is one argument.
    pub argument: Option<&'a [u8]>,
}

/// The kernel looks at this many bytes of a file.
pub const LOOKED_AT: usize = 256;

fn blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Reads the line at the start of a file; `None` if that isn't a script the kernel would run.
pub fn shebang(head: &[u8]) -> Option<Shebang<'_>> {
    let head = &head[..head.len().min(LOOKED_AT)];
    let body = head.strip_prefix(b"#!")?;
    let line = match body.iter().position(|&b| b == b'\n') {
        Some(end) => &body[..end],
        // A short file ends in NULs as far as the kernel sees it.
        None if head.len() < LOOKED_AT => body,
        None => {
            // Too long: usable if the interpreter's name is whole.
            let name = body.iter().position(|&b| !blank(b))?;
            body[name..].iter().position(|&b| blank(b) || b == 0)?;
            &body[..body.len() - 1]
        }
    };
    let name = line.iter().position(|&b| !blank(b))?;
    let line = &line[name..];
    let end = line.iter().rposition(|&b| !blank(b))? + 1;
    let line = &line[..end];
    let stop = line
        .iter()
        .position(|&b| blank(b) || b == 0)
        .unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(stop);
    if interpreter.is_empty() {
        return None;
    }
    let argument = match rest.first() {
        None | Some(0) => None,
        Some(_) => rest
            .iter()
            .position(|&b| !blank(b))
            .map(|at| cut_at_nul(&rest[at..])),
    };
    Some(Shebang {
        interpreter,
        argument,
    })
}

fn cut_at_nul(s: &[u8]) -> &[u8] {
    &s[..s.iter().position(|&b| b == 0).unwrap_or(s.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Option<(String, Option<String>)> {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        shebang(line.as_bytes()).map(|s| (text(s.interpreter), s.argument.map(text)))
    }

    fn is(interpreter: &str, argument: Option<&str>) -> Option<(String, Option<String>)> {
        Some((interpreter.into(), argument.map(Into::into)))
    }

    #[test]
    fn reads_lines_as_the_kernel_does() {
        assert_eq!(read("#!/bin/sh\necho"), is("/bin/sh", None));
        assert_eq!(read("#! /bin/sh -e x \n"), is("/bin/sh", Some("-e x")));
        assert_eq!(
            read("#!\t/usr/bin/env\tperl\n"),
            is("/usr/bin/env", Some("perl"))
        );
        assert_eq!(read("#!/bin/true"), is("/bin/true", None));
        assert_eq!(read("#!  \n"), None);
        assert_eq!(read("#!"), None);
        assert_eq!(read("# !/bin/sh\n"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn a_line_that_is_too_long_counts_if_its_interpreter_is_whole() {
        let mut line = b"#!/bin/sh ".to_vec();
        line.resize(400, b'a');
        let got = shebang(&line).unwrap();
        assert_eq!(
            (got.interpreter, got.argument.unwrap().len()),
            (&b"/bin/sh"[..], 245)
        );
        let mut name = b"#!/".to_vec();
        name.resize(400, b'a');
        assert_eq!(shebang(&name), None);
    }

    proptest! {
        #[test]
        fn any_bytes(head in prop::collection::vec(prop::sample::select(b"#! \t\0\n/a".to_vec()), 0..300)) {
            if let Some(s) = shebang(&head) {
                prop_assert!(!s.interpreter.is_empty() && !s.interpreter.contains(&b' '));
            }
        }
    }
}
