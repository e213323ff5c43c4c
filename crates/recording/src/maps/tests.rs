//! Changes of mappings survive the way to bytes and back; strangers' bytes do no harm.

use super::*;
use proptest::prelude::*;

fn pages() -> impl Strategy<Value = Pages> {
    (0..1u64 << 35, 1..1u64 << 20).prop_map(|(start, len)| Pages {
        start: start * PAGE,
        end: (start + len) * PAGE,
    })
}

fn file() -> impl Strategy<Value = FileId> {
    any::<(u64, u64, u64, i64)>().prop_map(|(dev, ino, size, mtime_ns)| FileId {
        dev,
        ino,
        size,
        mtime_ns,
    })
}

fn offset() -> impl Strategy<Value = u64> {
    (0..1u64 << 40).prop_map(|page| page * PAGE)
}

fn backing() -> impl Strategy<Value = Backing> {
    let image = prop::option::of(1..u64::MAX);
    let file = (file(), offset(), image).prop_map(|(file, offset, image)| Backing::File {
        file,
        offset,
        image,
    });
    prop_oneof![
        Just(Backing::Anon),
        Just(Backing::Heap),
        Just(Backing::Stack),
        Just(Backing::Vdso),
        Just(Backing::Shm),
        file,
    ]
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        any::<u64>().prop_map(Object::Anon),
        any::<u64>().prop_map(Object::Segment),
        any::<(u64, u64)>().prop_map(|(dev, ino)| Object::File { dev, ino }),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let size = 0..i64::MAX as u64;
    let name = "[a-f0-9-]{1,120}";
    prop_oneof![
        Just(Source::Zero),
        (name, offset()).prop_map(|(name, offset)| Source::Copy { name, offset }),
        (offset(), size.clone()).prop_map(|(offset, size)| Source::Logged { offset, size }),
        (object(), offset(), size, prop::option::of(name)).prop_map(
            |(object, offset, size, copy)| Source::Object {
                object,
                offset,
                size,
                copy
            }
        ),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let mapping = (pages(), 0..8u8, any::<[bool; 4]>(), backing()).prop_map(
        |(pages, prot, flags, backing)| Mapping {
            pages,
            prot,
            shared: flags[0],
            grows_down: flags[1],
            no_reserve: flags[2],
            was_writable: flags[3],
            backing,
        },
    );
    let path = prop::collection::vec(any::<u8>(), 0..LONGEST_PATH);
    let kind = prop::sample::select(vec![Discard::Private, Discard::Shared]);
    prop_oneof![
        (mapping, source(), path).prop_map(|(mapping, source, path)| Change::Map {
            mapping,
            source,
            path,
        }),
        (file(), pages()).prop_map(|(file, pages)| Change::Image { file, pages }),
        pages().prop_map(Change::Unmap),
        (pages(), 0..8u8).prop_map(|(pages, prot)| Change::Protect { pages, prot }),
        (offset(), offset(), offset(), pages(), any::<bool>()).prop_map(
            |(old, old_len, new, len, keep)| Change::Move {
                old,
                old_len,
                new,
                new_len: len.len(),
                keep,
            }
        ),
        (pages(), kind).prop_map(|(pages, kind)| Change::Discard { pages, kind }),
        (pages(), any::<bool>(), any::<bool>()).prop_map(|(pages, wiped, dropped)| {
            Change::OnFork {
                pages,
                what: OnFork { wiped, dropped },
            }
        }),
        any::<u64>().prop_map(Change::Break),
        offset().prop_map(Change::Stack),
        (object(), 0..i64::MAX as u64).prop_map(|(object, size)| Change::Resize { object, size }),
        pages().prop_map(Change::Close),
        pages().prop_map(Change::Open),
    ]
}

proptest! {
    #[test]
    fn changes_come_back(change in change()) {
        let mut bytes = vec![7];
        change.encode(&mut bytes);
        prop_assert!(bytes.len() <= LONGEST_CHANGE + 1);
        prop_assert_eq!(Change::decode(&bytes[1..]), Ok(change));
    }

    /// Whatever the bytes: an error, or a change that is written as it was read.
    #[test]
    fn hostile_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(change) = Change::decode(&bytes) {
            let mut again = Vec::new();
            change.encode(&mut again);
            prop_assert_eq!(Change::decode(&again), Ok(change));
        }
    }

    #[test]
    fn damaged_changes_do_no_harm(change in change(), at in any::<usize>(), to in any::<u8>()) {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = Change::decode(&bytes);
        prop_assert_eq!(Change::decode(&bytes[..at]), Err(Malformed));
    }
}

#[test]
fn names_lead_nowhere_else() {
    for bad in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "A",
        "a.b",
        "a\0",
        &"a".repeat(121),
    ] {
        assert!(!is_name(bad.as_bytes()), "{bad:?}");
    }
    assert!(is_name(b"fd00-12-3a-0-ff"));
}
