//! Where values are: a variable's entry and a frame of the stack in; memory, registers' bytes, or the
//! knowledge that it was optimised away, out.

use crate::types::{Entry, constant};
use crate::value::{Context, Place};
use crate::variables::Catalog;
use crate::{Error, Frame, Modules, Reader, Registers, Unit};
use gimli::{
    AttributeValue, DieReference, Evaluation, EvaluationResult, Expression, Location, Piece,
    Reader as _, Register, Value, ValueType, constants as dw,
};
use std::sync::Arc;

mod entry;
mod tls;

pub use tls::TlsBlock;
pub(crate) use tls::{block as tls_block, is_program};

/// More steps than any compiler's expression takes.
const MOST_STEPS: u32 = 100_000;
/// Expressions that need others that need others.
const DEEPEST: usize = 16;
/// No value in registers and pieces is larger.
const LARGEST: u64 = 1 << 20;

/// Why there is no place.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoPlace {
    #[error("it was optimised out here")]
    Gone,
    #[error("the memory at {0:#x} can't be read")]
    Unreadable(u64),
    #[error("{0}")]
    Unknown(String),
    #[error(transparent)]
    Dwarf(#[from] Error),
}

impl From<gimli::Error> for NoPlace {
    fn from(error: gimli::Error) -> NoPlace {
        NoPlace::Dwarf(error.into())
    }
}

/// Finds places of variables, in one frame or, for globals, in none.
pub struct Locator<'a> {
    pub catalog: &'a Catalog,
    pub modules: &'a Modules,
    /// All frames of the stack, as far as they are needed; innermost first.
    pub frames: &'a [Frame],
    /// Which of them.
    pub frame: Option<usize>,
    pub context: &'a mut dyn Context,
    pub depth: usize,
}

