//! What a woven recording can't see. In: a program's file. Out: its loader, or the reason why it isn't woven, with the way out.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, SectionKind};

use crate::WeaveError;
use crate::folder::read_bounded;

/// Larger files aren't looked into.
const MOST_BYTES: u64 = 1 << 30;
/// Where libraries are, if nothing else is said.
const FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Libraries whose atomic instructions stand behind functions that are woven, or count references to their own.
const KNOWN: [&str; 11] = [
    "libc.so",
    "libm.so",
    "ld-linux",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libstdc++.so",
    "libgcc_s.so",
    "libresolv.so",
    "libutil.so",
    "libmvec.so",
];
/// Libraries that synchronise by futexes of their own.
const UNSEEN: [(&str, &str); 4] = [
    ("libgomp", "OpenMP's library"),
    ("libomp", "OpenMP's library"),
    ("libtbb", "the library for tasks"),
    ("libgo.so", "Go's library"),
];

const WAY_OUT: &str = "record it with: clew record, or go on all the same with --weave=anyway";

/// The program's loader, if all of the program can be seen. With `anyway`, only what makes it impossible counts.
pub fn look(program: &Path, anyway: bool) -> Result<PathBuf, WeaveError> {
    let refused = |why: String| WeaveError::Refused(format!("{}: {why}", program.display()));
    let io = |why| WeaveError::Io {
        path: program.to_owned(),
        why,
    };
    let meta = program.metadata().map_err(io)?;
    if meta.mode() & 0o6000 != 0 {
        return Err(refused("a set-user-ID or set-group-ID program, into which nothing is preloaded; record it with: clew record".into()));
    }
    let bytes = read_bounded(program, MOST_BYTES).map_err(io)?;
    if bytes.starts_with(b"#!") {
        return Err(refused(
            "a script; weave the program that it runs, or record it with: clew record".into(),
        ));
    }
    let Ok(file) = ElfFile64::<object::Endianness>::parse(&*bytes) else {
        return Err(refused("not a program for this machine".into()));
    };
    let loader = interpreter(&file).ok_or_else(|| {
        refused(
            "a static program, into which nothing can be preloaded; record it with: clew record"
                .into(),
        )
    })?;
    if loader.to_string_lossy().contains("musl") {
        return Err(refused(
            "a program of the C library musl, which isn't woven yet; record it with: clew record"
                .into(),
        ));
    }
    if anyway {
        return Ok(loader);
    }
    let mut all: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut names = needed(&file);
    if let Some(why) = atomics(&file) {
        return Err(refused(format!("{why}; {WAY_OUT}")));
    }
    while let Some(name) = names.pop() {
        if let Some((_, what)) = UNSEEN.iter().find(|(known, _)| name.starts_with(known)) {
            let why = format!(
                "it uses {name}, {what}, which synchronises threads in ways that a woven recording doesn't see"
            );
            return Err(refused(format!("{why}; {WAY_OUT}")));
        }
        if KNOWN.iter().any(|known| name.starts_with(known))
            || all.iter().any(|(path, _)| path.ends_with(&name))
        {
            continue;
        }
        let found = FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join(&name))
            .find(|path| path.exists());
        let Some(path) = found else {
            continue;
        };
        let Ok(bytes) = read_bounded(&path, MOST_BYTES) else {
            continue;
        };
        if let Ok(file) = ElfFile64::<object::Endianness>::parse(&*bytes) {
            names.extend(needed(&file));
            if let Some(why) = atomics(&file) {
                return Err(refused(format!(
                    "its library {}: {why}; {WAY_OUT}",
                    path.display()
                )));
            }
        }
        all.push((path, bytes));
    }
    Ok(loader)
}

fn interpreter(file: &ElfFile64) -> Option<PathBuf> {
    let endian = file.endian();
    let headers = file
        .elf_header()
        .program_headers(endian, file.data())
        .ok()?;
    let one = headers
        .iter()
        .find(|header| header.p_type(endian) == elf::PT_INTERP)?;
    let text = one.data(endian, file.data()).ok()?;
    let text = text.split(|&byte| byte == 0).next()?;
    Some(PathBuf::from(std::str::from_utf8(text).ok()?))
}

/// Names of the libraries that it needs.
fn needed(file: &ElfFile64) -> Vec<String> {
    let Ok(imports) = dynamic(file) else {
        return Vec::new();
    };
    imports
}

fn dynamic(file: &ElfFile64) -> object::Result<Vec<String>> {
    use object::read::elf::{Dyn, SectionHeader};
    let endian = file.endian();
    let mut names = Vec::new();
    let sections = file.elf_section_table();
    for section in sections.iter() {
        let Some((entries, strings)) = section.dynamic(endian, file.data())? else {
            continue;
        };
        let strings = sections.strings(endian, file.data(), strings)?;
        for entry in entries {
            if entry.tag32(endian) == Some(elf::DT_NEEDED) {
                let name = entry.string(endian, strings)?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(names)
}

/// Instructions by which threads synchronise without calling anybody: how many, and the first.
fn atomics(file: &ElfFile64) -> Option<String> {
    let (mut count, mut first) = (0u64, None);
    for section in file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
    {
        let Ok(code) = section.data() else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.code() == Code::INVALID {
                continue;
            }
            let memory =
                (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
            let exchange = instruction.mnemonic() == Mnemonic::Xchg && memory;
            if memory && (instruction.has_lock_prefix() || exchange) {
                count += 1;
                first.get_or_insert((instruction.ip(), instruction.mnemonic()));
            }
        }
    }
    let (at, mnemonic) = first?;
    let name = format!("{mnemonic:?}").to_lowercase();
    let how_many = if count == 1 {
        "an atomic instruction".into()
    } else {
        format!("{count} atomic instructions")
    };
    Some(format!(
        "it has {how_many} of its own (the first at {at:#x}, {name}): what threads do to each other by them, a woven recording doesn't see"
    ))
}
