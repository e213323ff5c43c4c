//! Sockets, System V objects, message queues, ioctls.

use super::*;

#[test]
fn messages() {
    let dgram = libc::SOCK_DGRAM;
    let filled = |data: &[u8]| {
        let (a, b) = sockets(dgram);
        send(b, data);
        a
    };
    for address_len in [0, 1, 2, 110] {
        let got = check(libc::SYS_recvfrom, |a| {
            [
                filled(b"hello"),
                a.at(64),
                100,
                0,
                a.at(512),
                a.half(1024, address_len),
            ]
        });
        assert_eq!(got, 5);
    }
    let header = |a: &Arena, at: u64, name_len: u64, control_len: u64| {
        let iov = a.words(at + 512, &[a.at(at + 4096), 3, a.at(at + 4200), 100]);
        a.words(
            at,
            &[
                a.at(at + 1024),
                name_len,
                iov,
                2,
                a.at(at + 2048),
                control_len,
                0,
            ],
        )
    };
    for (name_len, control_len) in [(0, 0), (110, 200), (1, 20)] {
        let got = check(libc::SYS_recvmsg, |a| {
            [
                filled(b"hello"),
                header(a, 0, name_len, control_len),
                0,
                0,
                0,
                0,
            ]
        });
        assert_eq!(got, 5);
        // With credentials as control data.
        check(libc::SYS_recvmsg, |a| {
            let (one, two) = sockets(dgram);
            let on = 1i32;
            // SAFETY: an int as option.
            unsafe {
                made(syscall!(
                    libc::SYS_setsockopt,
                    one,
                    libc::SOL_SOCKET,
                    libc::SO_PASSCRED,
                    &raw const on,
                    4
                ))
            };
            send(two, b"hello");
            [one, header(a, 0, name_len, control_len), 0, 0, 0, 0]
        });
    }
    assert_eq!(
        check(libc::SYS_recvmsg, |a| [
            sockets(dgram).0,
            header(a, 0, 9, 9),
            libc::MSG_DONTWAIT as u64,
            0,
            0,
            0
        ]),
        err(libc::EAGAIN)
    );
    let two = |a: &Arena| {
        header(a, 0, 110, 100);
        let second = a.words(8192 + 512, &[a.at(12000), 50]);
        a.words(64, &[0, 0, second, 1, 0, 0, 0]);
        a.at(0)
    };
    let got = check(libc::SYS_recvmmsg, |a| {
        let (one, to) = sockets(dgram);
        send(to, b"hello");
        send(to, b"dear world");
        [one, two(a), 2, 0, a.words(16384, &[1, 0]), 0]
    });
    assert_eq!(got, 2);
    // Sending several tells how much of each was sent.
    let got = check(libc::SYS_sendmmsg, |a| {
        let one = sockets(dgram).0;
        let iov = a.words(512, &[a.at(4096), 30]);
        a.words(0, &[0, 0, iov, 1, 0, 0, 0]);
        a.words(64, &[0, 0, iov, 1, 0, 0, 0]);
        [one, a.at(0), 2, 0, 0, 0]
    });
    assert_eq!(got, 2);
}

