//! Where a variable is, as C. In: a variable's entry and the instruction that a probe runs before. Out: C that computes its
//! place from the registers at that instruction, or that it is nowhere.
//!
//! The instruction is known when the probe is compiled, so location lists and the frame's place are decided here, and what
//! is left is arithmetic.

use std::collections::BTreeSet;

use clew_symbols::gimli::{
    AttributeValue, Expression, Operation, Reader as _, Register, constants as dw,
};
use clew_symbols::types::Entry;
use clew_symbols::variables::Catalog;
use clew_symbols::{Image, Modules, Reader, Unit};

use crate::places;

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nowhere {
    /// The compiler has optimised it away here.
    Gone,
    Unknown(String),
}

impl<E: std::error::Error> From<E> for Nowhere {
    fn from(error: E) -> Nowhere {
        Nowhere::Unknown(error.to_string())
    }
}

/// A place, as C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Statements that come first.
    pub before: String,
    /// An expression whose value is the address.
    pub address: String,
    /// It is in the program's memory; otherwise a copy.
    pub memory: bool,
    /// Vector registers are needed.
    pub vectors: bool,
}

/// An instruction of a program.
pub struct Spot<'a> {
    pub catalog: &'a Catalog,
    pub modules: &'a Modules,
    pub image: &'a Image,
    /// In the process.
    pub pc: u64,
}

/// Names for what is computed on the way: each site has its own numbers.
#[derive(Default)]
pub struct Numbers {
    last: u32,
    /// Functions at whose entry registers have to be noted.
    pub entered: BTreeSet<u64>,
}

impl Numbers {
    pub fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// A result before it has a place.
enum Result_ {
    Address(String),
    Register(Register),
    Value(String),
    Bytes(Vec<u8>),
    Nothing,
}

/// The hardware's number of a general register, from DWARF's.
fn hardware(register: Register) -> Option<usize> {
    const ORDER: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
    match register.0 {
        n @ 0..=7 => Some(ORDER[usize::from(n)]),
        n @ 8..=15 => Some(usize::from(n)),
        _ => None,
    }
}

fn read(register: Register) -> Result<String, Nowhere> {
    if register.0 == 16 {
        return Ok("__clew_hit.rip".into());
    }
    let number = hardware(register);
    let number = number.ok_or_else(|| Nowhere::Unknown(format!("register {}", register.0)))?;
    Ok(format!("__clew_hit.r[{number}]"))
}

impl Spot<'_> {
    fn local(&self) -> u64 {
        self.pc.wrapping_sub(self.image.bias)
    }

    /// Where a variable of that size is.
    pub fn variable(
        &self,
        entry: &Entry,
        size: Option<u64>,
        numbers: &mut Numbers,
    ) -> Result<Place, Nowhere> {
        let (bearer, value) = match entry.attribute(dw::DW_AT_location)? {
            Some(value) => (entry.clone(), value),
            None => {
                if let Some(bearer) = entry.bearer(dw::DW_AT_const_value)?
                    && let Some(value) = bearer.attribute(dw::DW_AT_const_value)?
                {
                    return constant(&value, numbers);
                }
                let bearer = entry.bearer(dw::DW_AT_location)?.ok_or(Nowhere::Gone)?;
                let value = bearer.attribute(dw::DW_AT_location)?.ok_or(Nowhere::Gone)?;
                (bearer, value)
            }
        };
        let unit = bearer.module.unit(bearer.die.unit)?;
        let expression = self.chosen(&unit, &value)?.ok_or(Nowhere::Gone)?;
        let pieces = self.pieces(&bearer, &unit, expression, 0, numbers)?;
        self.assembled(pieces, size, numbers)
    }

    /// The expression that holds at this instruction.
    fn chosen(
        &self,
        unit: &Unit<'_>,
        value: &AttributeValue<Reader>,
    ) -> Result<Option<Expression<Reader>>, Nowhere> {
        if let Some(expression) = value.exprloc_value() {
            return Ok(Some(expression));
        }
        let Some(mut list) = unit.attr_locations(value.clone())? else {
            return Ok(None);
        };
        while let Some(entry) = list.next()? {
            if (entry.range.begin..entry.range.end).contains(&self.local()) {
                return Ok(Some(entry.data));
            }
        }
        Ok(None)
    }

