//! Ends: of a thread, of the process.

use crate::executor::Executor;
use crate::host::borrower;
use crate::host::proxy::{Command, Task};
use crate::kernel::Outcome;

pub fn sys_exit(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    ex.exit_thread(args[0])
}

pub fn sys_exit_group(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    ex.exit_group(args[0])
}

impl Executor {
    /// `exit`: ends the current thread, and with the last one the process.
    pub fn exit_thread(&mut self, status: u64) -> Outcome {
        if self.threads.count() == 1 {
            self.exit_group(status);
        }
        let slot = self.threads.current;
        self.count_ticks();
        self.release_robust(slot);
        self.release_pi(slot);
        let clear = self.current().clear_child_tid;
        if clear != 0 && self.put(clear, &0u32).is_ok() {
            self.wake_after_exit(clear);
        }
        if let Some(thread) = self.threads.remove(slot)
            && let Some(proxy) = thread.proxy
        {
            let args = [status, 0, 0, 0, 0, 0];
            proxy.post(Command {
                task: Task::Exit,
                args,
                ..Command::default()
            });
            self.threads.pool.give_back(proxy);
        }
        // Nobody is current until the scheduler picks somebody.
        Outcome::Parked
    }

    /// `exit_group`: ends the process.
    pub fn exit_group(&mut self, status: u64) -> ! {
        self.ending();
        // What other processes will find is a part of the recording.
        let slots: Vec<usize> = self.threads.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.release_robust(slot);
        }
        self.record_exit(status as i32);
        borrower::leaves();
        // SAFETY: ends the process.
        unsafe {
            crate::syscall!(libc::SYS_exit_group, status);
        }
        unreachable!("exit_group returned")
    }
}
