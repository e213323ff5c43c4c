//! Interactive programs on a terminal, natively and under clew: job control, interrupts,
//! window size, full-screen editors and pagers, hang-up.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use clew_tests::compare::report;
use clew_tests::recorded::Recording;
use clew_tests::run::Job;
use clew_tests::scratch;
use clew_tests::terminal::Terminal;
use libtest_mimic::{Arguments, Failed, Trial};

type Session = fn(&mut Terminal) -> Result<(), String>;

/// A program, what is done at the terminal, how it ends, and what it leaves in `file`.
struct Scenario {
    name: &'static str,
    command: &'static [&'static str],
    session: Session,
    ending: Ending,
    file: Option<&'static str>,
}

enum Ending {
    Exit(i32),
    Signal(i32),
}

impl Ending {
    fn is(&self, status: ExitStatus) -> bool {
        match *self {
            Ending::Exit(code) => status.code() == Some(code),
            Ending::Signal(signal) => status.signal() == Some(signal),
        }
    }
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "bash_job_control",
        command: &["/bin/bash", "--norc", "--noprofile", "-i"],
        session: bash,
        ending: Ending::Exit(7),
        file: None,
    },
    Scenario {
        name: "python_interrupted",
        command: &["/usr/bin/python3", "-q", "-i"],
        session: python,
        ending: Ending::Exit(3),
        file: None,
    },
    Scenario {
        name: "vim_edits",
        command: &["/usr/bin/vim.tiny", "-u", "NONE", "-N", "file"],
        session: vim,
        ending: Ending::Exit(0),
        file: Some("first line\nsecond line\nwindow 30 90\n"),
    },
    Scenario {
        name: "less_pages",
        command: &["/usr/bin/less", "numbers"],
        session: less,
        ending: Ending::Exit(0),
        file: None,
    },
    Scenario {
        name: "interrupt_kills",
        command: &["/bin/cat"],
        session: |terminal| {
            terminal.send("x\n")?;
            terminal.expect("x\r\nx\r\n")?;
            terminal.send("\x03")
        },
        ending: Ending::Signal(2),
        file: None,
    },
    Scenario {
        name: "quit_kills",
        command: &["/bin/cat"],
        session: |terminal| {
            terminal.send("x\n")?;
            terminal.expect("x\r\nx\r\n")?;
            terminal.send("\x1c")
        },
        ending: Ending::Signal(3),
        file: None,
    },
    Scenario {
        name: "end_of_input",
        command: &["/bin/cat"],
        session: |terminal| {
            terminal.send("x\n")?;
            terminal.expect("x\r\nx\r\n")?;
            terminal.send("\x04")
        },
        ending: Ending::Exit(0),
        file: None,
    },
    Scenario {
        name: "hang_up_kills",
        command: &["/bin/cat"],
        session: |terminal| {
            terminal.send("x\n")?;
            terminal.expect("x\r\nx\r\n")?;
            terminal.hang_up();
            Ok(())
        },
        ending: Ending::Signal(1),
        file: None,
    },
];

fn bash(terminal: &mut Terminal) -> Result<(), String> {
    terminal.expect("$ ")?;
    terminal.send("sed -u s/^/got:/\n")?;
    terminal.insist("hello\n", "got:hello\r\n")?;
    terminal.send("\x1a")?;
    terminal.expect("Stopped")?;
    terminal.expect("$ ")?;
    terminal.send("jobs\n")?;
    terminal.expect("Stopped")?;
    terminal.send("fg\n")?;
    terminal.insist("again\n", "got:again\r\n")?;
    terminal.send("\x03")?;
    terminal.expect("$ ")?;
    terminal.send("echo status=$?\n")?;
    terminal.expect("status=130\r\n")?;
    terminal.send("stty size\n")?;
    terminal.expect("24 80\r\n")?;
    terminal.resize(40, 100);
    terminal.send("stty size\n")?;
    terminal.expect("40 100\r\n")?;
    terminal.send("{ echo started; cat; } | tr a-z A-Z\n")?;
    terminal.expect("STARTED\r\n")?;
    terminal.send("pipe\n\x04")?;
    terminal.expect("PIPE\r\n")?;
    terminal.send("sleep 1000 & kill %1; wait %1; echo waited=$?\n")?;
    terminal.expect("waited=143\r\n")?;
    terminal.send("exit 7\n")
}

