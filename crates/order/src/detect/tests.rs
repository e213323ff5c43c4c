//! Clocks, locks and atomics by hand: which accesses are in no order.

use super::*;

fn detector() -> Detector {
    let mut detector = Detector::default();
    detector.begins();
    detector
}

fn interaction(kind: Kind, thread: ThreadId, object: u32) -> Interaction {
    Interaction {
        kind,
        thread,
        object,
        t: 0,
        at: Mark::default(),
        over: Mark::default(),
        site: 0,
        other: None,
    }
}

fn touch(thread: ThreadId, pc: u64, addr: u64, len: u64, write: bool, locked: bool) -> Access {
    Access {
        thread,
        at: Mark {
            pc,
            ..Mark::default()
        },
        addr,
        len,
        read: !write || locked,
        write,
        locked,
    }
}

#[test]
fn without_order_it_is_a_race_and_with_it_none() {
    let mut racy = detector();
    racy.access(&touch(1, 10, 0x100, 4, true, false));
    racy.access(&touch(2, 20, 0x100, 4, true, false));
    assert_eq!(racy.pairs().len(), 1);
    for (release, acquire) in [
        (Kind::MutexUnlock, Kind::MutexLock),
        (Kind::SemPost, Kind::SemWait),
        (Kind::ThreadCreate, Kind::ThreadCreated),
        (Kind::ThreadExit, Kind::ThreadJoin),
        (Kind::BarrierArrive, Kind::BarrierLeave),
    ] {
        let mut right = detector();
        right.access(&touch(1, 10, 0x100, 4, true, false));
        right.interacts(&interaction(release, 1, 7), true);
        right.interacts(&interaction(acquire, 2, 7), true);
        right.access(&touch(2, 20, 0x100, 4, true, false));
        assert_eq!(right.pairs(), [], "{release:?}");
        // What comes after the release isn't handed over.
        right.access(&touch(1, 30, 0x100, 4, false, false));
        assert_eq!(right.pairs().len(), 1, "{release:?}");
    }
}

#[test]
fn readers_of_a_lock_are_not_ordered() {
    let mut all = detector();
    for (thread, pc) in [(1, 10), (2, 20)] {
        all.interacts(&interaction(Kind::RwRead, thread, 7), true);
        all.access(&touch(thread, pc, 0x100, 4, true, false));
        all.interacts(&interaction(Kind::RwUnlock, thread, 7), true);
    }
    assert_eq!(all.pairs().len(), 1);
    // A writer comes after both, and others after it.
    all.interacts(&interaction(Kind::RwWrite, 3, 7), true);
    all.access(&touch(3, 30, 0x100, 4, true, false));
    all.interacts(&interaction(Kind::RwUnlock, 3, 7), true);
    all.interacts(&interaction(Kind::RwRead, 1, 7), true);
    all.access(&touch(1, 40, 0x100, 4, false, false));
    assert_eq!(all.pairs().len(), 1);
}

#[test]
fn bytes_are_exact() {
    let mut all = detector();
    all.access(&touch(1, 10, 0x100, 3, true, false));
    all.access(&touch(2, 20, 0x103, 1, true, false));
    assert_eq!(all.pairs(), []);
    all.access(&touch(2, 30, 0x102, 2, false, false));
    let pairs = all.pairs();
    assert_eq!((pairs[0].addr, pairs[0].len), (0x102, 1));
    // Two reads are no race; one access over two words is one.
    let mut long = detector();
    long.access(&touch(1, 10, 0x104, 8, false, false));
    long.access(&touch(2, 20, 0x104, 8, false, false));
    assert_eq!(long.pairs(), []);
    long.access(&touch(2, 30, 0x104, 8, true, false));
    let pairs = long.pairs();
    assert_eq!((pairs.len(), pairs[0].addr, pairs[0].len), (1, 0x104, 8));
    assert_eq!(pairs[0].count, 1);
}

#[test]
fn atomic_memory_hands_over() {
    let mut all = detector();
    // A lock of the program's own: taken by an exchange, given by an ordinary store.
    for (thread, pc) in [(1, 10), (2, 20)] {
        all.access(&touch(thread, pc, 0x200, 4, true, true));
        all.access(&touch(thread, pc + 1, 0x100, 4, true, false));
        all.access(&touch(thread, pc + 2, 0x200, 4, true, false));
    }
    assert_eq!(all.pairs(), []);
    assert!(!all.learns());
}

#[test]
fn what_changes_it_without_being_atomic_is_a_race() {
    let mut all = detector();
    all.access(&touch(1, 10, 0x200, 4, true, true));
    let changes = Access {
        read: true,
        ..touch(2, 20, 0x200, 4, true, false)
    };
    all.access(&changes);
    assert_eq!(all.pairs().len(), 1);
    // An ordinary store may be meant as an atomic one.
    let mut meant = detector();
    meant.access(&touch(1, 10, 0x200, 4, true, true));
    meant.access(&touch(2, 20, 0x200, 4, true, false));
    assert_eq!(meant.pairs(), []);
    // And where the text says so, without any atomic instruction.
    let mut told = detector();
    told.knows([0x200]);
    told.begins();
    told.access(&touch(1, 10, 0x100, 4, true, false));
    told.access(&touch(1, 11, 0x200, 4, true, false));
    told.access(&touch(2, 20, 0x200, 4, false, false));
    told.access(&touch(2, 21, 0x100, 4, false, false));
    assert_eq!(told.pairs(), []);
}

#[test]
fn what_turns_out_to_be_atomic_is_known_the_next_time() {
    let mut all = detector();
    for round in 0..2 {
        all.begins();
        all.access(&touch(1, 10, 0x100, 4, true, false));
        all.access(&touch(1, 11, 0x200, 4, true, false));
        all.access(&touch(2, 20, 0x200, 4, true, true));
        all.access(&touch(2, 21, 0x100, 4, false, false));
        assert_eq!(all.pairs().is_empty(), round == 1);
        assert_eq!(all.learns(), round == 0);
    }
}

#[test]
fn blocks_are_other_memory_each_time() {
    let mut all = detector();
    let nowhere = Mark::default();
    all.allocated(1, 0x1000, 64, nowhere, 5);
    all.access(&touch(1, 10, 0x1010, 8, true, false));
    all.freed(1, 0x1000, nowhere, 6);
    all.allocated(2, 0x1000, 64, nowhere, 5);
    all.access(&touch(2, 20, 0x1010, 8, true, false));
    assert_eq!(all.pairs(), []);
    // Given back while another uses it.
    all.freed(1, 0x1000, nowhere, 6);
    let pairs = all.pairs();
    assert_eq!(pairs.len(), 1);
    assert!(pairs[0].second.freed);
    assert_eq!(pairs[0].block.map(|block| block.thread), Some(2));
    // Used after it was given back.
    let mut later = detector();
    later.allocated(1, 0x1000, 64, nowhere, 5);
    later.freed(1, 0x1000, nowhere, 6);
    later.access(&touch(2, 20, 0x1010, 8, false, false));
    assert_eq!(later.pairs().len(), 1);
    later.allocated(1, 0x1000, 64, nowhere, 5);
    later.access(&touch(2, 30, 0x1010, 8, false, false));
    assert_eq!(later.pairs().len(), 1);
}
