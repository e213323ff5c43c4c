//! Workers: replaying processes under command. Each case starts some on a recording made for it, and
//! runs in a forked child, since processes that fork must have one thread.

mod commander;
mod excursions;
mod searches;
mod speed;
mod ways;

pub type Case = (&'static str, fn());

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let mut failed = 0;
    let cases = [
        ways::cases(),
        searches::cases(),
        excursions::cases(),
        speed::cases(&wanted),
    ];
    for (name, case) in cases.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let ok = run(case);
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += i32::from(!ok);
    }
    std::process::exit(i32::from(failed != 0));
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
