//! The command line, described for shells and manuals. In: its own definition. Out: completions, man pages.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use crate::text;

#[derive(Debug, clap::Args)]
pub struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

pub const COMPLETIONS_HELP: &str = "\
Examples:
  clew completions bash > ~/.local/share/bash-completion/completions/clew
  clew completions zsh > ~/.zfunc/_clew                 with fpath+=~/.zfunc before compinit
  clew completions fish > ~/.config/fish/completions/clew.fish
";

#[derive(Debug, clap::Args)]
pub struct Man {
    /// Write one page for each command into this folder (default: print the page about clew itself)
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

pub const MAN_HELP: &str = "\
Examples:
  clew man | man -l -
  clew man /usr/local/share/man/man1
";

/// To standard output; a reader that has left isn't waited for.
fn print(bytes: &[u8]) -> i32 {
    match std::io::stdout().write_all(bytes) {
        Ok(()) => 0,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(error) => text::failed(&error),
    }
}

pub fn completions(line: &Completions) -> i32 {
    let mut bytes = Vec::new();
    let mut command = crate::arguments::definition();
    clap_complete::generate(line.shell, &mut command, "clew", &mut bytes);
    print(&bytes)
}

pub fn man(line: &Man) -> i32 {
    let command = crate::arguments::definition();
    let Some(folder) = &line.folder else {
        let mut bytes = Vec::new();
        return match clap_mangen::Man::new(command).render(&mut bytes) {
            Ok(()) => print(&bytes),
            Err(error) => text::failed(&error),
        };
    };
    match pages(command, folder) {
        Ok(()) => 0,
        Err(error) => text::failed(&format!("{}: {error}", folder.display())),
    }
}

fn pages(command: clap::Command, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder)
}
