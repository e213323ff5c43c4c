//! Every guest in `tests/guests`, natively, recorded and replayed.

use clew_tests::{guests, recorded};
use libtest_mimic::Arguments;

fn main() {
    let trials = guests::trials("recorded", builds, |job, header| {
        recorded::recorded(job, header, &|| {})
    });
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Every way to build those that are about images; else the first is enough, since the suite
/// `guests` runs them all.
fn builds(name: &str, variants: &[String]) -> Vec<String> {
    let count = if name.starts_with("images/") {
        variants.len()
    } else {
        1
    };
    variants[..count].to_vec()
}
