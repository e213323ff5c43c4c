//! Makes what the rows work on, once, in the target folder: the same bytes on every machine.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fills the folder and returns it.
pub fn prepare() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = exe.ancestors().nth(2).ok_or("not in a target folder")?;
    let dir = target.join("clew-bench");
    // Named for their contents: change this when an input changes.
    let stamp = dir.join("inputs-3");
    if stamp.exists() {
        return Ok(dir);
    }
    make(&dir).map_err(|error| format!("making inputs in {}: {error}", dir.display()))?;
    build(&dir)?;
    fs::write(stamp, "").map_err(|error| error.to_string())?;
    Ok(dir)
}

fn make(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir.join("java"))?;
    fs::create_dir_all(dir.join("project"))?;
    fs::create_dir_all(dir.join("out"))?;
    let data = compressible(20_000_000);
    fs::write(dir.join("data"), &data)?;
    fs::write(dir.join("data6"), &data[..6_000_000])?;
    fs::write(dir.join("pi.bc"), "scale=2000; 4*a(1)\n")?;
    fs::write(dir.join("loop.py"), PYTHON)?;
    fs::write(dir.join("rows.sql"), SQL)?;
    fs::write(dir.join("transactions.sql"), transactions())?;
    fs::write(dir.join("big.c"), big_c())?;
    fs::write(dir.join("queue.c"), QUEUE)?;
    fs::write(dir.join("calls.c"), CALLS)?;
    fs::write(dir.join("true200.sh"), "/bin/true\n".repeat(200))?;
    fs::write(dir.join("loop.js"), NODE)?;
    fs::write(dir.join("loop.lua"), LUA)?;
    fs::write(dir.join("java/Loop.java"), JAVA)?;
    let mut sources = String::new();
    for number in 0..40 {
        let name = format!("project/Part{number}.java");
        fs::write(dir.join(&name), java_part(number))?;
        let _ = writeln!(sources, "{name}");
    }
    fs::write(dir.join("sources"), sources)
}

fn build(dir: &Path) -> Result<(), String> {
    let run = |program: &str, args: &[&str]| {
        let status = Command::new(program).args(args).current_dir(dir).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{program}: {status}")),
            Err(error) => Err(format!("{program}: {error}")),
        }
    };
    run("gcc", &["-O2", "calls.c", "-o", "calls"])?;
    run("gcc", &["-O2", "-pthread", "queue.c", "-o", "queue"])?;
    run("javac", &["-d", "java", "java/Loop.java"])
}

/// Text-like data: words of a small vocabulary with numbers in between.
fn compressible(size: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<String> = (0..4000)
        .map(|_| {
            let length = 2 + next() % 9;
            let letter = |n: u64| char::from(b'a' + u8::try_from(n % 26).expect("a letter"));
            (0..length)
                .map(|_| letter(next() % (1 + next() % 26)))
                .collect()
        })
        .collect();
    let mut out = String::with_capacity(size + 32);
    while out.len() < size {
        // Common words more often than rare ones.
        let limit = 1 + next() % 4000;
        let index = usize::try_from(next() % limit).expect("a small number");
        out.push_str(&words[index]);
        match next() % 13 {
            0 => out.push('\n'),
            1 => {
                let _ = write!(out, " {} ", next() % 10_000);
            }
            _ => out.push(' '),
        }
    }
    let mut bytes = out.into_bytes();
    bytes.truncate(size);
    bytes
}

/// 20,000 rows in 200 transactions, each written to the disk.
fn transactions() -> String {
    let mut text = String::from(
        "create table t(id integer primary key, k text, v real);\ncreate index tk on t(k);\n",
    );
    for transaction in 0..200 {
        text.push_str("begin;\n");
        for row in transaction * 100..(transaction + 1) * 100 {
            let key = row * 7919 % 50_000;
            let _ = writeln!(
                text,
                "insert into t values({row}, 'key{key}', {row} / 7.0);"
            );
        }
        text.push_str("commit;\n");
    }
    text.push_str("select count(*), sum(v) from t where k like 'key1%';\n");
    text
}

/// About 16,000 lines of ordinary C: loops, switches, structures, calls, and tables.
fn big_c() -> String {
    let mut text = String::from(
        "#include <stddef.h>\nstruct node { struct node *next; int key; double weight; char name[16]; };\n",
    );
    for n in 0..300 {
        let (a, b) = (n * 7 % 13 + 1, n * 11 % 17 + 2);
        let _ = write!(
            text,
            "int f{n}(struct node *list, int *table, int size)\n{{\n    int sum = {n};\n    double total = 0;\n    \
             for (struct node *p = list; p != NULL; p = p->next) {{\n        \
             sum += p->key * {a};\n        total += p->weight / {b};\n    }}\n    \
             for (int i = 0; i < size; i++) {{\n        switch (table[i] % {b}) {{\n        \
             case 0: sum ^= i; break;\n        case 1: sum += table[(i + {a}) % size]; break;\n        \
             default: table[i] = sum >> {}; break;\n        }}\n    }}\n    \
             if (total > {n}.5)\n        sum = -sum;\n    return {};\n}}\n",
            a % 8,
            if n == 0 {
                "sum".to_owned()
            } else {
                format!("sum + (sum > {a} ? f{}(list, table, size - 1) : 0)", n - 1)
            }
        );
    }
    for n in 0..300 {
        let _ = writeln!(
            text,
            "static const struct {{ int id; const char *name; double value; }} table{n}[] = {{"
        );
        for line in 0..32 {
            let _ = writeln!(
                text,
                "    {{ {line}, \"entry {n} {line}\", {}.25 }},",
                n * line % 1000
            );
        }
        let _ = writeln!(
            text,
            "}};\ndouble value{n}(int i) {{ return table{n}[i & 31].value; }}"
        );
    }
    text
}

