//! The rows of the speed tables: a command, what is measured of it, and its targets.

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

/// How a row of the table for record and replay is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// To its end.
    Plain,
    /// So many times, and each must be within the target.
    Each(usize),
    /// A server, measured by its client's time.
    Redis,
}

/// A recording's own data and all of it with copied files, in MB.
pub type Sizes = [f64; 2];

/// A row of the table for record and replay: wall time.
pub struct Recorded {
    pub name: &'static str,
    pub command: &'static [&'static str],
    pub input: Option<&'static str>,
    /// Removed before each run.
    pub fresh: Option<&'static str>,
    pub work: Work,
    /// Ratios to native.
    pub must: f64,
    pub aim: f64,
    pub replay: Option<f64>,
    /// The largest sizes that will do.
    pub sizes: Option<Sizes>,
}

impl Recorded {
    const fn new(
        name: &'static str,
        command: &'static [&'static str],
        must: f64,
        aim: f64,
        replay: f64,
    ) -> Recorded {
        Recorded {
            name,
            command,
            input: None,
            fresh: None,
            work: Work::Plain,
            must,
            aim,
            replay: Some(replay),
            sizes: None,
        }
    }

    const fn input(mut self, file: &'static str) -> Recorded {
        self.input = Some(file);
        self
    }

    const fn fresh(mut self, file: &'static str) -> Recorded {
        self.fresh = Some(file);
        self
    }

    const fn work(mut self, work: Work) -> Recorded {
        self.work = work;
        self
    }

    /// Half of what another recorder needs for this.
    const fn half_of(mut self, sizes: Sizes) -> Recorded {
        self.sizes = Some([sizes[0] / 2.0, sizes[1] / 2.0]);
        self
    }
}

/// All rows for record and replay, in the order of the table.
pub fn recorded() -> Vec<Recorded> {
    vec![
        Recorded::new("bzip2 -9, 20 MB", &["bzip2", "-9c", "data"], 1.25, 1.1, 1.2)
            .half_of([7.7, 10.3]),
        Recorded::new("bc, pi to 2,000 digits", &["bc", "-l"], 1.4, 1.2, 1.3).input("pi.bc"),
        Recorded::new(
            "python3 loop",
            &["/usr/bin/python3", "loop.py"],
            1.7,
            1.4,
            1.7,
        ),
        Recorded::new("300k × read + 2 time calls", &["./calls"], 3.0, 2.0, 1.5),
        Recorded::new(
            "4 threads, 800k items through a queue",
            &["./queue"],
            1.5,
            1.0,
            1.2,
        )
        .work(Work::Each(20)),
        Recorded::new(
            "sqlite3, 20k rows, 200 transactions",
            &["sqlite3", "rows.db"],
            2.0,
            1.6,
            1.3,
        )
        .input("transactions.sql")
        .fresh("rows.db"),
        Recorded {
            replay: None,
            ..Recorded::new(
                "redis-server, 50k SET + 50k GET (client)",
                &[
                    "redis-server",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--port",
                    "0",
                ],
                1.6,
                1.3,
                0.0,
            )
        }
        .work(Work::Redis)
        .half_of([6.2, 24.0]),
        Recorded::new(
            "gcc -O2 -c, 16k lines",
            &["gcc", "-O2", "-c", "big.c", "-o", "/dev/null"],
            2.4,
            1.8,
            2.2,
        )
        .half_of([7.3, 52.8]),
        Recorded::new("sh, 200 × /bin/true", &["sh", "true200.sh"], 4.0, 2.5, 4.0)
            .half_of([27.0, 82.6]),
    ]
}
