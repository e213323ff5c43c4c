//! A row of the table for record and replay goes in; wall times of native, recorded and replayed runs, in
//! turn, and the recording's size come out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure;
use crate::rows::{Recorded, Sizes, Work};
use crate::translator::{command, input};

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(300);
/// The recording's name.
const NAME: &str = "bench";

/// What was measured.
pub struct Times {
    pub native: Vec<Duration>,
    pub record: Vec<Duration>,
    pub replay: Vec<Duration>,
    pub sizes: Sizes,
}

/// Where a row is run.
pub struct Bench<'a> {
    clew: &'a Path,
    dir: &'a Path,
    recordings: PathBuf,
}

impl<'a> Bench<'a> {
    pub fn new(clew: &'a Path, dir: &'a Path) -> Bench<'a> {
        let recordings = dir.join("recordings");
        Bench {
            clew,
            dir,
            recordings,
        }
    }

    /// One warm-up each, then in turn.
    pub fn measure(&self, row: &Recorded, runs: usize) -> Result<Times, String> {
        let mut times = Times {
            native: Vec::new(),
            record: Vec::new(),
            replay: Vec::new(),
            sizes: [0.0; 2],
        };
        let more = match row.work {
            Work::Each(times) => times.max(runs),
            _ => runs,
        };
        for round in 0..=more {
            let native = self.time(row, &[])?;
            self.forget()?;
            let mut prefix = self.words(&["record", "-n", NAME, "--"]);
            let record = self.time(row, &prefix)?;
            times.sizes = self.sizes().map_err(|error| error.to_string())?;
            let mut replay = None;
            if row.replay.is_some() && round <= runs {
                prefix = self.words(&["replay", NAME]);
                let mut command = self.command(&prefix, &[]);
                replay = Some(measure::run(&mut command, None, LIMIT)?.wall);
            }
            if round > 0 {
                times.native.push(native);
                times.record.push(record);
                times.replay.extend(replay);
            }
        }
        self.forget()?;
        Ok(times)
    }

    fn words(&self, words: &[&str]) -> Vec<PathBuf> {
        let clew = [self.clew.to_owned()];
        clew.into_iter()
            .chain(words.iter().map(PathBuf::from))
            .collect()
    }

    fn command(&self, prefix: &[PathBuf], words: &[&str]) -> Command {
        let mut command = command(prefix, words, self.dir);
        command.env("CLEW_DIR", &self.recordings);
        command
    }

    /// Removes the recording; the pool of copied files stays, as it does for people.
    fn forget(&self) -> Result<(), String> {
        match fs::remove_dir_all(self.recordings.join(NAME)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn time(&self, row: &Recorded, prefix: &[PathBuf]) -> Result<Duration, String> {
        if let Some(name) = row.fresh {
            for left in [name.to_owned(), format!("{name}-journal")] {
                let _ = fs::remove_file(self.dir.join(left));
            }
        }
        let mut command = self.command(prefix, row.command);
        match row.work {
            Work::Redis => self.time_of_client(&mut command),
            _ => Ok(measure::run(&mut command, input(row.input, self.dir)?, LIMIT)?.wall),
        }
    }

    /// Starts the server, has the client work, and stops the server.
    fn time_of_client(&self, server: &mut Command) -> Result<Duration, String> {
        // The path of a socket must be short.
        let socket = std::env::temp_dir().join(format!("clew-bench-{}", std::process::id()));
        let _ = fs::remove_file(&socket);
        server
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = server.spawn().map_err(|error| error.to_string())?;
        let time = wait_for(&socket, &mut server).and_then(|()| {
            let mut client = Command::new("redis-benchmark");
            client.args(["-n", "50000", "-t", "set,get", "-q", "-s"]);
            Ok(measure::run(client.arg(&socket), None, LIMIT)?.wall)
        });
        let mut stop = Command::new("redis-cli");
        stop.arg("-s").arg(&socket).args(["shutdown", "nosave"]);
        let stopped = measure::run(&mut stop, None, LIMIT);
        if time.is_err() || stopped.is_err() {
            let _ = server.kill();
        }
        let status = server.wait().map_err(|error| error.to_string())?;
        let _ = fs::remove_file(&socket);
        match status.success() {
            true => time,
            false => Err(format!("the server: {status}")),
        }
    }

    fn sizes(&self) -> std::io::Result<Sizes> {
        let folder = self.recordings.join(NAME);
        let log = fs::metadata(folder.join("log"))?.len();
        let mut seen = std::collections::BTreeSet::new();
        let mut files = 0;
        for entry in fs::read_dir(folder.join("files"))? {
            let meta = entry?.metadata()?;
            if seen.insert(meta.ino()) {
                files += meta.len();
            }
        }
        Ok([log as f64 / 1e6, (log + files) as f64 / 1e6])
    }
}

/// Until the server answers, or is gone.
fn wait_for(socket: &Path, server: &mut Child) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if UnixStream::connect(socket).is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server: {status}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the server doesn't answer".to_owned())
}
