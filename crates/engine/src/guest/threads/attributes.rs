//! What the kernel keeps for a thread and a new process inherits from the one that forks: name, processors,
//! scheduling.
//!
//! With several guest threads, the kernel thread that forks is the executor's; it stands for none of them.

use crate::executor::Executor;
use crate::syscall;

/// Room for the processors of any machine.
const CPUS: usize = 1024;
/// The kernel's `struct sched_attr`, without what later kernels added.
const ATTR: usize = 48;

/// Of a guest thread that has a kernel thread of its own; nothing otherwise.
#[derive(Default)]
pub struct Attributes(Option<Box<Kept>>);

struct Kept {
    name: [u8; 16],
    cpus: [u8; CPUS],
    /// How many bytes of these the kernel has; nothing if it is an error.
    cpus_len: i64,
    attr: [u8; ATTR],
}

impl Executor {
    /// Those of the current thread, if they aren't the executor's own anyway.
    pub fn thread_attributes(&mut self) -> Attributes {
        if !self.threads.multi {
            return Attributes::default();
        }
        let mut kept = Box::new(Kept {
            name: [0; 16],
            cpus: [0; CPUS],
            cpus_len: 0,
            attr: [0; ATTR],
        });
        let tid = self.current().tid;
        let name = kept.name.as_mut_ptr() as u64;
        self.call_on_proxy(
            libc::SYS_prctl,
            [libc::PR_GET_NAME as u64, name, 0, 0, 0, 0],
        );
        // SAFETY: the kernel writes as many bytes as it is told at most.
        unsafe {
            kept.cpus_len = syscall!(
                libc::SYS_sched_getaffinity,
                tid,
                CPUS,
                kept.cpus.as_mut_ptr()
            );
            syscall!(
                libc::SYS_sched_getattr,
                tid,
                kept.attr.as_mut_ptr(),
                ATTR,
                0
            );
        }
        Attributes(Some(kept))
    }
}

impl Attributes {
    /// The calling kernel thread, the child's first, gets them. What it may not have it goes without.
    pub fn take(&self) {
        let Some(kept) = &self.0 else {
            return;
        };
        // SAFETY: the kernel reads what is there, as long as it says.
        unsafe {
            syscall!(libc::SYS_prctl, libc::PR_SET_NAME, kept.name.as_ptr());
            if kept.cpus_len > 0 {
                let len = kept.cpus_len;
                syscall!(libc::SYS_sched_setaffinity, 0, len, kept.cpus.as_ptr());
            }
            if kept.attr[0] != 0 {
                syscall!(libc::SYS_sched_setattr, 0, kept.attr.as_ptr(), 0);
            }
        }
    }
}
