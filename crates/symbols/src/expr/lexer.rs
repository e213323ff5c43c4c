//! In: an expression's text. Out: its tokens, each with its place.

use super::syntax::{Integer, Problem, Span};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Integer(Integer),
    Float {
        value: f64,
        single: bool,
    },
    Char(u8),
    Text(Vec<u8>),
    Word(String),
    /// `'file.c'` or `'std::vector<int>'`
    Quoted(String),
    Register(String),
    Sign(&'static str),
    End,
}

/// Longest first.
const SIGNS: [&str; 49] = [
    "<<=", ">>=", "...", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "::", "+", "-", "*", "/", "%", "&", "|", "^", "~",
    "!", "<", ">", "=", "?", ":", ",", ".", "(", ")", "[", "]", "{", "}", ";", "@", "#",
];

pub fn tokens(text: &str) -> Result<Vec<(Token, Span)>, Problem> {
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
    };
    let mut all: Vec<(Token, Span)> = Vec::new();
    loop {
        lexer.space();
        let start = lexer.at;
        // After a dot, "0.1" are two fields of Rust tuples.
        let field = matches!(all.last(), Some((Token::Sign("." | "->"), _)));
        // And after a value, ".0" is one, not a number.
        let value = matches!(
            all.last(),
            Some((Token::Word(_) | Token::Sign(")" | "]"), end)) if end.end == start
        );
        let token = lexer.token(field, value)?;
        let end = token == Token::End;
        all.push((token, start..lexer.at));
        if end {
            return Ok(all);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

fn word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn word_part(byte: u8) -> bool {
    word_start(byte) || byte.is_ascii_digit()
}

impl Lexer<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &str {
        let start = self.at;
        while self.at < self.bytes.len() && belongs(self.bytes[self.at]) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn token(&mut self, field: bool, value: bool) -> Result<Token, Problem> {
        if self.at == self.bytes.len() {
            return Ok(Token::End);
        }
        let first = self.peek();
        let second = self.bytes.get(self.at + 1).copied().unwrap_or(0);
        if word_start(first) {
            return Ok(Token::Word(self.run(word_part).into()));
        }
        if field && first.is_ascii_digit() {
            let number = self.run(|byte| byte.is_ascii_digit());
            return Ok(Token::Word(format!("__{number}")));
        }
        if first.is_ascii_digit() || first == b'.' && second.is_ascii_digit() && !value {
            return self.number();
        }
        match first {
            b'$' => {
                self.at += 1;
                let start = self.at;
                let name = self.run(word_part).to_string();
                if name.is_empty() {
                    let message = "a register's name must follow `$`, as in $rax";
                    return Err(Problem::wrong(&(start - 1..start), message));
                }
                return Ok(Token::Register(name));
            }
            b'\'' => return self.single_quoted(),
            b'"' => return self.text(),
            _ => {}
        }
        let rest = &self.text[self.at..];
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            return Ok(Token::Sign(sign));
        }
        let odd = rest.chars().next().unwrap_or('?');
        let span = self.at..self.at + odd.len_utf8();
        let message = format!("{odd:?} means nothing in an expression");
        Err(Problem::wrong(&span, message))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let hex = self.text[start..].starts_with("0x") || self.text[start..].starts_with("0X");
        if hex {
            self.at += 2;
        }
        loop {
            let byte = self.peek();
            let sign_of_exponent = matches!(byte, b'+' | b'-')
                && !hex
                && matches!(self.bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || sign_of_exponent) {
                break;
            }
            self.at += 1;
        }
        let span = start..self.at;
        let written = &self.text[span.clone()];
        let lower = written.to_ascii_lowercase();
        let bad = |message: &str| Err(Problem::wrong(&span, format!("{written}: {message}")));
        let floating = !hex && lower.contains(['.', 'e']);
        if floating {
            let single = lower.ends_with('f');
            let digits = lower.trim_end_matches(['f', 'l']);
            return match digits.parse() {
                Ok(value) => Ok(Token::Float { value, single }),
                Err(_) => bad("no such number"),
            };
        }
        let digits = lower.trim_end_matches(['u', 'l']);
        let (unsigned, long) = match &lower[digits.len()..] {
            "" => (false, false),
            "u" => (true, false),
            "l" | "ll" => (false, true),
            "ul" | "lu" | "ull" | "llu" => (true, true),
            _ => return bad("no such number"),
        };
        let (digits, radix) = if let Some(digits) = digits.strip_prefix("0x") {
            (digits, 16)
        } else if let Some(digits) = digits.strip_prefix("0b") {
            (digits, 2)
        } else if digits.len() > 1 && digits.starts_with('0') {
            (&digits[1..], 8)
        } else {
            (digits, 10)
        };
        let digits = digits.replace('_', "");
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return bad("no such number");
        }
        match u64::from_str_radix(&digits, radix) {
            Ok(value) => Ok(Token::Integer(Integer {
                value,
                unsigned,
                long,
                decimal: radix == 10,
            })),
            Err(_) => bad("too large for 64 bits"),
        }
    }

    /// A character, or a quoted name.
    fn single_quoted(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        self.at += 1;
        if self.peek() == b'\\' {
            let byte = self.escape()?;
            return self.closed(start, b'\'', Token::Char(byte));
        }
        let inside = self.run(|byte| byte != b'\'').to_string();
        let mut after = self.at + 1;
        while self.bytes.get(after).is_some_and(u8::is_ascii_whitespace) {
            after += 1;
        }
        let path = self.text.get(after..).is_some_and(|s| s.starts_with("::"));
        let token = match inside.as_bytes() {
            [] => {
                let message = "there is nothing between the quotes";
                return Err(Problem::wrong(&(start..self.at + 1), message));
            }
            [byte] if !path => Token::Char(*byte),
            _ => Token::Quoted(inside),
        };
        self.closed(start, b'\'', token)
    }

    fn text(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        while self.at < self.bytes.len() && self.peek() != b'"' {
            if self.peek() == b'\\' {
                bytes.push(self.escape()?);
            } else {
                bytes.push(self.peek());
                self.at += 1;
            }
        }
        self.closed(start, b'"', Token::Text(bytes))
    }

    fn closed(&mut self, start: usize, quote: u8, token: Token) -> Result<Token, Problem> {
        if self.at == self.bytes.len() || self.peek() != quote {
            let message = format!("there is no closing {}", quote as char);
            return Err(Problem::wrong(&(start..self.at), message));
        }
        self.at += 1;
        Ok(token)
    }

    /// Stands at a backslash.
    fn escape(&mut self) -> Result<u8, Problem> {
        let start = self.at;
        self.at += 2;
        let letter = self.bytes.get(start + 1).copied().unwrap_or(0);
        Ok(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'e' => 27,
            b'\\' | b'\'' | b'"' | b'?' => letter,
            b'x' => {
                let digits = self.run(|byte| byte.is_ascii_hexdigit()).to_string();
                return u8::from_str_radix(&digits, 16)
                    .map_err(|_| Problem::wrong(&(start..self.at), "no byte has that number"));
            }
            b'0'..=b'7' => {
                self.at = start + 1;
                let mut value = 0u32;
                while self.at < start + 4 && matches!(self.peek(), b'0'..=b'7') {
                    value = value * 8 + u32::from(self.peek() - b'0');
                    self.at += 1;
                }
                return u8::try_from(value)
                    .map_err(|_| Problem::wrong(&(start..self.at), "no byte has that number"));
            }
            _ => {
                self.at = self.at.min(self.bytes.len());
                let message = "there is no such escape";
                return Err(Problem::wrong(&(start..self.at), message));
            }
        })
    }
}
