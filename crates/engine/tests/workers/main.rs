//! Workers: replaying processes under command. Each case starts some on a recording made for it, and
//! runs in a forked child, since processes that fork must have one thread.

mod commander;
mod excursions;
mod searches;
mod speed;
mod ways;

use libtest_mimic::{Arguments, Trial};

pub type Case = (&'static str, fn());

fn main() {
    let mut arguments = Arguments::from_args();
    // Cases fork: this process must have one thread.
    arguments.test_threads = Some(1);
    let trial = |(name, case): Case| {
        Trial::test(name, move || match run(case) {
            true => Ok(()),
            false => Err("it didn't end as it should".into()),
        })
    };
    let cases = [ways::cases(), searches::cases(), excursions::cases()];
    let mut trials: Vec<Trial> = cases.into_iter().flatten().map(trial).collect();
    // Prints figures, for people.
    trials.push(trial(("speed", speed::speed)).with_ignored_flag(true));
    libtest_mimic::run(&arguments, trials).exit()
}

fn run(case: fn()) -> bool {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a case that hangs is killed; the default action of the clock's signal.
        unsafe {
            libc::alarm(if std::env::var_os("CLEW_WORKERS_ON").is_some() {
                3600
            } else {
                300
            })
        };
        case();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status == 0
}
