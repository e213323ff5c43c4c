//! Debug code made ready. In: a request, and a debugger that knows the program. Out: a module for a worker.
//!
//! Each source file of the program that debug code is for becomes a unit: its own text gives types, macros and
//! declarations; debug code follows at its end, each piece as a function. Without a source, types come from debugging
//! information.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use clew_debugger::Debugger;
use clew_symbols::gimli::constants as dw;
use clew_symbols::types::{Entry, Language};
use clew_symbols::variables::Compiled;
use clew_symbols::{DebugSearch, Die, Modules};
use clew_timeline::probing::{Module, Probe, When};

use crate::bind::{Binder, Piece, RETURNED};
use crate::compile::{self, Scratch, Way};
use crate::rewrite::rewrite;
use crate::types::Types;
use crate::watched::{self, Watched};
use crate::{Error, Request, module, places, regions};

const HEADER: &str = include_str!("../module/clew.h");
const START: &str = include_str!("../module/start.c");
/// What debug code may use without saying so.
const INCLUDED: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n";

/// A module that is ready to be run.
pub struct Prepared {
    pub module: Module,
    /// What to call each probe: where it is written; nothing for those that only note what others need.
    pub labels: Vec<String>,
    /// Notices for the user.
    pub notes: Vec<String>,
    /// Probes that run nothing and only count, because a variable has no value there.
    skipped: Vec<Skipped>,
    pub(crate) symbols: Option<clew_symbols::Module>,
    /// Files of debug code, as its debugging information calls them.
    pub(crate) files: Vec<String>,
    /// Something runs at the end.
    at_end: bool,
}

/// A place of a piece of debug code that is left out.
struct Skipped {
    probe: usize,
    label: String,
    variable: String,
}

impl Prepared {
    /// Why debug code can't run in parts of the way, if so.
    pub fn needs_the_whole_way(&self) -> Option<&'static str> {
        match self.at_end {
            true => Some("CLEW_AT_END would run at the end of each part"),
            false if self.labels.iter().any(String::is_empty) => Some(
                "it needs what was noted at a function's entry: an argument, or locals that regions share",
            ),
            false => None,
        }
    }

    /// How often debug code ran, of how often each probe did.
    pub fn runs(&self, hits: &[u64]) -> u64 {
        let counts = |probe: usize, label: &str| {
            !label.is_empty() && self.skipped.iter().all(|one| one.probe != probe)
        };
        let named = hits.iter().zip(&self.labels).enumerate();
        named
            .filter(|(probe, (_, label))| counts(*probe, label))
            .map(|(_, (hits, _))| hits)
            .sum()
    }

    /// How often debug code wasn't run because a variable has no value there, in words.
    pub fn left_out(&self, hits: &[u64]) -> Vec<String> {
        let mut all: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for one in &self.skipped {
            let counted = all.entry((&one.label, &one.variable)).or_default();
            counted.0 += hits.get(one.probe).copied().unwrap_or(0);
            counted.1 += 1;
        }
        let told = all.iter().map(|((label, variable), (times, places))| {
            let times = match times {
                1 => "once".into(),
                times => format!("{times} times"),
            };
            let places = match places {
                1 => "a place".into(),
                places => format!("{places} places"),
            };
            format!("{label}: skipped {times}, at {places} where {variable} has no value")
        });
        told.collect()
    }
}

/// A piece of debug code, before it is compiled.
struct Written {
    text: String,
    /// The file and line that it is written in, for people.
    file: String,
    line: u32,
    pcs: Vec<u64>,
    returns: bool,
    /// As it was named.
    place: String,
    label: String,
    /// The program's function that it runs in.
    function: Option<String>,
}

/// A source file of the program, with the debug code for it.
struct Unit {
    text: String,
    source: PathBuf,
    compiled: Option<Compiled>,
    /// An address of it.
    pc: Option<u64>,
    written: Vec<Written>,
}

