//! Signals, threads and crashes of a whole process, without translated code: the cases play the
//! guest. Each runs in a forked child, since it takes over the process's signals and threads.

mod crashes;
mod futexes;
mod guest;
mod processes;
mod proxies;
mod signals;
mod storm;
mod threads;

/// How a case must end.
pub enum End {
    Exit(i32),
    Signal(i32),
}

pub struct Case {
    pub name: &'static str,
    pub run: fn(),
    pub end: End,
}

/// A case that must run to its end.
#[macro_export]
macro_rules! passes {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::Case { name: stringify!($name), run: $name, end: $crate::End::Exit(0) }),*]
    };
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let cases = [
        signals::cases(),
        threads::cases(),
        proxies::cases(),
        futexes::cases(),
        crashes::cases(),
        processes::cases(),
        storm::cases(),
    ];
    let mut failed = 0;
    for case in cases.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|part| case.name.contains(part.as_str())) {
            continue;
        }
        let ok = run(&case);
        println!(
            "test {} ... {}",
            case.name,
            if ok { "ok" } else { "FAILED" }
        );
        failed += i32::from(!ok);
    }
    std::process::exit(i32::from(failed != 0));
}

fn run(case: &Case) -> bool {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a case that hangs is killed; the default action of the clock's signal.
        unsafe { libc::alarm(20) };
        (case.run)();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let (exited, signalled) = (libc::WIFEXITED(status), libc::WIFSIGNALED(status));
    let ok = match case.end {
        End::Exit(code) => exited && libc::WEXITSTATUS(status) == code,
        End::Signal(sig) => signalled && libc::WTERMSIG(status) == sig,
    };
    if !ok {
        println!("  status {status:#x}");
    }
    ok
}
