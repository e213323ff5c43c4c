//! `clew run`: finds the program and starts it in this very process.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::arguments::{Engine, Guest, Run, Time, Whose};
use crate::variables;
use clew_engine::loader::LoadError;
use clew_engine::program::{self, Options, Sched, StatsFor};
use clew_engine::start::{self, Request};
use clew_recording::script::{BadLine, Script};

pub fn run(line: &Run, envp: &[&CStr]) -> i32 {
    match request(&line.guest, &line.engine, envp) {
        Ok(request) => start::run(request),
        Err(status) => status,
    }
}

/// Finds the program. What can't be run is told about; the error is the exit status for it.
pub fn request(guest: &Guest, engine: &Engine, envp: &[&CStr]) -> Result<Request, i32> {
    let program = &guest.program;
    let variable = |name: &str| variables::get(envp, name);
    let options = options(engine, &variable).map_err(|message| {
        eprintln!("clew: {message}");
        2
    })?;
    let argv: Result<Vec<CString>, _> = program
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    let argv = argv.expect("arguments hold no NUL");
    let search = variable("PATH");
    let found = program::find(&program[0], search.as_deref(), &argv)
        .map_err(|error| not_found(&program[0], &error))?;
    clew_engine::kernel::exec::warn_privileged(&found);
    let envp = envp.iter().map(|&variable| variable.to_owned()).collect();
    let mut request = Request::first(found, envp, options);
    // SAFETY: where present, AT_EXECFN is a string that lives as long as the process.
    let own = unsafe {
        let path = getauxval(libc::AT_EXECFN) as *const std::ffi::c_char;
        if path.is_null() {
            c""
        } else {
            CStr::from_ptr(path)
        }
    };
    start::ensure_restart(&mut request, Path::new(OsStr::from_bytes(own.to_bytes())));
    Ok(request)
}

fn getauxval(key: u64) -> u64 {
    // SAFETY: getauxval only looks things up.
    unsafe { libc::getauxval(key) }
}

/// The switches and what the environment says.
pub fn options(
    engine: &Engine,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Options, String> {
    let script = engine.schedule.script.as_deref().map(script).transpose()?;
    let mut options = Options {
        stats: match engine.stats {
            None => StatsFor::Nobody,
            Some(Whose::Main) => StatsFor::Main,
            Some(Whose::All) => StatsFor::All,
        },
        no_cache: engine.no_cache,
        sched: match &script {
            Some(_) => Sched::Script,
            None => engine.schedule.sched,
        },
        script: script.map(Arc::new),
        seed: engine.schedule.seed,
        depth: engine.schedule.depth,
        length: engine.schedule.length,
        chaos: engine.schedule.chaos.unwrap_or_default(),
        virtual_time: engine.schedule.time == Time::Virtual,
        portable: engine.portable,
        ..Options::default()
    };
    let debug = variable("CLEW_DEBUG").map(|v| v.to_string_lossy().into_owned());
    for words in [debug, engine.debug.clone()].into_iter().flatten() {
        options.debug(&words).map_err(|word| {
            format!(
                "unknown debugging switch {word:?}; there are trace, bisect=N, dump=N..M, calls, lockstep, lockstep=N, stretch=N, instruments=N, turns, sharing, parts=N and hook"
            )
        })?;
    }
    // A deliberate mistake must not be kept.
    options.no_cache |= options.spoil.is_some();
    if !options.no_cache {
        options.cache_dir = start::cache_folder(variable).unwrap_or_else(|why| {
            eprintln!("clew: {why}");
            None
        });
    }
    Ok(options)
}

/// Reads a schedule.
fn script(path: &Path) -> Result<Script, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    // What isn't text isn't a schedule either, and has a line where that shows.
    let text = String::from_utf8_lossy(&text);
    text.parse().map_err(|bad: BadLine| failed(&bad))
}

/// The shell's words and statuses for a program that can't be run.
fn not_found(name: &OsStr, error: &LoadError) -> i32 {
    let missing = matches!(
        error,
        LoadError::Open {
            errno: libc::ENOENT,
            ..
        }
    );
    if missing && !name.as_bytes().contains(&b'/') {
        eprintln!("clew: {}: command not found", name.display());
        return 127;
    }
    failed(error)
}

/// Says why a program can't be run; returns the exit status for it.
pub fn failed(error: &LoadError) -> i32 {
    eprintln!("clew: {error}");
    error.exit_status()
}
