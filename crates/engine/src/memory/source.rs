//! Recording: what a new mapping of the guest's really maps, and how a replay gets its contents.
//!
//! - private mappings of files (and shared ones that can't be written) map a copy that is kept with
//!   the recording: nobody changes it, and a replay maps the same. What
//!   the guest's own later calls do to such a file is shown all the same ([`super::follow`]);
//! - shared memory is mapped as it is. In a replay it is an object of the replaying process (see
//!   [`super::objects`]), which begins with the contents that the file has now. The guest's own
//!   stores repeat themselves; what its system calls write to the file is written down for the
//!   mapped part ([`Memory::shared_ranges_of`]);
//! - what other recorded processes do to shared memory is written down where this one touches it
//!   ([`super::govern`]). What programs outside the recording do isn't seen.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use clew_recording::maps::{Change, Object, Source};

use super::file::{self, FileStat};
use super::mapping::{Backing, Mapping};
use super::originals::Copies;
use super::{Memory, govern};
use crate::record::files::{Image, Part};
use crate::syscall;

/// Contents up to this size go into the log rather than into a file.
const SMALL: u64 = 1 << 20;
/// A file that was left alone for so long isn't one that programs talk through.
const SETTLED_NS: i64 = 3600 * 1_000_000_000;

/// What to map instead of what the guest named, and what to write down about it.
pub(super) struct Prepared {
    /// The copy to map, if there is one.
    copy: Option<OwnedFd>,
    pub(super) source: Source,
    pub(super) path: Vec<u8>,
    /// Offsets in the file whose contents are to be written down once it is mapped.
    contents: Vec<Range<u64>>,
}

impl Prepared {
    fn plain(source: Source) -> Prepared {
        Prepared {
            copy: None,
            source,
            path: Vec::new(),
            contents: Vec::new(),
        }
    }

    /// The descriptor to map for the guest's `fd`.
    pub(super) fn fd(&self, fd: i32) -> i32 {
        self.copy.as_ref().map_or(fd, OwnedFd::as_raw_fd)
    }
}

impl Memory {
    /// Prepares a mapping of `len` bytes of a file, or of nothing. `None` if nothing is recorded.
    pub(super) fn prepare(
        &mut self,
        fd: i32,
        stat: Option<&FileStat>,
        shared: bool,
        offset: u64,
        len: u64,
    ) -> Option<Prepared> {
        self.log.as_ref()?;
        let image = match stat {
            Some(stat) if self.images.iter().any(|i| i.file == stat.identity) => Image::More,
            Some(stat) if !shared && stat.is_regular() && file::is_image(fd) => Image::First,
            _ => Image::No,
        };
        let part = Part { offset, len, image };
        let log = self.log.as_mut()?;
        let Some(stat) = stat.filter(|stat| !stat.is_dev_zero()) else {
            return Some(Prepared::plain(if shared {
                Source::Object {
                    object: log.new_object(),
                    offset: 0,
                    size: len,
                    copy: None,
                }
            } else {
                Source::Zero
            }));
        };
        let size = stat.identity.size;
        let original = Source::Logged { offset, size };
        let flags = match file::open_flags(fd) {
            // The kernel will refuse to map it, in its own words.
            Ok(flags) if flags & libc::O_PATH != 0 || flags & 3 == libc::O_WRONLY => {
                return Some(Prepared::plain(original));
            }
            Ok(flags) => flags,
            Err(_) => return Some(Prepared::plain(original)),
        };
        let path = match self.originals.path(&stat.identity) {
            Some(path) => path.to_vec(),
            None => crate::kernel::procfs::descriptor_path(fd),
        };
        let text = String::from_utf8_lossy(&path).into_owned();
        let writes = flags & libc::O_ACCMODE == libc::O_RDWR || !is_settled(stat);
        if !shared && writes && image == Image::No {
            log.followed.insert((stat.identity.dev, stat.identity.ino));
        }
        let frozen = !shared || (flags & 3 == libc::O_RDONLY && is_settled(stat));
        let prepared = if frozen {
            match log.files.copy(fd, stat, part) {
                Ok(copied) => {
                    let copies = if copied.whole {
                        Copies::Whole
                    } else {
                        Copies::Part
                    };
                    self.originals.remember(stat.identity, &path, copies);
                    self.originals.remember_copy(&stat.identity, &copied.name);
                    Prepared {
                        copy: Some(copied.fd),
                        source: Source::Copy {
                            name: copied.name,
                            offset,
                        },
                        path,
                        contents: Vec::new(),
                    }
                }
                Err(errno) => {
                    let why = std::io::Error::from_raw_os_error(errno);
                    let note = format!("{text} can't be copied ({why}): contents are in the log");
                    self.log_note(note, false);
                    self.originals.remember(stat.identity, &path, Copies::No);
                    let mapped = offset.min(size)..offset.saturating_add(len).min(size);
                    Prepared {
                        copy: None,
                        source: original,
                        path,
                        contents: file::guest_extents(fd, mapped),
                    }
                }
            }
        } else {
            let mapped = offset.min(size)..offset.saturating_add(len).min(size);
            // Looking for holes takes another descriptor, and closing that would drop the process's record
            // locks: programs that share memory in files have such.
            let mut contents = if mapped.end - mapped.start <= SMALL {
                vec![mapped]
            } else {
                file::guest_extents(fd, mapped)
            };
            let part = Part {
                image: Image::No,
                ..part
            };
            let (dev, ino) = (stat.identity.dev, stat.identity.ino);
            // Of governed memory each page's contents are written down when it is first touched.
            let governed = govern::is_used_by_others(&Object::File { dev, ino });
            if governed {
                contents.clear();
            }
            let total: u64 = contents.iter().map(|e| e.end - e.start).sum();
            let mut copy = None;
            if total > SMALL
                && let Ok(copied) = log.files.own_copy(fd, stat, part)
            {
                copy = Some(copied.name);
                contents.clear();
            }
            log.sizes.insert((dev, ino), size);
            self.originals.remember(stat.identity, &path, Copies::No);
            let note = format!(
                "{text} is mapped shared: what programs outside the recording write to it isn't seen"
            );
            self.log_note(note, false);
            Prepared {
                copy: None,
                source: Source::Object {
                    object: Object::File { dev, ino },
                    offset,
                    size,
                    copy,
                },
                path,
                contents,
            }
        };
        Some(prepared)
    }

