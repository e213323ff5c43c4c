//! Recorded changes, applied to an empty address space, give the same mappings and contents.

use super::testing::memory;
use super::*;
use crate::layout;
use crate::record::files::{self, Files};
use clew_recording::maps::{Change, Pages, Source};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const RW: i32 = PROT_READ | PROT_WRITE;
const BASE: u64 = 0x4700_0000;
const PAGES: u64 = 32;

fn at(page: u64) -> u64 {
    BASE + page * PAGE
}

/// A recording's folder, removed at the end.
struct Folder {
    path: PathBuf,
    files: OwnedFd,
}

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("clew-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let files = files::prepare(&path, false).unwrap();
        Folder { path, files }
    }

    fn files(&self) -> Files {
        Files::new(self.files.as_raw_fd())
    }

    fn open(&self, name: &str) -> std::io::Result<OwnedFd> {
        File::open(self.path.join(files::FOLDER).join(name)).map(OwnedFd::from)
    }

    /// A file of four and a half pages.
    fn make_file(&self, name: &str) -> File {
        let bytes: Vec<u8> = (0..9 * PAGE as usize / 2)
            .map(|n| (n / 64) as u8 + 1)
            .collect();
        std::fs::write(self.path.join(name), bytes).unwrap();
        let mut options = File::options();
        options.read(true).write(true);
        options.open(self.path.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// What a recording has of one step.
type Step = (Vec<Vec<u8>>, Vec<(u64, Vec<u8>)>);

fn drain(m: &mut Memory) -> Step {
    let taken = m.take_changes();
    let encode = |change: &Change| {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        bytes
    };
    // As the recorder does: page by page, and behind a file's end there is nothing.
    let mut contents = Vec::new();
    for range in &taken.contents {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at | (PAGE - 1)) + 1);
            let mut bytes = vec![0; (end - at) as usize];
            if m.peek(at, &mut bytes).is_ok() {
                contents.push((at, bytes));
            }
            at = end;
        }
    }
    (taken.changes.iter().map(encode).collect(), contents)
}

fn apply(m: &mut Memory, step: &Step, folder: &Folder) {
    for bytes in &step.0 {
        let change = Change::decode(bytes).unwrap();
        m.apply(&change, &mut |name| folder.open(name))
            .unwrap_or_else(|e| panic!("{change:x?}: {e}"));
    }
    for (addr, bytes) in &step.1 {
        m.fill(*addr, bytes).unwrap();
    }
}

/// Has the engine's copies fail where they fault, as its own handler does in a process of its own.
fn survive_faults() {
    extern "C" fn handler(sig: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes a ucontext that lives until the handler returns.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
        match crate::host::copy::failed(*rip as u64) {
            Some(failed) => *rip = failed as i64,
            // SAFETY: an honest fault shall kill: it happens again, without this handler.
            None => unsafe {
                libc::signal(sig, libc::SIG_DFL);
            },
        }
    }
    for sig in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a handler that only changes where the interrupted code goes on.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(sig, &raw const action, std::ptr::null_mut());
        }
    }
}

/// A store as the guest would make it; false if it faults.
fn store(addr: u64, byte: u8) -> bool {
    let local = libc::iovec {
        iov_base: (&raw const byte).cast_mut().cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: addr as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: the kernel checks the guest's side and copies one byte.
    unsafe {
        libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) == 1
    }
}

