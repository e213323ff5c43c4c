//! What gdb shows: registers, memory, mappings, values of C, C++ and Rust; calls and assignments that
//! change nothing.

use std::os::unix::fs::PermissionsExt;

use clew_tests::mi::Mi;
use clew_tests::scratch;
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "inspect",
        &[
            ("registers as natively", registers),
            ("memory and code", memory),
            ("function calls", calls),
            ("a call that crashes", crashing_call),
            ("assignments", assignments),
            ("mappings and auxiliary vector", mappings),
            ("shared libraries", libraries),
            ("arguments and environment", arguments),
            ("locals of optimised code", optimised),
            ("C++", cpp),
            ("C++ exceptions", exceptions),
            ("Rust", rust),
            ("signal information", siginfo),
            ("MI as editors use it", editors),
            ("VS Code as documented", vs_code),
        ],
    )
}

fn registers(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "registers.c")?;
    let show = "info registers rax rcx rdx rsi rdi r8 r9 r10 r11 eflags cs ss\n\
                info registers float\ninfo registers mxcsr\nset $i = 0\nwhile $i < 16\n\
                eval \"print/x $ymm%d.v4_int64\", $i\neval \"print $xmm%d.v2_double\", $i\nset $i = $i + 1\nend\n\
                print $st1\nprint/x $mxcsr\nprint $fctrl\nprint $ftag\nprintf \"done\\n\"\n";
    let native = place.native(&format!("break place\nrun\nprintf \"here\\n\"\n{show}"))?;
    let here = place.batch(&format!(
        "break place\ncontinue\nprintf \"here\\n\"\n{show}"
    ))?;
    let shown = |text: &str| -> Vec<String> {
        let rest = text.split("here\n").nth(1).unwrap_or_default();
        // Where the last x87 instruction was is an address, and not kept by every processor; AVX-512 is not
        // shown to recorded programs.
        let rest = rest.split("done\n").next().unwrap_or_default();
        let skip = |line: &&str| {
            let name = line.split_whitespace().next().unwrap_or_default();
            !["fiseg", "fioff", "foseg", "fooff", "fop"].contains(&name)
                && !name.starts_with("zmm")
                && !name.starts_with('k')
                && !avx512(name)
        };
        rest.lines().filter(skip).map(str::to_owned).collect()
    };
    let (native, here) = (shown(&native), shown(&here));
    require(native.len() > 35, || format!("natively: {native:?}"))?;
    for (one, other) in native.iter().zip(&here) {
        same("natively, here", one, other)?;
    }
    same("registers", native.len(), here.len())?;
    // And backwards to the same place.
    let back = place.batch_with(
        &["--at", "end"],
        &format!("break place\nreverse-continue\nprintf \"here\\n\"\n{show}"),
    )?;
    same("backwards", shown(&back), here)
}

/// xmm16 and above, of whatever width.
fn avx512(name: &str) -> bool {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    (name.starts_with("xmm") || name.starts_with("ymm"))
        && digits.parse().is_ok_and(|n: u32| n > 15)
}

fn memory(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let here = place.batch(
        "break factorial\ncontinue\nx/5i $pc\nx/8dw numbers\ninfo frame\nprint *(int *)8\n",
    )?;
    has(&here, &["<numbers>", "0", "1", "4", "9", "16"])?;
    has(
        &here,
        &["rip = ", "factorial", "saved rip", "called by frame"],
    )?;
    has(&here, &["Cannot access memory at address 0x8"])
}

/// Function calls happen in an excursion, which is told; nothing is different afterwards.
fn calls(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t -c \"b == 9\" add")?;
    mi.go(FORTH)?;
    let before = (mi.print("$pc")?, mi.print("$sp")?, mi.number("calls")?);
    same("value", mi.number("factorial(6)")?, 720)?;
    same("value", mi.number("add(20, 22)")?, 42)?;
    let text = mi.console("print add(1, 2) + add(3, 4)")?;
    has(&text, &["= 10"])?;
    // A library's functions, with memory of their own.
    same("strlen", mi.number("(int)strlen(\"four\")")?, 4)?;
    // The copy goes, and nothing is different.
    mi.command("clew back")?;
    let after = (mi.print("$pc")?, mi.print("$sp")?, mi.number("calls")?);
    same("state", after, before)?;
    // What comes is what was recorded.
    mi.command("-break-insert add")?;
    mi.go(FORTH)?;
    same("next", (mi.number("a")?, mi.number("calls")?), (14, 4))?;
    mi.go(BACK)?;
    same("before", (mi.number("a")?, mi.number("calls")?), (5, 3))?;
    let text = place.batch("break add\ncontinue\nprint factorial(5)\n")?;
    has(&text, &["copy"])
}