impl Locator<'_> {
    /// Where a variable is. `size`: of its type; `bias`: of its module.
    pub fn variable(
        &mut self,
        entry: &Entry,
        bias: u64,
        size: Option<u64>,
    ) -> Result<Place, NoPlace> {
        if let Some(value) = entry.attribute(dw::DW_AT_location)? {
            return self.attribute(entry, bias, &value, size);
        }
        if let Some(bearer) = entry.bearer(dw::DW_AT_const_value)?
            && let Some(value) = bearer.attribute(dw::DW_AT_const_value)?
        {
            return constant_bytes(&value, size);
        }
        // Instances of inlined functions may leave the location to the abstract one.
        if let Some(bearer) = entry.bearer(dw::DW_AT_location)?
            && let Some(value) = bearer.attribute(dw::DW_AT_location)?
        {
            return self.attribute(&bearer, bias, &value, size);
        }
        Err(NoPlace::Gone)
    }

    /// A location: an expression, or a list of them by address.
    fn attribute(
        &mut self,
        entry: &Entry,
        bias: u64,
        value: &AttributeValue<Reader>,
        size: Option<u64>,
    ) -> Result<Place, NoPlace> {
        let unit = entry.module.unit(entry.die.unit)?;
        let Some(expression) = self.chosen(&unit, bias, value)? else {
            return Err(NoPlace::Gone);
        };
        let pieces = self.run(entry, &unit, bias, expression, None)?;
        self.assembled(entry, bias, &pieces, size)
    }

    /// The expression that holds at the frame's address.
    pub fn chosen(
        &self,
        unit: &Unit<'_>,
        bias: u64,
        value: &AttributeValue<Reader>,
    ) -> Result<Option<Expression<Reader>>, NoPlace> {
        if let Some(expression) = value.exprloc_value() {
            return Ok(Some(expression));
        }
        let Some(mut list) = unit.attr_locations(value.clone())? else {
            return Ok(None);
        };
        let Some(frame) = self.frame.map(|frame| &self.frames[frame]) else {
            return Err(NoPlace::Unknown(
                "its place depends on where the program stands".into(),
            ));
        };
        let address = frame.lookup.wrapping_sub(bias);
        while let Some(entry) = list.next()? {
            if (entry.range.begin..entry.range.end).contains(&address) {
                return Ok(Some(entry.data));
            }
        }
        Ok(None)
    }

    /// Evaluates an expression of `entry`'s unit.
    pub fn run(
        &mut self,
        entry: &Entry,
        unit: &Unit<'_>,
        bias: u64,
        expression: Expression<Reader>,
        initial: Option<u64>,
    ) -> Result<Vec<Piece<Reader>>, NoPlace> {
        if self.depth == DEEPEST {
            return Err(NoPlace::Unknown("its location refers to itself".into()));
        }
        let mut evaluation = expression.evaluation(unit.encoding());
        evaluation.set_max_iterations(MOST_STEPS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
            evaluation.set_object_address(initial);
        }
        self.depth += 1;
        let result = self.answered(entry, unit, bias, evaluation);
        self.depth -= 1;
        result
    }

    /// Goes through an evaluation, with an answer to whatever it asks for.
    fn answered(
        &mut self,
        entry: &Entry,
        unit: &Unit<'_>,
        bias: u64,
        mut evaluation: Evaluation<Reader>,
    ) -> Result<Vec<Piece<Reader>>, NoPlace> {
        let mut state = evaluation.evaluate()?;
        loop {
            state = match state {
                EvaluationResult::Complete => return Ok(evaluation.result()),
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    base_type,
                    ..
                } => {
                    let mut bytes = [0; 8];
                    let wanted = &mut bytes[..usize::from(size).min(8)];
                    if self.context.read(address, wanted) < wanted.len() {
                        return Err(NoPlace::Unreadable(address));
                    }
                    let kind = value_type(unit, base_type)?;
                    evaluation
                        .resume_with_memory(Value::from_u64(kind, u64::from_le_bytes(bytes))?)?
                }
                EvaluationResult::RequiresRegister {
                    register,
                    base_type,
                } => {
                    let bits = self.register(register)? as u64;
                    let kind = value_type(unit, base_type)?;
                    let value = match kind {
                        ValueType::F64 => Value::F64(f64::from_bits(bits)),
                        ValueType::F32 => Value::F32(f32::from_bits(bits as u32)),
                        kind => Value::from_u64(kind, bits)?,
                    };
                    evaluation.resume_with_register(value)?
                }
                EvaluationResult::RequiresFrameBase => {
                    let base = self.frame_base()?;
                    evaluation.resume_with_frame_base(base)?
                }
                EvaluationResult::RequiresTls(offset) => {
                    let address = self.tls(&entry.module, bias, offset)?;
                    evaluation.resume_with_tls(address)?
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    let frame = self.here()?;
                    let Some(cfa) = frame.cfa else {
                        return Err(NoPlace::Unknown("the frame's place isn't known".into()));
                    };
                    evaluation.resume_with_call_frame_cfa(cfa)?
                }
                EvaluationResult::RequiresAtLocation(reference) => {
                    let value = match reference {
                        DieReference::UnitRef(offset) => AttributeValue::UnitRef(offset),
                        DieReference::DebugInfoRef(offset) => AttributeValue::DebugInfoRef(offset),
                    };
                    let die = entry.module.follow(entry.die.unit, &value)?;
                    let location = match die {
                        Some(die) => {
                            Entry::new(&entry.module, die).attribute(dw::DW_AT_location)?
                        }
                        None => None,
                    };
                    let bytes = location.and_then(|value| value.exprloc_value());
                    let bytes = bytes.ok_or(NoPlace::Gone)?;
                    evaluation.resume_with_at_location(bytes.0)?
                }
                EvaluationResult::RequiresEntryValue(expression) => {
                    let value = self.entry_value(&expression)?;
                    evaluation.resume_with_entry_value(Value::Generic(value))?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(bias))?
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = unit.address(index)?;
                    let by = if relocate { bias } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(by))?
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    let kind = value_type(unit, offset)?;
                    evaluation.resume_with_base_type(kind)?
                }
                EvaluationResult::RequiresParameterRef(_) => return Err(NoPlace::Gone),
            };
        }
    }

    fn here(&self) -> Result<&Frame, NoPlace> {
        match self.frame {
            Some(frame) => Ok(&self.frames[frame]),
            None => Err(NoPlace::Unknown(
                "it belongs to a call, and none is chosen".into(),
            )),
        }
    }

    fn register(&self, register: Register) -> Result<u128, NoPlace> {
        let registers = &self.here()?.registers;
        let known = match registers.get(register) {
            Some(value) => Some(u128::from(value)),
            None => registers.vector(register),
        };
        // A call may have destroyed it.
        known.ok_or(NoPlace::Gone)
    }

    fn frame_base(&mut self) -> Result<u64, NoPlace> {
        let frame = self.here()?;
        let (lookup, bias) = (frame.lookup, frame.bias);
        let missing = || NoPlace::Unknown("the function's frame has no place".into());
        let image = self.modules.find(lookup).ok_or_else(missing)?;
        let scope = self
            .catalog
            .scope(image, image.local(lookup))?
            .ok_or_else(missing)?;
        let function = scope.function;
        let bearer = function.bearer(dw::DW_AT_frame_base)?.ok_or_else(missing)?;
        let value = bearer
            .attribute(dw::DW_AT_frame_base)?
            .ok_or_else(missing)?;
        let unit = bearer.module.unit(bearer.die.unit)?;
        let expression = self.chosen(&unit, bias, &value)?.ok_or_else(missing)?;
        let pieces = self.run(&bearer, &unit, bias, expression, None)?;
        match pieces.first().map(|piece| &piece.location) {
            Some(Location::Address { address }) => Ok(*address),
            Some(Location::Register { register }) => Ok(self.register(*register)? as u64),
            Some(Location::Value { value }) => Ok(value.to_u64(u64::MAX)?),
            _ => Err(missing()),
        }
    }

    /// Makes one place of an expression's pieces.
    fn assembled(
        &mut self,
        entry: &Entry,
        bias: u64,
        pieces: &[Piece<Reader>],
        size: Option<u64>,
    ) -> Result<Place, NoPlace> {
        if let [piece] = pieces
            && piece.bit_offset.is_none()
        {
            match &piece.location {
                Location::Address { address }
                    if piece
                        .size_in_bits
                        .is_none_or(|bits| Some(bits) == size.map(|s| s * 8)) =>
                {
                    return Ok(Place::Memory(*address));
                }
                Location::ImplicitPointer { value, byte_offset } => {
                    let value = AttributeValue::DebugInfoRef(*value);
                    let die = entry.module.follow(entry.die.unit, &value)?;
                    let die = die.ok_or(NoPlace::Gone)?;
                    return Ok(Place::Synthetic {
                        entry: Entry::new(&entry.module, die),
                        bias,
                        offset: *byte_offset,
                        frame: self.frame,
                    });
                }
                Location::Empty => return Err(NoPlace::Gone),
                _ => {}
            }
        }
        let mut bytes: Vec<u8> = Vec::new();
        let mut missing = Vec::new();
        for piece in pieces {
            let bits = piece
                .size_in_bits
                .or(size.map(|size| size * 8))
                .unwrap_or(64);
            if bits % 8 != 0 || piece.bit_offset.unwrap_or(0) % 8 != 0 {
                return Err(NoPlace::Unknown("it is spread over single bits".into()));
            }
            let (len, skip) = (bits / 8, piece.bit_offset.unwrap_or(0) / 8);
            if bytes.len() as u64 + len > LARGEST {
                return Err(NoPlace::Unknown("its pieces are too large".into()));
            }
            let (start, len, skip) = (bytes.len(), len as usize, skip as usize);
            let mut add = |whole: &[u8]| {
                let part = whole.get(skip..).unwrap_or_default();
                let part = &part[..part.len().min(len)];
                bytes.extend_from_slice(part);
                bytes.resize(start + len, 0);
            };
            match &piece.location {
                Location::Empty | Location::ImplicitPointer { .. } => {
                    add(&[]);
                    missing.push(start..start + len);
                }
                Location::Register { register } => match self.register(*register) {
                    Ok(value) => add(&value.to_le_bytes()),
                    Err(error) if pieces.len() == 1 => return Err(error),
                    Err(_) => {
                        add(&[]);
                        missing.push(start..start + len);
                    }
                },
                Location::Address { address } => {
                    let mut read = vec![0; len];
                    let at = address.wrapping_add(skip as u64);
                    if self.context.read(at, &mut read) < len {
                        return Err(NoPlace::Unreadable(at));
                    }
                    bytes.extend(read);
                }
                Location::Value { value } => add(&value_bytes(*value)),
                Location::Bytes { value } => add(&value.to_slice()?),
            }
        }
        if pieces.is_empty() {
            return Err(NoPlace::Gone);
        }
        Ok(Place::Bytes {
            bytes: bytes.into(),
            missing: missing.into(),
        })
    }

    /// Where a base class is that only its object knows.
    pub fn computed(&mut self, member: &Entry, bias: u64, object: u64) -> Result<u64, NoPlace> {
        let value = member.attribute(dw::DW_AT_data_member_location)?;
        let expression = value.and_then(|value| value.exprloc_value());
        let expression = expression.ok_or(NoPlace::Gone)?;
        let unit = member.module.unit(member.die.unit)?;
        let pieces = self.run(member, &unit, bias, expression, Some(object))?;
        match pieces.first().map(|piece| &piece.location) {
            Some(Location::Address { address }) => Ok(*address),
            Some(Location::Value { value }) => Ok(value.to_u64(u64::MAX)?),
            _ => Err(NoPlace::Gone),
        }
    }
}

