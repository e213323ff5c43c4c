//! What names of debug code mean in the recorded program. In: a piece of debug code and where it runs, a name. Out: C that
//! is the variable or function in the recorded image, and what each place needs to find it.

use std::collections::{BTreeMap, HashMap};

use clew_symbols::expr::Path;
use clew_symbols::gimli::constants as dw;
use clew_symbols::types::{BaseKind, Entry, Type};
use clew_symbols::variables::{Catalog, Kind};
use clew_symbols::{Image, Modules, SymbolKind};

use crate::locate::{Nowhere, Numbers, Place, Spot};
use crate::rewrite::{Declared, Names};
use crate::types::Types;

/// What a function returns, in debug code.
pub const RETURNED: &str = "__clew_ret";

/// A piece of debug code that runs at instructions.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    pub pcs: Vec<u64>,
    /// At a function's return.
    pub returns: bool,
    /// The file and line that it is to run at, if it was named so.
    pub line: Option<(String, u32)>,
    /// Variables that it uses.
    locals: Vec<Local>,
}

impl Piece {
    pub fn at(pcs: Vec<u64>, returns: bool) -> Piece {
        Piece {
            pcs,
            returns,
            line: None,
            locals: Vec::new(),
        }
    }

    /// The same, at a place that may be FILE:LINE.
    pub fn on(mut self, place: &str) -> Piece {
        let line = place.rsplit_once(':').and_then(|(file, line)| {
            let line = line.parse().ok()?;
            Some((file.to_string(), line))
        });
        self.line = line.filter(|_| !self.returns);
        self
    }
}

/// Where a value is, by instruction; or why it isn't there.
type Places = BTreeMap<u64, Result<Place, Nowhere>>;

#[derive(Clone, Debug)]
struct Local {
    name: String,
    /// As C.
    of: String,
    /// A reference of C++: what is at its place is an address.
    reference: bool,
    /// By instruction, where it is; or why it isn't there.
    places: Places,
}

/// Knows the program.
pub struct Binder<'a> {
    pub modules: &'a Modules,
    pub catalog: &'a Catalog,
    /// An address in the unit.
    pub unit: Option<u64>,
    pub pieces: HashMap<String, Piece>,
    pub cpp: bool,
    /// Types are written from debugging information: there is no source.
    pub types: Option<Types<'a>>,
    /// What can't be bound, in words.
    pub errors: Vec<String>,
    pub numbers: Numbers,
    globals: HashMap<String, Option<String>>,
}

/// A global of the program.
pub struct Global {
    pub address: String,
    pub of: Type,
    pub size: Option<u64>,
}

