//! What containers take away: calls, by the filter that podman gives every container, and by what Docker's denies besides;
//! /proc; a root that can be written to; memory in /dev/shm; programs in /tmp; a home. clew works there, or says what it
//! needs.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use clew_tests::clew;
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::place::{Place, program, require};

pub fn trials() -> Vec<Trial> {
    let trial = |name: &'static str, test: fn(&Place) -> Result<Completion, Failed>| {
        let title = format!("containers/{name}");
        Trial::ignorable_test(title.clone(), move || test(&Place::new(&title)))
    };
    vec![
        trial("calls of podman", |place| filtered(place, &[])),
        trial("calls of Docker", |place| filtered(place, DOCKER_DENIES)),
        trial("no proc", no_proc),
        trial("read-only root", read_only),
        trial("little shared memory", little_shared_memory),
        trial("no programs in tmp", no_programs),
        trial("no home", no_home),
    ]
}

/// The filter of every container that podman makes, as its package has it.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

/// What Docker's list leaves out of it, for containers without privileges.
const DOCKER_DENIES: &[&str] = &[
    "add_key",
    "bpf",
    "clone3",
    "fsopen",
    "get_mempolicy",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "keyctl",
    "mbind",
    "mount",
    "move_pages",
    "name_to_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "request_key",
    "set_mempolicy",
    "setns",
    "umount2",
    "unshare",
    "userfaultfd",
];

fn filtered(place: &Place, denied: &[&str]) -> Result<Completion, Failed> {
    let Ok(text) = std::fs::read_to_string(PROFILE) else {
        return Ok(Completion::ignored_with(format!("there is no {PROFILE}")));
    };
    let profile: Value = serde_json::from_str(&text)?;
    let filter = compile(&profile, denied)?;
    let confined = |args: &[&str]| -> io::Result<Output> {
        let mut command = place.job(args).command();
        let filter = filter.clone();
        // SAFETY: two calls of the kernel's, with memory that was allocated before the fork.
        unsafe { command.pre_exec(move || install(&filter)) };
        command.output()
    };
    for arguments in [&["little"][..], &["order", "threads"]] {
        let line = [&["record", "-n", "r", program()][..], arguments].concat();
        let natively = Command::new(program()).args(arguments).output()?;
        let recorded = confined(&line)?;
        let told = || format!("{arguments:?}: {recorded:?}");
        require(recorded.status == natively.status, told)?;
        let replayed = confined(&["replay", "--verify", "r"])?;
        let same = replayed.status == recorded.status && replayed.stdout == recorded.stdout;
        require(same, || format!("{arguments:?}: {replayed:?}"))?;
        // A session of gdb goes back in it.
        let back = ["-batch", "-ex", "continue", "-ex", "reverse-stepi"];
        let debugged = confined(&[&["debug", "r", "--"][..], &back].concat())?;
        require(debugged.status.success(), || format!("{debugged:?}"))?;
        confined(&["rm", "r"])?;
    }
    Ok(Completion::Completed)
}

type Instruction = libc::sock_filter;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NO_CALL: u32 = 38;
const NOT_PERMITTED: u32 = 1;

fn instruction(code: u16, otherwise: u8, k: u32) -> Instruction {
    Instruction {
        code,
        jt: 0,
        jf: otherwise,
        k,
    }
}

/// A profile as a program for the kernel: a container without capabilities. Calls that depend on their arguments are let
/// through: none of clew's own do.
fn compile(profile: &Value, denied: &[&str]) -> Result<Vec<Instruction>, Failed> {
    let rules = profile["syscalls"].as_array().ok_or("no rules")?;
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(String::from).collect()
    };
    let mut code = vec![instruction(LOAD, 0, 0)];
    for rule in rules {
        let arches = texts(&rule["includes"]["arches"]);
        let elsewhere = !arches.is_empty() && !arches.contains(&"amd64".to_string());
        if elsewhere || !texts(&rule["includes"]["caps"]).is_empty() {
            continue;
        }
        let depends = rule["args"].as_array().is_some_and(|args| !args.is_empty());
        let allowed = depends || rule["action"] == "SCMP_ACT_ALLOW";
        for name in texts(&rule["names"]) {
            let Some(number) = number_of(&name) else {
                continue;
            };
            let error = match name.as_str() {
                "clone3" => NO_CALL,
                _ => NOT_PERMITTED,
            };
            let answer = match allowed && !denied.contains(&name.as_str()) {
                true => libc::SECCOMP_RET_ALLOW,
                false => libc::SECCOMP_RET_ERRNO | error,
            };
            code.push(instruction(IF_EQUAL, 1, number));
            code.push(instruction(RETURN, 0, answer));
        }
    }
    code.push(instruction(RETURN, 0, libc::SECCOMP_RET_ERRNO | NO_CALL));
    Ok(code)
}

