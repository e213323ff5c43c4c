//! In: a type's name as written in an expression. Out: the type that the program means by it.

use super::eval::Evaluator;
use super::syntax::{BaseName, Builtin, Derived, Path, Problem, Span, Tag, TypeName};
use crate::location::NoPlace;
use crate::types::{BaseKind, Function, Type};
use crate::variables::{Found, Kind};
use gimli::constants as dw;
use std::sync::Arc;

impl Evaluator<'_> {
    pub(super) fn type_of_name(&mut self, name: &TypeName) -> Result<Type, Problem> {
        let mut of = match &name.base {
            BaseName::Builtin(builtin) => builtin_type(*builtin),
            BaseName::Tagged(tag, path) => self.named_type(path, Some(*tag), &name.span)?,
            BaseName::Named(path) => self.named_type(path, None, &name.span)?,
        };
        for derived in &name.derived {
            of = match derived {
                Derived::Pointer => of.pointer(),
                Derived::Reference => Type::Reference(Arc::new(of)),
                Derived::Array(count) => Type::Array {
                    of: Arc::new(of),
                    count: Some(*count),
                },
                Derived::Function => Type::Function(Arc::new(Function {
                    returns: of,
                    parameters: Vec::new(),
                    variadic: false,
                    open: true,
                })),
            };
        }
        Ok(of)
    }

    fn named_type(&mut self, path: &Path, tag: Option<Tag>, span: &Span) -> Result<Type, Problem> {
        let is_type = |kind| kind == Kind::Type;
        let (catalog, modules) = (self.view.catalog, self.view.modules);
        let pc = self.frames(false).first().map(|frame| frame.lookup);
        let mut all: Vec<Found> = Vec::new();
        if let Some(pc) = pc {
            let here = catalog.in_unit_of(modules, pc, path, is_type);
            all = self.at(span, here.map_err(NoPlace::from))?;
        }
        let anywhere = catalog.named(modules, path, is_type);
        all.extend(self.at(span, anywhere.map_err(NoPlace::from))?);
        let mut fitting = Vec::new();
        for found in &all {
            let is = found.entry.tag().map_err(NoPlace::from);
            let is = self.at(span, is)?;
            let fits = match tag {
                None => true,
                Some(Tag::Struct | Tag::Class) => {
                    is == dw::DW_TAG_structure_type || is == dw::DW_TAG_class_type
                }
                Some(Tag::Union) => is == dw::DW_TAG_union_type,
                Some(Tag::Enum) => is == dw::DW_TAG_enumeration_type,
            };
            if fits {
                fitting.push(found);
            }
        }
        match self.chosen_type(&fitting, span)? {
            Some(of) => Ok(of),
            None => {
                let word = match tag {
                    Some(Tag::Struct) => "struct ",
                    Some(Tag::Class) => "class ",
                    Some(Tag::Union) => "union ",
                    Some(Tag::Enum) => "enum ",
                    None => "type ",
                };
                let message = format!("there is no {word}`{path}` in the program");
                Err(Problem::unknown(span, message))
            }
        }
    }
}

fn builtin_type(builtin: Builtin) -> Type {
    use BaseKind::*;
    use Builtin::*;
    let (name, size, kind) = match builtin {
        Builtin::Void => return Type::Void,
        Builtin::Bool => ("bool", 1, BaseKind::Bool),
        Char => ("char", 1, BaseKind::SignedChar),
        Builtin::SignedChar => ("signed char", 1, BaseKind::SignedChar),
        Builtin::UnsignedChar => ("unsigned char", 1, BaseKind::UnsignedChar),
        Short => ("short", 2, Signed),
        UnsignedShort => ("unsigned short", 2, Unsigned),
        Int => ("int", 4, Signed),
        UnsignedInt => ("unsigned int", 4, Unsigned),
        Long => ("long", 8, Signed),
        UnsignedLong => ("unsigned long", 8, Unsigned),
        LongLong => ("long long", 8, Signed),
        UnsignedLongLong => ("unsigned long long", 8, Unsigned),
        Int128 => ("__int128", 16, Signed),
        UnsignedInt128 => ("unsigned __int128", 16, Unsigned),
        Builtin::Float => ("float", 4, BaseKind::Float),
        Double => ("double", 8, BaseKind::Float),
        LongDouble => ("long double", 16, BaseKind::Float),
    };
    Type::base(name, size, kind)
}
