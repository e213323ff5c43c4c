//! What the kernel writes: from the table's words about a call to ranges of guest memory.
//!
//! In: a call, its arguments, and its result or none. Out: every range that the kernel can write
//! (before the call) or may have written (after it). Afterwards a range may be longer than what was
//! really written, never shorter: a recording keeps the contents of exactly these.

use super::requests;
use super::table::{Arg, Args, Call, Len};
use crate::executor::Executor;
use crate::guest::access;
use crate::sys::{err, is_err};
use crate::syscall;

/// No call transfers more bytes at once.
pub const MAX_TRANSFER: u64 = 0x7fff_f000;
const EFAULT: i64 = err(libc::EFAULT);
const EINTR: i64 = err(libc::EINTR);
/// The longest socket address.
const MAX_ADDRESS: u64 = 128;

/// Reads the structures that a call's arguments point to; false if they aren't accessible.
pub type Peek<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;
pub type Found<'a> = &'a mut dyn FnMut(u64, u64);

/// Calls `found(address, length)` for all memory that the call can write (`ret` is `None`, before
/// it is made) or has written (`ret` is its result).
pub fn each(call: &Call, args: &Args, ret: Option<i64>, found: Found) {
    let peek = &|addr: u64, into: &mut [u8]| access::read_bytes(addr, into).is_ok();
    let query = Query {
        call,
        args,
        ret,
        peek,
        exact: false,
    };
    let mut there = |addr, len| report(addr, accessible(addr, len), found);
    match ret {
        // Something may have been written before the fault: all that is there can have changed.
        Some(EFAULT) => Query { ret: None, ..query }.each(&mut there),
        Some(ret) if is_err(ret) => query.each(&mut there),
        _ => query.each(found),
    }
}

/// How much of a range can be read, from its begin.
pub fn accessible(addr: u64, len: u64) -> u64 {
    let end = addr.saturating_add(len.min(MAX_TRANSFER));
    let mut at = addr;
    while at < end && access::read::<u8>(at).is_ok() {
        at = (at | 4095) + 1;
    }
    at.min(end).saturating_sub(addr)
}

/// A question about one call.
pub struct Query<'a> {
    pub call: &'a Call,
    pub args: &'a Args,
    pub ret: Option<i64>,
    pub peek: Peek<'a>,
    /// Leave out what is certainly not written, even if that makes many small ranges.
    pub exact: bool,
}

