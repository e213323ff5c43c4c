//! A guest's source and a variant's name go in, the path of an executable comes out.
//!
//! Executables are kept in the target folder under a name that depends on everything
//! that went into them, so a second `cargo test` compiles nothing.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::header::Header;
use crate::scratch;

/// A way to build a guest: the kind of image the engine has to load.
struct Variant {
    name: &'static str,
    compiler: &'static str,
    args: &'static [&'static str],
}

const VARIANTS: &[Variant] = &[
    variant("pie", "gcc", &["-O2", "-fPIE", "-pie"]),
    variant("debug", "gcc", &["-O0", "-fPIE", "-pie"]),
    variant("nopie", "gcc", &["-O2", "-fno-pie", "-no-pie"]),
    variant("static", "gcc", &["-O1", "-static", "-fno-pie", "-no-pie"]),
    variant("static-pie", "gcc", &["-O2", "-fPIE", "-static-pie"]),
    variant("musl", "musl-gcc", &["-O2", "-fPIE", "-pie"]),
    variant(
        "musl-static",
        "musl-gcc",
        &["-O2", "-static", "-fno-pie", "-no-pie"],
    ),
    variant("bare", "gcc", &["-O1", "-nostdlib", "-static", "-fno-pie"]),
    variant(
        "bare-pie",
        "gcc",
        &["-O1", "-nostdlib", "-static-pie", "-fPIE"],
    ),
];

const fn variant(
    name: &'static str,
    compiler: &'static str,
    args: &'static [&'static str],
) -> Variant {
    Variant {
        name,
        compiler,
        args,
    }
}

/// The variants to build: those the header names, else the language's usual ones.
pub fn variants(source: &Path, header: &Header) -> Vec<String> {
    if !header.variants.is_empty() {
        return header.variants.clone();
    }
    let usual: &[&str] = match suffix(source) {
        "rs" => &["rust"],
        _ => &["pie", "static"],
    };
    usual.iter().map(|&name| name.to_owned()).collect()
}

/// Builds `source` as `variant`, and the libraries its header names beside it.
pub fn guest(source: &Path, header: &Header, variant: &str) -> Result<Guest, String> {
    let mut command = compiler(source, header, variant)?;
    command.arg(source);
    // Libraries come after what needs them.
    command.args(header.flags.iter().filter(|flag| flag.starts_with("-l")));
    let key = digest(&command, source, header);
    let stem = source
        .file_stem()
        .expect("a source file has a name")
        .to_string_lossy();
    let dir = scratch::root()
        .join("guests")
        .join(format!("{stem}-{variant}-{key:016x}"));
    let guest = Guest {
        program: dir.join(&*stem),
        libs: dir.clone(),
    };
    if guest.program.exists() {
        return Ok(guest);
    }
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for lib in &header.libs {
        library(source, lib, variant, &dir)?;
    }
    // Another test, or test process, may be building the same: whoever renames last wins.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let number = BUILDS.fetch_add(1, Ordering::Relaxed);
    let unfinished = dir.join(format!("{stem}.{}.{number}", process::id()));
    command.arg("-o").arg(&unfinished);
    if !header.libs.is_empty() && suffix(source) != "rs" {
        command.arg(format!("-Wl,-rpath,{}", dir.display()));
        command.arg("-ldl");
    }
    finish(&mut command)?;
    fs::rename(&unfinished, &guest.program).map_err(|error| error.to_string())?;
    Ok(guest)
}

/// A built guest.
pub struct Guest {
    pub program: PathBuf,
    /// The folder with its libraries.
    pub libs: PathBuf,
}

fn suffix(source: &Path) -> &str {
    source.extension().and_then(|s| s.to_str()).unwrap_or("")
}

fn compiler(source: &Path, header: &Header, name: &str) -> Result<Command, String> {
    if name == "rust" {
        let mut command = Command::new("rustc");
        command.args(["--edition=2024", "-O", "-g"]);
        command.args(["--target", "x86_64-unknown-linux-gnu"]);
        command.args(&header.flags);
        return Ok(command);
    }
    let variant = VARIANTS.iter().find(|variant| variant.name == name);
    let variant = variant.ok_or_else(|| format!("no build variant is called {name}"))?;
    let mut command = match suffix(source) {
        "cpp" => Command::new(variant.compiler.replace("gcc", "g++")),
        _ => Command::new(variant.compiler),
    };
    command.args(["-g", "-pthread", "-D_GNU_SOURCE"]);
    command.args(variant.args);
    command.args(header.flags.iter().filter(|flag| !flag.starts_with("-l")));
    command.arg("-I").arg(scratch::sources().join("guests"));
    Ok(command)
}

fn library(source: &Path, lib: &str, variant: &str, dir: &Path) -> Result<(), String> {
    let input = source
        .parent()
        .expect("a source file is in a folder")
        .join("lib")
        .join(lib);
    let compiler = if variant.starts_with("musl") {
        "musl-gcc"
    } else if lib.ends_with(".cpp") {
        "g++"
    } else {
        "gcc"
    };
    let stem = Path::new(lib).with_extension("");
    let mut command = Command::new(compiler);
    command.args(["-g", "-O2", "-fPIC", "-shared", "-D_GNU_SOURCE"]);
    command
        .arg(input)
        .arg("-o")
        .arg(dir.join(format!("lib{}.so", stem.display())));
    finish(&mut command)
}

fn finish(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error} (make setup installs compilers)"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed:\n{errors}"))
}

/// A name for everything the executable is made from.
fn digest(command: &Command, source: &Path, header: &Header) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    let common = scratch::sources().join("guests");
    let common = ["guest.h", "fault.h"].map(|name| common.join(name));
    let lib = source.with_file_name("lib");
    let libs = header.libs.iter().map(|name| lib.join(name));
    for path in [source.to_owned()].into_iter().chain(common).chain(libs) {
        fs::read(path).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}
