//! Random programs under a timer's signals, recorded and replayed: whatever a handler, a frame or a check could see of the
//! registers is the same. `CLEW_RANDOM=FIRST..LAST` runs other seeds than the usual few.

use clew_tests::header::Header;
use clew_tests::random::{Random, program};
use clew_tests::run::Job;
use clew_tests::{compile, recorded, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let seeds = match std::env::var("CLEW_RANDOM") {
        Ok(range) => {
            let (first, last) = range.split_once("..").expect("CLEW_RANDOM=FIRST..LAST");
            first.parse().expect("a number")..last.parse().expect("a number")
        }
        Err(_) => 0..12,
    };
    let trials = seeds
        .map(|seed| Trial::test(format!("random/{seed}"), move || run(seed)))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Several recordings of one program: alone and with threads, under different policies, with denser and rarer signals.
fn run(seed: u64) -> Result<(), Failed> {
    let source = scratch::fresh(&format!("random.{seed}")).join("random.c");
    std::fs::write(&source, program(seed))?;
    let built = compile::guest(&source, &Header::read(&source), "pie")?;
    let mut random = Random::new(seed ^ 0x5eed);
    for run in 0..4 {
        let dir = scratch::fresh(&format!("random.{seed}.{run}"));
        let threads = 1 + random.below(3);
        let rounds = 2_000 + random.below(4_000);
        let every = 150 + random.below(1_500);
        let policy = ["fair", "fair", "random", "pct"][random.below(4)];
        let job = Job::new(&built.program, dir).args([
            threads.to_string(),
            rounds.to_string(),
            every.to_string(),
        ]);
        let seed = (1 + random.below(1000)).to_string();
        recorded::outcome(&job, &["--sched", policy, "--seed", &seed])?;
    }
    Ok(())
}
