//! Which descriptors lead to the standard output and error that the recording began with.
//!
//! Replay shows what was written there, and nothing else.

use super::recorder::Goes;
use crate::syscall;

/// Device and inode of the first process's descriptors 1 and 2; 0 where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standard([[u64; 2]; 2]);

fn identity(fd: i32) -> Option<[u64; 2]> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat writes one stat, for which there is room.
    unsafe {
        if syscall!(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        let stat = stat.assume_init();
        Some([stat.st_dev, stat.st_ino])
    }
}

impl Standard {
    /// Of this process, before the guest has run.
    pub fn own() -> Standard {
        Standard([1, 2].map(|fd| identity(fd).unwrap_or_default()))
    }

    pub fn to_words(self) -> [u64; 4] {
        let [[a, b], [c, d]] = self.0;
        [a, b, c, d]
    }

    pub fn from_words([a, b, c, d]: [u64; 4]) -> Standard {
        Standard([[a, b], [c, d]])
    }

    /// Where output to `fd` goes, if that is one of the two.
    pub(crate) fn goes(&self, fd: i32) -> Option<Goes> {
        let to = self.which(fd)?;
        let one_file = self.0[0] == self.0[1];
        Some(Goes {
            to,
            outlet: if one_file { 0 } else { usize::from(to) - 1 },
        })
    }

    /// Whether `fd` is one of the two: 1 or 2. If both are the same, its number decides.
    pub fn which(&self, fd: i32) -> Option<u8> {
        let found = identity(fd)?;
        let is = |n: usize| self.0[n] == found && found != [0, 0];
        match (is(0), is(1)) {
            (true, true) => Some(if fd == 2 { 2 } else { 1 }),
            (true, false) => Some(1),
            (false, true) => Some(2),
            (false, false) => None,
        }
    }
}