fn crashing_call(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "undefined.c")?;
    let mut mi = place.mi()?;
    mi.command("-gdb-set unwindonsignal on")?;
    let at = format!("undefined.c:{}", place.line("state"));
    mi.command(&format!("-break-insert -c \"to == 2\" {at}"))?;
    mi.go(FORTH)?;
    let why = mi.refused("print is_wrong()")?;
    has(&why, &["signaled"])?;
    let frame = mi.console("backtrace 1")?;
    has(&frame, &["set_state (to"])?;
    same("state", mi.number("state")?, 1)?;
    // It goes on as if nothing had happened.
    mi.command("-break-delete")?;
    mi.command(&format!("-break-insert -c \"to == 4\" {at}"))?;
    mi.go(FORTH)?;
    same("state", mi.number("state")?, 3)?;
    same("value", mi.number("is_wrong()")?, 0)
}

fn assignments(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -c \"b == 4\" add")?;
    mi.go(FORTH)?;
    let text = mi.console("print calls = 77")?;
    has(&text, &["77"])?;
    mi.command("set var numbers[1] = 5")?;
    mi.command("set var $rax = 9")?;
    // The recording has what it had.
    mi.command("-break-insert -t factorial")?;
    mi.go(FORTH)?;
    same("calls", mi.number("calls")?, 5)?;
    mi.go(BACK)?;
    same(
        "calls",
        (mi.number("calls")?, mi.number("numbers[1]")?),
        (2, 1),
    )
}

fn mappings(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let text = place.batch("break add\ncontinue\ninfo proc mappings\ninfo auxv\n")?;
    has(&text, &["Start Addr", "/steps"])?;
    has(&text, &["libc.so.6"])?;
    has(&text, &["[stack]"])?;
    for entry in ["AT_ENTRY", "AT_PHDR", "AT_RANDOM", "AT_EXECFN", "AT_PAGESZ"] {
        has(&text, &[entry])?;
    }
    has(&text, &["AT_PAGESZ", "4096"])
}

fn libraries(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "classes.cpp")?;
    let text = place
        .batch("break show\ncontinue\ninfo sharedlibrary\ninfo symbol printf\ninfo line main\n")?;
    has(&text, &["ld-linux-x86-64.so.2"])?;
    has(&text, &["libstdc++.so.6"])?;
    has(&text, &["libc.so.6"])?;
    has(&text, &["printf in section .text of", "libc.so.6"])
}

fn arguments(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "writes.c", None, &["plain", "10"])?;
    let text = place.batch(
        "break main\ncontinue\nprint argc\nprint argv[1]\nprint argv[2]\n\
                            print (char *)getenv(\"LANG\")\ninfo proc\n",
    )?;
    has(&text, &["$1 = 3", "\"plain\"", "\"10\"", "C.UTF-8"])
}

fn optimised(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "inlined.c")?;
    let go = |go: &str| {
        format!(
            "break inlined.c:{}\nignore 1 20\n{go}\nprintf \"here\\n\"\nbacktrace\ninfo locals\nup\ninfo locals\n\
             up\ninfo locals\n",
            place.line("innermost")
        )
    };
    let native = place.native(&go("run"))?;
    let here = place.batch(&go("continue"))?;
    // Without addresses, which differ.
    let shown = |text: &str| -> Vec<String> {
        let rest = text.split("here\n").nth(1).unwrap_or_default();
        let lines = rest
            .lines()
            .filter(|line| line.starts_with('#') || line.contains(" = "));
        let plain = |line: &str| line.split(" in ").last().unwrap_or_default().to_owned();
        lines.map(plain).collect()
    };
    same("natively, here", shown(&native), shown(&here))?;
    has(
        &here,
        &[
            "#0",
            "innermost",
            "#1",
            "middle",
            "#2",
            "outer",
            "#3",
            "main",
        ],
    )
}

