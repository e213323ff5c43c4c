//! Making a module: C and C++ text in, an executable file of its own libc out.
//!
//! The installed gcc does it. Options that matter for types come from the program's debugging information, or from a
//! `compile_commands.json` beside its source.

use std::path::{Path, PathBuf};
use std::process::Command;

use clew_symbols::types::Language;
use clew_symbols::variables::Compiled;

use crate::Error;

/// A folder of our own that goes with this.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Scratch, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let base = std::env::temp_dir();
        for n in 0..1000 {
            let path = base.join(format!("clew-probe-{}-{n}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::Scratch(path, error)),
            }
        }
        Err(Error::Compiler(
            "no folder for temporary files is free".into(),
        ))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(|error| Error::Scratch(path.clone(), error))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a unit is compiled.
#[derive(Clone, Debug, Default)]
pub struct Way {
    pub cpp: bool,
    pub directory: Option<PathBuf>,
    pub options: Vec<String>,
}

/// From what is known of the program's unit, and what the user adds.
pub fn way(compiled: &Compiled, source: &Path, more: &[String]) -> Way {
    let cpp = compiled.language == Language::Cpp;
    let directory = compiled.directory.as_ref().map(PathBuf::from);
    let mut options = match commands(source, &compiled.name) {
        Some((_, listed)) => listed,
        None => compiled.producer.as_deref().map(said).unwrap_or_default(),
    };
    let listed = commands(source, &compiled.name).map(|(directory, _)| directory);
    // Of the copy that was given, and of the file that was compiled.
    let first = compiled
        .directory
        .as_ref()
        .map(|folder| Path::new(folder).join(&compiled.name));
    for parent in [Some(source), first.as_deref()]
        .into_iter()
        .flatten()
        .filter_map(Path::parent)
    {
        if !parent.as_os_str().is_empty() {
            options.extend(["-iquote".into(), parent.display().to_string()]);
        }
    }
    options.extend(more.iter().cloned());
    let directory = listed.or(directory).filter(|directory| directory.is_dir());
    Way {
        cpp,
        directory,
        options,
    }
}

/// Whether an option changes what types and macros are.
fn matters(option: &str) -> bool {
    [
        "-std=",
        "-D",
        "-U",
        "-I",
        "-fshort-",
        "-fsigned-",
        "-funsigned-",
        "-fpack-struct",
        "-m32",
        "-fms-",
        "-fchar8",
    ]
    .iter()
    .any(|start| option.starts_with(start))
}

/// Options that the compiler wrote down.
fn said(producer: &str) -> Vec<String> {
    let options = producer.split_whitespace().filter(|word| matters(word));
    options.map(String::from).collect()
}

/// A program's `compile_commands.json`: the folder and the options for that file.
fn commands(source: &Path, name: &str) -> Option<(PathBuf, Vec<String>)> {
    let file = Path::new(name).file_name()?;
    for folder in source.ancestors().skip(1).take(16) {
        let Ok(text) = std::fs::read_to_string(folder.join("compile_commands.json")) else {
            continue;
        };
        let all: serde_json::Value = serde_json::from_str(&text).ok()?;
        let one = all.as_array()?.iter().find(|one| {
            let listed = one.get("file").and_then(|file| file.as_str());
            listed.is_some_and(|listed| Path::new(listed).file_name() == Some(file))
        })?;
        let words: Vec<String> = match (one.get("arguments"), one.get("command")) {
            (Some(all), _) => all
                .as_array()?
                .iter()
                .filter_map(|word| word.as_str().map(String::from))
                .collect(),
            (None, Some(line)) => line
                .as_str()?
                .split_whitespace()
                .map(String::from)
                .collect(),
            _ => return None,
        };
        let mut options = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if ["-I", "-D", "-U", "-include", "-isystem", "-iquote"].contains(&&word[..]) {
                options.push(word);
                options.extend(words.next());
            } else if matters(&word) {
                options.push(word);
            }
        }
        let directory = one.get("directory").and_then(|folder| folder.as_str());
        return Some((directory.map_or(folder.into(), PathBuf::from), options));
    }
    None
}

fn compiler(cpp: bool) -> &'static str {
    match cpp {
        true => "g++",
        false => "gcc",
    }
}

/// Runs the compiler; what it prints on its standard output.
fn run(cpp: bool, directory: Option<&Path>, arguments: &[String]) -> Result<Vec<u8>, Error> {
    let name = compiler(cpp);
    let mut command = Command::new(name);
    command.args(arguments).env("LC_ALL", "C");
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::NoCompiler(name),
        _ => Error::Compiler(format!("{name} can't be run: {error}")),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Compiler(
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| word.to_string()).collect()
}

/// Expands macros and headers.
pub fn preprocess(way: &Way, source: &Path, headers: &Path) -> Result<String, Error> {
    let mut arguments = words(&["-E", "-w", "-Dmain=__clew_program_main"]);
    arguments.extend(way.options.iter().cloned());
    arguments.extend(["-I".into(), headers.display().to_string()]);
    arguments.push(source.display().to_string());
    let text = run(way.cpp, way.directory.as_deref(), &arguments)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Compiles a unit that was expanded already.
pub fn object(way: &Way, source: &Path, to: &Path) -> Result<(), Error> {
    let mut arguments = words(&[
        "-c",
        "-O1",
        "-g",
        "-fPIE",
        "-w",
        "-ffunction-sections",
        "-fdata-sections",
        "-fno-stack-protector",
        "-fno-strict-aliasing",
        "-fpreprocessed",
    ]);
    if way.cpp {
        arguments.extend(words(&["-fno-access-control", "-fpermissive"]));
    }
    let keeps = |option: &&String| {
        ["-std=", "-f", "-m"]
            .iter()
            .any(|start| option.starts_with(start))
    };
    arguments.extend(way.options.iter().filter(keeps).cloned());
    arguments.extend([
        "-o".into(),
        to.display().to_string(),
        source.display().to_string(),
    ]);
    run(way.cpp, way.directory.as_deref(), &arguments).map(drop)
}

/// Compiles what belongs to every module.
pub fn plain_object(source: &Path, to: &Path) -> Result<(), Error> {
    let mut arguments = words(&[
        "-c",
        "-O2",
        "-g",
        "-fPIE",
        "-w",
        "-fno-stack-protector",
        "-o",
    ]);
    arguments.extend([to.display().to_string(), source.display().to_string()]);
    run(false, None, &arguments).map(drop)
}

/// Links it with a libc of its own.
pub fn link(cpp: bool, objects: &[PathBuf], to: &Path) -> Result<(), Error> {
    let mut arguments = words(&[
        "-static-pie",
        "-Wl,--gc-sections",
        "-Wl,--undefined=__clew_enter",
        "-Wl,-z,noexecstack",
        "-o",
    ]);
    arguments.push(to.display().to_string());
    arguments.extend(objects.iter().map(|object| object.display().to_string()));
    arguments.push("-lm".into());
    run(cpp, None, &arguments).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_of_a_compilers_words() {
        let producer =
            "GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2 -std=gnu11 -fshort-enums -DX=1";
        assert_eq!(said(producer), ["-std=gnu11", "-fshort-enums", "-DX=1"]);
    }
}
