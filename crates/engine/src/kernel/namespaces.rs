//! Calls after which `/proc/self/exe` may no longer lead to clew: chroot, pivot_root, unshare,
//! setns. Before them the engine keeps a hidden descriptor of itself, so that later execs in there
//! still start it.

use super::table::Args;
use super::{Outcome, pass_nr};
use crate::context::RAX;
use crate::executor::Executor;

pub fn enter(ex: &mut Executor, a: Args) -> Outcome {
    let nr = ex.gs.regs.gpr[RAX] as i64;
    if nr != libc::SYS_unshare || a[0] as i32 & (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) != 0 {
        ex.kernel.own.hidden.keep_self();
    }
    pass_nr(ex, nr, a)
}
