//! What there is to run: guests, workloads, commands of the distribution, generated programs. A seed goes in, a
//! command comes out.

use clew_tests::header::Header;
use clew_tests::random::{self, Random};
use clew_tests::run::Job;
use clew_tests::sources::{self, Source};
use clew_tests::workloads::Workload;
use clew_tests::{compile, cpu, guests, scratch};

/// One command, ready to run.
pub struct Pick {
    pub kind: String,
    pub name: String,
    pub job: Job,
    /// It can do with short reads, interrupted calls and the like.
    pub bears_chaos: bool,
    /// It stops and continues processes itself.
    pub stops: bool,
    workload: Option<Workload>,
}

impl Pick {
    /// Nothing of it is needed any more.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.job.dir);
        for suffix in ["stdin", "stdout", "stderr"] {
            let _ = std::fs::remove_file(format!("{}.{suffix}", self.job.dir.display()));
        }
        if self.kind == "random"
            && let Some(built) = self.job.program.parent()
        {
            let _ = std::fs::remove_dir_all(built);
        }
    }

    pub fn prepare(&self) {
        if let Some(workload) = &self.workload {
            workload.prepare();
        }
    }
}

enum Kind {
    Guest(Source),
    Workload(Source),
    Command(&'static str),
    Random,
}

pub struct Picks {
    kinds: Vec<(String, Kind)>,
}

/// Shell lines; `$N` is a random number up to 5,000.
const COMMANDS: &[(&str, &str)] = &[
    (
        "sort",
        "seq $N | sort -R --random-source=/dev/zero | sort -n | md5sum",
    ),
    (
        "find",
        "find /usr/share -maxdepth 3 -name '*a*' | head -n $N | sort | tail -3",
    ),
    ("xargs", "seq 40 | xargs -P 4 -n 3 echo | sort | md5sum"),
    ("awk", "seq $N | awk '{ s += $1 * $1 } END { print s }'"),
    ("bc", "echo \"scale=$((N / 10)); 4*a(1)\" | bc -l | tail -1"),
    (
        "perl",
        "perl -e 'my %h; $h{$_ % 97} += $_ for 1..'$N'; print join(\",\", map { $h{$_} } sort keys %h), \"\\n\"'",
    ),
    (
        "python",
        "python3 -c 'import json; print(len(json.dumps([dict(a=i, b=str(i)) for i in range('$N')])))'",
    ),
    (
        "python threads",
        "python3 -c 'import threading as t; l = t.Lock(); r = []\ndef f(n):\n  for i in range(200):\n    with l: r.append(n)\nx = [t.Thread(target=f, args=(n,)) for n in range(4)]\n[y.start() for y in x]; [y.join() for y in x]; print(len(r))'",
    ),
    (
        "tar",
        "tar cf - /usr/share/doc/bash 2>/dev/null | gzip -9 | gunzip | wc -c",
    ),
    (
        "xz",
        "head -c $((N * 100)) /usr/bin/perl | xz -T2 -1 | xz -d | md5sum",
    ),
    ("dd", "dd if=/dev/zero bs=1k count=$N status=none | md5sum"),
    (
        "subshells",
        "for i in $(seq 30); do (echo $i; exit $((i % 3))) | cat & done | sort -n | tail -1; wait",
    ),
    ("kill", "sleep 1000 & p=$!; kill $p; wait $p; echo $?"),
    (
        "gcc",
        "echo 'int main(void) { return 0; }' | gcc -x c - -o a.out && ./a.out && echo built",
    ),
    (
        "sqlite",
        "sqlite3 :memory: 'create table t(a); with recursive c(x) as (select 1 union all select x+1 from c where x < '$N') insert into t select x from c; select sum(a) from t'",
    ),
    ("ls", "ls -lR /usr/lib/gcc | md5sum"),
    ("openssl", "head -c $N /usr/bin/perl | openssl dgst -sha256"),
    (
        "bash",
        "bash -c 'declare -A a; for i in {1..300}; do a[$((i * 7 % 31))]=$i; done; echo ${!a[@]} ${a[@]}'",
    ),
    ("sed", "seq $N | sed -n '$p;s/1/one/gp' | md5sum"),
    (
        "date",
        "date >/dev/null; cat /proc/self/status >/dev/null; id; uname -m",
    ),
    (
        "trap",
        "trap 'echo got' USR1; kill -USR1 $$; trap - USR1; echo on",
    ),
    ("here", "cat <<E\n$(seq 20)\nE"),
];

impl Picks {
    /// All of them, or those whose names contain `only`.
    pub fn new(only: Option<&str>, long: bool) -> Picks {
        let mut kinds = Vec::new();
        let folder = scratch::sources().join("guests");
        for source in sources::list(&folder, &["c", "cpp", "S", "rs"]) {
            let header = Header::read(&source.path);
            let fits = !header.unrecordable && header.cpu.iter().all(|flag| cpu::has(flag));
            if fits && (long || !header.long) && !source.name.starts_with("bugs/") {
                kinds.push((format!("guest/{}", source.name), Kind::Guest(source)));
            }
        }
        for source in sources::list(&scratch::sources().join("real"), &["sh"]) {
            let header = Header::read(&source.path);
            if long || !(header.long || header.recorded_long) {
                kinds.push((format!("real/{}", source.name), Kind::Workload(source)));
            }
        }
        for (name, line) in COMMANDS {
            kinds.push((format!("command/{name}"), Kind::Command(line)));
        }
        kinds.push(("random".into(), Kind::Random));
        if let Some(only) = only {
            kinds.retain(|(name, _)| name.contains(only));
        }
        Picks { kinds }
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// One of them, each kind about as often as the others.
    pub fn choose(&self, seed: u64, random: &mut Random) -> Result<Pick, String> {
        const KINDS: [&str; 4] = ["guest/", "real/", "command/", "random"];
        let wanted = KINDS[random.below(8) * KINDS.len() / 8];
        let of_kind: Vec<_> = self
            .kinds
            .iter()
            .filter(|(name, _)| name.starts_with(wanted))
            .collect();
        let (name, kind) = match of_kind.len() {
            0 => &self.kinds[random.below(self.kinds.len())],
            count => of_kind[random.below(count)],
        };
        let mut pick = self.pick(seed, name, kind, random)?;
        // What others run on the machine slows everything down; a hang lasts.
        pick.job.timeout *= 4 * (1 + cpu::load());
        Ok(pick)
    }

    fn pick(
        &self,
        seed: u64,
        name: &str,
        kind: &Kind,
        random: &mut Random,
    ) -> Result<Pick, String> {
        // Of this process alone: soaks may run beside each other.
        let test = format!("soak.{}.{seed}", std::process::id());
        let mut workload = None;
        let mut stops = false;
        let (mut bears_chaos, job) = (
            false,
            match kind {
                Kind::Guest(source) => {
                    let header = Header::read(&source.path);
                    stops = header.stops;
                    let variants = compile::variants(&source.path, &header);
                    let variant = &variants[random.below(variants.len())];
                    let job = guests::job(&test, &source.path, &header, variant);
                    job.map_err(|failed| format!("{name}: {failed:?}"))?
                }
                Kind::Workload(source) => {
                    let header = Header::read(&source.path);
                    stops = header.stops;
                    let made = Workload::new(&test, &source.name, &source.path, &header)?;
                    workload.insert(made).job.clone()
                }
                Kind::Command(line) => {
                    let number = random.below(5_000);
                    let mut job = Job::new("/bin/sh", scratch::fresh(&test)).args(["-c", line]);
                    job.env.push(("N".into(), number.to_string()));
                    job
                }
                Kind::Random => {
                    let number = random.below(1 << 30) as u64;
                    let source = scratch::fresh(&test).join("random.c");
                    std::fs::write(&source, random::program(number)).map_err(|e| e.to_string())?;
                    let built = compile::guest(&source, &Header::read(&source), "pie")?;
                    let words = [1 + random.below(3), 3_000, 150 + random.below(1_500)];
                    Job::new(&built.program, scratch::fresh(&test))
                        .args(words.map(|w| w.to_string()))
                }
            },
        );
        bears_chaos |= matches!(kind, Kind::Command(_) | Kind::Random);
        Ok(Pick {
            kind: name.split('/').next().unwrap_or(name).to_owned(),
            name: name.to_owned(),
            job,
            bears_chaos,
            stops,
            workload,
        })
    }
}