    fn cfa(&self) -> Result<String, Nowhere> {
        let rule = self.modules.cfa_rule(self.pc);
        let (register, offset) =
            rule.ok_or_else(|| Nowhere::Unknown("the frame's place isn't known there".into()))?;
        Ok(format!("({} + {offset}L)", read(register)?))
    }

    /// The call that this is in: the function's first instruction, and its frame as C.
    pub fn call(&self) -> Option<(u64, String)> {
        Some((self.entry()?, self.cfa().ok()?))
    }

    /// Where the function around this begins, if what comes there has just been called.
    fn entry(&self) -> Option<u64> {
        let function = self.image.module.function_at(self.local()).ok()??;
        let file = std::fs::read(self.image.module.path()).ok()?;
        let begins_once = places::branches(&file, &function)
            .iter()
            .all(|to| *to != function.entry);
        begins_once.then(|| function.entry.wrapping_add(self.image.bias))
    }

    fn frame_base(&self, depth: usize, numbers: &mut Numbers) -> Result<String, Nowhere> {
        let missing = || Nowhere::Unknown("the function's frame has no place".into());
        let scope = self
            .catalog
            .scope(self.image, self.local())?
            .ok_or_else(missing)?;
        let bearer = scope
            .function
            .bearer(dw::DW_AT_frame_base)?
            .ok_or_else(missing)?;
        let value = bearer
            .attribute(dw::DW_AT_frame_base)?
            .ok_or_else(missing)?;
        let unit = bearer.module.unit(bearer.die.unit)?;
        let expression = self.chosen(&unit, &value)?.ok_or_else(missing)?;
        let mut pieces = self.pieces(&bearer, &unit, expression, depth + 1, numbers)?;
        match pieces.pop() {
            Some((Result_::Address(text) | Result_::Value(text), _)) => Ok(text),
            Some((Result_::Register(register), _)) => read(register),
            _ => Err(missing()),
        }
    }

