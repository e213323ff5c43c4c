//! Engine bugs are told apart from the guest's.

use clew_engine::host::crash;

use crate::guest::*;
use crate::{Case, End};

pub fn cases() -> Vec<Case> {
    let end = || End::Exit(crash::STATUS);
    vec![
        Case {
            name: "engine_fault_is_reported",
            run: engine_fault,
            end: end(),
        },
        Case {
            name: "panic_is_reported",
            run: panics,
            end: end(),
        },
        Case {
            name: "fault_with_guest_fs_is_reported",
            run: fault_without_fs,
            end: end(),
        },
    ]
}

fn engine_fault() {
    let _ex = executor();
    // SAFETY: it isn't.
    unsafe { std::ptr::write_volatile(16 as *mut u32, 1) };
}

fn panics() {
    let _ex = executor();
    panic!("an invariant is broken");
}

fn fault_without_fs() {
    let _ex = executor();
    // SAFETY: it isn't: no thread-local storage, and a fault.
    unsafe {
        std::arch::asm!("wrfsbase {}", in(reg) 0u64);
        std::ptr::write_volatile(16 as *mut u32, 1);
    }
}
