//! The storeys of the house: ARCHITECTURE's picture of crates and their dependencies in; that each uses only what is below
//! it out.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    /// Crates and the storeys they are in, the lowest is 0.
    fn storeys(text: &str) -> BTreeMap<String, usize> {
        let picture = text.split_once("```storeys\n").expect("a picture").1;
        let picture = picture.split_once("```").expect("an end").0;
        let lines = picture.lines().rev().enumerate();
        let lines = lines.flat_map(|(storey, line)| {
            // The storey's name, two spaces, its crates.
            let crates = line.trim().split_once("  ").expect("two columns").1;
            let crates = crates.split('·').map(|name| name.trim().to_owned());
            crates.map(move |name| (name, storey))
        });
        lines.collect()
    }

    /// Crates of ours that this one's code uses; what only its tests use doesn't count.
    fn uses(manifest: &str) -> Vec<String> {
        let mut section = "";
        let mut found = Vec::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            } else if let Some((name, _)) = line.split_once(['.', ' ', '='])
                && section == "[dependencies]"
                && let Some(name) = name.strip_prefix("clew-")
            {
                found.push(name.to_owned());
            }
        }
        found
    }

    #[test]
    fn a_crate_uses_what_is_below_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        let storeys = storeys(&text);
        let mut seen = 0;
        for folder in fs::read_dir(root.join("crates")).unwrap() {
            let folder = folder.unwrap();
            let name = folder.file_name().into_string().unwrap();
            let Ok(manifest) = fs::read_to_string(folder.path().join("Cargo.toml")) else {
                continue;
            };
            seen += 1;
            let own = *storeys
                .get(&name)
                .unwrap_or_else(|| panic!("ARCHITECTURE's picture lacks {name}"));
            for used in uses(&manifest) {
                assert!(
                    storeys[&used] < own,
                    "{name} uses {used}, which isn't below it: see the picture in ARCHITECTURE.md"
                );
            }
        }
        assert_eq!(
            seen,
            storeys.len(),
            "the picture has crates that aren't there"
        );
    }

    #[test]
    fn dependencies_are_found() {
        let manifest = "[dependencies]\nclew-calls.workspace = true\nclew-timeline = { path = \"x\" }\n\
                        libc = \"0.2\"\n[dev-dependencies]\nclew-debugger.workspace = true\n";
        assert_eq!(uses(manifest), ["calls", "timeline"]);
        let picture = storeys("```storeys\n top    a · b\n base   c\n```");
        assert_eq!(picture.get("b"), Some(&1));
        assert_eq!(picture.get("c"), Some(&0));
    }
}
