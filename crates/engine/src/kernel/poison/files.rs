//! Files, pipes, waiting for descriptors.

use super::*;

#[test]
fn reading() {
    let read = |len: u64, data: &'static [u8]| {
        check(libc::SYS_read, move |a| {
            [pipe(data).0, a.at(64), len, 0, 0, 0]
        })
    };
    assert_eq!(read(100, b"hello"), 5);
    assert_eq!(read(3, b"hello"), 3);
    // Over the end of memory: EFAULT, or pieces before it.
    let at_end = |nr: i64, back: u64| {
        check(nr, move |a| {
            let (from, to) = pipe(&[7; 100]);
            send(to, &[8; 5000]);
            [from, a.end() - back, 9000, 0, 0, 0]
        })
    };
    at_end(libc::SYS_read, 50);
    at_end(libc::SYS_read, 4000);
    check(libc::SYS_read, |a| {
        [open("/proc/self/maps", 0), a.end() - 30, 4096, 0, 0, 0]
    });
    check(libc::SYS_read, |a| {
        [open("/etc/passwd", 0), a.end() - 30, 4096, 0, 0, 0]
    });
    let file = check(libc::SYS_pread64, |a| {
        [open("/etc/passwd", 0), a.at(5), 4096, 3, 0, 0]
    });
    assert!(file > 10);
    let vectors = |a: &Arena| a.words(0, &[a.at(1024), 3, a.at(2048), 0, a.at(3072), 50]);
    let got = check(libc::SYS_readv, |a| {
        [pipe(&[1; 20]).0, vectors(a), 3, 0, 0, 0]
    });
    assert_eq!(got, 20);
    for nr in [libc::SYS_preadv, libc::SYS_preadv2] {
        let got = check(nr, |a| [open("/etc/passwd", 0), vectors(a), 3, 2, 0, 0]);
        assert_eq!(got, 53);
    }
    let folder = |nr| {
        check(nr, |a| {
            [
                open("/proc/self", libc::O_DIRECTORY),
                a.at(8),
                4096,
                0,
                0,
                0,
            ]
        })
    };
    assert!(folder(libc::SYS_getdents) > 100 && folder(libc::SYS_getdents64) > 100);
    check(libc::SYS_getdents64, |a| {
        [
            open("/proc/self", libc::O_DIRECTORY),
            a.end() - 100,
            4096,
            0,
            0,
            0,
        ]
    });
    // The pipe's end decides which way vmsplice goes.
    let got = check(libc::SYS_vmsplice, |a| {
        [pipe(&[1; 20]).0, vectors(a), 3, 0, 0, 0]
    });
    assert_eq!(got, 20);
}

#[test]
fn direct_reads_fill_blocks() {
    let path = std::env::current_dir()
        .unwrap()
        .join(format!("direct-{}", std::process::id()));
    std::fs::write(&path, [9; 700]).unwrap();
    let text = path.to_str().unwrap().to_string();
    let bytes = CString::new(text.clone()).unwrap();
    // SAFETY: a path that ends with NUL.
    let fd = unsafe { syscall!(libc::SYS_open, bytes.as_ptr(), libc::O_DIRECT) };
    if fd >= 0 {
        let got = check(libc::SYS_pread64, |a| {
            [fd as u64, a.at(4096), 8192, 0, 0, 0]
        });
        assert_eq!(got, 700);
    }
    let _ = std::fs::remove_file(path);
}

