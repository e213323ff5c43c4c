//! The little machine inside FUTEX_WAKE_OP: an encoded operation on a word and a comparison of
//! what was there before. Pure.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeOp(pub u32);

impl WakeOp {
    fn op(self) -> u32 {
        (self.0 >> 28) & 7
    }
    fn cmp(self) -> u32 {
        (self.0 >> 24) & 15
    }
    fn op_arg(self) -> i32 {
        let arg = sign_extend(self.0 >> 12);
        if self.0 & 0x8000_0000 != 0 {
            1i32.wrapping_shl(arg as u32)
        } else {
            arg
        }
    }

    /// The word's new value; None for an operation that doesn't exist.
    pub fn apply(self, old: u32) -> Option<u32> {
        let arg = self.op_arg() as u32;
        Some(match self.op() {
            0 => arg,
            1 => old.wrapping_add(arg),
            2 => old | arg,
            3 => old & !arg,
            4 => old ^ arg,
            _ => return None,
        })
    }

    /// Whether the second word's waiters wake; None for a comparison that doesn't exist.
    pub fn compare(self, old: u32) -> Option<bool> {
        let (old, arg) = (old as i32, sign_extend(self.0));
        Some(match self.cmp() {
            0 => old == arg,
            1 => old != arg,
            2 => old < arg,
            3 => old <= arg,
            4 => old > arg,
            5 => old >= arg,
            _ => return None,
        })
    }
}

fn sign_extend(bits: u32) -> i32 {
    ((bits << 20) as i32) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes() {
        // FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_GT, 1), which glibc's condition variables used.
        let op = WakeOp(0x0400_0001);
        assert_eq!(op.apply(7), Some(0));
        assert_eq!((op.compare(1), op.compare(2)), (Some(false), Some(true)));
        // add -1, compare with -2
        let op = WakeOp(1 << 28 | 0xfff << 12 | 0xffe);
        assert_eq!(op.apply(7), Some(6));
        assert_eq!(op.compare(-2i32 as u32), Some(true));
        // or with 1 << 5
        assert_eq!(WakeOp(1 << 31 | 2 << 28 | 5 << 12).apply(1), Some(33));
        assert_eq!(WakeOp(5 << 28).apply(1), None);
    }
}
