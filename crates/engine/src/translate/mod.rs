//! Guest code to host code.
