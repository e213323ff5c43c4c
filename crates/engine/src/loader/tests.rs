//! Loading for real, into the test process.

use super::*;
use crate::memory::testing::memory;
use crate::memory::{Backing, Fetch};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

fn c(s: &str) -> CString {
    CString::new(s).unwrap()
}

fn args(v: &[&str]) -> Vec<CString> {
    v.iter().map(|s| c(s)).collect()
}

/// A directory of our own, gone at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("clew-loader-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, name: &str, bytes: &[u8], mode: u32) -> CString {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        c(path.to_str().unwrap())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn loads_a_dynamic_program_with_its_interpreter() {
    let mut memory = memory();
    let program = resolve(c"/bin/true", &args(&["true", "x"])).unwrap();
    let entry = load(&mut memory, &program, &args(&["A=b"]), Some([7; 16]), false).unwrap();

    let Fetch::Executable(code) = memory.fetch(entry.pc) else {
        panic!("no code at the entry")
    };
    assert!(code.immutable && !code.shared);
    let interp = code.image.unwrap();
    assert_ne!(interp.file, program.exe.identity);
    let Fetch::Executable(exe) = memory.fetch(entry.exe_entry) else {
        panic!("no program")
    };
    assert_eq!(exe.image.unwrap().file, program.exe.identity);
    assert_eq!(exe.image.unwrap().base, entry.exe_base);
    assert!(memory.build_id(entry.exe_base).is_some());

    // The code really is the file's.
    let offset = entry.exe_entry.wrapping_add(exe.image.unwrap().to_offset) as usize;
    let file = std::fs::read("/bin/true").unwrap();
    // SAFETY: it was just mapped readable.
    let mapped = unsafe { std::slice::from_raw_parts(entry.exe_entry as *const u8, 16) };
    assert_eq!(mapped, &file[offset..offset + 16]);

    // The stack begins with argc and argv[0].
    // SAFETY: the stack is mapped.
    let (argc, argv0) = unsafe { *(entry.sp as *const (u64, u64)) };
    assert_eq!((argc, argv0), (2, entry.args.start));
    assert_eq!(memory.find(entry.sp).unwrap().backing, Backing::Stack);

    let text = String::from_utf8(memory.maps_text().unwrap()).unwrap();
    let exe = std::fs::canonicalize("/bin/true").unwrap();
    let line = |what: &str| {
        text.lines()
            .find(|l| l.contains(what))
            .unwrap_or_else(|| panic!("{what} in {text}"))
    };
    assert!(line(exe.to_str().unwrap()).contains("r--p 00000000"));
    assert!(
        text.lines()
            .any(|l| l.contains("r-xp") && l.contains(exe.to_str().unwrap()))
    );
    assert!(line("[vdso]").contains("r-xp") && line("[stack]").contains("rw-p"));
    assert_eq!(line("[stack]").find("[stack]"), Some(73));
    let size = |l: &str| {
        let (a, b) = l.split(' ').next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(b, 16).unwrap() - u64::from_str_radix(a, 16).unwrap()
    };
    assert!(
        size(line("[stack]")) < 1 << 20,
        "shown as far as it has grown"
    );
    assert!(!text.contains("clew"), "nothing of the engine: {text}");
}

#[test]
fn the_same_file_gets_the_same_place() {
    let place = || {
        let mut memory = memory();
        let program = resolve(c"/bin/true", &args(&["true"])).unwrap();
        let entry = load(&mut memory, &program, &[], None, false).unwrap();
        (entry.pc, entry.exe_base)
    };
    assert_eq!(place(), place());
}

#[test]
fn the_stack_grows_by_itself() {
    let mut memory = memory();
    let program = resolve(c"/bin/true", &args(&["true"])).unwrap();
    let entry = load(&mut memory, &program, &[], None, false).unwrap();
    let below = entry.sp - (4 << 20);
    assert!(memory.writable(below));
    // SAFETY: within the limit of 8 MiB the kernel extends the mapping.
    unsafe { (below as *mut u64).write_volatile(1) };
}

