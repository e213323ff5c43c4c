//! The page in Chromium.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::client::View;
use crate::common;
use crate::safety::hostile_guest;

/// The same in Chromium, by Playwright; needs npm and chromium.
pub fn browser() {
    let (guest, recording) = hostile_guest();
    let evil = View::on(&recording, &guest.folder);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/demo/jobs.c");
    let program = guest.folder.join("jobs");
    let compiled = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(demo)
        .status()
        .unwrap();
    assert!(compiled.success());
    let hunted = Command::new(common::clew())
        .arg("hunt")
        .arg(&program)
        .env("CLEW_DIR", &guest.folder)
        .current_dir(&guest.folder)
        .output()
        .unwrap();
    assert!(hunted.status.success(), "{hunted:?}");
    let jobs = View::on(&guest.folder.join("jobs-1"), &guest.folder);
    // A million events and more.
    let many = guest.folder.join("many");
    let source = guest.folder.join("many.c");
    let code = "#include <unistd.h>\n#include <sys/syscall.h>\nint main(void) { for (int i = 0; i < 1000000; i++) syscall(SYS_getppid); return 0; }\n";
    std::fs::write(&source, code).unwrap();
    let made = Command::new("cc")
        .args(["-g", "-o"])
        .arg(guest.folder.join("calls"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(made.success());
    let recorded = Command::new(common::clew())
        .args(["record", "-o"])
        .arg(&many)
        .arg("--")
        .arg(guest.folder.join("calls"))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(recorded.success());
    let long = View::on(&many, &guest.folder);
    let url = |view: &View| format!("http://127.0.0.1:{}/?token={}", view.port, view.token);
    let ran = Command::new("sh")
        .args(["-c", "npm install --silent --no-audit --no-fund playwright-core@1 && cp \"$0\" page.mjs && exec node page.mjs \"$@\""])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser.mjs"))
        .args([url(&jobs), url(&evil), url(&long)])
        .current_dir(&guest.folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{errors}");
}
