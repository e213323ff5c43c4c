//! Recordings of which only the last part is kept: what is there replays with all its checks and ends as the program did,
//! whoever was killed.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clew_recording::meta::Meta;
use clew_tests::recorded::Recording;
use clew_tests::run::Job;
use clew_tests::scratch;
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};

use super::run;

/// As little as this makes a state nearly whenever it is asked for.
const LITTLE: &str = "1K";

/// A guest, of which next to nothing is kept: with states as they are asked for, and after so many events.
pub fn guest(name: &str) -> Result<(), Failed> {
    let job = super::guest("tail", name)?;
    for parts in ["", "parts=40", "parts=300", "parts=2000"] {
        let debug = format!("--debug={parts}");
        let mut options = vec!["--keep-last", LITTLE, "--seed", "1"];
        if !parts.is_empty() {
            options.push(&debug);
        }
        guest_with(name, &job, &options).map_err(|failed| {
            let why = failed.message().unwrap_or_default().to_owned();
            format!("{parts}: {why}")
        })?;
    }
    Ok(())
}

fn guest_with(name: &str, job: &Job, options: &[&str]) -> Result<(), Failed> {
    let made = Recording::of(job, options);
    let outcome = made.job.run();
    let wrong = |what: &str, of: &str| -> Failed { format!("{name}: {what}\n{of}").into() };
    let Some(status) = outcome.status else {
        return Err(wrong("hung", &outcome.printed()));
    };
    let path = made.folder.to_string_lossy().into_owned();
    let replay = run(job, &["replay", &path, "--verify"]);
    let said = replay.printed();
    if replay.status != Some(status) || !said.contains("verified: ") {
        let text = format!("{}\n{}\n{}", outcome.printed(), replay.ending(), said);
        return Err(wrong("the replay", &text));
    }
    if !outcome.stdout.ends_with(&replay.stdout) && !name.starts_with("processes/") {
        return Err(wrong("prints something else", &said));
    }
    Ok(())
}

