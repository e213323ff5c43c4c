//! `clew doctor`: what this machine allows, and how to fix what it doesn't.

use std::ffi::CStr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::arguments::Doctor;
use crate::text::{self, Style};
use crate::{machine, recordings, variables};
use clew_engine::cache::store::Store;
use clew_recording::pack::free_bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    state: State,
    detail: String,
    /// What to do about it; empty if nothing need be.
    fix: String,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    check(name, State::Ok, detail, "")
}

fn check(
    name: &'static str,
    state: State,
    detail: impl Into<String>,
    fix: impl Into<String>,
) -> Check {
    Check {
        name,
        state,
        detail: detail.into(),
        fix: fix.into(),
    }
}

pub fn doctor(line: &Doctor, envp: &[&CStr]) -> i32 {
    let checks = vec![
        cpu(),
        kernel(),
        engine(envp),
        proc(),
        memfd(),
        seccomp(),
        overcommit(),
        mappings(),
        address_space(),
        data(),
        descriptors(),
        file_size(),
        folder(envp),
        cache(envp),
        debugger(envp),
        not_needed(),
    ];
    let report = Report {
        ok: checks.iter().all(|check| check.state != State::Fail),
        checks,
    };
    if line.json {
        let json = serde_json::to_string(&report).unwrap_or_default();
        text::print(&format!("{json}\n"));
    } else {
        text::print(&table(&report, Style::stdout()));
    }
    i32::from(!report.ok)
}

fn table(report: &Report, style: Style) -> String {
    let mut out = String::new();
    let width = report.checks.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or(0);
    for check in &report.checks {
        let state = match check.state {
            State::Ok => style.good("ok  "),
            State::Warn => style.warn("warn"),
            State::Fail => style.bad("FAIL"),
        };
        let (name, detail) = (check.name, text::plain(&check.detail));
        out.push_str(&format!("{state}  {name:<width$}  {detail}\n"));
        if !check.fix.is_empty() {
            let fix = text::plain(&check.fix);
            out.push_str(&format!("      {:<width$}  -> {fix}\n", ""));
        }
    }
    let failed = report
        .checks
        .iter()
        .filter(|check| check.state == State::Fail);
    out.push_str(&match failed.count() {
        0 => "\nclew can record and replay here.\n".to_string(),
        n => format!("\n{} in the way.\n", text::counted(n as u64, "problem")),
    });
    out
}

fn cpu() -> Check {
    let machine = machine::here(false);
    let has = |name: &str| machine.features.contains(name);
    let wide = ["avx2", "avx", "sse4_2", "sse2"]
        .into_iter()
        .find(|f| has(f));
    let detail = format!("{}, up to {}", machine.brand, wide.unwrap_or("nothing"));
    if let Some(problem) = clew_engine::host::cpu::problem() {
        return check("cpu", State::Fail, detail, problem);
    }
    ok("cpu", detail)
}

fn kernel() -> Check {
    let name = machine::here(false).kernel;
    let version = name.split_whitespace().nth(1).unwrap_or("");
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return check("kernel", State::Warn, name, "its version can't be told");
    };
    let version: (u32, u32) = (major, minor);
    if version < (5, 9) {
        return check("kernel", State::Fail, name, "clew needs Linux 5.9 or later");
    }
    ok("kernel", name)
}

/// The proof of the pudding: a program under the engine.
fn engine(envp: &[&CStr]) -> Check {
    const NAME: &str = "engine";
    let Some(program) = ["/bin/true", "/usr/bin/true"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return check(
            NAME,
            State::Warn,
            "there is no /bin/true to try it with",
            "",
        );
    };
    let _ = envp;
    let began = std::time::Instant::now();
    let run = Command::new("/proc/self/exe")
        .args(["run", "--no-cache", program])
        .stdin(Stdio::null())
        .output();
    let fix = "the text says why; docs/errors.md says more, and please report it";
    match run {
        Ok(run) if run.status.success() => {
            let took = text::duration(began.elapsed().as_nanos() as u64);
            ok(NAME, format!("runs {program} in {took}"))
        }
        Ok(run) => {
            let said = String::from_utf8_lossy(&run.stderr);
            let said = said
                .lines()
                .next()
                .unwrap_or("")
                .trim_start_matches("clew: ");
            check(
                NAME,
                State::Fail,
                format!("{program}: {}; {said}", run.status),
                fix,
            )
        }
        Err(error) => check(
            NAME,
            State::Fail,
            format!("can't start itself: {error}"),
            "mount /proc",
        ),
    }
}

