//! Something for each thread. The one that was asked for last is asked for again, mostly: it is found without searching.

use std::cell::Cell;

#[derive(Clone, Debug)]
pub struct ByThread<T> {
    all: Vec<(u64, T)>,
    last: Cell<usize>,
}

impl<T> Default for ByThread<T> {
    fn default() -> ByThread<T> {
        ByThread {
            all: Vec::new(),
            last: Cell::new(0),
        }
    }
}

impl<T: Default> ByThread<T> {
    fn find(&self, thread: u64) -> Option<usize> {
        let last = self.last.get();
        if self
            .all
            .get(last)
            .is_some_and(|(known, _)| *known == thread)
        {
            return Some(last);
        }
        let found = self.all.iter().position(|(known, _)| *known == thread)?;
        self.last.set(found);
        Some(found)
    }

    pub fn get(&self, thread: u64) -> Option<&T> {
        self.find(thread).map(|at| &self.all[at].1)
    }

    pub fn get_mut(&mut self, thread: u64) -> Option<&mut T> {
        let at = self.find(thread)?;
        Some(&mut self.all[at].1)
    }

    /// A thread's, which is made if it isn't there.
    pub fn of(&mut self, thread: u64) -> &mut T {
        let at = self.find(thread).unwrap_or_else(|| {
            self.all.push((thread, T::default()));
            self.last.set(self.all.len() - 1);
            self.all.len() - 1
        });
        &mut self.all[at].1
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.all.iter().map(|(thread, one)| (*thread, one))
    }
}
