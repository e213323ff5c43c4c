//! The synthetic vdso.
