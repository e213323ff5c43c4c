//! `clew probe add|list|delete|run`: debug code in the replay, from within gdb. In: places and statements. Out: what they
//! print, each line with its position, so that one can go on from there.

use std::fmt::Write;

use crate::questions::Whose;
use crate::session::Session;
use crate::{Error, Result, plain};

const USAGE: &str = "probe takes add PLACE STATEMENTS, list, delete N, or run";

/// Debug code that was added, by number.
#[derive(Default)]
pub struct Probes {
    last: u32,
    all: Vec<(u32, String, String)>,
}

impl Session<'_> {
    pub(crate) fn probe(&mut self, rest: &str) -> Result<String> {
        let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let rest = rest.trim();
        match word {
            "add" => self.add_probe(rest),
            "list" if rest.is_empty() => Ok(self.list_probes()),
            "delete" => self.delete_probe(rest),
            "run" if rest.is_empty() => self.run_probes(),
            _ => Err(Error::Command(USAGE.into())),
        }
    }

    fn add_probe(&mut self, rest: &str) -> Result<String> {
        let Some((place, code)) = rest.split_once(char::is_whitespace) else {
            return Err(Error::Command(USAGE.into()));
        };
        let probes = &mut self.probes;
        probes.last += 1;
        let code = code.trim().to_string();
        probes.all.push((probes.last, place.into(), code));
        Ok(format!("Probe {} at {}\n", probes.last, plain(place)))
    }

    fn list_probes(&self) -> String {
        let mut text = String::new();
        for (number, place, code) in &self.probes.all {
            let _ = writeln!(text, "{number:<4} {}  {}", plain(place), plain(code));
        }
        if text.is_empty() {
            text.push_str("There are no probes.\n");
        }
        text
    }

    fn delete_probe(&mut self, rest: &str) -> Result<String> {
        let before = self.probes.all.len();
        if let Ok(wanted) = rest.parse::<u32>() {
            self.probes.all.retain(|(number, ..)| *number != wanted);
        }
        match self.probes.all.len() < before {
            true => Ok(String::new()),
            false => Err(Error::Command(format!(
                "there is no probe {rest:?}; clew probe list lists them"
            ))),
        }
    }

    fn run_probes(&mut self) -> Result<String> {
        if self.probes.all.is_empty() {
            let text = "there are no probes; clew probe add PLACE STATEMENTS adds one";
            return Err(Error::Command(text.into()));
        }
        let all = self.probes.all.iter();
        let all: Vec<(String, String)> = all
            .map(|(_, place, code)| (place.clone(), code.clone()))
            .collect();
        self.debugger(Whose::default())?;
        let Some(mut debugger) = self.debugger.take() else {
            return Err(Error::Command("there is no debugger".into()));
        };
        let told = self.helper.probe(&mut debugger, &all);
        self.debugger = Some(debugger);
        told.map_err(Error::Command)
    }
}
