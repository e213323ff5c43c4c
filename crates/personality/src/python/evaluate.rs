//! Evaluating Python in a copy of the recorded interpreter. In: a question about a frame. Out: texts.
//!
//! The copy is prepared so that the interpreter believes it is free to run: no exception is on its way, nobody asks for
//! its lock. What is evaluated imports nothing and takes no lock, and is ended after a while.

use super::layout::Breaker;
use super::{Python, strange};
use crate::{Question, Result, Told, Value, View, What};

const HELPER: &str = include_str!("helper.py");
/// `Py_file_input`
const FILE: u64 = 257;
const FIELD: char = '\x1f';
const RECORD: char = '\x1e';
const LONGEST: u64 = 16 << 20;

impl Python {
    pub(super) fn evaluate(&mut self, view: &mut View, question: &Question<'_>) -> Result<Told> {
        let nothing = |why: String| {
            let texts: Vec<&str> = match question.what {
                What::Values(texts) => texts.to_vec(),
                _ => vec![""],
            };
            let undefined = |text: &&str| (text.to_string(), Value::Undefined(why.clone()));
            Told {
                values: texts.iter().map(undefined).collect(),
                output: String::new(),
            }
        };
        let thread = view.timeline.at().thread;
        let Some(state) = self.state_of(view, thread)? else {
            return Ok(nothing("the thread that runs here runs no Python".into()));
        };
        let mut copy = view.copy()?;
        let functions = [
            "PyErr_Clear",
            "PyDict_New",
            "PyDict_SetItemString",
            "PyDict_GetItemString",
            "PySys_GetObject",
            "PyRun_StringFlags",
            "PyUnicode_AsUTF8AndSize",
            "PyTuple_Pack",
        ];
        let mut addresses = [0; 8];
        for (address, name) in addresses.iter_mut().zip(functions) {
            *address = view.address(name)?;
        }
        let [clear, new, set, get, system, run, utf8, pack] = addresses;
        match self.layout.breaker {
            Breaker::Interpreter(breaker, lock) => {
                let interpreter = self.interpreter(view)?;
                copy.write(interpreter + breaker, &[0; 4])?;
                copy.write(interpreter + lock, &[0; 4])?;
            }
            // Above the lowest byte is the version of what is monitored.
            Breaker::Thread(breaker) => copy.write(state + breaker, &[0])?,
        }
        macro_rules! call {
            ($function:expr, $($argument:expr),*) => {
                match copy.call($function, &[$($argument),*])? {
                    Ok(result) => result,
                    Err(why) => return Ok(nothing(why)),
                }
            };
        }
        if !self.is_at_site(view) {
            // Who waits in a call has given the lock away.
            if let (Some((current, _)), Some((swap, _))) = (
                view.symbol("_PyThreadState_UncheckedGet"),
                view.symbol("PyThreadState_Swap"),
            ) && call!(current,) == 0
            {
                call!(swap, state);
            }
        }
        let dictionary = call!(new,);
        if matches!(question.what, What::Exception) {
            let (kind, value) = self.exception(view, state)?;
            if kind != 0 {
                let none = view.address("_Py_NoneStruct")?;
                let value = if value == 0 { none } else { value };
                let pair = call!(pack, 2, kind, value);
                let name = copy.text("exception")?;
                call!(set, dictionary, name, pair);
            }
        }
        call!(clear,);
        for (name, object) in [
            ("getframe", "_getframe"),
            ("currentframes", "_current_frames"),
            ("modules", "modules"),
            ("stdout", "stdout"),
        ] {
            let object = copy.text(object)?;
            let object = call!(system, object);
            if object == 0 {
                return Ok(nothing(
                    "the interpreter isn't ready yet, or not any more".into(),
                ));
            }
            let name = copy.text(name)?;
            call!(set, dictionary, name, object);
        }
        let source = copy.text(&program(question))?;
        let ran = call!(run, source, FILE, dictionary, dictionary, 0);
        let name = copy.text("told")?;
        let told = call!(get, dictionary, name);
        if ran == 0 || told == 0 {
            return Ok(nothing(
                "the interpreter can't evaluate anything here".into(),
            ));
        }
        let size = copy.place(&[0; 8])?;
        let text = call!(utf8, told, size);
        let length = copy.word(size)?;
        if text == 0 || length > LONGEST {
            return Err(strange());
        }
        let text = copy.read(text, length as usize)?;
        let output = copy.output();
        Ok(Told {
            values: values(&String::from_utf8_lossy(&text)),
            output,
        })
    }

    /// Type and value of an exception that is on its way; zero where there is none.
    fn exception(&self, view: &mut View, state: u64) -> Result<(u64, u64)> {
        let first = view.word(state + self.layout.exception)?;
        if self.minor >= 12 {
            let kind = match first {
                0 => 0,
                _ => view.word(first + super::layout::TYPE)?,
            };
            return Ok((kind, first));
        }
        Ok((first, view.word(state + self.layout.exception + 8)?))
    }
}

/// The text that is run: what is asked, then the helper.
fn program(question: &Question<'_>) -> String {
    let (kind, texts): (_, &[&str]) = match question.what {
        What::Values(texts) => ("values", texts),
        What::Locals => ("locals", &[]),
        What::Arguments => ("arguments", &[]),
        What::Exception => ("exception", &[]),
    };
    let texts: Vec<String> = texts.iter().map(|text| literal(text.trim())).collect();
    format!(
        "KIND, DEPTH, ANYWHERE = {kind:?}, {}, {}\nTEXTS = [{}]\n{HELPER}\n\
         told = clew_run(getframe, currentframes, modules, stdout, globals().get('exception'))\n",
        question.frame,
        if question.anywhere { "True" } else { "False" },
        texts.join(", "),
    )
}

/// A string as Python writes it.
fn literal(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            other => quoted.push_str(&format!("\\U{:08x}", other as u32)),
        }
    }
    quoted.push('\'');
    quoted
}

fn values(told: &str) -> Vec<(String, Value)> {
    let record = |record: &str| {
        let mut fields = record.split(FIELD);
        let name = fields.next()?.to_string();
        let kind = fields.next()?;
        let text = fields.next()?.to_string();
        let truth = fields.next()? == "true";
        Some(match kind {
            "value" => (name, Value::Is { text, truth }),
            _ => (name, Value::Undefined(text)),
        })
    };
    told.split(RECORD).filter_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_quoting() {
        assert_eq!(
            literal("a['x'] == \"ü\\\""),
            r#"'a[\'x\'] == "\U000000fc\\"'"#
        );
    }

    #[test]
    fn records_are_told_apart() {
        let told = "x\x1fvalue\x1f1\x1ftrue\x1ey\x1fundefined\x1fNameError\x1f";
        let x = Value::Is {
            text: "1".into(),
            truth: true,
        };
        let y = Value::Undefined("NameError".into());
        assert_eq!(values(told), [("x".into(), x), ("y".into(), y)]);
    }
}
