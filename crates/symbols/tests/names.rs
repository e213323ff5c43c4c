//! Functions and lines by name: where a breakpoint would go, compared with gdb's.

mod common;

use clew_symbols::{Module, NameKind};
use common::{Scratch, compile, open, run};
use std::path::Path;
use std::process::Command;

/// Where gdb would put a breakpoint: one address, several, or none.
fn gdb_breaks(program: &Path, places: &[String]) -> Vec<Vec<u64>> {
    let mut command = Command::new("gdb");
    command.args([
        "-nx",
        "-batch",
        "-ex",
        "set breakpoint pending off",
        "-ex",
        "set debuginfod enabled off",
    ]);
    for place in places {
        // The locations of one breakpoint, then none.
        command
            .args(["-ex", "echo \\n@@\\n", "-ex"])
            .arg(format!("break {place}"));
        command.args(["-ex", "info breakpoints", "-ex", "delete"]);
    }
    let text = run(command.arg(program));
    let each = |part: &str| {
        let mut addresses: Vec<u64> = part
            .lines()
            .filter(|line| line.contains(" in "))
            .filter_map(|line| {
                line.split_whitespace()
                    .find_map(|word| word.strip_prefix("0x"))
            })
            .map(|digits| u64::from_str_radix(digits, 16).unwrap())
            .collect();
        addresses.sort();
        addresses.dedup();
        addresses
    };
    text.split("@@").skip(1).map(each).collect()
}

/// Our answer to `break FUNCTION`.
fn bodies(module: &Module, name: &str) -> Vec<u64> {
    let functions = module.functions_named(name).unwrap();
    let mut all: Vec<u64> = functions
        .iter()
        .map(|one| module.body_of(one.entry).unwrap())
        .collect();
    all.sort();
    all
}

fn names_of(module: &Module, wanted: &str) -> Vec<String> {
    module
        .functions_named(wanted)
        .unwrap()
        .into_iter()
        .map(|function| function.name)
        .collect()
}

#[test]
fn breakpoints_on_functions_are_where_gdb_puts_them() {
    let scratch = Scratch::new("names-break");
    for (source, names) in [
        (
            "shapes.c",
            &["area", "apply", "length", "main", "no_such_function"][..],
        ),
        (
            "shapes.cpp",
            &[
                "geometry::Box<int>::area",
                "Derived::run",
                "scale",
                "geometry::scale",
                "hidden",
                "main",
                "Box",
            ],
        ),
    ] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let program = compile(&scratch, source, &[version, "-O0"]);
            let module = open(&program);
            let wanted: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            for (name, theirs) in names.iter().zip(gdb_breaks(&program, &wanted)) {
                assert_eq!(
                    bodies(&module, name),
                    theirs,
                    "{name} of {source} {version}"
                );
            }
        }
    }
}

#[test]
fn breakpoints_on_lines_are_where_gdb_puts_them() {
    let scratch = Scratch::new("names-line");
    let program = compile(&scratch, "shapes.c", &["-gdwarf-5", "-O0"]);
    let module = open(&program);
    let places: Vec<String> = (1..60).map(|line| format!("shapes.c:{line}")).collect();
    for (line, theirs) in (1..60).zip(gdb_breaks(&program, &places)) {
        let found = module.addresses_of("shapes.c", line).unwrap();
        let mut ours: Vec<u64> = found
            .iter()
            .map(|one| {
                // gdb goes past a function's start.
                let function = module.function_at(one.address).unwrap().unwrap();
                let starts = function.entry == one.address;
                if starts {
                    module.body_of(one.address).unwrap()
                } else {
                    one.address
                }
            })
            .collect();
        ours.sort();
        ours.dedup();
        assert_eq!(ours, theirs, "line {line}");
    }
    assert!(module.addresses_of("other.c", 5).unwrap().is_empty());
    assert!(module.addresses_of("shapes.c", 1000).unwrap().is_empty());
    let path = common::source("shapes.c");
    let by_path = module.addresses_of(path.to_str().unwrap(), 20).unwrap();
    assert_eq!(
        by_path,
        module.addresses_of("programs/shapes.c", 20).unwrap()
    );
    assert_eq!(by_path[0].line.line, 20);
}

#[test]
fn an_inlined_line_has_an_address_for_each_call() {
    let scratch = Scratch::new("names-inline");
    let program = compile(&scratch, "shapes.c", &["-g", "-O2"]);
    let module = open(&program);
    // `return x * x` is inlined twice into area; at most one address for each call.
    let found = module.addresses_of("shapes.c", 8).unwrap();
    assert!((1..=2).contains(&found.len()), "{found:?}");
    for one in found {
        let places = module.places_at(one.address).unwrap();
        assert_eq!(places[0].function.as_deref(), Some("square"));
        assert!(places[0].inlined && places[1].inlined && !places[2].inlined);
        assert_eq!(places[2].function.as_deref(), Some("area"));
    }
}

#[test]
fn cpp_names() {
    let scratch = Scratch::new("names-cpp");
    let program = compile(&scratch, "shapes.cpp", &["-g", "-O0"]);
    let stripped = scratch.join("stripped");
    run(Command::new("objcopy")
        .arg("--strip-debug")
        .arg(&program)
        .arg(&stripped));
    for module in [open(&program), open(&stripped)] {
        assert_eq!(
            names_of(&module, "Box<int>::area"),
            ["geometry::Box<int>::area"]
        );
        assert_eq!(names_of(&module, "Box::area").len(), 2);
        assert_eq!(names_of(&module, "area").len(), 2);
        assert_eq!(
            names_of(&module, "scale"),
            ["geometry::scale", "geometry::scale"]
        );
        assert_eq!(
            names_of(&module, "hidden"),
            ["(anonymous namespace)::hidden"]
        );
        assert_eq!(names_of(&module, "(anonymous namespace)::hidden").len(), 1);
        assert_eq!(
            names_of(&module, "_ZN8geometry5scaleEi"),
            ["geometry::scale"]
        );
        assert!(names_of(&module, "Box<long>::area").is_empty());
        assert!(!names_of(&module, "operator<").is_empty());
        assert!(!names_of(&module, "~Box").is_empty());
    }
    let module = open(&program);
    assert_eq!(
        module
            .dies_named("geometry::Box<int>::count", NameKind::Variable)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        module.dies_named("Derived", NameKind::Type).unwrap().len(),
        1
    );
    assert!(
        !module
            .dies_named("geometry", NameKind::Namespace)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn rust_names() {
    let scratch = Scratch::new("names-rust");
    for flags in [&["-g"][..], &["-g", "-C", "symbol-mangling-version=v0"]] {
        let module = open(&compile(&scratch, "shapes.rs", flags));
        assert_eq!(names_of(&module, "shapes::total"), ["shapes::total"]);
        assert_eq!(names_of(&module, "Rect::grown").len(), 1);
        assert_eq!(names_of(&module, "shapes::generic").len(), 2);
        assert_eq!(
            names_of(&module, "Rect::area").len(),
            1,
            "{:?}",
            names_of(&module, "area")
        );
        assert_eq!(names_of(&module, "Area::area").len(), 3);
        assert!(names_of(&module, "Rect::shrunk").is_empty());
    }
}