fn proc() -> Check {
    match std::fs::read_link("/proc/self/exe") {
        Ok(_) => ok("/proc", "mounted"),
        Err(error) => {
            let fix = "mount it: programs that clew runs expect it, and exec is slower without";
            check(
                "/proc",
                State::Warn,
                format!("/proc/self/exe: {error}"),
                fix,
            )
        }
    }
}

fn memfd() -> Check {
    // SAFETY: a constant name; the descriptor is closed at once.
    let made = unsafe {
        let fd = libc::memfd_create(c"clew doctor".as_ptr(), libc::MFD_CLOEXEC);
        let made = fd >= 0 && libc::ftruncate(fd, 1 << 20) == 0;
        let error = std::io::Error::last_os_error();
        if fd >= 0 {
            libc::close(fd);
        }
        if made { Ok(()) } else { Err(error) }
    };
    match made {
        Ok(()) => ok("memfd", "works"),
        Err(error) => {
            let fix = "events reach the writer through shared memory; allow memfd_create in the container's seccomp profile";
            check("memfd", State::Fail, error.to_string(), fix)
        }
    }
}

fn seccomp() -> Check {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads one number and changes nothing.
    let there =
        unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) } == 0;
    if there {
        return ok("seccomp", "replay can lock itself in");
    }
    let error = std::io::Error::last_os_error();
    let fix = "replay locks itself in with a filter; use a kernel with CONFIG_SECCOMP_FILTER, or allow seccomp in the container";
    check("seccomp", State::Fail, error.to_string(), fix)
}

