//! Every guest in `tests/guests`, in each of its build variants, natively and under clew.

use clew_tests::{compare, guests};
use libtest_mimic::Arguments;

fn main() {
    let trials = guests::trials(
        "",
        |_, _, variants| variants,
        |job, header| compare::native_and_clew(job, header, &|| {}),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
