//! `clew why --minimize`: which switches of threads it takes. In: a recording of a program that can be run again. Out: the few
//! preemptions without which it doesn't fail, in a smaller recording beside it.

use std::ffi::CStr;
use std::path::Path;

use crate::hunt::minimize::prepared;
use crate::hunt::{STOP, lines, prepare_signals};
use crate::progress::Progress;
use crate::text;
use clew_hunt::News;
use clew_hunt::minimize::{Minimized, Smaller};
use serde_json::{Value, json};

/// Runs at most: an answer is worth a minute and not an hour.
const RUNS: u64 = 300;
/// So many switches are told.
const MOST: usize = 3;

/// What came of it: the smaller recording, or why there is none.
pub type Switches = Result<Box<Smaller>, String>;

/// Runs the program of a recording again with fewer and fewer preemptions.
pub fn switches(folder: &Path, envp: &[&CStr]) -> Switches {
    // It is run in its own folder.
    let folder = &std::path::absolute(folder).map_err(|error| error.to_string())?;
    let prepared = prepared(folder, RUNS, None, envp)?;
    let (settings, meta) = prepared.map_err(|_| "the program can't be run here".to_string())?;
    prepare_signals();
    let mut progress = Progress::new("which switches of threads it takes");
    let found = clew_hunt::minimize_recording(&settings, folder, &meta, &STOP, &mut |news| {
        if let News::Minimizing(now) = news {
            progress.show(now.runs as f64 / now.most.max(1) as f64);
        }
    });
    drop(progress);
    let found = found.map_err(|error| error.to_string())?;
    match found.minimized {
        Some(Minimized::Smaller(smaller)) => Ok(smaller),
        Some(Minimized::NotAgain { tries, .. }) => Err(format!(
            "it didn't fail again in {tries} runs that followed its schedule"
        )),
        Some(Minimized::Failed(why)) => Err(why),
        Some(Minimized::Stopped(_)) | None => {
            Err("it was stopped before anything was known".into())
        }
    }
}

/// For people.
pub fn shown(switches: &Switches, style: text::Style) -> String {
    let smaller = match switches {
        Ok(smaller) => smaller,
        Err(why) => {
            return format!(
                "\nWhich switch of threads it takes isn't known: {}.\n",
                text::plain(why)
            );
        }
    };
    let name = text::plain(&smaller.name);
    let mut out = match smaller.preemptions {
        0 => format!("\nIt takes no switch of threads: {name} fails without any"),
        1 => format!("\nIt takes one switch of threads, in {name}"),
        few => format!("\nIt takes {few} switches of threads, in {name}"),
    };
    let runs = text::counted(smaller.runs, "run");
    out.push_str(&format!(" ({} before, {runs}):\n", smaller.before));
    let explained = match &smaller.explained {
        Ok(explained) => explained,
        Err(why) => {
            out.push_str(&format!("   (no lines: {})\n", text::plain(why)));
            return out;
        }
    };
    for preemption in explained.preemptions.iter().take(MOST) {
        for line in lines::switched(preemption, style) {
            out.push_str(&format!("   {line}\n"));
        }
    }
    let more = explained.all_preemptions.saturating_sub(MOST as u64);
    if more > 0 {
        out.push_str(&format!("   and {} more\n", text::count(more)));
    }
    if let Some(first) = explained.preemptions.first() {
        let mut words: Vec<String> = ["clew", "debug"].map(String::from).to_vec();
        words.push(smaller.name.clone());
        words.extend_from_slice(&explained.program);
        words.extend(["--at".into(), first.position.clone()]);
        out.push_str(&style.faint(&format!("   {}\n", text::command(&words))));
    }
    out
}

/// For machines.
pub fn as_json(switches: &Switches) -> Value {
    match switches {
        Ok(smaller) => json!({
            "recording": smaller.name,
            "before": smaller.before,
            "preemptions": smaller.preemptions,
            "runs": smaller.runs,
            "explained": smaller.explained.as_ref().ok(),
        }),
        Err(why) => json!({ "unknown": why }),
    }
}
