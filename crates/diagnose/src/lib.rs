//! From the symptom of a recorded failure to its cause.
//!
//! In: a debugger on a recording. Out: what lived on the heap and when ([`heap`]); everything notable that happened
//! ([`alerts`]); and how it came to the failure, in sentences with positions ([`why`]). Nothing here prints.
//!
//! * [`scene`]: places of a run in terms of the program's own source
//! * [`heap`]: allocations by one pass over all calls of allocators
//! * [`places`]: where blocks were allocated and freed, with stacks
//! * [`alerts`]: crashes, assertions, exceptions, failed calls, children
//! * [`why`]: one failure explained
//! * [`delta`]: what is different when it fails: failing runs against passing ones

#![forbid(unsafe_code)]

pub mod alerts;
pub mod delta;
pub mod heap;
pub mod places;
pub mod scene;
pub mod why;

pub use clew_debugger::Error;

pub type Result<T> = std::result::Result<T, Error>;

/// What a slice couldn't do is what its timeline couldn't, or a defect.
pub(crate) fn sliced(error: clew_slice::Error) -> Error {
    match error {
        clew_slice::Error::Timeline(error) => error.into(),
        other => Error::Place(other.to_string()),
    }
}