impl<'a> Binder<'a> {
    pub fn new(
        modules: &'a Modules,
        catalog: &'a Catalog,
        unit: Option<u64>,
        cpp: bool,
    ) -> Binder<'a> {
        Binder {
            modules,
            catalog,
            unit,
            pieces: HashMap::new(),
            cpp,
            types: None,
            errors: Vec::new(),
            numbers: Numbers::default(),
            globals: HashMap::new(),
        }
    }

    fn spot(&self, pc: u64) -> Option<(Image, u64)> {
        self.modules.find(pc).map(|image| (image.clone(), pc))
    }

    /// The name of a type, as C.
    fn type_text(&mut self, of: &Type) -> Result<String, String> {
        if let Some(types) = &mut self.types {
            return types.name(of);
        }
        let name = self
            .catalog
            .type_name(of)
            .map_err(|error| error.to_string())?;
        match name.contains("{...}") || name.contains('?') {
            true => Err("its type has no name".into()),
            false => Ok(name),
        }
    }

    /// The variable of that name that is in sight at an instruction. What is inlined in the line that debug code runs at
    /// isn't: it may begin at the same instruction.
    fn variable_at(&self, piece: &Piece, pc: u64, name: &str) -> Option<Entry> {
        let (image, pc) = self.spot(pc)?;
        let local = image.local(pc);
        let scope = self.catalog.scope(&image, local).ok()??;
        let depth = depth_of(&image, local, piece.line.as_ref()).unwrap_or(usize::MAX);
        let blocks = scope.blocks.iter().filter(|block| block.depth <= depth);
        let mut all = blocks.flat_map(|block| &block.variables);
        all.find(|variable| &*variable.name == name)
            .map(|variable| variable.entry.clone())
    }

    /// The call that an instruction is in, if calls can be told from each other: the function's first instruction, and its
    /// frame as C.
    pub fn call_at(&self, pc: u64) -> Option<(u64, String)> {
        let (image, pc) = self.spot(pc)?;
        let spot = Spot {
            catalog: self.catalog,
            modules: self.modules,
            image: &image,
            pc,
        };
        spot.call()
    }

    fn place_at(&mut self, pc: u64, entry: &Entry, size: Option<u64>) -> Result<Place, Nowhere> {
        let (image, pc) = self.spot(pc).ok_or(Nowhere::Gone)?;
        let spot = Spot {
            catalog: self.catalog,
            modules: self.modules,
            image: &image,
            pc,
        };
        spot.variable(entry, size, &mut self.numbers)
    }

    fn local(&mut self, function: &str, name: &str) -> Option<String> {
        let piece = self.pieces.get(function)?.clone();
        let used = |local: &&Local| local.name == name;
        if let Some(local) = piece.locals.iter().find(used) {
            return Some(shown(local));
        }
        let first = *piece.pcs.first()?;
        let (of, places) = match name == RETURNED && piece.returns {
            true => self.returned(&piece)?,
            false => {
                let found: Vec<(u64, Option<Entry>)> = piece
                    .pcs
                    .iter()
                    .map(|&pc| (pc, self.variable_at(&piece, pc, name)))
                    .collect();
                let entry = found.iter().find_map(|(_, entry)| entry.clone())?;
                let of = entry.type_of().ok()?;
                let size = self.catalog.size(&of).ok().flatten();
                let mut places = BTreeMap::new();
                for (pc, entry) in found {
                    let place = match entry {
                        Some(entry) => self.place_at(pc, &entry, size),
                        None => Err(Nowhere::Gone),
                    };
                    places.insert(pc, place);
                }
                if places.values().all(Result::is_err) {
                    self.errors.push(self.nowhere(name, first, &entry, &places));
                    return Some("0".into());
                }
                (of, places)
            }
        };
        let looked = self.catalog.strip(&of).ok()?;
        let (of, reference) = match looked {
            Type::Reference(to) => ((*to).clone(), true),
            _ => (of, false),
        };
        let of = match self.type_text(&of) {
            Ok(of) => of,
            Err(why) => {
                self.errors
                    .push(format!("{name} can't be used in a probe: {why}"));
                return Some("0".into());
            }
        };
        let local = Local {
            name: name.into(),
            of,
            reference,
            places,
        };
        let text = shown(&local);
        self.pieces.get_mut(function)?.locals.push(local);
        Some(text)
    }

    /// That a variable isn't there, why, and where it is.
    fn nowhere(
        &self,
        name: &str,
        pc: u64,
        entry: &Entry,
        places: &BTreeMap<u64, Result<Place, Nowhere>>,
    ) -> String {
        let why = match places.values().next() {
            Some(Err(Nowhere::Unknown(why))) => why.clone(),
            _ => "the compiler has optimised it away there".into(),
        };
        let lines = self.lines_with(pc, entry);
        let lines = match lines.is_empty() {
            true => String::new(),
            false => format!("; it is there in lines {lines}"),
        };
        format!("{name} has no value where the probe runs: {why}{lines}")
    }

    /// Lines in which a variable has a place.
    fn lines_with(&self, pc: u64, entry: &Entry) -> String {
        let found = || -> Option<String> {
            let (image, _) = self.spot(pc)?;
            let value = entry.attribute(dw::DW_AT_location).ok()??;
            let unit = entry.module.unit(entry.die.unit).ok()?;
            let mut list = unit.attr_locations(value).ok()??;
            let mut lines = Vec::new();
            while let Ok(Some(part)) = list.next() {
                let line = image.module.line_at(part.range.begin).ok().flatten();
                lines.extend(line.map(|line| line.line).filter(|line| *line != 0));
            }
            lines.sort_unstable();
            lines.dedup();
            lines.truncate(12);
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            Some(lines.join(", "))
        };
        found().unwrap_or_default()
    }

    /// The value that a function returns, at its return.
    fn returned(&mut self, piece: &Piece) -> Option<(Type, Places)> {
        let (image, pc) = self.spot(*piece.pcs.first()?)?;
        let scope = self.catalog.scope(&image, image.local(pc)).ok()??;
        let of = scope.function.type_of().ok()?;
        let bare = self.catalog.strip(&of).ok()?;
        let size = self.catalog.size(&of).ok().flatten();
        let (address, vectors) = match (&bare, size) {
            (Type::Void, _) => {
                self.errors
                    .push("the function returns nothing: there is no $ret".into());
                return None;
            }
            (Type::Base(base), _) if base.kind == BaseKind::Float => {
                ("(unsigned long)__clew_hit.x[0]".to_string(), true)
            }
            (Type::Record(_) | Type::Array { .. }, Some(17..)) => ("__clew_hit.r[0]".into(), false),
            _ => ("(unsigned long)&__clew_hit.r[0]".into(), false),
        };
        let place = Place {
            before: String::new(),
            address,
            memory: false,
            vectors,
        };
        Some((
            of,
            piece
                .pcs
                .iter()
                .map(|&pc| (pc, Ok(place.clone())))
                .collect(),
        ))
    }

    /// A variable or function of the program, by its name.
    pub fn global(&mut self, name: &str) -> Option<Global> {
        let path = Path::of(name);
        let wanted = |kind: Kind| matches!(kind, Kind::Variable | Kind::Function);
        let of_unit = self
            .unit
            .map(|pc| self.catalog.in_unit_of(self.modules, pc, &path, wanted));
        let mut found = of_unit.and_then(Result::ok).unwrap_or_default();
        found.extend(
            self.catalog
                .named(self.modules, &path, wanted)
                .unwrap_or_default(),
        );
        let is_variable = found.iter().any(|one| one.kind == Kind::Variable);
        for one in found {
            let image = self.modules.modules().find(|image| {
                image.bias == one.bias && std::sync::Arc::ptr_eq(&image.module, &one.entry.module)
            });
            let Some(image) = image.cloned() else {
                continue;
            };
            if one.kind == Kind::Function {
                let function = image.module.function(one.entry.die).ok().flatten();
                let Some(function) = function.filter(|function| !function.ranges.is_empty()) else {
                    continue;
                };
                return Some(Global {
                    address: format!("{:#x}UL", function.entry.wrapping_add(image.bias)),
                    of: Type::Entry(one.entry.clone()),
                    size: None,
                });
            }
            let of = one.entry.type_of().ok()?;
            let size = self.catalog.size(&of).ok().flatten();
            let spot = Spot {
                catalog: self.catalog,
                modules: self.modules,
                image: &image,
                pc: image.range.start,
            };
            if let Ok(place) = spot.variable(&one.entry, size, &mut self.numbers)
                && place.memory
            {
                return Some(Global {
                    address: place.address,
                    of,
                    size,
                });
            }
        }
        if is_variable {
            return None;
        }
        // What only the symbol table knows.
        let functions = self.modules.functions_named(name).ok()?;
        let (image, function) = functions.first()?;
        Some(Global {
            address: format!("{:#x}UL", function.entry.wrapping_add(image.bias)),
            of: Type::Void,
            size: None,
        })
    }

    /// Optimised as a whole, a program has variables whose places only the symbol table knows.
    fn datum(&self, name: &str) -> Option<Global> {
        let image = self.modules.find(self.unit?)?;
        let symbols = image.module.symbols_named(name).ok()?;
        match &symbols[..] {
            [symbol] if symbol.kind == SymbolKind::Data => Some(Global {
                address: format!("{:#x}UL", symbol.address.wrapping_add(image.bias)),
                of: Type::Void,
                size: Some(symbol.size),
            }),
            _ => None,
        }
    }

    fn global_text(&mut self, name: &str, declared: bool) -> Option<String> {
        if let Some(known) = self.globals.get(name) {
            return known.clone();
        }
        let global = self.global(name);
        let global = global.or_else(|| declared.then(|| self.datum(name)).flatten());
        let text = global.and_then(|global| {
            let of = match (declared, &global.of) {
                (true, _) => name.to_string(),
                (false, Type::Void) => "long (void)".into(),
                (false, Type::Entry(_)) if self.types.is_some() => "long ()".into(),
                (false, of) => self.type_text(&of.clone()).ok()?,
            };
            Some(format!("(*(__typeof__({of}) *){})", global.address))
        });
        self.globals.insert(name.into(), text.clone());
        text
    }

    /// A member that debug code in a member function names without `this`.
    fn member(&mut self, function: &str, name: &str) -> Option<String> {
        let piece = self.pieces.get(function)?;
        let this = self.variable_at(piece, *piece.pcs.first()?, "this")?;
        let of = self.catalog.strip(&this.type_of().ok()?).ok()?;
        let Type::Pointer { to, .. } = of else {
            return None;
        };
        let Type::Record(record) = self.catalog.strip(&to).ok()? else {
            return None;
        };
        let has = |member: &clew_symbols::types::Member| member.name.as_deref() == Some(name);
        if !record.members.iter().any(has) {
            return None;
        }
        let this = self.local(function, "this")?;
        Some(format!("{this}->{name}"))
    }

    /// Calls of a piece, for each of its instructions: C, or the variables that aren't there. Whether vector registers
    /// are needed.
    pub fn call(&self, function: &str, pc: u64) -> Result<(String, bool), String> {
        let Some(piece) = self.pieces.get(function) else {
            return Ok((format!("{function}();"), false));
        };
        let (mut before, mut arguments, mut vectors) = (String::new(), Vec::new(), false);
        for local in &piece.locals {
            match local.places.get(&pc) {
                Some(Ok(place)) => {
                    before += &place.before;
                    vectors |= place.vectors;
                    let address = match local.reference {
                        true => format!("*(unsigned long *)({})", place.address),
                        false => place.address.clone(),
                    };
                    arguments.push(format!("(__typeof__({}) *)({address})", local.of));
                }
                _ => return Err(local.name.clone()),
            }
        }
        Ok((
            format!("{before}{function}({});", arguments.join(", ")),
            vectors,
        ))
    }
}