fn number_of(name: &str) -> Option<u32> {
    (0..500u32).find(|nr| clew_calls::table::lookup(u64::from(*nr)).name == name)
}

fn install(filter: &[Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: no pointers; then a program that lives until the call is over, which the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Runs a script in a mount namespace of its own, with `$CLEW`; none where that isn't allowed.
fn apart(place: &Place, script: &str) -> Result<Option<Output>, Failed> {
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|tried| tried.status.success()) {
        return Ok(None);
    }
    let script = format!("set -e\n{script}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .current_dir(&place.dir)
        .env("CLEW", clew::path())
        .env("CLEW_DIR", place.recordings())
        .output()?;
    Ok(Some(output))
}

const RECORD: &str =
    "\"$CLEW\" record -n r -- sh -c 'echo one | cat; exit 3' && exit 9 || test $? = 3\n";
const REPLAY: &str = "\"$CLEW\" replay --verify r && exit 9 || test $? = 3\n";

/// Recording and replaying work there.
fn works(place: &Place, before: &str) -> Result<Completion, Failed> {
    let Some(output) = apart(place, &format!("{before}\n{RECORD}{REPLAY}"))? else {
        return Ok(Completion::ignored_with("no mount namespaces here"));
    };
    require(output.status.success(), || format!("{output:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    require(printed == "one\none\n", || format!("{output:?}"))?;
    Ok(Completion::Completed)
}

/// Recording works; who wants to replay is told what is missing, also by `doctor`.
fn no_proc(place: &Place) -> Result<Completion, Failed> {
    let doctor =
        "\"$CLEW\" replay r && exit 9 || test $? = 125\n\"$CLEW\" doctor && exit 9 || true";
    let script = format!("mount -t tmpfs none /proc\n{RECORD}{doctor}");
    let Some(output) = apart(place, &script)? else {
        return Ok(Completion::ignored_with("no mount namespaces here"));
    };
    let told = String::from_utf8_lossy(&output.stderr);
    let told = told.contains("mount it") && told.contains("/proc");
    require(output.status.success() && told, || format!("{output:?}"))?;
    let advice = String::from_utf8_lossy(&output.stdout).contains("mount /proc");
    require(advice, || format!("{output:?}"))?;
    Ok(Completion::Completed)
}

fn read_only(place: &Place) -> Result<Completion, Failed> {
    // Only the folder of recordings can be written to.
    let all = place.recordings();
    let all = all.display();
    works(
        place,
        &format!(
            "mount --bind {all} {all}\nmount -o remount,bind,ro / 2>/dev/null || mount --bind / / && mount -o remount,bind,ro /\n\
             unset HOME XDG_CACHE_HOME CLEW_CACHE"
        ),
    )
}

fn little_shared_memory(place: &Place) -> Result<Completion, Failed> {
    works(place, "mount -t tmpfs -o size=16k none /dev/shm")
}

fn no_programs(place: &Place) -> Result<Completion, Failed> {
    let tmp = place.dir.join("tmp");
    std::fs::create_dir_all(&tmp)?;
    let shown = tmp.display();
    works(
        place,
        &format!("mount -t tmpfs -o noexec none {shown}\nexport TMPDIR={shown}"),
    )
}

/// A user without a home: clew says where recordings could go; with a folder it works.
fn no_home(_: &Place) -> Result<Completion, Failed> {
    let nobody = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "true"])
        .output();
    if !nobody.is_ok_and(|tried| tried.status.success()) {
        return Ok(Completion::ignored_with("can't become another user here"));
    }
    let run = |args: &[&str], folder: Option<&Path>| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(clew::path())
            .args(args)
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        if let Some(folder) = folder {
            command.env("CLEW_DIR", folder);
        }
        command.output()
    };
    let refused = run(&["record", "true"], None)?;
    let told = String::from_utf8_lossy(&refused.stderr).contains("set CLEW_DIR");
    require(refused.status.code() == Some(125) && told, || {
        format!("{refused:?}")
    })?;
    let all = std::env::temp_dir().join(format!("clew-nobody-{}", std::process::id()));
    std::fs::create_dir(&all)?;
    std::os::unix::fs::chown(&all, Some(65534), None)?;
    let recorded = run(&["record", "-n", "r", "sh", "-c", "exit 3"], Some(&all));
    let replayed = run(&["replay", "--verify", "r"], Some(&all));
    std::fs::remove_dir_all(&all)?;
    let (recorded, replayed) = (recorded?, replayed?);
    require(recorded.status.code() == Some(3), || {
        format!("{recorded:?}")
    })?;
    require(replayed.status.code() == Some(3), || {
        format!("{replayed:?}")
    })?;
    Ok(Completion::Completed)
}