    /// Goes through an expression; each piece with its size in bits, if it isn't all.
    fn pieces(
        &self,
        entry: &Entry,
        unit: &Unit<'_>,
        expression: Expression<Reader>,
        depth: usize,
        numbers: &mut Numbers,
    ) -> Result<Vec<(Result_, Option<u64>)>, Nowhere> {
        const DEEPEST: usize = 4;
        if depth > DEEPEST {
            return Err(Nowhere::Unknown("its location refers to itself".into()));
        }
        let mut stack: Vec<String> = Vec::new();
        let mut pieces = Vec::new();
        let mut result: Option<Result_> = None;
        let mut operations = expression.operations(unit.encoding());
        let empty = || Nowhere::Unknown("its location can't be understood".into());
        let other = |what: String| Nowhere::Unknown(format!("its location needs {what}"));
        macro_rules! pop {
            () => {
                stack.pop().ok_or_else(empty)?
            };
        }
        macro_rules! binary {
            ($($form:tt)*) => {{
                let (b, a) = (pop!(), pop!());
                stack.push(format!($($form)*, a = a, b = b));
            }};
        }
        while let Some(operation) = operations.next()? {
            match operation {
                Operation::Nop => {}
                Operation::Register { register } => result = Some(Result_::Register(register)),
                Operation::RegisterOffset {
                    register, offset, ..
                } => {
                    stack.push(format!("({} + {offset}L)", read(register)?));
                }
                Operation::FrameOffset { offset } => {
                    stack.push(format!(
                        "({} + {offset}L)",
                        self.frame_base(depth, numbers)?
                    ));
                }
                Operation::CallFrameCFA => stack.push(self.cfa()?),
                Operation::Address { address } => {
                    stack.push(format!("{:#x}UL", address.wrapping_add(self.image.bias)));
                }
                Operation::AddressIndex { index } => {
                    let address = unit.address(index)?;
                    stack.push(format!("{:#x}UL", address.wrapping_add(self.image.bias)));
                }
                Operation::ConstantIndex { index } => {
                    stack.push(format!("{:#x}UL", unit.address(index)?))
                }
                Operation::UnsignedConstant { value } => stack.push(format!("{value}UL")),
                Operation::SignedConstant { value } => {
                    stack.push(format!("(unsigned long)({value}L)"))
                }
                Operation::PlusConstant { value } => {
                    let a = pop!();
                    stack.push(format!("({a} + {value}UL)"));
                }
                Operation::Deref { size, .. } => {
                    let a = pop!();
                    let of = match size {
                        1 => "unsigned char",
                        2 => "unsigned short",
                        4 => "unsigned int",
                        _ => "unsigned long",
                    };
                    stack.push(format!("((unsigned long)*({of} *)({a}))"));
                }
                Operation::Pick { index } => {
                    let at = stack.len().checked_sub(1 + usize::from(index));
                    stack.push(at.and_then(|at| stack.get(at)).cloned().ok_or_else(empty)?);
                }
                Operation::Drop => drop(pop!()),
                Operation::Swap => {
                    let (b, a) = (pop!(), pop!());
                    stack.extend([b, a]);
                }
                Operation::Rot => {
                    let (c, b, a) = (pop!(), pop!(), pop!());
                    stack.extend([c, a, b]);
                }
                Operation::Plus => binary!("({a} + {b})"),
                Operation::Minus => binary!("({a} - {b})"),
                Operation::Mul => binary!("({a} * {b})"),
                Operation::Div => binary!("((unsigned long)((long){a} / (long){b}))"),
                Operation::Mod => binary!("({a} % {b})"),
                Operation::And => binary!("({a} & {b})"),
                Operation::Or => binary!("({a} | {b})"),
                Operation::Xor => binary!("({a} ^ {b})"),
                Operation::Shl => binary!("({a} << {b})"),
                Operation::Shr => binary!("({a} >> {b})"),
                Operation::Shra => binary!("((unsigned long)((long){a} >> {b}))"),
                Operation::Eq => binary!("((unsigned long)({a} == {b}))"),
                Operation::Ne => binary!("((unsigned long)({a} != {b}))"),
                Operation::Ge => binary!("((unsigned long)((long){a} >= (long){b}))"),
                Operation::Gt => binary!("((unsigned long)((long){a} > (long){b}))"),
                Operation::Le => binary!("((unsigned long)((long){a} <= (long){b}))"),
                Operation::Lt => binary!("((unsigned long)((long){a} < (long){b}))"),
                Operation::Neg => {
                    let a = pop!();
                    stack.push(format!("(-{a})"));
                }
                Operation::Not => {
                    let a = pop!();
                    stack.push(format!("(~{a})"));
                }
                Operation::Abs => {
                    let a = pop!();
                    stack.push(format!("((unsigned long)__builtin_labs((long){a}))"));
                }
                Operation::TLS => {
                    let a = pop!();
                    let place = self.catalog.thread_local(
                        &entry.module,
                        self.image.bias,
                        "__clew_hit.fs",
                        &a,
                    );
                    stack.push(
                        place.ok_or_else(|| other("a thread's variables of a library".into()))?,
                    );
                }
                Operation::StackValue => result = Some(Result_::Value(pop!())),
                Operation::ImplicitValue { data } => {
                    result = Some(Result_::Bytes(data.to_slice()?.to_vec()))
                }
                Operation::Piece {
                    size_in_bits,
                    bit_offset,
                } => {
                    if bit_offset.unwrap_or(0) != 0 || size_in_bits % 8 != 0 {
                        return Err(other("single bits".into()));
                    }
                    let one = result.take();
                    let one = one.or_else(|| stack.pop().map(Result_::Address));
                    pieces.push((one.unwrap_or(Result_::Nothing), Some(size_in_bits)));
                }
                // What a register was when the function was entered: noted there.
                Operation::EntryValue { expression } => {
                    let mut inner = Expression(expression).operations(unit.encoding());
                    let (Some(Operation::Register { register }), None) =
                        (inner.next()?, inner.next()?)
                    else {
                        return Err(Nowhere::Gone);
                    };
                    let number = hardware(register).ok_or(Nowhere::Gone)?;
                    let entry = self.entry().ok_or(Nowhere::Gone)?;
                    let frame = self.cfa()?;
                    numbers.entered.insert(entry);
                    stack.push(format!("__clew_at_entry({entry:#x}UL, {frame}, {number})"));
                }
                // Only the caller knows.
                Operation::ParameterRef { .. } => return Err(Nowhere::Gone),
                operation => return Err(other(format!("{operation:?}"))),
            }
        }
        if pieces.is_empty() {
            let one = result.or_else(|| stack.pop().map(Result_::Address));
            pieces.push((one.ok_or(Nowhere::Gone)?, None));
        }
        Ok(pieces)
    }

