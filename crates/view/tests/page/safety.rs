//! Who may ask, what can't be asked, and recordings of strangers.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::client::View;
use crate::common::{self, Guest};
use crate::guest;

pub fn who_may_ask() {
    let guest = guest();
    let view = View::start(&guest);
    let host = format!("127.0.0.1:{}", view.port);
    let local = format!("localhost:{}", view.port);
    let origin = format!("http://{host}");
    let question = r#"{"what": "recording"}"#;
    let of = ("content-type", "application/json");
    let token = ("x-clew-token", view.token.as_str());
    let ask = |headers: &[(&str, &str)]| view.request("POST", "/api/ask", headers, question).status;
    assert_eq!(ask(&[("host", &host), token, of]), 200);
    assert_eq!(ask(&[("host", &local), token, of]), 200);
    assert_eq!(ask(&[("host", &host), ("origin", &origin), token, of]), 200);
    let longer = format!("{}0", view.token);
    let other = view.token.replace(['0', '1', '2', '3'], "f");
    for wrong in ["", "0", &view.token[1..], &longer, &other] {
        assert_eq!(ask(&[("host", &host), ("x-clew-token", wrong), of]), 401);
    }
    assert_eq!(ask(&[("host", &host), of]), 401);
    // A name that is made to mean this machine, and pages of others, though they know the token.
    for wrong in ["evil.example", "127.0.0.1", "127.0.0.1:1", ""] {
        assert_eq!(ask(&[("host", wrong), token, of]), 403, "{wrong}");
    }
    let port = format!("http://evil.example:{}", view.port);
    let secure = format!("https://{host}");
    for wrong in [
        "http://evil.example",
        "null",
        &port,
        &secure,
        "http://127.0.0.1:1",
    ] {
        let headers = [("host", host.as_str()), ("origin", wrong), token, of];
        assert_eq!(ask(&headers), 403, "{wrong}");
    }
    let cross = ("sec-fetch-site", "cross-site");
    assert_eq!(ask(&[("host", &host), cross, token, of]), 403);
    // What a form of another page can send.
    let plain = ("content-type", "text/plain");
    assert_eq!(ask(&[("host", &host), token, plain]), 415);
    for (method, path) in [("GET", "/api/job/1"), ("DELETE", "/api/job/1")] {
        let response = view.request(method, path, &[("host", &host)], "");
        assert_eq!(response.status, 401, "{path}");
    }
    // The page is there without a token, but not for other names, and says nothing of the recording.
    let page = view.request("GET", "/", &[("host", &host), cross], "");
    assert_eq!(page.status, 200);
    assert!(!page.body.contains(&view.token));
    let page = view.request("GET", "/", &[("host", "evil.example")], "");
    assert_eq!(page.status, 403);
    for path in [
        "/../Cargo.toml",
        "/src/http.rs",
        "/%2e%2e/x",
        "/api",
        "/api/ask",
    ] {
        let response = view.request("GET", path, &[("host", &host), token], "");
        assert!(matches!(response.status, 404 | 405), "{path}");
    }
}