    /// Whether what a mapping shows changes by nothing but processes: not memory of devices and of the kernel.
    pub(super) fn can_record(&mut self, fd: i32, stat: &FileStat, shared: bool) -> bool {
        let kind = stat.mode & libc::S_IFMT;
        let devices = match kind {
            libc::S_IFREG => shared && file::is_the_kernels(fd),
            _ => !stat.is_dev_zero(),
        };
        // What can't be mapped anyway needs no word.
        if devices && !matches!(kind, libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFDIR) {
            let path = crate::kernel::procfs::descriptor_path(fd);
            let path = String::from_utf8_lossy(&path);
            self.log_note(
                format!("a mapping of {path} can't be recorded and fails: it isn't a file's"),
                true,
            );
        }
        !devices
    }

    /// Writes down a mapping that was just made as prepared.
    pub(super) fn log_prepared(&mut self, mapping: &Mapping, prepared: &Prepared) {
        self.logged_map(mapping, prepared.source.clone(), prepared.path.clone());
        let Backing::File { offset, .. } = mapping.backing else {
            return;
        };
        for extent in &prepared.contents {
            let start = mapping.start + (extent.start.max(offset) - offset);
            let end = mapping.start + (extent.end - offset).min(mapping.len());
            if start < end {
                self.log_contents(start..end);
            }
        }
    }

    /// Can a mapping be made longer? Not if it shows a copy that has nothing more.
    pub(super) fn may_grow(&self, m: &Mapping) -> bool {
        match m.backing {
            Backing::File { file, .. } => !self.originals.is_part(&file),
            _ => true,
        }
    }

    /// `new`, which mremap has made, shows more of a file than was written down before.
    pub(super) fn log_grown(&mut self, new: Range<u64>) {
        let (Some(log), Some(m)) = (&self.log, self.map.get(new.start)) else {
            return;
        };
        let Backing::File { file, offset, .. } = m.backing else {
            return;
        };
        if self.originals.is_copied(&file) {
            return;
        }
        let known = log.sizes.get(&(file.dev, file.ino)).filter(|_| m.shared);
        let there = known.unwrap_or(&file.size).saturating_sub(offset);
        let end = new.end.min(m.start.saturating_add(there));
        self.log_contents(new.start..end);
    }

