//! The gdb remote serial protocol, answered from a timeline.