    fn assembled(
        &self,
        pieces: Vec<(Result_, Option<u64>)>,
        size: Option<u64>,
        numbers: &mut Numbers,
    ) -> Result<Place, Nowhere> {
        if let [(one, None)] = &pieces[..] {
            return one_place(one, numbers);
        }
        let mut place = Place {
            before: String::new(),
            address: String::new(),
            memory: false,
            vectors: false,
        };
        let bytes: u64 = pieces.iter().map(|(_, bits)| bits.unwrap_or(0) / 8).sum();
        let name = format!("__clew_t{}", numbers.next());
        let room = bytes.max(size.unwrap_or(0)).max(1);
        place.before =
            format!("unsigned char {name}[{room}] __attribute__((aligned(16))) = {{0}};\n");
        let mut at = 0;
        for (one, bits) in &pieces {
            let len = bits.unwrap_or(0) / 8;
            if matches!(one, Result_::Nothing) {
                return Err(Nowhere::Gone);
            }
            let part = one_place(one, numbers)?;
            place.vectors |= part.vectors;
            place.before += &part.before;
            place.before += &format!(
                "__builtin_memcpy({name} + {at}, (void *)({}), {len});\n",
                part.address
            );
            at += len;
        }
        place.address = format!("(unsigned long){name}");
        Ok(place)
    }
}

fn one_place(one: &Result_, numbers: &mut Numbers) -> Result<Place, Nowhere> {
    let mut place = Place {
        before: String::new(),
        address: String::new(),
        memory: false,
        vectors: false,
    };
    match one {
        Result_::Address(text) => (place.address, place.memory) = (text.clone(), true),
        Result_::Register(register) => match hardware(*register) {
            Some(number) => place.address = format!("(unsigned long)&__clew_hit.r[{number}]"),
            None if (17..33).contains(&register.0) => {
                place.vectors = true;
                place.address = format!("(unsigned long)__clew_hit.x[{}]", register.0 - 17);
            }
            None => {
                return Err(Nowhere::Unknown(format!(
                    "it is in register {}",
                    register.0
                )));
            }
        },
        Result_::Value(text) => {
            let name = format!("__clew_t{}", numbers.next());
            place.before = format!("unsigned long {name} = {text};\n");
            place.address = format!("(unsigned long)&{name}");
        }
        Result_::Bytes(bytes) => {
            let name = format!("__clew_t{}", numbers.next());
            let list: Vec<String> = bytes.iter().map(u8::to_string).collect();
            let list = list.join(",");
            place.before = format!(
                "static const unsigned char {name}[] __attribute__((aligned(16))) = {{{list}}};\n"
            );
            place.address = format!("(unsigned long){name}");
        }
        Result_::Nothing => return Err(Nowhere::Gone),
    }
    Ok(place)
}

fn constant(value: &AttributeValue<Reader>, numbers: &mut Numbers) -> Result<Place, Nowhere> {
    let one = match value {
        AttributeValue::Block(data) => Result_::Bytes(data.to_slice()?.to_vec()),
        value => match (value.sdata_value(), value.udata_value()) {
            (Some(signed), _) => Result_::Value(format!("(unsigned long)({signed}L)")),
            (None, Some(unsigned)) => Result_::Value(format!("{unsigned}UL")),
            _ => return Err(Nowhere::Gone),
        },
    };
    one_place(&one, numbers)
}
