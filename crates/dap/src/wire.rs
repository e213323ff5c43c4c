//! Messages as they go over a pipe or a socket. In: bytes. Out: JSON, and the other way round.

use std::io::{self, BufRead, Read, Write};
use std::sync::Mutex;

use serde_json::{Value, json};

/// A longer message is no message.
const LONGEST: usize = 64 << 20;
/// A header has a few short lines.
const LONGEST_LINE: u64 = 4096;

/// The next message; none at the end of the stream.
pub fn read(input: &mut impl BufRead) -> io::Result<Option<Value>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        let got = input.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
        if got == 0 {
            return match length {
                None => Ok(None),
                Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(bad("a line of the header has no colon"));
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
    let length: usize = length.ok_or_else(|| bad("a message without Content-Length"))?;
    if length > LONGEST {
        return Err(bad("a message of more than 64 MiB"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|why| bad(&format!("a message that isn't JSON: {why}")))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Where messages go out, from any thread.
pub struct Outbox {
    inner: Mutex<(Box<dyn Write + Send>, u64)>,
}

impl Outbox {
    pub fn new(output: Box<dyn Write + Send>) -> Outbox {
        Outbox {
            inner: Mutex::new((output, 0)),
        }
    }

    /// An editor that is gone is noticed where its requests end.
    fn send(&self, mut message: Value) {
        let mut inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        inner.1 += 1;
        message["seq"] = inner.1.into();
        let text = message.to_string();
        let _ = write!(inner.0, "Content-Length: {}\r\n\r\n{text}", text.len());
        let _ = inner.0.flush();
    }

    pub fn event(&self, name: &str, body: Value) {
        self.send(json!({"type": "event", "event": name, "body": body}));
    }

    pub fn response(&self, to: &Request, body: Value) {
        self.send(json!({
            "type": "response",
            "request_seq": to.seq,
            "command": to.command,
            "success": true,
            "body": body,
        }));
    }

    /// `message` is for programs, `error` for people.
    pub fn failure(&self, to: &Request, message: &str, error: &str) {
        self.send(json!({
            "type": "response",
            "request_seq": to.seq,
            "command": to.command,
            "success": false,
            "message": message,
            "body": {"error": {"id": 1, "format": escaped(error), "showUser": true}},
        }));
    }
}

/// Braces mean variables in messages for people.
fn escaped(text: &str) -> String {
    text.replace('{', "(").replace('}', ")")
}

/// What an editor asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub seq: u64,
    pub command: String,
    pub arguments: Value,
}

impl Request {
    /// None for messages that ask for nothing.
    pub fn of(message: &Value) -> Option<Request> {
        (message["type"] == "request").then(|| Request {
            seq: message["seq"].as_u64().unwrap_or(0),
            command: message["command"].as_str().unwrap_or_default().into(),
            arguments: message["arguments"].clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed() {
        let text = r#"{"type":"request","seq":3,"command":"threads"}"#;
        let stream = format!(
            "Content-Length: {}\r\nContent-Type: x\r\n\r\n{text}content-length: 2\r\n\r\n{{}}",
            text.len()
        );
        let mut input = stream.as_bytes();
        let first = read(&mut input).unwrap().unwrap();
        assert_eq!(Request::of(&first).unwrap().command, "threads");
        assert!(Request::of(&read(&mut input).unwrap().unwrap()).is_none());
        assert!(read(&mut input).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "hello\r\n\r\n",
            "Content-Length: 5\r\n\r\nabc",
            "Content-Length: 99999999999\r\n\r\n",
            "Content-Length: 3\r\n\r\n{{{",
            "\r\n",
        ] {
            assert!(read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
