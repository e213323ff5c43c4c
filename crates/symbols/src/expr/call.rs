//! In: a function of the program and arguments. Out: what it returns, called in a copy that is thrown away.

use super::eval::Evaluator;
use super::names::{NO_DEBUG_CODE, Resolved};
use super::syntax::{Kind, Node, Path, Problem, ProblemKind, Span};
use crate::location::NoPlace;
use crate::types::{BaseKind, Entry, Function, Record, Type};
use crate::value::{Number, Place, Returned, Value};
use crate::variables::Kind as NameKind;
use crate::variables::entries::code_address;
use gimli::constants as dw;
use std::sync::Arc;

/// Arguments in registers, as the ABI has it.
const MOST_ARGUMENTS: usize = 6;

impl Evaluator<'_> {
    /// `returns`: what a function without debugging information is said to return.
    pub(super) fn call(
        &mut self,
        function: &Node,
        arguments: &[Node],
        returns: Option<&Type>,
        span: &Span,
    ) -> Result<Value, Problem> {
        if let Kind::Member { of, name, .. } = &function.kind {
            let object = self.eval(of)?;
            if let Some((value, record)) = self.record(object, span)?
                && self
                    .find_member(&value, &record, name, &function.span, 0)
                    .ok()
                    .flatten()
                    .is_none()
            {
                return self.call_method(&value, &record, name, arguments, span);
            }
        }
        let callee = match &function.kind {
            Kind::Name(path) => match self.resolve(path, &function.span)? {
                Resolved::Value(value) => value,
                // C++'s other way to write a cast.
                Resolved::Type(of) => {
                    let [argument] = arguments else {
                        let message = format!("`{path}` is a type, and takes one value");
                        return Err(Problem::wrong(span, message));
                    };
                    let value = self.eval(argument)?;
                    return self.cast(&value, &of, span);
                }
            },
            _ => self.eval(function)?,
        };
        let callee = self.referent(callee, span)?;
        let (address, known) = self.callee(&callee, &function.span)?;
        let returned = match (&known, returns) {
            (Some(function), _) => function.returns.clone(),
            (None, Some(returns)) => returns.clone(),
            (None, None) => {
                let text = self.text.get(function.span.clone()).unwrap_or_default();
                let message = format!(
                    "`{text}` has no debugging information: say what it returns, as in (int) {text}(...)"
                );
                return Err(Problem::wrong(span, message));
            }
        };
        let mut words = Vec::new();
        self.arguments(arguments, known.as_deref(), &mut words, span)?;
        self.called(address, &words, returned, span)
    }

    /// The code of a function's value, and what is known about it.
    fn callee(
        &mut self,
        callee: &Value,
        span: &Span,
    ) -> Result<(u64, Option<Arc<Function>>), Problem> {
        let no_function = || Problem::wrong(span, "this can't be called: it is no function");
        match self.strip(&callee.of, span)? {
            Type::Function(function) => match callee.place {
                Place::Memory(address) => Ok((address, Some(function))),
                _ => Err(no_function()),
            },
            Type::Other { name, size: 0 } if &*name == NO_DEBUG_CODE => match callee.place {
                Place::Memory(address) => Ok((address, None)),
                _ => Err(no_function()),
            },
            Type::Pointer { to, .. } => match self.strip(&to, span)? {
                Type::Function(function) => {
                    let address = self.number(callee, span)?.signed() as u64;
                    Ok((address, Some(function)))
                }
                _ => Err(no_function()),
            },
            _ => Err(no_function()),
        }
    }

    /// Evaluates arguments and adds them as the registers take them.
    fn arguments(
        &mut self,
        arguments: &[Node],
        function: Option<&Function>,
        words: &mut Vec<u64>,
        span: &Span,
    ) -> Result<(), Problem> {
        // A method's parameters begin with the object.
        let before = words.len();
        if let Some(function) = function.filter(|function| !function.open) {
            let wanted = function.parameters.len().saturating_sub(before);
            let fits = if function.variadic {
                arguments.len() >= wanted
            } else {
                arguments.len() == wanted
            };
            if !fits {
                let least = if function.variadic { "at least " } else { "" };
                let s = if wanted == 1 { "" } else { "s" };
                let message = format!(
                    "the function takes {least}{wanted} argument{s}, not {}",
                    arguments.len()
                );
                return Err(Problem::wrong(span, message));
            }
        }
        for (n, argument) in arguments.iter().enumerate() {
            let parameter = function.and_then(|function| function.parameters.get(before + n));
            let word = self.argument(argument, parameter)?;
            words.push(word);
        }
        if words.len() > MOST_ARGUMENTS {
            let message =
                format!("functions can be called with at most {MOST_ARGUMENTS} arguments");
            return Err(Problem::wrong(span, message));
        }
        Ok(())
    }

    fn argument(&mut self, node: &Node, parameter: Option<&Type>) -> Result<u64, Problem> {
        let span = &node.span;
        let value = match &node.kind {
            Kind::Text(bytes) => {
                let mut bytes = bytes.clone();
                bytes.push(0);
                return self
                    .view
                    .context
                    .place(&bytes)
                    .map_err(|message| Problem::new(ProblemKind::Call, span, message));
            }
            _ => self.eval(node)?,
        };
        let parameter = match parameter {
            Some(parameter) => Some(self.strip(parameter, span)?),
            None => None,
        };
        let floats = || {
            Problem::wrong(
                span,
                "floating-point arguments can't be passed; only integers and pointers can",
            )
        };
        if let Some(Type::Reference(_)) = parameter {
            let value = self.referent(value, span)?;
            return match value.place {
                Place::Memory(address) => Ok(address),
                _ => Err(Problem::undefined(
                    span,
                    "it is not in memory here, so there can be no reference to it",
                )),
            };
        }
        let number = self.number(&value, span)?;
        let number = match &parameter {
            Some(Type::Base(base)) => number.converted(base),
            Some(Type::Enum(of)) => number.converted(&of.base),
            Some(Type::Record(_)) => {
                let message = "structures can't be passed; only integers and pointers can";
                return Err(Problem::wrong(span, message));
            }
            _ => number,
        };
        match number {
            Number::Float { .. } => Err(floats()),
            number if number.base().size > 8 => Err(Problem::wrong(
                span,
                "integers of more than 64 bits can't be passed",
            )),
            number => Ok(number.signed() as u64),
        }
    }

    fn called(
        &mut self,
        address: u64,
        words: &[u64],
        returns: Type,
        span: &Span,
    ) -> Result<Value, Problem> {
        // Before the call, so that a refusal costs nothing.
        let kind = self.strip(&returns, span)?;
        match &kind {
            Type::Record(_) | Type::Array { .. } | Type::Other { .. } => {
                let message = "functions that return structures can't be called";
                return Err(Problem::wrong(span, message));
            }
            Type::Base(base) if base.size > 8 => {
                let message = "functions that return more than 64 bits can't be called";
                return Err(Problem::wrong(span, message));
            }
            _ => {}
        }
        let text = self.text.get(span.clone()).unwrap_or_default().to_string();
        let Returned { rax, xmm0 } = self
            .view
            .context
            .call(address, words)
            .map_err(|why| Problem::new(ProblemKind::Call, span, format!("`{text}` {why}")))?;
        let value = match kind {
            Type::Void => Value::made(returns, &[]),
            Type::Base(base) if base.kind == BaseKind::Float => {
                let Some(xmm0) = xmm0 else {
                    let message = "the floating-point result of a call can't be read here";
                    return Err(Problem::wrong(span, message));
                };
                Value::made(returns, &xmm0.to_le_bytes()[..base.size.into()])
            }
            Type::Base(base) => Value::made(returns, &rax.to_le_bytes()[..base.size.into()]),
            Type::Enum(of) => {
                let size = of.base.size.min(8);
                Value::made(returns, &rax.to_le_bytes()[..size.into()])
            }
            _ => Value::made(returns, &rax.to_le_bytes()),
        };
        let shown = self.view.show(&value);
        self.returned.push((text, shown));
        Ok(value)
    }

    /// Asks the function that chooses a function (glibc has several `strlen`).
    pub(super) fn choose(&mut self, chooser: u64, span: &Span) -> Result<u64, Problem> {
        let text = self.text.get(span.clone()).unwrap_or_default().to_string();
        let returned = self
            .view
            .context
            .call(chooser, &[])
            .map_err(|why| Problem::new(ProblemKind::Call, span, format!("`{text}` {why}")))?;
        Ok(returned.rax)
    }

    fn call_method(
        &mut self,
        object: &Value,
        record: &Arc<Record>,
        name: &str,
        arguments: &[Node],
        span: &Span,
    ) -> Result<Value, Problem> {
        let mut found = Vec::new();
        self.methods(object, record, name, span, 0, &mut found)?;
        // The object counts as one.
        let mut fitting = Vec::new();
        for (object, method) in found {
            let of = Type::Entry(method.clone());
            if let Type::Function(function) = self.strip(&of, span)?
                && (function.parameters.len() == arguments.len() + 1 || function.variadic)
            {
                fitting.push((object, method, function));
            }
        }
        let class = record.name.as_deref().unwrap_or("{...}");
        let (object, method, function) = match &fitting[..] {
            [one] => one.clone(),
            [] => {
                let message = format!(
                    "{class} has no member `{name}` that takes {} arguments",
                    arguments.len()
                );
                return Err(Problem::wrong(span, message));
            }
            _ => {
                let message = format!("{class} has several `{name}` that take so many arguments");
                return Err(Problem::wrong(span, message));
            }
        };
        let Place::Memory(this) = object.place else {
            let message = "the object is not in memory here, so it can't be asked";
            return Err(Problem::undefined(span, message));
        };
        let address = match self.virtual_code(&method, this, span)? {
            Some(address) => address,
            None => self.method_code(&method, span)?,
        };
        let mut words = vec![this];
        self.arguments(arguments, Some(&function), &mut words, span)?;
        self.called(address, &words, function.returns.clone(), span)
    }

    /// Declarations of a method in a class, else in its base classes; each with its part of the object.
    fn methods(
        &mut self,
        object: &Value,
        record: &Arc<Record>,
        name: &str,
        span: &Span,
        depth: usize,
        found: &mut Vec<(Value, Entry)>,
    ) -> Result<(), Problem> {
        let children = record.entry.children().map_err(NoPlace::from);
        for child in self.at(span, children)? {
            let is = child.tag().map_err(NoPlace::from);
            if self.at(span, is)? != dw::DW_TAG_subprogram {
                continue;
            }
            let known = child.name().map_err(NoPlace::from);
            if self.at(span, known)?.as_deref() == Some(name) {
                found.push((object.clone(), child));
            }
        }
        if !found.is_empty() || depth > 50 {
            return Ok(());
        }
        for member in record.members.iter().filter(|member| member.base) {
            if let Type::Record(base) = self.strip(&member.of, span)? {
                let bias = self.bias_of(&record.entry);
                let part = self.view.member(object, member, bias);
                let part = self.at(span, part)?;
                self.methods(&part, &base, name, span, depth + 1, found)?;
            }
        }
        Ok(())
    }

    /// Of a virtual method, what the object's table has.
    fn virtual_code(
        &mut self,
        method: &Entry,
        this: u64,
        span: &Span,
    ) -> Result<Option<u64>, Problem> {
        let slot = method
            .attribute(dw::DW_AT_vtable_elem_location)
            .map_err(NoPlace::from);
        let Some(slot) = self.at(span, slot)? else {
            return Ok(None);
        };
        let unknown = || Problem::undefined(span, "the method's place in the table isn't known");
        let expression = slot.exprloc_value().ok_or_else(unknown)?;
        let mut operations = expression.0;
        // DW_OP_constu N
        use gimli::Reader as _;
        let code = operations.read_u8().map_err(|_| unknown())?;
        if code != dw::DW_OP_constu.0 {
            return Err(unknown());
        }
        let index = operations.read_uleb128().map_err(|_| unknown())?;
        let mut word = |address: u64| {
            let bytes = self.view.read(address, 8);
            let bytes = self.at(span, bytes)?;
            Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let table = word(this)?;
        word(table.wrapping_add(index.wrapping_mul(8))).map(Some)
    }

    /// Where a method that is declared in a class has its code.
    fn method_code(&mut self, method: &Entry, span: &Span) -> Result<u64, Problem> {
        let path = self.view.catalog.path(method).map_err(NoPlace::from);
        let path = self.at(span, path)?.unwrap_or_default();
        let is_function = |kind| kind == NameKind::Function;
        let named = self
            .view
            .catalog
            .named(self.view.modules, &Path::of(&path), is_function);
        for found in self.at(span, named.map_err(NoPlace::from))? {
            let declared = found
                .entry
                .bearer(dw::DW_AT_linkage_name)
                .and_then(|bearer| bearer.map_or(Ok(None), |b| b.text(dw::DW_AT_linkage_name)));
            let wanted = method.text(dw::DW_AT_linkage_name);
            let (declared, wanted) = (
                self.at(span, declared.map_err(NoPlace::from))?,
                self.at(span, wanted.map_err(NoPlace::from))?,
            );
            if wanted.is_some() && declared != wanted {
                continue;
            }
            let address = code_address(&found.entry).map_err(NoPlace::from);
            if let Some(address) = self.at(span, address)? {
                return Ok(address.wrapping_add(found.bias));
            }
        }
        // Without an entry of its own it may still have a symbol.
        let linked = method.text(dw::DW_AT_linkage_name).map_err(NoPlace::from);
        if let Some(name) = self.at(span, linked)?
            && let Some((image, symbol)) = self.view.catalog.symbol(self.view.modules, &name)
        {
            return Ok(symbol.address.wrapping_add(image.bias));
        }
        let message = format!("`{path}` can't be called: the compiler inlined it everywhere");
        Err(Problem::wrong(span, message))
    }
}
