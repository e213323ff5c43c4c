//! Calls after which `/proc/self/exe` may no longer lead to clew: chroot, pivot_root, unshare,
//! setns. Before them the engine keeps a hidden descriptor of itself, so that later execs in there
//! still start it.

use super::table::Args;
use super::{Outcome, pass_nr};
use crate::context::RAX;
use crate::executor::Executor;
use crate::sys::err;

/// Descriptors and the working directory are the executor's, for all guest threads alike.
const OF_A_THREAD: i32 = libc::CLONE_FILES | libc::CLONE_FS;
const NEW: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

pub fn enter(ex: &mut Executor, a: Args) -> Outcome {
    let nr = ex.gs.regs.gpr[RAX] as i64;
    if nr != libc::SYS_unshare || a[0] as i32 & (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) != 0 {
        ex.kernel.own.hidden.keep_self();
    }
    if ex.multi_threaded() {
        if nr == libc::SYS_unshare && a[0] as i32 & OF_A_THREAD != 0 {
            ex.say("unshare(CLONE_FILES or CLONE_FS) in one of several threads isn't supported under clew and fails".to_owned());
            return Outcome::Return(err(libc::EINVAL));
        }
        if nr == libc::SYS_setns || a[0] as i32 & NEW != 0 {
            ex.say(format!(
                "{} in one of several threads acts on all of them under clew",
                if nr == libc::SYS_setns {
                    "setns"
                } else {
                    "unshare"
                }
            ));
        }
    }
    pass_nr(ex, nr, a)
}
