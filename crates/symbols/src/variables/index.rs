//! What has a name at file level: one unit's entries in, names with their kinds out. Bodies of functions
//! are skipped.

use super::{Indexed, normal};
use crate::expr::Path;
use crate::types::Language;
use crate::{Error, Module};
use gimli::{AttributeValue, Reader as _, UnitOffset, constants as dw};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Variable,
    /// Said to be elsewhere.
    DeclaredVariable,
    Function,
    DeclaredFunction,
    Type,
    Enumerator,
}

#[derive(Debug)]
pub(super) struct Named {
    /// With its namespaces.
    pub path: Arc<str>,
    pub kind: Kind,
    pub offset: UnitOffset,
    pub external: bool,
}

#[derive(Debug)]
pub(super) struct UnitIndex {
    pub language: Language,
    /// What was compiled.
    pub file: String,
    /// By the last part of its path.
    names: HashMap<Arc<str>, Vec<usize>>,
    all: Vec<Named>,
    /// Namespaces that can be left out.
    open: HashSet<Arc<str>>,
    /// Full names of entries within namespaces and classes.
    pub paths: HashMap<UnitOffset, Arc<str>>,
}

/// Which units have a name.
#[derive(Debug)]
pub(super) struct ModuleIndex {
    names: HashMap<Arc<str>, Vec<usize>>,
}

impl ModuleIndex {
    pub fn read(indexed: &Indexed) -> Result<ModuleIndex, Error> {
        let mut names: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
        for number in 0..indexed.module.unit_count()? {
            // A damaged unit hides its own names only.
            let Ok(unit) = indexed.unit(number) else {
                continue;
            };
            for name in unit.names.keys() {
                names.entry(name.clone()).or_default().push(number);
            }
        }
        Ok(ModuleIndex { names })
    }

    pub fn units(&self, path: &Path) -> &[usize] {
        let last = normal(path.last());
        self.names.get(last.as_str()).map_or(&[], Vec::as_slice)
    }
}

/// What is read of an entry.
#[derive(Default)]
struct Attributes {
    name: Option<Arc<str>>,
    declaration: bool,
    external: bool,
    located: bool,
    exported: bool,
    low: Option<u64>,
    ranges: bool,
    /// What it is the definition or an instance of.
    other: Option<UnitOffset>,
}

impl UnitIndex {
    pub fn all(&self) -> impl Iterator<Item = &Named> {
        self.all.iter()
    }

