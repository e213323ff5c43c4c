//! A stack as programs read it.

use clew_symbols::{Frame, Stack};
use serde_json::{Value, json};

pub fn json(stack: &Stack) -> Value {
    let frame = |(number, frame): (usize, &Frame)| {
        json!({
            "number": number,
            "pc": format!("{:#x}", frame.pc),
            "function": frame.function,
            "file": frame.line.as_ref().map(|line| line.file.to_string()),
            "line": frame.line.as_ref().map(|line| line.line),
            "module": frame.module.as_ref().map(|module| module.name().to_string_lossy()),
            "inlined": frame.inlined,
        })
    };
    stack.frames.iter().enumerate().map(frame).collect()
}