fn java_part(number: u32) -> String {
    format!(
        "package project;\nimport java.util.*;\nimport java.util.function.*;\n\
         public class Part{number} {{\n\
         \x20   record Pair<A, B>(A first, B second) {{}}\n\
         \x20   private final Map<String, List<Pair<Integer, Double>>> table = new HashMap<>();\n\
         \x20   public void add(String key, int n) {{ table.computeIfAbsent(key, k -> new ArrayList<>()).add(new Pair<>(n, n / {}.0)); }}\n\
         \x20   public double total(Predicate<Pair<Integer, Double>> wanted) {{\n\
         \x20       return table.values().stream().flatMap(List::stream).filter(wanted).mapToDouble(Pair::second).sum();\n    }}\n\
         \x20   public String text() {{\n        StringBuilder out = new StringBuilder();\n\
         \x20       for (var entry : table.entrySet()) switch (entry.getKey().length() % 3) {{\n\
         \x20           case 0 -> out.append(entry.getKey());\n            case 1 -> out.append(entry.getValue().size());\n\
         \x20           default -> out.append('-');\n        }}\n        return out.toString();\n    }}\n}}\n",
        number + 1
    )
}

const PYTHON: &str = "\
def work(n):
    total, table = 0, {}
    for i in range(n):
        total = (total * 31 + i) % 1000003
        table[total % 1000] = table.get(total % 1000, 0) + i
    return total, len(table)
print(work(5000000))
";

const SQL: &str = "\
create table t(id integer primary key, k text, v real);
begin;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
insert into t select i, 'key' || (i * 7919 % 50000), i / 7.0 from n;
commit;
create index tk on t(k);
select count(*), sum(v) from t where k like 'key1%';
select k, count(*) from t group by k order by 2 desc, 1 limit 5;
select count(*) from t a join t b on a.k = b.k and a.id < b.id;
update t set v = v * 2 where id % 3 = 0;
delete from t where id % 5 = 0;
select total(v) from t;
";

const CALLS: &str = "\
#include <fcntl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
    int fd = open(\"/dev/zero\", O_RDONLY);
    char c;
    struct timeval tv;
    struct timespec ts;
    for (int i = 0; i < 300000; i++) {
        if (read(fd, &c, 1) != 1) return 1;
        gettimeofday(&tv, 0);
        clock_gettime(CLOCK_MONOTONIC, &ts);
    }
    return 0;
}
";

const QUEUE: &str = "\
#include <pthread.h>
#include <stdio.h>
enum { ITEMS = 800000, ROOM = 64 };
static int queue[ROOM];
static unsigned in, out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t taken = PTHREAD_COND_INITIALIZER, put = PTHREAD_COND_INITIALIZER;
static void *produce(void *unused)
{
    for (int i = 0; i < ITEMS / 2; i++) {
        pthread_mutex_lock(&lock);
        while (in - out == ROOM) pthread_cond_wait(&taken, &lock);
        queue[in++ % ROOM] = i;
        pthread_cond_signal(&put);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}
static void *consume(void *unused)
{
    long sum = 0;
    for (int i = 0; i < ITEMS / 2; i++) {
        pthread_mutex_lock(&lock);
        while (in == out) pthread_cond_wait(&put, &lock);
        sum += queue[out++ % ROOM];
        pthread_cond_signal(&taken);
        pthread_mutex_unlock(&lock);
    }
    return (void *)sum;
}
int main(void)
{
    pthread_t threads[4];
    long total = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, i < 2 ? produce : consume, 0);
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        if (i >= 2) total += (long)sum;
    }
    printf(\"%ld\\n\", total);
    return 0;
}
";

const NODE: &str = "\
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
let h = 0; const a = new Float64Array(100000), m = new Map();
for (let r = 0; r < 100; r++) for (let i = 0; i < a.length; i++) { a[i] = a[i] * 0.5 + Math.sqrt(i); h = (h * 31 + (a[i] | 0)) | 0; }
for (let i = 0; i < 2000000; i++) m.set(i % 5000, (m.get(i % 5000) || 0) + i);
console.log(fib(34), h, m.size);
";

const LUA: &str = "\
local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end
local t, h = {}, 0
for r = 1, 300 do for i = 1, 100000 do t[i] = (t[i] or 0) * 0.5 + i; h = (h * 31 + t[i]) % 1000003 end end
print(fib(34), h)
";

const JAVA: &str = "\
import java.util.*;
public class Loop {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    public static void main(String[] args) {
        double[] a = new double[100000]; int h = 0; Map<Integer, Long> m = new HashMap<>();
        for (int r = 0; r < 150; r++) for (int i = 0; i < a.length; i++) { a[i] = a[i] * 0.5 + Math.sqrt(i); h = h * 31 + (int) a[i]; }
        for (int i = 0; i < 3000000; i++) m.merge(i % 5000, (long) i, Long::sum);
        System.out.println(fib(38) + \" \" + h + \" \" + m.size());
    }
}
";