    pub fn read(module: &Module, number: usize) -> Result<UnitIndex, Error> {
        let unit = module.unit(number)?;
        let mut language = Language::Other;
        let mut file = String::new();
        let mut entries = unit.entries_raw(None)?;
        let mut index = UnitIndex {
            language,
            file: String::new(),
            names: HashMap::new(),
            all: Vec::new(),
            open: HashSet::new(),
            paths: HashMap::new(),
        };
        // The path of each open scope, outermost first, with the depth of its children.
        let mut scopes: Vec<(isize, Arc<str>)> = Vec::new();
        // Definitions whose name and path are another entry's.
        let mut later: Vec<(UnitOffset, UnitOffset, Kind, bool)> = Vec::new();
        // Children of entries at this depth don't matter.
        let mut skip: Option<isize> = None;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if skip.is_some_and(|above| depth > above) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            skip = None;
            while scopes.last().is_some_and(|(below, _)| depth < *below) {
                scopes.pop();
            }
            let tag = abbreviation.tag();
            let wanted = matches!(
                tag,
                dw::DW_TAG_compile_unit
                    | dw::DW_TAG_partial_unit
                    | dw::DW_TAG_type_unit
                    | dw::DW_TAG_skeleton_unit
                    | dw::DW_TAG_variable
                    | dw::DW_TAG_member
                    | dw::DW_TAG_subprogram
                    | dw::DW_TAG_namespace
                    | dw::DW_TAG_module
                    | dw::DW_TAG_structure_type
                    | dw::DW_TAG_class_type
                    | dw::DW_TAG_union_type
                    | dw::DW_TAG_enumeration_type
                    | dw::DW_TAG_enumerator
                    | dw::DW_TAG_typedef
                    | dw::DW_TAG_template_alias
                    | dw::DW_TAG_base_type
            );
            if !wanted {
                entries.skip_attributes(abbreviation.attributes())?;
                if abbreviation.has_children() {
                    skip = Some(depth);
                }
                continue;
            }
            let mut attributes = Attributes::default();
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                let value = attribute.value();
                match attribute.name() {
                    dw::DW_AT_name => {
                        attributes.name = Some(unit.attr_string(value)?.to_string_lossy()?.into());
                    }
                    dw::DW_AT_declaration => attributes.declaration = true,
                    dw::DW_AT_external => attributes.external = true,
                    dw::DW_AT_location | dw::DW_AT_const_value => attributes.located = true,
                    dw::DW_AT_export_symbols => attributes.exported = true,
                    dw::DW_AT_low_pc => attributes.low = unit.attr_address(value)?,
                    dw::DW_AT_ranges => attributes.ranges = true,
                    dw::DW_AT_specification | dw::DW_AT_abstract_origin => {
                        if let AttributeValue::UnitRef(other) = value {
                            attributes.other = Some(other);
                        }
                    }
                    dw::DW_AT_language => {
                        if let AttributeValue::Language(code) = value {
                            language = Language::of(code);
                        }
                    }
                    _ => {}
                }
            }
            let path = |name: &str| -> Arc<str> {
                match scopes.last() {
                    Some((_, scope)) if !scope.is_empty() => format!("{scope}::{name}").into(),
                    _ => name.into(),
                }
            };
            match tag {
                dw::DW_TAG_compile_unit
                | dw::DW_TAG_partial_unit
                | dw::DW_TAG_type_unit
                | dw::DW_TAG_skeleton_unit => {
                    file = attributes.name.as_deref().unwrap_or_default().into();
                }
                dw::DW_TAG_namespace | dw::DW_TAG_module => {
                    let anonymous = || "(anonymous namespace)".into();
                    let name = attributes.name.clone().unwrap_or_else(anonymous);
                    // What is in an anonymous or inline namespace is in the outer one, too.
                    if attributes.exported || attributes.name.is_none() {
                        index.open.insert(name.clone());
                    }
                    scopes.push((depth + 1, path(&name)));
                }
                dw::DW_TAG_structure_type
                | dw::DW_TAG_class_type
                | dw::DW_TAG_union_type
                | dw::DW_TAG_enumeration_type => {
                    if let Some(name) = &attributes.name {
                        let full = path(name);
                        index.add(&full, Kind::Type, offset, true);
                        // C's enumerators are in the scope around the enumeration; C++'s in both.
                        let of_enum = tag == dw::DW_TAG_enumeration_type;
                        if !of_enum || language != Language::C {
                            scopes.push((depth + 1, full));
                        }
                    }
                }
                dw::DW_TAG_typedef | dw::DW_TAG_template_alias | dw::DW_TAG_base_type => {
                    if let Some(name) = &attributes.name {
                        index.add(&path(name), Kind::Type, offset, true);
                    }
                }
                dw::DW_TAG_enumerator => {
                    if let Some(name) = &attributes.name {
                        index.add(&path(name), Kind::Enumerator, offset, true);
                    }
                }
                dw::DW_TAG_variable | dw::DW_TAG_member => {
                    // A member that isn't static is no variable.
                    let is_static = attributes.external || attributes.declaration;
                    if tag == dw::DW_TAG_variable || is_static {
                        let kind = if attributes.located {
                            Kind::Variable
                        } else {
                            Kind::DeclaredVariable
                        };
                        match (&attributes.name, attributes.other) {
                            (Some(name), _) => {
                                index.add(&path(name), kind, offset, attributes.external);
                            }
                            (None, Some(other)) => later.push((offset, other, kind, true)),
                            _ => {}
                        }
                    }
                }
                dw::DW_TAG_subprogram => {
                    if abbreviation.has_children() {
                        skip = Some(depth);
                    }
                    // The linker leaves what it dropped at zero or thereabouts.
                    let kept = attributes.low.is_some_and(|low| module.is_code(low));
                    let kind = if kept || attributes.ranges {
                        Kind::Function
                    } else {
                        Kind::DeclaredFunction
                    };
                    match (&attributes.name, attributes.other) {
                        (Some(name), _) => {
                            index.add(&path(name), kind, offset, attributes.external);
                        }
                        (None, Some(other)) => {
                            later.push((offset, other, kind, attributes.external));
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        index.language = language;
        index.file = file;
        for (offset, other, kind, external) in later {
            let path = index.paths.get(&other).cloned();
            let path = match path {
                Some(path) => Some(path),
                None => {
                    let die = crate::Die::new(number, other);
                    name_of(module, die)?
                }
            };
            if let Some(path) = path {
                index.add(&path, kind, offset, external);
            }
        }
        Ok(index)
    }

    fn add(&mut self, path: &Arc<str>, kind: Kind, offset: UnitOffset, external: bool) {
        let at = self.all.len();
        let last = crate::expr::split(path).pop().unwrap_or_default();
        self.names.entry(normal(&last).into()).or_default().push(at);
        self.paths.insert(offset, path.clone());
        self.all.push(Named {
            path: path.clone(),
            kind,
            offset,
            external,
        });
    }

    /// Those whose path is this one, or ends with it.
    pub fn named<'a>(
        &'a self,
        path: &'a Path,
        wanted: &'a impl Fn(Kind) -> bool,
    ) -> impl Iterator<Item = &'a Named> {
        let last = normal(path.last());
        let at = self.names.get(last.as_str()).map_or(&[][..], Vec::as_slice);
        at.iter()
            .map(|at| &self.all[*at])
            .filter(move |named| wanted(named.kind) && self.ends_with(&named.path, path))
    }

    fn ends_with(&self, full: &str, path: &Path) -> bool {
        let mut parts = crate::expr::split(full);
        if ends_with(&parts, path) {
            return true;
        }
        let before = parts.len();
        parts.retain(|part| !self.open.contains(part.as_str()));
        parts.len() < before && ends_with(&parts, path)
    }
}

fn ends_with(parts: &[String], path: &Path) -> bool {
    let Some(before) = parts.len().checked_sub(path.parts.len()) else {
        return false;
    };
    if path.global && before != 0 {
        return false;
    }
    parts[before..]
        .iter()
        .zip(&path.parts)
        .all(|(a, b)| a == b || normal(a) == normal(b))
}

fn name_of(module: &Module, die: crate::Die) -> Result<Option<Arc<str>>, Error> {
    let unit = module.unit(die.unit)?;
    let entry = unit.entry(die.offset)?;
    match entry.attr_value(dw::DW_AT_name)? {
        Some(value) => Ok(Some(unit.attr_string(value)?.to_string_lossy()?.into())),
        None => Ok(None),
    }
}
