//! Values that a person sets. In: a variable, or an expression, and what it shall be. Out: what it is now, in a copy of the program that
//! is dropped when the program moves.

use clew_debugger::Settable;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::session::{Answer, Open, arguments};
use crate::wire::{Outbox, Request};

impl Open {
    pub fn set_variable(&mut self, request: &Request, out: &Outbox) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            variables_reference: u64,
            name: String,
            value: String,
        }
        let asked: Asked = arguments(request)?;
        let (thread, frame, within) = self.references.owner(asked.variables_reference)?;
        let what = match within {
            Some(id) => Settable::Part(id, &asked.name),
            None => Settable::Expression(&asked.name),
        };
        self.set(thread, frame, what, &asked.value, out)
    }

    pub fn set_expression(&mut self, request: &Request, out: &Outbox) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            expression: String,
            value: String,
            frame_id: Option<u64>,
        }
        let asked: Asked = arguments(request)?;
        let (thread, frame) = self.frame_or_first(asked.frame_id)?;
        let what = Settable::Expression(&asked.expression);
        self.set(thread, frame, what, &asked.value, out)
    }

    fn set(
        &mut self,
        thread: u32,
        frame: usize,
        what: Settable<'_>,
        value: &str,
        out: &Outbox,
    ) -> Answer {
        let first = !self.debugger.is_changed();
        let node = self.debugger.set_value(thread, frame, what, value)?;
        if first {
            let said = "clew: what was recorded stays as it is; values are now those of a copy, until the program moves\n";
            out.event("output", json!({"category": "console", "output": said}));
        }
        let mut told = self.told_value(thread, frame, &node);
        if let Value::Object(fields) = &mut told {
            fields.remove("name");
        }
        Ok(told)
    }
}
