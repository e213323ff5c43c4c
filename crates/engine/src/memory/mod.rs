//! The guest's mappings.
#[derive(Default)]
pub struct Memory {}