#[test]
fn loads_a_static_program_and_clears_its_bss() {
    let dir = Dir::new("static");
    let source = dir.file(
        "t.c",
        b"char big[300000]; int some[5] = {1}; int main(void){return big[5];}",
        0o644,
    );
    for flags in [&["-static", "-no-pie"][..], &["-static-pie"], &["-no-pie"]] {
        let exe = dir.0.join("t");
        let built = std::process::Command::new("cc")
            .args(flags)
            .arg("-o")
            .arg(&exe)
            .arg(source.to_str().unwrap())
            .status();
        assert!(built.expect("a C compiler").success());
        let mut memory = memory();
        let path = c(exe.to_str().unwrap());
        let program = resolve(&path, &args(&["t"])).unwrap();
        let entry = load(&mut memory, &program, &[], None, false).unwrap();
        assert_eq!(flags.contains(&"-no-pie"), entry.exe_base == 0x40_0000);
        let bss = memory
            .iter()
            .filter(|m| m.start >= entry.exe_base && m.backing == Backing::Anon);
        let bss = *bss.max_by_key(|m| m.len()).unwrap();
        assert!(bss.len() > 250_000, "{bss:?}");
        // SAFETY: it is mapped readable.
        let zero =
            unsafe { std::slice::from_raw_parts(bss.start as *const u8, bss.len() as usize) };
        assert!(zero.iter().all(|&b| b == 0));
    }
}

#[test]
fn scripts_rewrite_arguments() {
    let dir = Dir::new("script");
    let path = dir.file("s", b"#!/bin/true -a b \nexit\n", 0o755);
    let got = resolve(&path, &args(&["s", "one", "two"])).unwrap();
    let argv: Vec<_> = got.argv.iter().map(|a| a.to_str().unwrap()).collect();
    assert_eq!(
        argv,
        ["/bin/true", "-a b", path.to_str().unwrap(), "one", "two"]
    );
    assert_eq!(got.execfn, path);
    assert_eq!(got.exe_path(), std::fs::canonicalize("/bin/true").unwrap());
}

#[test]
fn as_many_nested_scripts_as_the_kernel_allows() {
    let dir = Dir::new("nested");
    let mut interpreter = c("/bin/true");
    for level in 1..=6 {
        let line = format!("#!{}\n", interpreter.to_str().unwrap());
        interpreter = dir.file(&format!("s{level}"), line.as_bytes(), 0o755);
        let native = std::process::Command::new(interpreter.to_str().unwrap()).status();
        match resolve(&interpreter, &args(&["s"])) {
            Ok(got) => {
                assert!(native.is_ok(), "level {level}");
                assert_eq!(got.argv.len(), 1 + level);
            }
            Err(e) => assert_eq!(
                native.unwrap_err().raw_os_error(),
                Some(e.errno()),
                "level {level}"
            ),
        }
    }
}

#[test]
fn refusals_have_execs_errno_and_the_shells_status() {
    let dir = Dir::new("refuse");
    let plain = dir.file("plain", b"echo hello\n", 0o755);
    let noexec = dir.file("noexec", b"#!/bin/sh\n", 0o644);
    let orphan = dir.file("orphan", b"#!/no/such/interpreter\n", 0o755);
    let empty = dir.file("empty", b"", 0o755);
    let missing = c(dir.0.join("missing").to_str().unwrap());
    let below = c(dir.0.join("plain/x").to_str().unwrap());
    let folder = c(dir.0.to_str().unwrap());
    let fifo = c(dir.0.join("fifo").to_str().unwrap());
    // SAFETY: the path ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o755) }, 0);
    let cases = [
        (&plain, libc::ENOEXEC, 126),
        (&noexec, libc::EACCES, 126),
        (&orphan, libc::ENOENT, 127),
        (&empty, libc::ENOEXEC, 126),
        (&missing, libc::ENOENT, 127),
        (&below, libc::ENOTDIR, 127),
        (&folder, libc::EACCES, 126),
        (&fifo, libc::EACCES, 126),
    ];
    for (path, errno, status) in cases {
        let e = resolve(path, &args(&["x"])).unwrap_err();
        assert_eq!((e.errno(), e.exit_status()), (errno, status), "{e}");
        assert!(!e.to_string().contains("os error"), "{e}");
    }
}

#[test]
fn a_program_linked_into_the_code_cache_is_refused_with_the_address() {
    let dir = Dir::new("place");
    let source = dir.file("t.c", b"int main(void){return 0;}", 0o644);
    let exe = dir.0.join("t");
    let built = std::process::Command::new("cc")
        .args(["-static", "-no-pie", "-Wl,-Ttext-segment=0x60000000", "-o"])
        .arg(&exe)
        .arg(source.to_str().unwrap())
        .status();
    assert!(built.expect("a C compiler").success());
    let mut memory = memory();
    let program = resolve(&c(exe.to_str().unwrap()), &args(&["t"])).unwrap();
    let e = load(&mut memory, &program, &[], None, false).unwrap_err();
    assert!(
        matches!(e, LoadError::Place { .. }) && e.to_string().contains("0x60000000"),
        "{e}"
    );
}

