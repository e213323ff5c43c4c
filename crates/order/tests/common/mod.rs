//! Guests of these tests: built, recorded, and asked about by the command.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};

/// Runs these by name, one after the other.
pub fn tests(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub fn test(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// Numbers that look random (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }
}

fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("clew-order-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command under test: `CLEW`, or the one that was built beside this test.
pub fn command() -> Command {
    let path = std::env::var_os("CLEW")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let here = std::env::current_exe().unwrap();
            here.parent().and_then(Path::parent).unwrap().join("clew")
        });
    assert!(
        path.exists(),
        "{} isn't built: cargo build --release -p clew",
        path.display()
    );
    let mut command = Command::new(path);
    command.env("CLEW_DIR", scratch());
    command
}

/// Compiles a program's text.
pub fn build(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let source = scratch().join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compile(&source, name, flags)
}

/// Compiles a guest of this folder.
pub fn guest(name: &str, flags: &[&str]) -> PathBuf {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests");
    compile(&guests.join(format!("{name}.c")), name, flags)
}

pub fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, source])
        .args(flags)
        .status()
        .unwrap();
    assert!(built.success());
    program
}

/// Records a program; the recording, and what it printed.
pub fn recorded(program: &Path, options: &[&str], input: Option<&str>) -> (PathBuf, String) {
    let folder = program.with_extension("rec");
    let _ = std::fs::remove_dir_all(&folder);
    let stdin = program.with_extension("input");
    std::fs::write(&stdin, input.unwrap_or_default()).unwrap();
    let recorded = command()
        .args(["record", "-o"])
        .arg(&folder)
        .args(options)
        .arg("--")
        .arg(program)
        .stdin(std::fs::File::open(&stdin).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", recorded.status);
    (folder, String::from_utf8(recorded.stdout).unwrap())
}

pub fn record(program: &Path, options: &[&str], input: Option<&str>) -> PathBuf {
    recorded(program, options, input).0
}

/// What the command says, which must end with that status.
pub fn ask(words: &[&str], status: i32) -> String {
    let asked = command().args(words).output().unwrap();
    let (out, err) = (&asked.stdout, &asked.stderr);
    let text = String::from_utf8(out.clone()).unwrap();
    assert_eq!(
        asked.status.code(),
        Some(status),
        "{words:?}\n{text}\n{}",
        String::from_utf8_lossy(err)
    );
    text
}

/// A program of several threads that take locks, semaphores and a queue at random, and log who had them when.
pub fn generate(random: &mut Random) -> String {
    let threads = 2 + random.below(4);
    let (mutexes, semaphores) = (1 + random.below(3), 1 + random.below(2));
    let mut text = String::from(
        "#include <pthread.h>\n#include <semaphore.h>\n#include <stdio.h>\n\
         struct log { int count; int who[4096]; };\n",
    );
    for n in 0..mutexes {
        text +=
            &format!("pthread_mutex_t m{n} = PTHREAD_MUTEX_INITIALIZER; struct log log_m{n};\n");
    }
    for n in 0..semaphores {
        text += &format!("sem_t s{n}; struct log log_s{n};\n");
    }
    text += "struct { pthread_mutex_t lock; pthread_cond_t filled; int items; struct log log; } queue = \
             {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, {0}};\n\
             static void note(struct log *log, int who) { log->who[log->count++] = who; }\n";
    for thread in 1..=threads {
        text += &format!("void *body{thread}(void *_) {{\n");
        // Everybody fills before it takes, so that nobody waits for ever.
        text += &format!(
            "  pthread_mutex_lock(&queue.lock); note(&queue.log, {thread}); queue.items++;\n  \
             pthread_cond_signal(&queue.filled); pthread_mutex_unlock(&queue.lock);\n"
        );
        for _ in 0..2 + random.below(8) {
            let times = 1 + random.below(6);
            let (n, s) = (random.below(mutexes), random.below(semaphores));
            text += &format!("  for (int i = 0; i < {times}; i++) {{\n");
            text += &match random.below(3) {
                0 => format!(
                    "    pthread_mutex_lock(&m{n}); note(&log_m{n}, {thread}); pthread_mutex_unlock(&m{n});\n"
                ),
                1 => format!("    sem_wait(&s{s}); note(&log_s{s}, {thread}); sem_post(&s{s});\n"),
                _ => format!(
                    "    if (pthread_mutex_trylock(&m{n}) == 0) {{ note(&log_m{n}, {thread}); pthread_mutex_unlock(&m{n}); }}\n"
                ),
            };
            text += "  }\n";
        }
        text += &format!(
            "  pthread_mutex_lock(&queue.lock); note(&queue.log, {thread});\n  \
             while (queue.items == 0) {{ pthread_cond_wait(&queue.filled, &queue.lock); note(&queue.log, {thread}); }}\n  \
             queue.items--; pthread_mutex_unlock(&queue.lock);\n  return NULL;\n}}\n"
        );
    }
    text += "static void show(const char *name, struct log *log) {\n  printf(\"%s\", name);\n  \
             for (int i = 0; i < log->count; i++) printf(\" %d\", log->who[i]);\n  printf(\"\\n\");\n}\n";
    text += "int main(void) {\n";
    for n in 0..semaphores {
        text += &format!("  sem_init(&s{n}, 0, 1);\n");
    }
    text += &format!("  pthread_t threads[{}];\n", threads + 1);
    for thread in 1..=threads {
        text += &format!("  pthread_create(&threads[{thread}], NULL, body{thread}, NULL);\n");
    }
    for thread in 1..=threads {
        text += &format!("  pthread_join(threads[{thread}], NULL);\n");
    }
    for n in 0..mutexes {
        text += &format!("  show(\"m{n}\", &log_m{n});\n");
    }
    for n in 0..semaphores {
        text += &format!("  show(\"s{n}\", &log_s{n});\n");
    }
    text + "  show(\"queue.lock\", &queue.log);\n  return 0;\n}\n"
}
