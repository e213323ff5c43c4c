//! `clew explain-run`, for hunts: lines at which a recorded run's threads were switched away, or wait for each other.
//!
//! In: a recording's folder. Out: one JSON object, see [`clew_hunt::explain`].

use std::ffi::CStr;

use super::arguments::ExplainRun;
use crate::arguments::Engine;
use crate::{run, text, variables};
use clew_timeline::Settings;

const WRONG_LINE: i32 = 2;

pub fn explain(line: &ExplainRun, envp: &[&CStr]) -> i32 {
    let variable = |name: &str| variables::get(envp, name);
    let options = match run::options(&Engine::default(), &variable) {
        Ok(options) => options,
        Err(message) => {
            text::failed(&message);
            return WRONG_LINE;
        }
    };
    match clew_hunt::explain::explain(&line.folder, line.most, &Settings::new(options)) {
        Ok(explained) => {
            let json = serde_json::to_string(&explained).unwrap_or_default();
            text::print(&format!("{json}\n"));
            0
        }
        Err(error) => text::failed(&error),
    }
}
