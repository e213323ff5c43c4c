//! What takes longer than a second says how far it has come, on a terminal. In: the part that is done. Out: one line on
//! stderr with the time that is left, which is gone when the work is. With `CLEW_PROGRESS=lines`, as our own servers ask, it is a line
//! of its own each time: `clew-progress 0.25 searching`.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text;

/// Nothing is said of what is over sooner.
const LONG: Duration = Duration::from_secs(1);
/// The line changes so often in a second.
const OFTEN: u8 = 10;
/// A program that reads isn't told more often.
const SELDOM: Duration = Duration::from_millis(100);
/// What such lines begin with.
const MARK: &str = "clew-progress ";
/// Too little to tell the rest by.
const LITTLE: f64 = 0.005;

/// A line on stderr that is written over, if that is a terminal; as much of it as there is room for.
#[derive(Default)]
pub struct Line {
    bar: Option<ProgressBar>,
}

impl Line {
    pub fn say(&mut self, text: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{wide_msg}").expect("a template");
            let target = ProgressDrawTarget::stderr_with_hz(OFTEN);
            ProgressBar::with_draw_target(None, target).with_style(style)
        });
        bar.set_message(text.to_owned());
    }

    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

pub struct Progress {
    /// "replaying crash".
    what: String,
    wanted: bool,
    began: Instant,
    /// The part that was done when it began.
    first: Option<f64>,
    line: Line,
    /// For a program that reads, when it was last told.
    told: Option<Instant>,
    lines: bool,
}

impl Progress {
    pub fn new(what: &str) -> Progress {
        Progress {
            what: text::plain(what),
            wanted: true,
            began: Instant::now(),
            first: None,
            line: Line::default(),
            told: None,
            lines: std::env::var_os("CLEW_PROGRESS").is_some_and(|value| value == "lines"),
        }
    }

    /// One that never says anything, unless this holds.
    pub fn only_if(mut self, shown: bool) -> Progress {
        self.wanted &= shown;
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
        if self.lines {
            if self.told.is_none_or(|told| told.elapsed() > SELDOM) {
                self.told = Some(Instant::now());
                eprintln!("{MARK}{done:.4} {}", self.what);
            }
            return;
        }
        if self.wanted && elapsed > LONG {
            let line = line(&self.what, more, done, done - first, elapsed);
            self.line.say(&line);
        }
    }

    pub fn clear(&mut self) {
        self.line.clear();
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
