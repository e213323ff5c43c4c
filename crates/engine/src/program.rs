//! What is to be run, and how: the guest's identity (path, arguments) and the user's switches.

use std::ffi::CString;
use std::path::PathBuf;

/// The guest program as `/proc/self` must show it.
#[derive(Debug, Default)]
pub struct Program {
    /// Resolved path of the executable (behind `#!`: the interpreter).
    pub exe: PathBuf,
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
}

/// Switches that travel along every exec inside the guest's process tree.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub stats: bool,
    /// Keep no saved translations.
    pub no_cache: bool,
    /// Debugging switches of the translator, see CONTRIBUTING.
    pub trace: bool,
    pub bisect: Option<u64>,
    /// Numbers of the blocks to show with their translation.
    pub dump: std::ops::Range<u64>,
}