fn cpp(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "classes.cpp")?;
    let show = "printf \"here\\n\"\nprint numbers\nprint ages\nprint animal\nprint ring\nprint size\nprint *text\n\
                print numbers[2]\nset print object on\nprint animal\nptype ring\ninfo functions push\n\
                print numbers.size()\n";
    let native = place.native(&format!("break show\nrun\n{show}"))?;
    let here = place.batch(&format!("break show\ncontinue\n{show}"))?;
    let shown = |text: &str| -> Vec<String> {
        let rest = text.split("here\n").nth(1).unwrap_or_default();
        // Addresses of virtual tables are where the program was loaded; the notice about calls is ours.
        let lines = rest
            .lines()
            .filter(|line| line.starts_with('$') && !line.contains("0x"));
        lines.map(str::to_owned).collect()
    };
    same("natively, here", shown(&native), shown(&here))?;
    has(&here, &["std::vector of length 5", "{1, 2, 3, 5, 8}"])?;
    has(&here, &["std::map with 2 elements", "[\"ada\"] = 36"])?;
    has(
        &here,
        &["zoo::Size::Large", "\"hello\"", "zoo::Ring<double, 3>"],
    )?;
    // A template's method by its demangled name, both ways.
    let mut mi = place.mi()?;
    mi.command("-break-insert \"zoo::Ring<double, 3>::push(double)\"")?;
    let seen = place::there_and_back(&mut mi, |mi, _| mi.print("value"))?;
    same(
        "values",
        seen,
        vec!["0".into(), "1.5".into(), "3".into(), "4.5".into()],
    )
}

fn exceptions(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "classes.cpp")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert main")?;
    mi.go(FORTH)?;
    mi.command("catch throw")?;
    mi.command("catch catch")?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let stop = mi.go(FORTH)?;
        let stack = mi.console("backtrace")?;
        seen.push((stop.function(), stack.contains("checked")));
    }
    // The last is the nearest one before the end.
    for expected in seen.iter().rev().skip(1) {
        let stop = mi.go(BACK)?;
        let stack = mi.console("backtrace")?;
        same(
            "backwards",
            &(stop.function(), stack.contains("checked")),
            expected,
        )?;
    }
    same(
        "thrown",
        seen.iter().filter(|(_, inside)| *inside).count(),
        2,
    )?;
    let stop = mi.go(BACK)?;
    same("at first", stop.function(), "main".into())?;
    mi.command("-break-delete")?;
    mi.command(&format!(
        "-break-insert classes.cpp:{}",
        place.line("catch")
    ))?;
    let seen = place::there_and_back(&mut mi, |mi, _| mi.number("caught"))?;
    same("catches", seen, vec![0, 1])
}

/// With the printers that come with the compiler, as `rust-gdb` loads them.
fn rust(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "enums.rs")?;
    let line = place.line("show");
    let script = format!(
        "break enums.rs:{line}\ncontinue\ncontinue\nprint account.name\nprint account.numbers\n\
         print account.shape\nprint account.limit\nprint *ages\nbacktrace 2\n"
    );
    let cargo = clew_tests::run::rust_home("CARGO_HOME").join("bin");
    let path = format!("{}:/usr/bin:/bin", cargo.display());
    let env = [("PATH".to_owned(), path)];
    let here = place.batch_in(&["--at", "start", "--gdb", "rust-gdb"], &script, &env)?;
    has(&here, &["\"account 1\"", "Vec(size=4)", "11, 22, 33, 44"])?;
    has(
        &here,
        &["Square(7)", "Some(500)", "HashMap(size=1)", "ada", "36"],
    )?;
    has(&here, &["enums::show", "enums::main"])?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command("-break-insert enums::area")?;
    for shape in ["Nothing", "Square", "Circle"] {
        mi.go(BACK)?;
        has(&mi.print("*shape")?, &[shape])?;
    }
    Ok(())
}

/// What a signal came with, as natively.
fn siginfo(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "freed.c")?;
    let text = place.batch_with(
        &[],
        "print $_siginfo.si_signo\nprint $_siginfo._sifields._sigfault.si_addr\n",
    )?;
    has(&text, &["$1 = 11"])
}

