//! In: an expression's text and the program at a moment. Out: its value.

use super::bindings::Bindings;
use super::names::Resolved;
use super::parser;
use super::syntax::{Integer, Kind, Names, Node, Path, Problem, ProblemKind, Span, Unary};
use crate::location::{NoPlace, register_value};
use crate::types::{BaseKind, Record, RecordKind, Type};
use crate::value::{Context, Number, Place, Value, View, address_base};
use crate::variables::{Catalog, Scope};
use crate::{Frame, Modules};
use std::collections::HashMap;
use std::sync::Arc;

/// Deeper stacks are searched no further for a variable's frame.
const MOST_FRAMES: usize = 4096;

/// Evaluates expressions at one moment of a program.
pub struct Evaluator<'a> {
    pub(super) view: View<'a>,
    pub(super) bindings: &'a mut Bindings,
    pub(super) text: String,
    /// What calls of the last expression returned: each call's text and its value's.
    pub(super) returned: Vec<(String, String)>,
    /// By address.
    pub(super) scopes: HashMap<u64, Option<Arc<Scope>>>,
    whole_stack: bool,
    /// Names are those of this frame, and of those around it.
    pub(super) frame: usize,
}

impl<'a> Evaluator<'a> {
    pub fn new(
        catalog: &'a Catalog,
        modules: &'a Modules,
        context: &'a mut dyn Context,
        bindings: &'a mut Bindings,
    ) -> Evaluator<'a> {
        Evaluator {
            view: View {
                catalog,
                modules,
                context,
                frames: Vec::new(),
            },
            bindings,
            text: String::new(),
            returned: Vec::new(),
            scopes: HashMap::new(),
            whole_stack: false,
            frame: 0,
        }
    }

    /// From now on names are those of a frame of the stack; 0 is the innermost. Whether there is one.
    pub fn choose_frame(&mut self, frame: usize) -> bool {
        let there = frame < self.frames(frame > 0).len();
        if there {
            self.frame = frame;
        }
        there
    }

    /// The program at this moment, and the stack as far as it was needed.
    pub fn view(&mut self) -> &mut View<'a> {
        &mut self.view
    }

    pub fn evaluate(&mut self, text: &str) -> Result<Value, Problem> {
        self.text = text.into();
        self.returned.clear();
        let root = parser::parse(text, self)?;
        let value = self.eval(&root)?;
        // References are for the compiler.
        if let Type::Reference(_) = self.strip(&value.of, &root.span)? {
            return Ok(value);
        }
        if let Type::Other { name, size: 0 } = self.strip(&value.of, &root.span)?
            && let Some(message) = no_debug(&name, text)
        {
            return Err(Problem::wrong(&root.span, message));
        }
        // A number that can't be read is no value; of larger things parts may be there.
        if let Type::Base(_) | Type::Enum(_) | Type::Pointer { .. } =
            self.strip(&value.of, &root.span)?
            && !matches!(value.place, Place::Synthetic { .. })
        {
            self.number(&value, &root.span)?;
        }
        Ok(value)
    }

    /// Whether a value counts as true in C.
    pub fn truth(&mut self, value: &Value) -> Result<bool, Problem> {
        let span = 0..self.text.len();
        self.truth_of(value, &span)
    }

    /// The memory that a value is in: address and length; none if it is in registers, or nowhere.
    pub fn memory(&mut self, value: &Value) -> Option<(u64, u64)> {
        let Place::Memory(address) = value.place else {
            return None;
        };
        let size = self.view.catalog.size(&value.of).ok()??;
        Some((address, size))
    }

    pub fn show(&mut self, value: &Value) -> String {
        self.view.show(value)
    }

    /// The calls that were made for the last expression, as they are written in it, and what they
    /// returned.
    pub fn calls(&self) -> &[(String, String)] {
        &self.returned
    }

    pub(super) fn at<T>(&self, span: &Span, result: Result<T, NoPlace>) -> Result<T, Problem> {
        result.map_err(|error| {
            let text = self.text.get(span.clone()).unwrap_or_default();
            let message = match &error {
                NoPlace::Unreadable(address) => {
                    format!("`{text}` needs the memory at {address:#x}, which can't be read here")
                }
                NoPlace::Gone => format!("`{text}` was optimised out here"),
                error => format!("`{text}`: {error}"),
            };
            Problem::undefined(span, message)
        })
    }

    pub(super) fn strip(&self, of: &Type, span: &Span) -> Result<Type, Problem> {
        self.at(span, self.view.catalog.strip(of).map_err(NoPlace::from))
    }

    pub(super) fn truth_of(&mut self, value: &Value, span: &Span) -> Result<bool, Problem> {
        if let Place::Synthetic { .. } = value.place {
            return Ok(true);
        }
        Ok(self.number(value, span)?.truth())
    }

    /// The stack's innermost frame and the inlined ones in it; or all of it.
    pub(super) fn frames(&mut self, whole: bool) -> &[Frame] {
        if self.view.frames.is_empty() || whole && !self.whole_stack {
            let limit = if whole { MOST_FRAMES } else { 1 };
            let registers = self.view.context.registers();
            let context = &mut *self.view.context;
            let mut read = |address: u64, into: &mut [u8]| context.read(address, into);
            let stack = self.view.modules.stack_of(&registers, &mut read, limit);
            self.view.frames = stack.frames;
            self.whole_stack = whole;
        }
        &self.view.frames
    }

    pub(super) fn eval(&mut self, node: &Node) -> Result<Value, Problem> {
        let span = &node.span;
        match &node.kind {
            Kind::Integer(integer) => Ok(literal(*integer)),
            Kind::Float { value, single } => Ok(if *single {
                let float = Type::base("float", 4, BaseKind::Float);
                Value::made(float, &(*value as f32).to_le_bytes())
            } else {
                let double = Type::base("double", 8, BaseKind::Float);
                Value::made(double, &value.to_le_bytes())
            }),
            Kind::Char(byte) => Ok(Value::made(Type::char(), &[*byte])),
            Kind::Text(bytes) => {
                let mut bytes = bytes.clone();
                bytes.push(0);
                let of = Type::Array {
                    of: Arc::new(Type::char()),
                    count: Some(bytes.len() as u64),
                };
                Ok(Value::made(of, &bytes))
            }
            Kind::Name(path) => match self.resolve(path, span)? {
                Resolved::Value(value) => Ok(value),
                Resolved::Type(_) => Err(Problem::wrong(
                    span,
                    format!("`{path}` is a type, not a value"),
                )),
            },
            Kind::Register(name) => self.register(name, span),
            Kind::Member { of, name, .. } => {
                let of = self.eval(of)?;
                self.member(&of, name, span)
            }
            Kind::Index(of, index) => {
                let (mut of, mut index) = (self.eval(of)?, self.eval(index)?);
                // C allows 3[array], too.
                if !self.indexable(&of, span)? && self.indexable(&index, span)? {
                    std::mem::swap(&mut of, &mut index);
                }
                let of = self.referent(of, span)?;
                if !self.indexable(&of, span)? {
                    return Err(Problem::wrong(
                        span,
                        "only arrays and pointers have elements",
                    ));
                }
                let index = self.number(&index, span)?;
                if matches!(index, Number::Float { .. }) {
                    return Err(Problem::wrong(span, "an index must be an integer"));
                }
                let element = self.view.element(&of, index.signed() as i64);
                self.at(span, element)
            }
            Kind::Call(function, arguments) => self.call(function, arguments, None, span),
            Kind::Unary(operation, of) => self.unary(*operation, of, span),
            Kind::Binary(operation, left, right) => {
                let (a, b) = (self.eval(left)?, self.eval(right)?);
                self.binary(*operation, &a, &b, span)
            }
            Kind::And(left, right) => {
                let a = self.eval(left)?;
                if !self.truth_of(&a, &left.span)? {
                    return Ok(Value::int(0));
                }
                let b = self.eval(right)?;
                Ok(Value::int(self.truth_of(&b, &right.span)?.into()))
            }
            Kind::Or(left, right) => {
                let a = self.eval(left)?;
                if self.truth_of(&a, &left.span)? {
                    return Ok(Value::int(1));
                }
                let b = self.eval(right)?;
                Ok(Value::int(self.truth_of(&b, &right.span)?.into()))
            }
            Kind::Choice(condition, yes, no) => {
                let value = self.eval(condition)?;
                if self.truth_of(&value, &condition.span)? {
                    self.eval(yes)
                } else {
                    self.eval(no)
                }
            }
            Kind::Comma(left, right) => {
                self.eval(left)?;
                self.eval(right)
            }
            Kind::Cast(name, of) => {
                let to = self.type_of_name(name)?;
                // What a function without debugging information returns is what it is cast to.
                if let Kind::Call(function, arguments) = &of.kind {
                    let value = self.call(function, arguments, Some(&to), &of.span)?;
                    return self.cast(&value, &to, span);
                }
                let value = self.eval(of)?;
                self.cast(&value, &to, span)
            }
            Kind::Sizeof(of) => {
                let of = match &of.kind {
                    Kind::Name(path) => match self.resolve(path, &of.span)? {
                        Resolved::Value(value) => value.of,
                        Resolved::Type(of) => of,
                    },
                    _ => self.eval(of)?.of,
                };
                self.sizeof(&of, span)
            }
            Kind::SizeofType(name) => {
                let of = self.type_of_name(name)?;
                self.sizeof(&of, span)
            }
        }
    }

    fn sizeof(&mut self, of: &Type, span: &Span) -> Result<Value, Problem> {
        let of = match self.strip(of, span)? {
            Type::Reference(to) => (*to).clone(),
            other => other,
        };
        let size = self.view.catalog.size(&of).map_err(NoPlace::from);
        match self.at(span, size)? {
            Some(size) => Ok(Value::made(Type::unsigned_long(), &size.to_le_bytes())),
            None => Err(Problem::undefined(span, "its size isn't known")),
        }
    }

    fn register(&mut self, name: &str, span: &Span) -> Result<Value, Problem> {
        let registers = match self.frame {
            0 => self.view.context.registers(),
            frame => self.frames(true)[frame].registers.clone(),
        };
        let Some((value, size)) = register_value(&registers, name) else {
            let message = format!("there is no register ${name}");
            return Err(Problem::wrong(span, message));
        };
        let (of, size) = match (name, size) {
            ("rip" | "pc", _) => (Type::Void.pointer(), 8),
            ("rsp" | "sp" | "rbp" | "fp", _) => (Type::Void.pointer(), 8),
            (_, 1) => (Type::base("signed char", 1, BaseKind::Signed), 1),
            (_, 2) => (Type::base("short", 2, BaseKind::Signed), 2),
            (_, 4) => (Type::int(), 4),
            (_, 8) => (Type::long(), 8),
            _ => (Type::base("unsigned __int128", 16, BaseKind::Unsigned), 16),
        };
        Ok(Value::made(of, &value.to_le_bytes()[..size]))
    }

    fn unary(&mut self, operation: Unary, node: &Node, span: &Span) -> Result<Value, Problem> {
        let value = self.eval(node)?;
        match operation {
            Unary::Deref => {
                let value = self.referent(value, span)?;
                match self.strip(&value.of, span)? {
                    Type::Pointer { to, .. } => {
                        if let Type::Void = self.strip(&to, span)? {
                            let message = "a void pointer can't be followed; cast it first";
                            return Err(Problem::wrong(span, message));
                        }
                    }
                    Type::Array { .. } | Type::Function(_) => {}
                    _ => {
                        return Err(Problem::wrong(
                            span,
                            "only pointers can be followed; to follow a number, cast it first: *(int *) x",
                        ));
                    }
                }
                let target = self.view.deref(&value);
                self.at(span, target)
            }
            Unary::Address => {
                let value = self.referent(value, span)?;
                if value.bits.is_some() {
                    return Err(Problem::wrong(span, "a bit field has no address"));
                }
                match value.place {
                    Place::Memory(address) => Ok(Value::pointer(value.of, address)),
                    Place::Gone => self.at(span, Err(NoPlace::Gone)),
                    _ => Err(Problem::undefined(
                        span,
                        "it is not in memory here, so it has no address",
                    )),
                }
            }
            Unary::Not => Ok(Value::int((!self.truth_of(&value, &node.span)?).into())),
            Unary::Complement | Unary::Minus | Unary::Plus => {
                self.arithmetic_unary(operation, &value, span)
            }
        }
    }

    /// What a reference refers to; other values are themselves.
    pub(super) fn referent(&mut self, value: Value, span: &Span) -> Result<Value, Problem> {
        match self.strip(&value.of, span)? {
            Type::Reference(_) => {
                let target = self.view.deref(&value);
                self.at(span, target)
            }
            _ => Ok(value),
        }
    }

    fn indexable(&mut self, value: &Value, span: &Span) -> Result<bool, Problem> {
        let of = match self.strip(&value.of, span)? {
            Type::Reference(to) => self.strip(&to, span)?,
            other => other,
        };
        Ok(matches!(of, Type::Array { .. } | Type::Pointer { .. }))
    }

    /// The record that a value is or points to.
    pub(super) fn record(
        &mut self,
        value: Value,
        span: &Span,
    ) -> Result<Option<(Value, Arc<Record>)>, Problem> {
        let value = self.referent(value, span)?;
        Ok(match self.strip(&value.of, span)? {
            Type::Record(record) => Some((value, record)),
            Type::Pointer { to, .. } => match self.strip(&to, span)? {
                Type::Record(record) => {
                    let target = self.view.deref(&value);
                    Some((self.at(span, target)?, record))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// `.` and `->` do the same: what stands left of them tells which is meant.
    fn member(&mut self, of: &Value, name: &str, span: &Span) -> Result<Value, Problem> {
        let Some((value, record)) = self.record(of.clone(), span)? else {
            let name = self.view.catalog.type_name(&of.of);
            let name = self.at(span, name)?;
            let message = format!("a value of type {name} has no members");
            return Err(Problem::wrong(span, message));
        };
        if record.incomplete {
            let message = "its type is only declared here: what is in it isn't known";
            return Err(Problem::undefined(span, message));
        }
        match self.find_member(&value, &record, name, span, 0)? {
            Some(member) => Ok(member),
            None => {
                let kind = match record.kind {
                    RecordKind::Struct => "struct",
                    RecordKind::Class => "class",
                    RecordKind::Union => "union",
                };
                let of = record.name.as_deref().unwrap_or("{...}");
                let message = format!("{kind} {of} has no member `{name}`{}", close(&record, name));
                Err(Problem::wrong(span, message))
            }
        }
    }

    pub(super) fn find_member(
        &mut self,
        value: &Value,
        record: &Record,
        name: &str,
        span: &Span,
        depth: usize,
    ) -> Result<Option<Value>, Problem> {
        if depth > 50 {
            return Ok(None);
        }
        let bias = self.bias_of(&record.entry);
        let of_name =
            |member: &&crate::types::Member| !member.base && member.name.as_deref() == Some(name);
        if let Some(member) = record.members.iter().find(of_name) {
            let member = self.view.member(value, member, bias);
            return self.at(span, member).map(Some);
        }
        if let Some(variants) = &record.variants {
            let present = self.view.variant(value, record);
            let present = self.at(span, present)?;
            for (n, variant) in variants.variants.iter().enumerate() {
                if of_name(&&variant.member) {
                    if present != Some(n) {
                        let message = format!("it isn't the variant `{name}` here");
                        return Err(Problem::undefined(span, message));
                    }
                    let member = self.view.member(value, &variant.member, bias);
                    return self.at(span, member).map(Some);
                }
            }
        }
        // Base classes, and anonymous structs and unions.
        for member in &record.members {
            if !member.base && member.name.is_some() {
                continue;
            }
            if let Type::Record(inner) = self.strip(&member.of, span)? {
                let part = self.view.member(value, member, bias);
                let part = self.at(span, part)?;
                if let Some(found) = self.find_member(&part, &inner, name, span, depth + 1)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    pub(super) fn cast(&mut self, value: &Value, to: &Type, span: &Span) -> Result<Value, Problem> {
        let stripped = self.strip(to, span)?;
        let from = self.strip(&value.of, span)?;
        // What has no known type is seen as the one it is cast to.
        if let Type::Other { size: 0, .. } = from
            && let Place::Memory(address) = value.place
        {
            return Ok(match stripped {
                Type::Function(_) => Value::new(to.clone(), Place::Memory(address)),
                Type::Pointer { to: inner, .. }
                    if matches!(self.strip(&inner, span)?, Type::Function(_)) =>
                {
                    Value::made(to.clone(), &address.to_le_bytes())
                }
                _ => Value::new(to.clone(), Place::Memory(address)),
            });
        }
        if let Place::Synthetic { .. } = value.place
            && let Type::Pointer { .. } = stripped
        {
            return Ok(Value::new(to.clone(), value.place.clone()));
        }
        match stripped {
            Type::Void => Ok(Value::made(to.clone(), &[])),
            Type::Base(base) => {
                let number = self.number(value, span)?.converted(&base);
                Ok(Value::made(to.clone(), &number.to_bytes()))
            }
            Type::Enum(of) => {
                let number = self.number(value, span)?.converted(&of.base);
                Ok(Value::made(to.clone(), &number.to_bytes()))
            }
            Type::Pointer { .. } => {
                let number = self.number(value, span)?;
                if matches!(number, Number::Float { .. }) {
                    return Err(Problem::wrong(span, "a float is no pointer"));
                }
                let number = number.converted(&address_base());
                Ok(Value::made(to.clone(), &number.to_bytes()))
            }
            Type::Record(_) | Type::Array { .. } | Type::Reference(_) => {
                let value = self.referent(value.clone(), span)?;
                let (a, b) = (
                    self.view.catalog.size(&value.of).map_err(NoPlace::from),
                    self.view.catalog.size(to).map_err(NoPlace::from),
                );
                let same = self.at(span, a)? == self.at(span, b)?;
                match stripped {
                    Type::Reference(inner) => Ok(Value::new((*inner).clone(), value.place)),
                    _ if same => Ok(Value::new(to.clone(), value.place)),
                    _ => Err(Problem::wrong(
                        span,
                        "only numbers and pointers can be cast; to see memory as another type, \
                         cast its address and follow that: *(T *) &x",
                    )),
                }
            }
            _ => Err(Problem::wrong(span, "nothing can be cast to that type")),
        }
    }

    /// The value as a number; arrays and functions are their addresses.
    pub(super) fn number(&mut self, value: &Value, span: &Span) -> Result<Number, Problem> {
        if let Type::Other { name, size: 0 } = self.strip(&value.of, span)? {
            let text = self.text.get(span.clone()).unwrap_or_default();
            if let Some(message) = no_debug(&name, text) {
                return Err(Problem::wrong(span, message));
            }
        }
        let number = self.view.number(value);
        match self.at(span, number)? {
            Some(number) => Ok(number),
            None => {
                if let Type::Array { .. } = self.strip(&value.of, span)? {
                    let message = "a text has no address to compute with; to compare texts, \
                                   call strcmp(a, b) == 0";
                    return Err(Problem::wrong(span, message));
                }
                let name = self.view.catalog.type_name(&value.of);
                let name = self.at(span, name)?;
                let message = format!("a value of type {name} is no number");
                Err(Problem::wrong(span, message))
            }
        }
    }

    pub(super) fn bias_of(&self, entry: &crate::types::Entry) -> u64 {
        let mut images = self.view.modules.modules();
        let image = images.find(|image| std::sync::Arc::ptr_eq(&image.module, &entry.module));
        image.map_or(0, |image| image.bias)
    }
}

/// What to do about something that only the linker knows.
fn no_debug(name: &str, text: &str) -> Option<String> {
    match name {
        super::names::NO_DEBUG_DATA => Some(format!(
            "the type of `{text}` isn't known, as it has no debugging information; cast it, as in (int) {text}"
        )),
        super::names::NO_DEBUG_CODE => Some(format!(
            "`{text}` has no debugging information; to call it, cast the call to what it returns, as in (int) {text}(...)"
        )),
        _ => None,
    }
}

/// ", did you mean `next`?"
fn close(record: &Record, name: &str) -> String {
    let names = record.members.iter().filter_map(|m| m.name.as_deref());
    let wanted = name.to_lowercase();
    let near = names
        .filter(|known| {
            let known = known.to_lowercase();
            known.contains(&wanted) || wanted.contains(&known)
        })
        .min_by_key(|known| known.len().abs_diff(name.len()));
    near.map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

/// The first type of C's list that holds it.
pub(super) fn literal(integer: Integer) -> Value {
    let Integer {
        value,
        unsigned,
        long,
        decimal,
    } = integer;
    let small = !long && value <= u64::from(u32::MAX);
    if small && !unsigned && value <= i32::MAX as u64 {
        return Value::made(Type::int(), &(value as u32).to_le_bytes());
    }
    if small && (unsigned || !decimal) {
        let of = Type::base("unsigned int", 4, BaseKind::Unsigned);
        return Value::made(of, &(value as u32).to_le_bytes());
    }
    if !unsigned && value <= i64::MAX as u64 {
        return Value::made(Type::long(), &value.to_le_bytes());
    }
    Value::made(Type::unsigned_long(), &value.to_le_bytes())
}

impl Names for Evaluator<'_> {
    fn is_type(&mut self, path: &Path) -> bool {
        matches!(self.resolve(path, &(0..0)), Ok(Resolved::Type(_)))
    }

    fn is_template(&mut self, name: &str) -> bool {
        let path = Path::of(name);
        let named = self.view.catalog.named(self.view.modules, &path, |_| true);
        named.is_ok_and(|found| !found.is_empty())
    }
}

impl Problem {
    pub(super) fn unknown(at: &Span, message: impl Into<String>) -> Problem {
        Problem::new(ProblemKind::Unknown, at, message)
    }
}
