//! Expressions over compiled programs: what `clew_symbols::expr` makes of them against what gdb prints.

mod common;
mod core_file;

use clew_symbols::expr::{Bindings, Evaluator, ProblemKind};
use clew_symbols::variables::Catalog;
use common::{Scratch, compile, source};
use core_file::{Core, stopped};

fn evaluated(core: &mut Core, catalog: &Catalog, expression: &str) -> String {
    let modules = core.modules.clone();
    let mut bindings = Bindings::new();
    let mut evaluator = Evaluator::new(catalog, &modules, core, &mut bindings);
    match evaluator.evaluate(expression) {
        Ok(value) => evaluator.show(&value),
        Err(problem) => format!("error: {}", problem.message),
    }
}

/// All expressions whose texts differ from gdb's.
fn compared(name: &str, flags: &[&str], expressions: &[&str]) {
    let scratch = Scratch::new(&format!(
        "values-{}-{}",
        name.replace('.', "-"),
        flags.join("")
    ));
    let program = compile(&scratch, name, flags);
    let (answers, mut core) = stopped(&program, &source(name), &scratch.join("core"), expressions);
    let catalog = Catalog::new();
    let mut wrong = Vec::new();
    for (expression, gdb) in expressions.iter().zip(&answers) {
        let ours = evaluated(&mut core, &catalog, expression);
        let both_fail = gdb.starts_with("error:") && ours.starts_with("error:");
        let both_gone = gdb == "<optimized out>" && ours.ends_with("was optimised out here");
        if ours != *gdb && !both_fail && !both_gone {
            wrong.push(format!("{expression}\n   gdb: {gdb}\n  ours: {ours}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} {flags:?}:\n{}",
        name,
        wrong.join("\n")
    );
}

const GLOBALS: &[&str] = &[
    "counter",
    "hidden",
    "byte",
    "letter",
    "negative",
    "yes",
    "single",
    "real",
    "wide",
    "numbers",
    "zeros",
    "grid",
    "grid[1][2]",
    "greeting",
    "buffer",
    "full",
    "paint",
    "odd",
    "both",
    "head.value",
    "head",
    "tail.next->name",
    "tail.next->bits",
    "head.bits.b",
    "head.bits.a + 1",
    "head.x",
    "tail.y",
    "tail.u",
    "op",
    "nothing",
    "where",
    "*where",
    "&counter",
    "&head",
    "&numbers",
    "&numbers[2]",
    "big",
    "raw",
    "values64",
    "touched",
    "mine",
    "&mine == 0",
    "limit",
    "list->value",
    "*list->next",
    "list->next->next->value",
    "strings",
    "strings[1][0]",
    "*strings",
    "unknown",
    "RED",
    "BLUE + 1",
    "paint == BLUE",
    "(enum color) 5",
    "sizeof(node_t)",
    "sizeof(struct node)",
    "sizeof counter",
    "sizeof(int *)",
    "sizeof(unsigned long)",
    "(long) where == (long) &counter",
    "(char) 65",
    "(unsigned char) -1",
    "(short) 70000",
    "(word) -1",
    "(struct node *) &head",
    "((struct node *) &tail)->next == &head",
    "*(int *) &head",
    "1 + 2 * 3",
    "(1 + 2) * 3",
    "7 / 2",
    "-7 / 2",
    "-7 % 3",
    "7.0 / 2",
    "1.5f * 2",
    "1 << 10",
    "-1 >> 1",
    "0xffffffff >> 4",
    "1 == 1",
    "1 < 0 || 2 > 1",
    "1 && 0",
    "!counter",
    "~0",
    "-counter",
    "+letter",
    "3 > 2 ? 10 : 20",
    "(1, 2)",
    "'a'",
    "'\\n'",
    "'a' + 1",
    "\"text\"",
    "0x10",
    "010",
    "4294967295",
    "0xffffffff",
    "2147483648",
    "1u - 2",
    "-1 < 1u",
    "counter == 42 && *where == 42",
    "numbers[1] + numbers[2]",
    "*numbers",
    "*(numbers + 3)",
    "numbers + 1",
    "&numbers[4] - &numbers[0]",
    "&numbers[4] > &numbers[0]",
    "where != 0",
    "byte + byte",
    "negative == -1",
    "big + 1",
    "big > 5",
    "real * 10",
    "single + real",
    "real > 0.05",
    "add",
    "&add",
    "*op",
    "nosuchthing",
    "counter +",
    "head.nosuch",
    "counter->x",
    "1 / 0",
    "*(int *) 0",
    "square::calls",
    "'values.c'::hidden",
    "&*where",
    "$rip == $pc",
    "(char) $rax == $al",
    "5 - -3",
    "- - 5",
    "!!counter",
    "(counter)",
    "(counter) - 2",
    "(word) - 2",
    "(word) (1)",
    "0 ? counter : hidden",
    "letter == 'x' && greeting[0] == 'h'",
    "1e3",
    "3.25e-2",
    "1.0f",
    "10 % 4 == 2 && 3 != 4",
    "0b101",
    "raw[2] == 255",
    "tail.next == &head ? tail.next->value : -1",
];

const LOCALS: &[&str] = &[
    "n",
    "result",
    "n * n == result",
    "calls",
    "&calls == 0",
    "$sp == 0",
];

#[test]
fn c_as_gdb_has_it() {
    let all: Vec<&str> = GLOBALS.iter().chain(LOCALS).copied().collect();
    compared("values.c", &["-g", "-O0"], &all);
}

#[test]
fn optimised_c() {
    let all: Vec<&str> = GLOBALS.iter().chain(LOCALS).copied().collect();
    compared("values.c", &["-g", "-O2"], &all);
}

#[test]
fn c_with_dwarf_4() {
    compared("values.c", &["-gdwarf-4", "-O1", "-no-pie"], GLOBALS);
}

#[test]
fn cpp_as_gdb_has_it() {
    compared(
        "values.cpp",
        &["-g", "-O0"],
        &[
            "outer::level",
            "outer::inner::level",
            "::number",
            "secret",
            "point",
            "point.x",
            "mode",
            "outer::inner::Point::made",
            "box",
            "box.value",
            "square.side",
            "square.id",
            "reference + 1",
            "flag",
            "(int) !flag",
            "local",
            "by",
            "side",
            "id",
            "this->side",
            "(int) (this == &square)",
            "sizeof(outer::inner::Point)",
            "(int) mode",
            "(int) (mode == outer::inner::Mode::On)",
            "((Square *) this)->id",
        ],
    );
}

fn core_of(test: &str, name: &str, flags: &[&str]) -> (Scratch, Core) {
    let scratch = Scratch::new(test);
    let program = compile(&scratch, name, flags);
    let (_, core) = stopped(&program, &source(name), &scratch.join("core"), &[]);
    (scratch, core)
}

#[test]
fn rust_in_c_clothes() {
    let (_scratch, mut core) = core_of("rust-in-c-clothes", "values.rs", &["-g"]);
    let catalog = Catalog::new();
    let mut wrong = Vec::new();
    for (expression, expected) in [
        ("COUNTER", "8"),
        ("values::COUNTER == 8", "1"),
        ("NAME", "\"clew\""),
        ("inner::LEVEL", "-3"),
        ("first", "{x = 1, y = 2}"),
        ("first.y + 1", "3"),
        ("points.length", "2"),
        ("points.data_ptr[1].x", "-3"),
        ("*shape", "values::Shape::Rect{w = 3, h = 4}"),
        ("shape->Rect.h", "4"),
        ("*empty", "values::Shape::Nothing"),
        ("maybe", "core::option::Option<u32>::Some(5)"),
        ("maybe.Some.__0", "5"),
        ("maybe.Some.0", "5"),
        ("none", "core::option::Option<&u32>::None"),
        ("tuple.0", "7"),
        ("tuple.1", "223 'ß'"),
        ("(i64) first.x", "1"),
    ] {
        let ours = evaluated(&mut core, &catalog, expression);
        if ours != expected {
            wrong.push(format!("{expression}: {ours}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn problem(core: &mut Core, expression: &str) -> (ProblemKind, String) {
    let modules = core.modules.clone();
    let mut bindings = Bindings::new();
    let catalog = Catalog::new();
    let mut evaluator = Evaluator::new(&catalog, &modules, core, &mut bindings);
    let problem = evaluator.evaluate(expression).unwrap_err();
    (problem.kind, problem.pointed(expression))
}

#[test]
fn problems_point_at_their_place() {
    let (_scratch, mut core) = core_of("problems-point-at-their-place", "values.c", &["-g"]);
    for (expression, kind, text) in [
        (
            "counter = 3",
            ProblemKind::Wrong,
            "an expression can only look at the program, not assign; to compare, write ==\n  \
             counter = 3\n          ^",
        ),
        (
            "1 + nosuch",
            ProblemKind::Unknown,
            "there is no `nosuch` in sight here\n  1 + nosuch\n      ^^^^^^",
        ),
        (
            "tail.nex",
            ProblemKind::Wrong,
            "struct node has no member `nex`; did you mean `next`?\n  tail.nex\n  ^^^^^^^^",
        ),
        (
            "*(int *) 8 == 1",
            ProblemKind::Undefined,
            "`*(int *) 8 == 1` needs the memory at 0x8, which can't be read here\n  \
             *(int *) 8 == 1\n  ^^^^^^^^^^^^^^^",
        ),
        (
            "1 +",
            ProblemKind::Wrong,
            "a value is missing at the end\n  1 +\n     ^",
        ),
        (
            "add(1)",
            ProblemKind::Wrong,
            "the function takes 2 arguments, not 1\n  add(1)\n  ^^^^^^",
        ),
        (
            "add(1, 2)",
            ProblemKind::Call,
            "`add(1, 2)` can't be called: this is a core file\n  add(1, 2)\n  ^^^^^^^^^",
        ),
        (
            "bare()",
            ProblemKind::Wrong,
            "`bare` has no debugging information: say what it returns, as in (int) bare(...)\n  \
             bare()\n  ^^^^^^",
        ),
        (
            "greeting == \"x\"",
            ProblemKind::Wrong,
            "a text has no address to compute with; to compare texts, call strcmp(a, b) == 0\n  \
             greeting == \"x\"\n  ^^^^^^^^^^^^^^^",
        ),
    ] {
        assert_eq!(problem(&mut core, expression), (kind, text.to_string()));
    }
}

#[test]
fn calls_pass_what_c_would() {
    use clew_symbols::value::Returned;
    let (_scratch, mut core) = core_of("calls-pass-what-c-would", "values.c", &["-g"]);
    let catalog = Catalog::new();
    let modules = core.modules.clone();
    let (image, symbol) = catalog.symbol(&modules, "add").unwrap();
    let add = image.bias + symbol.address;
    let returned = Returned {
        rax: 0xdead_ffff_ffff,
        xmm0: None,
    };
    core.answers.insert(add, Ok(returned));
    assert_eq!(evaluated(&mut core, &catalog, "add(letter, -1)"), "-1");
    assert_eq!(core.calls.pop().unwrap(), (add, vec![120, u64::MAX]));
    assert_eq!(
        evaluated(&mut core, &catalog, "op(head.value, sizeof(int)) < 0"),
        "1"
    );
    assert_eq!(core.calls.pop().unwrap(), (add, vec![1, 4]));
    // What the compiler would do with an argument too large for its parameter.
    evaluated(&mut core, &catalog, "add(big, 0)");
    assert_eq!(core.calls.pop().unwrap(), (add, vec![u64::MAX, 0]));
    core.answers.insert(add, Err("never returned".into()));
    assert_eq!(
        evaluated(&mut core, &catalog, "1 + add(1, 2)"),
        "error: `add(1, 2)` never returned"
    );
}

#[test]
fn methods_are_found() {
    use clew_symbols::value::Returned;
    let (_scratch, mut core) = core_of("methods-are-found", "values.cpp", &["-g"]);
    let catalog = Catalog::new();
    let modules = core.modules.clone();
    let answer = |rax| Ok(Returned { rax, xmm0: None });
    for (symbol, rax) in [
        ("_ZNK5outer5inner5Point3sumEv", 70),
        ("_ZNK6Square4areaEv", 160),
        ("_ZNK6Square6scaledEi", 30),
    ] {
        let (image, symbol) = catalog.symbol(&modules, symbol).unwrap();
        core.answers
            .insert(image.bias + symbol.address, answer(rax));
    }
    assert_eq!(evaluated(&mut core, &catalog, "point.sum()"), "70");
    assert_eq!(evaluated(&mut core, &catalog, "square.scaled(2)"), "30");
    // The object's own, not the one of the class that it is seen as.
    assert_eq!(
        evaluated(&mut core, &catalog, "((Shape *) &square)->area()"),
        "160"
    );
}

#[test]
fn names_keep_their_meaning() {
    let (_scratch, mut core) = core_of("names-keep-their-meaning", "values.c", &["-g"]);
    let catalog = Catalog::new();
    let modules = core.modules.clone();
    let mut bindings = Bindings::new();
    let mut evaluator = Evaluator::new(&catalog, &modules, &mut core, &mut bindings);
    // main's own, since square has none: it is on the stack.
    let value = evaluator.evaluate("argc + total").unwrap();
    assert_eq!(evaluator.show(&value), "301");
    let value = evaluator.evaluate("main::local.value").unwrap();
    assert_eq!(evaluator.show(&value), "9");
    evaluator.evaluate("counter + n").unwrap();
    bindings.pin();
    let mut evaluator = Evaluator::new(&catalog, &modules, &mut core, &mut bindings);
    let value = evaluator.evaluate("counter + n == 343").unwrap();
    assert_eq!(evaluator.show(&value), "1");
}

#[test]
fn what_optimising_leaves() {
    // What the caller passed, pieces in registers, pointers that aren't there.
    compared(
        "optimised.c",
        &["-g", "-O2"],
        &[
            "depth",
            "*pointer",
            "*pointer + 1",
            "pointer",
            "consume::first",
            "consume::second",
            "consume::pair",
            "consume::pair.b",
            "consume::local",
        ],
    );
}

/// Of each thread, in the program and in a library. gdb would need a library for that.
#[test]
fn thread_local_variables() {
    let scratch = Scratch::new("threads");
    let library = scratch.join("liblibrary.so");
    let gcc = || std::process::Command::new("gcc");
    common::run(
        gcc()
            .args(["-g", "-fPIC", "-shared", "-o"])
            .arg(&library)
            .arg(source("library.c")),
    );
    let program = scratch.join("threads");
    common::run(
        gcc()
            .args(["-g", "-pthread", "-o"])
            .arg(&program)
            .arg(source("threads.c"))
            .arg(&library),
    );
    let (_, mut core) = stopped(&program, &source("threads.c"), &scratch.join("core"), &[]);
    let catalog = Catalog::new();
    for (expression, expected) in [
        ("own", "22"),
        ("name", "\"sain\\000\\000\\000\""),
        ("aligned", "{a = 3, b = 40}"),
        ("in_library", "50"),
        ("'library.c'::hidden", "56"),
        ("result == hidden", "1"),
    ] {
        assert_eq!(
            evaluated(&mut core, &catalog, expression),
            expected,
            "{expression}"
        );
    }
}
