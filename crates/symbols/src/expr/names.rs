//! In: a name and where the program stands. Out: the variable, function, enumerator or type that it means
//! there.
//!
//! The innermost function's variables come first, then members of `this`, then the file's own and the
//! program's variables and functions, then variables of the calls around, inlined or on the stack. What
//! belongs to libraries comes after all that is the program's: where a program ends, it stands in one.

use super::bindings::Binding;
use super::eval::Evaluator;
use super::syntax::{Path, Problem, Span};
use crate::location::NoPlace;
use crate::types::{Entry, Type};
use crate::value::{Place, Value};
use crate::variables::entries::{code_address, enumeration_of, variables_below};
use crate::variables::{Found, Kind, Scope, SymbolKind, Variable, Whose};
use gimli::constants as dw;
use std::sync::Arc;

pub const NO_DEBUG_DATA: &str = "<data without debugging information>";
pub const NO_DEBUG_CODE: &str = "<function without debugging information>";

pub enum Resolved {
    Value(Value),
    Type(Type),
}

impl Evaluator<'_> {
    pub(super) fn resolve(&mut self, path: &Path, span: &Span) -> Result<Resolved, Problem> {
        if self.bindings.pinned
            && let Some(binding) = self.bindings.known.get(path).cloned()
        {
            return self.bound(&binding, path, span).map(Resolved::Value);
        }
        let simple = path.parts.len() == 1 && path.file.is_none() && !path.global;
        self.frames(false);
        let own = self.is_own(self.frame);
        if simple && own {
            if let Some((variable, frame)) = self.local(path.last(), self.frame) {
                return self.local_value(path, &variable, frame, span);
            }
            if let Some(value) = self.of_this(path.last(), span)? {
                return Ok(Resolved::Value(value));
            }
        }
        // Nobody calls a variable like that; and all modules would be looked through for it.
        let constant = match path.last() {
            "NULL" | "nullptr" => Some(Value::pointer(Type::Void, 0)),
            "true" => Some(Value::int(1)),
            "false" => Some(Value::int(0)),
            _ => None,
        };
        if let (Some(value), true) = (constant, simple) {
            return Ok(Resolved::Value(value));
        }
        if let Some(found) = self.global(path, Whose::Programs, span)? {
            return Ok(found);
        }
        if simple {
            for frame in self.frame + 1..self.frames(true).len() {
                if self.is_own(frame)
                    && let Some((variable, frame)) = self.local(path.last(), frame)
                {
                    return self.local_value(path, &variable, frame, span);
                }
            }
            if let Some((variable, frame)) = self.local(path.last(), self.frame) {
                return self.local_value(path, &variable, frame, span);
            }
        } else if let [function, name] = &path.parts[..]
            && let Some(found) = self.of_function(function, name, path, span)?
        {
            return Ok(found);
        }
        if let Some(found) = self.global(path, Whose::Anybody, span)? {
            return Ok(found);
        }
        let message = format!("there is no `{path}` in sight here");
        Err(Problem::unknown(span, message))
    }

    /// Whether a frame is of the program itself, not of a library.
    fn is_own(&self, frame: usize) -> bool {
        let module = self.view.frames.get(frame).map(|frame| &frame.module);
        match module {
            Some(Some(module)) => self.view.catalog.is_program(module),
            _ => false,
        }
    }

    /// What a name was bound to, as it is here.
    fn bound(&mut self, binding: &Binding, path: &Path, span: &Span) -> Result<Value, Problem> {
        match binding {
            Binding::Global(entry) => {
                let mut images = self.view.modules.modules();
                let image = images.find(|image| Arc::ptr_eq(&image.module, &entry.module));
                let Some(image) = image else {
                    let message = format!(
                        "`{path}` isn't there: {} isn't loaded here",
                        entry.module.name().display()
                    );
                    return Err(Problem::undefined(span, message));
                };
                let bias = image.bias;
                self.global_value(entry, bias, span)
            }
            Binding::Local(entry, function) | Binding::Foreign(entry, function) => {
                let mut frame = 0;
                let mut whole = false;
                loop {
                    if frame >= self.frames(whole).len() {
                        if whole {
                            let message =
                                format!("`{path}` isn't there: {function} isn't being called here");
                            return Err(Problem::unknown(span, message));
                        }
                        whole = true;
                        continue;
                    }
                    let variables = self.variables(frame);
                    for variable in variables {
                        let origin = variable.entry.origin().map_err(NoPlace::from);
                        if self.at(span, origin)? == *entry {
                            return self.variable_value(&variable, frame, span);
                        }
                    }
                    frame += 1;
                }
            }
        }
    }

    pub(super) fn scope_at(&mut self, pc: u64) -> Option<Arc<Scope>> {
        if let Some(known) = self.scopes.get(&pc) {
            return known.clone();
        }
        let image = self.view.modules.find(pc);
        let scope = image.and_then(|image| {
            let scope = self.view.catalog.scope(image, image.local(pc));
            scope.ok().flatten().map(Arc::new)
        });
        self.scopes.insert(pc, scope.clone());
        scope
    }

    /// The variables in sight in a frame, innermost first, and what each is there.
    pub fn variables_in(&mut self, frame: usize) -> Vec<(Variable, Result<Value, Problem>)> {
        if frame >= self.frames(true).len() {
            return Vec::new();
        }
        let span = 0..0;
        let all = self.variables(frame).into_iter();
        all.map(|variable| {
            self.text = variable.name.to_string();
            let value = self.variable_value(&variable, frame, &span);
            (variable, value)
        })
        .collect()
    }

    /// The variables in sight in a frame, innermost first.
    fn variables(&mut self, frame: usize) -> Vec<Variable> {
        let Some(lookup) = self.view.frames.get(frame).map(|frame| frame.lookup) else {
            return Vec::new();
        };
        // How many of the calls inlined there are around this frame's.
        let inlined = self.view.frames[frame..]
            .iter()
            .take_while(|frame| frame.inlined)
            .count();
        let Some(scope) = self.scope_at(lookup) else {
            return Vec::new();
        };
        let blocks = scope.blocks.iter();
        let here = blocks.filter(|block| block.depth == inlined);
        here.flat_map(|block| block.variables.iter().cloned())
            .collect()
    }

    fn local(&mut self, name: &str, frame: usize) -> Option<(Variable, usize)> {
        let mut variables = self.variables(frame).into_iter();
        let variable = variables.find(|variable| &*variable.name == name)?;
        Some((variable, frame))
    }

    fn local_value(
        &mut self,
        path: &Path,
        variable: &Variable,
        frame: usize,
        span: &Span,
    ) -> Result<Resolved, Problem> {
        let origin = variable.entry.origin().map_err(NoPlace::from);
        let origin = self.at(span, origin)?;
        let function = self.view.frames[frame].function.clone();
        let function = function.unwrap_or_else(|| "??".into());
        let binding = match self.is_own(frame) {
            true => Binding::Local(origin, function),
            false => Binding::Foreign(origin, function),
        };
        self.bind(path, binding);
        self.variable_value(variable, frame, span)
            .map(Resolved::Value)
    }

    fn bind(&mut self, path: &Path, binding: Binding) {
        if !self.bindings.pinned {
            self.bindings.known.insert(path.clone(), binding);
        }
    }

    fn variable_value(
        &mut self,
        variable: &Variable,
        frame: usize,
        span: &Span,
    ) -> Result<Value, Problem> {
        let entry = &variable.entry;
        // A declaration within a function of what is elsewhere.
        if let Ok(Some(_)) = entry.attribute(dw::DW_AT_declaration)
            && let Some(found) = self.global(&Path::of(&variable.name), Whose::Anybody, span)?
            && let Resolved::Value(value) = found
        {
            return Ok(value);
        }
        let of = entry.type_of().map_err(NoPlace::from);
        let of = self.at(span, of)?;
        let size = self.view.catalog.size(&of).map_err(NoPlace::from);
        let size = self.at(span, size)?;
        let bias = self.view.frames[frame].bias;
        // The entry value of a parameter needs the caller's frame.
        if frame + 1 >= self.view.frames.len() {
            self.frames(true);
        }
        let place = match self.view.locator(Some(frame)).variable(entry, bias, size) {
            Err(NoPlace::Gone) => Ok(Place::Gone),
            other => other,
        };
        let place = self.at(span, place)?;
        if place == Place::Gone {
            return self.at(span, Err(NoPlace::Gone));
        }
        Ok(Value::new(of, place))
    }

    /// A member of the object that the current method belongs to.
    fn of_this(&mut self, name: &str, span: &Span) -> Result<Option<Value>, Problem> {
        let Some((this, frame)) = self.local("this", self.frame) else {
            return Ok(None);
        };
        let Ok(this) = self.variable_value(&this, frame, span) else {
            return Ok(None);
        };
        match self.record(this, span)? {
            Some((value, record)) => self.find_member(&value, &record, name, span, 0),
            None => Ok(None),
        }
    }

    /// Whether the chosen frame is of the program itself.
    pub(super) fn frame_is_own(&mut self) -> bool {
        self.frames(false);
        self.is_own(self.frame)
    }

    /// A variable of the chosen frame.
    pub(super) fn local_variable(&mut self, name: &str) -> Option<crate::types::Entry> {
        let (variable, _) = self.local(name, self.frame)?;
        Some(variable.entry)
    }

    /// What has the name outside of functions.
    pub(super) fn global(
        &mut self,
        path: &Path,
        whose: Whose,
        span: &Span,
    ) -> Result<Option<Resolved>, Problem> {
        self.frames(false);
        let frame = self.view.frames.get(self.frame);
        let pc = frame.map(|frame| frame.lookup);
        let pc = pc.filter(|_| whose == Whose::Anybody || self.is_own(self.frame));
        let real = |kind| !matches!(kind, Kind::DeclaredVariable | Kind::DeclaredFunction);
        let mut all = Vec::new();
        if path.file.is_none()
            && let Some(pc) = pc
        {
            let here = self
                .view
                .catalog
                .in_unit_of(self.view.modules, pc, path, real);
            all = self.at(span, here.map_err(NoPlace::from))?;
            // A type only if nothing else has that name.
            all.retain(|found| found.kind != Kind::Type);
            self.innermost_namespace(&mut all);
        }
        if all.is_empty() {
            let named = self
                .view
                .catalog
                .named_in(self.view.modules, whose, path, real);
            all = self.at(span, named.map_err(NoPlace::from))?;
        }
        if let Some(found) = self.chosen(&all, path, span)? {
            return Ok(Some(found));
        }
        let symbol = self.linked(path, whose, span)?;
        if symbol.is_some() {
            return Ok(symbol);
        }
        let types: Vec<&Found> = all.iter().filter(|f| f.kind == Kind::Type).collect();
        if let Some(found) = self.chosen_type(&types, span)? {
            return Ok(Some(Resolved::Type(found)));
        }
        Ok(None)
    }

    /// Of several in one unit, those in the namespace where the program is.
    fn innermost_namespace(&mut self, all: &mut Vec<Found>) {
        if all.len() < 2 {
            return;
        }
        let frame = self.view.frames.get(self.frame);
        let function = frame.and_then(|frame| frame.function.clone());
        let function = function.unwrap_or_default();
        let catalog = self.view.catalog;
        let scope_of = |found: &Found| {
            let path = catalog.path(&found.entry).ok().flatten();
            let path = path.unwrap_or_default();
            let end = path.rfind("::").unwrap_or(0);
            path[..end].to_string()
        };
        let fits = |found: &Found| {
            let scope = scope_of(found);
            (scope.is_empty() || function.starts_with(&format!("{scope}::"))).then_some(scope.len())
        };
        if let Some(best) = all.iter().filter_map(&fits).max() {
            all.retain(|found| fits(found) == Some(best));
        }
    }

    /// One of those that have the name, if they leave no doubt.
    fn chosen(
        &mut self,
        all: &[Found],
        path: &Path,
        span: &Span,
    ) -> Result<Option<Resolved>, Problem> {
        let of_kind = |kind| all.iter().filter(move |found| found.kind == kind);
        let variables: Vec<&Found> = of_kind(Kind::Variable).collect();
        let external: Vec<&Found> = variables.iter().copied().filter(|f| f.external).collect();
        let candidates = if external.is_empty() {
            variables
        } else {
            external
        };
        match &candidates[..] {
            [] => {}
            [one] => {
                self.bind(path, Binding::Global(one.entry.clone()));
                let value = self.global_value(&one.entry, one.bias, span)?;
                return Ok(Some(Resolved::Value(value)));
            }
            many => {
                // The same one, seen from several units (C++'s inline variables).
                let mut places = Vec::new();
                for found in many {
                    let value = self.global_value(&found.entry, found.bias, span)?;
                    places.push((found, value));
                }
                if places
                    .windows(2)
                    .all(|two| two[0].1.place == two[1].1.place)
                {
                    let (found, value) = places.swap_remove(0);
                    self.bind(path, Binding::Global(found.entry.clone()));
                    return Ok(Some(Resolved::Value(value)));
                }
                return Err(self.ambiguous(path, many, span));
            }
        }
        if let Some(found) = of_kind(Kind::Function).next() {
            let address = code_address(&found.entry).map_err(NoPlace::from);
            if let Some(address) = self.at(span, address)? {
                let place = Place::Memory(address.wrapping_add(found.bias));
                let of = Type::Entry(found.entry.clone());
                return Ok(Some(Resolved::Value(Value::new(of, place))));
            }
        }
        if let Some(found) = of_kind(Kind::Enumerator).next() {
            return self.enumerator(&found.entry, span).map(Some);
        }
        Ok(None)
    }

    fn ambiguous(&self, path: &Path, many: &[&Found], span: &Span) -> Problem {
        let mut files: Vec<String> = many
            .iter()
            .map(|found| {
                let unit = found.entry.module.unit(found.entry.die.unit);
                let name = unit.ok().and_then(|unit| unit.name.clone());
                let name = name.and_then(|name| {
                    use gimli::Reader as _;
                    Some(name.to_string_lossy().ok()?.into_owned())
                });
                name.unwrap_or_else(|| "?".into())
            })
            .collect();
        files.sort();
        files.dedup();
        let example = files.first().map_or("file.c", String::as_str);
        let example = example.rsplit('/').next().unwrap_or(example);
        let message = format!(
            "several files have their own `{path}` ({}); say which, as in '{example}'::{path}",
            files.join(", ")
        );
        Problem::wrong(span, message)
    }

    pub(super) fn chosen_type(&self, all: &[&Found], span: &Span) -> Result<Option<Type>, Problem> {
        // A definition rather than a declaration.
        let mut first = None;
        for found in all {
            let declared = found.entry.attribute(dw::DW_AT_declaration);
            let declared = self.at(span, declared.map_err(NoPlace::from))?;
            let of = Type::Entry(found.entry.clone());
            if declared.is_none() {
                return Ok(Some(of));
            }
            first.get_or_insert(of);
        }
        Ok(first)
    }

    fn enumerator(&mut self, entry: &Entry, span: &Span) -> Result<Resolved, Problem> {
        let missing = || Problem::undefined(span, "the enumerator's value isn't known");
        let name = entry.name().map_err(NoPlace::from);
        let name = self.at(span, name)?.ok_or_else(missing)?;
        // Its parent is the nearest enumeration before it.
        let parent = enumeration_of(entry).map_err(NoPlace::from);
        let parent = self.at(span, parent)?.ok_or_else(missing)?;
        let of = Type::Entry(parent);
        let Type::Enum(known) = self.strip(&of, span)? else {
            return Err(missing());
        };
        let value = known.values.iter().find(|(other, _)| *other == name);
        let (_, value) = value.ok_or_else(missing)?;
        let size = usize::from(known.base.size.min(16));
        Ok(Resolved::Value(Value::made(
            of,
            &value.to_le_bytes()[..size],
        )))
    }

    pub(super) fn global_value(
        &mut self,
        entry: &Entry,
        bias: u64,
        span: &Span,
    ) -> Result<Value, Problem> {
        let of = entry.type_of().map_err(NoPlace::from);
        let of = self.at(span, of)?;
        let size = self.view.catalog.size(&of).map_err(NoPlace::from);
        let size = self.at(span, size)?;
        let place = self.view.locator(None).variable(entry, bias, size);
        let place = self.at(span, place)?;
        Ok(Value::new(of, place))
    }

    /// What only the linker knows, with the type that somebody declared, if anybody did.
    fn linked(
        &mut self,
        path: &Path,
        whose: Whose,
        span: &Span,
    ) -> Result<Option<Resolved>, Problem> {
        if path.file.is_some() {
            return Ok(None);
        }
        let (catalog, modules) = (self.view.catalog, self.view.modules);
        let declared = |kind| matches!(kind, Kind::DeclaredVariable | Kind::DeclaredFunction);
        let declarations = catalog.named(modules, path, declared);
        let declarations = self.at(span, declarations.map_err(NoPlace::from))?;
        // C++ and Rust have other names for the linker.
        let mut names = vec![path.parts.join("::")];
        for found in &declarations {
            if let Ok(Some(bearer)) = found.entry.bearer(dw::DW_AT_linkage_name)
                && let Ok(Some(name)) = bearer.text(dw::DW_AT_linkage_name)
            {
                names.push(name.to_string());
            }
        }
        let symbol = names.iter().find_map(|name| catalog.symbol(modules, name));
        let symbol = symbol
            .filter(|(image, _)| whose == Whose::Anybody || catalog.is_program(&image.module));
        let Some((image, symbol)) = symbol else {
            return Ok(None);
        };
        let code = matches!(symbol.kind, SymbolKind::Function | SymbolKind::Chooser);
        let wanted = if code {
            Kind::DeclaredFunction
        } else {
            Kind::DeclaredVariable
        };
        let declaration = declarations.iter().find(|found| found.kind == wanted);
        let of = match declaration {
            Some(found) if code => Type::Entry(found.entry.clone()),
            Some(found) => {
                let of = found.entry.type_of().map_err(NoPlace::from);
                self.at(span, of)?
            }
            None => Type::Other {
                name: if code { NO_DEBUG_CODE } else { NO_DEBUG_DATA }.into(),
                size: 0,
            },
        };
        let address = match symbol.kind {
            SymbolKind::Tls => {
                let (module, bias) = (image.module.clone(), image.bias);
                let address = self.view.locator(None).tls(&module, bias, symbol.address);
                self.at(span, address)?
            }
            _ => symbol.address.wrapping_add(image.bias),
        };
        if symbol.kind == SymbolKind::Chooser {
            let chosen = self.choose(address, span)?;
            return Ok(Some(Resolved::Value(Value::new(of, Place::Memory(chosen)))));
        }
        Ok(Some(Resolved::Value(Value::new(
            of,
            Place::Memory(address),
        ))))
    }

    /// `function::variable`: in the innermost call of the function, or a static one.
    fn of_function(
        &mut self,
        function: &str,
        name: &str,
        path: &Path,
        span: &Span,
    ) -> Result<Option<Resolved>, Problem> {
        for frame in 0..self.frames(true).len() {
            let known = self.view.frames[frame].function.as_deref();
            if known.is_some_and(|known| crate::means(function, known))
                && let Some((variable, frame)) = self.local(name, frame)
            {
                return self.local_value(path, &variable, frame, span).map(Some);
            }
        }
        let function_path = Path::of(function);
        let is_function = |kind| kind == Kind::Function;
        let functions = self
            .view
            .catalog
            .named(self.view.modules, &function_path, is_function);
        for found in self.at(span, functions.map_err(NoPlace::from))? {
            let inside = variables_below(&found.entry, name).map_err(NoPlace::from);
            let inside = self.at(span, inside)?;
            if inside.is_empty() {
                continue;
            }
            // A static one is somewhere without any call.
            for entry in &inside {
                if let Ok(value) = self.global_value(entry, found.bias, span) {
                    self.bind(path, Binding::Global(entry.clone()));
                    return Ok(Some(Resolved::Value(value)));
                }
            }
            let message = format!("`{path}` isn't there: {function} isn't being called here");
            return Err(Problem::unknown(span, message));
        }
        Ok(None)
    }
}
