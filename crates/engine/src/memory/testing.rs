//! For tests that really map: one guest address space at a time in the test process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Memory, host};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An empty [`Memory`] that unmaps everything when dropped.
pub(crate) struct TestMemory {
    memory: Memory,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) fn memory() -> TestMemory {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    TestMemory {
        memory: Memory::default(),
        _alone: alone,
    }
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        for m in self.memory.iter() {
            host::munmap(m.start..m.end).expect("guest mapping");
        }
    }
}

impl Deref for TestMemory {
    type Target = Memory;
    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl DerefMut for TestMemory {
    fn deref_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
