//! A diagnosis as a page. In: what tells failing runs from passing ones. Out: HTML that needs nothing else: each suspect with a
//! lane for each thread of control, its accesses in their order, and the commands that go there.

use std::fmt::Write;

use super::delta::confirmed_text;
use crate::text;
use clew_diagnose::delta::patterns::What;
use clew_diagnose::delta::{Diagnosis, Suspect, Told};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}code{font:13px/1.4 ui-monospace,monospace}\
table{border-collapse:collapse;margin:1em 0;width:100%}th,td{border:1px solid #ccc;padding:.4em .6em;text-align:left;vertical-align:top}\
th{background:#f3f3f3}td.act{background:#fdf1e3}td.act.w{background:#fbe0dc}.src{display:block;white-space:pre-wrap}\
.faint{color:#777}.yes{color:#17662b}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}th{background:#2a2a2a}th,td{border-color:#444}\
td.act{background:#3a2f20}td.act.w{background:#45251f}.faint{color:#999}.yes{color:#7fd494}}";

/// Text as it stands in a page. Recordings come from strangers: nothing of theirs becomes markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text::plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

pub fn page(diagnosis: &Diagnosis) -> String {
    let place = diagnosis.at.as_ref().map(|site| format!(" at {site}"));
    let title = format!("{}{}", diagnosis.failure, place.unwrap_or_default());
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{0}</title><style>{STYLE}</style>\n<h1>{0}</h1>\n<p>{1} and {2} compared; recording <code>{3}</code>.{4}</p>\n",
        escaped(&title),
        text::counted(diagnosis.failing as u64, "failing run"),
        text::counted(diagnosis.passing as u64, "passing one"),
        escaped(&diagnosis.recording),
        match diagnosis.complete {
            true => "",
            false => " Not all accesses were looked at: there are too many.",
        },
    );
    if diagnosis.suspects.is_empty() {
        out.push_str("<p>Nothing that was looked at tells failing runs from passing ones.</p>\n");
    }
    for (n, suspect) in diagnosis.suspects.iter().enumerate() {
        let _ = writeln!(
            out,
            "<h2 id=s{0}>{0}. <code>{1}</code>: {2}</h2>",
            n + 1,
            escaped(&suspect.variable),
            suspect.pattern.name(),
        );
        out.push_str(&of_suspect(suspect));
    }
    out.push_str("</html>\n");
    out
}

fn of_suspect(suspect: &Suspect) -> String {
    let mut out = String::new();
    for sentence in &suspect.sentences {
        let _ = writeln!(out, "<p>{}</p>", escaped(sentence));
    }
    if let Some(confirmed) = &suspect.confirmed {
        let class = if confirmed.is_clear() { "yes" } else { "faint" };
        let text = escaped(&confirmed_text(confirmed));
        let _ = writeln!(out, "<p class={class}>{text}</p>");
    }
    if let Some(advice) = &suspect.advice {
        let _ = writeln!(out, "<p>What may help: {}.</p>", escaped(advice));
    }
    let mut lanes: Vec<&str> = Vec::new();
    for act in &suspect.acts {
        if !lanes.contains(&act.by.as_str()) {
            lanes.push(&act.by);
        }
    }
    out.push_str("<table><tr>");
    for lane in &lanes {
        let _ = write!(out, "<th>{}", escaped(lane));
    }
    out.push_str("<th>go there\n");
    for act in &suspect.acts {
        out.push_str("<tr>");
        for lane in &lanes {
            match *lane == act.by {
                true => out.push_str(&cell(act)),
                false => out.push_str("<td>"),
            }
        }
        let words = [
            "clew",
            "debug",
            &suspect.recording,
            "--at",
            &act.site.position,
        ];
        let command = match act.site.position.is_empty() {
            true => String::new(),
            false => text::command(&words.map(String::from)),
        };
        let _ = writeln!(out, "<td><code>{}</code>", escaped(&command));
    }
    out.push_str("</table>\n");
    out
}

/// What was done, on which line, with which value, under which locks.
fn cell(act: &Told) -> String {
    let (word, class) = match act.what {
        What::Read => ("reads", "act"),
        What::Write => ("writes", "act w"),
        What::Free => ("frees", "act w"),
        What::Lock => ("locks", "act"),
        What::Wait => ("waits", "act"),
        What::Signal => ("signals", "act"),
    };
    let value = act.value.map(|value| format!(" ({value})"));
    let locks = match act.locks.is_empty() {
        true => String::new(),
        false => format!(
            "<br><span class=faint>holds {}</span>",
            escaped(&act.locks.join(", "))
        ),
    };
    format!(
        "<td class=\"{class}\"><b>{word}</b>{} {}<code class=src>{}</code>{locks}",
        value.unwrap_or_default(),
        escaped(&act.site.to_string()),
        escaped(act.site.source.as_deref().unwrap_or("")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_diagnose::scene::Site;

    #[test]
    fn nothing_of_a_recording_becomes_markup() {
        let site = Site {
            position: "3+1".into(),
            source: Some("if (a<b && \"c\") '</code><script>'".into()),
            ..Site::default()
        };
        let told = Told {
            what: What::Write,
            by: "thread <1>".into(),
            thread: 1,
            handler: None,
            site,
            value: Some(7),
            locks: vec!["<lock>".into()],
        };
        let cell = cell(&told);
        assert!(
            !cell.contains("<script") && !cell.contains("<lock>"),
            "{cell}"
        );
        assert!(cell.contains("a&lt;b &amp;&amp; &quot;c&quot;"), "{cell}");
        let page = page(&Diagnosis {
            failure: "<img>".into(),
            ..Diagnosis::default()
        });
        assert!(!page.contains("<img>"), "{page}");
    }
}
