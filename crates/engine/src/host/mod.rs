//! Host side: signal handlers and kernel threads of the engine. Everything here may run while
//! the guest's fs base is loaded or on a kernel thread without thread-local storage, so it uses
//! `core`, raw system calls and what it finds through gs.

pub mod altstack;
pub mod blocking;
pub mod borrower;
mod bytes;
pub mod copy;
pub mod cpu;
pub mod crash;
pub mod handlers;
pub mod hub;
pub mod inherited;
pub mod kernel_thread;
pub mod proxy;
pub mod siginfo;
pub mod sigset;
pub mod swap;
pub mod switch;
pub mod time;
pub mod virtual_clock;
