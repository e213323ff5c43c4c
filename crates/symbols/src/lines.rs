//! Line tables: a unit's line program in; the line of an address, and addresses of a line, out.

use std::sync::Arc;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// The path as the compiler was given it, with its directory where that was relative.
    pub file: Arc<str>,
    /// 0 where the compiler says that an instruction belongs to no line.
    pub line: u32,
    /// 0 where the compiler doesn't say.
    pub column: u32,
    /// Whether the address is a good place for a breakpoint.
    pub is_stmt: bool,
}
