//! The prompt. In: lines from a terminal, or from a file. Out: what the commands tell, on standard output.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use crate::commands::{COMMANDS, Commands};

/// Lines that are remembered from one session to the next.
const REMEMBERED: usize = 1_000;

/// Completes commands.
struct Words;

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let begun = line.get(..at).unwrap_or_default();
        if begun.contains(char::is_whitespace) {
            return Ok((at, Vec::new()));
        }
        let fits = COMMANDS.iter().filter(|(name, ..)| name.starts_with(begun));
        let pairs = fits.map(|(name, ..)| Pair {
            display: (*name).into(),
            replacement: format!("{name} "),
        });
        Ok((0, pairs.collect()))
    }
}

/// Reads commands until there are no more. `history`: where lines are kept between sessions.
pub fn run(commands: &mut Commands, history: Option<PathBuf>) -> std::io::Result<()> {
    let language = commands.session.language();
    say(&commands.greet())?;
    if !std::io::stdin().is_terminal() {
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            say(&format!("({language}) {}\n", line.trim_end()))?;
            let answer = commands.execute(&line);
            say(&answer.text)?;
            if answer.quits {
                break;
            }
        }
        return Ok(());
    }
    let unable = |error: ReadlineError| std::io::Error::other(error.to_string());
    let settings = Config::builder()
        .max_history_size(REMEMBERED)
        .map_err(unable)?
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(settings).map_err(unable)?;
    editor.set_helper(Some(Words));
    if let Some(history) = &history {
        // There is none the first time.
        let _ = editor.load_history(history);
    }
    let prompt = format!("({language}) ");
    let mut last = String::new();
    loop {
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(_) => break,
        };
        // An empty line repeats the last command, as in pdb.
        let line = match line.trim().is_empty() {
            true => last.clone(),
            false => line,
        };
        let _ = editor.add_history_entry(&line);
        let answer = commands.execute(&line);
        say(&answer.text)?;
        last = line;
        if answer.quits {
            break;
        }
    }
    if let Some(history) = &history {
        let _ = editor.save_history(history);
    }
    Ok(())
}

fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}
