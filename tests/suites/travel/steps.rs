//! Steps by instruction and by line, into, over and out of functions, in both directions.

use clew_tests::mi::{Mi, Stop};
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, is_end, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "steps",
        &[
            ("stepi", stepi),
            ("stepi through system calls", through_calls),
            ("stepi through a handler", through_a_handler),
            ("stepi at the end", at_the_end),
            ("nexti", nexti),
            ("step", step),
            ("step in optimised code", optimised),
            ("next", next),
            ("step over a breakpoint", over_a_breakpoint),
            ("finish", finish),
            ("reverse-finish", reverse_finish),
            ("counts", counts),
            ("back over lazy binding", lazy),
        ],
    )
}

/// What a state is told by.
fn state(mi: &mut Mi, stop: &Stop) -> Result<(String, String), String> {
    Ok((
        stop.pc(),
        mi.print("$sp + $rax * 3 + $rcx * 5 + $rdi * 7 + $eflags")?,
    ))
}

/// So many steps forwards, then as many backwards: the same states.
fn there_and_back(
    mi: &mut Mi,
    forth: &str,
    back: &str,
    count: usize,
) -> Result<Vec<String>, Failed> {
    let frame = mi.command("-stack-info-frame")?;
    let first = Stop(frame.results);
    let mut seen = vec![state(mi, &first)?];
    for _ in 0..count {
        let stop = mi.go(forth)?;
        require(!is_end(&stop), || mi.failure("the end"))?;
        seen.push(state(mi, &stop)?);
    }
    for number in (0..count).rev() {
        let stop = mi.go(back)?;
        let found = state(mi, &stop)?;
        if found != seen[number] {
            let what = format!(
                "step {number}: forwards {:?}, backwards {found:?}",
                seen[number]
            );
            return Err(mi.failure(&what).into());
        }
    }
    // And again, as far as it went.
    for (number, expected) in seen.iter().enumerate().skip(1).take(10) {
        let stop = mi.go(forth)?;
        let found = state(mi, &stop)?;
        same(&format!("step {number}, again"), &found, expected)?;
    }
    Ok(seen.into_iter().map(|(pc, _)| pc).collect())
}

const STEPI: &str = "-exec-step-instruction";
const STEPI_BACK: &str = "-exec-step-instruction --reverse";

fn at(place: &Place, what: &str) -> Result<Mi, Failed> {
    let mut mi = place.mi()?;
    mi.command(&format!("-break-insert -t {what}"))?;
    mi.go(FORTH)?;
    Ok(mi)
}

fn stepi(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "loop")?;
    let seen = there_and_back(&mut mi, STEPI, STEPI_BACK, 150)?;
    let mut places = seen.clone();
    places.sort();
    places.dedup();
    require(places.len() > 20, || format!("it went nowhere: {seen:?}"))
}

/// From one call of the kernel over the next ones: rcx and r11 change with them.
fn through_calls(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "getpid")?;
    there_and_back(&mut mi, STEPI, STEPI_BACK, 80).map(drop)
}

/// A signal's handler begins and ends in the midst of it.
fn through_a_handler(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "handlers.c")?;
    let mut mi = place.mi()?;
    for signal in ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGSEGV"] {
        mi.command(&format!("handle {signal} nostop noprint pass"))?;
    }
    mi.command(&format!(
        "-break-insert -t handlers.c:{}",
        place.line("fault")
    ))?;
    mi.go(FORTH)?;
    mi.command("-break-insert -t handler")?;
    mi.go(FORTH)?;
    same("signal", mi.number("sig")?, 11)?;
    // Back to before the fault, and again into the handler.
    let mut states = Vec::new();
    for _ in 0..60 {
        let stop = mi.go(STEPI_BACK)?;
        states.push((stop.function(), state(&mut mi, &stop)?));
    }
    let functions: Vec<&str> = states.iter().map(|(name, _)| name.as_str()).collect();
    require(functions.contains(&"main"), || {
        mi.failure(&format!("never in main: {functions:?}"))
    })?;
    states.pop();
    while let Some((_, expected)) = states.pop() {
        let stop = mi.go(STEPI)?;
        same("again", state(&mut mi, &stop)?, expected)?;
    }
    Ok(())
}

