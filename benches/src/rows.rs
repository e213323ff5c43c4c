//! The rows of the speed table: a command, what is measured of it, and its targets.

/// What a row measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// CPU time of the process tree.
    Cpu,
    /// Wall time, averaged over so many runs in a row: for what takes a millisecond.
    Wall { repeat: u32 },
}

pub struct Row {
    pub name: &'static str,
    pub command: &'static [&'static str],
    /// A file to read as standard input.
    pub input: Option<&'static str>,
    pub measure: Measure,
    /// Ratios to native.
    pub must: f64,
    pub aim: f64,
    /// Starts other programs, which qemu-user does not follow.
    pub children: bool,
}

impl Row {
    const fn new(name: &'static str, command: &'static [&'static str], must: f64, aim: f64) -> Row {
        Row {
            name,
            command,
            input: None,
            measure: Measure::Cpu,
            must,
            aim,
            children: false,
        }
    }

    const fn input(mut self, file: &'static str) -> Row {
        self.input = Some(file);
        self
    }

    const fn wall(mut self, repeat: u32) -> Row {
        self.measure = Measure::Wall { repeat };
        self
    }

    const fn with_children(mut self) -> Row {
        self.children = true;
        self
    }
}

const PERL: &str = "my ($s, %h) = (0); for my $i (1 .. 3000000) { $s = ($s * 31 + $i) % 1000003; \
                    $h{$s % 1000} += $i } print $s, scalar keys %h";

/// All rows, in the order of the table.
pub fn all() -> Vec<Row> {
    vec![
        Row::new("bzip2 -9, 20 MB", &["bzip2", "-9c", "data"], 1.15, 1.05),
        Row::new("gzip -9, 20 MB", &["gzip", "-9c", "data"], 1.15, 1.05),
        Row::new("xz, 6 MB", &["xz", "-T1", "-c", "data6"], 1.15, 1.05),
        Row::new("bc, pi to 2,000 digits", &["bc", "-l"], 1.30, 1.15).input("pi.bc"),
        Row::new("python3 loop", &["/usr/bin/python3", "loop.py"], 1.60, 1.35),
        Row::new("perl loop", &["perl", "-e", PERL], 1.60, 1.35),
        Row::new("sqlite3, 200k rows", &["sqlite3", ":memory:"], 1.75, 1.45).input("rows.sql"),
        Row::new(
            "gcc -O2 -c, 16k lines",
            &["gcc", "-O2", "-c", "big.c", "-o", "/dev/null"],
            2.2,
            1.6,
        )
        .with_children(),
        Row::new("300k × read + 2 time calls", &["./calls"], 2.0, 1.5),
        Row::new("/bin/true", &["/bin/true"], 2.5, 1.6).wall(50),
        Row::new("sh, 200 × /bin/true", &["sh", "true200.sh"], 2.5, 1.6)
            .wall(1)
            .with_children(),
        Row::new(
            "python3 -c pass",
            &["/usr/bin/python3", "-c", "pass"],
            2.2,
            1.5,
        )
        .wall(5),
        Row::new("node, CPU-bound", &["node", "loop.js"], 1.6, 1.25),
        Row::new(
            "java, CPU-bound",
            &["java", "-XX:-UsePerfData", "-cp", "java", "Loop"],
            1.6,
            1.25,
        ),
        Row::new("luajit, CPU-bound", &["luajit", "loop.lua"], 1.6, 1.25),
        Row::new(
            "javac, small project",
            &["javac", "-J-XX:-UsePerfData", "-d", "out", "@sources"],
            3.0,
            2.0,
        ),
    ]
}
