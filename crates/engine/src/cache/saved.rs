//! A region in a file: translations of one image, ready to be mapped.
//!
//! Layout: a header page (with the image's path and build-id, for people), hot code, cold code,
//! then the tables of [`Loaded`]. Code is mapped privately at the very addresses it was made for;
//! the tables are used in place.
//!
//! What can be wrong with a file, and what is done about it:
//! - Others could write to it: only files and folders that belong to this user alone are read. This
//!   user can run any code anyway.
//! - A writer was interrupted, or several wrote at once, or the disk was full: a file is written
//!   whole under another name and renamed into place, so readers see all of one or nothing.
//! - A power cut tore it: the whole file is checked against its checksum once after each boot.
//! - It is another engine's or another image's: the header says which it is for, and the header has
//!   a checksum that is always verified, so all offsets and sizes that follow from it can be trusted.
//!
//! Bits that flip on the disk while the machine is up aren't found, as with any executable.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::region::{Loaded, Region, Run, SavedLink, SavedStub, same_slot};
use super::store::{ENDING, OPEN_FLAGS, Store, is_private};

const MAGIC: u64 = 0x3365_646f_6377_656c; // "lewcode3"
const PAGE: u64 = 4096;

/// The version of the engine that made a translation.
pub const VERSION: &str = env!("CLEW_ENGINE_VERSION");

/// What a saved region was made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub build_id: Vec<u8>,
    pub size: u64,
    pub mtime_ns: i64,
    /// Guest addresses of the code.
    pub guest: Range<u64>,
    /// Where the code lies in its file.
    pub offset: u64,
    /// Where translations are mapped.
    pub host: Range<u32>,
}

impl Key {
    /// Names the file: which image's it is comes first ([`name_begins`]). Another key may have the same name,
    /// so the header has what the key is made of.
    fn file_name(&self) -> String {
        let hash = hash_of(&(VERSION, self));
        format!(
            "{}{hash:016x}.{ENDING}",
            name_begins(self.size, self.mtime_ns)
        )
    }
}

/// How names begin of files with translations of images of this size and time.
pub fn name_begins(size: u64, mtime_ns: i64) -> String {
    format!("{:08x}-", hash_of(&(size, mtime_ns)) >> 32)
}

fn hash_of(what: &impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The first words of a file; offsets follow from the lengths.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    magic: u64,
    checksum: u64,
    /// The image's file, and where its code lies in it; its build-id follows the header.
    size: u64,
    mtime_ns: i64,
    offset: u64,
    guest: [u64; 2],
    host: [u32; 2],
    hot: u32,
    cold: u32,
    runs: u32,
    order: u32,
    lengths: u32,
    stubs: u32,
    links: u32,
    free: u32,
    /// See [`History`].
    small: u32,
    /// Lengths of the path and the build-id that follow the header.
    path: u16,
    build_id: u16,
    /// Hash of the engine's version.
    version: u64,
    /// Checksum of the header and of what follows it in its page, with this word 0.
    own: u64,
}

const HEADER: usize = size_of::<Header>();
const MOST_PATH: usize = 3500;
const MOST_BUILD_ID: usize = 128;
const _: () = assert!(HEADER + MOST_PATH + MOST_BUILD_ID <= PAGE as usize);

impl Header {
    /// The header in a file's first page, if it is whole.
    fn read(page: &[u8]) -> Option<Header> {
        let page: &[u8; PAGE as usize] = page.first_chunk()?;
        // SAFETY: a header is plain numbers and shorter than a page.
        let header = unsafe { std::ptr::read_unaligned(page.as_ptr() as *const Header) };
        let mut copy = *page;
        copy[std::mem::offset_of!(Header, own)..][..8].fill(0);
        let whole = header.magic == MAGIC && checksum(&copy) == header.own;
        whole.then_some(header)
    }
}

/// What a file is for, as its header tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub image: PathBuf,
    pub build_id: Vec<u8>,
    /// It was made by this very version of the engine, or it is never used again.
    pub current: bool,
    /// Bytes of translated code.
    pub code: u64,
}