#[test]
fn truncated_files_are_errors() {
    let dir = Dir::new("cut");
    let whole = std::fs::read("/bin/true").unwrap();
    for len in [5, 63, 64, 500, 4095, 4096, 5000, whole.len() / 2] {
        let path = dir.file("cut", &whole[..len], 0o755);
        let mut memory = memory();
        let program = resolve(&path, &args(&["x"])).unwrap();
        // Some cuts leave all that loading looks at; the guest then meets SIGBUS, as natively.
        if let Err(e) = load(&mut memory, &program, &[], None, false) {
            assert_eq!(e.errno(), libc::ENOEXEC, "{len}: {e}");
        } else {
            assert!(len > 600, "{len}");
        }
    }
}

/// Loads a program and lets a child process run it, natively: images, stack, auxiliary vector and
/// vdso must satisfy the real C library. Returns its output and exit status.
fn run_natively(path: &CString, argv: &[&str], envp: &[&str]) -> (String, i32) {
    use std::io::Read;
    use std::os::fd::FromRawFd;
    let mut memory = memory();
    let program = resolve(path, &args(argv)).unwrap();
    let entry = load(&mut memory, &program, &args(envp), None, false).unwrap();
    let code: Vec<_> = memory
        .iter()
        .filter(|m| m.executable())
        .map(|m| (m.start, m.len()))
        .collect();
    let mut pipe = [0; 2];
    // SAFETY: the child makes raw system calls only (and frees nothing: another thread may hold the
    // allocator), until it becomes the guest.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let pid = syscall!(libc::SYS_fork);
        if pid == 0 {
            syscall!(libc::SYS_dup2, pipe[1], 1);
            for &(start, len) in &code {
                syscall!(
                    libc::SYS_mprotect,
                    start,
                    len,
                    libc::PROT_READ | libc::PROT_EXEC
                );
            }
            std::arch::asm!(
                "mov rsp, {sp}", "xor edx, edx", "xor ebp, ebp", "jmp {pc}",
                sp = in(reg) entry.sp, pc = in(reg) entry.pc, options(noreturn)
            );
        }
        libc::close(pipe[1]);
        let mut out = String::new();
        std::fs::File::from_raw_fd(pipe[0])
            .read_to_string(&mut out)
            .unwrap();
        let mut status = 0;
        assert_eq!(libc::waitpid(pid as i32, &mut status, 0), pid as i32);
        (out, status)
    }
}

#[test]
fn loaded_programs_run() {
    let out = run_natively(&c("/bin/echo"), &["echo", "hello", "world"], &[]);
    assert_eq!(out, ("hello world\n".into(), 0));
    let out = run_natively(&c("/usr/bin/env"), &["env"], &["A=1", "B=two"]);
    assert_eq!(out, ("A=1\nB=two\n".into(), 0));

    let dir = Dir::new("run");
    let source = br#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/auxv.h>
        #include <time.h>
        static char zeros[100000];
        static int set[3] = {1, 2, 3};
        static __thread int local = 5;
        int main(int argc, char **argv) {
            struct timespec ts;
            for (unsigned i = 0; i < sizeof zeros; i++) if (zeros[i]) return 1;
            if (clock_gettime(CLOCK_REALTIME, &ts) || labs(ts.tv_sec - time(0)) > 1) return 2;
            if (!getauxval(AT_RANDOM) || getauxval(AT_PAGESZ) != 4096) return 3;
            free(malloc(1 << 20)); free(malloc(10));
            printf("%d %d %s %s %s\n", set[2], local, argv[1], (char *)getauxval(AT_EXECFN),
                   (char *)getauxval(AT_PLATFORM));
            return 7;
        }"#;
    let source = dir.file("t.c", source, 0o644);
    let variants: [&[&str]; 6] = [
        &["-static", "-no-pie"],
        &["-static-pie"],
        &["-no-pie"],
        &["-pie"],
        &["-pie", "-Wl,-z,max-page-size=0x200000"],
        &["-no-pie", "-Wl,-z,noseparate-code"],
    ];
    for flags in variants {
        let exe = dir.0.join("t");
        let mut cc = std::process::Command::new("cc");
        let built = cc
            .args(flags)
            .arg("-o")
            .arg(&exe)
            .arg(source.to_str().unwrap())
            .status();
        assert!(built.expect("a C compiler").success());
        let path = c(exe.to_str().unwrap());
        let (out, status) = run_natively(&path, &["t", "x"], &["PATH=/bin"]);
        assert_eq!(
            out,
            format!("3 5 x {} x86_64\n", exe.display()),
            "{flags:?}"
        );
        assert_eq!(status, 7 << 8, "{flags:?}");
    }
}
