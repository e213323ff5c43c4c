//! The workloads of `tests/real`: from a script to a command, and what it needs made before.

use std::path::{Path, PathBuf};

use crate::header::Header;
use crate::run::Job;
use crate::scratch;

/// A workload as a command, and the script that prepares its folder.
pub struct Workload {
    pub job: Job,
    prepare: PathBuf,
}

impl Workload {
    /// `script` is called `name`; it runs in a folder of `test`'s own. An error names what isn't installed.
    pub fn new(test: &str, name: &str, script: &Path, header: &Header) -> Result<Workload, String> {
        if let Some(program) = header.needs.iter().find(|program| !installed(program)) {
            return Err(format!("{program} is not installed: make setup"));
        }
        let dir = scratch::fresh(test);
        let script = script.display().to_string();
        let mut job = Job::new("/bin/sh", dir).args(["-eu".to_owned(), script]);
        job.env.clone_from(&header.env);
        let lib = scratch::sources().join("real/lib");
        job.env.push(("LIB".to_owned(), lib.display().to_string()));
        job.stdin.clone_from(&header.stdin);
        job.timeout = header.timeout;
        let prepare = lib.join(format!("{name}.prepare.sh"));
        Ok(Workload { job, prepare })
    }

    /// Makes what it needs (a compiled program, say), outside of clew.
    pub fn prepare(&self) {
        if !self.prepare.exists() {
            return;
        }
        let mut command = Job::new("/bin/sh", &self.job.dir).command();
        command.arg("-eu").arg(&self.prepare);
        let cache = scratch::root().join("cache");
        let status = command.env("CACHE", cache).status();
        let done = status.is_ok_and(|status| status.success());
        assert!(done, "{} failed", self.prepare.display());
    }
}

fn installed(program: &str) -> bool {
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin"];
    usual
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
        || std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|dir| dir.join(program).exists())
}
