//! Where separate debug files are looked for: a stripped program's build id or debug link comes
//! in, the matching file comes out.

use crate::elf::Elf;
use std::path::{Path, PathBuf};

/// Directories that hold separate debug files, as gdb's `debug-file-directory`.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// Each may hold `.build-id/xx/yyyy.debug`, and `usr/bin/ls.debug` for `/usr/bin/ls`.
    pub dirs: Vec<PathBuf>,
}

impl Default for DebugSearch {
    fn default() -> DebugSearch {
        DebugSearch {
            dirs: vec![PathBuf::from("/usr/lib/debug")],
        }
    }
}

impl DebugSearch {
    /// Looks nowhere: only what the file itself holds is used.
    pub fn nowhere() -> DebugSearch {
        DebugSearch { dirs: Vec::new() }
    }

    /// The separate debug file of `elf`, which is read at `path` and was known as `name`.
    pub(crate) fn debug_file(&self, elf: &Elf, path: &Path, name: &Path) -> Option<Elf> {
        if let Some(found) = elf.build_id.as_ref().and_then(|id| self.by_build_id(id)) {
            return Some(found);
        }
        let (link, crc) = elf.debug_link.as_ref()?;
        // A link is a bare file name; a path in it could lead anywhere.
        let link = Path::new(link.file_name()?);
        let mut homes: Vec<PathBuf> = Vec::new();
        for file in [name, path] {
            let real = file.canonicalize().ok();
            for home in [Some(file), real.as_deref()]
                .into_iter()
                .flatten()
                .filter_map(Path::parent)
            {
                if !homes.iter().any(|known| known == home) {
                    homes.push(home.to_path_buf());
                }
            }
        }
        let beside = homes
            .iter()
            .flat_map(|home| [home.join(link), home.join(".debug").join(link)]);
        let below = self.dirs.iter().flat_map(|dir| {
            homes
                .iter()
                .map(|home| dir.join(home.strip_prefix("/").unwrap_or(home)).join(link))
        });
        beside
            .chain(below)
            .filter(|candidate| candidate != path)
            .find_map(|candidate| {
                let found = Elf::open(&candidate).ok()?;
                let same = match (&elf.build_id, &found.build_id) {
                    (Some(a), Some(b)) => a == b,
                    _ => crc32fast::hash(&found.bytes) == *crc,
                };
                same.then_some(found)
            })
    }

    /// The file that dwz moved common parts of `elf`'s information into.
    pub(crate) fn supplementary(&self, elf: &Elf) -> Option<Elf> {
        let (link, id) = elf.alt_link.as_ref()?;
        let beside = elf.path.parent().map(|home| home.join(link));
        let real = elf.path.canonicalize().ok();
        let beside_real = real
            .as_deref()
            .and_then(Path::parent)
            .map(|home| home.join(link));
        let common = self
            .dirs
            .iter()
            .filter_map(|dir| Some(dir.join(".dwz").join(link.strip_prefix("../../.dwz").ok()?)));
        let named = beside
            .into_iter()
            .chain(beside_real)
            .chain(common)
            .find_map(|candidate| {
                Elf::open(&candidate)
                    .ok()
                    .filter(|found| found.build_id.as_ref() == Some(id))
            });
        named.or_else(|| self.by_build_id(id))
    }

    fn by_build_id(&self, id: &[u8]) -> Option<Elf> {
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.dirs.iter().find_map(|dir| {
            let path = dir.join(format!(".build-id/{first:02x}/{rest}.debug"));
            Elf::open(&path)
                .ok()
                .filter(|found| found.build_id.as_deref() == Some(id))
        })
    }
}
