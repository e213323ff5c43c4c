//! Clocks, sleeps and random numbers.

use core::ffi::{c_int, c_void};

use crate::export;
use crate::format::Op;
use crate::input::{When, ask};
use crate::real::{self, result};

type P = *mut c_void;

/// A call that fills `len` bytes at `to`.
unsafe fn filling(op: Op, site: usize, to: *mut u8, len: usize, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: the program's own arguments, passed on; likewise below.
    unsafe {
        ask(op, site, 0, When::Never, None, make, |got, each| {
            if got >= 0 && !to.is_null() {
                each(to, len)
            }
        })
    }
}

/// By the C library's own clock, which asks no kernel.
unsafe fn now(clock: c_int, to: *mut i64) -> i64 {
    // SAFETY: see above.
    unsafe {
        match real::clock_gettime()(clock, to) {
            0 => 0,
            _ => -i64::from(*real::__errno_location()),
        }
    }
}

export! { fn clock_gettime(clock: c_int, to: *mut i64; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(Op::Time, site, to.cast(), 16, || now(clock, to))) }
}}
export! { fn clock_getres(clock: c_int, to: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(Op::Time, site, to, 16, || sys!(229, clock, to))) }
}}
export! { fn gettimeofday(to: *mut i64, zone: P; site = "rdx") -> i64 {
    // SAFETY: see above. Nobody knows zones any more.
    unsafe {
        let _ = zone;
        result(filling(Op::Time, site, to.cast(), 16, || {
            let got = now(0, to);
            *to.add(1) /= 1000;
            got
        }))
    }
}}
export! { fn time(to: *mut i64; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe {
        let seconds = ask(Op::Time, site, 0, When::Never, None, || {
            let mut both = [0; 2];
            // 5: the clock that `time` uses, which may be a tick behind.
            now(5, both.as_mut_ptr());
            both[0]
        }, |_, _| {});
        if !to.is_null() {
            *to = seconds;
        }
        seconds
    }
}}
export! { fn clock(; site = "rdi") -> i64 {
    // SAFETY: see above.
    unsafe {
        ask(Op::Time, site, 0, When::Never, None, || {
            let mut both = [0; 2];
            now(2, both.as_mut_ptr());
            both[0] * 1_000_000 + both[1] / 1000
        }, |_, _| {})
    }
}}
export! { fn times(to: *mut u8; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { filling(Op::Time, site, to, 32, || sys!(100, to)) }
}}
export! { fn getrusage(who: c_int, to: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(filling(Op::Time, site, to, 144, || sys!(98, who, to))) }
}}
export! { fn nanosleep(time: P, left: *mut u8; site = "rdx") -> i64 {
    // SAFETY: see above. What is left is written when it was interrupted.
    unsafe {
        result(ask(Op::Sleep, site, 0, When::Never, None, || sys!(35, time, left),
            |got, each| if got == -4 && !left.is_null() { each(left, 16) }))
    }
}}
export! { fn clock_nanosleep(clock: c_int, flags: c_int, time: P, left: *mut u8; site = "r8") -> c_int {
    // SAFETY: see above. The error is the result.
    unsafe {
        -ask(Op::Sleep, site, 0, When::Never, None, || sys!(230, clock, flags, time, left),
            |got, each| if got == -4 && !left.is_null() { each(left, 16) }) as c_int
    }
}}
export! { fn usleep(micros: u32; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe {
        let time = [i64::from(micros) / 1_000_000, i64::from(micros) % 1_000_000 * 1000];
        result(ask(Op::Sleep, site, 0, When::Never, None, || sys!(35, time.as_ptr(), 0), |_, _| {}))
    }
}}
export! { fn sleep(seconds: u32; site = "rsi") -> u32 {
    // SAFETY: see above.
    unsafe {
        ask(Op::Sleep, site, 0, When::Never, None, || {
            let time = [i64::from(seconds), 0];
            let mut left = [0i64; 2];
            match sys!(35, time.as_ptr(), left.as_mut_ptr()) {
                0 => 0,
                _ => left[0] + i64::from(left[1] > 500_000_000),
            }
        }, |_, _| {}) as u32
    }
}}
export! { fn getrandom(to: *mut u8, len: usize, flags: u32; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Random, site, 0, When::Never, None, || sys!(318, to, len, flags), |got, each| each(to, got.max(0) as usize)))
    }
}}
export! { fn getentropy(to: *mut u8, len: usize; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Random, site, 0, When::Never, None, || match sys!(318, to, len, 0) {
            got if got == len as i64 => 0,
            got if got < 0 => got,
            _ => -5,
        }, |got, each| if got == 0 { each(to, len) }))
    }
}}
export! { fn arc4random(; site = "rdi") -> u32 {
    // SAFETY: see above.
    unsafe {
        let mut value = 0u32;
        let to = (&raw mut value).cast::<u8>();
        ask(Op::Random, site, 0, When::Never, None, || sys!(318, to, 4, 0), |got, each| each(to, got.max(0) as usize));
        value
    }
}}
