//! Host side: signal handlers and kernel threads of the engine.
pub mod switch;
pub mod time;
