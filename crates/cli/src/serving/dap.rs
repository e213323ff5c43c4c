//! `clew dap`: recordings in editors. In: the Debug Adapter Protocol, on standard input or a socket. Out: the same.

use std::ffi::CStr;
use std::net::{Ipv4Addr, TcpListener};

use super::{Environment, Recorded, Replaying};
use crate::text;
use clew_dap::{Attach, Host, Launch, Output};
use clew_debugger::{Debugger, Process};

#[derive(Debug, clap::Args)]
pub struct Dap {
    /// Listen on this port of the loopback device instead of standard input; 0 takes any that is free
    #[arg(long, value_name = "PORT")]
    pub listen: Option<u16>,

    #[command(flatten)]
    pub replaying: Replaying,
}

pub const HELP: &str = "\
Editors start this by themselves and speak the Debug Adapter Protocol with it (docs/editors.md has set-ups for several). \
An editor attaches to a recording, {\"request\": \"attach\", \"recording\": NAME}, or launches a program, \
{\"request\": \"launch\", \"program\": PATH, \"args\": [...]}, which is recorded first. All ways to step and continue go \
backwards too.

With --listen the port and a token are printed; an editor must send the token, as \"token\" among the arguments of attach or \
launch. Several editors may come, one after the other.

Exit status: 0 when the editor has left, 1 if it didn't speak the protocol, 2 for a wrong command line.

Examples:
  clew dap
  clew dap --listen 4711
";

struct Editor {
    environment: Environment,
    replaying: Replaying,
}

impl Host for Editor {
    fn open(&mut self, attach: &Attach) -> Result<Debugger, String> {
        let name = attach.process.as_deref().map(str::parse).transpose()?;
        let process = Process {
            name,
            exec: attach.exec,
        };
        let strings = self.environment.strings();
        let word = attach.recording.as_deref();
        let (debugger, _) = super::open(&strings, word, process, &self.replaying)?;
        Ok(debugger)
    }

    fn record(
        &mut self,
        launch: &Launch,
        told: &mut dyn FnMut(Output, &str),
    ) -> Result<String, String> {
        let variables = launch.env.iter();
        let wanted = Recorded {
            program: &launch.program,
            args: &launch.args,
            folder: launch.cwd.as_deref(),
            variables: variables
                .map(|(name, value)| (name.as_str(), value.as_deref()))
                .collect(),
            flags: &launch.record_flags,
        };
        super::record(&self.environment.strings(), &wanted, &mut |error, line| {
            let to = match error {
                true => Output::Error,
                false => Output::Standard,
            };
            told(to, line);
        })
    }
}

pub fn dap(line: &Dap, envp: &[&CStr]) -> i32 {
    let editor = || {
        Box::new(Editor {
            environment: Environment::new(envp),
            replaying: line.replaying.clone(),
        })
    };
    let Some(port) = line.listen else {
        return match clew_dap::serve(std::io::stdin(), std::io::stdout(), editor(), None) {
            Ok(()) => 0,
            Err(error) => text::failed(&error),
        };
    };
    let listening = super::token().and_then(|token| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = listener.map_err(|error| format!("port {port}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        println!("listening on {address}, token {token}");
        Ok((listener, token))
    });
    let (listener, token) = match listening {
        Ok(listening) => listening,
        Err(why) => return text::failed(&why),
    };
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => return text::failed(&error),
        };
        let served = stream
            .try_clone()
            .and_then(|input| clew_dap::serve(input, stream, editor(), Some(token.clone())));
        // One editor's nonsense is no reason to send the next away.
        if let Err(error) = served {
            text::failed(&error);
        }
    }
}
