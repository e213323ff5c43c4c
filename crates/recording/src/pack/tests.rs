//! Packs that are good, damaged, or made to do harm.

use super::*;
use crate::testing::Scratch;

fn recording(scratch: &Scratch) -> PathBuf {
    let folder = scratch.0.join("one");
    std::fs::create_dir_all(folder.join("files")).unwrap();
    meta::example("one").write(&folder).unwrap();
    std::fs::write(folder.join("log"), vec![7; 100_000]).unwrap();
    std::fs::write(folder.join("files/0001"), b"contents").unwrap();
    std::fs::write(folder.join("files/empty"), b"").unwrap();
    std::fs::write(folder.join(summary::FILE), b"{}").unwrap();
    std::fs::write(folder.join(".work"), b"{}").unwrap();
    folder
}

const ALL: Allowed = Allowed {
    most: MOST_BYTES,
    large: false,
};

fn quietly(_: u64, _: u64) -> bool {
    true
}

/// A packed file of what `fill` puts into it.
fn hostile(scratch: &Scratch, fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> PathBuf {
    let mut archive = tar::Builder::new(Vec::new());
    fill(&mut archive);
    let bytes = zstd::encode_all(&archive.into_inner().unwrap()[..], 1).unwrap();
    let path = scratch.0.join("hostile.clew");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn add(archive: &mut tar::Builder<Vec<u8>>, name: &[u8], kind: tar::EntryType, text: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(text.len() as u64);
    header.set_mode(0o777);
    header.set_cksum();
    archive.append(&header, text).unwrap();
}

fn meta_text() -> Vec<u8> {
    serde_json::to_vec(&meta::example("one")).unwrap()
}

/// Unpacking fails, says this, and leaves nothing behind.
fn refused(scratch: &Scratch, file: &Path, most: u64, words: &str) {
    refused_although(scratch, file, Allowed { most, large: false }, words);
}

fn refused_although(scratch: &Scratch, file: &Path, allowed: Allowed, words: &str) {
    let folder = scratch.0.join("new");
    let before = scratch.0.read_dir().unwrap().count();
    let error = unpack(file, &folder, allowed, &mut quietly).unwrap_err();
    assert!(error.to_string().contains(words), "{words}: {error}");
    assert_eq!(scratch.0.read_dir().unwrap().count(), before, "{words}");
    assert!(!Path::new("/tmp/clew-escaped").exists());
}

#[test]
fn packing_is_repeatable_and_unpacking_gives_the_same_files() {
    let scratch = Scratch::new("pack");
    let folder = recording(&scratch);
    let (first, second) = (scratch.0.join("a.clew"), scratch.0.join("b.clew"));
    let len = pack(&folder, &first, &mut quietly).unwrap();
    assert!(len < 10_000);
    assert_eq!(first.metadata().unwrap().len(), len);
    std::fs::write(folder.join("log"), vec![7; 100_000]).unwrap();
    pack(&folder, &second, &mut quietly).unwrap();
    assert_eq!(
        std::fs::read(&first).unwrap(),
        std::fs::read(&second).unwrap()
    );

    let copy = scratch.0.join("two");
    let mut last = 0;
    unpack(&first, &copy, ALL, &mut |done, _| {
        last = done;
        true
    })
    .unwrap();
    assert!(last > 100_000);
    assert_eq!(std::fs::read(copy.join("files/0001")).unwrap(), b"contents");
    assert_eq!(copy.join("log").metadata().unwrap().len(), 100_000);
    assert!(copy.join("files/empty").is_file());
    assert!(!copy.join(summary::FILE).exists() && !copy.join(".work").exists());
    assert_eq!(Meta::read(&copy).unwrap().name, "two");
    assert_eq!(packed_name(&first).unwrap().name, "one");
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(&copy), mode(&copy.join("log"))), (0o700, 0o600));
    // Not a second time into the same folder.
    let error = unpack(&first, &copy, ALL, &mut quietly).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
}

#[test]
fn stopping_leaves_nothing() {
    let scratch = Scratch::new("pack-stop");
    let folder = recording(&scratch);
    let file = scratch.0.join("a.clew");
    let stopped = pack(&folder, &file, &mut |_, _| false);
    assert!(matches!(stopped, Err(PackError::Interrupted)));
    assert_eq!(scratch.0.read_dir().unwrap().count(), 1);
    pack(&folder, &file, &mut quietly).unwrap();
    let new = scratch.0.join("new");
    let stopped = unpack(&file, &new, ALL, &mut |_, _| false);
    assert!(matches!(stopped, Err(PackError::Interrupted)));
    assert_eq!(scratch.0.read_dir().unwrap().count(), 2);
}

