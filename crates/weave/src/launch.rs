//! Runs a program with the library. In: the program, its arguments, a recording's folder. Out: how it ended; the folder is
//! then complete.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use crate::WeaveError;
use crate::folder::{DATA, End, LIBRARY, LOG, Woven};
use crate::log::Log;

/// What the library looks for in the environment: `c` or `p` and its folder.
pub const VARIABLE: &str = "CLEW_WEAVE";
pub const PRELOAD: &str = "LD_PRELOAD";

/// A program to record.
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// With its name first.
    pub argv: Vec<OsString>,
    pub loader: PathBuf,
}

/// What came of it.
pub struct Recorded {
    pub end: End,
    /// Why the library stopped it, if it did.
    pub refused: Option<String>,
    /// What makes the recording less than exact, and other remarks.
    pub notes: Option<String>,
    pub events: u64,
    pub threads: usize,
}

/// Runs and records it. `woven` has been created for it.
pub fn record(woven: &Woven, program: &Program) -> Result<Recorded, WeaveError> {
    let path = woven.path(LOG);
    let failed = |why| WeaveError::Io {
        path: path.clone(),
        why,
    };
    // Whoever looks sees that it is being written; the lock goes with this process.
    let lock = File::open(&path).map_err(failed)?;
    let _ = lock.lock();
    let library = woven.path(LIBRARY).into_os_string();
    let mut preload = library;
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut mode = OsString::from("c");
    mode.push(&woven.dir);
    let began = Instant::now();
    let child = Command::new(&program.path)
        .arg0(&program.argv[0])
        .args(&program.argv[1..])
        .env(PRELOAD, preload)
        .env(VARIABLE, mode)
        .spawn();
    let child = child.map_err(|why| WeaveError::Io {
        path: program.path.clone(),
        why,
    })?;
    let status = wait(child).map_err(failed)?;
    let end = End {
        status: status.code(),
        signal: status.signal(),
        duration_ns: began.elapsed().as_nanos() as u64,
    };
    finish(woven, program, end)
}

/// The program's end, whatever signals this process gets meanwhile: the terminal's go to both.
fn wait(mut child: Child) -> io::Result<std::process::ExitStatus> {
    crate::jail::pass_signals(child.id());
    child.wait()
}

/// Cuts the log to what is used, copies the program's files, notes the end.
fn finish(woven: &Woven, program: &Program, end: End) -> Result<Recorded, WeaveError> {
    let path = woven.path(LOG);
    let log = Log::open(&path)?;
    let facts = log.facts()?;
    let cut = File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(facts.used));
    cut.map_err(|why| WeaveError::Io {
        path: path.clone(),
        why,
    })?;
    if facts.pid == 0 {
        return Err(WeaveError::Refused(
            "the program ran, but the library that clew preloads wasn't loaded into it: it isn't recorded. Record it with: clew record"
                .into(),
        ));
    }
    let words = (!facts.words.is_empty()).then_some(facts.words.clone());
    let cwd = std::env::current_dir().unwrap_or_default();
    woven.copy_files(&program.path, &program.loader, &cwd)?;
    woven.set_end(&end)?;
    let lives = log.lives(false)?;
    let (refused, notes) = match facts.refused {
        true => (words, None),
        false => (None, words),
    };
    Ok(Recorded {
        end,
        refused,
        notes,
        events: lives.iter().map(|life| life.count).sum(),
        threads: lives.len(),
    })
}

/// The arguments and the environment that the recorded program was given.
pub fn given(woven: &Woven) -> Result<(Vec<OsString>, Vec<OsString>), WeaveError> {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::FileExt;
    let path = woven.path(LOG);
    let damaged = || WeaveError::Damaged {
        path: path.clone(),
        why: "it doesn't say what was started",
    };
    let lives = Log::open(&path)?.lives(true)?;
    let first = lives.first().and_then(|life| life.entries.first());
    let entry = first
        .filter(|entry| entry.op == crate::format::Op::Start as u8)
        .ok_or_else(damaged)?;
    let mut bytes = entry.payload.clone();
    if let Some(at) = entry.away {
        if entry.len > 64 << 20 {
            return Err(damaged());
        }
        bytes = vec![0; entry.len as usize];
        let data = woven.path(DATA);
        let read = File::open(&data).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map_err(|why| WeaveError::Io { path: data, why })?;
    }
    let words = usize::try_from(entry.result.unwrap_or(0))
        .ok()
        .filter(|&len| len <= bytes.len());
    let (argv, envp) = bytes.split_at(words.ok_or_else(damaged)?);
    let strings = |bytes: &[u8]| -> Vec<OsString> {
        let parts = bytes
            .split(|&byte| byte == 0)
            .map(|part| OsString::from_vec(part.to_vec()));
        let mut parts: Vec<OsString> = parts.collect();
        parts.pop();
        parts
    };
    Ok((strings(argv), strings(envp)))
}

/// The command that runs the recorded program again, from the recording's own copies.
pub fn again(woven: &Woven) -> Result<(PathBuf, Vec<OsString>, Vec<OsString>), WeaveError> {
    let files = woven.files()?;
    let (argv, mut envp) = given(woven)?;
    let copies = woven.path(crate::folder::FILES);
    let copy = |path: &str| -> Result<PathBuf, WeaveError> {
        let name = files.copies.get(path).filter(|name| plain(name));
        let name = name.ok_or(WeaveError::Damaged {
            path: copies.clone(),
            why: "the program isn't among its files",
        })?;
        Ok(copies.join(name))
    };
    let loader = copy(&files.loader)?;
    let program = copy(&files.program)?;
    let mut line: Vec<OsString> = vec!["--library-path".into(), copies.clone().into()];
    // Loaders before glibc 2.33 give the program its file's name instead.
    let bytes = crate::folder::read_bounded(&loader, 64 << 20);
    let knows = bytes.is_ok_and(|bytes| bytes.windows(7).any(|part| part == b"--argv0"));
    if let (true, Some(name)) = (knows, argv.first()) {
        line.extend(["--argv0".into(), name.clone()]);
    }
    line.push(program.into());
    line.extend(argv.into_iter().skip(1));
    let mut mode = OsString::from("CLEW_WEAVE=p");
    mode.push(&woven.dir);
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(woven.path(LIBRARY));
    envp.retain(|variable| !variable.as_encoded_bytes().starts_with(b"LD_PRELOAD="));
    envp.extend([mode, preload]);
    Ok((loader, line, envp))
}

/// A name that leads nowhere else.
pub fn plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// Where the program that a user names is.
pub fn find(name: &Path, search: Option<OsString>) -> Option<PathBuf> {
    let runs = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let found = if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        name.to_owned()
    } else {
        let folders = search.unwrap_or("/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| runs(path))?
    };
    if !runs(&found) {
        return None;
    }
    std::path::absolute(found).ok()
}
