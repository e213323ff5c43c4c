//! Which schedule a run gets. In: the hunt's seed and strategy, a run's number. Out: the options of `clew record` that make
//! that run, and make it again.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::dice::mix;
use crate::visible::Kind;

/// How the runs of a hunt differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// All others but chaos, in turn: no kind of bug is left to one kind of schedule. [`crate::guide`] makes the plans.
    #[default]
    Mixed,
    Random,
    /// Of this depth, or of 2 to 4 in turn.
    Pct(Option<u32>),
    /// Random turns, and everything that the kernel may do to a program and seldom does.
    Chaos,
    /// Led to orders of accesses that weren't seen yet; [`crate::idiom`] makes the plans, but for random ones.
    Idiom,
    /// Choices at visible operations alone.
    Visible(Kind),
}

/// What the program's clocks, sleeps and timers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Virtual time, unless the first run shows that the program deals with the outside world.
    #[default]
    ByProgram,
    Real,
    Virtual,
}

/// The schedule of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which strategy made it.
    pub kind: &'static str,
    /// Clocks, sleeps and timers follow virtual time.
    pub virtual_time: bool,
    /// As `clew record --sched` calls it.
    pub sched: &'static str,
    pub seed: u64,
    pub depth: Option<u32>,
    pub length: Option<u64>,
    pub chaos: Option<String>,
    /// A file with the turns to follow, instead of all that but chaos.
    pub script: Option<PathBuf>,
}

/// What a recording calls the schedule that it was made with.
pub const SCHEDULE: &str = "schedule.txt";

/// What of all runs is this hunt's part: runs whose number leaves `index` when divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    of: u64,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { index: 0, of: 1 }
    }
}

impl FromStr for Shard {
    type Err = String;

    /// `2/5`: the second of five.
    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            let (index, of): (u64, u64) = (index.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&index).then_some((index, of))
        });
        let (index, of) = parts.ok_or("a shard is I/N, with I from 1 to N")?;
        Ok(Shard {
            index: index - 1,
            of,
        })
    }
}

/// Variables of batch systems and CI matrices: which part this is, and of how many. The number of the first part, where it isn't 1.
const BATCHES: [(&str, &str, Option<&str>, u64); 7] = [
    ("CLEW_SHARD", "CLEW_SHARDS", None, 1),
    // Slurm's arrays may begin anywhere.
    (
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_COUNT",
        Some("SLURM_ARRAY_TASK_MIN"),
        0,
    ),
    // GitLab's `parallel`, and others that took it over.
    ("CI_NODE_INDEX", "CI_NODE_TOTAL", None, 1),
    ("CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", None, 0),
    (
        "BUILDKITE_PARALLEL_JOB",
        "BUILDKITE_PARALLEL_JOB_COUNT",
        None,
        0,
    ),
    // GitHub's `strategy.job-index` and `job-total`, and Kubernetes' indexed jobs, whose number of parts the job must say.
    ("JOB_INDEX", "JOB_TOTAL", None, 0),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", None, 0),
];

impl Shard {
    /// As the usual variables say; in words if they say nothing, or nonsense.
    pub fn by_environment(get: impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
        for (index, of, first, usual) in BATCHES {
            let Some(text) = get(index).filter(|text| !text.is_empty()) else {
                continue;
            };
            let number = |name: &str, text: Option<String>| {
                let number = text.as_deref().and_then(|text| text.parse::<u64>().ok());
                number
                    .ok_or_else(|| format!("--shard auto: {index} is set, but {name} is no number"))
            };
            let first = match first.and_then(&get) {
                Some(text) => number("the first", Some(text))?,
                None => usual,
            };
            let (at, of) = (number(index, Some(text))?, number(of, get(of))?);
            let place = at.checked_sub(first).filter(|&place| place < of);
            let index = place.ok_or_else(|| {
                format!("--shard auto: {index} is {at}, which isn't one of {of} from {first} on")
            })?;
            return Ok(Shard { index, of });
        }
        let names: Vec<&str> = BATCHES.iter().map(|batch| batch.0).collect();
        Err(format!(
            "--shard auto: none of {} is set; say which part it is with --shard I/N",
            names.join(", ")
        ))
    }

    /// The number, among all, of this part's run `n`; both count from 0.
    pub fn run(self, n: u64) -> u64 {
        n.wrapping_mul(self.of).wrapping_add(self.index)
    }

    pub fn parts(self) -> u64 {
        self.of
    }

    /// Whether that one, of all from 0 on, is in this part.
    pub fn has(self, place: u64) -> bool {
        place % self.of == self.index
    }
}

/// The seed of run `run`. Of 40 bits: enough, and short enough to be typed.
pub(crate) fn seed_of(hunt: u64, run: u64) -> u64 {
    let place = run.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix(mix(hunt).wrapping_add(place)) >> 24
}

impl Strategy {
    /// The schedule of run `run` among all shards'. `length`: how much work the program was when measured.
    pub fn plan(self, hunt: u64, run: u64, length: Option<u64>, chaos: Option<&str>) -> Plan {
        let pct = |depth| ("pct", Some(depth));
        let random = ("random", None);
        let (sched, depth) = match self {
            Strategy::Mixed => match run % 8 {
                1 => pct(1),
                3 => pct(3),
                4 => pct(10),
                5 => pct(30),
                7 => pct(100),
                _ => random,
            },
            Strategy::Random | Strategy::Chaos | Strategy::Idiom | Strategy::Visible(_) => random,
            Strategy::Pct(Some(depth)) => pct(depth),
            Strategy::Pct(None) => pct(2 + (run % 3) as u32),
        };
        let all = (self == Strategy::Chaos).then_some("delays,short,eintr,wakes");
        Plan {
            kind: sched,
            virtual_time: false,
            sched,
            seed: seed_of(hunt, run),
            depth,
            length,
            chaos: chaos.or(all).map(str::to_owned),
            script: None,
        }
    }
}

