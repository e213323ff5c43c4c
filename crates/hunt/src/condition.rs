//! What counts as failing. In: a user's words, and how a run ended. Out: whether, and why.

use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;

use regex_lite::Regex;

use crate::run::{Ended, Outcome};

#[derive(Clone, Debug)]
pub enum Condition {
    /// An exit status other than 0.
    Exit,
    /// Exactly this exit status.
    Status(i32),
    Signal,
    Timeout,
    /// All threads wait for each other.
    Deadlock,
    /// Two accesses that nothing orders, however the run ended.
    Race,
    /// Standard output or error has this in it.
    Output(Regex),
    /// This command, given the output, ends with status 0.
    Command(String),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        Ok(match text {
            "" => return Err("there must be a condition".into()),
            "exit!=0" => Condition::Exit,
            "signal" => Condition::Signal,
            "timeout" => Condition::Timeout,
            "deadlock" => Condition::Deadlock,
            "race" => Condition::Race,
            _ => match text.split_once('=') {
                Some(("exit", status)) => {
                    let status = status.parse().map_err(|_| "exit= takes a number")?;
                    Condition::Status(status)
                }
                Some(("output", pattern)) => {
                    let regex = Regex::new(pattern);
                    Condition::Output(regex.map_err(|why| format!("output={pattern}: {why}"))?)
                }
                _ => Condition::Command(text.into()),
            },
        })
    }
}

impl Condition {
    /// When nothing else is said.
    pub fn usual() -> Vec<Condition> {
        vec![
            Condition::Exit,
            Condition::Signal,
            Condition::Deadlock,
            Condition::Timeout,
        ]
    }

    /// Whether it is about how a run ends, not about what it prints.
    pub fn is_about_end(&self) -> bool {
        !matches!(
            self,
            Condition::Output(_) | Condition::Command(_) | Condition::Race
        )
    }

    /// Why this run failed, if it did.
    pub fn holds(&self, outcome: &Outcome) -> Result<Option<String>, String> {
        let ended = match (self, &outcome.ended) {
            (Condition::Exit, Ended::Exit(status)) => *status != 0,
            (Condition::Status(wanted), Ended::Exit(status)) => wanted == status,
            (Condition::Signal, Ended::Signal(_))
            | (Condition::Timeout, Ended::TimedOut)
            | (Condition::Deadlock, Ended::Deadlock(_)) => true,
            _ => false,
        };
        Ok(match self {
            Condition::Race => outcome.race.clone(),
            Condition::Output(regex) => [&outcome.stdout, &outcome.stderr]
                .into_iter()
                .find_map(|bytes| line_with(regex, bytes)),
            Condition::Command(command) => {
                ask(command, outcome)?.then(|| format!("{}; {command} says so", outcome.ended))
            }
            _ => ended.then(|| outcome.ended.to_string()),
        })
    }
}

/// The line in which the pattern is found.
fn line_with(regex: &Regex, bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let found = regex.find(&text)?;
    let start = text[..found.start()].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    Some(format!("it printed {line:?}"))
}

/// Runs the user's command: the program's standard output is its input, how it ended is in its environment.
fn ask(command: &str, outcome: &Outcome) -> Result<bool, String> {
    let failed = |why: std::io::Error| format!("{command}: {why}");
    let (how, number) = match outcome.ended {
        Ended::Exit(status) => ("exit", status),
        Ended::Signal(signal) => ("signal", signal),
        Ended::TimedOut => ("timeout", 0),
        Ended::Deadlock(_) => ("deadlock", 0),
    };
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env("HUNT_ENDED", how)
        .env("HUNT_STATUS", number.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A command that doesn't read to the end has seen enough.
        let _ = input.write_all(&outcome.stdout);
    }
    Ok(child.wait().map_err(failed)?.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(ended: Ended, stdout: &str) -> Outcome {
        Outcome {
            ended,
            stdout: stdout.into(),
            stderr: b"warning: odd\n".to_vec(),
            took: Duration::ZERO,
            race: None,
        }
    }

    fn holds(condition: &str, ended: Ended) -> bool {
        let condition: Condition = condition.parse().unwrap();
        let outcome = outcome(ended, "total 12\nlost 3\n");
        condition.holds(&outcome).unwrap().is_some()
    }

    #[test]
    fn endings() {
        assert!(holds("exit!=0", Ended::Exit(1)) && !holds("exit!=0", Ended::Exit(0)));
        assert!(!holds("exit!=0", Ended::Signal(6)) && holds("signal", Ended::Signal(6)));
        assert!(holds("exit=3", Ended::Exit(3)) && !holds("exit=3", Ended::Exit(1)));
        assert!(holds("timeout", Ended::TimedOut) && !holds("signal", Ended::TimedOut));
        assert!(holds("deadlock", Ended::Deadlock("a".into())));
        assert!(!holds("race", Ended::Signal(11)));
        let raced = Outcome {
            race: Some("race on x: a.c:1 and a.c:2".into()),
            ..outcome(Ended::Exit(0), "")
        };
        assert_eq!(Condition::Race.holds(&raced).unwrap(), raced.race);
    }

    #[test]
    fn output_and_commands() {
        assert!(holds("output=lost [1-9]", Ended::Exit(0)));
        assert!(holds("output=odd$", Ended::Exit(0)) || holds("output=odd", Ended::Exit(0)));
        assert!(!holds("output=found", Ended::Exit(0)));
        assert!(holds("grep -q 'lost 3'", Ended::Exit(0)));
        assert!(!holds("grep -q 'lost 4'", Ended::Exit(0)));
        assert!(holds(
            "test $HUNT_ENDED$HUNT_STATUS = exit4",
            Ended::Exit(4)
        ));
        let why: Condition = "output=lost".parse().unwrap();
        let why = why
            .holds(&outcome(Ended::Exit(0), "a\nhas lost it\n"))
            .unwrap();
        assert_eq!(why.as_deref(), Some("it printed \"has lost it\""));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "exit=many", "output=("] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }
}
