//! System V shared memory: segments are mapped by their own calls.

use std::ops::Range;

use clew_recording::maps::{Object, Source};

use super::alloc::Want;
use super::host;
use super::mapping::{Backing, Mapping, PAGE, page_down, page_up};
use super::{Answer, MapError, Memory, govern};
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
        if self.records_changes() {
            self.log_segment(&mapping, id);
        }
        Ok(at)
    }

    /// Detaches the segment attached at `addr`: all that is left of it, also if its begin is gone.
    pub fn shmdt(&mut self, addr: u64) -> Answer {
        if !layout::is_guest(addr, 1) {
            return Err(libc::EINVAL.into());
        }
        // SAFETY: what is attached there is the guest's.
        let ret = unsafe { syscall!(libc::SYS_shmdt, addr) };
        if sys::is_err(ret) {
            return Err(MapError::Errno(-ret as i32));
        }
        // Which parts went only the host knows.
        let segments: Vec<Range<u64>> = self
            .map
            .overlapping(addr..layout::ADDRESS_END)
            .filter(|m| m.backing == Backing::Shm)
            .map(|m| m.start.max(addr)..m.end)
            .collect();
        for range in segments {
            for gone in host::unmapped(range) {
                self.forget_logged(gone);
            }
        }
        Ok(0)
    }

    /// A segment's contents come from whoever had it before.
    fn log_segment(&mut self, mapping: &Mapping, id: i32) {
        let object = Object::Segment(id as u64);
        let source = Source::Object {
            object,
            offset: 0,
            size: mapping.len(),
            copy: None,
        };
        let governed = govern::is_used_by_others(&object);
        self.logged_map(mapping, source, Vec::new());
        if governed {
            return;
        }
        let mut page = [0; PAGE as usize];
        for at in (mapping.start..mapping.end).step_by(PAGE as usize) {
            let read = host::read_memory(at, &mut page);
            if read != Ok(page.len()) || page.iter().any(|&b| b != 0) {
                self.log_contents(at..at + PAGE);
            }
        }
        let note = format!(
            "System V segment {id} is attached: what other processes write to it isn't recorded"
        );
        self.log_note(note, has_others(id));
    }
}

fn segment_size(id: i32) -> Result<u64, MapError> {
    page_up(segment(id)?.shm_segsz as u64).ok_or(MapError::Errno(libc::ENOMEM))
}

fn segment(id: i32) -> Result<libc::shmid_ds, MapError> {
    // SAFETY: all-zero is a valid `shmid_ds`, which is plain numbers.
    let mut ds: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `shmid_ds`, which is what `ds` is.
    let ret = unsafe { syscall!(libc::SYS_shmctl, id, libc::IPC_STAT, &raw mut ds) };
    if sys::is_err(ret) {
        return Err(MapError::Errno(-ret as i32));
    }
    Ok(ds)
}

/// Does another process have the segment attached, or was it made by one?
fn has_others(id: i32) -> bool {
    // SAFETY: getpid touches no memory.
    let me = unsafe { syscall!(libc::SYS_getpid) };
    segment(id).is_ok_and(|ds| ds.shm_nattch > 1 || ds.shm_cpid as i64 != me)
}
