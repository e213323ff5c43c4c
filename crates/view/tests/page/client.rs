//! A server, and a client of its own: questions out, answers in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{self, Guest};

/// A server, and a client of its own.
pub struct View {
    child: Child,
    pub port: u16,
    pub token: String,
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl View {
    pub fn start(guest: &Guest) -> View {
        View::on(&guest.folder.join("rec"), &guest.folder)
    }

    pub fn on(recording: &Path, folder: &Path) -> View {
        let mut child = Command::new(common::clew())
            .args(["view", "--no-open"])
            .arg(recording)
            .env("CLEW_DIR", folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = rest.split_once("/?token=").unwrap();
        View {
            child,
            port: port.parse().unwrap(),
            token: token.into(),
        }
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response {
            status,
            head: head.to_lowercase(),
            body: body.into(),
        }
    }

    pub fn asked(&self, method: &str, path: &str, body: &str) -> Value {
        let host = format!("127.0.0.1:{}", self.port);
        let headers = [
            ("host", host.as_str()),
            ("x-clew-token", self.token.as_str()),
            ("content-type", "application/json"),
        ];
        let response = self.request(method, path, &headers, body);
        serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{}", response.body))
    }

    /// The answer, however long it takes; or why there is none.
    pub fn tries(&self, what: &str, about: Value) -> Result<Value, String> {
        let mut question = about;
        question["what"] = what.into();
        let mut told = self.asked("POST", "/api/ask", &question.to_string());
        while let Some(job) = told["job"].as_u64() {
            told = self.asked("GET", &format!("/api/job/{job}"), "");
        }
        match told["error"].as_str() {
            Some(why) => Err(why.into()),
            None => Ok(told["answer"].take()),
        }
    }

    pub fn ask(&self, what: &str, about: Value) -> Value {
        self.tries(what, about)
            .unwrap_or_else(|why| panic!("{what}: {why}"))
    }
}
