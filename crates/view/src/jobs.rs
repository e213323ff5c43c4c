//! Questions that take a while. In: work for another thread. Out: its answer at once, or a number to ask again with; how far it is; an
//! end to what nobody waits for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Notify;

/// Who doesn't ask for so long has closed the window.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// Of a whole.
const PARTS: f64 = 10_000.0;

pub type Answer = Result<Value, String>;

/// A question that is being answered.
pub struct Job {
    answer: Mutex<Option<Answer>>,
    done: Notify,
    cancelled: AtomicBool,
    progress: AtomicU32,
    asked: Mutex<Instant>,
}

/// A lock that was held by somebody who panicked is as good as any.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

impl Job {
    pub fn new() -> Job {
        Job {
            answer: Mutex::new(None),
            done: Notify::new(),
            cancelled: AtomicBool::new(false),
            progress: AtomicU32::new(0),
            asked: Mutex::new(Instant::now()),
        }
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Nobody wants the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || hold(&self.asked).elapsed() > FORGOTTEN
    }

    /// So much of 1 is done.
    pub fn set_progress(&self, done: f64) {
        let parts = (done.clamp(0.0, 1.0) * PARTS) as u32;
        self.progress.store(parts, Ordering::Relaxed);
    }

    pub fn progress(&self) -> f64 {
        f64::from(self.progress.load(Ordering::Relaxed)) / PARTS
    }

    fn finish(&self, answer: Answer) {
        *hold(&self.answer) = Some(answer);
        self.done.notify_one();
    }

    /// The answer, if there is one within this time.
    async fn wait(&self, time: Duration) -> Option<Answer> {
        *hold(&self.asked) = Instant::now();
        if let Some(answer) = hold(&self.answer).take() {
            return Some(answer);
        }
        let _ = tokio::time::timeout(time, self.done.notified()).await;
        hold(&self.answer).take()
    }
}

/// What came of asking.
pub enum Told {
    Answer(Answer),
    /// Ask again with this number.
    Later {
        number: u64,
        progress: f64,
    },
    /// There is no such question.
    Unknown,
}

#[derive(Default)]
pub struct Jobs {
    all: Mutex<HashMap<u64, Arc<Job>>>,
    last: AtomicU32,
}

impl Jobs {
    /// Begins to answer, on another thread.
    pub async fn ask(
        &self,
        patience: Duration,
        work: impl FnOnce(&Arc<Job>) -> Answer + Send + 'static,
    ) -> Told {
        let job = Arc::new(Job::new());
        let number = u64::from(self.last.fetch_add(1, Ordering::Relaxed)) + 1;
        {
            let mut all = hold(&self.all);
            all.retain(|_, job| !job.is_cancelled());
            all.insert(number, job.clone());
        }
        tokio::task::spawn_blocking(move || {
            let answer = match job.is_cancelled() {
                true => Err("cancelled".into()),
                false => work(&job),
            };
            job.finish(answer);
        });
        self.again(number, patience).await
    }

    /// Asks again.
    pub async fn again(&self, number: u64, patience: Duration) -> Told {
        let job = hold(&self.all).get(&number).cloned();
        let Some(job) = job else {
            return Told::Unknown;
        };
        match job.wait(patience).await {
            Some(answer) => {
                hold(&self.all).remove(&number);
                Told::Answer(answer)
            }
            None => Told::Later {
                number,
                progress: job.progress(),
            },
        }
    }

    /// Nobody wants this answer any more; whether there was such a question.
    pub fn cancel(&self, number: u64) -> bool {
        let job = hold(&self.all).remove(&number);
        job.is_some_and(|job| {
            job.cancel();
            true
        })
    }
}