fn python(terminal: &mut Terminal) -> Result<(), String> {
    terminal.expect(">>> ")?;
    terminal.send("print(6 * 7)\n")?;
    terminal.expect("\n42")?;
    terminal.send("exec(\"print('go' + 'ing')\\nwhile True: pass\")\n")?;
    terminal.expect("going")?;
    terminal.send("\x03")?;
    terminal.expect("KeyboardInterrupt")?;
    terminal.expect(">>> ")?;
    terminal.send("import os, time; print('slee' + 'ping'); time.sleep(1000)\n")?;
    terminal.expect("sleeping")?;
    terminal.insist("\x03", "KeyboardInterrupt")?;
    // Before its prompt, readline reads the size and sets it again: a change in between is lost.
    terminal.expect(">>> ")?;
    terminal.resize(31, 91);
    terminal.send("print(os.get_terminal_size())\n")?;
    terminal.expect("columns=91, lines=31")?;
    terminal.send("exit(3)\n")
}

fn vim(terminal: &mut Terminal) -> Result<(), String> {
    terminal.expect("file")?;
    terminal.send("ifirst line\rsecond line\x1b")?;
    terminal.expect("second")?;
    terminal.resize(30, 90);
    // The redraw at the new size fills the screen down to its last line.
    terminal.expect("\x1b[30;1H")?;
    terminal.send(":set lines? columns?\r")?;
    terminal.expect("90")?;
    terminal.send("\r")?;
    terminal.send("owindow 30 90\x1b:wq\r")
}

fn less(terminal: &mut Terminal) -> Result<(), String> {
    terminal.expect("23\r\n")?;
    terminal.send("G")?;
    terminal.expect("1000\r\n")?;
    terminal.send("?^500\n")?;
    terminal.expect("500")?;
    terminal.resize(10, 80);
    terminal.send("g")?;
    terminal.expect("1\r\n")?;
    terminal.send("q")
}

fn main() {
    let mut trials = Vec::new();
    for scenario in SCENARIOS {
        trials.push(Trial::test(scenario.name, || {
            let native = job(scenario, "terminal");
            play(scenario, &native).map_err(|error| format!("natively: {error}"))?;
            let clew = native.under_clew(&[]);
            play(scenario, &clew)
                .map_err(|error| Failed::from(format!("{error}\n--- {}", clew.shell_line())))
        }));
        let name = format!("recorded/{}", scenario.name);
        trials.push(Trial::test(name, || recorded(scenario)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Records a session, and replays it without anybody at the terminal.
fn recorded(scenario: &Scenario) -> Result<(), Failed> {
    let made = Recording::of(&job(scenario, "recorded"), &[]);
    play(scenario, &made.job)
        .map_err(|error| Failed::from(format!("{error}\n--- {}", made.job.shell_line())))?;
    let replay = made.command("replay", &["--verify"]);
    let outcome = replay.run();
    let ended = outcome
        .status
        .is_some_and(|status| scenario.ending.is(status));
    if !ended || outcome.stdout.is_empty() {
        let jobs = [("record", &made.job), ("replay", &replay)];
        return Err(report("the replay ended otherwise", &outcome, &jobs));
    }
    Ok(())
}

fn job(scenario: &Scenario, kind: &str) -> Job {
    let dir = scratch::fresh(&format!("{kind}.{}", scenario.name));
    let numbers: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    fs::write(dir.join("numbers"), numbers).expect("a writable scratch folder");
    let mut job = Job::new(scenario.command[0], dir).args(scenario.command[1..].iter().copied());
    job.env.push(("PS1".to_owned(), "$ ".to_owned()));
    job
}

fn play(scenario: &Scenario, job: &Job) -> Result<(), String> {
    let _ = fs::remove_file(job.dir.join("file"));
    let mut terminal = Terminal::start(job);
    (scenario.session)(&mut terminal)?;
    let status = terminal.finish()?;
    if !scenario.ending.is(status) {
        return Err(format!("ended with {status}"));
    }
    if let Some(expected) = scenario.file {
        let found = fs::read_to_string(job.dir.join("file")).unwrap_or_default();
        if found != expected {
            return Err(format!("left {found:?} in file"));
        }
    }
    Ok(())
}