fn read(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|error| Error::Source(path.into(), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn compiled_at(debugger: &Debugger, modules: &Modules, pc: u64) -> Option<Compiled> {
    let image = modules.find(pc)?;
    let local = image.local(pc);
    let mut compiled = debugger.catalog().compiled(image, local).ok()??;
    // Optimised as a whole, its functions are instances of what stands in the units that were compiled.
    let written = || {
        let scope = debugger.catalog().scope(image, local).ok()??;
        let bearer = scope.function.bearer(dw::DW_AT_name).ok()??;
        (bearer.die.unit != scope.function.die.unit).then_some(bearer)
    };
    if let Some(written) = written() {
        let unit = written.module.unit(written.die.unit).ok()?;
        let mut entries = unit.entries();
        let (_, root) = entries.next_dfs().ok()??;
        let root = Entry {
            module: written.module.clone(),
            die: Die {
                unit: written.die.unit,
                offset: root.offset(),
            },
        };
        let text = |name| root.text(name).ok().flatten().map(|text| text.to_string());
        compiled.name = text(dw::DW_AT_name).unwrap_or_default();
        compiled.directory = text(dw::DW_AT_comp_dir);
        compiled.producer = text(dw::DW_AT_producer);
    }
    Some(compiled)
}

/// Where the source of a unit is.
fn source_of(compiled: &Compiled) -> PathBuf {
    let name = Path::new(&compiled.name);
    match &compiled.directory {
        Some(directory) if name.is_relative() => Path::new(directory).join(name),
        _ => name.into(),
    }
}

/// The function that the text at these addresses stands in, whether it is inlined or not. At a line's first instruction others
/// may be inlined too.
fn function_at(modules: &Modules, pcs: &[u64], place: &str) -> Option<String> {
    let pc = *pcs.first()?;
    let image = modules.find(pc)?;
    let places = image.module.places_at(image.local(pc)).ok()?;
    let line = place
        .rsplit_once(':')
        .and_then(|(_, line)| line.parse::<u32>().ok());
    let on_line = places.iter().rfind(|one| {
        let of = one.line.as_ref();
        of.is_some_and(|of| Some(of.line) == line)
    });
    on_line.or(places.first())?.function.clone()
}

fn collect(
    debugger: &mut Debugger,
    modules: &Modules,
    request: &Request,
) -> Result<Vec<Unit>, Error> {
    let mut units: BTreeMap<PathBuf, Unit> = BTreeMap::new();
    for path in &request.sources {
        let parted = regions::part(&read(path)?, &path.display().to_string())?;
        if parted.regions.is_empty() {
            let text = format!("{} has no rdb_begin … rdb_end", path.display());
            return Err(Error::Region(text));
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for region in parted.regions {
            let place = format!("{name}:{}", region.before);
            let (pcs, _) = places::addresses(debugger, &place)?;
            let unit = units.entry(path.clone()).or_insert_with(|| Unit {
                text: parted.program.clone(),
                source: path.clone(),
                compiled: pcs
                    .first()
                    .and_then(|&pc| compiled_at(debugger, modules, pc)),
                pc: pcs.first().copied(),
                written: Vec::new(),
            });
            unit.written.push(Written {
                function: function_at(modules, &pcs, &place),
                label: format!("{name}:{}", region.line),
                text: region.text,
                file: path.display().to_string(),
                line: region.line,
                pcs,
                returns: false,
                place,
            });
        }
    }
    for (place, text) in &request.places {
        let (pcs, returns) = places::addresses(debugger, place)?;
        let pc = pcs.first().copied();
        let compiled = pc.and_then(|pc| compiled_at(debugger, modules, pc));
        let source = compiled.as_ref().map(source_of).unwrap_or_default();
        // A copy with regions that was given is the same file.
        let given = units
            .keys()
            .find(|path| path.file_name() == source.file_name() && path.file_name().is_some());
        let key = given.cloned().unwrap_or_else(|| source.clone());
        let unit = units.entry(key).or_insert_with(|| Unit {
            text: read(&source).unwrap_or_default(),
            source,
            compiled,
            pc,
            written: Vec::new(),
        });
        unit.written.push(Written {
            function: function_at(modules, &pcs, place),
            text: text.replace("$ret", RETURNED),
            file: format!("--at {place}"),
            line: 1,
            pcs,
            returns,
            place: place.clone(),
            label: place.clone(),
        });
    }
    Ok(units.into_values().collect())
}

/// That a copy without its regions isn't the file that was compiled, where that is still there.
fn differs(unit: &Unit) -> Option<String> {
    let compiled = source_of(unit.compiled.as_ref()?);
    let first = read(&compiled).ok()?;
    let mut lines = (1..).zip(unit.text.lines().zip(first.lines()));
    let differs = lines.find_map(|(n, (one, other))| (one != other).then_some(n));
    let count = unit.text.lines().count().min(first.lines().count());
    let line = match differs {
        Some(line) => line,
        None if unit.text.lines().count() == first.lines().count() => return None,
        None => count + 1,
    };
    Some(format!(
        "{} without its debug code isn't {}: they differ in line {line}, and lines of the recorded program may be others",
        unit.source.display(),
        compiled.display()
    ))
}

/// Functions whose calls or returns a file of debug code asks for, by the names of its pieces.
fn asked(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (macro_name, piece, suffix) in [
        ("CLEW_ON_CALL(", "__clew_on_call_", ""),
        ("CLEW_ON_RETURN(", "__clew_on_return_", "$"),
    ] {
        for part in text.split(macro_name).skip(1) {
            let name: String = part.chars().take_while(|c| *c != ')').collect();
            let name = name.trim();
            all.push((format!("{piece}{name}"), format!("{name}{suffix}")));
        }
    }
    all
}

/// Makes debug code ready to be run.
pub fn prepare(debugger: &mut Debugger, request: &Request) -> Result<Prepared, Error> {
    let modules = debugger.modules()?;
    let mut units = collect(debugger, &modules, request)?;
    let copies = units
        .iter()
        .filter(|unit| request.sources.contains(&unit.source));
    let notes = copies.filter_map(differs).collect();
    let mut helpers = Vec::new();
    let mut called: BTreeMap<String, Piece> = BTreeMap::new();
    let mut watched = Watched::new();
    for path in &request.with {
        let text = watched::named(debugger, &request.from, &read(path)?, &mut watched)?;
        for (piece, place) in asked(&text) {
            let (mut pcs, returns) = places::addresses(debugger, &place)?;
            if let Some(pc) = pcs.first()
                && units.is_empty()
            {
                let compiled = compiled_at(debugger, &modules, *pc);
                let source = compiled.as_ref().map(source_of).unwrap_or_default();
                units.push(Unit {
                    text: read(&source).unwrap_or_default(),
                    source,
                    compiled,
                    pc: Some(*pc),
                    written: Vec::new(),
                });
            }
            pcs.dedup();
            called.insert(piece, Piece::at(pcs, returns));
        }
        helpers.push((path.clone(), text));
    }
    if units.is_empty() {
        if helpers.is_empty() {
            return Err(Error::Place(
                "there is no debug code: give a copy of a source file with regions, or --at".into(),
            ));
        }
        // Names that it uses are those that `main` sees.
        let pc = places::program(&modules).map(|program| program.main);
        let compiled = pc.and_then(|pc| compiled_at(debugger, &modules, pc));
        let source = compiled.as_ref().map(source_of).unwrap_or_default();
        units.push(Unit {
            text: read(&source).unwrap_or_default(),
            source,
            compiled,
            pc,
            written: Vec::new(),
        });
    }
    let maker = Maker {
        scratch: Scratch::new()?,
        request,
        modules: &modules,
        debugger,
        helpers,
        called,
        watched,
        probes: Vec::new(),
        labels: Vec::new(),
        entries: Vec::new(),
        ends: Vec::new(),
        notes,
        skipped: Vec::new(),
        files: Vec::new(),
    };
    maker.make(&units)
}

struct Maker<'a> {
    scratch: Scratch,
    request: &'a Request,
    modules: &'a Modules,
    debugger: &'a Debugger,
    helpers: Vec<(PathBuf, String)>,
    called: BTreeMap<String, Piece>,
    watched: Watched,
    probes: Vec<Probe>,
    labels: Vec<String>,
    entries: Vec<String>,
    ends: Vec<String>,
    notes: Vec<String>,
    skipped: Vec<Skipped>,
    files: Vec<String>,
}

impl Maker<'_> {
    fn make(mut self, units: &[Unit]) -> Result<Prepared, Error> {
        self.scratch.write("clew.h", HEADER)?;
        let mut objects = Vec::new();
        let mut cpp = false;
        let mut region = 0;
        for (n, unit) in units.iter().enumerate() {
            let (object, is_cpp) = self.unit(n, unit, &mut region)?;
            objects.push(object);
            cpp |= is_cpp;
        }
        let start = self.scratch.write("start.c", START)?;
        let to = self.scratch.path("start.o");
        compile::plain_object(&start, &to)?;
        objects.push(to);
        let tables = self.scratch.write("tables.c", &self.tables())?;
        let to = self.scratch.path("tables.o");
        compile::plain_object(&tables, &to)?;
        objects.push(to);
        let linked = self.scratch.path("module");
        compile::link(cpp, &objects, &linked)?;
        let file = std::fs::read(&linked).map_err(|error| Error::Source(linked.clone(), error))?;
        if self.probes.is_empty() && self.ends.is_empty() {
            return Err(Error::Place("no probe has a place to run at".into()));
        }
        let made = module::read(&file, self.probes, self.request.how)?;
        let symbols = clew_symbols::Module::from_bytes(file, &linked, &DebugSearch::nowhere()).ok();
        Ok(Prepared {
            module: made,
            labels: self.labels,
            notes: self.notes,
            skipped: self.skipped,
            symbols,
            files: self.files,
            at_end: !self.ends.is_empty(),
        })
    }

    /// Which functions run for which probe, and at the end.
    fn tables(&self) -> String {
        let mut text = String::from("struct clew_hit;\n");
        for name in &self.entries {
            text += &format!("extern void {name}(struct clew_hit *);\n");
        }
        for name in &self.ends {
            text += &format!("extern void {name}(void);\n");
        }
        text += "void (*const __clew_entries[])(struct clew_hit *) = {";
        text += &self.entries.join(", ");
        text += ", 0};\nvoid (*const __clew_ends[])(void) = {";
        text += &self
            .ends
            .iter()
            .map(|name| format!("{name}, "))
            .collect::<String>();
        text += "0};\n";
        text.replace("= {, 0}", "= {0}")
    }

    /// Compiles a unit.
    fn unit(
        &mut self,
        n: usize,
        unit: &Unit,
        region: &mut usize,
    ) -> Result<(PathBuf, bool), Error> {
        let language = unit.compiled.as_ref().map(|compiled| compiled.language);
        let has_source =
            !unit.text.is_empty() && matches!(language, Some(Language::C | Language::Cpp));
        let way = match (&unit.compiled, has_source) {
            (Some(compiled), true) => compile::way(compiled, &unit.source, &self.request.options),
            _ => Way {
                options: self.request.options.clone(),
                ..Way::default()
            },
        };
        // Functions of the program that have no code of their own come along, and look at its registers.
        let mut text = String::from("#line 1 \"clew-own\"\n#include \"clew.h\"\n");
        if has_source {
            text += &format!("#line 1 \"{}\"\n{}\n", unit.source.display(), unit.text);
        }
        // Files of debug code are called otherwise until its names are bound: a copy may be called like the program's.
        let mut files: Vec<(String, String)> = vec![("clew-own".into(), "clew.h".into())];
        let c = match way.cpp {
            true => "extern \"C\" ",
            false => "",
        };
        text += &format!("#line 1 \"clew-own\"\n{INCLUDED}");
        for (number, (path, helper)) in self.helpers.iter().enumerate() {
            let name = format!("clew-own-helper-{number}");
            text += &format!("#line 1 \"{name}\"\n{helper}\n");
            files.push((name, path.display().to_string()));
        }
        let mut pieces: Vec<(String, Piece, String)> = Vec::new();
        let mut groups: HashMap<String, usize> = HashMap::new();
        let base = *region;
        for written in &unit.written {
            let function = format!("__clew_region_{region}");
            let name = format!("clew-own-region-{region}");
            *region += 1;
            text += &format!(
                "#line 1 \"clew-own\"\nstatic __attribute__((noinline)) void {function}(void)\n{{\n#line {} \"{name}\"\n{}\n;}}\n",
                written.line, written.text
            );
            files.push((name, written.file.clone()));
            let piece = Piece::at(written.pcs.clone(), written.returns).on(&written.place);
            if written.function.is_some() {
                let same = |one: &Written| one.function == written.function;
                let first = unit.written.iter().position(same).unwrap_or(0);
                groups.insert(function.clone(), base + first);
            }
            pieces.push((function, piece, written.label.clone()));
        }
        let extension = if way.cpp { "cpp" } else { "c" };
        let source = self.scratch.write(&format!("unit{n}.{extension}"), &text)?;
        let headers = source.parent().unwrap_or(Path::new("."));
        let expanded =
            compile::preprocess(&way, &source, headers).map_err(|error| renamed(error, &files))?;
        let own: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        let own = [own, vec![headers.join("clew.h").display().to_string()]].concat();
        let mut binder = Binder::new(self.modules, self.debugger.catalog(), unit.pc, way.cpp);
        if !has_source {
            binder.types = Some(Types::new(self.debugger.catalog()));
        }
        for (name, piece, _) in &pieces {
            binder.pieces.insert(name.clone(), piece.clone());
        }
        for (name, piece) in &self.called {
            binder.pieces.insert(name.clone(), piece.clone());
        }
        let repeated = n > 0;
        let made = rewrite(&expanded, way.cpp, &own, repeated, &groups, &mut binder)
            .map_err(Error::Compiler)?;
        let mut errors = std::mem::take(&mut binder.errors);
        let real = |file: &String| {
            let found = files.iter().find(|(own, _)| own == file);
            found.map_or(file.clone(), |(_, real)| real.clone())
        };
        for (file, line, name) in &made.writes {
            errors.push(format!(
                "{}:{line}: a probe can't write to the program: {name} is its variable",
                real(file)
            ));
        }
        for (file, line, name) in &made.missing {
            errors.push(format!(
                "{}:{line}: {name} isn't in the recorded program: the compiler has left it out",
                real(file)
            ));
        }
        if !errors.is_empty() {
            errors.dedup();
            return Err(Error::Names(errors));
        }
        let types = binder.types.as_ref().map_or("", |types| &types.text);
        let mut text = format!("{types}{}\n# 1 \"clew.h\"\n", made.text);
        for (file, real) in &files {
            text = text.replace(
                &format!("\"{file}\""),
                &format!("\"{}\"", real.escape_default()),
            );
        }
        // Before what runs at the same instruction.
        for function in &binder.numbers.entered {
            let body = format!("__clew_entered({function:#x}UL);");
            self.entry(&mut text, c, &body, When::Pc(*function), false, "");
        }
        groups.retain(|_, group| made.shared.contains(group));
        self.calls_begin(&mut text, c, &binder, &pieces, &groups)?;
        for (name, piece, label) in &pieces {
            let group = groups.get(name).copied();
            self.at_instructions(&mut text, c, &binder, name, piece, label, group)?;
        }
        if !repeated {
            for name in &made.pieces {
                if let Some(piece) = self.called.get(name).cloned() {
                    let label = name.trim_start_matches("__clew_").to_string();
                    self.at_instructions(&mut text, c, &binder, name, &piece, &label, None)?;
                } else {
                    self.event(&mut text, c, &mut binder, name)?;
                }
            }
        }
        // The first is what belongs to every module.
        self.files
            .extend(files.into_iter().skip(1).map(|(_, real)| real));
        let made = self.scratch.write(
            &format!("made{n}.{}", if way.cpp { "ii" } else { "i" }),
            &text,
        )?;
        let to = self.scratch.path(&format!("unit{n}.o"));
        compile::object(&way, &made, &to)?;
        Ok((to, way.cpp))
    }

    fn entry(
        &mut self,
        text: &mut String,
        c: &str,
        body: &str,
        when: When,
        vectors: bool,
        label: &str,
    ) {
        let name = format!("__clew_entry_{}", self.entries.len());
        *text += &format!("{c}void {name}(struct clew_hit *__clew_h)\n{{\n{body}\n}}\n");
        self.entries.push(name);
        self.probes.push(Probe { when, vectors });
        self.labels.push(label.into());
    }

    /// Locals that a function's pieces share begin anew when it is called.
    fn calls_begin(
        &mut self,
        text: &mut String,
        c: &str,
        binder: &Binder<'_>,
        pieces: &[(String, Piece, String)],
        groups: &HashMap<String, usize>,
    ) -> Result<(), Error> {
        let mut begun = BTreeSet::new();
        for (name, piece, label) in pieces {
            let Some(group) = groups.get(name) else {
                continue;
            };
            for &pc in &piece.pcs {
                let Some((function, _)) = binder.call_at(pc) else {
                    let message = format!(
                        "{label}: locals of debug code can't be shared there, because calls of the function can't be told from each other: use globals (--with)"
                    );
                    return Err(Error::Names(vec![message]));
                };
                if begun.insert((*group, function)) {
                    let body = format!(
                        "void **old = __clew_locals({group}, {function:#x}UL, __clew_hit.r[4] + 8); \
                         if (*old) __clew_end_{group}(*old); *old = 0;"
                    );
                    self.entry(text, c, &body, When::Pc(function), false, "");
                }
            }
        }
        Ok(())
    }

    /// A piece that runs before instructions: an entry for each. `group`: whose locals it shares.
    #[allow(clippy::too_many_arguments)]
    fn at_instructions(
        &mut self,
        text: &mut String,
        c: &str,
        binder: &Binder<'_>,
        name: &str,
        piece: &Piece,
        label: &str,
        group: Option<usize>,
    ) -> Result<(), Error> {
        for &pc in &piece.pcs {
            let instance = group.and_then(|group| Some((group, binder.call_at(pc)?)));
            let instance = instance.map_or(String::new(), |(group, (function, frame))| {
                format!(
                    "void **locals = __clew_locals({group}, {function:#x}UL, {frame}); \
                     if (!*locals) *locals = __clew_make_{group}(); __clew_instance = *locals; "
                )
            });
            match binder
                .call(name, pc)
                .map(|(call, vectors)| (instance + &call, vectors))
            {
                Ok((call, vectors)) => self.entry(text, c, &call, When::Pc(pc), vectors, label),
                Err(variable) if self.request.where_available => {
                    self.skipped.push(Skipped {
                        probe: self.probes.len(),
                        label: label.into(),
                        variable,
                    });
                    self.entry(text, c, "", When::Pc(pc), false, label);
                }
                Err(variable) => {
                    let message = format!(
                        "{variable} has no value at {pc:#x}, one of the places of {label}: --where-available leaves such places out"
                    );
                    return Err(Error::Names(vec![message]));
                }
            }
        }
        Ok(())
    }

    /// A call-back for something that isn't an instruction.
    fn event(
        &mut self,
        text: &mut String,
        c: &str,
        binder: &mut Binder<'_>,
        name: &str,
    ) -> Result<(), Error> {
        let rest = name.trim_start_matches("__clew_");
        let label = rest.to_string();
        if rest.starts_with("at_end") {
            let end = format!("__clew_end_{}", self.ends.len());
            *text += &format!("{c}void {end}(void) {{ {name}(); }}\n");
            self.ends.push(end);
        } else if let Some(call) = rest.strip_prefix("on_syscall_") {
            let number = |nr: &u32| clew_engine::kernel::table::lookup(u64::from(*nr)).name == call;
            let nr = (0..512).find(number);
            let nr = nr.ok_or_else(|| Error::Place(format!("there is no system call {call}")))?;
            let arguments = "unsigned long a[6] = {__clew_hit.r[7], __clew_hit.r[6], __clew_hit.r[2], \
                             __clew_hit.r[10], __clew_hit.r[8], __clew_hit.r[9]};";
            for after in [false, true] {
                let result = if after { "(long)__clew_hit.r[0]" } else { "0" };
                let body = format!("{arguments} {name}({}, a, {result});", u8::from(after));
                self.entry(
                    text,
                    c,
                    &body,
                    When::Call {
                        nr: Some(nr),
                        after,
                    },
                    false,
                    &label,
                );
            }
        } else if let Some((kind, variable)) = rest
            .strip_prefix("on_")
            .and_then(|rest| rest.split_once('_'))
            && ["read", "write", "access"].contains(&kind)
        {
            let place = self.watched.get(variable).copied().or_else(|| {
                let global = binder.global(variable)?;
                let digits = global.address.strip_prefix("0x")?.strip_suffix("UL")?;
                Some((u64::from_str_radix(digits, 16).ok()?, global.size?))
            });
            let (addr, len) = place.ok_or_else(|| {
                Error::Place(format!("{variable} isn't a variable of the program that can be watched: it has no place in memory"))
            })?;
            let when = When::Access {
                addr,
                len,
                reads: kind != "write",
                writes: kind != "read",
            };
            let body = format!("{name}(__clew_hit.extra, __clew_hit.extra_too);");
            self.entry(text, c, &body, when, false, &label);
        } else if rest.starts_with("on_thread") {
            self.entry(text, c, &format!("{name}();"), When::Thread, false, &label);
        } else if rest.starts_with("on_signal") {
            self.entry(text, c, &format!("{name}();"), When::Signal, false, &label);
        }
        Ok(())
    }
}

/// Messages name files as people know them.
fn renamed(error: Error, files: &[(String, String)]) -> Error {
    match error {
        Error::Compiler(mut text) => {
            // The longest first: some begin like others.
            for (file, real) in files.iter().rev() {
                text = text.replace(file.as_str(), real);
            }
            Error::Compiler(text)
        }
        error => error,
    }
}
