//! A slice by statements. In: its members. Out: one entry for each line of source (and thread) with members, newest first, and
//! which of them depend on which. What has no lines is told by function, or by instruction.

use std::path::Path;

use clew_symbols::{Modules, Place};
use rustc_hash::FxHashMap;

use crate::closure::{Slice, Why};

/// Where code is, as people say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Where {
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The program's or library's file name.
    pub module: Option<String>,
    /// Functions and lines that it was inlined into, the innermost first.
    pub inlined: Vec<(String, Option<(String, u32)>)>,
    /// Only where instructions are told one by one.
    pub pc: Option<u64>,
}

/// A line in a slice.
#[derive(Clone, Debug)]
pub struct Statement {
    pub place: Where,
    pub thread: u32,
    /// How many of its instructions, as they were executed, are members.
    pub count: u64,
    /// The newest and the oldest of them.
    pub newest: u32,
    pub oldest: u32,
    pub why: Vec<Why>,
    /// Statements that it depends on, and those that depend on it, the newest first.
    pub uses: Vec<u32>,
    pub used_by: Vec<u32>,
}

/// The statements of a slice; `by_instruction`: each instruction is one.
pub fn statements(slice: &Slice, modules: &Modules, by_instruction: bool) -> Vec<Statement> {
    let mut places: FxHashMap<u64, u32> = FxHashMap::default();
    let mut known: FxHashMap<Where, u32> = FxHashMap::default();
    let mut all_places: Vec<Where> = Vec::new();
    let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut all: Vec<Statement> = Vec::new();
    // Of each member, so that those that it is wanted by are found.
    let mut of = Vec::with_capacity(slice.members.len());
    for (n, member) in slice.members.iter().enumerate() {
        let place = *places.entry(member.pc).or_insert_with(|| {
            let place = place(modules, member.pc, by_instruction);
            *known.entry(place.clone()).or_insert_with(|| {
                all_places.push(place);
                all_places.len() as u32 - 1
            })
        });
        let number = *numbers.entry((place, member.thread)).or_insert_with(|| {
            all.push(Statement {
                place: all_places[place as usize].clone(),
                thread: member.thread,
                count: 0,
                newest: n as u32,
                oldest: n as u32,
                why: Vec::new(),
                uses: Vec::new(),
                used_by: Vec::new(),
            });
            all.len() as u32 - 1
        });
        of.push(number);
        let statement = &mut all[number as usize];
        statement.count += 1;
        statement.oldest = n as u32;
        if !statement.why.contains(&member.why) {
            statement.why.push(member.why);
        }
        let by = member.by.and_then(|by| of.get(by as usize).copied());
        if let Some(by) = by.filter(|by| *by != number) {
            if !statement.used_by.contains(&by) {
                statement.used_by.push(by);
            }
            let user = &mut all[by as usize];
            if !user.uses.contains(&number) {
                user.uses.push(number);
            }
        }
    }
    all
}

/// What is at an address.
pub fn place(modules: &Modules, pc: u64, by_instruction: bool) -> Where {
    let nowhere = Where {
        pc: Some(pc),
        ..Where::default()
    };
    let Some(image) = modules.find(pc) else {
        return nowhere;
    };
    let name = image.module.name().file_name();
    let module = name.map(|name| name.to_string_lossy().into_owned());
    let places = image.module.places_at(image.local(pc)).unwrap_or_default();
    let Some((innermost, outer)) = places.split_first() else {
        return Where { module, ..nowhere };
    };
    let line = |place: &Place| {
        let line = place.line.as_ref().filter(|line| line.line > 0)?;
        Some((line.file.to_string(), line.line))
    };
    let (file, number) = line(innermost).unzip();
    // Each instruction would be its own where nothing is known: functions are enough for what has no lines.
    let named = innermost.function.is_some();
    Where {
        function: innermost.function.clone(),
        pc: (by_instruction || number.is_none() && !named).then_some(pc),
        file,
        line: number,
        module,
        inlined: outer
            .iter()
            .map(|place| (place.function.clone().unwrap_or_default(), line(place)))
            .collect(),
    }
}

impl std::fmt::Display for Where {
    /// `parse input.c:12`, or what there is of it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let function = self.function.as_deref().unwrap_or("??");
        match (&self.file, self.line) {
            (Some(file), Some(line)) => {
                let file = Path::new(file).file_name();
                let file = file.map(|file| file.to_string_lossy()).unwrap_or_default();
                write!(f, "{function} {file}:{line}")
            }
            _ => match &self.module {
                Some(module) => write!(f, "{function} in {module}"),
                None => write!(f, "{function}"),
            },
        }?;
        match self.pc {
            Some(pc) => write!(f, " {pc:#x}"),
            None => Ok(()),
        }
    }
}