#[test]
fn addresses_and_options() {
    let inet = || {
        // SAFETY: a socket and a connection to nowhere in particular; listens at any port.
        unsafe {
            let fd = made(syscall!(
                libc::SYS_socket,
                libc::AF_INET,
                libc::SOCK_STREAM,
                0
            ));
            made(syscall!(libc::SYS_listen, fd, 5));
            fd
        }
    };
    for len in [0, 3, 16, 128] {
        let got = check(libc::SYS_getsockname, |a| {
            [inet(), a.at(64), a.half(512, len), 0, 0, 0]
        });
        assert_eq!(got, 0);
        check(libc::SYS_getpeername, |a| {
            [
                sockets(libc::SOCK_STREAM).0,
                a.at(64),
                a.half(512, len),
                0,
                0,
                0,
            ]
        });
        let accepted = |a: &Arena| {
            let fd = inet();
            let mut name = [0u8; 16];
            let mut name_len = 16u32;
            // SAFETY: room for an address, and its length.
            unsafe {
                made(syscall!(
                    libc::SYS_getsockname,
                    fd,
                    name.as_mut_ptr(),
                    &raw mut name_len
                ));
                name[4..8].copy_from_slice(&[127, 0, 0, 1]);
                let client = made(syscall!(
                    libc::SYS_socket,
                    libc::AF_INET,
                    libc::SOCK_STREAM,
                    0
                ));
                made(syscall!(libc::SYS_connect, client, name.as_ptr(), 16));
            }
            [fd, a.at(64), a.half(512, len), 0, 0, 0]
        };
        assert!(check(libc::SYS_accept, accepted) > 0);
        assert!(check(libc::SYS_accept4, accepted) > 0);
    }
    let bad = check(libc::SYS_socketpair, |a| {
        [libc::AF_INET as u64, 1, 0, a.at(64), 0, 0]
    });
    assert_eq!(bad, err(libc::EOPNOTSUPP));
    assert_eq!(
        check(libc::SYS_socketpair, |a| [1, 1, 0, a.at(64), 0, 0]),
        0
    );
    for (level, last) in [
        (libc::SOL_SOCKET, 85),
        (libc::IPPROTO_IP, 55),
        (libc::IPPROTO_TCP, 45),
    ] {
        for option in 0..last {
            if level == libc::IPPROTO_TCP && option == 35 {
                continue; // zero-copy receive, refused
            }
            for len in [0, 1, 4, 300] {
                check(libc::SYS_getsockopt, |a| {
                    [inet(), level as u64, option, a.at(64), a.half(1024, len), 0]
                });
            }
        }
    }
    for option in 0..85 {
        for len in [0, 4, 300] {
            check(libc::SYS_getsockopt, |a| {
                [
                    sockets(libc::SOCK_STREAM).0,
                    1,
                    option,
                    a.at(64),
                    a.half(1024, len),
                    0,
                ]
            });
        }
    }
}

#[test]
fn system_v_and_queues() {
    // SAFETY: objects of this test, removed below.
    let (queue, set, segment) = unsafe {
        (
            syscall!(libc::SYS_msgget, 0, 0o600),
            syscall!(libc::SYS_semget, 0, 3, 0o600),
            syscall!(libc::SYS_shmget, 0, 4096, 0o600),
        )
    };
    if queue >= 0 {
        let queue = queue as u64;
        for (len, expected) in [(100, 5), (3, err(libc::E2BIG))] {
            let got = check(libc::SYS_msgrcv, |a| {
                let message = a.words(0, &[1, 0x1122_3344_5566]);
                // SAFETY: sends 5 bytes of the arena.
                unsafe { made(syscall!(libc::SYS_msgsnd, queue, message, 5, 0)) };
                [queue, a.at(64), len, 0, libc::IPC_NOWAIT as u64, 0]
            });
            assert_eq!(got, expected);
        }
        for command in [2, 3, 11, 12, 13] {
            check(libc::SYS_msgctl, |a| [queue, command, a.at(64), 0, 0, 0]);
            check(libc::SYS_msgctl, |a| [0, command, a.at(64), 0, 0, 0]);
        }
        // SAFETY: removes this test's queue.
        unsafe { syscall!(libc::SYS_msgctl, queue, 0, 0) };
    }
    if set >= 0 {
        let set = set as u64;
        for command in [2, 3, 11, 12, 13, 14, 15, 18, 19, 20] {
            check(libc::SYS_semctl, |a| [set, 0, command, a.at(64), 0, 0]);
            check(libc::SYS_semctl, |a| [0, 0, command, a.at(64), 0, 0]);
        }
        assert_eq!(check(libc::SYS_semctl, |a| [set, 0, 13, a.at(64), 0, 0]), 0);
        // SAFETY: removes this test's set.
        unsafe { syscall!(libc::SYS_semctl, set, 0, 0, 0) };
    }
    if segment >= 0 {
        let segment = segment as u64;
        for command in [2, 3, 13, 14, 15] {
            check(libc::SYS_shmctl, |a| [segment, command, a.at(64), 0, 0, 0]);
            check(libc::SYS_shmctl, |a| [0, command, a.at(64), 0, 0, 0]);
        }
        // SAFETY: removes this test's segment.
        unsafe { syscall!(libc::SYS_shmctl, segment, 0, 0) };
    }
    let name = format!("clew-poison-{}", std::process::id());
    let path = CString::new(name).unwrap();
    // SAFETY: a queue of this test, unlinked at once.
    let fd = unsafe {
        let fd = syscall!(
            libc::SYS_mq_open,
            path.as_ptr(),
            libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK,
            0o600,
            0
        );
        syscall!(libc::SYS_mq_unlink, path.as_ptr());
        fd
    };
    if fd >= 0 {
        let fd = fd as u64;
        check(libc::SYS_mq_getsetattr, |a| [fd, 0, a.at(64), 0, 0, 0]);
        let got = check(libc::SYS_mq_timedreceive, |a| {
            // SAFETY: sends 4 bytes.
            unsafe {
                made(syscall!(
                    libc::SYS_mq_timedsend,
                    fd,
                    b"text".as_ptr(),
                    4,
                    7,
                    0
                ))
            };
            [fd, a.at(64), 8192, a.at(16384), 0, 0]
        });
        assert_eq!(got, 4);
        check(libc::SYS_mq_timedreceive, |a| {
            [fd, a.at(64), 8192, a.at(16384), 0, 0]
        });
    }
}

