//! The same program with its debugging information in many places and forms must tell the same.

mod common;

use clew_symbols::{DebugSearch, Module, Place};
use common::{Scratch, compile, open, run, section};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a module says about every address of the program's code.
fn places(module: &Module, program: &Path) -> Vec<Vec<Place>> {
    let (start, size) = section(program, ".text").unwrap();
    let all = (start..start + size).map(|address| {
        let mut places = module.places_at(address).unwrap();
        places.iter_mut().for_each(|place| place.die = None);
        places
    });
    all.collect()
}

fn open_with(path: &Path, search: &DebugSearch) -> Module {
    Module::open(path, path, search).unwrap()
}

fn lines_of(places: &[Vec<Place>]) -> usize {
    places
        .iter()
        .filter(|places| places[0].line.is_some())
        .count()
}

/// A program and its debug file, made by binutils; and what the whole one says.
fn stripped(scratch: &Scratch, flags: &[&str]) -> (PathBuf, PathBuf, Vec<Vec<Place>>) {
    let whole = compile(scratch, "shapes.c", flags);
    let said = places(&open(&whole), &whole);
    assert!(lines_of(&said) > 100);
    let (debug, bare) = (scratch.join("shapes.debug"), scratch.join("shapes"));
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(&whole)
        .arg(&debug));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(&whole)
        .arg(&bare));
    let silent = places(&open_with(&bare, &DebugSearch::nowhere()), &bare);
    assert_eq!(lines_of(&silent), 0);
    (bare, debug, said)
}

#[test]
fn debug_link_beside_below_and_in_a_directory() {
    let scratch = Scratch::new("debuglink");
    // Without a build id the checksum must fit.
    let (bare, debug, said) = stripped(&scratch, &["-g", "-O2", "-Wl,--build-id=none"]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy").arg(link).arg(&bare));
    assert!(places(&open(&bare), &bare) == said);

    let hidden = scratch.join(".debug");
    std::fs::create_dir_all(&hidden).unwrap();
    let below = hidden.join("shapes.debug");
    std::fs::rename(&debug, &below).unwrap();
    assert!(places(&open(&bare), &bare) == said);

    let search = DebugSearch {
        dirs: vec![scratch.join("all")],
    };
    let deep = search.dirs[0].join(scratch.path().strip_prefix("/").unwrap());
    std::fs::create_dir_all(&deep).unwrap();
    let elsewhere = deep.join("shapes.debug");
    std::fs::rename(&below, &elsewhere).unwrap();
    let module = open_with(&bare, &search);
    assert_eq!(module.debug_path(), Some(elsewhere.as_path()));
    assert!(places(&module, &bare) == said);
    assert_eq!(lines_of(&places(&open(&bare), &bare)), 0);

    // A file of another build is not taken.
    let mut bytes = std::fs::read(&elsewhere).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&elsewhere, bytes).unwrap();
    assert_eq!(open_with(&bare, &search).debug_path(), None);
}

#[test]
fn a_copy_is_looked_for_under_the_name_it_had() {
    let scratch = Scratch::new("copy");
    let (bare, debug, said) = stripped(&scratch, &["-g", "-O2"]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy").arg(link).arg(&bare));
    let store = Scratch::new("copy-store");
    let copy = store.join("0f3a");
    std::fs::copy(&bare, &copy).unwrap();
    let module = Module::open(&copy, &bare, &DebugSearch::nowhere()).unwrap();
    assert_eq!(
        (module.path(), module.name()),
        (copy.as_path(), bare.as_path())
    );
    assert!(places(&module, &bare) == said);
}

#[test]
fn build_id_directory() {
    let scratch = Scratch::new("buildid");
    let (bare, debug, said) = stripped(&scratch, &["-g", "-O2", "-Wl,--build-id=sha1"]);
    let id: String = open(&bare)
        .build_id()
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let search = DebugSearch {
        dirs: vec![scratch.join("none"), scratch.join("all")],
    };
    let home = search.dirs[1].join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&home).unwrap();
    std::fs::rename(&debug, home.join(format!("{}.debug", &id[2..]))).unwrap();
    assert!(places(&open_with(&bare, &search), &bare) == said);
}

#[test]
fn compressed_sections() {
    let scratch = Scratch::new("compressed");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let whole = compile(&scratch, "shapes.c", &[version, "-O2"]);
        let said = places(&open(&whole), &whole);
        for format in ["zlib", "zlib-gnu", "zstd"] {
            let packed = scratch.join(format);
            let option = format!("--compress-debug-sections={format}");
            run(Command::new("objcopy").arg(option).arg(&whole).arg(&packed));
            let sections = run(Command::new("readelf").arg("-SW").arg(&packed));
            let is_packed = sections.lines().any(|line| {
                line.contains(".zdebug_info")
                    || (line.contains(".debug_info") && line.contains(" C "))
            });
            assert!(is_packed, "{sections}");
            assert!(places(&open(&packed), &packed) == said, "{format}");
        }
    }
}

