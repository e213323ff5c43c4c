//! Every workload in `tests/real`: a shell script that uses programs of the distribution,
//! run natively and under clew as a whole, shell and children alike; then recorded and replayed.

use std::path::Path;

use clew_tests::header::Header;
use clew_tests::run::Job;
use clew_tests::workloads::Workload;
use clew_tests::{compare, recorded, scratch, sources};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let folder = scratch::sources().join("real");
    let mut trials = Vec::new();
    for source in sources::list(&folder, &["sh"]) {
        let header = Header::read(&source.path);
        let (long, recorded_long) = (header.long, header.long || header.recorded_long);
        let name = source.name.clone();
        let (path, of_live) = (source.path.clone(), header.clone());
        let live = Trial::test(&name, move || {
            check(
                "real",
                &source.name,
                &path,
                &of_live,
                compare::native_and_clew,
            )
        });
        let in_recording = Trial::test(format!("recorded/{name}"), move || {
            check("recorded", &name, &source.path, &header, recorded::recorded)
        });
        trials.push(live.with_ignored_flag(long));
        trials.push(in_recording.with_ignored_flag(recorded_long));
    }
    trials.push(Trial::test("tokio", || {
        tokio("real", compare::native_and_clew)
    }));
    trials.push(Trial::test("recorded/tokio", || {
        tokio("recorded", recorded::recorded)
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Compares a job's native run with another way to run it.
type Compare = fn(&Job, &Header, &dyn Fn()) -> Result<(), Failed>;

fn check(
    suite: &str,
    name: &str,
    script: &Path,
    header: &Header,
    compare: Compare,
) -> Result<(), Failed> {
    let workload = Workload::new(&format!("{suite}.{name}"), name, script, header)?;
    compare(&workload.job, header, &|| workload.prepare())
}

/// A program on tokio, built with this crate; static, multi-threaded, epoll-driven.
fn tokio(suite: &str, compare: Compare) -> Result<(), Failed> {
    let header = Header::default();
    let job = Job::new(
        env!("CARGO_BIN_EXE_guest-tokio"),
        scratch::fresh(&format!("{suite}.tokio")),
    );
    compare(&job, &header, &|| {})
}