impl Query<'_> {
    pub fn each(&self, found: Found) {
        let failed = self.ret.is_some_and(is_err);
        for (i, kind) in self.call.args.iter().enumerate() {
            let addr = self.args[i];
            match *kind {
                Arg::By(_) => requests::each(self, found),
                _ if addr == 0 => {}
                Arg::OutAlways(len) | Arg::BothAlways(len) => {
                    report(addr, self.length(len, addr), found);
                }
                Arg::Left if !self.leaves_time() => {}
                Arg::Left => found(addr, 16),
                Arg::Polls(count) => self.polls(addr, self.args[count as usize], found),
                // These may have got somewhere before they failed.
                Arg::MmsgOut(count) => self.messages(addr, count, true, found),
                Arg::MmsgIn(count) => self.messages(addr, count, false, found),
                _ if failed => {}
                Arg::Out(len) | Arg::Both(len) => report(addr, self.length(len, addr), found),
                Arg::IovOut(count) => {
                    self.vectors(addr, self.args[count as usize], self.done(), found);
                }
                Arg::IovBoth(count) if !is_write_end(self.args[0] as i32) => {
                    self.vectors(addr, self.args[count as usize], self.done(), found);
                }
                Arg::MsgOut => self.message(addr, self.done(), found),
                _ => {}
            }
        }
        requests::behind_options(self, found);
    }

    pub fn word(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.peek)(addr, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    pub fn half(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 4];
        (self.peek)(addr, &mut bytes).then(|| u32::from_le_bytes(bytes).into())
    }

    /// Bytes or items done, for calls whose result says so.
    pub fn done(&self) -> Option<u64> {
        self.ret.map(|n| n.max(0) as u64)
    }

    /// How long the memory at `addr` is.
    pub fn length(&self, len: Len, addr: u64) -> u64 {
        let arg = |i: u8| self.args[i as usize];
        let done = self.done();
        match len {
            Len::Bytes(n) => n.into(),
            Len::IfAny(n) => match done {
                Some(0) => 0,
                _ => n.into(),
            },
            Len::Arg(i) => arg(i),
            Len::ArgPlus(i, n) => arg(i).saturating_add(n.into()),
            Len::Ret(i) => {
                let max = arg(i).min(MAX_TRANSFER);
                done.map_or(max, |n| self.filled(addr, max, n))
            }
            Len::RetPlus(i, n) => done.map_or(arg(i), |got| got.min(arg(i))) + u64::from(n),
            Len::Items(i, size) => (arg(i) as u32 as u64) * size as u64,
            Len::RetItems(i, size) => {
                let max = arg(i) as u32 as u64;
                done.map_or(max, |n| n.min(max)) * size as u64
            }
            // ENOMEM may come after some pages.
            Len::Pages(_)
                if self
                    .ret
                    .is_some_and(|r| is_err(r) && r != err(libc::ENOMEM)) =>
            {
                0
            }
            Len::Pages(i) => arg(i).div_ceil(4096),
            Len::Behind(i) => self.half(arg(i)).unwrap_or(0),
            Len::Address(i) => self.half(arg(i)).unwrap_or(0).min(MAX_ADDRESS),
            Len::Bits(i) => descriptor_sets(arg(i) as i32),
            Len::Nodes(i) => (arg(i).div_ceil(64).saturating_mul(8)).min(4096),
        }
    }

    /// How much of a buffer was written by a call that says `got`.
    fn filled(&self, addr: u64, max: u64, got: u64) -> u64 {
        if got >= max || got == 0 {
            return got.min(max);
        }
        // Direct I/O fills whole blocks, also beyond the end of the file.
        let direct = !self.exact
            && (addr | max).is_multiple_of(512)
            && self.call.args.first() == Some(&Arg::Fd)
            && is_direct(self.args[0] as i32);
        if direct {
            return max;
        }
        // A fault behind whole pieces of data isn't told, but has written up to the fault.
        let end_ok = (self.peek)(addr.wrapping_add(max - 1), &mut [0]);
        if end_ok || !(self.peek)(addr, &mut [0]) {
            return got;
        }
        accessible(addr, max).max(got)
    }

    /// nanosleep and its like tell what is left when a signal has ended them.
    fn leaves_time(&self) -> bool {
        let absolute =
            self.call.nr as i64 == libc::SYS_clock_nanosleep && self.args[1] as i32 & 1 != 0;
        self.ret.is_none_or(|ret| ret == EINTR) && !absolute
    }

    /// An array of pollfd. `revents` is written in all of them, also when a signal ended the wait.
    fn polls(&self, array: u64, count: u64, found: Found) {
        let written = self.ret.is_none_or(|ret| ret >= 0 || ret == EINTR);
        let count = count as u32 as u64;
        if !written || count == 0 {
            return;
        }
        if !self.exact {
            return report(array, count * 8, found);
        }
        for k in 0..count {
            found(array.wrapping_add(k * 8 + 6), 2);
        }
    }

    /// An array of iovec, filled front to back with `done` bytes.
    pub fn vectors(&self, array: u64, count: u64, done: Option<u64>, found: Found) {
        let mut left = done.unwrap_or(u64::MAX);
        for k in 0..count.min(libc::UIO_MAXIOV as u64) {
            let at = array.wrapping_add(k * 16);
            let (Some(base), Some(len)) = (self.word(at), self.word(at.wrapping_add(8))) else {
                return;
            };
            let take = match done {
                Some(_) if left < len => self.filled(base, len, left),
                _ => len,
            };
            report(base, take, found);
            left = left.saturating_sub(len);
            if left == 0 {
                return;
            }
        }
    }

    /// A msghdr: name, vectors, control data, and the header's own lengths and flags.
    fn message(&self, addr: u64, done: Option<u64>, found: Found) {
        let mut raw = [0; 56];
        if !(self.peek)(addr, &mut raw) {
            return;
        }
        let field = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("8 bytes"));
        let (name, name_len) = (field(0), field(8) as u32 as u64);
        let (control, control_len) = (field(32), field(40));
        if name != 0 {
            found(addr + 8, 4);
            report(name, name_len.min(MAX_ADDRESS), found);
        }
        found(addr + 40, 12);
        self.vectors(field(16), field(24), done, found);
        if control != 0 {
            report(control, control_len, found);
        }
    }

    /// An array of mmsghdr: each message, and for both directions its length.
    fn messages(&self, array: u64, count: u8, out: bool, found: Found) {
        let max = (self.args[count as usize] as u32 as u64).min(libc::UIO_MAXIOV as u64);
        let filled = self.done().map_or(max, |n| n.min(max));
        for k in 0..filled {
            let one = array.wrapping_add(k * 64);
            if out {
                let got = self.half(one.wrapping_add(56)).unwrap_or(0);
                self.message(one, self.ret.map(|_| got), found);
            }
            found(one.wrapping_add(56), 4);
        }
    }
}

fn report(addr: u64, len: u64, found: Found) {
    if len != 0 {
        found(addr, len);
    }
}

fn status_flags(fd: i32) -> i32 {
    // SAFETY: F_GETFL touches no memory.
    unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) as i32 }
}

fn is_direct(fd: i32) -> bool {
    let flags = status_flags(fd);
    flags >= 0 && flags & libc::O_DIRECT != 0
}