    /// Whether any file is mapped so that writing to it changes memory.
    #[inline]
    pub fn follows_files(&self) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| !log.sizes.is_empty() || !log.followed.is_empty())
    }

    /// The guest's own call wrote `len` bytes to the file that `fd` has open: at `offset`, or up to
    /// the file's position. Where the file is mapped shared, contents and size are written down.
    #[inline]
    pub fn file_written(&mut self, fd: i32, offset: Option<u64>, len: u64) {
        if self.follows_files() {
            let offset = match offset {
                // Appended, whatever offset was given.
                Some(_) if len != 0 && appends(fd) => {
                    let size = file::stat(fd).map_or(0, |stat| stat.identity.size);
                    size.saturating_sub(len)
                }
                Some(offset) => offset,
                None => {
                    // SAFETY: asks for the position; lseek touches no memory.
                    let end = unsafe { syscall!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) };
                    (end.max(0) as u64).saturating_sub(len)
                }
            };
            for range in self.shared_ranges_of(fd, offset, len) {
                self.log_contents(range);
            }
            self.follow_file(fd, offset, len);
        }
    }

    /// Guest memory that shows bytes `offset..offset + len` of the file that `fd` has open, because
    /// the file is mapped shared. To be asked after the guest's own call may have changed them:
    /// contents of these ranges are an effect of that call. A changed size becomes a change of
    /// mappings. Cheap if no file is mapped shared.
    pub fn shared_ranges_of(&mut self, fd: i32, offset: u64, len: u64) -> Vec<Range<u64>> {
        let Some(log) = &mut self.log else {
            return Vec::new();
        };
        if log.sizes.is_empty() {
            return Vec::new();
        }
        let Ok(stat) = file::stat(fd) else {
            return Vec::new();
        };
        let (dev, ino) = (stat.identity.dev, stat.identity.ino);
        let Some(known) = log.sizes.get_mut(&(dev, ino)) else {
            return Vec::new();
        };
        let size = stat.identity.size;
        let resized = std::mem::replace(known, size) != size;
        let wanted = offset..offset.saturating_add(len).min(size);
        let mut ranges = Vec::new();
        let mut any = false;
        for m in self.map.iter().filter(|m| m.shared) {
            let Backing::File { file, offset, .. } = m.backing else {
                continue;
            };
            if (file.dev, file.ino) != (dev, ino) || self.originals.is_copied(&file) {
                continue;
            }
            any = true;
            let start = wanted.start.max(offset);
            let end = wanted.end.min(offset.saturating_add(m.len()));
            if start < end {
                ranges.push(m.start + (start - offset)..m.start + (end - offset));
            }
        }
        if resized && any {
            let object = Object::File { dev, ino };
            self.logged(|| Change::Resize { object, size });
            govern::resized(object, size);
        }
        if !any && let Some(log) = &mut self.log {
            log.sizes.remove(&(dev, ino));
        }
        ranges
    }

    /// The guest's call is about to write `len` bytes to the file that `fd` has open: at `offset`, or where it
    /// stands. What other recorded processes have mapped of it must be this process's then.
    pub fn before_file_write(&mut self, fd: i32, offset: Option<u64>, len: u64) {
        let Some(stat) = file::stat(fd).ok().filter(FileStat::is_regular) else {
            return;
        };
        let appends = file::open_flags(fd).is_ok_and(|flags| flags & libc::O_APPEND != 0);
        let start = match offset {
            _ if appends => stat.identity.size,
            Some(offset) => offset,
            None => {
                // SAFETY: asks for the position; lseek touches no memory.
                let at = unsafe { syscall!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) };
                at.max(0) as u64
            }
        };
        let (dev, ino) = (stat.identity.dev, stat.identity.ino);
        let end = start.saturating_add(len.min(crate::kernel::outputs::MAX_TRANSFER));
        govern::own_file(&Object::File { dev, ino }, start..end);
    }

    /// To be called before a fork (not a vfork): what parent and child will share is governed.
    pub fn before_fork(&mut self) {
        if self.log.is_none() {
            return;
        }
        for range in govern::before_fork() {
            // Whether a forked process writes there isn't seen.
            let writable = |m: &Mapping| m.can(libc::PROT_WRITE);
            if self.map.get(range.start).is_some_and(writable) {
                self.warn_of_code(range.start);
            }
        }
    }

    /// A process writes or runs code that another has, too.
    pub fn warn_of_code(&mut self, at: u64) {
        let text = format!(
            "executable memory at {at:#x} is shared with a forked process: what one writes there isn't recorded \
             for the other"
        );
        self.log_note(text, true);
    }
}

/// Is the file one that nobody changes?
fn is_settled(stat: &FileStat) -> bool {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as i64);
    now.saturating_sub(stat.ctime_ns.max(stat.identity.mtime_ns)) > SETTLED_NS
}

fn appends(fd: i32) -> bool {
    // SAFETY: asks for flags; touches no memory.
    let flags = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags > 0 && flags as i32 & libc::O_APPEND != 0
}
