//! What is said in the midst of long work. In: an editor's wish to interrupt, how far the work has come. Out: whether to go
//! on; events about progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::wire::Outbox;

/// Work that takes longer is shown.
const SOON: Duration = Duration::from_millis(500);
const OFTEN: Duration = Duration::from_millis(100);

pub struct Flags {
    out: Arc<Outbox>,
    /// Wishes to interrupt that were read, and those that were answered.
    wished: AtomicU64,
    answered: AtomicU64,
    /// The editor shows progress.
    pub shows_progress: AtomicBool,
    work: Mutex<Option<Work>>,
    works: AtomicU64,
}

struct Work {
    name: String,
    since: Instant,
    /// Its name in events, once it was shown, and when that was.
    shown: Option<(String, Instant)>,
}

impl Flags {
    pub fn new(out: Arc<Outbox>) -> Flags {
        Flags {
            out,
            wished: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            shows_progress: AtomicBool::new(false),
            work: Mutex::new(None),
            works: AtomicU64::new(0),
        }
    }

    /// Somebody wants the current work to end.
    pub fn wish(&self) {
        self.wished.fetch_add(1, Ordering::SeqCst);
    }

    /// The wish was come to in its turn: work that follows isn't meant.
    pub fn answer(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    fn work(&self) -> std::sync::MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn begin(&self, name: &str) {
        *self.work() = Some(Work {
            name: name.into(),
            since: Instant::now(),
            shown: None,
        });
    }

    pub fn end(&self) {
        if let Some(Work {
            shown: Some((id, _)),
            ..
        }) = self.work().take()
        {
            self.out.event("progressEnd", json!({"progressId": id}));
        }
    }

    /// How far it has come, 0..=1. Whether to stop.
    pub fn come(&self, done: f64) -> bool {
        if self.shows_progress.load(Ordering::SeqCst)
            && let Some(work) = self.work().as_mut()
        {
            self.show(work, done);
        }
        self.wished.load(Ordering::SeqCst) != self.answered.load(Ordering::SeqCst)
    }

    fn show(&self, work: &mut Work, done: f64) {
        let percentage = (done.clamp(0.0, 1.0) * 100.0).round();
        match &mut work.shown {
            None if work.since.elapsed() > SOON => {
                let number = self.works.fetch_add(1, Ordering::SeqCst);
                let id = format!("work-{number}");
                let body = json!({
                    "progressId": id,
                    "title": format!("clew: {}", work.name),
                    "cancellable": true,
                    "percentage": percentage,
                });
                self.out.event("progressStart", body);
                work.shown = Some((id, Instant::now()));
            }
            Some((id, last)) if last.elapsed() > OFTEN => {
                *last = Instant::now();
                let body = json!({"progressId": id, "percentage": percentage});
                self.out.event("progressUpdate", body);
            }
            _ => {}
        }
    }
}
