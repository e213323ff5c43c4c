//! Objects and lines as people know them. In: addresses. Out: variables with their members, functions and lines.

use std::cell::RefCell;
use std::collections::BTreeMap;

use clew_recording::event::ThreadId;
use clew_symbols::expr::Path;
use clew_symbols::types::{Offset, Type};
use clew_symbols::variables::{Catalog, Kind};
use clew_symbols::{Image, Modules, Place};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::gather::ThreadFacts;
use crate::interaction::{Object, ObjectKey};

/// Members of members; a damaged file's circle ends.
const DEEPEST: usize = 16;
/// What is inside these is nobody's business.
const WHOLE: &[&str] = &["pthread_", "sem_t", "mtx_t", "cnd_t", "once_flag"];
/// Files of libraries that the compiler puts into programs.
const LIBRARIES: &[&str] = &["/include/", "/rustc/", "/usr/src/"];

/// Files whose own business isn't the program's.
const C_LIBRARY: &[&str] = &[
    "libc.so",
    "libc-2",
    "libc.musl",
    "libpthread",
    "libgcc_s",
    "[vdso]",
];
const LOADERS: &[&str] = &["ld-linux", "ld-musl"];

/// Whether a file of that name is the C library, or a part of it.
pub fn is_c_library(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    C_LIBRARY.iter().any(|known| name.starts_with(known)) || is_loader(name)
}

/// What binds the program's calls to its libraries.
pub fn is_loader(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    LOADERS.iter().any(|known| name.starts_with(known))
}

pub fn is_c_library_at(modules: &Modules, address: u64) -> bool {
    let image = modules.owner(address);
    image.is_some_and(|image| is_c_library(&image.module.name().to_string_lossy()))
}

/// A place in the program's text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Line {
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The file that the code is in.
    pub module: Option<String>,
}

impl Line {
    /// `a.c:12`, or the function, or the module's name.
    pub fn short(&self) -> Option<String> {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => {
                let name = file.rsplit('/').next().unwrap_or(file);
                Some(format!("{name}:{line}"))
            }
            _ => {
                let module = self
                    .module
                    .as_deref()
                    .map(|m| m.rsplit('/').next().unwrap_or(m));
                self.function.clone().or(module.map(String::from))
            }
        }
    }
}

/// Names of a process's objects, threads and lines.
pub struct Names<'a> {
    catalog: &'a Catalog,
    modules: &'a Modules,
    threads: &'a BTreeMap<ThreadId, ThreadFacts>,
    lines: RefCell<FxHashMap<u64, Line>>,
}

