//! What is known of system calls without making them.
//!
//! It makes no calls and knows no executor: dumps and queries about a recording use it where nothing runs.
//!
//! - [`table`]: for each its name, its arguments, whether it can wait, who answers it
//! - [`names`]: words for what is a number to the kernel: calls, errors, signals, flags
//! - [`show`]: a call's arguments, results and data as people read them
#![forbid(unsafe_code)]

pub mod names;
pub mod show;
pub mod table;
