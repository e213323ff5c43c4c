//! Caches of confined code: a probe's module, and what that calls of the guest. In: which of both. Out: a cache whose code
//! leaves before it writes to other memory than the probe's own, and whose branches lead to code like itself alone.
//!
//! Each has a dispatch table of its own, so nothing of the ordinary translations can be reached from there, nor the other
//! way round; what isn't its own code it can't fetch, and leaves.

use std::io;

use super::instruments::Instrumented;
use super::mutable::Mutable;
use super::room::map_anywhere;
use super::{CodeCache, RECENT, accesses, steps, trace};
use crate::context::{DISPATCH_SLOTS, GsBlock};
use crate::memory::Memory;
use crate::syscall;
use crate::translate::checks::{Checks, Confined};

/// For the end of dispatch chains: code that may change isn't translated here.
const LITTLE: u64 = 256 << 10;

impl CodeCache {
    /// An empty cache for confined code. There can be one of each kind.
    pub fn confined(&self, which: Confined) -> io::Result<CodeCache> {
        let (place, len) = (which.table(), size_of::<[u64; DISPATCH_SLOTS]>());
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE: nothing that exists is touched.
        let at = unsafe { syscall!(libc::SYS_mmap, place, len, prot, flags, -1i64, 0) };
        if at != place as i64 {
            return Err(io::Error::from_raw_os_error(-at as i32));
        }
        let checks = Checks {
            confined: Some(which),
            ..Checks::default()
        };
        let mut instruments = Instrumented::default();
        instruments.wanted.confined = Some(which);
        Ok(CodeCache {
            images: Vec::new(),
            mutable: Mutable::new(map_anywhere(LITTLE), checks),
            instruments,
            tracer: trace::Tracer::default(),
            access_reader: accesses::AccessReader::default(),
            steps: steps::Steps::default(),
            atlas: self.atlas.clone(),
            store: None,
            recent: vec![(0, 0); RECENT].into_boxed_slice(),
            dispatch_dirty: true,
            stubs_waiting: false,
            blocks: 0,
            optimise_up_to: u64::MAX,
            dump: 0..0,
            spoil: None,
            trace: false,
            before_call: [0; 2],
        })
    }

    /// Where this cache's indirect branches are looked up.
    pub(super) fn dispatch_table<'a>(&self, gs: &'a mut GsBlock) -> &'a mut [u64; DISPATCH_SLOTS] {
        match self.instruments.wanted.confined {
            None => &mut gs.dispatch,
            // SAFETY: mapped when this cache was made, and never unmapped; used by it and its code alone, which doesn't run
            // now.
            Some(which) => unsafe { &mut *(which.table() as *mut [u64; DISPATCH_SLOTS]) },
        }
    }

    /// Drops what became stale before another cache runs.
    pub fn settle(&mut self, memory: &mut Memory) {
        if memory.stale_pending() {
            self.forget_stale(memory);
        }
    }

    /// Drops what another cache was told to.
    pub fn settle_too(&mut self, memory: &mut Memory) {
        let stale = memory.take_stale_too();
        if !stale.is_empty() {
            self.forget(&stale);
        }
    }
}