fn value_bytes(value: Value) -> [u8; 8] {
    match value {
        Value::F32(value) => u64::from(value.to_bits()),
        Value::F64(value) => value.to_bits(),
        value => value.to_u64(u64::MAX).unwrap_or(0),
    }
    .to_le_bytes()
}

fn value_type(unit: &Unit<'_>, offset: gimli::UnitOffset) -> Result<ValueType, NoPlace> {
    if offset.0 == 0 {
        return Ok(ValueType::Generic);
    }
    let entry = unit.entry(offset)?;
    ValueType::from_entry(&entry)?
        .ok_or_else(|| NoPlace::Unknown("its location computes with an unknown type".into()))
}

fn constant_bytes(value: &AttributeValue<Reader>, size: Option<u64>) -> Result<Place, NoPlace> {
    let size = size.unwrap_or(8).min(LARGEST) as usize;
    let mut bytes = match value {
        AttributeValue::Sdata(value) => i128::from(*value).to_le_bytes().to_vec(),
        AttributeValue::Block(block) => block.to_slice()?.to_vec(),
        AttributeValue::String(text) => text.to_slice()?.to_vec(),
        value => match constant(value) {
            Some(value) => u128::from(value).to_le_bytes().to_vec(),
            None => return Err(NoPlace::Gone),
        },
    };
    bytes.resize(size, 0);
    Ok(Place::Bytes {
        bytes: bytes.into(),
        missing: Arc::new([]),
    })
}

