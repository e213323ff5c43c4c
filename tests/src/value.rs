//! MI's values: `a="x",b={c="y"},d=["z"]` goes in, a tree comes out; strings are quoted and unquoted.

/// A value in an answer of MI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// In their order; names may come twice.
    Named(Vec<(String, Value)>),
    List(Vec<Value>),
}

impl Value {
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Named(all) => {
                let found = all.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    /// The members of a list, or a tuple's values.
    pub fn members(&self) -> Vec<&Value> {
        match self {
            Value::Text(_) => Vec::new(),
            Value::Named(all) => all.iter().map(|(_, value)| value).collect(),
            Value::List(all) => all.iter().collect(),
        }
    }
}

/// `name=value,…` up to the end of the text; what can't be read ends it.
pub fn results(text: &str) -> Value {
    let mut reader = Reader { rest: text };
    Value::Named(reader.named(None))
}

/// A C string's contents.
pub fn unquoted(text: &str) -> String {
    let mut reader = Reader { rest: text };
    reader.string().unwrap_or_default()
}

/// As a C string.
pub fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, sign: char) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn named(&mut self, end: Option<char>) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while !end.is_some_and(|end| self.eat(end)) {
            let Some(length) = self.rest.find('=') else {
                break;
            };
            let name = self.rest[..length].to_owned();
            self.rest = &self.rest[length + 1..];
            let Some(value) = self.value() else {
                break;
            };
            all.push((name, value));
            self.eat(',');
        }
        all
    }

    fn value(&mut self) -> Option<Value> {
        if self.rest.starts_with('"') {
            return self.string().map(Value::Text);
        }
        if self.eat('{') {
            return Some(Value::Named(self.named(Some('}'))));
        }
        if !self.eat('[') {
            return None;
        }
        // A list of values, or of named ones.
        let plain = self.rest.starts_with(['"', '{', '[', ']']);
        if !plain {
            return Some(Value::Named(self.named(Some(']'))));
        }
        let mut all = Vec::new();
        while !self.eat(']') {
            all.push(self.value()?);
            self.eat(',');
        }
        Some(Value::List(all))
    }

    fn string(&mut self) -> Option<String> {
        self.rest = self.rest.strip_prefix('"')?;
        let mut out = Vec::new();
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        while at < bytes.len() && bytes[at] != b'"' {
            if bytes[at] != b'\\' {
                out.push(bytes[at]);
                at += 1;
                continue;
            }
            at += 1;
            let octal = bytes[at..].iter().take(3);
            let octal = octal
                .take_while(|byte| (b'0'..=b'7').contains(*byte))
                .count();
            if octal > 0 {
                let digits = &self.rest[at..at + octal];
                out.push(u8::from_str_radix(digits, 8).unwrap_or(b'?'));
                at += octal;
                continue;
            }
            out.push(match bytes.get(at)? {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'e' => 0x1b,
                &other => other,
            });
            at += 1;
        }
        self.rest = self.rest.get(at + 1..)?;
        Some(String::from_utf8_lossy(&out).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_read() {
        let text = r#"reason="breakpoint-hit",frame={func="f",args=[{name="n",value="\"a\""}],line="3"},core="0""#;
        let value = results(text);
        assert_eq!(value.text("reason").unwrap(), "breakpoint-hit");
        let frame = value.get("frame").unwrap();
        assert_eq!(frame.text("line").unwrap(), "3");
        let args = frame.get("args").unwrap().members();
        assert_eq!(args[0].text("value").unwrap(), "\"a\"");
        assert_eq!(value.text("core").unwrap(), "0");
    }

    #[test]
    fn lists_of_named_values() {
        let value = results(r#"stack=[frame={level="0"},frame={level="1"}],empty=[]"#);
        let frames = value.get("stack").unwrap().members();
        assert_eq!(frames[1].text("level").unwrap(), "1");
        assert!(value.get("empty").unwrap().members().is_empty());
    }

    #[test]
    fn strings_come_back() {
        assert_eq!(unquoted(r#""a\n\"b\"\\ \303\244""#), "a\n\"b\"\\ ä");
        assert_eq!(quoted("a \"b\" \\"), r#""a \"b\" \\""#);
    }
}
