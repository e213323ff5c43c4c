//! What cannot be run: the shell's usual status, one clear message, never a hang, never a
//! status that says the engine itself failed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use clew_tests::clew;
use clew_tests::compare::report;
use clew_tests::run::{Job, Outcome};
use clew_tests::scratch;
use libtest_mimic::{Arguments, Failed, Trial};

/// The status with which clew says that the fault is its own.
const ENGINE_FAULT: i32 = 125;

fn main() {
    let mut trials = vec![
        Trial::test("missing_program", || refused("no-such-program", None, 127)),
        Trial::test("missing_path", || refused("./no/such/program", None, 127)),
        Trial::test("directory", || refused("/tmp", None, 126)),
        Trial::test("not_executable", || {
            refused_file("plain", &elf(), 0o644, 126)
        }),
        Trial::test("empty_file_not_executable", || {
            refused_file("none", b"", 0o644, 126)
        }),
        Trial::test("missing_interpreter", || {
            refused_file("script", b"#!/no/such/interpreter\n", 0o755, 127)
        }),
        Trial::test("text_without_magic", || refused_or_shell("just words\n")),
        Trial::test("interpreter_loop", || {
            refused_file("loop", b"#!./loop\n", 0o755, 126)
        }),
        Trial::test("elf_32_bit", || {
            refused_file("i386", &patched(&[(4, 1), (18, 3)]), 0o755, 126)
        }),
        Trial::test("elf_arm", || {
            refused_file("arm", &patched(&[(18, 183)]), 0o755, 126)
        }),
        Trial::test("elf_big_endian", || {
            refused_file("big", &patched(&[(5, 2)]), 0o755, 126)
        }),
        Trial::test("elf_object_file", || {
            refused_file("object", &patched(&[(16, 1)]), 0o755, 126)
        }),
        Trial::test("truncated_header", || {
            refused_file("short", &elf()[..40], 0o755, 126)
        }),
        Trial::test("no_program_headers", || {
            refused_file("none", &patched(&[(56, 0)]), 0o755, 126)
        }),
    ];
    for part in 0..8 {
        trials.push(Trial::test(format!("mutated_elf_{part}"), move || {
            mutations(part, 40)
        }));
    }
    trials.push(Trial::test("truncated_elf", truncations));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A small static executable to be damaged.
fn elf() -> Vec<u8> {
    let source = scratch::sources().join("guests/images/bare.S");
    let header = clew_tests::header::Header::read(&source);
    let guest = clew_tests::compile::guest(&source, &header, "bare").expect("an assembler");
    fs::read(guest.program).expect("a guest that was just built")
}

fn patched(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = elf();
    for &(at, value) in changes {
        bytes[at] = value;
        if at == 16 || at == 18 || at == 56 {
            bytes[at + 1] = 0;
        }
    }
    bytes
}

fn write(path: &Path, bytes: &[u8], mode: u32) {
    fs::write(path, bytes).expect("a writable scratch folder");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

fn refused_file(name: &str, bytes: &[u8], mode: u32, status: i32) -> Result<(), Failed> {
    refused(&format!("./{name}"), Some((bytes, mode)), status)
}

/// Runs `program` under clew, which must refuse it with `status` and a message that names it.
fn refused(program: &str, file: Option<(&[u8], u32)>, status: i32) -> Result<(), Failed> {
    let (job, outcome) = run(program, file);
    let message = String::from_utf8_lossy(&outcome.stderr);
    if stand_in() {
        return Ok(());
    }
    if outcome.status.and_then(|status| status.code()) != Some(status) {
        let what = format!("not refused with status {status}");
        return Err(report(&what, &outcome, &[("clew", &job)]));
    }
    let name = program.trim_start_matches("./");
    if !message.starts_with("clew: ") || !message.contains(name) || !outcome.stdout.is_empty() {
        return Err(report("no clear message", &outcome, &[("clew", &job)]));
    }
    Ok(())
}

/// A text file without `#!` is refused by the kernel but run by shells: either is right.
fn refused_or_shell(text: &str) -> Result<(), Failed> {
    let (job, outcome) = run("./words", Some((text.as_bytes(), 0o755)));
    let code = outcome.status.and_then(|status| status.code());
    match code {
        Some(126 | 127) => Ok(()),
        _ => Err(report(
            "neither refused nor run",
            &outcome,
            &[("clew", &job)],
        )),
    }
}

fn run(program: &str, file: Option<(&[u8], u32)>) -> (Job, Outcome) {
    let name = program.replace(['/', '.'], "");
    let dir = scratch::fresh(&format!("bad.{name}.{}", file.map_or(0, |(b, _)| b.len())));
    if let Some((bytes, mode)) = file {
        write(&dir.join(program), bytes, mode);
    }
    let mut job = Job::new(program, dir);
    job.timeout = Duration::from_secs(10);
    let job = job.under_clew(&[]);
    let outcome = job.run();
    (job, outcome)
}

/// Headers with random damage: natively most are refused or die; under clew none may hang or
/// take the engine down.
fn mutations(part: u64, count: usize) -> Result<(), Failed> {
    let original = elf();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(part + 1);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Headers and program headers of the little executable.
    let area = original.len().min(64 + 56 * 8) as u64;
    for number in 0..count {
        let mut bytes = original.clone();
        for _ in 0..1 + next() % 4 {
            let at = usize::try_from(next() % area).expect("a small number");
            let choices = [0, 1, 0x7f, 0x80, 0xff, next().to_le_bytes()[0]];
            bytes[at] = choices[usize::try_from(next() % 6).expect("a small number")];
        }
        survives(&format!("mutated-{part}-{number}"), &bytes)?;
    }
    Ok(())
}

fn truncations() -> Result<(), Failed> {
    let original = elf();
    for length in (1..original.len()).step_by(original.len() / 60) {
        survives(&format!("cut-{length}"), &original[..length])?;
    }
    Ok(())
}

/// Whatever happens to a damaged file, it must not be a hang or an engine fault.
fn survives(name: &str, bytes: &[u8]) -> Result<(), Failed> {
    let dir = scratch::fresh(&format!("bad.{name}"));
    write(&dir.join("damaged"), bytes, 0o755);
    let mut job = Job::new("./damaged", &dir);
    job.timeout = Duration::from_secs(10);
    let job = job.under_clew(&[]);
    let outcome = job.run();
    let Some(status) = outcome.status else {
        return Err(report("hung", &outcome, &[("clew", &job)]));
    };
    let message = String::from_utf8_lossy(&outcome.stderr);
    if status.code() == Some(ENGINE_FAULT) || message.contains("panicked") {
        return Err(report("engine fault", &outcome, &[("clew", &job)]));
    }
    if status.signal() == Some(6) {
        return Err(report("aborted", &outcome, &[("clew", &job)]));
    }
    let _ = fs::remove_dir_all(dir);
    Ok(())
}

/// Whether `CLEW` is the stand-in that runs programs natively and has messages of its own.
fn stand_in() -> bool {
    clew::path().ends_with("native-clew")
}
