//! In: operators and values. Out: what C makes of them.

use super::eval::Evaluator;
use super::syntax::{Binary, Problem, Span, Unary};
use crate::location::NoPlace;
use crate::types::{Base, BaseKind, Type};
use crate::value::{Number, Place, Value};

fn base(name: &str, size: u8, kind: BaseKind) -> Base {
    Base {
        name: name.into(),
        size,
        kind,
    }
}

fn int() -> Base {
    base("int", 4, BaseKind::Signed)
}

/// Integers smaller than an `int` compute as `int`.
fn promoted(number: Number) -> Number {
    let small = match number.base().kind {
        BaseKind::Float => return number,
        BaseKind::Bool | BaseKind::SignedChar | BaseKind::UnsignedChar => true,
        _ => number.base().size < 4,
    };
    if small {
        return Number::int(number.signed(), int());
    }
    // Characters of Unicode are unsigned integers.
    match number {
        Number::Int { bits, base: of } if of.kind == BaseKind::Unicode => Number::Int {
            bits,
            base: base("unsigned int", 4, BaseKind::Unsigned),
        },
        number => number,
    }
}

/// The type that both become.
fn common(a: &Base, b: &Base) -> Base {
    match (a.kind == BaseKind::Float, b.kind == BaseKind::Float) {
        (true, true) => return if a.size >= b.size { a } else { b }.clone(),
        (true, false) => return a.clone(),
        (false, true) => return b.clone(),
        _ => {}
    }
    if a.size != b.size {
        return if a.size > b.size { a } else { b }.clone();
    }
    if a.kind == BaseKind::Unsigned {
        a.clone()
    } else {
        b.clone()
    }
}

fn made(number: &Number) -> Value {
    Value::made(Type::Base(number.base().clone()), &number.to_bytes())
}

impl Evaluator<'_> {
    pub(super) fn arithmetic_unary(
        &mut self,
        operation: Unary,
        value: &Value,
        span: &Span,
    ) -> Result<Value, Problem> {
        if self.pointed(value, span)?.is_some() {
            return Err(Problem::wrong(span, "that can't be done with a pointer"));
        }
        let number = promoted(self.number(value, span)?);
        Ok(made(&match (operation, number) {
            (Unary::Minus, Number::Float { value, base }) => Number::Float {
                value: -value,
                base,
            },
            (Unary::Minus, number) => {
                Number::int(number.signed().wrapping_neg(), number.base().clone())
            }
            (Unary::Complement, Number::Float { .. }) => {
                return Err(Problem::wrong(span, "a float has no bits to invert"));
            }
            (Unary::Complement, number) => Number::int(!number.signed(), number.base().clone()),
            (_, number) => number,
        }))
    }

    /// What a pointer (or an array, which becomes one) points to.
    fn pointed(&mut self, value: &Value, span: &Span) -> Result<Option<Type>, Problem> {
        Ok(match self.strip(&value.of, span)? {
            Type::Pointer { to, .. } => Some((*to).clone()),
            Type::Array { of, .. } => Some((*of).clone()),
            function @ Type::Function(_) => Some(function),
            Type::Reference(to) => match self.strip(&to, span)? {
                Type::Pointer { to, .. } => Some((*to).clone()),
                Type::Array { of, .. } => Some((*of).clone()),
                function @ Type::Function(_) => Some(function),
                _ => None,
            },
            _ => None,
        })
    }

    pub(super) fn binary(
        &mut self,
        operation: Binary,
        a: &Value,
        b: &Value,
        span: &Span,
    ) -> Result<Value, Problem> {
        if let (Place::Synthetic { .. }, _) | (_, Place::Synthetic { .. }) = (&a.place, &b.place) {
            return self.with_synthetic(operation, a, b, span);
        }
        let (to_a, to_b) = (self.pointed(a, span)?, self.pointed(b, span)?);
        let (x, y) = (self.number(a, span)?, self.number(b, span)?);
        if operation.compares() {
            return Ok(Value::int(
                compare(operation, &x, &y, to_a.is_some() || to_b.is_some()).into(),
            ));
        }
        let refuse = || {
            let message = format!("pointers and `{}` don't go together", operation.symbol());
            Err(Problem::wrong(span, message))
        };
        match (operation, to_a, to_b) {
            (_, None, None) => {}
            (Binary::Add, Some(to), None) => return self.advanced(to, &x, &y, 1, span),
            (Binary::Add, None, Some(to)) => return self.advanced(to, &y, &x, 1, span),
            (Binary::Sub, Some(to), None) => return self.advanced(to, &x, &y, -1, span),
            (Binary::Sub, Some(to), Some(other)) => {
                let (size, others) = (self.stride(&to, span)?, self.stride(&other, span)?);
                if size != others || size == 0 {
                    let message = "these pointers point to different things";
                    return Err(Problem::wrong(span, message));
                }
                let bytes = (x.signed() as u64).wrapping_sub(y.signed() as u64) as i64;
                let count = bytes / size as i64;
                return Ok(Value::made(Type::long(), &count.to_le_bytes()));
            }
            // gdb computes with a pointer's number, which is handy for masks.
            (Binary::And | Binary::Or | Binary::Xor | Binary::Rem, ..) => {}
            _ => return refuse(),
        }
        let (x, y) = (promoted(x), promoted(y));
        if matches!(operation, Binary::Shl | Binary::Shr) {
            return shift(operation, &x, &y, span);
        }
        let of = common(x.base(), y.base());
        let (x, y) = (x.converted(&of), y.converted(&of));
        if of.kind == BaseKind::Float {
            return float(operation, x.float(), y.float(), of, span);
        }
        integer(operation, &x, &y, of, span)
    }

    fn stride(&mut self, to: &Type, span: &Span) -> Result<u64, Problem> {
        let size = self.view.catalog.size(to).map_err(NoPlace::from);
        match self.at(span, size)? {
            Some(size) => Ok(size),
            None => Err(Problem::undefined(
                span,
                "the size of what it points to isn't known",
            )),
        }
    }

    /// A pointer moved by so many elements.
    fn advanced(
        &mut self,
        to: Type,
        pointer: &Number,
        by: &Number,
        sign: i64,
        span: &Span,
    ) -> Result<Value, Problem> {
        if matches!(by, Number::Float { .. }) {
            let message = "a pointer moves by whole elements";
            return Err(Problem::wrong(span, message));
        }
        let size = self.stride(&to, span)?;
        let bytes = (by.signed() as i64).wrapping_mul(size as i64);
        let address = (pointer.signed() as u64).wrapping_add(bytes.wrapping_mul(sign) as u64);
        Ok(Value::pointer(to, address))
    }

    /// A pointer that was optimised away can only be compared with zero: it isn't.
    fn with_synthetic(
        &mut self,
        operation: Binary,
        a: &Value,
        b: &Value,
        span: &Span,
    ) -> Result<Value, Problem> {
        let other = match (&a.place, &b.place) {
            (Place::Synthetic { .. }, Place::Synthetic { .. }) => None,
            (Place::Synthetic { .. }, _) => Some(b),
            _ => Some(a),
        };
        if let Some(other) = other
            && matches!(operation, Binary::Eq | Binary::Ne)
            && !self.number(other, span)?.truth()
        {
            return Ok(Value::int((operation == Binary::Ne).into()));
        }
        let message = "the pointer was optimised out, so it can't be computed with";
        Err(Problem::undefined(span, message))
    }
}