/// A server that is being recorded.
struct Server {
    made: Recording,
    child: Child,
    job: Job,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(job: Job, keep: &str) -> Result<Server, Failed> {
        let made = Recording::of(&job, &["--keep-last", keep]);
        let output = fs::File::create(job.dir.join("output"))?;
        let child = made
            .job
            .command()
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Server { made, child, job })
    }

    fn said(&self) -> String {
        fs::read_to_string(self.job.dir.join("output")).unwrap_or_default()
    }

    fn parts(&self) -> PathBuf {
        self.made.folder.join("files/parts")
    }

    /// Does something again and again until its beginning is gone.
    fn work(&mut self, work: &mut dyn FnMut() -> Result<(), Failed>) -> Result<(), Failed> {
        let first = self.parts().join("1-0.log");
        let begun = self.parts().join("1-1.log");
        self.until("its beginning is gone", &mut || {
            work()?;
            Ok(begun.exists() || !first.exists())
        })?;
        self.until("its beginning is gone", &mut || {
            work()?;
            Ok(!first.exists())
        })
    }

    fn until(
        &mut self,
        what: &str,
        done: &mut dyn FnMut() -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        let end = Instant::now() + Duration::from_secs(120);
        while !done()? {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("ended before {what}: {status}\n{}", self.said()).into());
            }
            if Instant::now() > end {
                return Err(format!("waited for: {what}\n{}", self.said()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<ExitStatus, Failed> {
        Ok(self.child.wait()?)
    }

    /// What is kept begins in the midst, replays with all checks, and ends as the program did.
    fn is_kept(&mut self, status: ExitStatus) -> Result<(), Failed> {
        let path = self.made.folder.to_string_lossy().into_owned();
        if self.parts().exists() {
            return Err(format!("the parts are still there\n{}", self.said()).into());
        }
        let region = Meta::read(&self.made.folder)?.region;
        if region.is_none() {
            return Err(format!("it begins at its beginning\n{}", self.said()).into());
        }
        verified(&self.job, &path, Some(status))
    }
}

fn verified(job: &Job, path: &str, status: Option<ExitStatus>) -> Result<(), Failed> {
    let replay = run(job, &["replay", path, "--verify"]);
    let same = status.is_none_or(|status| replay.status == Some(status));
    match same && replay.printed().contains("verified: ") {
        true => Ok(()),
        false => Err(format!("the replay: {}\n{}", replay.ending(), replay.printed()).into()),
    }
}

fn redis(test: &str) -> Result<(Server, PathBuf), Failed> {
    let dir = scratch::fresh(&format!("regions.tail.{test}"));
    let socket = dir.join("socket");
    let socket_text = socket.to_string_lossy().into_owned();
    let job = Job::new("/usr/bin/redis-server", &dir).args([
        "--port",
        "0",
        "--unixsocket",
        &socket_text,
        "--save",
        "",
        "--daemonize",
        "no",
    ]);
    let mut server = Server::start(job, "64K")?;
    server.until("redis listens", &mut || Ok(ask(&socket, &["ping"]).is_ok()))?;
    Ok((server, socket))
}

/// An answer of redis.
fn ask(socket: &Path, words: &[&str]) -> Result<String, Failed> {
    let answer = Command::new("/usr/bin/redis-cli")
        .arg("-s")
        .arg(socket)
        .args(words)
        .output()?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    match answer.status.success() && !text.is_empty() {
        true => Ok(text),
        false => Err(format!("redis-cli {words:?}: {text}").into()),
    }
}

/// A signal to a server that was started here.
fn send(pid: i32, signal: Signal) -> Result<(), Failed> {
    let pid = Pid::from_raw(pid).ok_or("no pid")?;
    Ok(kill_process(pid, signal)?)
}

/// Under load until its beginning is gone, then killed.
fn redis_ends(test: &str, signal: Signal) -> Result<(), Failed> {
    let (mut server, socket) = redis(test)?;
    let path = socket.to_string_lossy().into_owned();
    server.work(&mut || {
        let load = Command::new("/usr/bin/redis-benchmark")
            .args(["-s", &path, "-q", "-n", "2000", "-c", "8", "-r", "1000"])
            .args(["-t", "set,get,lpush"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        match load.success() {
            true => Ok(()),
            false => Err("redis-benchmark failed".into()),
        }
    })?;
    // What there is so far is a recording of its own, and the server doesn't notice.
    let mut other = server.job.clone();
    let place = server.job.dir.join("recordings");
    other
        .env
        .push(("CLEW_DIR".into(), place.to_string_lossy().into_owned()));
    let of = server.made.folder.to_string_lossy().into_owned();
    let saved = run(&other, &["save", "so-far", &of]);
    if !saved.printed().contains("saved: so-far") {
        return Err(saved.printed().into());
    }
    verified(&other, "so-far", None)?;
    super::says(
        &other,
        &["ctl", &of, "status"],
        &["is being recorded, the last part is kept"],
    )?;
    let info = ask(&socket, &["info", "server"])?;
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    let pid: i32 = pid.ok_or("no pid")?.trim().parse()?;
    send(pid, signal)?;
    let status = server.end()?;
    if status.signal() != Some(signal.as_raw()) {
        return Err(format!("ended by {status}\n{}", server.said()).into());
    }
    server.is_kept(status)
}

pub fn redis_killed() -> Result<(), Failed> {
    redis_ends("killed", Signal::KILL)
}

pub fn redis_crashed() -> Result<(), Failed> {
    redis_ends("crashed", Signal::SEGV)
}

/// A master and a worker, and memory that they share.
pub fn nginx_killed() -> Result<(), Failed> {
    let dir = scratch::fresh("regions.tail.nginx");
    let at = dir.to_string_lossy().into_owned();
    fs::write(
        dir.join("nginx.conf"),
        format!(
            "daemon off; user nobody nogroup; worker_processes 1; pid {at}/pid; error_log {at}/error;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log {at}/access; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2;\n\
             fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;\n\
             server {{ listen unix:{at}/socket; location / {{ return 200 hello; }} }} }}\n"
        ),
    )?;
    let conf = dir.join("nginx.conf").to_string_lossy().into_owned();
    let job = Job::new("/usr/sbin/nginx", &dir).args(["-p", &at, "-c", &conf]);
    // As root, the worker becomes somebody else.
    let mut server = Server::start(job, "16K")?;
    let socket = dir.join("socket").to_string_lossy().into_owned();
    let get = || {
        let words = ["-sf", "--unix-socket", &socket, "http://localhost/"];
        let got = Command::new("/usr/bin/curl").args(words).output();
        got.is_ok_and(|got| got.stdout == b"hello")
    };
    server.until("nginx answers", &mut || Ok(get()))?;
    // The worker's beginning goes; the master only waits, so all of it stays.
    let parts = server.parts();
    server.until("the worker's beginning is gone", &mut || {
        for _ in 0..20 {
            if !get() {
                return Err("no answer".into());
            }
        }
        Ok(parts.join("2-1.state").exists() && !parts.join("2-0.log").exists())
    })?;
    let master: i32 = fs::read_to_string(dir.join("pid"))?.trim().parse()?;
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
    let mut ends = vec![master];
    for child in children.split_whitespace() {
        ends.push(child.parse()?);
    }
    for pid in ends {
        send(pid, Signal::KILL)?;
    }
    let status = server.end()?;
    let path = server.made.folder.to_string_lossy().into_owned();
    verified(&server.job, &path, Some(status))
}

/// Whoever recorded is gone: what is there becomes a recording all the same.
pub fn recorder_killed() -> Result<(), Failed> {
    let (mut server, socket) = redis("recorder")?;
    let set = ["set", "key", "a value that is long enough to be seen again"];
    server.work(&mut || {
        for _ in 0..20 {
            ask(&socket, &set)?;
        }
        Ok(())
    })?;
    server.child.kill()?;
    server.child.wait()?;
    let _ = ask(&socket, &["shutdown", "nosave"]);
    let mut other = server.job.clone();
    let place = server.job.dir.join("recordings");
    other
        .env
        .push(("CLEW_DIR".into(), place.to_string_lossy().into_owned()));
    let of = server.made.folder.to_string_lossy().into_owned();
    let replay = run(&other, &["replay", &of]);
    if !replay.printed().contains("clew save") {
        return Err(format!("nothing is said of parts: {}", replay.printed()).into());
    }
    let saved = run(&other, &["save", "rest", &of]);
    if !saved.printed().contains("saved: rest") {
        return Err(saved.printed().into());
    }
    verified(&other, "rest", None)
}

/// Parts and states that end anywhere or have a byte changed: what can be read becomes a recording that replays, or it is
/// said why not.
pub fn damaged() -> Result<(), Failed> {
    let (mut server, socket) = redis("damaged")?;
    server.work(&mut || {
        for _ in 0..20 {
            ask(&socket, &["incr", "key"])?;
        }
        Ok(())
    })?;
    let parts = server.parts();
    let whole = server.job.dir.join("whole");
    fs::create_dir_all(&whole)?;
    server.child.kill()?;
    server.child.wait()?;
    let _ = ask(&socket, &["shutdown", "nosave"]);
    let mut names = Vec::new();
    for entry in fs::read_dir(&parts)? {
        let entry = entry?;
        fs::copy(entry.path(), whole.join(entry.file_name()))?;
        names.push(entry.file_name());
    }
    let mut other = server.job.clone();
    let place = server.job.dir.join("recordings");
    other
        .env
        .push(("CLEW_DIR".into(), place.to_string_lossy().into_owned()));
    let of = server.made.folder.to_string_lossy().into_owned();
    for (n, name) in names.iter().cycle().take(16).enumerate() {
        for name in &names {
            fs::copy(whole.join(name), parts.join(name))?;
        }
        let mut bytes = fs::read(parts.join(name))?;
        if bytes.is_empty() {
            continue;
        }
        let at = bytes.len() * (n + 1) / 18;
        match n % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x10,
        }
        fs::write(parts.join(name), &bytes)?;
        let saved = run(&other, &["save", "rest", &of]);
        let wrong = |what: &str, said: &str| -> Failed { format!("{n}: {what}: {said}").into() };
        match saved.status.and_then(|status| status.code()) {
            Some(0) => {
                let replay = run(&other, &["replay", "rest"]);
                if replay.status.is_none() || replay.status.is_some_and(|s| s.code().is_none()) {
                    return Err(wrong("replayed", &replay.printed()));
                }
                run(&other, &["rm", "rest"]);
            }
            Some(1) if !saved.stderr.is_empty() => {}
            _ => return Err(wrong("saved", &saved.printed())),
        }
    }
    Ok(())
}
