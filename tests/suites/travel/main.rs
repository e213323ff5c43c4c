//! Time travel: gdb on recordings, in batch and by machine, forwards and backwards, and `clew watch`.
//!
//! What is seen backwards must be what was seen forwards; where the same can be asked of a native run,
//! gdb is asked there too.

mod editors;
mod ends;
mod events;
mod files;
mod inspect;
mod own;
mod place;
mod real;
mod slices;
mod steps;
mod stops;
mod threads;
mod transitions;
mod watches;

use libtest_mimic::Arguments;

fn main() {
    let mut trials = Vec::new();
    trials.extend(stops::trials());
    trials.extend(steps::trials());
    trials.extend(watches::trials());
    trials.extend(events::trials());
    trials.extend(threads::trials());
    trials.extend(inspect::trials());
    trials.extend(files::trials());
    trials.extend(own::trials());
    trials.extend(slices::trials());
    trials.extend(transitions::trials());
    trials.extend(ends::trials());
    trials.extend(editors::trials());
    trials.extend(real::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
