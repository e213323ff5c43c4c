//! What the link at a fixed address needs, see `build.rs`.

/// An empty list of dynamic entries: no relocations to apply.
#[unsafe(no_mangle)]
#[used]
static clew_no_dynamic: [usize; 2] = [0; 2];

/// In place of functions that C's start-up objects call if they exist.
#[unsafe(no_mangle)]
extern "C" fn clew_nothing() -> usize {
    0
}

// Keeps `clew_nothing`, which only the linker's command line names.
#[used]
static KEEP: extern "C" fn() -> usize = clew_nothing;
