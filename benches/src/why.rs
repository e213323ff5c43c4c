//! `clew why` on programs that run for about a second before they fail: a program goes in; what explaining it takes, against
//! recording it, comes out, as a table in docs/why.md between its markers.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure;

const LIMIT: Duration = Duration::from_secs(600);
/// So many times the recording's time it may take.
const MUST: f64 = 10.0;

/// Work for about a second of a present machine.
const WORK: &str = "#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
static unsigned long work(unsigned long rounds) {
    unsigned long mixed = 1;
    for (unsigned long n = 0; n < rounds; n++) mixed = (mixed ^ n) * 0x9e3779b97f4a7c15ul;
    return mixed;
}
";

/// What fails, and how.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "a null pointer, set a second ago",
        "static long *volatile where;
static void lose(void) { where = NULL; }
int main(void) {
    lose();
    volatile unsigned long mixed = work(800000000);
    return (int)(*where + (long)mixed);
}
",
    ),
    (
        "a wild pointer, among 200,000 allocations",
        "struct item { struct item *next; long value; };
int main(void) {
    struct item *first = malloc(sizeof *first), *kept = first;
    first->next = NULL;
    free(first);
    for (int n = 0; n < 200000; n++) {
        struct item *one = malloc(sizeof *one);
        one->next = (struct item *)(work(2000) | 1ul << 62);
        if (n > 0) free(one);
    }
    return (int)kept->next->value;
}
",
    ),
    (
        "an assertion on a sum of a second",
        "int main(void) {
    unsigned long sum = 0;
    for (int n = 0; n < 1000; n++) sum += work(800000) & 1023;
    assert(sum < 1000);
    return 0;
}
",
    ),
    (
        "a pointer of another thread's",
        "static long value = 5, *volatile where = &value;
static pthread_barrier_t both;
static void *other(void *unused) {
    volatile unsigned long mixed = work(400000000);
    where = NULL;
    pthread_barrier_wait(&both);
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    volatile unsigned long mixed = work(400000000);
    pthread_barrier_wait(&both);
    return (int)*where;
}
",
    ),
];

pub struct Row {
    name: &'static str,
    /// Until the program failed while it was recorded.
    record: Duration,
    why: Duration,
}

pub struct Bench<'a> {
    pub clew: &'a Path,
    pub dir: &'a Path,
}

impl Bench<'_> {
    pub fn measure(&self, runs: usize) -> Result<Vec<Row>, String> {
        let rows = PROGRAMS.iter().enumerate();
        rows.map(|(n, (name, text))| self.row(n, name, text, runs))
            .collect()
    }

    fn row(&self, n: usize, name: &'static str, text: &str, runs: usize) -> Result<Row, String> {
        let (source, program) = (
            self.dir.join(format!("fails{n}.c")),
            self.dir.join(format!("fails{n}")),
        );
        std::fs::write(&source, format!("{WORK}{text}")).map_err(|error| error.to_string())?;
        let mut compile = Command::new("gcc");
        compile.args(["-g", "-O1", "-pthread", "-w", "-o"]);
        let compiled = compile.arg(&program).arg(&source).status();
        if !compiled.is_ok_and(|status| status.success()) {
            return Err(format!("{name}: the program can't be compiled"));
        }
        let folder = self.dir.join(format!("fails{n}.recording"));
        let (mut records, mut whys) = (Vec::new(), Vec::new());
        for _ in 0..runs.max(1) {
            let _ = std::fs::remove_dir_all(&folder);
            let mut record = Command::new(self.clew);
            record.args(["record", "-o"]).arg(&folder).arg(&program);
            record.stdin(Stdio::null()).stdout(Stdio::null());
            let began = Instant::now();
            let status = record.stderr(Stdio::null()).status();
            records.push(began.elapsed());
            if status.map_err(|error| error.to_string())?.success() {
                return Err(format!("{name}: it doesn't fail"));
            }
            let mut why = Command::new(self.clew);
            why.arg("why").arg(&folder);
            whys.push(measure::run(&mut why, None, LIMIT)?.wall);
        }
        let _ = std::fs::remove_dir_all(&folder);
        Ok(Row {
            name,
            record: median(records),
            why: median(whys),
        })
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub fn table(rows: &[Row]) -> String {
    let mut all = String::from(
        "| what fails | recorded in | explained in | ratio | must |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let (record, why) = (row.record.as_secs_f64(), row.why.as_secs_f64());
        let _ = writeln!(
            all,
            "| {} | {record:.2} s | {why:.2} s | **{:.1}** | {MUST} |",
            row.name,
            why / record.max(0.001),
        );
    }
    all
}

const BEGIN: &str = "<!-- why:begin -->\n";
const END: &str = "<!-- why:end -->";

/// Puts the table into docs/why.md.
pub fn write(rows: &[Row]) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/why.md");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let parts = text.split_once(BEGIN);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, behind) = parts.ok_or("docs/why.md has no place for the table")?;
    let text = format!("{before}{BEGIN}{}{END}{behind}", table(rows));
    std::fs::write(&path, text).map_err(|error| error.to_string())
}