fn compare(operation: Binary, x: &Number, y: &Number, pointers: bool) -> bool {
    use std::cmp::Ordering::*;
    let (x, y) = (promoted(x.clone()), promoted(y.clone()));
    let mut of = common(x.base(), y.base());
    if pointers && of.kind != BaseKind::Float {
        of = crate::value::address_base();
    }
    let (x, y) = (x.converted(&of), y.converted(&of));
    let order = match (&x, &y) {
        (Number::Int { bits: a, .. }, Number::Int { bits: b, .. }) if !of.kind.signed() => {
            Some(a.cmp(b))
        }
        (Number::Int { .. }, Number::Int { .. }) => Some(x.signed().cmp(&y.signed())),
        _ => x.float().partial_cmp(&y.float()),
    };
    match operation {
        Binary::Lt => order == Some(Less),
        Binary::Gt => order == Some(Greater),
        Binary::Le => matches!(order, Some(Less | Equal)),
        Binary::Ge => matches!(order, Some(Greater | Equal)),
        Binary::Ne => order != Some(Equal),
        _ => order == Some(Equal),
    }
}

fn shift(operation: Binary, x: &Number, y: &Number, span: &Span) -> Result<Value, Problem> {
    if let (Number::Float { .. }, _) | (_, Number::Float { .. }) = (x, y) {
        return Err(Problem::wrong(span, "a float has no bits to shift"));
    }
    let of = x.base().clone();
    let by = y.signed();
    // C leaves the rest undefined.
    if by < 0 || by >= i128::from(of.size) * 8 {
        let message = format!("a shift by {by} bits isn't defined");
        return Err(Problem::undefined(span, message));
    }
    let value = match (operation, x) {
        (Binary::Shl, x) => x.signed().wrapping_shl(by as u32),
        (_, Number::Int { bits, .. }) if !of.kind.signed() => (bits >> by) as i128,
        (_, x) => x.signed() >> by,
    };
    Ok(made(&Number::int(value, of)))
}

fn float(operation: Binary, x: f64, y: f64, of: Base, span: &Span) -> Result<Value, Problem> {
    let value = match operation {
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Add => x + y,
        Binary::Sub => x - y,
        _ => {
            let message = format!("`{}` is for integers only", operation.symbol());
            return Err(Problem::wrong(span, message));
        }
    };
    let rounded = Number::Float {
        value,
        base: of.clone(),
    };
    Ok(made(&rounded.converted(&of)))
}

fn integer(
    operation: Binary,
    x: &Number,
    y: &Number,
    of: Base,
    span: &Span,
) -> Result<Value, Problem> {
    let (a, b) = (x.signed(), y.signed());
    let value = match operation {
        Binary::Mul => a.wrapping_mul(b),
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Div | Binary::Rem => {
            if b == 0 {
                return Err(Problem::undefined(span, "division by zero"));
            }
            match (operation, of.kind.signed()) {
                (Binary::Div, true) => a.wrapping_div(b),
                (Binary::Div, false) => (a as u128 / b as u128) as i128,
                (_, true) => a.wrapping_rem(b),
                (_, false) => (a as u128 % b as u128) as i128,
            }
        }
        _ => unreachable!("comparisons and shifts are done elsewhere"),
    };
    Ok(made(&Number::int(value, of)))
}
