//! `clew alerts`: everything notable in a recording.

use std::ffi::CStr;

use super::arguments::Alerts;
use crate::answers::{NOTHING, done, failed, next, open};
use crate::text;
use clew_diagnose::alerts::Kind;
use clew_diagnose::scene::Scene;
use serde_json::json;

const LONGEST: usize = 100;

pub fn alerts(line: &Alerts, envp: &[&CStr]) -> i32 {
    let (mut debugger, name) = match open(&line.which, line.recording.as_deref(), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let found = Scene::new(&mut debugger)
        .and_then(|mut scene| clew_diagnose::alerts::alerts(&mut scene, line.races));
    let found = match found {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    done(&mut debugger);
    if line.which.json {
        let mut all = json!(found);
        if let Some(all) = all.as_object_mut() {
            all.insert("recording".into(), json!(name));
        }
        text::print(&format!("{all:#}\n"));
    } else {
        let style = text::Style::stdout();
        let rows: Vec<Vec<String>> = found
            .alerts
            .iter()
            .map(|alert| {
                let site = alert.site.as_ref().map(|site| site.to_string());
                vec![
                    alert.position.clone(),
                    alert.thread.to_string(),
                    alert.kind.name().into(),
                    text::plain(&text::shortened(&alert.text, LONGEST)),
                    text::plain(&site.unwrap_or_default()),
                ]
            })
            .collect();
        let names = ["POSITION", "THREAD", "KIND", "WHAT", "WHERE"];
        let mut all = match rows.is_empty() {
            true => "nothing notable\n".into(),
            false => text::table(&names, &rows, |row, name, cell| match (row, name) {
                (usize::MAX, _) => style.bold(cell),
                (_, "POSITION") => style.good(cell),
                (_, "WHERE") => style.faint(cell),
                (n, "KIND") => match found.alerts.get(n).map(|alert| alert.kind) {
                    Some(Kind::Note | Kind::Signal | Kind::LongWait) | None => cell.into(),
                    Some(_) => style.bad(cell),
                },
                _ => cell.into(),
            }),
        };
        for (kind, count) in &found.more {
            all.push_str(&format!("({count} more: {})\n", kind.name()));
        }
        if let Some(last) = found.alerts.last() {
            all.push_str(&style.faint(&next(&name, &line.which, &last.position)));
        }
        text::print(&all);
    }
    match found.alerts.is_empty() {
        true => NOTHING,
        false => 0,
    }
}
