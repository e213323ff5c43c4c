//! Evaluating Perl in a copy of the recorded interpreter. In: a question about the innermost frame. Out: texts.

use super::{CURRENT, OP, PADS, Perl, SEQUENCE, word};
use crate::view::half;
use crate::{Question, Result, Told, Value, View, What};

const HELPER: &str = include_str!("helper.pl");
const FIELD: char = '\x1f';
const RECORD: char = '\x1e';
/// In values: flags, the text, and behind the pointer to their body its length.
const FLAGS: u64 = 12;
const TEXT: u64 = 16;
const LENGTH: u64 = 16;
const IS_TEXT: u32 = 0x400;
const LONGEST: u64 = 16 << 20;
/// In lists of names: how many, where; in names: the text, from and up to which statement it is known.
const NAMES: u64 = 8;
const LAST_NAME: u64 = 0;
const ALL_NAMES: u64 = 8;
const FROM: usize = 24;
const TO: usize = 28;
const MOST_NAMES: u64 = 10_000;

impl Perl {
    pub(super) fn evaluate(&mut self, view: &mut View, question: &Question<'_>) -> Result<Told> {
        let mut texts: Vec<String> = match question.what {
            What::Values(texts) => texts.iter().map(|text| text.trim().to_string()).collect(),
            What::Arguments => vec!["@_".into()],
            What::Locals => self.names(view)?,
            What::Exception => vec!["$@".into()],
        };
        texts.retain(|text| !text.is_empty());
        let undefined = |why: &str| Told {
            values: texts
                .iter()
                .map(|text| (text.clone(), Value::Undefined(why.into())))
                .collect(),
            output: String::new(),
        };
        if question.frame > 0 {
            return Ok(undefined(
                "of Perl's frames only the innermost one's variables can be asked; go there with reverse-finish",
            ));
        }
        let interpreter = self.interpreter(view)?;
        let evaluate = view.address("Perl_eval_pv")?;
        let here = self.is_at_site(view).then(|| view.word(interpreter + OP));
        let mut copy = view.copy()?;
        if let Some(here) = here {
            // Which variables are known depends on the statement: the one that begins here.
            copy.write(interpreter + CURRENT, &here?.to_le_bytes())?;
        }
        let quoted: Vec<String> = texts.iter().map(|text| literal(text)).collect();
        let quoted = quoted.join(", ");
        let program = format!("local @clew::texts = ({quoted}); local $clew::scalar = 0; {HELPER}");
        let program = copy.text(&program)?;
        let value = match copy.call(evaluate, &[interpreter, program, 0])? {
            Ok(value) => value,
            Err(why) => return Ok(undefined(&why)),
        };
        let output = copy.output();
        let head = copy.read(value, 24)?;
        if value == 0 || half(&head, FLAGS as usize) & IS_TEXT == 0 {
            return Ok(undefined("the interpreter can't evaluate anything here"));
        }
        let length = copy.word(word(&head, 0) + LENGTH)?.min(LONGEST);
        let text = copy.read(word(&head, TEXT as usize), length as usize)?;
        let text = String::from_utf8_lossy(&text).into_owned();
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
        Ok(Told {
            values: text.split(RECORD).filter_map(record).collect(),
            output,
        })
    }

    /// A number that an expression is; none if it is 0, or nothing.
    pub(super) fn number(&mut self, view: &mut View, expression: &str) -> Result<Option<u64>> {
        let question = Question {
            frame: 0,
            anywhere: false,
            what: What::Values(&[expression]),
        };
        let told = self.evaluate(view, &question)?;
        let value = told.values.first().map(|(_, value)| value.text());
        let value = value.and_then(|text| text.trim_matches('\'').parse().ok());
        Ok(value.filter(|&number| number != 0))
    }

    /// Variables of the innermost frame that are known at its statement.
    fn names(&mut self, view: &mut View) -> Result<Vec<String>> {
        let interpreter = self.interpreter(view)?;
        let thread = view.timeline.at().thread;
        let Some(frame) = crate::Personality::stack(self, view, thread)?
            .into_iter()
            .next()
        else {
            return Ok(Vec::new());
        };
        let statement = self.statement(view, interpreter)?;
        let sequence = view.bytes(statement + SEQUENCE, 4)?;
        let sequence = half(&sequence, 0);
        let body = view.word(frame.code)?;
        let pads = view.word(body + PADS)?;
        let pads = view.word(pads + NAMES)?;
        let names = view.word(pads)?;
        let last = view.word(names + LAST_NAME)?.min(MOST_NAMES);
        let first = view.word(names + ALL_NAMES)?;
        let mut all: Vec<String> = Vec::new();
        for n in 0..=last {
            let name = view.word(first + n * 8)?;
            if name == 0 {
                continue;
            }
            let head = view.bytes(name, 48)?;
            let text = word(&head, 0);
            let known = half(&head, FROM) < sequence && sequence <= half(&head, TO);
            if text == 0 || !known {
                continue;
            }
            let text = view.string(text)?;
            let is_name = text.len() > 1 && text.starts_with(['$', '@', '%']);
            if is_name && !all.contains(&text) {
                all.push(text);
            }
        }
        Ok(all)
    }
}

/// A string as Perl writes it.
fn literal(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('\'');
    quoted
}