#[test]
fn requests() {
    let terminal = |_: &Arena| {
        let fd = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY);
        let unlock = 0i32;
        // SAFETY: an int.
        unsafe { syscall!(libc::SYS_ioctl, fd, 0x4004_5431u32, &raw const unlock) };
        fd
    };
    // All that ask something of a terminal.
    for request in [
        0x5401,
        0x5405,
        0x540f,
        0x5411,
        0x5413,
        0x5415,
        0x5419,
        0x541b,
        0x541e,
        0x5424,
        0x5429,
        0x5432,
        0x5456,
        0x545d,
        0x5459,
        0x802c_542a,
        0x8004_5430,
        0x8004_5432,
        0x8004_5438,
        0x8004_5439,
        0x8004_5440,
    ] {
        check(libc::SYS_ioctl, |a| {
            [terminal(a), request, a.at(64), 0, 0, 0]
        });
    }
    let socket = |_: &Arena| {
        // SAFETY: a new socket.
        unsafe {
            made(syscall!(
                libc::SYS_socket,
                libc::AF_INET,
                libc::SOCK_DGRAM,
                0
            ))
        }
    };
    for request in (0x8901..0x8960).filter(|r| {
        // Only questions.
        matches!(
            r,
            0x8903
                ..=0x8907
                    | 0x8910
                    | 0x8912
                    | 0x8913
                    | 0x8915
                    | 0x8917
                    | 0x8919
                    | 0x891b
                    | 0x891d
                    | 0x891f
                    | 0x8921
                    | 0x8927
                    | 0x8933
                    | 0x8938
                    | 0x8942
                    | 0x8954
                    | 0x8970
        )
    }) {
        check(libc::SYS_ioctl, |a| {
            a.put(64, &[0; 40]);
            a.put(64, b"lo\0");
            if request == 0x8912 {
                a.words(64, &[120, a.at(1024)]);
            }
            [socket(a), request, a.at(64), 0, 0, 0]
        });
    }
    for request in [
        0x541b,
        0x5460,
        2,
        0x8008_6601,
        0x8008_7601,
        0x801c_581f,
        0x8100_9431,
        0xc020_660b,
    ] {
        check(libc::SYS_ioctl, |a| {
            a.words(64, &[0, u64::MAX, 0, 3]);
            [open("/etc/passwd", 0), request, a.at(64), 0, 0, 0]
        });
    }
    check(libc::SYS_ioctl, |a| {
        [open("/dev/urandom", 0), 0x8004_5200, a.at(64), 0, 0, 0]
    });
    let got = check(libc::SYS_ioctl, |a| {
        [pipe(b"abc").0, 0x541b, a.at(64), 0, 0, 0]
    });
    assert_eq!(got, 0);
    close(pipe(b"x"));
}
