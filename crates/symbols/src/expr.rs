//! C expressions over a program's variables: text in, a value (or where and why there is none) out.
//!
//! An expression is evaluated at a moment of the program, in the thread and the frame that stand there
//! ([`Context`]). It only looks: assignments are refused, and calls of the program's own
//! functions happen in a copy that is thrown away.

mod agent;
mod assign;
mod bindings;
mod call;
mod eval;
mod lexer;
mod names;
mod operate;
mod parser;
mod syntax;
#[cfg(test)]
mod tests;
mod typename;
mod words;

pub use bindings::Bindings;
pub use eval::Evaluator;

pub use parser::split;
pub use syntax::{NoNames, Path, Problem, ProblemKind, Span};

use syntax::Node;

/// Checks what an expression looks like, without a program.
pub fn check(text: &str) -> Result<(), Problem> {
    parser::parse(text, &mut NoNames).map(|_| ())
}

/// The parts of an expression whose values explain its own: variables, what is reached through
/// them, calls; each once, innermost first, not the expression itself.
pub fn parts(text: &str) -> Vec<String> {
    let Ok(root) = parser::parse(text, &mut NoNames) else {
        return Vec::new();
    };
    let mut parts: Vec<String> = Vec::new();
    for span in syntax::parts(&root) {
        let part = text[span].trim().to_string();
        if !parts.contains(&part) && part != text.trim() {
            parts.push(part);
        }
    }
    parts
}

/// Whether an expression calls functions of the program.
pub fn calls(text: &str) -> bool {
    parser::parse(text, &mut NoNames).is_ok_and(|root| has_call(&root))
}

fn has_call(node: &Node) -> bool {
    use syntax::Kind::*;
    match &node.kind {
        Call(..) => true,
        Integer(_) | Float { .. } | Char(_) | Text(_) | Name(_) | Register(_) => false,
        Sizeof(_) | SizeofType(_) => false,
        Member { of, .. } | Unary(_, of) | Cast(_, of) => has_call(of),
        Index(a, b) | Binary(_, a, b) | And(a, b) | Or(a, b) | Comma(a, b) => {
            has_call(a) || has_call(b)
        }
        Choice(a, b, c) => has_call(a) || has_call(b) || has_call(c),
    }
}
