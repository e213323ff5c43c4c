//! Catchpoints: system calls, signals, forks, execs; they are met again backwards.

use clew_tests::mi::Stop;
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, all_stops, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "events",
        &[
            ("catch syscall by name", by_name),
            ("catch every syscall", every_syscall),
            ("catch calls that don't return", without_return),
            ("catch signal", catch_signal),
            ("signals stop", signals_stop),
            ("signals that are handled quietly", quiet),
            ("catch fork", forks),
            ("catch exec", exec),
            ("library events", library_events),
        ],
    )
}

fn call(stop: &Stop) -> (String, String) {
    (
        stop.text("syscall-name"),
        stop.reason().replace("syscall-", ""),
    )
}

fn by_name(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("catch syscall getppid write")?;
    let forth = all_stops(&mut mi, FORTH, |mi, stop| {
        Ok((call(stop), stop.pc(), mi.print("$sp")?))
    })?;
    let seen: Vec<_> = forth
        .iter()
        .map(|(call, ..)| format!("{} {}", call.0, call.1))
        .collect();
    let expected = ["getppid", "write", "write"];
    let expected: Vec<String> = expected
        .iter()
        .flat_map(|name| [format!("{name} entry"), format!("{name} return")])
        .collect();
    same("forwards", seen, expected)?;
    // The same places in the other order.
    let mut back = all_stops(&mut mi, BACK, |mi, stop| {
        Ok((call(stop), stop.pc(), mi.print("$sp")?))
    })?;
    back.reverse();
    let names = |stops: &[((String, String), String, String)]| -> Vec<String> {
        stops
            .iter()
            .map(|(call, _, sp)| format!("{} {sp}", call.0))
            .collect()
    };
    same("backwards", names(&back), names(&forth))
}

fn every_syscall(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "inlined.c")?;
    let mut mi = place.mi()?;
    mi.command("catch syscall")?;
    let names = |_: &mut clew_tests::mi::Mi, stop: &Stop| Ok(stop.text("syscall-name"));
    let forth = all_stops(&mut mi, FORTH, names)?;
    for name in ["mmap", "openat", "close", "write"] {
        require(forth.iter().any(|seen| seen == name), || {
            format!("no {name}: {forth:?}")
        })?;
    }
    let mut back = all_stops(&mut mi, BACK, names)?;
    back.reverse();
    // It stands where the program ends already.
    let (last, before) = forth.split_last().ok_or("no calls")?;
    same("last", last.as_str(), "exit_group")?;
    same("calls", before, &back)
}

/// Calls that the log has other events for: forks, what makes way for another program, what ends it.
fn without_return(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let look = |_: &mut clew_tests::mi::Mi, stop: &Stop| {
        let (name, what) = call(stop);
        Ok((name, what, stop.function()))
    };
    let names = |stops: &[(String, String, String)]| -> Vec<String> {
        let stops = stops.iter().filter(|stop| stop.1 != "fork");
        stops.map(|stop| format!("{} {}", stop.0, stop.1)).collect()
    };
    let mut mi = place.mi()?;
    mi.command("catch syscall clone vfork exit_group")?;
    let forth = all_stops(&mut mi, FORTH, look)?;
    let mut seen = names(&forth);
    // The child of the vfork, which lives in its parent's memory, ends too.
    seen.retain(|what| !what.starts_with("exit_group return"));
    let expected = [
        "clone entry",
        "clone return",
        "clone entry",
        "clone return",
        "vfork entry",
        "exit_group entry",
        "vfork return",
        "exit_group entry",
    ];
    same("forwards", seen, expected.map(String::from).to_vec())?;
    let mut back = names(&all_stops(&mut mi, BACK, look)?);
    back.reverse();
    // It stands at the last one already.
    let before: Vec<String> = names(&forth)[..back.len()].to_vec();
    same("backwards", back, before)?;

    let pids = super::files::pids(&place)?;
    let pid = pids.get(2).ok_or("no second child")?.to_string();
    let mut mi = place.mi_with(&["--pid", &pid, "--exec", "1", "--at", "start"])?;
    mi.command("catch syscall execve")?;
    let stop = mi.go(FORTH)?;
    same("exec", call(&stop), ("execve".into(), "entry".into()))?;
    same("there", mi.number("value")?, 77)?;
    require(place::is_end(&mi.go(FORTH)?), || mi.failure("not the end"))
}

