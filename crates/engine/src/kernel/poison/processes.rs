//! Time, processes, signals, the system.

use super::*;

#[test]
fn times() {
    for clock in 0..12 {
        for nr in [libc::SYS_clock_gettime, libc::SYS_clock_getres] {
            check(nr, |a| [clock, a.at(64), 0, 0, 0, 0]);
        }
    }
    for timer in 0..4 {
        check(libc::SYS_getitimer, |a| [timer, a.at(64), 0, 0, 0, 0]);
    }
    assert_eq!(
        check(libc::SYS_gettimeofday, |a| [
            a.at(64),
            a.at(128),
            0,
            0,
            0,
            0
        ]),
        0
    );
    assert!(check(libc::SYS_time, |a| [a.at(64), 0, 0, 0, 0, 0]) > 0);
    check(libc::SYS_adjtimex, |a| {
        [a.words(0, &[0; 26]), 0, 0, 0, 0, 0]
    });
    check(libc::SYS_clock_adjtime, |a| {
        [0, a.words(0, &[0; 26]), 0, 0, 0, 0]
    });
    let short = |a: &Arena| a.words(0, &[0, 1000]);
    assert_eq!(
        check(libc::SYS_nanosleep, |a| [short(a), a.at(64), 0, 0, 0, 0]),
        0
    );
    assert_eq!(
        check(libc::SYS_clock_nanosleep, |a| [
            1,
            0,
            short(a),
            a.at(64),
            0,
            0
        ]),
        0
    );
    let timer = |_: &Arena| {
        // SAFETY: a new descriptor.
        unsafe { made(syscall!(libc::SYS_timerfd_create, 1, 0)) }
    };
    assert_eq!(
        check(libc::SYS_timerfd_gettime, |a| [
            timer(a),
            a.at(64),
            0,
            0,
            0,
            0
        ]),
        0
    );
    let got = check(libc::SYS_timerfd_settime, |a| {
        [timer(a), 0, a.words(0, &[0, 0, 0, 1]), a.at(64), 0, 0]
    });
    assert_eq!(got, 0);
    let event = |a: &Arena| a.words(512, &[0, 1 << 32 | 10, 0, 0, 0, 0, 0, 0]);
    let made_timer = check(libc::SYS_timer_create, |a| [1, event(a), a.at(64), 0, 0, 0]);
    assert_eq!(made_timer, 0);
    check(libc::SYS_timer_gettime, |a| [0, a.at(64), 0, 0, 0, 0]);
    check(libc::SYS_timer_settime, |a| {
        [0, 0, a.words(0, &[0; 4]), a.at(64), 0, 0]
    });
}

