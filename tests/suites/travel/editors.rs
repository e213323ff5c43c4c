//! The same walks by gdb and by an editor's protocol, on one recording: the same stops. In optimised code the two don't agree on where a
//! function's body begins, so walks there aren't compared.

#[path = "../../../crates/dap/tests/editor/client.rs"]
mod client;

use clew_tests::mi::Mi;
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::place::{self, BACK, FORTH, Place, is_end, require, same};
use client::Editor;

pub fn trials() -> Vec<Trial> {
    place::trials(
        "editors",
        &[
            ("lines", lines),
            ("lines backwards", backwards),
            ("instructions", instructions),
            ("breakpoints", breakpoints),
            ("data", data),
        ],
    )
}

/// Where one stands: function, line, address.
type Stand = (String, u64, u64);

/// Both at the same place.
struct Pair {
    place: Place,
    mi: Mi,
    editor: Editor,
}

impl Pair {
    /// Both where a function begins.
    fn at(test: &str, guest: &str, function: &str) -> Result<Pair, Failed> {
        let place = Place::guest(test, guest)?;
        let mut mi = place.mi()?;
        mi.command(&format!("-break-insert -t {function}"))?;
        mi.go(FORTH)?;
        let mut editor = Editor::start(clew_tests::clew::path(), &place.made.folder);
        editor.begin(json!({"recording": place.made.folder, "at": "start"}));
        editor.ask("configurationDone", json!({}));
        editor.event("stopped");
        let set = json!({"breakpoints": [{"name": function}]});
        editor.ask("setFunctionBreakpoints", set);
        editor.go("continue");
        editor.ask("setFunctionBreakpoints", json!({"breakpoints": []}));
        let mut pair = Pair { place, mi, editor };
        pair.same("the beginning")?;
        Ok(pair)
    }

    fn same(&mut self, what: &str) -> Result<Stand, Failed> {
        let frame = self.mi.command("-stack-info-frame")?.results;
        let frame = frame.get("frame").cloned().ok_or("no frame")?;
        let text = |name| frame.text(name).unwrap_or_default();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let line = text("line").parse().unwrap_or(0);
        let theirs = (text("func"), line, hex(&text("addr"))?);
        let top = self.editor.top();
        let name = top["name"].as_str().unwrap_or_default();
        let name = name.trim_end_matches(" [inlined]").to_string();
        let line = top["line"].as_u64().unwrap_or(0);
        let address = hex(top["instructionPointerReference"]
            .as_str()
            .unwrap_or_default())?;
        same(what, (name, line, address), theirs.clone())?;
        Ok(theirs)
    }

    /// So many steps of both, compared after each.
    fn walk(&mut self, gdb: &str, editor: &str, times: usize) -> Result<Vec<Stand>, Failed> {
        let (command, fine) = match editor.strip_suffix("/instruction") {
            Some(command) => (command, "instruction"),
            None => (editor, "line"),
        };
        let mut seen = Vec::new();
        for n in 0..times {
            let stop = self.mi.go(gdb)?;
            require(!is_end(&stop), || self.mi.failure("the end"))?;
            let asked = json!({"threadId": 1, "granularity": fine});
            self.editor.ask(command, asked);
            self.editor.event("stopped");
            seen.push(self.same(&format!("{editor} {n}"))?);
        }
        Ok(seen)
    }
}

/// Places that it has gone through: a walk that stands still shows nothing.
fn moved(seen: &[Stand], least: usize) -> Result<(), Failed> {
    let mut places: Vec<u64> = seen.iter().map(|one| one.2).collect();
    places.sort_unstable();
    places.dedup();
    require(places.len() >= least, || format!("{seen:?}"))
}

fn lines(test: &str) -> Result<(), Failed> {
    let mut pair = Pair::at(test, "steps.c", "loop")?;
    moved(&pair.walk("-exec-next", "next", 12)?, 4)?;
    moved(&pair.walk("-exec-step", "stepIn", 24)?, 8)?;
    Ok(())
}

/// Out of a call, and lines of main back to its first.
fn backwards(test: &str) -> Result<(), Failed> {
    let mut pair = Pair::at(test, "steps.c", "add")?;
    pair.walk("-exec-finish", "stepOut", 2)?;
    let mut pair = Pair::at(test, "steps.c", "main")?;
    let forth = pair.walk("-exec-next", "next", 2)?;
    let back = pair.walk("-exec-next --reverse", "stepBack", 2)?;
    same("back", &back[0], &forth[0])?;
    same("line", back[1].1, u64::from(pair.place.line("first")))
}

fn instructions(test: &str) -> Result<(), Failed> {
    let mut pair = Pair::at(test, "steps.c", "loop")?;
    let forth = pair.walk("-exec-step-instruction", "stepIn/instruction", 40)?;
    let back = pair.walk(
        "-exec-step-instruction --reverse",
        "stepBack/instruction",
        39,
    )?;
    let mut back: Vec<&Stand> = back.iter().collect();
    back.reverse();
    same(
        "there and back",
        &back[..],
        &forth[..39].iter().collect::<Vec<_>>()[..],
    )
}

/// With a condition, to the last and back to the first.
fn breakpoints(test: &str) -> Result<(), Failed> {
    let mut pair = Pair::at(test, "steps.c", "main")?;
    let line = pair.place.line("body");
    pair.mi
        .command(&format!("-break-insert -c \"i % 2 == 0\" steps.c:{line}"))?;
    let asked = json!({
        "source": {"path": "steps.c"},
        "breakpoints": [{"line": line, "condition": "i % 2 == 0"}],
    });
    pair.editor.ask("setBreakpoints", asked);
    pair.walk(FORTH, "continue", 3)?;
    pair.walk(BACK, "reverseContinue", 2)?;
    let value = pair.editor.evaluate("i")["result"].clone();
    same("i", value.as_str(), Some("0"))
}

/// What writes a variable, forwards behind it and backwards before it.
fn data(test: &str) -> Result<(), Failed> {
    let mut pair = Pair::at(test, "steps.c", "main")?;
    pair.mi.command("-break-watch calls")?;
    let info = pair
        .editor
        .ask("dataBreakpointInfo", json!({"name": "calls"}));
    let asked = json!({"breakpoints": [{"dataId": info["dataId"]}]});
    pair.editor.ask("setDataBreakpoints", asked);
    for n in 0..4 {
        pair.mi.go(FORTH)?;
        pair.editor.go("continue");
        pair.same(&format!("change {n}"))?;
    }
    for n in 0..3 {
        pair.mi.go(BACK)?;
        pair.editor.go("reverseContinue");
        pair.same(&format!("back to change {n}"))?;
    }
    Ok(())
}
