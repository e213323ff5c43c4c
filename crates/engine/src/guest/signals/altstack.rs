//! The guest's alternate signal stack: pure rules, as in the kernel's `sigaltstack`.

use crate::sys::err;

pub const SS_ONSTACK: i32 = 1;
pub const SS_DISABLE: i32 = 2;
pub const SS_AUTODISARM: i32 = 1 << 31;
const MINSIGSTKSZ: u64 = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltStack {
    pub base: u64,
    pub size: u64,
    pub flags: i32,
}

impl Default for AltStack {
    fn default() -> AltStack {
        AltStack {
            base: 0,
            size: 0,
            flags: SS_DISABLE,
        }
    }
}

impl AltStack {
    /// From `stack_t` as it lies in memory.
    pub fn from_words(words: [u64; 3]) -> AltStack {
        AltStack {
            base: words[0],
            flags: words[1] as i32,
            size: words[2],
        }
    }
    pub fn to_words(self) -> [u64; 3] {
        [self.base, u64::from(self.flags as u32), self.size]
    }

    /// Whether `sp` is on this stack, bounds only.
    pub fn holds(&self, sp: u64) -> bool {
        sp > self.base && sp - self.base <= self.size
    }

    /// Whether the thread counts as being on it.
    pub fn in_use(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.holds(sp)
    }

    /// The state a handler would find: disabled, on it, or free.
    pub fn status(&self, sp: u64) -> i32 {
        if self.size == 0 {
            SS_DISABLE
        } else if self.in_use(sp) {
            SS_ONSTACK
        } else {
            0
        }
    }

    /// What the guest sees when it asks.
    pub fn seen(&self, sp: u64) -> AltStack {
        AltStack {
            flags: self.status(sp) | (self.flags & SS_AUTODISARM),
            ..*self
        }
    }

    /// The guest sets a new one.
    pub fn set(&mut self, new: AltStack, sp: u64) -> i64 {
        if self.in_use(sp) {
            return err(libc::EPERM);
        }
        let mode = new.flags & !SS_AUTODISARM;
        match mode {
            SS_DISABLE => {
                *self = AltStack {
                    base: 0,
                    size: 0,
                    flags: new.flags,
                }
            }
            0 | SS_ONSTACK if new.size < MINSIGSTKSZ => return err(libc::ENOMEM),
            0 | SS_ONSTACK => *self = new,
            _ => return err(libc::EINVAL),
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_kernels_rules() {
        let mut stack = AltStack::default();
        assert_eq!(stack.status(5), SS_DISABLE);
        let new = AltStack {
            base: 0x1000,
            size: 0x2000,
            flags: 0,
        };
        assert_eq!(
            stack.set(AltStack { size: 10, ..new }, 0),
            err(libc::ENOMEM)
        );
        assert_eq!(
            stack.set(AltStack { flags: 7, ..new }, 0),
            err(libc::EINVAL)
        );
        assert_eq!(stack.set(new, 0), 0);
        assert_eq!(stack.status(0x3000), SS_ONSTACK);
        assert_eq!(stack.status(0x1000), 0);
        assert_eq!(stack.set(new, 0x2000), err(libc::EPERM));
        assert_eq!(
            stack.set(
                AltStack {
                    flags: SS_AUTODISARM,
                    ..new
                },
                0
            ),
            0
        );
        assert_eq!(stack.status(0x2000), 0);
    }
}
