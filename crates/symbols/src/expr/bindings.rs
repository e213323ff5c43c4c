//! In: what names turned out to mean at one place. Out: the same meaning at every other.

use super::syntax::Path;
use crate::types::Entry;
use std::collections::HashMap;

/// What names meant where they were seen first, so that they mean the same elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    pub(super) known: HashMap<Path, Binding>,
    pub(super) pinned: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Binding {
    /// A variable of a function: its entry, and the function's name.
    Local(Entry, String),
    Global(Entry),
    /// A variable of a library's function, which somebody else's may well be meant instead of.
    Foreign(Entry, String),
}

impl Bindings {
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// From now on every name means what it has meant.
    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// A name that means one thing here and another there, in words.
    pub fn conflict(&self, other: &Bindings) -> Option<String> {
        self.known.iter().find_map(|(path, binding)| {
            let others = other.known.get(path)?;
            let foreign = |binding: &Binding| matches!(binding, Binding::Foreign(..));
            if binding == others || foreign(binding) || foreign(others) {
                return None;
            }
            let words = |binding: &Binding| match binding {
                Binding::Local(_, function) | Binding::Foreign(_, function) => {
                    format!("a variable of {function}")
                }
                Binding::Global(_) => "a global variable".to_string(),
            };
            let advice = match (binding, others) {
                (Binding::Local(_, function), _) | (_, Binding::Local(_, function)) => {
                    format!(
                        "write ::{path} for a global one, {function}::{path} for the function's"
                    )
                }
                _ => format!("write 'file.c'::{path} for a file's own"),
            };
            Some(format!(
                "`{path}` is {} at one end and {} at the other; {advice}",
                words(binding),
                words(others)
            ))
        })
    }

    /// Whether a name means a library function's variable here, and something else there.
    pub fn is_foreign_to(&self, other: &Bindings) -> bool {
        self.known.iter().any(|(path, binding)| {
            let others = other.known.get(path);
            matches!(binding, Binding::Foreign(..)) && others.is_some_and(|o| o != binding)
        })
    }

    /// Adds what another knows.
    pub fn merge(&mut self, other: &Bindings) {
        for (path, binding) in &other.known {
            self.known
                .entry(path.clone())
                .or_insert_with(|| binding.clone());
        }
    }
}
