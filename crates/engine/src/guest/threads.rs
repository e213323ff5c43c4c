//! Guest threads and whose turn it is.
use crate::executor::Executor;

#[derive(Default)]
pub struct Threads {}

impl Threads {
    /// The current thread has used up its budget.
    pub fn turn_over(&mut self) {}
}

impl Executor {
    pub fn schedule(&mut self) {}
}