#[test]
fn files() {
    for nr in [libc::SYS_stat, libc::SYS_lstat, libc::SYS_statfs] {
        assert_eq!(
            check(nr, |a| [a.path(0, "/etc/passwd"), a.at(600), 0, 0, 0, 0]),
            0
        );
        assert!(check(nr, |a| [a.path(0, "/nowhere"), a.at(600), 0, 0, 0, 0]) < 0);
        check(nr, |a| [a.path(0, "/etc/passwd"), a.end() - 20, 0, 0, 0, 0]);
    }
    for nr in [libc::SYS_fstat, libc::SYS_fstatfs] {
        assert_eq!(
            check(nr, |a| [open("/etc/passwd", 0), a.at(600), 0, 0, 0, 0]),
            0
        );
    }
    let at = libc::AT_FDCWD as u64;
    let path = |a: &Arena| a.path(0, "/proc/self/exe");
    assert_eq!(
        check(libc::SYS_newfstatat, |a| [at, path(a), a.at(64), 0, 0, 0]),
        0
    );
    assert_eq!(
        check(libc::SYS_statx, |a| [at, path(a), 0, 0xfff, a.at(64), 0]),
        0
    );
    assert!(check(libc::SYS_readlink, |a| [path(a), a.at(64), 500, 0, 0, 0]) > 3);
    assert_eq!(
        check(libc::SYS_readlink, |a| [path(a), a.at(64), 3, 0, 0, 0]),
        3
    );
    assert!(check(libc::SYS_readlinkat, |a| [at, path(a), a.at(64), 500, 0, 0]) > 3);
    assert!(check(libc::SYS_getcwd, |a| [a.at(9), 500, 0, 0, 0, 0]) > 1);
    assert_eq!(
        check(libc::SYS_getcwd, |a| [a.at(9), 1, 0, 0, 0, 0]),
        err(libc::ERANGE)
    );
    assert_eq!(check(libc::SYS_pipe, |a| [a.at(8), 0, 0, 0, 0, 0]), 0);
    assert_eq!(
        check(libc::SYS_pipe2, |a| [
            a.at(8),
            libc::O_CLOEXEC as u64,
            0,
            0,
            0,
            0
        ]),
        0
    );
    for room in [0, 1, 8, 128] {
        check(libc::SYS_name_to_handle_at, |a| {
            a.half(64, room);
            [at, a.path(0, "/etc/passwd"), a.at(64), a.at(512), 0, 0]
        });
        check(libc::SYS_name_to_handle_at, |a| {
            a.half(64, room);
            [at, a.path(0, "/etc/passwd"), a.at(64), a.at(512), 1, 0]
        });
    }
    check(451, |a| {
        [
            open("/etc/passwd", 0),
            a.words(0, &[0, 4096]),
            a.at(64),
            0,
            0,
            0,
        ]
    });
    check(468, |a| [at, a.path(0, "/tmp"), a.at(512), 24, 0, 0]);
    check(468, |a| [at, a.path(0, "/tmp"), a.at(512), 64, 0, 0]);
    for nr in [libc::SYS_listxattr, libc::SYS_llistxattr] {
        check(nr, |a| [a.path(0, "/tmp"), a.at(512), 200, 0, 0, 0]);
    }
    check(libc::SYS_sysfs, |a| [2, 0, a.at(64), 0, 0, 0]);
    check(libc::SYS_ustat, |a| [0x801, a.at(64), 0, 0, 0, 0]);
    let offsets = |a: &Arena| (a.words(0, &[3]), a.words(64, &[0]));
    let got = check(libc::SYS_sendfile, |a| {
        [pipe(b"").1, open("/etc/passwd", 0), offsets(a).0, 10, 0, 0]
    });
    assert_eq!(got, 10);
    check(libc::SYS_sendfile, |a| {
        [99999, open("/etc/passwd", 0), offsets(a).0, 10, 0, 0]
    });
    let got = check(libc::SYS_splice, |a| {
        [open("/etc/passwd", 0), offsets(a).0, pipe(b"").1, 0, 10, 0]
    });
    assert_eq!(got, 10);
}

