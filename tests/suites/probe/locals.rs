//! Locals of debug code that several regions of one function use: each call of the function has its own.

use super::*;

const WALK: &str = "#include <stdio.h>
__attribute__((noipa)) int note(int n) { return n; }
__attribute__((noipa)) void tell(int n) { printf(\"%d\\n\", n); }
__attribute__((noipa)) int walk(int n)
{
    int sum = note(n);
    if (sum > 0)
        sum += walk(n - 1);
    tell(sum);
    return sum * 2;
}
int main(void)
{
    walk(2);
    return walk(1) & 1;
}
";

/// A copy of the source with these regions before the lines with those texts.
fn with_regions(
    bench: &Bench,
    name: &str,
    text: &str,
    regions: &[(&str, &str)],
) -> Result<String, Failed> {
    let mut copy = text.to_string();
    for (line, region) in regions {
        copy = copy.replace(line, &format!("rdb_begin\n{region}\nrdb_end\n{line}"));
    }
    let dir = bench.dir.join("copy");
    fs::create_dir_all(&dir)?;
    let file = dir.join(name);
    fs::write(&file, copy)?;
    Ok(path(&file))
}

/// What the first region notes of a call is what the second one sees of the same call, also when others came between.
pub fn recursive(optimised: &str) -> Result<(), Failed> {
    let bench = Bench::text(&format!("locals{optimised}"), &[optimised], WALK, "c")?;
    bench.record(&[]);
    let regions = [
        (
            "    int sum = note(n);",
            "int seen = n * 10, list[2] = {n, seen}; int count; count++;",
        ),
        (
            "    tell(sum);",
            "count++; list[0]++; printf(\"seen %d list %d %d count %d\\n\", seen, list[0], list[1], count);",
        ),
    ];
    let copy = with_regions(&bench, "program.c", WALK, &regions)?;
    let outcome = bench.probe(&[&copy]);
    let one = |n: i32| format!("seen {0} list {1} {0} count 2\n", 10 * n, n + 1);
    let expected: String = [0, 1, 2, 0, 1].map(one).concat();
    same(&told(&outcome)?, &expected, &outcome)
}

/// Containers are objects of their own: made with the call and gone with it.
pub fn containers() -> Result<(), Failed> {
    let text = WALK.replace("#include <stdio.h>", "#include <cstdio>");
    let bench = Bench::text("locals.cpp", &["-O0"], &text, "cc")?;
    bench.record(&[]);
    let regions = [
        (
            "    int sum = note(n);",
            "std::map<int, std::string> names; std::string own(n, 'x'); names[n] = own + \"!\";",
        ),
        (
            "    tell(sum);",
            "names[-1] += own; printf(\"%zu %s %s\\n\", names.size(), names[own.size()].c_str(), names[-1].c_str());",
        ),
    ];
    let copy = with_regions(&bench, "program.cc", &text, &regions)?;
    let helper = bench.dir.join("helper.h");
    fs::write(&helper, "#include <map>\n#include <string>\n")?;
    let outcome = bench.probe(&[&copy, "--with", &path(&helper)]);
    let one = |n: usize| format!("2 {0}! {0}\n", "x".repeat(n));
    let expected: String = [0, 1, 2, 0, 1].map(one).concat();
    same(&told(&outcome)?, &expected, &outcome)
}

const BOTH: &str = "#include <pthread.h>
#include <sched.h>
static volatile long total;
static void *work(void *arg)
{
    long mine = (long)arg;
    for (int i = 0; i < 3; i++) {
        total += mine;
        sched_yield();
    }
    total++;
    return arg;
}
int main(void)
{
    pthread_t all[3];
    for (long n = 0; n < 3; n++) pthread_create(&all[n], 0, work, (void *)(n + 1));
    for (int n = 0; n < 3; n++) pthread_join(all[n], 0);
    return 0;
}
";

/// Each thread is in a call of its own.
pub fn threads() -> Result<(), Failed> {
    let bench = Bench::text("locals.threads", &["-O0"], BOTH, "c")?;
    bench.record(&[]);
    let regions = [
        ("    for (int i = 0;", "long whose = mine, turns = 0;"),
        (
            "        sched_yield();",
            "turns++; if (whose != mine) printf(\"mixed up\\n\");",
        ),
        ("    total++;", "printf(\"%ld: %ld\\n\", whose, turns);"),
    ];
    let copy = with_regions(&bench, "program.c", BOTH, &regions)?;
    let outcome = bench.probe(&[&copy]);
    let mut lines: Vec<String> = told(&outcome)?.lines().map(String::from).collect();
    lines.sort();
    same(&lines.join(" "), "1: 3 2: 3 3: 3", &outcome)
}
