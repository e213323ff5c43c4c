//! What takes longer than a second says how far it has come, on a terminal. In: the part that is done. Out: one line on
//! stderr with the time that is left, which is gone when the work is.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::text;

/// Nothing is said of what is over sooner.
const LONG: Duration = Duration::from_secs(1);
/// The line changes so often.
const OFTEN: Duration = Duration::from_millis(100);
/// Too little to tell the rest by.
const LITTLE: f64 = 0.005;

pub struct Progress {
    /// "replaying crash".
    what: String,
    on_terminal: bool,
    began: Instant,
    /// The part that was done when it began.
    first: Option<f64>,
    shown: Option<Instant>,
}

impl Progress {
    pub fn new(what: &str) -> Progress {
        Progress {
            what: text::plain(what),
            on_terminal: std::io::stderr().is_terminal(),
            began: Instant::now(),
            first: None,
            shown: None,
        }
    }

    /// One that never says anything, unless this holds.
    pub fn only_if(mut self, shown: bool) -> Progress {
        self.on_terminal &= shown;
        self
    }

    /// Other work begins.
    pub fn restart(&mut self) {
        self.clear();
        (self.began, self.first) = (Instant::now(), None);
    }

    /// This part is done, of 1; nothing is known of the rest as long as that is 0.
    pub fn show(&mut self, done: f64) {
        self.show_with(done, "");
    }

    /// The same, with more about it.
    pub fn show_with(&mut self, done: f64, more: &str) {
        let first = *self.first.get_or_insert(done);
        let elapsed = self.began.elapsed();
        let due = match self.shown {
            None => elapsed > LONG,
            Some(last) => last.elapsed() > OFTEN,
        };
        if self.on_terminal && due {
            let line = line(&self.what, more, done, done - first, elapsed);
            eprint!("\r\x1b[K{line}");
            self.shown = Some(Instant::now());
        }
    }

    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

impl clew_gdb::Meter for Progress {
    fn begins(&mut self) {
        self.restart();
    }

    fn show(&mut self, done: f64) {
        Progress::show(self, done);
    }

    fn is_over(&mut self) {
        self.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `gained`: the part that was done in that time.
fn line(what: &str, more: &str, done: f64, gained: f64, elapsed: Duration) -> String {
    let mut line = format!("clew: {what}: ");
    if !more.is_empty() {
        line.push_str(&format!("{more}, "));
    }
    if done <= 0.0 {
        line.push_str(&text::ago(elapsed));
        return line;
    }
    line.push_str(&format!("{:.0} %", (done * 100.0).floor().min(100.0)));
    if gained > LITTLE {
        let left = elapsed.mul_f64(((1.0 - done) / gained).clamp(0.0, 1e6));
        line.push_str(&format!(", {} left", text::ago(left)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_done() {
        let seconds = Duration::from_secs;
        let told = |done, gained, elapsed| line("replaying x", "", done, gained, seconds(elapsed));
        assert_eq!(told(0.0, 0.0, 3), "clew: replaying x: 3 s");
        assert_eq!(told(0.25, 0.25, 10), "clew: replaying x: 25 %, 30 s left");
        // From the middle on.
        assert_eq!(told(0.75, 0.25, 10), "clew: replaying x: 75 %, 10 s left");
        assert_eq!(told(0.5, 0.0, 10), "clew: replaying x: 50 %");
        let told = line("packing x", "3.0 MiB", 0.5, 0.5, seconds(2));
        assert_eq!(told, "clew: packing x: 3.0 MiB, 50 %, 2 s left");
    }
}