/// All mappings with the contents of their pages (`None`: can't be accessed).
fn state(m: &Memory) -> Vec<(Mapping, Vec<Option<Vec<u8>>>)> {
    m.iter()
        .map(|&mapping| {
            let pages = (mapping.start..mapping.end).step_by(PAGE as usize).take(64);
            let read = |page| {
                let mut bytes = vec![0; PAGE as usize];
                let read = host::read_memory(page, &mut bytes);
                (read == Ok(bytes.len())).then_some(bytes)
            };
            (mapping, pages.map(read).collect())
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Op {
    Anon {
        page: u64,
        pages: u64,
        prot: i32,
        shared: bool,
        fixed: bool,
    },
    File {
        page: u64,
        pages: u64,
        prot: i32,
        shared: bool,
        offset: u64,
    },
    Unmap(u64, u64),
    Protect(u64, u64, i32),
    Grow(u64, u64, u64),
    Move(u64, u64, u64, u64),
    MoveAndKeep(u64, u64),
    Again(u64, u64),
    Advise(u64, u64, i32),
    Store(u64, u8),
    Write(u64, u8),
    Truncate(u64),
    Break(u64),
    Code(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let rwx = RW | PROT_EXEC;
    let prot = prop::sample::select(vec![0, PROT_READ, RW, RW, rwx, PROT_READ | PROT_EXEC]);
    let advice = vec![
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_REMOVE,
        libc::MADV_WIPEONFORK,
    ];
    let advice = prop::sample::select(advice);
    let (p, n) = (0..PAGES, 1..7u64);
    prop_oneof![
        3 => (p.clone(), n.clone(), prot.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(page, pages, prot, shared, fixed)| Op::Anon { page, pages, prot, shared, fixed }),
        3 => (p.clone(), n.clone(), prot.clone(), any::<bool>(), 0..5u64)
            .prop_map(|(page, pages, prot, shared, offset)| Op::File { page, pages, prot, shared, offset }),
        1 => (p.clone(), n.clone()).prop_map(|(a, n)| Op::Unmap(a, n)),
        2 => (p.clone(), n.clone(), prot).prop_map(|(a, n, prot)| Op::Protect(a, n, prot)),
        1 => (p.clone(), n.clone(), n.clone()).prop_map(|(a, n, k)| Op::Grow(a, n, k)),
        1 => (p.clone(), n.clone(), p.clone(), n.clone()).prop_map(|(a, n, b, k)| Op::Move(a, n, b, k)),
        1 => (p.clone(), n.clone()).prop_map(|(a, n)| Op::MoveAndKeep(a, n)),
        1 => (p.clone(), n.clone()).prop_map(|(a, n)| Op::Again(a, n)),
        2 => (p.clone(), n, advice).prop_map(|(a, n, advice)| Op::Advise(a, n, advice)),
        6 => (p.clone(), 1..255u8).prop_map(|(a, byte)| Op::Store(a, byte)),
        1 => (0..5 * PAGE, 1..255u8).prop_map(|(at, byte)| Op::Write(at, byte)),
        1 => (0..8 * PAGE).prop_map(Op::Truncate),
        1 => (0..4 * PAGE).prop_map(Op::Break),
        1 => p.prop_map(Op::Code),
    ]
}

/// The guest's call. What it stores itself isn't done here.
fn call(m: &mut Memory, op: &Op, private: &File, shared_file: &File) {
    // Failing calls are as good as others.
    let _ = match *op {
        Op::Anon {
            page,
            pages,
            prot,
            shared,
            fixed,
        } => {
            let kind = if shared { MAP_SHARED } else { MAP_PRIVATE };
            let fixed = if fixed { MAP_FIXED } else { 0 };
            m.mmap(
                at(page),
                pages * PAGE,
                prot,
                MAP_ANONYMOUS | kind | fixed,
                -1,
                0,
            )
        }
        Op::File {
            page,
            pages,
            prot,
            shared,
            offset,
        } => {
            let (kind, file) = match shared {
                true => (MAP_SHARED, shared_file),
                false => (MAP_PRIVATE, private),
            };
            let fd = file.as_raw_fd();
            m.mmap(
                at(page),
                pages * PAGE,
                prot,
                kind | MAP_FIXED,
                fd,
                offset * PAGE,
            )
        }
        Op::Unmap(a, n) => m.munmap(at(a), n * PAGE),
        Op::Protect(a, n, prot) => m.mprotect(at(a), n * PAGE, prot),
        Op::Grow(a, n, k) => m.mremap(at(a), n * PAGE, k * PAGE, libc::MREMAP_MAYMOVE, 0),
        Op::Move(a, n, b, k) => {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            m.mremap(at(a), n * PAGE, k * PAGE, flags, at(b))
        }
        Op::MoveAndKeep(a, n) => {
            let flags = libc::MREMAP_MAYMOVE | super::mremap::DONTUNMAP;
            m.mremap(at(a), n * PAGE, n * PAGE, flags, 0)
        }
        Op::Again(a, n) => m.mremap(at(a), 0, n * PAGE, libc::MREMAP_MAYMOVE, 0),
        Op::Advise(a, n, advice) => m.madvise(at(a), n * PAGE, advice),
        Op::Write(offset, byte) => {
            let n = shared_file.write_at(&[byte; 100], offset).unwrap();
            m.file_written(shared_file.as_raw_fd(), Some(offset), n as u64);
            Ok(0)
        }
        Op::Truncate(size) => {
            shared_file.set_len(size).unwrap();
            m.file_written(shared_file.as_raw_fd(), Some(0), 0);
            Ok(0)
        }
        Op::Break(n) => Ok(m.brk(layout::HEAP.start + n)),
        Op::Code(a) => {
            if m.find(at(a)).is_some() {
                m.protect_code(at(a)..at(a) + 1).unwrap();
            }
            Ok(0)
        }
        Op::Store(..) => Ok(0),
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_replay_has_the_same_mappings_and_contents(ops in prop::collection::vec(op(), 1..40)) {
        survive_faults();
        let folder = Folder::new("replay");
        let (private, shared) = (folder.make_file("private"), folder.make_file("shared"));
        let mut steps = Vec::new();
        let mut m = memory();
        m.record_changes(folder.files());
        for op in &ops {
            call(&mut m, op, &private, &shared);
            let step = drain(&mut m);
            let mut stored = false;
            if let Op::Store(page, byte) = *op {
                // Pages with code are the engine's to open; a replay opens others.
                m.unprotect_for_kernel(at(page), 1);
                stored = store(at(page) + 5, byte);
            }
            steps.push((step, stored));
        }
        let recorded = (state(&m), m.checksum(), m.heap());
        drop(m);
        // Nothing of the files is needed any more.
        private.set_len(0).unwrap();
        shared.set_len(0).unwrap();

        let mut m = memory();
        for (op, (step, stored)) in ops.iter().zip(&steps) {
            apply(&mut m, step, &folder);
            if let Op::Store(page, byte) = *op {
                prop_assert_eq!(store(at(page) + 5, byte), *stored, "{:?}", op);
            }
        }
        let replayed = (state(&m), m.checksum(), m.heap());
        for (a, b) in recorded.0.iter().zip(&replayed.0) {
            prop_assert_eq!(&a.0, &b.0);
            for (n, (a, b)) in a.1.iter().zip(&b.1).enumerate() {
                prop_assert!(a == b, "contents of page {}", n);
            }
        }
        prop_assert_eq!(recorded.0.len(), replayed.0.len());
        prop_assert_eq!((recorded.1, recorded.2), (replayed.1, replayed.2));
    }
}

/// Applies `steps` to an empty address space, as another process would.
fn replay(steps: &[Step], folder: &Folder) -> super::testing::TestMemory {
    let mut m = memory();
    for step in steps {
        apply(&mut m, step, folder);
    }
    m
}

#[test]
fn two_views_of_shared_memory_stay_one_memory() {
    let folder = Folder::new("views");
    let file = folder.make_file("shared");
    let fd = file.as_raw_fd();
    let mut m = memory();
    m.record_changes(folder.files());
    let map = |m: &mut Memory, page, prot| {
        m.mmap(at(page), 6 * PAGE, prot, MAP_SHARED | MAP_FIXED, fd, 0)
            .unwrap()
    };
    let (a, b) = (map(&mut m, 0, RW), map(&mut m, 8, PROT_READ | PROT_EXEC));
    assert_eq!(m.shared_ranges_of(fd, PAGE, 10).len(), 2);
    let step = drain(&mut m);
    drop(m);

    let mut m = replay(&[step], &folder);
    assert!(store(a + 7, 99));
    let byte = |addr| {
        let mut byte = [0];
        host::read_memory(addr, &mut byte).map(|_| byte[0])
    };
    assert_eq!(
        (byte(b + 7), byte(b + 5 * PAGE)),
        (Ok(99), Err(libc::EFAULT))
    );
    // On its own after a fork, with the same contents.
    let copies = m.copy_shared().unwrap();
    m.unshare(copies).unwrap();
    assert_eq!((byte(b + 7), byte(b + 64)), (Ok(99), Ok(2)));
    assert!(store(a + 8, 98));
    assert_eq!(byte(b + 8), Ok(98));
    let size = |size| Change::Resize {
        object: clew_recording::maps::Object::File {
            dev: file::stat(fd).unwrap().identity.dev,
            ino: file::stat(fd).unwrap().identity.ino,
        },
        size,
    };
    m.apply(&size(6 * PAGE), &mut |n| folder.open(n)).unwrap();
    assert_eq!(byte(b + 5 * PAGE), Ok(0));
}

#[test]
fn a_program_is_loaded_again() {
    let folder = Folder::new("load");
    let mut m = memory();
    m.record_changes(folder.files());
    let argv = [c"sh".to_owned()];
    let program = crate::loader::resolve(c"/bin/sh", &argv).unwrap();
    crate::loader::load(&mut m, &program, &[], None, false).unwrap();
    m.set_stack_limit(1 << 20);
    m.set_stack_limit(16 << 20);
    let step = drain(&mut m);
    let recorded = (state(&m), m.checksum(), m.maps_text().unwrap());
    let text = String::from_utf8(recorded.2.clone()).unwrap();
    assert!(!text.contains("clew-load"), "{text}");
    assert!(
        text.contains("/dash") || text.contains("/bash") || text.contains("/sh"),
        "{text}"
    );
    let base = m.iter().find_map(|m| m.image_base()).unwrap();
    let build_id = m.build_id(base);
    drop(m);

    let mut m = replay(&[step], &folder);
    let replayed = (state(&m), m.checksum());
    assert_eq!(recorded.1, replayed.1);
    assert!(recorded.1 != 0);
    assert_eq!(m.build_id(base), build_id);
    for (a, b) in recorded.0.iter().zip(&replayed.0) {
        assert_eq!(a.0, b.0);
        // All of the stack is there in a replay, none of what it hasn't grown to natively.
        assert!(a.1 == b.1 || a.0.backing == Backing::Stack, "{:x?}", a.0);
    }
    // Without the copies there is no replay.
    let change = Change::Map {
        mapping: m.iter().next().unwrap().into(),
        source: Source::Copy {
            name: "gone".to_owned(),
            offset: 0,
        },
        path: Vec::new(),
    };
    let error = m.apply(&change, &mut |n| folder.open(n)).unwrap_err();
    assert!(matches!(error, ApplyError::File { .. }), "{error}");
}

#[test]
fn a_lower_stack_limit_closes_what_has_not_grown() {
    let folder = Folder::new("stack");
    let mut m = memory();
    m.record_changes(folder.files());
    m.map_stack(16 * PAGE, RW, 1 << 20).unwrap();
    let mut steps = vec![drain(&mut m)];
    m.set_stack_limit(32 * PAGE);
    steps.push(drain(&mut m));
    assert_eq!(steps[1].0.len(), 1);
    m.set_stack_limit(2 << 20);
    steps.push(drain(&mut m));
    drop(m);
    let top = layout::STACK_TOP;
    let mut m = replay(&steps[..1], &folder);
    assert!(store(top - (1 << 20), 1) && !store(top - (1 << 20) - 1, 1));
    apply(&mut m, &steps[1], &folder);
    assert!(store(top - 32 * PAGE, 1) && !store(top - 32 * PAGE - 1, 1));
    apply(&mut m, &steps[2], &folder);
    assert!(store(top - 33 * PAGE, 1) && store(top - (2 << 20), 1));
    assert!(!store(top - (2 << 20) - 1, 1));
}

#[test]
fn what_no_copy_was_made_of_is_logged() {
    let folder = Folder::new("logged");
    let file = folder.make_file("private");
    let mut m = memory();
    // Not a folder: no copy can be made.
    m.record_changes(Files::new(file.as_raw_fd()));
    let map = |m: &mut Memory, page, prot| {
        let flags = MAP_PRIVATE | MAP_FIXED;
        m.mmap(at(page), 6 * PAGE, prot, flags, file.as_raw_fd(), 0)
            .unwrap()
    };
    map(&mut m, 0, RW);
    map(&mut m, 8, PROT_READ);
    map(&mut m, 16, 0);
    m.mprotect(at(16), 6 * PAGE, PROT_READ).unwrap();
    assert!(store(at(0), 77));
    let mut steps = vec![drain(&mut m)];
    m.madvise(at(0), PAGE, libc::MADV_DONTNEED).unwrap();
    steps.push(drain(&mut m));
    let recorded = state(&m);
    drop(m);
    let m = replay(&steps, &folder);
    assert!(state(&m) == recorded);
}

#[test]
fn a_segment_keeps_its_contents() {
    let folder = Folder::new("segment");
    // SAFETY: creates a segment of our own.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 3 * PAGE as usize, 0o600) };
    assert!(id >= 0);
    let mut m = memory();
    let a = m.shmat(id, 0, 0).unwrap();
    assert!(store(a + 2 * PAGE, 5));
    m.record_changes(folder.files());
    let b = m.shmat(id, 0, libc::SHM_RDONLY).unwrap();
    let taken = m.take_changes();
    let page = b + 2 * PAGE..b + 3 * PAGE;
    assert_eq!(taken.contents, std::slice::from_ref(&page));
    assert!(taken.notes[0].warn);
    assert_eq!(m.shmdt(b), Ok(0));
    assert!(matches!(m.take_changes().changes[..], [Change::Unmap(_)]));
    // SAFETY: removes our segment.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

#[test]
fn a_forked_child_finds_what_was_asked_for() {
    let folder = Folder::new("forked");
    let mut m = memory();
    m.record_changes(folder.files());
    let anon = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    m.mmap(at(0), 6 * PAGE, RW, anon, -1, 0).unwrap();
    m.madvise(at(1), PAGE, libc::MADV_WIPEONFORK).unwrap();
    m.madvise(at(3), PAGE, libc::MADV_DONTFORK).unwrap();
    // Not in a child really, so the page is still there; what is written down is what counts.
    m.take_changes();
    m.after_fork_child();
    let pages = |page| Pages {
        start: at(page),
        end: at(page + 1),
    };
    let discard = Change::Discard {
        pages: pages(1),
        kind: clew_recording::maps::Discard::Private,
    };
    assert_eq!(m.take_changes().changes, [discard, Change::Unmap(pages(3))]);
    assert!(m.find(at(3)).is_none());
    host::munmap(at(3)..at(4)).unwrap();
}

#[test]
fn strangers_recordings_stay_in_guest_memory() {
    let folder = Folder::new("strangers");
    let mut m = memory();
    let own = folder.path.as_os_str().as_encoded_bytes().as_ptr() as u64 & !(PAGE - 1);
    let block = layout::GS_BLOCK;
    for start in [
        0,
        own,
        block,
        layout::PRIVATE_CODE.start - PAGE,
        u64::MAX - 2 * PAGE + 1,
    ] {
        let pages = Pages {
            start,
            end: start.saturating_add(2 * PAGE) & !(PAGE - 1),
        };
        let mut mapping = Mapping::anon(at(0), at(2), RW);
        (mapping.start, mapping.end) = (pages.start, pages.end);
        let changes = [
            Change::Map {
                mapping: (&mapping).into(),
                source: Source::Zero,
                path: Vec::new(),
            },
            Change::Unmap(pages),
            Change::Protect { pages, prot: 0 },
            Change::Discard {
                pages,
                kind: clew_recording::maps::Discard::Private,
            },
            Change::Move {
                old: start,
                old_len: PAGE,
                new: at(0),
                new_len: PAGE,
                keep: false,
            },
            Change::Move {
                old: at(4),
                old_len: PAGE,
                new: start,
                new_len: 2 * PAGE,
                keep: false,
            },
            Change::Stack(start & !(PAGE - 1)),
            Change::Break(start),
        ];
        let anon = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        m.mmap(at(4), PAGE, RW, anon, -1, 0).unwrap();
        for change in changes {
            let done = m.apply(&change, &mut |n| folder.open(n));
            assert!(done.is_err(), "{change:x?}");
        }
        assert!(m.fill(start, &[1]).is_err());
    }
}

#[test]
fn the_checksum_sees_writes_and_nothing_else() {
    let mut m = memory();
    let anon = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    m.mmap(at(0), 8 * PAGE, RW, anon, -1, 0).unwrap();
    // A terabyte that nobody touches.
    let huge = anon | libc::MAP_NORESERVE;
    m.mmap(0x2200_0000_0000, 1 << 40, RW, huge, -1, 0).unwrap();
    assert_eq!(m.checksum(), 0);
    assert!(store(at(1), 0));
    assert_eq!(m.checksum(), 0);
    assert!(store(at(1), 1));
    let one = m.checksum();
    assert!(store(at(1), 0) && store(at(2), 1));
    let other = m.checksum();
    assert!(one != 0 && other != 0 && one != other);
    assert!(store(0x2280_0000_0123, 9));
    assert_ne!(m.checksum(), other);
    m.madvise(0x2200_0000_0000, 1 << 40, libc::MADV_DONTNEED)
        .unwrap();
    assert_eq!(m.checksum(), other);
}
