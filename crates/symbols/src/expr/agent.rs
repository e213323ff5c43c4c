//! An expression as gdb's agent code, which a worker evaluates in the midst of a run. In: an expression, and the address where it
//! will be asked. Out: bytecode; none for what isn't simple enough: calls, floating point, bit-fields, division, variables in
//! pieces. Whoever asks evaluates it here then, as always.
//!
//! Numbers on the agent's stack have 64 bits, extended as their types say: each operation ends with that, where it could spoil it.

use super::eval::literal;
use super::names::Resolved;
use super::parser;
use super::syntax::{Binary, Kind, Node, Path, Unary};
use super::{Evaluator, Span};
use crate::agent::*;
use crate::types::{BaseKind, Entry, Offset, Type};
use crate::value::Place;
use crate::variables::Whose;
use gimli::Operation;
use gimli::constants as dw;

/// Longer code isn't made: jumps in it couldn't be told.
const LONGEST: usize = 1 << 12;

/// What the code so far leaves on the stack.
enum Left {
    /// The address of something of this type.
    Address(Type),
    Number(Number),
}

/// A number, or a pointer.
#[derive(Clone)]
struct Number {
    size: u64,
    signed: bool,
    to: Option<Type>,
}

impl Number {
    const INT: Number = Number {
        size: 4,
        signed: true,
        to: None,
    };

    /// As C has it before it computes.
    fn promoted(&self) -> Number {
        match self.size < 4 {
            true => Number::INT,
            false => self.clone(),
        }
    }

    /// The upper bits are what the type says.
    fn extend(&self, code: &mut Code) {
        code.extend(self.size as u8 * 8, self.signed);
    }

    /// What two of them are computed as.
    fn common(&self, other: &Number) -> Number {
        let (a, b) = (self.promoted(), other.promoted());
        let size = a.size.max(b.size);
        let signed = |one: &Number| one.size < size || one.signed;
        Number {
            size,
            signed: signed(&a) && signed(&b),
            to: None,
        }
    }
}