/// A register by the name that people write after `$`.
pub fn register_value(registers: &Registers, name: &str) -> Option<(u128, u8)> {
    let wide = match name {
        "pc" => "rip",
        "sp" => "rsp",
        "fp" => "rbp",
        name => name,
    };
    if let Some(number) = Registers::number(wide) {
        return match registers.get(number) {
            Some(value) => Some((u128::from(value), 8)),
            None => Some((registers.vector(number)?, 16)),
        };
    }
    let (wide, size, shift) = narrow(name)?;
    let value = registers.get(Registers::number(&wide)?)?;
    let value = u128::from(value >> shift) & ((1u128 << (size * 8)) - 1);
    Some((value, size))
}

/// `eax` is four bytes of `rax`, `ah` the second of them.
fn narrow(name: &str) -> Option<(String, u8, u32)> {
    let old = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp"];
    if let Some(rest) = name.strip_prefix('e')
        && (old.contains(&rest) || rest == "ip")
    {
        return Some((format!("r{rest}"), 4, 0));
    }
    if old.contains(&name) {
        return Some((format!("r{name}"), 2, 0));
    }
    if let Some(first) = name.strip_suffix('h')
        && ["a", "b", "c", "d"].contains(&first)
    {
        return Some((format!("r{first}x"), 1, 8));
    }
    if let Some(first) = name.strip_suffix('l') {
        return match first {
            "a" | "b" | "c" | "d" => Some((format!("r{first}x"), 1, 0)),
            "si" | "di" | "bp" | "sp" => Some((format!("r{first}"), 1, 0)),
            other => other.starts_with('r').then(|| (other.to_string(), 1, 0)),
        };
    }
    for (suffix, size) in [('d', 4), ('w', 2), ('b', 1)] {
        if let Some(wide) = name.strip_suffix(suffix)
            && wide.starts_with('r')
            && wide[1..].parse::<u8>().is_ok()
        {
            return Some((wide.to_string(), size, 0));
        }
    }
    None
}
