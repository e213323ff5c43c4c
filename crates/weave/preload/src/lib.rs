//! The library that `clew record --weave` and the replay of its recordings preload into a program.
//!
//! In: calls of the C library's functions by which threads interact with each other and with the world outside.
//! Out: the same results; recording, a log of their order and of what came from outside; replaying, what the log says.
//!
//! Each wrapper is written once for both: see [`order`] for objects, [`input`] for everything that comes from outside.
#![no_std]
#![allow(clippy::missing_safety_doc)]

#[macro_use]
mod sys;

mod fail;
mod format;
mod heap;
mod input;
mod io;
mod log;
mod modules;
mod order;
mod process;
mod real;
mod start;
mod stdio;
mod sync;
mod tape;
mod thread;
mod threads;
mod time;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    use core::fmt::Write;
    let mut text = fail::Text::new();
    let _ = write!(text, "the library that clew preloads failed: {info}");
    fail::stop(core::str::from_utf8(text.as_bytes()).unwrap_or(""));
}

/// Defines a function that takes the place of the C library's. The register named by `site` is the one behind its
/// arguments; it gets the address that the call returns to.
#[macro_export]
macro_rules! export {
    (fn $name:ident($($arg:ident: $type:ty),*; $site:ident = $reg:literal) -> $ret:ty $body:block) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            extern "C" fn body($($arg: $type,)* $site: usize) -> $ret {
                let _ = $site;
                $body
            }
            core::arch::naked_asm!(concat!("mov ", $reg, ", [rsp]"), "jmp {body}", body = sym body)
        }
    };
}
