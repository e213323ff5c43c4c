//! `clew cache`: what is saved from run to run.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

use crate::arguments::Cache;
use crate::text::{ago, quoted, size};
use crate::variables;
use clew_engine::cache::saved::{self, Description};
use clew_engine::cache::store::{Entry, MOST_BYTES, Store};

pub fn cache(line: &Cache, envp: &[&CStr]) -> i32 {
    match text(line, envp) {
        Ok(text) => {
            // A reader that has gone away has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            0
        }
        Err(message) => {
            eprintln!("clew: {message}");
            1
        }
    }
}

fn text(line: &Cache, envp: &[&CStr]) -> Result<String, String> {
    let folder = Store::location(|name| variables::get(envp, name)).ok_or(
        "there is no place for saved translations: none of CLEW_CACHE, XDG_CACHE_HOME and HOME \
         is an absolute path",
    )?;
    let failed = |e: std::io::Error| match e.kind() {
        // It has the path in it.
        std::io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => e.to_string(),
        _ => format!("{}: {e}", folder.display()),
    };
    let store = Store::existing(&folder).map_err(failed)?;
    if line.clear {
        let (files, bytes) = store
            .map_or(Ok((0, 0)), |store| store.clear())
            .map_err(failed)?;
        return Ok(cleared(&folder, files, bytes, line.json));
    }
    let entries = store
        .map_or(Ok(Vec::new()), |store| store.entries())
        .map_err(failed)?;
    let images: Vec<Image> = entries.into_iter().map(Image::new).collect();
    Ok(if line.json {
        json(&folder, &images)
    } else {
        table(&folder, &images, SystemTime::now())
    })
}

struct Image {
    file: Entry,
    /// None: it isn't whole, and never used.
    about: Option<Description>,
}

impl Image {
    fn new(file: Entry) -> Image {
        let about = saved::describe(&file.path);
        Image { file, about }
    }

    /// What to call it: the path it had, or else its build-id, or else the file.
    fn name(&self) -> String {
        let file = || self.file.path.display().to_string();
        match &self.about {
            None => format!("{} (damaged)", file()),
            Some(about) => {
                let mut name = if !about.image.as_os_str().is_empty() {
                    about.image.display().to_string()
                } else if !about.build_id.is_empty() {
                    format!("build-id {}", hex(&about.build_id))
                } else {
                    file()
                };
                if !about.current {
                    name.push_str(" (by another version)");
                }
                name
            }
        }
    }
}

fn cleared(folder: &Path, files: usize, bytes: u64, json: bool) -> String {
    if json {
        let folder = quoted(&folder.to_string_lossy());
        return format!("{{\"folder\":{folder},\"removed\":{files},\"bytes\":{bytes}}}\n");
    }
    let what = if files == 1 { "file" } else { "files" };
    format!(
        "{}: removed {files} {what}, {}\n",
        folder.display(),
        size(bytes)
    )
}

fn total(images: &[Image]) -> u64 {
    images.iter().map(|image| image.file.bytes).sum()
}

fn table(folder: &Path, images: &[Image], now: SystemTime) -> String {
    let what = if images.len() == 1 { "image" } else { "images" };
    let mut text = format!(
        "{}: {} {what}, {} of at most {}\n",
        folder.display(),
        images.len(),
        size(total(images)),
        size(MOST_BYTES)
    );
    if !images.is_empty() {
        let _ = writeln!(text, "\n{:>10}  {:>8}  image", "size", "used");
    }
    for image in images {
        let age = now.duration_since(image.file.used).unwrap_or_default();
        let (size, age) = (size(image.file.bytes), ago(age));
        let _ = writeln!(text, "{size:>10}  {age:>8}  {}", image.name());
    }
    text
}

fn json(folder: &Path, images: &[Image]) -> String {
    let mut text = format!(
        "{{\"folder\":{},\"bytes\":{},\"limit\":{MOST_BYTES},\"images\":[",
        quoted(&folder.to_string_lossy()),
        total(images)
    );
    for (n, image) in images.iter().enumerate() {
        let used = image.file.used.duration_since(SystemTime::UNIX_EPOCH);
        let about = image.about.as_ref();
        let path = about.map(|about| about.image.to_string_lossy());
        let build_id = about.map(|about| hex(&about.build_id));
        let optional = |text: Option<&str>| match text {
            Some(text) if !text.is_empty() => quoted(text),
            _ => "null".into(),
        };
        let _ = write!(
            text,
            "{}{{\"file\":{},\"image\":{},\"build_id\":{},\"bytes\":{},\"code_bytes\":{},\
             \"used\":{},\"usable\":{}}}",
            if n == 0 { "" } else { "," },
            quoted(&image.file.path.to_string_lossy()),
            optional(path.as_deref()),
            optional(build_id.as_deref()),
            image.file.bytes,
            about.map_or(0, |about| about.code),
            used.unwrap_or_default().as_secs(),
            about.is_some_and(|about| about.current),
        );
    }
    text.push_str("]}\n");
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_shown_as_damaged() {
        let path = std::env::temp_dir().join(format!("clew-cache-{}.code", std::process::id()));
        std::fs::write(&path, b"no header").unwrap();
        let image = Image::new(Entry {
            path: path.clone(),
            bytes: 9,
            used: SystemTime::now(),
        });
        assert!(image.name().ends_with("(damaged)"));
        let text = json(Path::new("/x"), &[image]);
        assert!(
            text.contains("\"image\":null") && text.contains("\"usable\":false"),
            "{text}"
        );
        std::fs::remove_file(path).unwrap();
    }
}