#[test]
fn attributes() {
    let path = std::env::temp_dir().join(format!("clew-poison-{}", std::process::id()));
    std::fs::write(&path, b"x").unwrap();
    let text = path.to_str().unwrap().to_string();
    let set = |a: &Arena| {
        [
            a.path(0, &text),
            a.path(512, "user.clew"),
            a.put(600, b"a value"),
            7,
            0,
            0,
        ]
    };
    if check(libc::SYS_setxattr, set) == 0 {
        for size in [0, 3, 7, 100] {
            check(libc::SYS_getxattr, |a| {
                [
                    a.path(0, &text),
                    a.path(512, "user.clew"),
                    a.at(1024),
                    size,
                    0,
                    0,
                ]
            });
            check(libc::SYS_listxattr, |a| {
                [a.path(0, &text), a.at(1024), size, 0, 0, 0]
            });
            check(464, |a| {
                let value = a.words(800, &[a.at(1024), size]);
                [
                    libc::AT_FDCWD as u64,
                    a.path(0, &text),
                    0,
                    a.path(512, "user.clew"),
                    value,
                    16,
                ]
            });
        }
    }
    let _ = std::fs::remove_file(path);
}

#[test]
fn locks_and_descriptors() {
    let lock = |a: &Arena| a.words(0, &[libc::F_WRLCK as u64, 0, 10, 0]);
    for command in [libc::F_GETLK, libc::F_OFD_GETLK] {
        check(libc::SYS_fcntl, |a| {
            [open("/etc/passwd", 0), command as u64, lock(a), 0, 0, 0]
        });
    }
    for command in 0..40 {
        // Not those that wait or change where signals go.
        if ![7, 38, 10, 11].contains(&command) {
            check(libc::SYS_fcntl, |a| {
                [pipe(b"x").0, command, a.at(64), 0, 0, 0]
            });
        }
    }
    for command in 1024..1040 {
        check(libc::SYS_fcntl, |a| {
            [open("/etc/passwd", 0), command, a.at(64), 0, 0, 0]
        });
    }
}

#[test]
fn polling() {
    let ready = |a: &Arena| {
        let (from, to) = pipe(b"x");
        a.words(0, &[from | 1 << 32, to | 4 << 32, 9999 | 1 << 32])
    };
    assert_eq!(check(libc::SYS_poll, |a| [ready(a), 3, 0, 0, 0, 0]), 3);
    assert_eq!(
        check(libc::SYS_ppoll, |a| [
            ready(a),
            3,
            a.words(64, &[1, 0]),
            0,
            8,
            0
        ]),
        3
    );
    assert_eq!(
        check(libc::SYS_poll, |a| [ready(a), 1 << 30, 0, 0, 0, 0]),
        err(libc::EINVAL)
    );
    let sets = |a: &Arena, fd: u64, bad: bool| {
        let mut set = [0u64; 16];
        set[(fd / 64) as usize] |= 1 << (fd % 64);
        if bad {
            set[15] = u64::MAX;
        }
        (
            a.words(0, &set),
            a.words(256, &set),
            a.words(512, &set),
            a.words(768, &[0, 1000]),
        )
    };
    for nr in [libc::SYS_select, libc::SYS_pselect6] {
        for bad in [false, true] {
            let got = check(nr, |a| {
                let fd = pipe(b"x").0;
                let (r, w, e, t) = sets(a, fd, bad);
                [if bad { 1024 } else { fd + 1 }, r, w, e, t, 0]
            });
            assert!(got != 0, "{got}");
        }
    }
    let watch = |_: &Arena| {
        let (from, _) = pipe(b"x");
        let mut event = libc::epoll_event {
            events: 1,
            u64: 0x1122_3344_5566_7788,
        };
        // SAFETY: one event.
        unsafe {
            let epoll = made(syscall!(libc::SYS_epoll_create1, 0));
            made(syscall!(
                libc::SYS_epoll_ctl,
                epoll,
                libc::EPOLL_CTL_ADD,
                from,
                &raw mut event
            ));
            epoll
        }
    };
    for nr in [libc::SYS_epoll_wait, libc::SYS_epoll_pwait] {
        assert_eq!(check(nr, |a| [watch(a), a.at(64), 10, 0, 0, 8]), 1);
        check(nr, |a| [watch(a), a.end() - 4, 1, 0, 0, 8]);
    }
    assert_eq!(
        check(libc::SYS_epoll_pwait2, |a| [
            watch(a),
            a.at(64),
            10,
            0,
            0,
            8
        ]),
        1
    );
}