/// Reads what a file of translations is for; `None` if it isn't one.
pub fn describe(path: &Path) -> Option<Description> {
    let mut options = File::options();
    options.read(true).custom_flags(OPEN_FLAGS);
    let mut page = [0u8; PAGE as usize];
    options.open(path).ok()?.read_exact_at(&mut page, 0).ok()?;
    let header = Header::read(&page)?;
    let (path, build_id) = (header.path as usize, header.build_id as usize);
    let bytes = |at: usize, len| page.get(at..)?.get(..len);
    Some(Description {
        image: OsStr::from_bytes(bytes(HEADER, path)?).into(),
        build_id: bytes(HEADER + path, build_id)?.to_vec(),
        current: header.version == version_hash(),
        code: (header.hot.checked_sub(header.host[0])? as u64)
            + (header.host[1].checked_sub(header.cold)? as u64),
    })
}

impl Header {
    fn code_spans(&self) -> (u64, u64) {
        let hot = (self.hot - self.host[0]) as u64;
        let cold = (self.host[1] - (self.cold & !0xfff)) as u64;
        (hot.next_multiple_of(PAGE), cold)
    }

    /// File offsets of runs, links, stubs, order, free and lengths, and the end.
    fn tables(&self) -> [u64; 7] {
        let (hot, cold) = self.code_spans();
        let sizes = [
            self.runs as u64 * size_of::<Run>() as u64,
            self.links as u64 * size_of::<SavedLink>() as u64,
            self.stubs as u64 * size_of::<SavedStub>() as u64,
            self.order as u64 * 4,
            self.free as u64 * 4,
            self.lengths as u64,
        ];
        let mut at = PAGE + hot + cold;
        let mut offsets = [0; 7];
        for (offset, size) in offsets.iter_mut().zip(sizes) {
            *offset = at;
            at = (at + size).next_multiple_of(8);
        }
        offsets[6] = at;
        offsets
    }
}

/// How a region came to be in its file, to judge whether writing it again is worth it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Length of its lengths there.
    saved: u32,
    /// How often in succession little was added.
    small: u32,
    /// When it was written, in seconds since 1970.
    at: i64,
}

impl History {
    /// Whether a region with so many lengths now is worth saving; if so, its history afterwards.
    ///
    /// Growth by an eighth is: the number of such saves is bounded by the logarithm of the size.
    /// A few instructions are too, since translating anything costs the next run a millisecond for
    /// the decoder's tables. But a program that does something new at every run must not write
    /// megabytes each time, so from the fourth time on that has to wait longer and longer.
    pub fn worth_saving(&self, lengths: u32) -> Option<History> {
        let new = lengths.saturating_sub(self.saved);
        if new == 0 {
            return None;
        }
        let (now, _) = times();
        let is_small = new <= self.saved / 8;
        let wait = match self.small {
            0..4 => 0,
            more => 1i64 << (more - 3).min(16),
        };
        // A clock that was set back must not stop saving for good.
        if is_small && (0..wait).contains(&(now - self.at)) {
            return None;
        }
        Some(History {
            saved: lengths,
            small: if is_small { self.small + 1 } else { 0 },
            at: now,
        })
    }
}

/// Where the file that is mapped at a guest address lies, for `clew cache` to show.
fn image_path(guest: u64) -> Vec<u8> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let path = maps.split(|&b| b == b'\n').find_map(|line| {
        // The range comes first; all before the path is ASCII without a slash.
        let slash = line.iter().position(|&b| b == b'/')?;
        let range = std::str::from_utf8(&line[..slash])
            .ok()?
            .split(' ')
            .next()?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        (number(start)?..number(end)?)
            .contains(&guest)
            .then(|| line[slash..].to_vec())
    });
    if guest == crate::layout::VDSO {
        return b"[vdso]".to_vec();
    }
    path.unwrap_or_default()
}

fn version_hash() -> u64 {
    checksum(VERSION.as_bytes())
}

