//! An editor: requests of the Debug Adapter Protocol out, responses and events in.

#![allow(dead_code)]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The other side.
pub struct Editor {
    pub child: Option<Child>,
    output: Box<dyn Write>,
    input: BufReader<Box<dyn Read>>,
    seq: u64,
    pub events: VecDeque<Value>,
    /// All that came and went.
    pub said: Vec<Value>,
}

impl Drop for Editor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Editor {
    /// Recordings are in that folder.
    pub fn start(clew: impl AsRef<Path>, folder: &Path) -> Editor {
        let mut child = Command::new(clew.as_ref())
            .arg("dap")
            .env("CLEW_DIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Box::new(child.stdin.take().unwrap());
        let input = Box::new(child.stdout.take().unwrap());
        Editor::over(Some(child), output, input)
    }

    pub fn over(child: Option<Child>, output: Box<dyn Write>, input: Box<dyn Read>) -> Editor {
        Editor {
            child,
            output,
            input: BufReader::new(input),
            seq: 0,
            events: VecDeque::new(),
            said: Vec::new(),
        }
    }

    pub fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.seq += 1;
        let message = json!({
            "seq": self.seq,
            "type": "request",
            "command": command,
            "arguments": arguments,
        });
        let text = message.to_string();
        self.said.push(message);
        write!(self.output, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.output.flush().unwrap();
        self.seq
    }

    pub fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.input.read_line(&mut line).unwrap() > 0, "it left");
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("Content-Length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes).unwrap();
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        self.said.push(message.clone());
        message
    }

    pub fn response(&mut self, seq: u64) -> Value {
        loop {
            let message = self.receive();
            match message["type"].as_str() {
                Some("event") => self.events.push_back(message),
                _ => {
                    assert_eq!(message["request_seq"], seq);
                    return message;
                }
            }
        }
    }

    /// Asks, and wants an answer.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments);
        let message = self.response(seq);
        assert_eq!(message["success"], true, "{command}: {message}");
        message["body"].clone()
    }

    /// Asks, and wants to be refused; the words.
    pub fn refused(&mut self, command: &str, arguments: Value) -> String {
        let seq = self.send(command, arguments);
        let message = self.response(seq);
        assert_eq!(message["success"], false, "{command}: {message}");
        message["message"].as_str().unwrap().into()
    }

    pub fn event(&mut self, name: &str) -> Value {
        loop {
            let message = match self.events.pop_front() {
                Some(message) => message,
                None => self.receive(),
            };
            assert_eq!(message["type"], "event", "{message}");
            if message["event"] == name {
                return message["body"].clone();
            }
        }
    }

    /// Attaches to the recording `rec` in a folder; stands in main.
    pub fn attach(clew: impl AsRef<Path>, folder: &Path) -> Editor {
        let mut editor = Editor::start(clew, folder);
        editor.begin(json!({"recording": folder.join("rec")}));
        editor.ask("configurationDone", json!({}));
        editor.event("stopped");
        editor
    }

    pub fn begin(&mut self, arguments: Value) {
        let capabilities = self.ask(
            "initialize",
            json!({"adapterID": "clew", "supportsProgressReporting": true}),
        );
        assert_eq!(capabilities["supportsStepBack"], true);
        self.ask("attach", arguments);
        self.event("initialized");
    }

    /// Goes somewhere; why it stands there.
    pub fn go(&mut self, command: &str) -> Value {
        self.ask(command, json!({"threadId": 1}));
        self.event("stopped")
    }

    pub fn frames(&mut self) -> Vec<Value> {
        let body = self.ask("stackTrace", json!({"threadId": 1}));
        body["stackFrames"].as_array().unwrap().clone()
    }

    pub fn top(&mut self) -> Value {
        self.frames().remove(0)
    }

    pub fn evaluate(&mut self, expression: &str) -> Value {
        let frame = self.top()["id"].clone();
        let asked = json!({"expression": expression, "frameId": frame, "context": "watch"});
        self.ask("evaluate", asked)
    }

    pub fn typed(&mut self, text: &str) -> String {
        let asked = json!({"expression": text, "context": "repl"});
        let body = self.ask("evaluate", asked);
        body["result"].as_str().unwrap().into()
    }

    /// Where it stands: function, line, position.
    pub fn place(&mut self) -> String {
        let top = self.top();
        let name = top["name"].as_str().unwrap().to_string();
        let name = name.trim_end_matches(" [inlined]").to_string();
        let position = self.typed("clew when");
        let position = position.split(' ').next().unwrap();
        format!("{name} {} {position}", top["line"])
    }
}