/// All that browsers are told to refuse, and that the page itself has nothing that makes markup of text.
pub fn files() {
    let guest = guest();
    let view = View::start(&guest);
    let host = format!("127.0.0.1:{}", view.port);
    let get = |path: &str| view.request("GET", path, &[("host", &host)], "");
    let page = get("/");
    for path in ["/", "/main.js", "/style.css", "/missing.js"] {
        let head = get(path).head;
        for wanted in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';",
            "require-trusted-types-for 'script'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-opener-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(wanted), "{path}: {wanted}: {head}");
        }
        assert!(!head.contains("unsafe"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let mut names: Vec<String> = vec!["main.js".into(), "style.css".into()];
    let mut seen = 0;
    while seen < names.len() {
        let response = get(&format!("/{}", names[seen]));
        assert_eq!(response.status, 200, "{}", names[seen]);
        for part in response.body.split("from './").skip(1) {
            let name = part.split('\'').next().unwrap().to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for never in [
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
            "javascript:",
            "createContextualFragment",
            "https://",
            "DOMParser",
        ] {
            assert!(!response.body.contains(never), "{}: {never}", names[seen]);
        }
        seen += 1;
    }
    assert!(names.len() > 10, "{names:?}");
    assert!(!page.body.contains("onclick") && !page.body.contains("style="));
}

pub fn nonsense() {
    let guest = guest();
    let view = View::start(&guest);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"what": "nothing"}"#,
        r#"{"what": "stand"}"#,
        "\u{0}",
    ] {
        let told = view.asked("POST", "/api/ask", body);
        assert!(
            told["error"].as_str().unwrap().contains("no question"),
            "{body:?}: {told}"
        );
    }
    for (what, about) in [
        ("stand", json!({"stream": 99, "at": "end"})),
        ("stand", json!({"stream": 1, "at": "nowhere"})),
        (
            "calls",
            json!({"stream": 1, "function": "no_such", "most": 5}),
        ),
        (
            "executions",
            json!({"stream": 1, "spot": "lines.c:99999", "most": 5}),
        ),
        (
            "executions",
            json!({"stream": 1, "spot": "main", "expressions": ["1 +"], "most": 5}),
        ),
        (
            "memory",
            json!({"stream": 1, "at": "end", "address": "no_such", "size": 5}),
        ),
        (
            "children",
            json!({"stream": 1, "at": "end", "root": {"variable": [9, 9]}, "path": [], "most": 1}),
        ),
        (
            "run_to",
            json!({"stream": 1, "at": "end", "way": "forward", "spot": "main"}),
        ),
        (
            "go",
            json!({"stream": 1, "at": "start", "way": "forward", "stops": [{"spot": "no_such"}]}),
        ),
    ] {
        let why = view.tries(what, about.clone()).unwrap_err();
        assert!(
            !why.is_empty() && !why.contains("panic"),
            "{what} {about}: {why}"
        );
    }
    let part = json!({"from": 5.0, "to": 5.0, "parts": 0, "first": 7, "last": 2});
    assert_eq!(view.ask("lanes", part)["lanes"], json!([]));
    view.ask("stand", json!({"stream": 1, "at": "end"}));
}

/// What it says of itself is markup; it is told as it is, as data, and as nothing else.
const HOSTILE: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>";

pub fn hostile_guest() -> (Guest, std::path::PathBuf) {
    let guest = guest();
    let folder = guest.folder.join("<img src=x onerror=alert(3)>");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("<b>bold<b>.c");
    // Without debugging information a function is called as the linker calls it.
    let label = r#"__asm__("\"<script>alert(4)</script>\"")"#;
    let main = format!(
        "void evil(const char *markup) {label};\n\
         int main(int argc, char **argv) {{ evil(argv[1]); return argc - 2; }}\n"
    );
    let evil = format!(
        "#include <stdio.h>\n\
         void evil(const char *markup) {label};\n\
         void evil(const char *markup) {{ puts(markup); fflush(stdout); }}\n"
    );
    std::fs::write(&source, main).unwrap();
    std::fs::write(folder.join("evil.c"), evil).unwrap();
    let compile = |words: &[&str]| {
        let made = Command::new("cc").args(words).current_dir(&folder).status();
        assert!(made.unwrap().success(), "{words:?}");
    };
    compile(&["-c", "evil.c"]);
    compile(&["-g", "-o", "<i>prog", source.to_str().unwrap(), "evil.o"]);
    let program = folder.join("<i>prog");
    let recording = guest.folder.join("hostile");
    let recorded = Command::new(common::clew())
        .args(["record", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program)
        .arg(HOSTILE)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(recorded.success());
    (guest, recording)
}

pub fn hostile() {
    let (guest, recording) = hostile_guest();
    let view = View::on(&recording, &guest.folder);
    let told = view.ask("recording", json!({}));
    assert_eq!(told["streams"][0]["argv"][1], HOSTILE);
    let written = view.ask("output", json!({"stream": 1, "most": 10}));
    assert_eq!(written[0]["text"], format!("{HOSTILE}\n"));
    let told = view.ask("stand", json!({"stream": 1, "at": written[0]["position"]}));
    let frames = told["stack"]["frames"].as_array().unwrap();
    let name = "<script>alert(4)</script>";
    assert!(
        frames.iter().any(|frame| frame["function"] == name),
        "{told}"
    );
    let host = format!("127.0.0.1:{}", view.port);
    let headers = [
        ("host", host.as_str()),
        ("x-clew-token", &view.token),
        ("content-type", "application/json"),
    ];
    let response = view.request("POST", "/api/ask", &headers, r#"{"what": "recording"}"#);
    assert!(
        response.head.contains("content-type: application/json"),
        "{}",
        response.head
    );
    assert!(response.head.contains("nosniff"));
}
