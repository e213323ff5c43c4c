//! A program on a pseudo-terminal.