#[test]
fn supplementary_file_of_dwz() {
    let scratch = Scratch::new("dwz");
    let whole = compile(&scratch, "shapes.cpp", &["-g", "-O2"]);
    let said = places(&open(&whole), &whole);
    let (one, other, common) = (
        scratch.join("one"),
        scratch.join("other"),
        scratch.join("common"),
    );
    std::fs::copy(&whole, &one).unwrap();
    std::fs::copy(&whole, &other).unwrap();
    run(Command::new("dwz")
        .arg("-m")
        .arg(&common)
        .args(["-M", "common"])
        .args([&one, &other]));
    assert!(common.exists());
    assert!(std::fs::metadata(&one).unwrap().len() < std::fs::metadata(&whole).unwrap().len());
    let module = open(&one);
    assert!(places(&module, &one) == said);
    assert!(!module.functions_named("Derived::run").unwrap().is_empty());
}

#[test]
fn split_units_and_type_units() {
    for (name, flags) in [
        ("split5", &["-gdwarf-5", "-O2", "-gsplit-dwarf"][..]),
        ("split4", &["-gdwarf-4", "-O2", "-gsplit-dwarf"]),
        ("types5", &["-gdwarf-5", "-O2", "-fdebug-types-section"]),
        ("types4", &["-gdwarf-4", "-O2", "-fdebug-types-section"]),
    ] {
        let scratch = Scratch::new(name);
        let whole = compile(&scratch, "shapes.c", &flags[..2]);
        let said = places(&open(&whole), &whole);
        let other = compile(&scratch, "shapes.c", flags);
        let module = open(&other);
        assert!(places(&module, &other) == said, "{name}");
        assert_eq!(module.functions_named("area").unwrap().len(), 1, "{name}");
        if name.starts_with("split") {
            let dwo = std::fs::read_dir(scratch.path())
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let dwo: Vec<PathBuf> = dwo
                .filter(|path| path.extension().is_some_and(|e| e == "dwo"))
                .collect();
            assert_eq!(dwo.len(), 1);
            // With neither file the skeleton still has the lines.
            let mut package = other.clone().into_os_string();
            package.push(".dwp");
            // gold's dwp knows version 4 only.
            if name == "split4" {
                run(Command::new("dwp").arg("-o").arg(&package).arg(&dwo[0]));
            }
            std::fs::remove_file(&dwo[0]).unwrap();
            if name == "split4" {
                assert!(places(&open(&other), &other) == said, "{name} package");
                std::fs::remove_file(&package).unwrap();
            }
            assert_eq!(lines_of(&places(&open(&other), &other)), lines_of(&said));
        }
    }
}

#[test]
fn without_section_headers_the_stack_still_unwinds() {
    let scratch = Scratch::new("headers");
    let whole = compile(&scratch, "deep.c", &["-O2"]);
    let mut bytes = std::fs::read(&whole).unwrap();
    bytes[0x28..0x30].fill(0); // e_shoff
    bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    let name = Path::new("bare");
    let module = Module::from_bytes(bytes, name, &DebugSearch::nowhere()).unwrap();
    let main = open(&whole).symbols_named("main").unwrap()[0].address;
    let mut modules = clew_symbols::Modules::new();
    modules.add(std::sync::Arc::new(module), 0, 0..0x10000);
    let mut gprs = [0; 16];
    gprs[4] = 0x7000;
    let registers = clew_symbols::Registers::from_encoding_order(gprs, main);
    let mut memory = |address: u64, buffer: &mut [u8]| {
        if !(0x7000..0x8000).contains(&address) {
            return 0;
        }
        buffer.fill(0);
        buffer.len()
    };
    let (frames, end) = modules.unwind(&registers, &mut memory, 10);
    assert_eq!(frames[0].cfa, Some(0x7008));
    assert!(!frames[0].guessed);
    assert_eq!(end, clew_symbols::StackEnd::Outermost);
}

#[test]
fn the_small_symbol_table_of_stripped_files() {
    let scratch = Scratch::new("debugdata");
    // The second is of some megabytes, and so of several chunks.
    for (source, flags, name) in [
        ("shapes.cpp", ["-O2"], "hidden"),
        ("shapes.rs", ["-g"], "shapes::total"),
    ] {
        let whole = compile(&scratch, source, &flags);
        let (small, bare) = (scratch.join("small"), scratch.join("bare"));
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(&whole)
            .arg(&small));
        run(Command::new("objcopy")
            .arg("--strip-all")
            .arg(&whole)
            .arg(&bare));
        let known = open(&whole).functions_named(name).unwrap();
        assert_eq!(known.len(), 1);
        assert!(open(&bare).functions_named(name).unwrap().is_empty());
        for level in ["-0", "-6"] {
            let packed = scratch.join("small.xz");
            run(Command::new("xz").args(["-k", "-f", level]).arg(&small));
            let both = scratch.join("both");
            let option = format!(".gnu_debugdata={}", packed.display());
            run(Command::new("objcopy")
                .args(["--add-section", &option])
                .arg(&bare)
                .arg(&both));
            let function = open(&both)
                .function_at(known[0].entry + 2)
                .unwrap()
                .unwrap();
            assert_eq!(
                (&function.name, function.entry),
                (&known[0].name, known[0].entry),
                "{level}"
            );
            assert_eq!(open(&both).functions_named(name).unwrap().len(), 1);
        }
    }
}
