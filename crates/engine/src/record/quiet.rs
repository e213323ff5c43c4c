//! Instructions that the engine carries out but that need no answer (`pause`, `xgetbv`, segment bases).
//!
//! In: a thread that stands on one. Out: nothing, as a rule: a replay carries them out by itself. Only if
//! something happens right behind one, where there is no tick to find the place by, is it an event.

use clew_recording::event::{Event, Instruction};

use crate::executor::Executor;
use crate::kernel;

impl Executor {
    /// Carries out the instruction if it is such a one.
    pub(super) fn passed_quietly(&mut self) -> bool {
        let before = self.gs.regs;
        if !kernel::emulate::quietly(self) {
            return false;
        }
        let now = self.ticks_now();
        let recorder = self.recorder();
        recorder.quiet = Some(before);
        if recorder.passed.0 != now {
            recorder.passed = (now, 0);
        }
        true
    }

    /// Something happens: if that is right behind a quiet instruction, then this is the place that can
    /// be found again.
    pub(crate) fn tell_quiet(&mut self) {
        let now = self.ticks_now();
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let Some(before) = recorder.quiet.take() else {
            return;
        };
        // Not `take_arrived`: what became of shared memory here is behind the instruction.
        let ticks = std::mem::take(&mut recorder.arrived) + now.saturating_sub(recorder.base);
        recorder.base = now;
        let (_, passed) = recorder.passed;
        let what = Instruction::Quiet { passed };
        recorder.event(&Event::Instruction { ticks, what });
        self.effects(Some(&before));
    }

    /// The current thread runs: what it has passed is behind it.
    #[inline]
    pub(crate) fn nothing_happened(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && recorder.quiet.take().is_some()
        {
            recorder.passed.1 += 1;
        }
    }
}
