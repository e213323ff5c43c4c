//! Every guest in `tests/guests`, in each of its build variants, natively and under clew.

use std::path::Path;

use clew_tests::header::Header;
use clew_tests::run::Job;
use clew_tests::{compare, compile, cpu, scratch, sources};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let folder = scratch::sources().join("guests");
    let mut trials = Vec::new();
    for source in sources::list(&folder, &["c", "cpp", "S", "rs"]) {
        let header = Header::read(&source.path);
        let missing = header.cpu.iter().any(|flag| !cpu::has(flag));
        for variant in compile::variants(&source.path, &header) {
            let name = format!("{}/{variant}", source.name);
            let (path, header) = (source.path.clone(), header.clone());
            let ignored = header.long || missing;
            let test_name = name.clone();
            let trial = Trial::test(name, move || check(&test_name, &path, &header, &variant));
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn check(name: &str, source: &Path, header: &Header, variant: &str) -> Result<(), Failed> {
    if header.cpu.iter().any(|flag| !cpu::has(flag)) {
        return Ok(());
    }
    let guest = compile::guest(source, header, variant)?;
    let mut job = Job::new(&guest.program, scratch::fresh(name)).args(header.args.clone());
    job.env.clone_from(&header.env);
    job.env
        .push(("GUEST_LIBS".to_owned(), guest.libs.display().to_string()));
    job.stdin.clone_from(&header.stdin);
    job.timeout = header.timeout;
    compare::native_and_clew(&job, header, &|| {})
}
