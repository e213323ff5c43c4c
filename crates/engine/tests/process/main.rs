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

use libtest_mimic::{Arguments, Trial};

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
    let mut arguments = Arguments::from_args();
    // Cases fork: this process must have one thread.
    arguments.test_threads = Some(1);
    let cases = [
        signals::cases(),
        threads::cases(),
        proxies::cases(),
        futexes::cases(),
        crashes::cases(),
        processes::cases(),
        storm::cases(),
    ];
    let trial = |case: Case| {
        Trial::test(case.name, move || match run(&case) {
            true => Ok(()),
            false => Err("it didn't end as it should".into()),
        })
    };
    let trials = cases.into_iter().flatten().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit()
}

fn run(case: &Case) -> bool {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a case that hangs is killed; the default action of the clock's signal.
        unsafe { libc::alarm(100) };
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