#[test]
fn processes() {
    for nr in [libc::SYS_getresuid, libc::SYS_getresgid] {
        assert_eq!(check(nr, |a| [a.at(64), a.at(128), a.at(192), 0, 0, 0]), 0);
        check(nr, |a| [a.at(64), a.at(128), 8, 0, 0, 0]);
    }
    check(libc::SYS_getgroups, |a| [100, a.at(64), 0, 0, 0, 0]);
    check(libc::SYS_getgroups, |a| [0, a.at(64), 0, 0, 0, 0]);
    for who in [0, u64::MAX, 1] {
        check(libc::SYS_getrusage, |a| [who, a.at(64), 0, 0, 0, 0]);
    }
    assert!(check(libc::SYS_times, |a| [a.at(64), 0, 0, 0, 0, 0]) > 0);
    for resource in 0..18 {
        check(libc::SYS_getrlimit, |a| [resource, a.at(64), 0, 0, 0, 0]);
        check(libc::SYS_prlimit64, |a| [0, resource, 0, a.at(64), 0, 0]);
    }
    for version in [0x1998_0330, 0x2007_1026, 0x2008_0522, 5] {
        check(libc::SYS_capget, |a| {
            [a.words(0, &[version]), a.at(64), 0, 0, 0, 0]
        });
        check(libc::SYS_capget, |a| {
            [a.words(0, &[version]), 0, 0, 0, 0, 0]
        });
    }
    assert_eq!(
        check(libc::SYS_capset, |a| [
            a.words(0, &[5]),
            a.at(64),
            0,
            0,
            0,
            0
        ]),
        err(libc::EINVAL)
    );
    let child = |status: i32| {
        // SAFETY: the child ends at once.
        unsafe {
            let pid = syscall!(libc::SYS_fork);
            if pid == 0 {
                syscall!(libc::SYS_exit_group, status);
            }
            made(pid)
        }
    };
    assert!(
        check(libc::SYS_wait4, |a| [
            child(3),
            a.at(64),
            0,
            a.at(128),
            0,
            0
        ]) > 0
    );
    assert!(
        check(libc::SYS_waitid, |a| [
            1,
            child(3),
            a.at(64),
            4,
            a.at(256),
            0
        ]) == 0
    );
    check(libc::SYS_waitid, |a| {
        [1, 999_999, a.at(64), 5, a.at(256), 0]
    });
    check(libc::SYS_waitid, |a| [77, 1, a.at(64), 5, a.at(256), 0]);
    check(libc::SYS_wait4, |a| [999_999, a.at(64), 1, a.at(256), 0, 0]);
    for option in (0..82).chain([0x4155_5856]) {
        // Only those that ask.
        let asks = [
            2, 3, 5, 7, 9, 11, 13, 16, 19, 21, 25, 27, 30, 34, 37, 39, 40, 42, 52, 56, 64, 66, 68,
            70, 74,
        ];
        if asks.contains(&option) || option > 1000 {
            check(libc::SYS_prctl, |a| {
                [
                    option,
                    a.at(64),
                    if option > 1000 { 4096 } else { 0 },
                    0,
                    0,
                    0,
                ]
            });
        }
    }
    check(libc::SYS_prctl, |a| [0x4155_5856, a.at(64), 24, 0, 0, 0]);
    check(libc::SYS_sched_getaffinity, |a| [0, 128, a.at(64), 0, 0, 0]);
    check(libc::SYS_sched_getaffinity, |a| {
        [0, 4096, a.at(64), 0, 0, 0]
    });
    check(libc::SYS_sched_getparam, |a| [0, a.at(64), 0, 0, 0, 0]);
    check(libc::SYS_sched_rr_get_interval, |a| {
        [0, a.at(64), 0, 0, 0, 0]
    });
    for size in [48, 56, 64, 4000] {
        check(libc::SYS_sched_getattr, |a| [0, a.at(64), size, 0, 0, 0]);
    }
    // A structure that is longer than the kernel's, with something in the rest.
    let too_long = check(libc::SYS_sched_setattr, |a| {
        [0, a.words(64, &[4000, 9]), 0, 0, 0, 0]
    });
    assert_eq!(too_long, err(libc::E2BIG));
    check(libc::SYS_getcpu, |a| [a.at(64), a.at(128), 0, 0, 0, 0]);
    check(libc::SYS_get_robust_list, |a| {
        [0, a.at(64), a.at(128), 0, 0, 0]
    });
    check(libc::SYS_rt_sigpending, |a| [a.at(64), 8, 0, 0, 0, 0]);
    check(libc::SYS_rt_sigprocmask, |a| [0, 0, a.at(64), 8, 0, 0]);
    check(libc::SYS_rt_sigaction, |a| [10, 0, a.at(64), 8, 0, 0]);
    check(libc::SYS_sigaltstack, |a| [0, a.at(64), 0, 0, 0, 0]);
    let got = check(libc::SYS_rt_sigtimedwait, |a| {
        let set = a.words(0, &[1 << (libc::SIGUSR2 - 1)]);
        // SAFETY: blocks and sends a signal that is taken at once, to this thread.
        unsafe {
            made(syscall!(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                set,
                0,
                8
            ));
            made(syscall!(
                libc::SYS_tkill,
                syscall!(libc::SYS_gettid),
                libc::SIGUSR2
            ));
        }
        [set, a.at(64), a.words(512, &[0, 0]), 8, 0, 0]
    });
    assert_eq!(got, i64::from(libc::SIGUSR2));
    check(libc::SYS_rt_sigtimedwait, |a| {
        [
            a.words(0, &[1 << (libc::SIGUSR2 - 1)]),
            a.at(64),
            a.words(512, &[0, 0]),
            8,
            0,
            0,
        ]
    });
}

