//! System V shared memory: segments are mapped by their own calls.

use super::alloc::Want;
use super::host;
use super::mapping::{Backing, Mapping, PAGE, page_down, page_up};
use super::{Answer, MapError, Memory};
use crate::layout;
use crate::sys;
use crate::syscall;

impl Memory {
    /// Attaches a segment; without an address it goes where anonymous maps go.
    pub fn shmat(&mut self, id: i32, addr: u64, flags: i32) -> Answer {
        let len = segment_size(id)?;
        let at = if addr == 0 {
            self.places
                .find(&self.map, Want::High, len, PAGE)
                .ok_or(libc::ENOMEM)?
        } else if !addr.is_multiple_of(PAGE) {
            if flags & libc::SHM_RND == 0 {
                return Err(libc::EINVAL.into());
            }
            page_down(addr)
        } else {
            addr
        };
        let end = at.checked_add(len).ok_or(libc::EINVAL)?;
        if !layout::is_guest(at, len) {
            return Err(MapError::Engine(
                host::engine_overlap(at..end).unwrap_or(at..end),
            ));
        }
        let replace = flags & libc::SHM_REMAP != 0;
        if !replace && !self.map.is_free(at..end) {
            return Err(libc::EINVAL.into());
        }
        let real = flags & !libc::SHM_EXEC;
        // SAFETY: the range is the guest's.
        let ret = unsafe { syscall!(libc::SYS_shmat, id, at, real) };
        if sys::is_err(ret) {
            return Err(MapError::Errno(-ret as i32));
        }
        self.forget(at..end);
        let mut prot = libc::PROT_READ;
        if flags & libc::SHM_RDONLY == 0 {
            prot |= libc::PROT_WRITE;
        }
        if flags & libc::SHM_EXEC != 0 {
            prot |= libc::PROT_EXEC;
        }
        let mut mapping = Mapping::anon(at, end, prot);
        mapping.shared = true;
        mapping.backing = Backing::Shm;
        self.map.insert(mapping);
        Ok(at)
    }

    /// Detaches the segment attached at `addr`.
    pub fn shmdt(&mut self, addr: u64) -> Answer {
        let Some(&m) = self.map.get(addr).filter(|m| m.backing == Backing::Shm) else {
            return Err(libc::EINVAL.into());
        };
        // SAFETY: what is attached there is the guest's.
        let ret = unsafe { syscall!(libc::SYS_shmdt, addr) };
        if sys::is_err(ret) {
            return Err(MapError::Errno(-ret as i32));
        }
        // Neighbouring segments are one mapping in the map; the host knows which part went.
        let mut at = addr;
        while at < m.end && !mapped(at) {
            at += PAGE;
        }
        self.forget(addr..at);
        Ok(0)
    }
}

fn segment_size(id: i32) -> Result<u64, MapError> {
    // SAFETY: all-zero is a valid `shmid_ds`, which is plain numbers.
    let mut ds: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `shmid_ds`, which is what `ds` is.
    let ret = unsafe { syscall!(libc::SYS_shmctl, id, libc::IPC_STAT, &raw mut ds) };
    if sys::is_err(ret) {
        return Err(MapError::Errno(-ret as i32));
    }
    page_up(ds.shm_segsz as u64).ok_or(MapError::Errno(libc::ENOMEM))
}

fn mapped(page: u64) -> bool {
    let mut resident = 0u8;
    // SAFETY: the kernel writes one byte for the one page asked about.
    unsafe { syscall!(libc::SYS_mincore, page, PAGE, &raw mut resident) == 0 }
}