impl<'a> Names<'a> {
    pub fn new(
        catalog: &'a Catalog,
        modules: &'a Modules,
        threads: &'a BTreeMap<ThreadId, ThreadFacts>,
    ) -> Names<'a> {
        Names {
            catalog,
            modules,
            threads,
            lines: RefCell::default(),
        }
    }

    pub fn image(&self, address: u64) -> Option<&Image> {
        self.modules.owner(address)
    }

    /// The line of an address: of the program's own text, where a library's was put into it.
    pub fn line(&self, address: u64) -> Line {
        if let Some(line) = self.lines.borrow().get(&address) {
            return line.clone();
        }
        let line = self.line_anew(address);
        self.lines.borrow_mut().insert(address, line.clone());
        line
    }

    fn line_anew(&self, address: u64) -> Line {
        let Some(image) = self.modules.find(address) else {
            return Line::default();
        };
        let places = image.module.places_at(image.local(address));
        let places = places.unwrap_or_default();
        let own = |place: &&Place| {
            let line = place.line.as_ref().filter(|line| line.line != 0);
            line.is_some_and(|line| !LIBRARIES.iter().any(|part| line.file.contains(part)))
        };
        let place = places.iter().find(own).or(places.first());
        let line = place.and_then(|place| place.line.as_ref());
        let line = line.filter(|line| line.line != 0);
        Line {
            function: place.and_then(|place| place.function.clone()),
            file: line.map(|line| line.file.to_string()),
            line: line.map(|line| line.line),
            module: Some(image.module.name().display().to_string()),
        }
    }

    /// As the paper's figures have it: the function that it began with.
    pub fn thread(&self, thread: ThreadId) -> String {
        let start = self.threads.get(&thread).and_then(|facts| facts.start);
        let function = start.and_then(|start| self.line(start).function);
        match (thread, function) {
            (0, _) => "main".into(),
            (thread, Some(function)) => format!("{thread} {function}"),
            (thread, None) => format!("{thread} thread"),
        }
    }

    pub fn object(&self, object: &Object) -> String {
        if let Some(label) = &object.label {
            return label.clone();
        }
        match object.key {
            ObjectKey::Thread(thread) => format!("thread {thread}"),
            ObjectKey::Memory { addr, which } => {
                let name = self.variable(addr).unwrap_or_else(|| format!("{addr:#x}"));
                match which {
                    0 | 1 => name,
                    which => format!("{name} (made {which} times)"),
                }
            }
            ObjectKey::Channel(number) => format!("channel {number}"),
            ObjectKey::Signal { signo, to } => {
                let name = clew_calls::names::signal(signo);
                match to {
                    Some(thread) => format!("{name} to thread {thread}"),
                    None => name.to_string(),
                }
            }
            ObjectKey::Process(pid) => format!("process {pid}"),
            ObjectKey::SemaphoreSet(id) => format!("semaphore set {id}"),
            ObjectKey::MessageQueue(id) => format!("message queue {id}"),
            ObjectKey::World => "random numbers".into(),
        }
    }

    /// The variable that an address is in, with members and elements: `queue.lock`.
    pub fn variable(&self, address: u64) -> Option<String> {
        let (symbol, offset) = self.catalog.symbol_at(self.modules, address)?;
        // Variables of functions have a number behind their names.
        let name = match symbol.rsplit_once('.') {
            Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => name.to_string(),
            _ => symbol,
        };
        let found = self.catalog.named(self.modules, &Path::of(&name), |kind| {
            kind == Kind::Variable
        });
        let found = found.ok().and_then(|found| found.into_iter().next());
        let inside = found
            .and_then(|found| found.entry.type_of().ok())
            .and_then(|of| self.inside(&of, offset, 0));
        Some(match (inside, offset) {
            (Some(inside), _) => format!("{name}{inside}"),
            (None, 0) => name,
            (None, offset) => format!("{name}+{offset}"),
        })
    }

    fn inside(&self, of: &Type, offset: u64, depth: usize) -> Option<String> {
        if depth > DEEPEST {
            return None;
        }
        match self.catalog.look(of).ok()? {
            Type::Named { name, .. } if WHOLE.iter().any(|whole| name.starts_with(whole)) => {
                Some(String::new())
            }
            Type::Named { of, .. } | Type::Qualified { of, .. } => {
                self.inside(&of, offset, depth + 1)
            }
            Type::Array { of, .. } => {
                let size = self.catalog.size(&of).ok()?.filter(|&size| size > 0)?;
                let rest = self.inside(&of, offset % size, depth + 1)?;
                Some(format!("[{}]{rest}", offset / size))
            }
            Type::Record(record) => {
                let name = record.name.as_deref().unwrap_or_default();
                if name.starts_with("std::") {
                    return Some(String::new());
                }
                for member in &record.members {
                    let Offset::Bytes(start) = member.offset else {
                        continue;
                    };
                    let size = self.catalog.size(&member.of).ok()?.unwrap_or(0);
                    if !(start..start + size).contains(&offset) {
                        continue;
                    }
                    let rest = self.inside(&member.of, offset - start, depth + 1)?;
                    return Some(match &member.name {
                        Some(name) if !member.base => format!(".{name}{rest}"),
                        _ => rest,
                    });
                }
                (offset == 0).then(String::new)
            }
            _ if offset == 0 => Some(String::new()),
            _ => Some(format!("+{offset}")),
        }
    }
}
