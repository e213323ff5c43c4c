//! Saved translations: whatever happens to the folder, programs run as they should.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SCRIPT: &str = "echo $((6*7)); for i in 1 2 3; do /bin/echo $i; done; ls / | sort | head -1";

struct Folder(PathBuf);

impl Folder {
    /// A cache folder that doesn't exist yet.
    fn new(name: &str) -> Folder {
        let base = std::env::temp_dir().join(format!("clew-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base).unwrap();
        Folder(base)
    }

    fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    /// Files with translations.
    fn saved(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache()).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "code"));
        paths.sort();
        paths
    }

    /// Runs the script until nothing new is saved.
    fn settle(&self) {
        for _ in 0..10 {
            let before = self.state();
            check(&self.cache());
            if self.state() == before {
                return;
            }
        }
        panic!("each run saves something new");
    }

    fn state(&self) -> BTreeMap<PathBuf, (u64, i64, i64)> {
        let Ok(entries) = fs::read_dir(self.cache()) else {
            return BTreeMap::new();
        };
        let entry = |entry: fs::DirEntry| {
            let meta = entry.metadata().unwrap();
            (entry.path(), (meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        entries.map(|e| entry(e.unwrap())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn clew(cache: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clew"));
    command
        .args(args)
        .env("CLEW_CACHE", cache)
        .stdin(Stdio::null());
    command
}

fn native() -> Output {
    Command::new("sh").args(["-c", SCRIPT]).output().unwrap()
}

/// Runs the script under clew; its output and status must be the native ones. Returns stderr.
fn check(cache: &Path) -> String {
    let got = clew(cache, &["run", "sh", "-c", SCRIPT]).output().unwrap();
    let stderr = String::from_utf8_lossy(&got.stderr).into_owned();
    let want = native();
    assert_eq!(got.status.code(), want.status.code(), "{stderr}");
    assert_eq!(
        String::from_utf8_lossy(&got.stdout),
        String::from_utf8_lossy(&want.stdout),
        "{stderr}"
    );
    stderr
}

fn quietly(cache: &Path) {
    assert_eq!(check(cache), "");
}

/// `clew cache` with these flags: status, stdout, stderr.
fn cache_command(cache: &Path, flags: &[&str]) -> (i32, String, String) {
    let args = [&["cache"], flags].concat();
    let got = clew(cache, &args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        got.status.code().unwrap(),
        text(got.stdout),
        text(got.stderr),
    )
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[test]
fn shows_and_clears() {
    let folder = Folder::new("shows");
    let (status, text, _) = cache_command(&folder.cache(), &[]);
    assert_eq!(status, 0);
    assert!(text.contains(": 0 images, 0 B of"), "{text}");
    assert!(!folder.cache().exists(), "looking makes nothing");

    quietly(&folder.cache());
    let (status, text, _) = cache_command(&folder.cache(), &[]);
    assert_eq!(status, 0);
    let libc = text.lines().find(|line| line.contains("libc.so.6"));
    assert!(libc.is_some_and(|line| line.contains(" KiB ")), "{text}");
    let (status, json, _) = cache_command(&folder.cache(), &["--json"]);
    assert_eq!(status, 0);
    assert!(
        json.starts_with("{\"folder\":\"/") && json.ends_with("]}\n"),
        "{json}"
    );
    assert_eq!(
        json.matches("\"usable\":true").count(),
        folder.saved().len()
    );
    assert!(json.contains("libc.so.6\",\"build_id\":\""), "{json}");

    fs::write(folder.cache().join("mine"), "not clew's").unwrap();
    fs::write(folder.cache().join("tmp-1-left.code"), "x").unwrap();
    let (status, text, _) = cache_command(&folder.cache(), &["--clear"]);
    assert_eq!(status, 0);
    assert!(text.contains(": removed "), "{text}");
    let left: Vec<_> = folder.state().into_keys().collect();
    assert_eq!(left, [folder.cache().join("mine")]);
    let (_, json, _) = cache_command(&folder.cache(), &["--clear", "--json"]);
    assert!(json.ends_with("\"removed\":0,\"bytes\":0}\n"), "{json}");
    quietly(&folder.cache());
}

#[test]
fn a_folder_that_is_not_private_is_refused() {
    let folder = Folder::new("refused");
    quietly(&folder.cache());
    fs::set_permissions(folder.cache(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = folder.state();
    assert!(check(&folder.cache()).contains("not a private folder"));
    let (status, stdout, stderr) = cache_command(&folder.cache(), &["--clear"]);
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.contains("not a private folder"), "{stderr}");
    fs::set_permissions(folder.cache(), fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(folder.cache(), Some(12345), None).unwrap();
        assert!(check(&folder.cache()).contains("not a private folder"));
        std::os::unix::fs::chown(folder.cache(), Some(0), None).unwrap();
        // A file of somebody else's in the folder isn't read either, and then replaced.
        for path in folder.saved() {
            std::os::unix::fs::chown(path, Some(12345), None).unwrap();
        }
        quietly(&folder.cache());
    }
    assert_eq!(
        folder.state().keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    let link = folder.0.join("link");
    symlink(folder.cache(), &link).unwrap();
    assert!(check(&link).contains("not a private folder"));
}

#[test]
fn no_place_is_no_problem() {
    for place in ["/proc/clew", "/dev/null/clew", "/sys/clew"] {
        quietly(Path::new(place));
    }
    let got = clew(Path::new("relative"), &["cache"])
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    assert_eq!(got.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&got.stderr).contains("CLEW_CACHE"));
}

#[test]
fn a_folder_that_cannot_be_written() {
    let folder = Folder::new("unwritable");
    fs::create_dir(folder.cache()).unwrap();
    fs::set_permissions(folder.cache(), fs::Permissions::from_mode(0o500)).unwrap();
    quietly(&folder.cache());
}

/// A limit on the size of files is the guest's, and no reason to die for the engine's.
#[test]
fn a_limit_on_file_sizes() {
    let folder = Folder::new("limit");
    let clew = env!("CARGO_BIN_EXE_clew");
    for limit in [0, 1, 100] {
        let line = format!("ulimit -f {limit}; exec {clew} run sh -c '{SCRIPT}'");
        let got = Command::new("sh")
            .args(["-c", &line])
            .env("CLEW_CACHE", folder.cache())
            .output()
            .unwrap();
        assert!(got.status.success(), "{:?}", got.status);
        assert_eq!(got.stdout, native().stdout);
    }
}

/// The second run of a program finds everything saved, and changes nothing.
#[test]
fn runs_settle() {
    let folder = Folder::new("settle");
    folder.settle();
    let got = clew(&folder.cache(), &["run", "--stats=all", "sh", "-c", SCRIPT])
        .output()
        .unwrap();
    let stderr = String::from_utf8(got.stderr).unwrap();
    let blocks: Vec<&str> = stderr.lines().filter(|l| l.contains("blocks: ")).collect();
    assert!(blocks.len() >= 5, "{stderr}");
    assert!(blocks.iter().all(|l| l.ends_with("blocks: 0")), "{stderr}");
}

#[test]
fn damaged_files_are_not_used() {
    let folder = Folder::new("damaged");
    folder.settle();
    let good: Vec<(PathBuf, Vec<u8>)> = folder
        .saved()
        .into_iter()
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    let with_all = |damage: &dyn Fn(&mut Vec<u8>)| {
        for (path, bytes) in &good {
            let mut bytes = bytes.clone();
            damage(&mut bytes);
            fs::remove_file(path).unwrap();
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        quietly(&folder.cache());
    };
    for len in [0, 1, 100, 4095, 4096, 4097, 10_000] {
        with_all(&|bytes| bytes.truncate(len));
    }
    with_all(&|bytes| bytes.truncate(bytes.len() - 1));
    with_all(&|bytes| bytes.push(0));
    with_all(&|bytes| bytes.fill(0));
    with_all(&|bytes| bytes.fill(0xff));
    // Every word of the header, and of the path behind it.
    for word in 0..18 {
        with_all(&|bytes| bytes[8 * word] ^= 1);
        with_all(&|bytes| bytes[8 * word + 7] ^= 0x80);
    }
    // The translations of one image under the name of another.
    with_all(&|bytes| {
        let other = good.iter().find(|(_, other)| other != bytes).unwrap();
        *bytes = other.1.clone();
    });
}

#[test]
fn odd_things_in_the_folder() {
    let folder = Folder::new("odd");
    folder.settle();
    let makers: [&dyn Fn(&Path); 4] = [
        &|path| fs::create_dir(path).unwrap(),
        &|path| symlink("/etc/passwd", path).unwrap(),
        &|path| symlink(path, path).unwrap(),
        &|path| {
            let made = Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        },
    ];
    for make in makers {
        let mut paths = folder.saved();
        paths.extend(["atlas", "cpuid"].map(|name| folder.cache().join(name)));
        for path in &paths {
            fs::remove_file(path)
                .or_else(|_| fs::remove_dir(path))
                .unwrap();
            make(path);
        }
        quietly(&folder.cache());
        let (status, _, stderr) = cache_command(&folder.cache(), &[]);
        assert_eq!((status, stderr.as_str()), (0, ""));
    }
}

#[test]
fn garbage_in_the_small_files() {
    let folder = Folder::new("garbage");
    folder.settle();
    for name in ["atlas", "cpuid"] {
        let path = folder.cache().join(name);
        let good = fs::read(&path).unwrap();
        let mut variants = vec![Vec::new(), vec![0; 4000], vec![0xff; 4000]];
        for cut in [1, 39, 79, 80, 81, good.len() - 1] {
            variants.push(good[..cut].to_vec());
        }
        for at in (0..good.len()).step_by(37) {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            // Answers of cpuid are trusted: no CPU gives those of another one.
            if name == "atlas" || at < 40 {
                variants.push(bytes);
            }
        }
        for bytes in variants {
            fs::write(&path, bytes).unwrap();
            quietly(&folder.cache());
        }
    }
}

#[test]
fn many_writers_at_once() {
    let folder = Folder::new("writers");
    let start = |_| {
        clew(&folder.cache(), &["run", "sh", "-c", SCRIPT])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let want = native().stdout;
    for _ in 0..2 {
        let children: Vec<_> = (0..20).map(start).collect();
        for child in children {
            let got = child.wait_with_output().unwrap();
            assert!(got.status.success());
            assert_eq!(String::from_utf8_lossy(&got.stderr), "");
            assert_eq!(got.stdout, want);
        }
    }
    let left = folder.state().into_keys();
    let temporary = left.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("tmp-") || name.starts_with("cpuid.")
    });
    assert_eq!(temporary.count(), 0);
    // All of what they saved is good.
    let (_, json, _) = cache_command(&folder.cache(), &["--json"]);
    assert!(!json.contains("\"usable\":false"), "{json}");
    folder.settle();
}

/// A folder with translations of many programs, and a limit on open files below their number.
#[test]
fn a_replay_opens_what_it_needs() {
    let folder = Folder::new("many");
    folder.settle();
    let saved = folder.saved();
    let others = 600;
    for number in 0..others {
        let name = format!("{:08x}-{number:016x}.code", 0x1234_0000 + number);
        fs::copy(&saved[0], folder.cache().join(name)).unwrap();
    }
    let limited = |command: &str| {
        let run = format!(
            "ulimit -n 400; exec {} {command}",
            env!("CARGO_BIN_EXE_clew")
        );
        let mut sh = Command::new("sh");
        sh.args(["-c", &run])
            .env("CLEW_CACHE", folder.cache())
            .env("CLEW_DIR", folder.0.join("recordings"))
            .stdin(Stdio::null());
        sh.output().unwrap()
    };
    let recorded = limited("record -n x sh -c 'echo $(ulimit -n); ls / | head -1'");
    assert!(recorded.status.success(), "{recorded:?}");
    assert!(recorded.stdout.starts_with(b"400\n"), "{recorded:?}");
    let replayed = limited("replay --verify x");
    let stderr = String::from_utf8_lossy(&replayed.stderr);
    assert!(
        replayed.status.success() && stderr.contains("verified"),
        "{stderr}"
    );
    assert_eq!(replayed.stdout, recorded.stdout);
}

#[test]
fn a_program_that_kills_itself_saves_first() {
    use std::os::unix::process::ExitStatusExt;
    for signal in ["ABRT", "TERM", "KILL"] {
        let folder = Folder::new(signal);
        let script = format!("kill -{signal} $$");
        let got = clew(&folder.cache(), &["run", "sh", "-c", &script])
            .output()
            .unwrap();
        assert!(got.status.signal().is_some(), "{got:?}");
        let (_, text, _) = cache_command(&folder.cache(), &[]);
        assert!(text.contains("libc.so.6"), "{signal}: {text}");
    }
}

/// A folder on a file system of 64 KiB, where root may mount one.
/// A user that nobody is: what a server becomes that root has started.
#[test]
fn a_program_that_becomes_another_user_has_a_folder_of_its_own() {
    const USER: &str = "54321";
    if !is_root() {
        return;
    }
    let own = PathBuf::from(format!("/var/tmp/clew-{USER}"));
    let _ = fs::remove_dir_all(&own);
    let folder = Folder::new("another");
    let args = [
        "run",
        "setpriv",
        "--reuid",
        USER,
        "--clear-groups",
        "/bin/ls",
        "/",
    ];
    let output = clew(&folder.cache(), &args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let meta = own.metadata().unwrap();
    assert_eq!(
        (meta.uid().to_string(), meta.mode() & 0o777),
        (USER.into(), 0o700)
    );
    let saved = || fs::read_dir(&own).unwrap().filter_map(|entry| entry.ok());
    assert!(saved().any(|entry| entry.path().extension().is_some_and(|e| e == "code")));
    // One that belongs to somebody else isn't used, nor told about: the program has its own output.
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    let output = clew(&folder.cache(), &args).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert_eq!(saved().count(), 0);
    fs::remove_dir_all(&own).unwrap();
}

#[test]
fn a_full_disk() {
    let folder = Folder::new("full");
    fs::create_dir(folder.cache()).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=0700", "clew-test"])
        .arg(folder.cache())
        .output();
    if !mounted.is_ok_and(|got| got.status.success()) {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        for _ in 0..3 {
            quietly(&folder.cache());
        }
        fs::write(folder.cache().join("filler"), vec![1; 64 << 10]).unwrap_err();
        quietly(&folder.cache());
        let (status, _, _) = cache_command(&folder.cache(), &["--clear"]);
        assert_eq!(status, 0);
        quietly(&folder.cache());
    });
    let unmounted = Command::new("umount").arg(folder.cache()).status().unwrap();
    assert!(unmounted.success());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
