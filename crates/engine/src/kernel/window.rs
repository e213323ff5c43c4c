//! Requests that nobody knows: what the kernel wrote is found by comparing memory.
//!
//! Before the call: its pointer argument, and pointers in the structure behind it, as windows with
//! their contents. After it: the ranges that changed.

use super::procfs::descriptor_path;
use super::table::{Args, Call};
use super::{requests, stop};
use crate::executor::Executor;
use crate::guest::access;

/// How much is compared behind a pointer, and how much of a structure is searched for more.
const WINDOW: u64 = 4096;
const SEARCHED: u64 = 256;
/// Windows of one call.
const MOST: usize = 16;

/// Memory before a call.
pub struct Window {
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Executor {
    /// Windows for a call whose outputs the table can't tell. Says so, once for each request.
    pub fn window_of(&mut self, call: &Call, args: &Args) -> Option<Window> {
        let (what, first, all) = unknown_request(call, args)?;
        let mut window = Window { pieces: Vec::new() };
        for &addr in all {
            window.add(self, addr);
        }
        if first != 0 {
            window.follow(self, first);
        }
        if window.pieces.is_empty() {
            return None;
        }
        let request = (u64::from(call.nr) << 32) | u64::from(what);
        if !self.kernel.warned.contains(&request) {
            self.kernel.warned.push(request);
            let path = descriptor_path(args[0] as i32);
            let place = match call.nr as i64 {
                libc::SYS_prctl => String::new(),
                _ => format!(
                    " on fd {} ({})",
                    args[0] as i32,
                    String::from_utf8_lossy(&path)
                ),
            };
            stop::warn(&format!(
                "unknown {} {what:#x}{place}: recorded by comparing memory",
                call.name
            ));
        }
        Some(window)
    }
}

/// The request if it is unknown, a structure to search for pointers (0: none), and pointers.
fn unknown_request<'a>(call: &Call, args: &'a Args) -> Option<(u32, u64, &'a [u64])> {
    match call.nr as i64 {
        libc::SYS_ioctl => {
            let request = args[1] as u32;
            if requests::ioctl_is_known(request) {
                return None;
            }
            // One with a size is known as far as the structure itself goes, but more may follow it.
            Some((request, args[2], &args[2..3]))
        }
        libc::SYS_fcntl if requests::fcntl_len(args[1] as i32).is_none() => {
            Some((args[1] as u32, 0, &args[2..3]))
        }
        libc::SYS_prctl if !requests::prctl_is_known(args[0] as i32) => {
            Some((args[0] as u32, 0, &args[1..5]))
        }
        _ => None,
    }
}

impl Window {
    /// A window at what may be a pointer.
    fn add(&mut self, ex: &Executor, addr: u64) {
        let Some(mapping) = ex.memory.find(addr).filter(|m| m.can(libc::PROT_WRITE)) else {
            return;
        };
        let len = WINDOW.min(mapping.end - addr) as usize;
        let mut bytes = vec![0; len];
        let seen = self
            .pieces
            .iter()
            .any(|(start, piece)| (*start..start + piece.len() as u64).contains(&addr));
        if !seen && self.pieces.len() < MOST && access::read_bytes(addr, &mut bytes).is_ok() {
            self.pieces.push((addr, bytes));
        }
    }

    /// Windows at everything that looks like a pointer in the structure at `addr`.
    fn follow(&mut self, ex: &Executor, addr: u64) {
        for at in (addr..addr.saturating_add(SEARCHED)).step_by(8) {
            match access::read::<u64>(at) {
                Ok(word) => self.add(ex, word),
                Err(_) => return,
            }
        }
    }

    /// The ranges that have changed since. Changes with few equal bytes between are one range.
    pub fn changed_ranges(&self) -> Vec<(u64, u64)> {
        const JOIN: usize = 16;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (addr, before) in &self.pieces {
            let mut now = vec![0; before.len()];
            if access::read_bytes(*addr, &mut now).is_err() {
                continue;
            }
            let mut at = 0;
            while let Some(skip) = before[at..]
                .iter()
                .zip(&now[at..])
                .position(|(a, b)| a != b)
            {
                let start = at + skip;
                let mut end = start + 1;
                let mut look = end;
                while look < now.len() && look - end < JOIN {
                    if before[look] != now[look] {
                        end = look + 1;
                    }
                    look += 1;
                }
                ranges.push((addr + start as u64, (end - start) as u64));
                at = end;
            }
        }
        ranges
    }

    /// Tells the recording.
    pub fn note(&self) {
        for (addr, len) in self.changed_ranges() {
            access::note_write(addr, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::lookup;
    use super::*;

    #[test]
    fn changes_are_found() {
        let page = access::tests::guest_page();
        let window = Window {
            pieces: vec![(page, vec![0; 4096])],
        };
        assert_eq!(window.changed_ranges(), []);
        access::write(page + 8, &1u8).unwrap();
        access::write(page + 12, &1u32).unwrap();
        access::write(page + 4095, &9u8).unwrap();
        assert_eq!(window.changed_ranges(), [(page + 8, 5), (page + 4095, 1)]);
    }

    #[test]
    fn only_unknown_requests_are_compared() {
        let nr = |nr: i64| lookup(nr as u64);
        let ioctl =
            |request| unknown_request(nr(libc::SYS_ioctl), &[0, request, 64, 0, 0, 0]).is_some();
        assert!(!ioctl(0x5401) && !ioctl(0x8912) && ioctl(0x1234) && ioctl(0xc0ff_1234));
        let fcntl =
            |command| unknown_request(nr(libc::SYS_fcntl), &[0, command, 64, 0, 0, 0]).is_some();
        assert!(!fcntl(3) && !fcntl(1030) && fcntl(2000));
        let prctl =
            |option| unknown_request(nr(libc::SYS_prctl), &[option, 64, 0, 0, 0, 0]).is_some();
        assert!(!prctl(15) && prctl(3000));
        assert!(unknown_request(nr(libc::SYS_read), &[0; 6]).is_none());
    }
}
