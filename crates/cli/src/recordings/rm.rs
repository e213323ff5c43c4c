//! `clew rm`: removes recordings.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use super::arguments::Rm;
use super::{find_exactly, name, place};
use crate::text;
use clew_recording::folder::Recordings;
use clew_recording::summary::is_being_written;

pub fn rm(line: &Rm, envp: &[&CStr]) -> i32 {
    let all = match place(envp) {
        Ok(all) => all,
        // Recordings outside can be removed all the same.
        Err(_) if !line.all => Recordings::at(Path::new("/nonexistent")),
        Err(error) => return text::failed(&error),
    };
    let mut status = 0;
    let mut folders: Vec<PathBuf> = Vec::new();
    if line.all {
        let listed = all.list();
        match listed {
            Ok(listed) => folders.extend(listed.into_iter().filter(|folder| {
                folder.join(clew_recording::meta::FILE).is_file()
                    && (line.force || !is_being_written(folder))
            })),
            Err(error) => return text::failed(&format!("{}: {error}", all.dir().display())),
        }
    }
    for word in &line.recordings {
        match find_exactly(envp, word) {
            // The same one twice, by two names.
            Ok(folder) if folders.contains(&folder) => {}
            Ok(folder) => folders.push(folder),
            Err(error) => status = text::failed(&error),
        }
    }
    for folder in folders {
        if is_being_written(&folder) && !line.force {
            let name = name(&folder);
            status = text::failed(&format!(
                "{name} is still being recorded; wait for its end, or: clew rm --force {name}"
            ));
            continue;
        }
        if let Err(error) = all.remove(&folder) {
            status = text::failed(&format!("{}: {error}", folder.display()));
        }
    }
    status
}