/// vmsplice goes both ways, by the end of the pipe that it is given.
pub fn is_write_end(fd: i32) -> bool {
    let flags = status_flags(fd);
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Bytes of a descriptor set of select. The kernel never looks beyond the process's table.
fn descriptor_sets(count: i32) -> u64 {
    let mut count = count.max(0) as u64;
    if count > 4096 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        if let Some(size) = size.and_then(|size| size.trim().parse().ok()) {
            count = count.min(size);
        }
    }
    count.div_ceil(64) * 8
}

/// Gives back the write permission that the engine took from pages with translated code, for all
/// that the call may write. True if anything changed, so that the call is worth a second try.
pub fn unprotect(ex: &mut Executor, call: &Call, args: &Args) -> bool {
    let memory = &mut ex.memory;
    let mut changed = false;
    each(call, args, None, &mut |addr, len| {
        changed |= memory.unprotect_for_kernel(addr, len);
    });
    changed
}

#[cfg(test)]
mod tests {
    use super::super::table::lookup;
    use super::*;

    fn ranges(nr: i64, args: Args, ret: Option<i64>) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        each(lookup(nr as u64), &args, ret, &mut |a, l| all.push((a, l)));
        all
    }

    #[test]
    fn read_writes_what_it_returned() {
        let args = [3, 0x1000, 100, 0, 0, 0];
        assert_eq!(ranges(libc::SYS_read, args, None), [(0x1000, 100)]);
        assert_eq!(ranges(libc::SYS_read, args, Some(7)), [(0x1000, 7)]);
        assert_eq!(ranges(libc::SYS_read, args, Some(-4)), []);
    }

    #[test]
    fn vectors_fill_front_to_back() {
        let page = access::tests::guest_page();
        access::write(page, &[[0x1000u64, 10], [0x2000, 20], [0x3000, 30]]).unwrap();
        let args = [3, page, 3, 0, 0, 0];
        assert_eq!(
            ranges(libc::SYS_readv, args, Some(15)),
            [(0x1000, 10), (0x2000, 5)]
        );
        assert_eq!(ranges(libc::SYS_readv, args, None).len(), 3);
    }

    #[test]
    fn null_pointers_write_nothing() {
        let none = ranges(libc::SYS_wait4, [1, 0, 0, 0, 0, 0], Some(1));
        assert!(none.is_empty());
    }

    #[test]
    fn faults_report_what_is_accessible() {
        access::tests::survive_faults();
        let page = access::tests::guest_page();
        let args = [0, page + 4000, 1000, 0, 0, 0];
        let got = ranges(libc::SYS_read, args, Some(EFAULT));
        assert_eq!(got, [(page + 4000, 96)]);
        // A buffer that ends in nowhere: written up to there, whatever the count says.
        let got = ranges(libc::SYS_read, args, Some(10));
        assert_eq!(got, [(page + 4000, 96)]);
    }

    #[test]
    fn sleeping_tells_the_rest_only_when_interrupted() {
        let page = access::tests::guest_page();
        let args = [0, 0, 0x1000, page, 0, 0];
        let nr = libc::SYS_clock_nanosleep;
        assert_eq!(ranges(nr, args, Some(0)), []);
        assert_eq!(ranges(nr, args, Some(EINTR)), [(page, 16)]);
        let absolute = [0, 1, 0x1000, page, 0, 0];
        assert_eq!(ranges(nr, absolute, Some(EINTR)), []);
    }

    #[test]
    fn tables_of_netfilter_give_counters_back() {
        let page = access::tests::guest_page();
        access::write(page + 84, &3u32).unwrap();
        access::write(page + 88, &0x5000u64).unwrap();
        let replace = |level, option| {
            ranges(
                libc::SYS_setsockopt,
                [3, level, option, page, 96, 0],
                Some(0),
            )
        };
        assert_eq!(replace(0, 64), [(0x5000, 48)]);
        assert_eq!(replace(41, 64), [(0x5000, 48)]);
        assert_eq!(replace(0, 65), []);
        assert_eq!(replace(1, 64), []);
    }

    #[test]
    fn masks_of_nodes_are_written_up_to_a_page() {
        let args = [0x1000, 0x2000, 5000, 0, 0, 0];
        let nr = libc::SYS_get_mempolicy;
        assert_eq!(ranges(nr, args, Some(0)), [(0x1000, 4), (0x2000, 632)]);
        // Too long a mask is found out when the policy is written already.
        let page = access::tests::guest_page();
        let long = [page, 0x2000, 1 << 30, 0, 0, 0];
        assert_eq!(ranges(nr, long, Some(err(libc::EINVAL))), [(page, 4)]);
    }

    #[test]
    fn sets_of_descriptors_have_an_end() {
        assert_eq!(descriptor_sets(65), 16);
        assert_eq!(descriptor_sets(-1), 0);
        assert!(descriptor_sets(i32::MAX) < 1 << 20);
    }
}