fn setting(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn overcommit() -> Check {
    let Some(mode) = setting("/proc/sys/vm/overcommit_memory") else {
        return ok("overcommit", "unknown");
    };
    match mode {
        2 => {
            let fix = "large programs may fail to start: sysctl vm.overcommit_memory=0";
            check("overcommit", State::Warn, "strict (2)", fix)
        }
        _ => ok("overcommit", format!("allowed ({mode})")),
    }
}

fn mappings() -> Check {
    const NAME: &str = "vm.max_map_count";
    match setting("/proc/sys/vm/max_map_count") {
        Some(count @ 0..65_530) => {
            let fix = "programs with many threads or files may fail: sysctl vm.max_map_count=65530";
            check(NAME, State::Warn, count.to_string(), fix)
        }
        Some(count) => ok(NAME, count.to_string()),
        None => ok(NAME, "unknown"),
    }
}

/// A limit of this process: what it may be raised to, or none.
fn limit(which: libc::c_int) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one rlimit.
    let got = unsafe { libc::getrlimit(which, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some((limit.rlim_cur, limit.rlim_max))
}

fn address_space() -> Check {
    const NAME: &str = "address space";
    // What clew reserves for a guest, without using it.
    const NEEDED: u64 = 64 << 30;
    match limit(libc::RLIMIT_AS) {
        Some((now, _)) if now < NEEDED => {
            let fix = "clew reserves much more than it uses: ulimit -v unlimited";
            check(
                NAME,
                State::Fail,
                format!("limited to {}", text::size(now)),
                fix,
            )
        }
        Some((now, _)) => ok(NAME, format!("limited to {}", text::size(now))),
        None => ok(NAME, "no limit"),
    }
}

fn data() -> Check {
    const NAME: &str = "data";
    match limit(libc::RLIMIT_DATA) {
        Some((now, _)) if now < 1 << 30 => {
            let fix = "clew's own memory counts as the program's data: ulimit -d unlimited";
            let state = if now < 200 << 20 {
                State::Fail
            } else {
                State::Warn
            };
            check(NAME, state, format!("limited to {}", text::size(now)), fix)
        }
        _ => ok(NAME, "no limit that matters"),
    }
}

fn descriptors() -> Check {
    const NAME: &str = "open files";
    // The channels of `clew debug`'s processes, and the files of a large recording.
    const FOR_DEBUGGING: u64 = 2048;
    let said = |now: u64, most: u64| format!("at most {now}, replays raise it up to {most}");
    match limit(libc::RLIMIT_NOFILE) {
        Some((now, most)) if now < 256 => {
            let fix = "clew needs some for itself: ulimit -n 1024";
            check(NAME, State::Warn, said(now, most), fix)
        }
        Some((now, most)) if most < FOR_DEBUGGING => {
            let fix = "too few for clew debug and watch: raise the hard limit (ulimit -Hn, limits.conf, LimitNOFILE) to 4096";
            check(NAME, State::Warn, said(now, most), fix)
        }
        Some((now, most)) => ok(NAME, said(now, most)),
        None => ok(NAME, "no limit"),
    }
}

fn file_size() -> Check {
    const NAME: &str = "file size";
    match limit(libc::RLIMIT_FSIZE) {
        Some((now, _)) => {
            let fix = "a recording ends where the log reaches it: ulimit -f unlimited";
            check(
                NAME,
                State::Warn,
                format!("limited to {}", text::size(now)),
                fix,
            )
        }
        None => ok(NAME, "no limit"),
    }
}

fn folder(envp: &[&CStr]) -> Check {
    const NAME: &str = "recordings";
    const LITTLE: u64 = 1 << 30;
    const TOO_LITTLE: u64 = 64 << 20;
    let place = match recordings::place(envp) {
        Ok(place) => place,
        Err(error) => return check(NAME, State::Fail, error.to_string(), "set CLEW_DIR"),
    };
    let dir = place.dir();
    // Without making it: the first folder above it that exists.
    let Some(there) = dir.ancestors().find(|path| path.exists()) else {
        return check(NAME, State::Fail, dir.display().to_string(), "set CLEW_DIR");
    };
    if let Err(error) = may_write(there) {
        let fix = "make it writable, or set CLEW_DIR to a folder of yours";
        return check(
            NAME,
            State::Fail,
            format!("{}: {error}", there.display()),
            fix,
        );
    }
    let free = free_bytes(there).unwrap_or(0);
    let detail = format!("{}, {} free", dir.display(), text::size(free));
    let fix = "make room (clew ls, clew rm), or set CLEW_DIR to another disk";
    match free {
        0..TOO_LITTLE => check(NAME, State::Fail, detail, fix),
        TOO_LITTLE..LITTLE => check(NAME, State::Warn, detail, fix),
        _ => ok(NAME, detail),
    }
}

/// Tries it: permissions don't tell of read-only disks.
fn may_write(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.join(format!(".clew-doctor-{}", std::process::id()));
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)
}

fn cache(envp: &[&CStr]) -> Check {
    const NAME: &str = "cache";
    let Some(dir) = Store::location(|name| variables::get(envp, name)) else {
        let fix = "programs start more slowly; set CLEW_CACHE or HOME";
        return check(NAME, State::Warn, "there is no place for it", fix);
    };
    let there = dir.ancestors().find(|path| path.exists());
    let usable = match Store::existing(&dir) {
        Err(error) => Err(error),
        Ok(_) => there.map_or(Ok(()), may_write),
    };
    match usable {
        Ok(()) => ok(NAME, dir.display().to_string()),
        Err(error) => {
            let fix = "programs start more slowly without; chmod 700 it, or set CLEW_CACHE to another folder";
            check(
                NAME,
                State::Warn,
                format!("{}: {error}", dir.display()),
                fix,
            )
        }
    }
}

fn debugger(envp: &[&CStr]) -> Check {
    let search = variables::get(envp, "PATH").unwrap_or_default();
    match std::env::split_paths(&search)
        .map(|dir| dir.join("gdb"))
        .find(|path| path.is_file())
    {
        Some(path) => ok("gdb", path.display().to_string()),
        None => {
            let fix = "only needed to debug with it; apt install gdb";
            check("gdb", State::Warn, "not found", fix)
        }
    }
}

fn not_needed() -> Check {
    ok(
        "not needed",
        "performance counters, ptrace, user namespaces, root",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_to_do() {
        let report = Report {
            ok: false,
            checks: vec![
                ok("cpu", "fine"),
                check("memfd", State::Fail, "EPERM", "allow it"),
            ],
        };
        let text = table(&report, Style::none());
        assert!(text.contains("ok    cpu    fine\n"), "{text}");
        assert!(text.contains("FAIL  memfd  EPERM\n"), "{text}");
        assert!(text.contains("-> allow it\n") && text.contains("1 problem in the way"));
    }

    #[test]
    fn this_machine_can_be_checked() {
        for check in [
            cpu(),
            kernel(),
            memfd(),
            seccomp(),
            overcommit(),
            mappings(),
        ] {
            assert!(!check.detail.is_empty(), "{}", check.name);
        }
        assert!(may_write(Path::new("/proc")).is_err());
    }
}
