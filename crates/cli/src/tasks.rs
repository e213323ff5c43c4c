//! `clew --help` by task. In: the definition of all commands. Out: the same, with a help in which commands stand below what people
//! want to do.

use clap::Command;

/// Tasks, in the order in which people come to them, and the commands for each.
const TASKS: &[(&str, &[&str])] = &[
    (
        "Record a run",
        &["record", "hunt", "minimize", "save", "ctl", "run"],
    ),
    ("Look into it", &["view", "debug", "replay", "dap", "mcp"]),
    ("Why did it fail?", &["why", "diagnose", "alerts"]),
    (
        "Where does this value come from, who called?",
        &[
            "writes", "last", "watch", "origin", "slice", "calls", "output", "heap", "probe",
        ],
    ),
    ("What did threads do to each other?", &["order", "races"]),
    (
        "Recordings",
        &[
            "ls", "info", "dump", "rm", "pack", "unpack", "cut", "relog", "report",
        ],
    ),
    (
        "This machine",
        &["doctor", "cache", "completions", "man", "help"],
    ),
];
const WIDTH: usize = 100;
const INDENT: usize = 15;

/// With commands by task in its help.
pub fn by_task(command: Command) -> Command {
    let mut all = String::new();
    for (task, names) in TASKS {
        let colon = if task.ends_with('?') { "" } else { ":" };
        all.push_str(&format!("\n{task}{colon}\n"));
        for name in *names {
            let known = command.find_subcommand(name);
            let about = known.and_then(Command::get_about).map(|a| a.to_string());
            let about =
                about.unwrap_or_else(|| "Print this message, or the help of a command".into());
            all.push_str(&line(name, &about));
        }
    }
    // Braces would be read as parts of the template.
    let all = all.replace(['{', '}'], "");
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{all}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// A command and what it does, in lines that fit.
fn line(name: &str, about: &str) -> String {
    let mut text = format!("  {name:<width$}", width = INDENT - 2);
    let mut at = INDENT;
    for (n, word) in about.split(' ').enumerate() {
        if at + 1 + word.len() > WIDTH {
            text.push_str(&format!("\n{:INDENT$}", ""));
            at = INDENT;
        } else if n > 0 {
            text.push(' ');
            at += 1;
        }
        text.push_str(word);
        at += word.len();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_task() {
        let command = crate::arguments::definition();
        let mut listed: Vec<&str> = TASKS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        listed.retain(|name| *name != "help");
        listed.sort_unstable();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut known: Vec<&str> = shown.map(Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn lines_fit() {
        let said = line("diagnose", &"word ".repeat(40));
        assert!(said.lines().all(|line| line.len() <= WIDTH), "{said}");
        assert_eq!(line("ls", "List"), format!("  ls{}List\n", " ".repeat(11)));
    }
}