fn at_the_end(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    let last = mi.print("$pc")?;
    let stop = mi.go(STEPI)?;
    require(is_end(&stop), || mi.failure("a step behind the end"))?;
    same("the end", mi.print("$pc")?, last.clone())?;
    let mut seen = vec![last];
    for _ in 0..20 {
        mi.go(STEPI_BACK)?;
        seen.push(mi.print("$pc")?);
    }
    seen.pop();
    while let Some(expected) = seen.pop() {
        mi.go(STEPI)?;
        same("again", mi.print("$pc")?, expected)?;
    }
    // The beginning is an end as well.
    mi.go(BACK)?;
    let first = mi.print("$pc")?;
    let stop = mi.go(STEPI_BACK)?;
    require(is_end(&stop), || mi.failure("a step before the beginning"))?;
    same("the beginning", mi.print("$pc")?, first.clone())?;
    mi.go(STEPI)?;
    mi.go(STEPI_BACK)?;
    same("the beginning", mi.print("$pc")?, first)
}

fn nexti(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "main")?;
    let forth = "-exec-next-instruction";
    // Over the calls of loop, factorial and more.
    let seen = there_and_back(&mut mi, forth, "-exec-next-instruction --reverse", 10)?;
    let distance = |pc: &String| u64::from_str_radix(pc.trim_start_matches("0x"), 16);
    let (first, last) = (distance(&seen[0])?, distance(&seen[10])?);
    require(last > first && last - first < 100, || format!("{seen:?}"))
}

/// Line by line into and out of functions: backwards the same lines, in the other order. Where a return
/// leads into the midst of a line, forwards stops there and backwards doesn't; nor does gdb at a line that
/// is compiled to two pieces one after the other, as the head of a loop.
fn step(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "main")?;
    let (first, last) = (place.line("first"), place.line("setjmp"));
    let mut forth = vec![("main".to_owned(), first)];
    forth.extend(lines_until(&mut mi, "-exec-step", last)?);
    require(forth.len() > 40, || format!("{forth:?}"))?;
    let mut back = vec![("main".to_owned(), last)];
    back.extend(lines_until(&mut mi, "-exec-step --reverse", first)?);
    back.reverse();
    // A part of it, in the same order.
    let mut rest = forth.iter();
    let part = back.iter().all(|line| rest.any(|other| other == line));
    require(part && forth.len() - back.len() < 3, || {
        format!("forwards {forth:?}\nbackwards {back:?}")
    })
}

/// Steps until a line of main, and tells where it stood at the beginning of a line.
fn lines_until(mi: &mut Mi, command: &str, line: u32) -> Result<Vec<(String, u32)>, Failed> {
    const IS_START: &str =
        "python print(gdb.selected_frame().find_sal().pc == gdb.selected_frame().pc())";
    let mut seen = Vec::new();
    for _ in 0..200 {
        let stop = mi.go(command)?;
        if mi.console(IS_START)?.trim() == "True" {
            seen.push((stop.function(), stop.line()));
            if stop.function() == "main" && stop.line() == line {
                return Ok(seen);
            }
        }
    }
    Err(mi.failure("it doesn't get there").into())
}

/// Lines of inlined functions, forwards; then the same lines backwards, as a set.
fn optimised(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "inlined.c")?;
    let mut mi = at(&place, "outer")?;
    let mut functions = Vec::new();
    for _ in 0..30 {
        let stop = mi.go("-exec-step")?;
        functions.push(stop.function());
    }
    let inside = |functions: &[String]| {
        ["innermost", "outer"]
            .iter()
            .all(|&name| functions.iter().any(|f| f == name))
    };
    require(inside(&functions), || format!("{functions:?}"))?;
    functions.clear();
    for _ in 0..20 {
        let stop = mi.go("-exec-step --reverse")?;
        functions.push(stop.function());
    }
    require(functions.iter().any(|name| name == "innermost"), || {
        format!("{functions:?}")
    })
}

/// Line by line through main, over everything it calls, system calls and longjmp included.
fn next(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "main")?;
    // gdb can't go backwards over a longjmp by lines.
    lines_of_main(&mut mi, place.line("first"), place.line("setjmp"))?;
    mi.command(&format!("-break-insert -t steps.c:{}", place.line("text")))?;
    mi.go(FORTH)?;
    let lines = lines_of_main(&mut mi, place.line("text"), place.line("last"))?;
    require(lines.len() > 6, || format!("{lines:?}"))
}

