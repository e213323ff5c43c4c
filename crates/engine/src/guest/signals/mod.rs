//! Signals in the guest's terms: dispositions, masks, delivery, and the calls about them.
//!
//! The kernel's mask of the kernel thread that stands for a guest thread follows the guest's mask,
//! so pending signals wait in the kernel. What a host handler *took* (see
//! [`crate::host::kernel_thread`]) reaches the guest thread's `pending` list and from there,
//! between two guest instructions, its stack.

pub mod altstack;
pub mod calls;
pub mod delivery;
pub mod faults;
pub mod frame;
pub mod mask;
pub mod waiting;

pub use calls::*;
pub use waiting::*;

use std::cell::OnceCell;
use std::collections::VecDeque;

use crate::host::handlers::{self, Action};
use crate::host::inherited;
use crate::host::siginfo::Siginfo;
use crate::host::sigset::{NSIG, SigSet};
use altstack::AltStack;

/// What the guest wants to happen on each signal. One for the process.
#[derive(Clone)]
pub struct Signals {
    /// Empty: never asked about; what exec left, which the kernel knows.
    actions: [OnceCell<Action>; NSIG],
    /// Signals that kill by default come to the engine first.
    pub hooked: bool,
}

impl Default for Signals {
    /// All at their defaults.
    fn default() -> Signals {
        Signals {
            actions: std::array::from_fn(|_| OnceCell::from(Action::default())),
            hooked: false,
        }
    }
}

impl Signals {
    /// What exec leaves: ignored signals stay ignored, the rest is at its default.
    /// The kernel is asked only about those that come up: most programs look at a few, and 64
    /// calls would take a good part of their start.
    pub fn inherited(hooked: bool) -> Signals {
        let signals = Signals {
            actions: [const { OnceCell::new() }; NSIG],
            hooked,
        };
        for sig in 1..=NSIG as i32 {
            if SigSet::SYNCHRONOUS.contains(sig)
                || sig == libc::SIGPIPE
                || (hooked && SigSet::FATAL.contains(sig))
            {
                handlers::set_for_guest(sig, signals.action(sig), hooked);
            }
        }
        signals
    }

    pub fn action(&self, sig: i32) -> &Action {
        self.actions[sig as usize - 1].get_or_init(|| inherited_action(sig))
    }

    /// Changes a disposition, in the kernel too.
    pub fn set_action(&mut self, sig: i32, action: Action) {
        self.actions[sig as usize - 1] = OnceCell::from(action);
        handlers::set_for_guest(sig, &action, self.hooked);
    }

    /// From now on signals that kill by default come to the engine first, or don't.
    pub fn set_hooked(&mut self, hooked: bool) {
        if std::mem::replace(&mut self.hooked, hooked) == hooked {
            return;
        }
        for sig in (1..=NSIG as i32).filter(|&sig| SigSet::FATAL.contains(sig)) {
            if self.action(sig).handler == libc::SIG_DFL as u64 {
                handlers::set_for_guest(sig, self.action(sig), hooked);
            }
        }
    }

    /// Whether `sig` kills and the engine is to see to it.
    pub fn kills(&self, sig: i32) -> bool {
        let ours = SigSet::SYNCHRONOUS.contains(sig) || self.hooked;
        ours && SigSet::FATAL.contains(sig) && self.action(sig).handler == libc::SIG_DFL as u64
    }

    /// Before a child that shares our memory (vfork) runs: its changes must not stay.
    pub fn snapshot(&self) -> Signals {
        self.clone()
    }
    /// After it has gone. The kernel kept the parent's dispositions apart all along.
    pub fn restore(&mut self, saved: Signals) {
        *self = saved;
    }

    /// Whether an unblocked `sig` would run a handler.
    pub fn has_handler(&self, sig: i32) -> bool {
        let handler = self.action(sig).handler;
        handler != libc::SIG_DFL as u64 && handler != libc::SIG_IGN as u64
    }

    /// Whether a call that `sig` interrupts is made again afterwards, if it is one of those that can be.
    pub fn restarts(&self, sig: i32) -> bool {
        !self.has_handler(sig) || self.action(sig).flags & libc::SA_RESTART as u64 != 0
    }
}

/// What the process was started with for a signal that the engine hasn't told the kernel about
/// yet: ignored or default.
fn inherited_action(sig: i32) -> Action {
    let ignore = libc::SIG_IGN as u64;
    let handler = match sig {
        libc::SIGPIPE => inherited::sigpipe(),
        _ => handlers::kernel_action(sig).map_or(0, |action| action.handler),
    };
    Action {
        handler: if handler == ignore { ignore } else { 0 },
        ..Action::default()
    }
}

/// `trapno`, `err` and `cr2` of the thread's last fault: the kernel shows them in every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trap {
    pub trapno: u64,
    pub err: u64,
    pub cr2: u64,
}

/// The signal state of one guest thread.
#[derive(Clone, Default)]
pub struct ThreadSignals {
    pub mask: SigSet,
    /// During and after a call with a temporary mask: the mask to go back to.
    pub saved_mask: Option<SigSet>,
    /// What the kernel has for this thread, as far as the executor knows.
    pub kernel_mask: SigSet,
    pub altstack: AltStack,
    /// Taken from the kernel, not yet delivered.
    pub pending: VecDeque<Siginfo>,
    pub trap: Trap,
}