impl Evaluator<'_> {
    /// Whether an expression is true, as agent code, for threads that stand where this frame's code is. Only the address
    /// of the frame matters, not what is in registers and memory.
    pub fn agent(&mut self, text: &str) -> Option<Vec<u8>> {
        self.text = text.into();
        let root = parser::parse(text, self).ok()?;
        let mut code = Code::default();
        let left = self.compile(&root, &mut code)?;
        self.number_on(left, &mut code)?;
        code.op(END);
        (code.0.len() <= LONGEST).then_some(code.0)
    }

    fn compile(&mut self, node: &Node, code: &mut Code) -> Option<Left> {
        let left = match &node.kind {
            Kind::Integer(integer) => {
                let value = literal(*integer);
                code.constant(integer.value);
                self.plain(&value.of).map(Left::Number)?
            }
            Kind::Char(byte) => {
                code.constant(*byte as i8 as u64);
                Left::Number(Number {
                    size: 1,
                    signed: true,
                    to: None,
                })
            }
            Kind::Name(path) => self.named(path, &node.span, code)?,
            Kind::Member { of, name, arrow } => {
                let left = self.compile(of, code)?;
                let record = match (arrow, left) {
                    (false, Left::Address(of)) => of,
                    (true, left) => self.number_on(left, code)?.to?,
                    _ => return None,
                };
                let Type::Record(record) = self.view.catalog.strip(&record).ok()? else {
                    return None;
                };
                let mut members = record.members.iter();
                let member = members.find(|member| member.name.as_deref() == Some(name))?;
                let Offset::Bytes(offset) = member.offset else {
                    return None;
                };
                if member.bits.is_some() || member.base {
                    return None;
                }
                code.constant(offset);
                code.op(ADD);
                Left::Address(member.of.clone())
            }
            Kind::Index(of, index) => {
                let of = self.compile(of, code)?;
                let to = self.number_on(of, code)?.to?;
                let index = self.compile(index, code)?;
                let index = self.number_on(index, code)?;
                if index.to.is_some() {
                    return None;
                }
                self.scaled(&to, code)?;
                code.op(ADD);
                Left::Address(to)
            }
            Kind::Unary(operation, of) => {
                let left = self.compile(of, code)?;
                if let (Unary::Address, Left::Address(of)) = (operation, &left) {
                    return Some(Left::Number(pointer(of)));
                }
                let number = self.number_on(left, code)?;
                match operation {
                    Unary::Deref => Left::Address(number.to?),
                    Unary::Not => {
                        code.op(LOG_NOT);
                        Left::Number(Number::INT)
                    }
                    Unary::Complement | Unary::Minus | Unary::Plus if number.to.is_none() => {
                        let number = number.promoted();
                        match operation {
                            Unary::Complement => code.op(BIT_NOT),
                            Unary::Minus => {
                                code.constant(0);
                                code.op(SWAP);
                                code.op(SUB);
                            }
                            _ => {}
                        }
                        number.extend(code);
                        Left::Number(number)
                    }
                    _ => return None,
                }
            }
            Kind::Binary(operation, a, b) => self.binary_code(*operation, a, b, code)?,
            Kind::And(a, b) | Kind::Or(a, b) => {
                let is_and = matches!(node.kind, Kind::And(..));
                let left = self.compile(a, code)?;
                self.number_on(left, code)?;
                if is_and {
                    code.op(LOG_NOT);
                }
                let decided = code.jump(IF_GOTO);
                let left = self.compile(b, code)?;
                self.number_on(left, code)?;
                code.truth();
                let over = code.jump(GOTO);
                code.lands(decided);
                code.constant(u64::from(!is_and));
                code.lands(over);
                Left::Number(Number::INT)
            }
            _ => return None,
        };
        // A reference is what it refers to.
        let Left::Address(of) = &left else {
            return Some(left);
        };
        let Type::Reference(to) = self.view.catalog.strip(of).ok()? else {
            return Some(left);
        };
        code.op(LOAD[3].1);
        Some(Left::Address((*to).clone()))
    }

    fn binary_code(
        &mut self,
        operation: Binary,
        a: &Node,
        b: &Node,
        code: &mut Code,
    ) -> Option<Left> {
        use Binary::*;
        let left = self.compile(a, code)?;
        let x = self.number_on(left, code)?;
        // The first one may have to be converted below the second.
        let before = code.0.len();
        let right = self.compile(b, code)?;
        let y = self.number_on(right, code)?;
        if let (Add | Sub, Some(to), None) = (operation, &x.to, &y.to) {
            self.scaled(to, code)?;
            code.op(if operation == Add { ADD } else { SUB });
            return Some(Left::Number(x));
        }
        let pointers = x.to.is_some() || y.to.is_some();
        if pointers && !operation.compares() {
            return None;
        }
        let of = x.common(&y);
        // Both as the common type: a number that is as wide already may be of the other sign.
        let convert =
            |number: &Number| number.size == 4 && of.size == 4 && number.signed != of.signed;
        if convert(&y) {
            of.extend(code);
        }
        if convert(&x) {
            let mut first = Code::default();
            of.extend(&mut first);
            // Jumps in the second are told by where they land.
            if code.0[before..]
                .iter()
                .any(|&byte| byte == GOTO || byte == IF_GOTO)
            {
                return None;
            }
            code.0.splice(before..before, first.0);
        }
        let less = match of.signed && !pointers {
            true => LESS_SIGNED,
            false => LESS_UNSIGNED,
        };
        match operation {
            Mul => code.op(MUL),
            Add => code.op(ADD),
            Sub => code.op(SUB),
            And => code.op(BIT_AND),
            Xor => code.op(BIT_XOR),
            Or => code.op(BIT_OR),
            Eq => code.op(EQUAL),
            Ne => code.0.extend([EQUAL, LOG_NOT]),
            Lt => code.op(less),
            Ge => code.0.extend([less, LOG_NOT]),
            Gt => code.0.extend([SWAP, less]),
            Le => code.0.extend([SWAP, less, LOG_NOT]),
            Div | Rem | Shl | Shr => return None,
        }
        if operation.compares() {
            return Some(Left::Number(Number::INT));
        }
        of.extend(code);
        Some(Left::Number(of))
    }

    /// So many elements, in bytes.
    fn scaled(&self, to: &Type, code: &mut Code) -> Option<()> {
        let size = self.view.catalog.size(to).ok()??;
        code.constant(size);
        code.op(MUL);
        Some(())
    }

    /// What kind of number a type is.
    fn plain(&self, of: &Type) -> Option<Number> {
        let base = match self.view.catalog.strip(of).ok()? {
            Type::Base(base) => base,
            Type::Enum(of) => of.base.clone(),
            Type::Pointer { to, .. } => return Some(pointer(&to)),
            _ => return None,
        };
        let fits = LOAD.iter().any(|(size, _)| *size == u64::from(base.size));
        (fits && base.kind != BaseKind::Float).then_some(Number {
            size: base.size.into(),
            signed: base.kind.signed(),
            to: None,
        })
    }

    /// The value is on the stack, not its address.
    fn number_on(&mut self, left: Left, code: &mut Code) -> Option<Number> {
        let of = match left {
            Left::Number(number) => return Some(number),
            Left::Address(of) => of,
        };
        if let Type::Array { of, .. } = self.view.catalog.strip(&of).ok()? {
            return Some(pointer(&of));
        }
        let number = self.plain(&of)?;
        let (_, load) = LOAD.iter().find(|(size, _)| *size == number.size)?;
        code.op(*load);
        if number.signed {
            number.extend(code);
        }
        Some(number)
    }

    /// A name: a variable of this frame, or a global one.
    fn named(&mut self, path: &Path, span: &Span, code: &mut Code) -> Option<Left> {
        let simple = path.parts.len() == 1 && path.file.is_none() && !path.global;
        if simple {
            if !self.frame_is_own() {
                return None;
            }
            if let Some(variable) = self.local_variable(path.last()) {
                return self.local_place(&variable, code);
            }
            // A member of the object, perhaps.
            if self.local_variable("this").is_some() {
                return None;
            }
            match path.last() {
                "true" | "false" => {
                    code.constant(u64::from(path.last() == "true"));
                    return Some(Left::Number(Number::INT));
                }
                "NULL" | "nullptr" => {
                    code.constant(0);
                    return Some(Left::Number(pointer(&Type::Void)));
                }
                _ => {}
            }
        }
        let found = self.global(path, Whose::Programs, span).ok()??;
        let Resolved::Value(value) = found else {
            return None;
        };
        match value.place {
            Place::Memory(address) if value.bits.is_none() => {
                code.constant(address);
                Some(Left::Address(value.of))
            }
            _ => None,
        }
    }

    /// Where a variable of this frame's function is, as long as that is one simple place.
    fn local_place(&mut self, entry: &Entry, code: &mut Code) -> Option<Left> {
        if entry.attribute(dw::DW_AT_declaration).ok()?.is_some() {
            return None;
        }
        let of = entry.type_of().ok()?;
        let value = entry.attribute(dw::DW_AT_location).ok()??;
        let frame = self.view.frames.get(self.frame)?;
        let (pc, bias) = (frame.pc, frame.bias);
        let module = entry.module.clone();
        let unit = module.unit(entry.die.unit).ok()?;
        let expression = self
            .view
            .locator(Some(self.frame))
            .chosen(&unit, bias, &value);
        let mut operations = expression.ok()??.operations(unit.encoding());
        let only = operations.next().ok()??;
        if operations.next().ok()?.is_some() {
            return None;
        }
        match only {
            Operation::Address { address } => code.constant(address.wrapping_add(bias)),
            Operation::FrameOffset { offset } => {
                self.frame_base(pc, code)?;
                code.constant(offset as u64);
                code.op(ADD);
            }
            Operation::RegisterOffset {
                register, offset, ..
            } => {
                code.register(register)?;
                code.constant(offset as u64);
                code.op(ADD);
            }
            Operation::Register { register } => {
                code.register(register)?;
                if let Type::Reference(to) = self.view.catalog.strip(&of).ok()? {
                    return Some(Left::Address((*to).clone()));
                }
                let number = self.plain(&of)?;
                number.extend(code);
                return Some(Left::Number(number));
            }
            _ => return None,
        }
        Some(Left::Address(of))
    }

    fn frame_base(&mut self, pc: u64, code: &mut Code) -> Option<()> {
        let scope = self.scope_at(pc)?;
        let function = &scope.function;
        let base = function.attribute(dw::DW_AT_frame_base).ok()??;
        let unit = function.module.unit(function.die.unit).ok()?;
        let mut operations = base.exprloc_value()?.operations(unit.encoding());
        let only = operations.next().ok()??;
        if operations.next().ok()?.is_some() {
            return None;
        }
        match only {
            Operation::CallFrameCFA => {
                let (register, offset) = self.view.modules.cfa_rule(pc)?;
                code.register(register)?;
                code.constant(offset as u64);
                code.op(ADD);
            }
            Operation::Register { register } => code.register(register)?,
            _ => return None,
        }
        Some(())
    }
}

fn pointer(to: &Type) -> Number {
    Number {
        size: 8,
        signed: false,
        to: Some(to.clone()),
    }
}