/// Writes a region to its file.
pub fn save(store: &Store, key: &Key, region: &Region, history: &History) -> std::io::Result<()> {
    if key.build_id.len() > MOST_BUILD_ID {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let (runs, order, lengths) = (region.all_runs(), region.all_order(), region.all_lengths());
    let (stubs, links, free) = (
        region.all_stubs(),
        region.open_links(),
        region.unused_link_stubs(),
    );
    let mut header = Header {
        magic: MAGIC,
        size: key.size,
        mtime_ns: key.mtime_ns,
        offset: key.offset,
        guest: [key.guest.start, key.guest.end],
        host: [region.host.start, region.host.end],
        hot: region.hot,
        cold: region.cold,
        runs: runs.len() as u32,
        order: order.len() as u32,
        lengths: lengths.len() as u32,
        stubs: stubs.len() as u32,
        links: links.len() as u32,
        free: free.len() as u32,
        small: history.small,
        version: version_hash(),
        ..Header::default()
    };
    let (hot_span, cold_span) = header.code_spans();
    let tables = header.tables();
    let mut body = vec![0u8; (tables[6] - PAGE) as usize];
    copy_code(
        region.host.start,
        &mut body[..(region.hot - region.host.start) as usize],
    );
    let cold_at = region.cold & !0xfff;
    copy_code(
        cold_at,
        &mut body[hot_span as usize..(hot_span + cold_span) as usize],
    );
    // Chains that other regions take part in belong to this process; in the file each consists of
    // the region's own stubs.
    for chain in stubs.chunk_by(same_slot) {
        let after = chain[1..].iter().map(|stub| stub.host);
        for (stub, next) in chain.iter().zip(after.chain([region.miss_thunk])) {
            let at = (stub.next - region.host.start) as usize;
            let rel = next.wrapping_sub(stub.next + 4);
            body[at..at + 4].copy_from_slice(&rel.to_le_bytes());
        }
    }
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - PAGE) as usize;
        body[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(tables[0], as_bytes(&runs));
    put(tables[1], as_bytes(&links));
    put(tables[2], as_bytes(&stubs));
    put(tables[3], as_bytes(&order));
    put(tables[4], as_bytes(free));
    put(tables[5], &lengths);
    header.checksum = checksum(&body);
    let path = image_path(key.guest.start);
    let path = &path[..path.len().min(MOST_PATH)];
    let build_id = &key.build_id;
    (header.path, header.build_id) = (path.len() as u16, build_id.len() as u16);
    let mut first = [0u8; PAGE as usize];
    first[HEADER..][..path.len()].copy_from_slice(path);
    first[HEADER + path.len()..][..build_id.len()].copy_from_slice(build_id);
    first[..HEADER].copy_from_slice(as_bytes(std::slice::from_ref(&header)));
    header.own = checksum(&first);
    first[..HEADER].copy_from_slice(as_bytes(std::slice::from_ref(&header)));
    store.write(&key.file_name(), &[&first, &body])
}

/// Maps the saved region of `key`, if there is one and it can be trusted. Its host range must be
/// free or mapped by the cache.
pub fn load(store: &Store, key: &Key) -> Option<(Region, History)> {
    let file = store.file(&key.file_name())?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || !is_private(&meta) || meta.len() < PAGE || meta.len() > u32::MAX as u64 {
        return None;
    }
    let bytes = map_file(&file, meta.len())?;
    let loaded = check(&file, bytes, key, &meta, times()).and_then(|header| {
        let history = History {
            saved: header.lengths,
            small: header.small,
            at: meta.mtime(),
        };
        Some((build(&file, bytes, &header, key)?, history))
    });
    if loaded.is_none() {
        // SAFETY: nothing refers to the mapping: neither check nor build kept anything.
        unsafe { crate::syscall!(libc::SYS_munmap, bytes.as_ptr(), bytes.len()) };
    }
    loaded
}

fn check(
    file: &File,
    bytes: &[u8],
    key: &Key,
    meta: &std::fs::Metadata,
    (now, boot): (i64, i64),
) -> Option<Header> {
    let header = Header::read(bytes)?;
    // All of it: a hash may be the same by chance, or by design.
    let build_id = bytes.get(HEADER + header.path as usize..)?;
    let fits = header.version == version_hash()
        && (header.size, header.mtime_ns, header.offset) == (key.size, key.mtime_ns, key.offset)
        && build_id.get(..header.build_id as usize)? == key.build_id
        && header.guest == [key.guest.start, key.guest.end]
        && header.host == [key.host.start, key.host.end]
        && header.host[0] < header.hot
        && header.hot <= header.cold
        && header.cold <= header.host[1]
        && (header.hot.next_multiple_of(PAGE as u32) <= header.cold & !0xfff);
    if !fits || header.tables()[6] != meta.len() {
        return None;
    }
    let checked = meta.ctime() > boot + 1;
    if !checked && checksum(&bytes[PAGE as usize..]) != header.checksum {
        return None;
    }
    if !checked || meta.mtime() + DAY < now {
        // Neither checked again before the next boot nor among the first to be evicted. If that
        // fails it is only slower.
        // SAFETY: sets the times of an open file to now.
        unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) };
    }
    Some(header)
}

