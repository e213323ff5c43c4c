//! Loads a guest as exec would.
