//! Recording: what happens to the guest, written down.
//!
//! - [`files`]: copies of the files that the guest maps

pub mod files;
