//! The guests of `tests/guests`: from their sources to trials, one for each build that is asked for.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::header::Header;
use crate::run::Job;
use crate::{compile, cpu, scratch, sources};

/// What is done with a guest: a command, and what its header says.
pub type Check = fn(&Job, &Header) -> Result<(), Failed>;

/// A trial for each guest and each of its `builds`, by names like `suite/signals/basic/pie`; without
/// `suite/` if that is empty.
pub fn trials(
    suite: &str,
    builds: impl Fn(&str, &Header, Vec<String>) -> Vec<String>,
    check: Check,
) -> Vec<Trial> {
    let folder = scratch::sources().join("guests");
    let mut trials = Vec::new();
    for source in sources::list(&folder, &["c", "cpp", "S", "rs"]) {
        // Those are wrong on purpose, and hunted.
        if source.name.starts_with("bugs/") || source.name.starts_with("hunt/") {
            continue;
        }
        let header = Header::read(&source.path);
        let missing = header.cpu.iter().any(|flag| !cpu::has(flag));
        let variants = compile::variants(&source.path, &header);
        for variant in builds(&source.name, &header, variants) {
            let name = match suite {
                "" => format!("{}/{variant}", source.name),
                suite => format!("{suite}/{}/{variant}", source.name),
            };
            let (path, header) = (source.path.clone(), header.clone());
            let ignored = header.long || missing;
            let test_name = name.clone();
            let trial = Trial::test(name, move || {
                if missing {
                    return Ok(());
                }
                check(&job(&test_name, &path, &header, &variant)?, &header)
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    trials
}

/// The guest as a command, for the test `name`.
pub fn job(name: &str, source: &Path, header: &Header, variant: &str) -> Result<Job, Failed> {
    let guest = compile::guest(source, header, variant)?;
    let mut job = Job::new(&guest.program, scratch::fresh(name)).args(header.args.clone());
    job.env.clone_from(&header.env);
    job.env
        .push(("GUEST_LIBS".to_owned(), guest.libs.display().to_string()));
    job.stdin.clone_from(&header.stdin);
    job.timeout = header.timeout;
    Ok(job)
}
