//! Recordings survive what happens to them, and replays do no harm.
//!
//! Processes are killed at random moments, disks fill up, logs are cut and tampered with; afterwards
//! what was recorded replays, or the replay says why not, and nothing outside of it has changed.

mod confined;
mod containers;
mod diverged;
mod environment;
mod forks;
mod hostile;
mod kills;
mod limits;
mod place;
mod processes;
mod refused;
mod waiting;

use libtest_mimic::Arguments;

fn main() {
    let mut trials = Vec::new();
    trials.extend(kills::trials());
    trials.extend(limits::trials());
    trials.extend(waiting::trials());
    trials.extend(processes::trials());
    trials.extend(hostile::trials());
    trials.extend(confined::trials());
    trials.extend(containers::trials());
    trials.extend(diverged::trials());
    trials.extend(environment::trials());
    trials.extend(forks::trials());
    trials.extend(refused::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