const DAY: i64 = 86_400;

/// Wall-clock seconds: now, and at the last boot.
fn times() -> (i64, i64) {
    let [now, up] = [libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME].map(|clock| {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one timespec.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_sec
    });
    (now, now - up)
}

fn build(file: &File, bytes: &'static [u8], header: &Header, key: &Key) -> Option<Region> {
    let (hot_span, cold_span) = header.code_spans();
    let cold_at = (header.cold & !0xfff) as u64;
    map_over(file, header.host[0] as u64, hot_span, PAGE)?;
    if cold_span > 0 {
        map_over(file, cold_at, cold_span, PAGE + hot_span)?;
    }
    let tables = header.tables();
    let loaded = Loaded {
        runs: table(bytes, tables[0], header.runs),
        links: table(bytes, tables[1], header.links),
        stubs: table(bytes, tables[2], header.stubs),
        order: table(bytes, tables[3], header.order),
        lengths: table(bytes, tables[5], header.lengths),
    };
    let free: &[u32] = table(bytes, tables[4], header.free);
    let ends = (header.hot, header.cold);
    Some(Region::with_loaded(
        key.guest.clone(),
        key.host.clone(),
        ends,
        loaded,
        free.to_vec(),
    ))
}

/// A table of `count` elements at a file offset that `check` found to be inside the file.
fn table<T>(bytes: &'static [u8], offset: u64, count: u32) -> &'static [T] {
    let bytes = &bytes[offset as usize..][..count as usize * size_of::<T>()];
    // SAFETY: in bounds (sliced above), aligned to 8 by `Header::tables`, plain numbers, and the
    // mapping stays for the life of the process.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr() as *const T, count as usize) }
}

fn map_file(file: &File, len: u64) -> Option<&'static [u8]> {
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let map = || unsafe {
        crate::syscall!(
            libc::SYS_mmap,
            0,
            len,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0
        )
    };
    let at = crate::memory::reserve::asked(map);
    if crate::sys::is_err(at) {
        return None;
    }
    // SAFETY: just mapped with that length. The file is renamed into place and never written
    // again, so the bytes don't change.
    Some(unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) })
}

/// Maps a part of the file over the region's own memory.
fn map_over(file: &File, at: u64, len: u64, offset: u64) -> Option<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: the range lies inside the region's host range, which the cache mapped for it.
    let map = || unsafe {
        crate::syscall!(
            libc::SYS_mmap,
            at,
            len,
            prot,
            flags,
            file.as_raw_fd(),
            offset
        )
    };
    let got = crate::memory::reserve::asked(map);
    (got == at as i64).then_some(())
}

fn copy_code(at: u32, into: &mut [u8]) {
    // SAFETY: the caller's range is inside the region's mapped host memory.
    unsafe {
        std::ptr::copy_nonoverlapping(at as usize as *const u8, into.as_mut_ptr(), into.len())
    };
}

fn as_bytes<T: Copy>(items: &[T]) -> &[u8] {
    // SAFETY: the types written are repr(C) numbers without padding.
    unsafe { std::slice::from_raw_parts(items.as_ptr() as *const u8, size_of_val(items)) }
}

