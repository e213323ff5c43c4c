//! How sessions end: as told, interrupted, killed. Nothing of them is left.

use std::time::Duration;

use clew_tests::family::{Family, Process};
use clew_tests::mi::Mi;
use clew_tests::terminal::Terminal;
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::place::{self, BACK, FORTH, Place, has, is_end, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "ends",
        &[
            ("quit", quit),
            ("kill and detach", kill_and_detach),
            ("interrupted in a long search", interrupted),
            ("interrupted on a terminal", on_a_terminal),
            ("interrupted while it attaches", attaching),
            ("the terminal is gone", terminal_gone),
            ("clew is killed", clew_killed),
            ("clew is killed in a search", killed_in_a_search),
            ("clew is terminated", clew_terminated),
            ("gdb is killed", gdb_killed),
            ("a worker is killed", worker_killed),
            ("the input is closed", input_closed),
            ("watch is interrupted", watch_interrupted),
            ("watch is killed", watch_killed),
            ("gdb isn't there", no_gdb),
        ],
    )
}

/// After this whatever is still there stays.
const GONE: Duration = Duration::from_secs(20);

fn nobody_left(family: Family) -> Result<(), Failed> {
    let left = family.outlived(GONE);
    for process in &left {
        let _ = kill_process(process.pid, Signal::KILL);
    }
    require(left.is_empty(), || format!("still there: {left:?}"))
}

/// A session that has gone forwards and backwards, so that all its processes are there.
fn busy(place: &Place) -> Result<Mi, Failed> {
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    mi.go(FORTH)?;
    mi.go(FORTH)?;
    mi.go(BACK)?;
    same("value", mi.number("factorial(3)")?, 6)?;
    Ok(mi)
}

/// Something that takes very long backwards.
fn searching(test: &str) -> Result<(Place, Mi), Failed> {
    let place = Place::guest_with(test, "cond.c", None, &["100000000"])?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command("-break-insert -c \"n == -1\" called")?;
    mi.start_going(BACK)?;
    Ok((place, mi))
}

/// Who is who: gdb, the process that serves it, and its workers.
struct Roles {
    gdb: Pid,
    server: Pid,
    workers: Vec<Pid>,
}

fn roles(family: &Family) -> Result<Roles, Failed> {
    let raw = |process: &Process| process.pid.as_raw_nonzero().get();
    let all: Vec<&Process> = family.members().collect();
    let gdb = all.iter().find(|process| process.name == "gdb");
    let gdb = gdb.ok_or_else(|| format!("no gdb: {all:?}"))?;
    let others: Vec<&&Process> = all.iter().filter(|process| process.name != "gdb").collect();
    let children = |of: &Process| -> Vec<Pid> {
        let own = others.iter().filter(|process| process.parent == raw(of));
        own.map(|process| process.pid).collect()
    };
    let server = others.iter().max_by_key(|process| children(process).len());
    let server = server.ok_or_else(|| format!("no server: {all:?}"))?;
    let workers = children(server);
    require(!workers.is_empty(), || format!("no workers: {all:?}"))?;
    Ok(Roles {
        gdb: gdb.pid,
        server: server.pid,
        workers,
    })
}

fn quit(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mi = busy(&place)?;
    let family = Family::of(mi.pid());
    roles(&family)?;
    let status = mi.quit()?;
    require(status.success(), || format!("{status}"))?;
    nobody_left(family)?;
    // gdb's own status is the session's.
    let outcome = place.debug(&[], &["-batch", "-ex", "quit 7"]).run();
    same("status", place::code(outcome.status), Some(7))
}

fn kill_and_detach(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    for command in ["kill", "detach", "disconnect"] {
        let mut mi = busy(&place)?;
        let family = Family::of(mi.pid());
        mi.command(command)?;
        let status = mi.quit()?;
        require(status.success(), || format!("{command}: {status}"))?;
        nobody_left(family)?;
    }
    Ok(())
}

fn interrupted(test: &str) -> Result<(), Failed> {
    let (_place, mut mi) = searching(test)?;
    let stop = mi.interrupt()?;
    same("stop", stop.text("signal-name"), "SIGINT".into())?;
    // Nothing is broken: it can be told to go on, and elsewhere.
    mi.command("-break-delete")?;
    mi.command("-break-insert -t main")?;
    let stop = mi.go(BACK)?;
    same("then", stop.function(), "main".into())?;
    mi.command("-break-insert -t -c \"n == 3\" called")?;
    let stop = mi.go(FORTH)?;
    same("then", stop.function(), "called".into())?;
    // Forwards likewise.
    mi.command("-break-insert -c \"n == -1\" called")?;
    mi.start_going(FORTH)?;
    let stop = mi.interrupt()?;
    require(
        stop.text("signal-name") == "SIGINT" || is_end(&stop),
        || mi.failure("something else"),
    )?;
    let family = Family::of(mi.pid());
    mi.quit()?;
    nobody_left(family)
}

fn on_a_terminal(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "cond.c", None, &["100000000"])?;
    let job = place.debug(
        &["--at", "end"],
        &["-ex", "set confirm off", "-ex", "set pagination off"],
    );
    let mut terminal = Terminal::start(&job);
    terminal.expect("(gdb) ")?;
    terminal.send("break called if n == -1\n")?;
    terminal.expect("(gdb) ")?;
    terminal.send("echo now\\n\n")?;
    terminal.expect("now\r\n")?;
    terminal.send("reverse-continue\n")?;
    // gdb takes the terminal's Ctrl-C from when it says this on.
    terminal.expect("Continuing.")?;
    terminal.insist("\x03", "SIGINT")?;
    terminal.expect("(gdb) ")?;
    terminal.send("print total > 0\n")?;
    terminal.expect("= 1")?;
    terminal.send("quit\n")?;
    let status = terminal.finish()?;
    require(status.success(), || format!("{status}"))
}