impl Plan {
    /// In turns, as `clew record` does by itself.
    pub fn ordinary() -> Plan {
        Plan {
            kind: "ordinary",
            virtual_time: false,
            sched: "fair",
            seed: 1,
            depth: None,
            length: None,
            chaos: None,
            script: None,
        }
    }

    /// It says by itself who runs when: by a file, or by its seed.
    pub fn is_schedule(&self) -> bool {
        self.script.is_some() || self.sched != "fair" && self.kind != "idiom"
    }

    /// Follows the turns in that file, with the same chaos.
    pub fn following(&self, script: &Path) -> Plan {
        Plan {
            kind: self.kind,
            virtual_time: self.virtual_time,
            seed: self.seed,
            chaos: self.chaos.clone(),
            script: Some(script.into()),
            ..Plan::ordinary()
        }
    }

    /// Puts a copy of the turns that it follows, if any, into a recording's folder, and follows those.
    pub fn keep_script(&mut self, folder: &Path) -> io::Result<()> {
        if let Some(script) = &mut self.script {
            let copy = folder.join(SCHEDULE);
            std::fs::copy(&script, &copy)?;
            *script = copy;
        }
        Ok(())
    }

    /// The options of `clew record` (and `clew run`) for it.
    pub fn options(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([name.into(), value]);
            }
        };
        match &self.script {
            Some(script) => {
                option("--script", Some(script.to_string_lossy().into_owned()));
                // Only what chaos does, and when time passes, follows from the seed then.
                let chooses = self.chaos.is_some() || self.virtual_time;
                let seed = chooses.then(|| self.seed.to_string());
                option("--seed", seed);
            }
            None => {
                option("--sched", Some(self.sched.into()));
                option("--seed", Some(self.seed.to_string()));
                option("--depth", self.depth.map(|depth| depth.to_string()));
                option("--length", self.length.map(|length| length.to_string()));
            }
        }
        if self.virtual_time {
            words.push("--time=virtual".into());
        }
        words.extend(self.chaos.as_ref().map(|what| format!("--chaos={what}")));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_follow_from_the_hunt_and_the_run() {
        let plan = |hunt, run| Strategy::Mixed.plan(hunt, run, Some(700), None);
        assert_eq!(plan(1, 5), plan(1, 5));
        let seeds = |hunt| (0..2000).map(move |run| plan(hunt, run).seed);
        let all: BTreeSet<u64> = seeds(1).chain(seeds(2)).collect();
        assert_eq!(all.len(), 4000);
        assert!(all.iter().all(|&seed| seed < 1 << 40));
    }

    #[test]
    fn shards_are_disjoint_and_leave_nothing_out() {
        let mut all: Vec<u64> = (1..=3)
            .flat_map(|n| {
                let shard: Shard = format!("{n}/3").parse().unwrap();
                (0..10).map(move |run| shard.run(run))
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<_>>());
        for bad in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_shard_by_the_environment() {
        let by = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| value.to_string())
            };
            Shard::by_environment(get)
        };
        let shard = |text: &str| text.parse::<Shard>();
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "12"),
            ("SLURM_ARRAY_TASK_COUNT", "5"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
        ];
        assert_eq!(by(&slurm), shard("3/5"));
        let gitlab = [("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "4")];
        assert_eq!(by(&gitlab), shard("1/4"));
        let github = [("JOB_INDEX", "0"), ("JOB_TOTAL", "4")];
        assert_eq!(by(&github), shard("1/4"));
        let kubernetes = [("JOB_COMPLETION_INDEX", "3"), ("JOB_COMPLETIONS", "4")];
        assert_eq!(by(&kubernetes), shard("4/4"));
        assert!(by(&[]).unwrap_err().contains("SLURM_ARRAY_TASK_ID"));
        for bad in [
            &[("JOB_COMPLETION_INDEX", "3")][..],
            &[("CI_NODE_INDEX", "5"), ("CI_NODE_TOTAL", "4")],
            &[("CI_NODE_INDEX", "0"), ("CI_NODE_TOTAL", "4")],
        ] {
            assert!(by(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_plan_is_words_for_the_command_line() {
        let plan = Strategy::Pct(Some(3)).plan(7, 1, Some(900), Some("short"));
        let words = plan.options().join(" ");
        let expected = format!(
            "--sched pct --seed {} --depth 3 --length 900 --chaos=short",
            plan.seed
        );
        assert_eq!(words, expected);
    }

    #[test]
    fn a_plan_with_turns_of_its_own() {
        let following = |chaos| {
            let plan = Strategy::Random.plan(7, 1, None, chaos);
            plan.following(Path::new("/x/1.txt"))
        };
        assert_eq!(following(None).options(), ["--script", "/x/1.txt"]);
        let plan = following(Some("wakes"));
        let words = format!("--script /x/1.txt --seed {} --chaos=wakes", plan.seed);
        assert_eq!(plan.options().join(" "), words);
    }

    #[test]
    fn every_part_of_a_mixed_hunt_is_mixed() {
        // Also with as many shards as there are kinds of runs, over time.
        let kinds = |shard: Shard| {
            let plan = |n| Strategy::Mixed.plan(1, shard.run(n), None, None);
            (0..40)
                .map(|n| (plan(n).sched, plan(n).depth))
                .collect::<BTreeSet<_>>()
                .len()
        };
        assert_eq!(kinds(Shard::default()), 6);
        assert_eq!(kinds("1/3".parse().unwrap()), 6);
    }
}