fn checksum(bytes: &[u8]) -> u64 {
    // Four lanes, so that it runs at memory speed.
    let mut lanes = [1u64, 2, 3, 4];
    for chunk in bytes.chunks(32) {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks(8)) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            *lane = (*lane ^ u64::from_le_bytes(padded))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(31);
        }
    }
    lanes.into_iter().fold(bytes.len() as u64, |sum, lane| {
        (sum ^ lane).wrapping_mul(0xff51_afd7_ed55_8ccd)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            build_id: vec![1, 2, 3],
            size: 4,
            mtime_ns: 5,
            guest: 0x1000_0000..0x1000_1000,
            offset: 0,
            host: 0x6000_0000..0x6004_0000,
        }
    }

    /// A file as `save` makes it, with nothing but code in it.
    fn file_of(key: &Key) -> Vec<u8> {
        let mut header = Header {
            magic: MAGIC,
            size: key.size,
            mtime_ns: key.mtime_ns,
            offset: key.offset,
            guest: [key.guest.start, key.guest.end],
            host: [key.host.start, key.host.end],
            hot: key.host.start + 5000,
            cold: key.host.end - 100,
            version: version_hash(),
            path: 4,
            build_id: 3,
            ..Header::default()
        };
        let mut bytes = vec![0x90; header.tables()[6] as usize];
        bytes[..PAGE as usize].fill(0);
        bytes[HEADER..HEADER + 7].copy_from_slice(b"/x/y\x01\x02\x03");
        header.checksum = checksum(&bytes[PAGE as usize..]);
        bytes[..HEADER].copy_from_slice(as_bytes(&[header]));
        header.own = checksum(&bytes[..PAGE as usize]);
        bytes[..HEADER].copy_from_slice(as_bytes(&[header]));
        bytes
    }

    #[test]
    fn torn_files_are_found_after_a_boot() {
        let path = std::env::temp_dir().join(format!("clew-saved-{}", std::process::id()));
        let accepted = |bytes: &[u8], boot: i64| {
            std::fs::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            let meta = file.metadata().unwrap();
            check(&file, bytes, &key(), &meta, (meta.mtime(), boot)).is_some()
        };
        let (before, after) = (0, i64::MAX - 1);
        let good = file_of(&key());
        assert!(accepted(&good, before) && accepted(&good, after));
        for at in [PAGE as usize, 7000, good.len() - 1] {
            let mut torn = good.clone();
            torn[at] ^= 1;
            assert!(!accepted(&torn, after), "{at}");
        }
        for at in 0..HEADER + 7 {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(!accepted(&bad, before), "{at}");
        }
        assert!(!accepted(&good[..good.len() - 8], before));
        let described = describe(&path);
        std::fs::write(&path, &good).unwrap();
        assert_eq!(
            describe(&path),
            Some(Description {
                image: "/x/y".into(),
                build_id: vec![1, 2, 3],
                current: true,
                code: 5100,
            })
        );
        assert_eq!(
            described.map(|d| d.code),
            Some(5100),
            "the header alone counts"
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_engines_and_images_have_other_files() {
        let other = Key {
            offset: 4096,
            ..key()
        };
        assert_ne!(key().file_name(), other.file_name());
        let begins = name_begins(key().size, key().mtime_ns);
        assert!(key().file_name().starts_with(&begins) && other.file_name().starts_with(&begins));
        assert_ne!(begins, name_begins(key().size, key().mtime_ns + 1));
    }

    /// What would be loaded if two keys had the same name.
    #[test]
    fn the_header_tells_images_apart() {
        let path = std::env::temp_dir().join(format!("clew-keys-{}", std::process::id()));
        let bytes = file_of(&key());
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let meta = file.metadata().unwrap();
        let accepted = |key: &Key| check(&file, &bytes, key, &meta, (meta.mtime(), 0)).is_some();
        assert!(accepted(&key()));
        let changes: [fn(&mut Key); 8] = [
            |key| key.build_id = vec![1, 2, 4],
            |key| key.build_id = vec![1, 2],
            |key| key.build_id.clear(),
            |key| key.size += 1,
            |key| key.mtime_ns += 1,
            |key| key.offset += 4096,
            |key| key.guest.end += 4096,
            |key| key.host.start -= 4096,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = key();
            change(&mut other);
            assert!(!accepted(&other), "{number}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn small_additions_are_saved_ever_more_rarely() {
        let mut history = History::default();
        assert_eq!(history.worth_saving(0), None);
        history = history.worth_saving(1000).unwrap();
        assert_eq!(history.worth_saving(1000), None);
        let mut lengths = 1000;
        for small in 1..=4 {
            lengths += 1;
            history = history.worth_saving(lengths).unwrap();
            assert_eq!(history.small, small);
        }
        assert_eq!(history.worth_saving(lengths + 1), None);
        let later = History {
            at: history.at - 3,
            ..history
        };
        assert!(later.worth_saving(lengths + 1).is_some());
        // Clocks that were set back don't matter, and much is always worth it.
        let future = History {
            at: history.at + 1000,
            ..history
        };
        assert!(future.worth_saving(lengths + 1).is_some());
        let grown = history.worth_saving(2 * lengths).unwrap();
        assert_eq!(grown.small, 0);
    }
}