/// The way to the end is long: how long is shown, and Ctrl-C leaves gdb connected.
fn attaching(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "cond.c", None, &["1500000000"])?;
    let job = place.debug(
        &["--at", "end"],
        &["-ex", "set confirm off", "-ex", "set style enabled off"],
    );
    let mut terminal = Terminal::start(&job);
    terminal.expect("clew: replaying: ")?;
    terminal.expect(" left")?;
    terminal.insist("\x03", "clew: interrupted")?;
    terminal.expect("(gdb) ")?;
    terminal.send("clew when\n")?;
    terminal.expect("  thread ")?;
    terminal.send("break called if n == 5\n")?;
    terminal.expect("(gdb) ")?;
    terminal.send("continue\n")?;
    terminal.expect("Breakpoint 1, called")?;
    terminal.expect("(gdb) ")?;
    terminal.send("print n\n")?;
    terminal.expect("= 5")?;
    terminal.send("quit\n")?;
    let status = terminal.finish()?;
    require(status.success(), || format!("{status}"))
}

fn terminal_gone(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let job = place.debug(&["--at", "end"], &["-ex", "set style enabled off"]);
    let mut terminal = Terminal::start(&job);
    terminal.expect("(gdb) ")?;
    terminal.send("break add\n")?;
    terminal.expect("(gdb) ")?;
    terminal.send("reverse-continue\n")?;
    terminal.expect("Breakpoint 1, add")?;
    terminal.expect("(gdb) ")?;
    let family = Family::of(terminal.pid());
    roles(&family)?;
    terminal.hang_up();
    nobody_left(family)
}

fn clew_killed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = busy(&place)?;
    let family = Family::of(mi.pid());
    let server = roles(&family)?.server;
    mi.kill(server)?;
    // gdb notices that nobody answers any more; it may live on until it is told to go.
    let _ = mi.command("-exec-continue");
    drop(mi.quit());
    nobody_left(family)
}

fn killed_in_a_search(test: &str) -> Result<(), Failed> {
    let (_place, mut mi) = searching(test)?;
    let family = Family::of(mi.pid());
    let server = roles(&family)?.server;
    mi.kill(server)?;
    drop(mi.quit());
    nobody_left(family)
}

fn clew_terminated(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mi = busy(&place)?;
    let family = Family::of(mi.pid());
    let server = roles(&family)?.server;
    kill_process(server, Signal::TERM)?;
    drop(mi.quit());
    nobody_left(family)
}

fn gdb_killed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = busy(&place)?;
    let family = Family::of(mi.pid());
    let gdb = roles(&family)?.gdb;
    mi.kill(gdb)?;
    nobody_left(family)?;
    // In the midst of a search too.
    let (_place, mut mi) = searching(&format!("{test}.search"))?;
    let family = Family::of(mi.pid());
    let gdb = roles(&family)?.gdb;
    mi.kill(gdb)?;
    nobody_left(family)
}

/// The session says so or goes on without it, but it doesn't hang.
fn worker_killed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let count = roles(&Family::of(busy(&place)?.pid()))?.workers.len();
    for number in 0..count.min(4) {
        let mut mi = busy(&place)?;
        let family = Family::of(mi.pid());
        let workers = roles(&family)?.workers;
        let Some(&worker) = workers.get(number) else {
            continue;
        };
        mi.kill(worker)?;
        // Errors are told; what matters is that there is an answer.
        mi.said("-exec-continue")?;
        mi.said("-exec-continue --reverse")?;
        let _ = mi.print("calls");
        drop(mi.quit());
        nobody_left(family)?;
    }
    Ok(())
}

fn input_closed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = busy(&place)?;
    let family = Family::of(mi.pid());
    mi.close_input();
    nobody_left(family)
}

/// A search that takes long: the function takes its time.
fn long_watch(test: &str) -> Result<(Place, Mi), Failed> {
    let place = Place::guest_with(test, "graph.c", None, &["30"])?;
    // Not MI, but a process with its output in pipes all the same.
    let mi = Mi::start(&place.watch_job("has_cycle() == 1", &[]));
    Ok((place, mi))
}

fn watch_ended_by(test: &str, signal: Signal) -> Result<(), Failed> {
    let (_place, mut mi) = long_watch(test)?;
    // Workers are there when it has begun.
    let family = loop {
        let family = Family::of(mi.pid());
        if family.members().count() > 1 {
            break family;
        }
        require(family.members().count() > 0, || "it ended by itself".into())?;
    };
    kill_process(mi.pid(), signal)?;
    let status = mi.ended()?;
    require(!status.success(), || format!("{status}"))?;
    nobody_left(family)
}

fn watch_interrupted(test: &str) -> Result<(), Failed> {
    watch_ended_by(test, Signal::INT)
}

fn watch_killed(test: &str) -> Result<(), Failed> {
    watch_ended_by(test, Signal::KILL)
}

fn no_gdb(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut job = place.debug(&[], &["-batch"]);
    job.env.push(("PATH".into(), "/nonexistent".into()));
    let outcome = job.run();
    let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
    require(
        !matches!(place::code(outcome.status), Some(0) | None),
        || outcome.printed(),
    )?;
    has(&text, &["gdb"])
}