/// From one line to the other and back; ends at the second.
fn lines_of_main(mi: &mut Mi, first: u32, last: u32) -> Result<Vec<u32>, Failed> {
    let mut way = |command: &str, from: u32, to: u32| -> Result<Vec<u32>, Failed> {
        let mut lines = vec![from];
        while lines.last() != Some(&to) {
            let stop = mi.go(command)?;
            require(stop.function() == "main", || mi.failure("elsewhere"))?;
            lines.push(stop.line());
        }
        Ok(lines)
    };
    let forth = way("-exec-next", first, last)?;
    let mut back = way("-exec-next --reverse", last, first)?;
    back.reverse();
    same("lines", &forth, &back)?;
    way("-exec-next", first, last)
}

/// A breakpoint in what is stepped over counts, both ways.
fn over_a_breakpoint(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "main")?;
    mi.command("-break-insert -c \"b == 9\" add")?;
    let stop = mi.go("-exec-next")?;
    same(
        "forwards",
        (stop.reason(), mi.number("b")?),
        ("breakpoint-hit".into(), 9),
    )?;
    mi.go("-exec-finish")?;
    mi.command("-break-insert -t factorial")?;
    mi.go(FORTH)?;
    mi.go("-exec-finish")?;
    let stop = mi.go("-exec-next --reverse")?;
    let stop = match stop.reason().as_str() {
        "breakpoint-hit" => stop,
        _ => mi.go("-exec-next --reverse")?,
    };
    same(
        "backwards",
        (stop.reason(), mi.number("b")?),
        ("breakpoint-hit".into(), 9),
    )
}

fn finish(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "add")?;
    let stop = mi.go("-exec-finish")?;
    same(
        "where",
        (stop.function(), stop.text("return-value")),
        ("loop".into(), "0".into()),
    )?;
    mi.command("-break-insert -t factorial")?;
    mi.go(FORTH)?;
    let stop = mi.go("-exec-finish")?;
    same("value", stop.text("return-value"), "120".into())?;
    let text = place.batch("break add if b == 16\ncontinue\nfinish\nup\n")?;
    has(&text, &["Value returned is $1 = 30"])
}

fn reverse_finish(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t -c \"n == 2\" factorial")?;
    mi.go(FORTH)?;
    // Out at the beginning: the call itself is the next instruction.
    for depth in [3, 4, 5] {
        let stop = mi.go("-exec-finish --reverse")?;
        same(
            "caller",
            (stop.function(), mi.number("n")?),
            ("factorial".into(), depth),
        )?;
        has(&mi.console("x/i $pc")?, &["call", "factorial"])?;
    }
    let stop = mi.go("-exec-finish --reverse")?;
    same("caller", stop.function(), "main".into())?;
    has(&mi.console("x/i $pc")?, &["call", "factorial"])?;
    // From the midst of a function too.
    mi.command(&format!("-break-insert -t {}", place.line("loop-end")))?;
    mi.go(BACK)?;
    let stop = mi.go("-exec-finish --reverse")?;
    same(
        "caller",
        (stop.function(), stop.line()),
        ("main".into(), place.line("first")),
    )
}

/// `stepi 100` is a hundred times `stepi`, and `reverse-stepi 100` goes back.
fn counts(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = at(&place, "loop")?;
    let first = (mi.print("$pc")?, mi.print("$sp")?);
    let mut states = Vec::new();
    for _ in 0..60 {
        mi.go(STEPI)?;
        states.push(mi.print("$pc")?);
    }
    mi.go("reverse-stepi 60")?;
    same("back", (mi.print("$pc")?, mi.print("$sp")?), first)?;
    mi.go("stepi 37")?;
    same("forth", mi.print("$pc")?, states[36].clone())?;
    mi.go("reverse-stepi 20")?;
    same("back", mi.print("$pc")?, states[16].clone())
}

/// Backwards over calls that the loader binds: through the functions, never through the loader.
fn lazy(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "lazy.c")?;
    for command in ["-exec-step --reverse", "-exec-next --reverse"] {
        let mut mi = place.mi()?;
        mi.command(&format!("-break-insert -t lazy.c:{}", place.line("last")))?;
        mi.go(FORTH)?;
        let first = place.line("first");
        let mut seen = Vec::new();
        loop {
            let stop = mi.go(command)?;
            let (function, line) = (stop.function(), stop.line());
            if function == "main" && line == first {
                break;
            }
            let object = mi.console("info symbol $pc")?;
            let strange = function.starts_with("_dl") || object.contains("ld-linux");
            require(!strange && !is_end(&stop) && seen.len() < 1000, || {
                mi.failure(&format!("{command}: in {function} after {seen:?}"))
            })?;
            seen.push(function);
        }
    }
    Ok(())
}