/// The commands that cpptools and others send.
fn editors(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-enable-pretty-printing")?;
    mi.command(&format!("-break-insert -f named.c:{}", place.line("count")))?;
    let stop = mi.go("-exec-continue")?;
    same(
        "stop",
        (stop.reason(), stop.text("bkptno")),
        ("breakpoint-hit".into(), "1".into()),
    )?;
    let threads = mi.command("-thread-info")?.results;
    require(
        threads
            .get("threads")
            .is_some_and(|t| t.members().len() > 1),
        || mi.failure("no threads"),
    )?;
    let frames = mi.command("-stack-list-frames 0 20")?.results;
    let frames = frames.get("stack").map(|stack| stack.members().len());
    require(frames >= Some(3), || mi.failure("no frames"))?;
    let variables = mi.command("-stack-list-variables --simple-values")?.results;
    let variables = variables.get("variables").cloned().ok_or("no variables")?;
    same(
        "variables",
        variables.members()[0].text("name"),
        Some("number".into()),
    )?;
    mi.command("-var-create - * counts")?;
    mi.command("-var-list-children --simple-values var1")?;
    mi.go("-exec-next")?;
    let changed = mi.command("-var-update --simple-values *")?.results;
    has(&format!("{changed:?}"), &["var1"])?;
    mi.go("-exec-next --reverse")?;
    mi.command("-data-read-memory-bytes &counts 12")?;
    mi.command("-data-list-register-names")?;
    mi.command("-data-list-register-values --skip-unavailable x 0 1 2 16")?;
    mi.command("-data-disassemble -s $pc -e \"$pc + 16\" -- 0")?;
    let status = mi.quit()?;
    require(status.success(), || format!("{status}"))
}

/// The wrapper and the `launch.json` of the documentation, and what the extension does with them.
fn vs_code(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let docs = scratch::sources().join("../docs/debug.md");
    let docs = std::fs::read_to_string(docs)?;
    let wrapper = indented(&docs, "#!/bin/sh").ok_or("no wrapper in docs/debug.md")?;
    let launch = indented(&docs, "{").ok_or("no launch.json in docs/debug.md")?;
    let launch: serde_json::Value = serde_json::from_str(&launch)?;
    let launch = &launch["configurations"][0];
    let bin = std::path::PathBuf::from(format!("{}.bin", place.job.dir.display()));
    scratch::empty(&bin);
    std::os::unix::fs::symlink(clew_tests::clew::path(), bin.join("clew"))?;
    let path = launch["miDebuggerPath"].as_str().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    std::fs::write(bin.join(name), wrapper)?;
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755))?;
    let mut job = place.job.clone();
    job.program = bin.join(name);
    job.args = vec!["--interpreter=mi".into()];
    job.env
        .push(("PATH".into(), format!("{}:/usr/bin:/bin", bin.display())));
    let recording = place.made.folder.to_string_lossy().into_owned();
    job.env.push(("CLEW_REC".into(), recording));
    let mut mi = Mi::start(&job);
    for list in ["setupCommands", "customLaunchSetupCommands"] {
        for command in launch[list].as_array().into_iter().flatten() {
            mi.command(command["text"].as_str().unwrap_or_default())?;
        }
    }
    same(
        "launch",
        launch["launchCompleteCommand"].as_str(),
        Some("None"),
    )?;
    mi.command(&format!("-break-insert -f named.c:{}", place.line("count")))?;
    let stop = mi.go("-exec-continue")?;
    same("stop", stop.reason(), "breakpoint-hit".into())?;
    mi.command("-stack-list-frames 0 1000")?;
    mi.command("-exec-next")?;
    mi.stop()?;
    let stop = mi.go("reverse-next")?;
    same("back", stop.line(), place.line("count"))?;
    require(!mi.console("clew when")?.is_empty(), || {
        mi.failure("nowhere")
    })?;
    let status = mi.quit()?;
    require(status.success(), || format!("{status}"))
}

/// A block of a page, from the line that is this.
fn indented(page: &str, first: &str) -> Option<String> {
    let mut lines = page
        .lines()
        .skip_while(|line| line.strip_prefix("    ") != Some(first));
    let mut block = String::new();
    while let Some(text) = lines.next().and_then(|line| line.strip_prefix("    ")) {
        block.push_str(text);
        block.push('\n');
    }
    (!block.is_empty()).then_some(block)
}