/// How many inlined functions a line is in, at an address that is in more of them.
fn depth_of(image: &Image, local: u64, line: Option<&(String, u32)>) -> Option<usize> {
    let (file, line) = line?;
    let places = image.module.places_at(local).ok()?;
    let outermost = places.iter().rposition(|place| {
        let of = place.line.as_ref();
        of.is_some_and(|of| of.line == *line && of.file.ends_with(file.as_str()))
    })?;
    Some(places.len() - 1 - outermost)
}

/// A local, as debug code sees it.
fn shown(local: &Local) -> String {
    format!("(*__clew_v_{})", local.name)
}

impl Names for Binder<'_> {
    fn bound(&mut self, function: &str, name: &str, declared: Declared) -> Option<String> {
        if let Some(local) = self.local(function, name) {
            return Some(local);
        }
        if self.cpp
            && name != "this"
            && let Some(member) = self.member(function, name)
        {
            return Some(member);
        }
        if name == "this" || name.starts_with("__clew_") || name.starts_with("__builtin_") {
            return None;
        }
        if declared == Declared::System {
            return None;
        }
        self.global_text(name, declared == Declared::Program)
    }

    fn has_function(&mut self, name: &str) -> bool {
        let path = Path::of(name);
        let wanted = |kind: Kind| kind == Kind::Function;
        let of_unit = self
            .unit
            .map(|pc| self.catalog.in_unit_of(self.modules, pc, &path, wanted));
        let found = of_unit.and_then(Result::ok).unwrap_or_default();
        found.iter().any(|one| {
            let function = one.entry.module.function(one.entry.die).ok().flatten();
            function.is_some_and(|function| !function.ranges.is_empty())
        })
    }

    fn parameters(&mut self, function: &str) -> Option<String> {
        let piece = self.pieces.get(function)?;
        let one = |local: &Local| format!("__typeof__({}) *__clew_v_{}", local.of, local.name);
        let all: Vec<String> = piece.locals.iter().map(one).collect();
        Some(match all.is_empty() {
            true => "void".into(),
            false => all.join(", "),
        })
    }
}
