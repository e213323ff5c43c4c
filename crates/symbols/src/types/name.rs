//! Names of types as people write them: a type in, C's way to declare it out.

use super::{Language, RecordKind, Type};
use crate::location::NoPlace;
use crate::variables::Catalog;
use std::fmt::Write as _;

impl Catalog {
    /// A type's name as people write it.
    pub fn type_name(&self, of: &Type) -> Result<String, NoPlace> {
        let mut inner = String::new();
        let base = self.declared(of, &mut inner, 0)?;
        let space = if inner.is_empty() || inner.starts_with('[') {
            ""
        } else {
            " "
        };
        Ok(format!("{base}{space}{inner}"))
    }

    /// The base's name; what is derived from it goes around `inner`, as in C's declarations.
    fn declared(&self, of: &Type, inner: &mut String, depth: usize) -> Result<String, NoPlace> {
        if depth > 50 {
            return Ok("...".into());
        }
        let parenthesised = |inner: &mut String| {
            if inner.starts_with(['*', '&']) {
                *inner = format!("({inner})");
            }
        };
        Ok(match self.look(of)? {
            Type::Void => "void".into(),
            Type::Base(base) => base.name.to_string(),
            Type::Named { name, .. } => name.to_string(),
            Type::Other { name, .. } => name.to_string(),
            Type::Enum(of) => match (&of.name, of.language) {
                (Some(name), Language::C) => format!("enum {name}"),
                (Some(name), _) => name.to_string(),
                (None, _) => "enum {...}".into(),
            },
            Type::Record(record) => {
                let word = match record.kind {
                    RecordKind::Struct => "struct",
                    RecordKind::Class => "class",
                    RecordKind::Union => "union",
                };
                match (&record.name, record.language) {
                    (Some(name), Language::C) => format!("{word} {name}"),
                    (Some(name), _) => name.to_string(),
                    (None, _) => format!("{word} {{...}}"),
                }
            }
            Type::Pointer {
                name: Some(name), ..
            } => name.to_string(),
            Type::Pointer { to, .. } => {
                inner.insert(0, '*');
                self.declared(&to, inner, depth + 1)?
            }
            Type::Reference(to) => {
                inner.insert(0, '&');
                self.declared(&to, inner, depth + 1)?
            }
            Type::Qualified { word, of } => {
                // After a pointer's star, before anything else.
                if matches!(self.look(&of)?, Type::Pointer { .. }) {
                    *inner = format!(" {word}{}{inner}", if inner.is_empty() { "" } else { " " });
                    self.declared(&of, inner, depth + 1)?
                } else {
                    format!("{word} {}", self.declared(&of, inner, depth + 1)?)
                }
            }
            Type::Array { of, count } => {
                parenthesised(inner);
                let count = count.map_or_else(String::new, |count| count.to_string());
                let _ = write!(inner, "[{count}]");
                self.declared(&of, inner, depth + 1)?
            }
            Type::Function(function) => {
                parenthesised(inner);
                let mut parameters = Vec::new();
                for parameter in &function.parameters {
                    parameters.push(self.type_name(parameter)?);
                }
                if function.variadic {
                    parameters.push("...".into());
                }
                if parameters.is_empty() && !function.open {
                    parameters.push("void".into());
                }
                let _ = write!(inner, "({})", parameters.join(", "));
                self.declared(&function.returns, inner, depth + 1)?
            }
            Type::Entry(_) => "?".into(),
        })
    }
}
