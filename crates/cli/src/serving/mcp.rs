//! `clew mcp`: recordings for agents. In: the Model Context Protocol, on standard input. Out: the same.

use std::ffi::CStr;
use std::process::{Command, Stdio};

use super::{Environment, Replaying};
use crate::text;
use clew_debugger::{Debugger, Process};
use clew_mcp::{Host, Printed};

#[derive(Debug, clap::Args)]
pub struct Mcp {
    /// Let the agent run programs: tools to record and to hunt
    #[arg(long)]
    pub allow_record: bool,

    #[command(flatten)]
    pub replaying: Replaying,
}

pub const HELP: &str = "\
Agents start this by themselves and speak the Model Context Protocol with it (docs/agents.md has set-ups). Its tools look at \
recordings: why it failed, stacks, values, steps both ways, histories of variables, slices, races. Nothing that they do changes a \
recording, and without --allow-record no program is run.

Exit status: 0 when the agent has left, 1 if it didn't speak the protocol, 2 for a wrong command line.

Examples:
  clew mcp
  clew mcp --allow-record
";

struct Agent {
    environment: Environment,
    replaying: Replaying,
}

impl Host for Agent {
    fn open(
        &mut self,
        recording: Option<&str>,
        process: Option<&str>,
    ) -> Result<(Debugger, String), String> {
        let process = Process {
            name: process.map(str::parse).transpose()?,
            exec: None,
        };
        super::open(
            &self.environment.strings(),
            recording,
            process,
            &self.replaying,
        )
    }

    fn command(&mut self, words: &[String]) -> Result<Printed, String> {
        let ran = Command::new("/proc/self/exe")
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("clew can't be started again: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Printed {
            status: ran.status.code().unwrap_or(-1),
            output: text(&ran.stdout),
            errors: text(&ran.stderr),
        })
    }
}

pub fn mcp(line: &Mcp, envp: &[&CStr]) -> i32 {
    let agent = Agent {
        environment: Environment::new(envp),
        replaying: line.replaying.clone(),
    };
    match clew_mcp::serve(Box::new(agent), line.allow_record) {
        Ok(()) => 0,
        Err(why) => text::failed(&why),
    }
}