#[test]
fn the_rest() {
    assert_eq!(check(libc::SYS_uname, |a| [a.at(64), 0, 0, 0, 0, 0]), 0);
    assert_eq!(check(libc::SYS_sysinfo, |a| [a.at(64), 0, 0, 0, 0, 0]), 0);
    assert_eq!(
        check(libc::SYS_getrandom, |a| [a.at(64), 100, 0, 0, 0, 0]),
        100
    );
    check(libc::SYS_getrandom, |a| [a.end() - 100, 200, 0, 0, 0, 0]);
    let pages = check(libc::SYS_mincore, |a| [a.base, 65536, a.at(64), 0, 0, 0]);
    assert_eq!(pages, 0);
    check(libc::SYS_mincore, |a| {
        [a.base, LEN as u64 + 65536, a.at(64), 0, 0, 0]
    });
    check(libc::SYS_mincore, |a| [a.base, 65536, a.end() - 3, 0, 0, 0]);
    check(libc::SYS_mincore, |a| {
        [a.base + 1, 1 << 60, a.at(64), 0, 0, 0]
    });
    let policy = |flags: u64| {
        check(libc::SYS_get_mempolicy, move |a| {
            [a.at(64), a.at(128), 1024, a.base, flags, 0]
        });
        check(libc::SYS_get_mempolicy, move |a| {
            [a.at(64), a.at(128), 64, 0, flags, 0]
        });
    };
    (0..5).for_each(policy);
    check(libc::SYS_move_pages, |a| {
        [0, 2, a.words(0, &[a.base, 4096]), 0, a.at(64), 0]
    });
    for command in [6, 11, 17, 31] {
        check(libc::SYS_keyctl, |a| [command, a.at(0), a.at(64), 40, 0, 0]);
        check(libc::SYS_keyctl, |a| {
            [command, u64::MAX - 2, a.at(64), 40, 0, 0]
        });
        check(libc::SYS_keyctl, |a| [command, a.at(0), 3, 0, 0, 0]);
    }
    check(457, |a| {
        [a.words(0, &[24, 1, 7, 0]), a.at(512), 4096, 0, 0, 0]
    });
    check(458, |a| {
        [a.words(0, &[24, u64::MAX, 0, 0]), a.at(512), 10, 0, 0, 0]
    });
    for size in [0, 8, 4096] {
        check(459, |a| [100, a.at(64), a.half(8192, size), 0, 0, 0]);
        check(461, |a| [a.at(64), a.half(8192, size), 0, 0, 0, 0]);
    }
    check(libc::SYS_perf_event_open, |a| {
        [a.words(0, &[4000 << 32; 17]), 0, u64::MAX, u64::MAX, 0, 0]
    });
    // SAFETY: asks for the pid.
    let own = unsafe { syscall!(libc::SYS_getpid) } as u64;
    for nr in [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
        let got = check(nr, |a| {
            a.put(4096, &[1; 64]);
            a.put(8192, &[2; 64]);
            let local = a.words(0, &[a.at(4096), 50]);
            let remote = a.words(64, &[a.at(8192), 30, a.at(12288), 10]);
            [own, local, 1, remote, 2, 0]
        });
        assert_eq!(got, 40);
    }
}
