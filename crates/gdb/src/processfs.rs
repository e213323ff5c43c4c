//! Files in /proc that gdb asks for. In: mappings and the start of the program. Out: their text.

use std::fmt::Write;

use clew_timeline::Mapping;

/// What is known of the process.
pub struct Process<'a> {
    pub pid: i32,
    pub exe: &'a str,
    pub argv: &'a [Vec<u8>],
    pub mappings: &'a [Mapping],
}

impl Process<'_> {
    /// The contents of a file, or where a link leads; `None` if there is no such thing here.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        let mut parts = path.strip_prefix("/proc/")?.split('/');
        if parts.next()?.parse::<i32>().ok()? != self.pid {
            return None;
        }
        let mut name = parts.next()?;
        // A thread has the same.
        if name == "task" {
            parts.next()?.parse::<i32>().ok()?;
            name = parts.next()?;
        }
        if parts.next().is_some() {
            return None;
        }
        match name {
            "maps" => Some(maps(self.mappings).into_bytes()),
            "exe" => Some(self.exe.as_bytes().to_vec()),
            "cmdline" => Some(
                self.argv
                    .iter()
                    .flat_map(|word| word.iter().copied().chain([0]))
                    .collect(),
            ),
            _ => None,
        }
    }
}

fn maps(mappings: &[Mapping]) -> String {
    let mut text = String::new();
    for mapping in mappings {
        let Mapping {
            start,
            end,
            offset,
            name,
            ..
        } = mapping;
        let may = |bit: i32, letter| match mapping.prot as i32 & bit != 0 {
            true => letter,
            false => '-',
        };
        let (r, w, x) = (
            may(libc::PROT_READ, 'r'),
            may(libc::PROT_WRITE, 'w'),
            may(libc::PROT_EXEC, 'x'),
        );
        let s = if mapping.shared { 's' } else { 'p' };
        let line = format!("{start:08x}-{end:08x} {r}{w}{x}{s} {offset:08x} 00:00 0");
        let _ = match name.is_empty() {
            true => writeln!(text, "{line}"),
            // The kernel writes a line's end in a name like this.
            false => writeln!(text, "{line:<72} {}", name.replace('\n', "\\012")),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kernel_writes_them() {
        let mappings = [Mapping {
            start: 0x40_0000,
            end: 0x40_1000,
            prot: 5,
            shared: false,
            name: "/bin/a\nb".into(),
            offset: 0x2000,
            copy: None,
        }];
        let process = Process {
            pid: 7,
            exe: "/bin/a",
            argv: &[b"a".to_vec(), b"".to_vec()],
            mappings: &mappings,
        };
        let maps = process.file("/proc/7/maps").unwrap();
        let maps = String::from_utf8(maps).unwrap();
        let words: Vec<&str> = maps.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "00400000-00401000",
                "r-xp",
                "00002000",
                "00:00",
                "0",
                "/bin/a\\012b"
            ]
        );
        assert!(process.file("/proc/7/task/9/maps").is_some());
        assert_eq!(process.file("/proc/7/cmdline").unwrap(), b"a\0\0");
        assert_eq!(process.file("/proc/7/exe").unwrap(), b"/bin/a");
        for none in [
            "/proc/8/maps",
            "/proc/7/mem",
            "/proc/7",
            "/proc/7/task/x/maps",
            "/etc/x",
        ] {
            assert_eq!(process.file(none), None, "{none}");
        }
    }
}