#[test]
fn odd_files_are_not_packed_silently() {
    let scratch = Scratch::new("pack-odd");
    let folder = recording(&scratch);
    std::os::unix::fs::symlink("/etc/passwd", folder.join("files/link")).unwrap();
    let error = pack(&folder, &scratch.0.join("a.clew"), &mut quietly).unwrap_err();
    assert!(matches!(error, PackError::Odd { .. }));
    assert_eq!(scratch.0.read_dir().unwrap().count(), 1);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    use tar::EntryType;
    let scratch = Scratch::new("unpack-names");
    for name in [
        &b"../escaped"[..],
        b"/tmp/clew-escaped",
        b"files/../../escaped",
        b"a/b/c/d",
        b".hidden",
        b"files/a\nb",
        b"",
    ] {
        let file = hostile(&scratch, |a| add(a, name, EntryType::Regular, b"x"));
        refused(&scratch, &file, MOST_BYTES, "the name");
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::Directory,
        EntryType::XHeader,
        EntryType::GNUSparse,
    ] {
        let file = hostile(&scratch, |a| add(a, b"log", kind, b""));
        refused(&scratch, &file, MOST_BYTES, "isn't a regular file");
    }
    let file = hostile(&scratch, |a| {
        add(a, b"log", EntryType::Regular, b"x");
        add(a, b"log", EntryType::Regular, b"y");
    });
    refused(&scratch, &file, MOST_BYTES, "twice");
    let file = hostile(&scratch, |a| {
        add(a, b"log", EntryType::Regular, b"x");
        add(a, b"log/x", EntryType::Regular, b"y");
    });
    refused(&scratch, &file, MOST_BYTES, "");
}

#[test]
fn long_names_are_bounded() {
    use tar::EntryType;
    let scratch = Scratch::new("unpack-long");
    let folder = recording(&scratch);
    let long = "x".repeat(150);
    std::fs::write(folder.join("files").join(&long), b"long").unwrap();
    let file = scratch.0.join("a.clew");
    pack(&folder, &file, &mut quietly).unwrap();
    let copy = scratch.0.join("copy");
    unpack(&file, &copy, ALL, &mut quietly).unwrap();
    assert_eq!(
        std::fs::read(copy.join("files").join(long)).unwrap(),
        b"long"
    );
    let file = hostile(&scratch, |a| {
        add(a, b"L", EntryType::GNULongName, &[b'x'; 5000]);
    });
    refused(&scratch, &file, MOST_BYTES, "too long");
    let file = hostile(&scratch, |a| {
        add(a, b"L", EntryType::GNULongName, b"../../tmp/clew-escaped\0");
        add(a, b"log", EntryType::Regular, b"x");
    });
    refused(&scratch, &file, MOST_BYTES, "the name");
}

#[test]
fn bombs_and_damage_are_refused() {
    use tar::EntryType;
    let scratch = Scratch::new("unpack-bombs");
    let zeros = vec![0; 3 << 20];
    let file = hostile(&scratch, |a| {
        add(a, meta::FILE.as_bytes(), EntryType::Regular, &meta_text());
        add(a, b"log", EntryType::Regular, &zeros);
    });
    refused(&scratch, &file, 1 << 20, "unpacks to more than");
    refused(&scratch, &file, MOST_BYTES, "--large");
    let (large, copy) = (Allowed { large: true, ..ALL }, scratch.0.join("large"));
    unpack(&file, &copy, large, &mut quietly).unwrap();
    assert_eq!(copy.join("log").metadata().unwrap().len(), 3 << 20);
    std::fs::remove_dir_all(copy).unwrap();
    let file = hostile(&scratch, |a| {
        add(a, meta::FILE.as_bytes(), EntryType::Regular, &meta_text());
    });
    refused(&scratch, &file, MOST_BYTES, "there is no log");
    // A size that nothing stands behind.
    let file = hostile(&scratch, |archive| {
        let mut header = tar::Header::new_ustar();
        header.set_path("log").unwrap();
        header.set_size(u64::MAX / 2);
        header.set_cksum();
        archive.get_mut().extend_from_slice(header.as_bytes());
    });
    refused(&scratch, &file, MOST_BYTES, "unpacks to more than");
    let allowed = Allowed {
        most: u64::MAX,
        large: true,
    };
    refused_although(&scratch, &file, allowed, "isn't room");
    let file = hostile(&scratch, |a| add(a, b"log", EntryType::Regular, b"x"));
    refused(&scratch, &file, MOST_BYTES, meta::FILE);
    let file = hostile(&scratch, |a| {
        add(a, meta::FILE.as_bytes(), EntryType::Regular, b"{}");
    });
    refused(&scratch, &file, MOST_BYTES, "damaged");
    assert!(packed_name(&file).is_err());
    std::fs::write(&file, b"no archive").unwrap();
    refused(&scratch, &file, MOST_BYTES, "damaged");
    std::fs::write(&file, b"").unwrap();
    refused(&scratch, &file, MOST_BYTES, "damaged");
}

#[test]
fn every_cut_and_many_flips_are_refused_or_harmless() {
    let scratch = Scratch::new("unpack-cuts");
    let folder = recording(&scratch);
    let whole = scratch.0.join("whole.clew");
    pack(&folder, &whole, &mut quietly).unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    let file = scratch.0.join("damaged.clew");
    let new = scratch.0.join("new");
    for cut in 0..bytes.len() {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        assert!(unpack(&file, &new, ALL, &mut quietly).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&file, &flipped).unwrap();
        if unpack(&file, &new, ALL, &mut quietly).is_ok() {
            // Only bits that mean nothing: the contents are the same.
            assert_eq!(std::fs::read(new.join("files/0001")).unwrap(), b"contents");
            std::fs::remove_dir_all(&new).unwrap();
        }
    }
    assert!(!new.exists());
}
