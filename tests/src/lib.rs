//! The test bench: a program goes in, is run natively and under `clew run`, and what
//! a person would see of the two runs is compared.
//!
//! What is tested lives in files, not in code. A *guest* (`tests/guests/**`) is a small
//! program with a few header lines; a *workload* (`tests/real/*.sh`) is a shell script
//! that uses programs of the distribution. Adding a test is adding a file.
//!
//! * [`header`]: the `key: value` lines at the top of such a file
//! * [`compile`]: a guest's source to an executable, cached
//! * [`run`]: a command to an outcome, under a time limit
//! * [`compare`]: two outcomes to a verdict
//! * [`recorded`]: a command, recorded and replayed, to a verdict
//! * [`guests`]: the guests as trials
//! * [`random`]: random programs; [`woven`]: ones with threads and without races
//! * [`workloads`]: the scripts that use real programs
//! * [`clew`]: where the command under test is
//! * [`scratch`]: directories that a run may fill
//! * [`sources`]: the test files of a folder
//! * [`storeys`]: which crate may use which
//! * [`cpu`]: what this processor can do
//! * [`terminal`]: a program on a pseudo-terminal, typed at and read from
//! * [`mi`], [`value`]: a gdb that is talked to by machine
//! * [`family`]: processes that belong together, and whether they are gone

#![forbid(unsafe_code)]

pub mod clew;
pub mod compare;
pub mod compile;
pub mod cpu;
pub mod family;
pub mod guests;
pub mod header;
pub mod mi;
pub mod random;
pub mod recorded;
pub mod run;
pub mod scratch;
pub mod sources;
pub mod storeys;
pub mod terminal;
pub mod value;
pub mod workloads;
pub mod woven;
