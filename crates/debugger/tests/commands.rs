//! `clew calls`, `clew writes` and `clew output`, as people and programs call them.

mod common;

use common::Guest;
use serde_json::Value;

fn main() {
    common::tests(vec![common::test("answers", answers)])
}

fn answers() {
    let guest = Guest::new("answers.cpp", &["-O0"]);
    let json = |words: &[&str]| -> (i32, Value) {
        let (status, out, _) = guest.clew(words);
        (status, serde_json::from_str(&out).unwrap_or_default())
    };
    let entered = guest
        .output
        .lines()
        .filter(|line| line.starts_with("enter"));
    let entered = entered.count();
    let (status, calls) = json(&["calls", "traced", "REC", "--json"]);
    assert_eq!(status, 0);
    assert_eq!(calls["calls"].as_array().map(Vec::len), Some(entered));
    assert_eq!(calls["calls"][0]["arguments"][0]["text"], "3");
    let (status, text, _) = guest.clew(&["calls", "traced", "REC"]);
    assert_eq!(status, 0);
    assert!(text.contains("(unwound)"), "{text}");
    assert!(text.contains("clew debug"), "{text}");
    assert_eq!(text.matches("traced(n=").count(), entered, "{text}");
    // None of that name, and what may be meant.
    let (status, _, error) = guest.clew(&["calls", "tarced", "REC"]);
    assert_eq!(status, 2);
    assert!(error.contains("did you mean traced"), "{error}");
    let (status, changes) = json(&["writes", "watched", "REC", "--json"]);
    assert_eq!(status, 0);
    let changes = changes["changes"].as_array().unwrap();
    assert_eq!(changes.last().unwrap()["after"], "1000");
    let (status, _, error) = guest.clew(&["writes", "wathced", "REC"]);
    assert_eq!(status, 2);
    assert!(error.contains("did you mean watched"), "{error}");
    let (status, _, error) = guest.clew(&["writes", "watched +", "REC"]);
    assert_eq!((status, error.lines().count()), (2, 3), "{error}");
    let (status, output) = json(&["output", "REC", "--json"]);
    assert_eq!(status, 0);
    let output = output["output"].as_array().unwrap();
    let texts: String = output
        .iter()
        .filter(|one| one["to"] == 1)
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, guest.output);
    assert_eq!(guest.clew(&["output", "nowhere"]).0, 125);
}
