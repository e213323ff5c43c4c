//! The diagram as one page that needs nothing else. In: what is shown. Out: HTML.
//!
//! Names come from recordings, which may be a stranger's: they go into the page as data, and are shown as text.

use rustc_hash::FxHashMap;
use serde_json::json;

use super::Shown;

const PAGE: &str = include_str!("page.html");

/// The page for a recording of that name.
pub fn page(shown: &Shown, name: &str) -> String {
    // Each text once: a hundred thousand rows have few of them.
    let mut numbers: FxHashMap<String, usize> = FxHashMap::default();
    let mut strings: Vec<String> = Vec::new();
    let mut number = |text: Option<&str>| {
        let text = text.unwrap_or_default();
        if let Some(&known) = numbers.get(text) {
            return known;
        }
        numbers.insert(text.into(), strings.len());
        strings.push(text.into());
        strings.len() - 1
    };
    let mut rows = Vec::with_capacity(shown.rows.len());
    for row in &shown.rows {
        let texts = [
            number(Some(row.code)),
            number(Some(row.words)),
            number(Some(&row.name)),
            number(row.line.file.as_deref()),
            number(row.line.function.as_deref()),
        ];
        rows.push(json!([
            row.thread,
            row.object,
            row.t,
            row.position,
            row.line.line,
            texts
        ]));
    }
    let data = json!({
        "name": name,
        "strings": strings,
        "rows": rows,
        "edges": shown.edges,
        "threads": shown.threads,
        "all": shown.all,
    });
    PAGE.replace("/*DATA*/", &safe(&data.to_string()))
}

/// JSON that can't end the element that it is in.
fn safe(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;
    use crate::names::Line;

    #[test]
    fn names_of_strangers_stay_data() {
        let evil = "</script><img src=x onerror=alert(1)>&\u{2028}";
        let row = Row {
            code: "ML",
            words: "mutex lock",
            thread: 0,
            object: 0,
            name: evil.into(),
            t: 1,
            position: "1".into(),
            line: Line {
                file: Some(evil.into()),
                ..Line::default()
            },
            other: None,
        };
        let shown = Shown {
            rows: vec![row],
            edges: Vec::new(),
            threads: vec![(0, evil.into())],
            from_elsewhere: Vec::new(),
            all: 1,
            complete: true,
        };
        let page = page(&shown, evil);
        assert!(!page.contains("<img") && !page.contains("onerror=alert(1)>"));
        assert_eq!(page.matches("</script>").count(), 2);
        // And the data is what it was.
        let start = page.find("type=\"application/json\">").unwrap() + 24;
        let end = start + page[start..].find("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
        assert_eq!(data["name"], evil);
        assert_eq!(data["threads"][0][1], evil);
    }
}