/// Signal and handler's work so far, at each stop for a signal.
fn signals(mi: &mut clew_tests::mi::Mi, command: &str) -> Result<Vec<(String, i64)>, Failed> {
    all_stops(mi, command, |mi, stop| {
        let name = match stop.text("signal-name") {
            // A catchpoint's stop has another shape.
            name if name.is_empty() => mi.print("$_siginfo.si_signo").unwrap_or_default(),
            name => name,
        };
        Ok((name, mi.number("order")?))
    })
}

fn catch_signal(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "handlers.c")?;
    let mut mi = place.mi()?;
    mi.command("catch signal SIGUSR2 SIGSEGV")?;
    mi.command("handle SIGUSR1 nostop noprint")?;
    mi.command("handle SIGALRM nostop noprint")?;
    let orders =
        |stops: Vec<(String, i64)>| -> Vec<i64> { stops.into_iter().map(|s| s.1).collect() };
    let forth = orders(signals(&mut mi, FORTH)?);
    // USR1 is 10, USR2 12, ALRM 14, SEGV 11: the last digits of those that came before.
    same("forwards", &forth, &vec![0, 24])?;
    let mut back = orders(signals(&mut mi, BACK)?);
    back.reverse();
    same("backwards", back, forth)
}

fn signals_stop(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "handlers.c")?;
    let mut mi = place.mi()?;
    mi.command("handle SIGALRM stop print")?;
    let forth = signals(&mut mi, FORTH)?;
    let names: Vec<&str> = forth.iter().map(|(name, _)| name.as_str()).collect();
    same(
        "forwards",
        names,
        vec!["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGSEGV"],
    )?;
    let mut back = signals(&mut mi, BACK)?;
    back.reverse();
    same("backwards", back, forth)
}

fn quiet(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "handlers.c")?;
    let mut mi = place.mi()?;
    for signal in ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGSEGV"] {
        mi.command(&format!("handle {signal} nostop noprint pass"))?;
    }
    mi.command("-break-insert handler")?;
    let seen = place::there_and_back(&mut mi, |mi, stop| {
        let stack = mi.console("backtrace")?;
        Ok((
            mi.number("sig")?,
            stop.function(),
            stack.contains("<signal handler called>"),
        ))
    })?;
    let expected = [10, 12, 14, 11].map(|sig| (sig, "handler".to_owned(), true));
    same("handlers", seen, expected.to_vec())
}

fn forks(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let mut mi = place.mi()?;
    mi.command("catch fork")?;
    let kinds = |mi: &mut clew_tests::mi::Mi, stop: &Stop| {
        Ok((
            stop.reason(),
            stop.text("newpid").is_empty(),
            mi.number("value")?,
        ))
    };
    let forth = all_stops(&mut mi, FORTH, kinds)?;
    let reasons: Vec<&str> = forth.iter().map(|(reason, ..)| reason.as_str()).collect();
    same("forks", reasons, vec!["fork", "fork"])?;
    let mut back = all_stops(&mut mi, BACK, kinds)?;
    back.reverse();
    same("backwards", back, forth)
}

/// The child that executes another program is a stream of its own; its exec is its end.
fn exec(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let pids = super::files::pids(&place)?;
    // The first is the parent, the second the first child.
    let pid = pids
        .get(2)
        .ok_or_else(|| format!("processes: {pids:?}"))?
        .to_string();
    let mut mi = place.mi_with(&["--pid", &pid, "--exec", "1", "--at", "start"])?;
    mi.command("catch exec")?;
    let stop = mi.go(FORTH)?;
    let met = stop.reason() == "exec" || place::is_end(&stop);
    require(met, || mi.failure("not at the exec"))?;
    same("there", mi.number("value")?, 77)?;
    has(&mi.console("clew when")?, &["exec"])?;
    let stop = mi.go(BACK)?;
    require(place::is_end(&stop), || mi.failure("elsewhere"))?;
    same("at first", mi.number("value")?, 1)
}

/// Libraries come and go, in both directions.
fn library_events(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "images/dlopen.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    mi.command("catch load libshared")?;
    mi.go(FORTH)?;
    has(&mi.console("info sharedlibrary")?, &["libshared.so"])?;
    mi.command("-break-delete")?;
    mi.command("-break-insert -t main")?;
    mi.go(BACK)?;
    let known = mi.console("info sharedlibrary")?;
    require(!known.contains("libshared.so"), || {
        format!("still known: {known}")
    })?;
    mi.command("-break-insert -t -f shared_add")?;
    let stop = mi.go(FORTH)?;
    same("in the library", stop.function(), "shared_add".into())
}
