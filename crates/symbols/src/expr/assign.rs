//! In: a value of the program, and one for it. Out: what an assignment would write, and where. Nothing is written here.

use super::eval::Evaluator;
use super::syntax::{Problem, Span};
use crate::location::NoPlace;
use crate::types::Type;
use crate::value::{Place, Value};

impl Evaluator<'_> {
    /// The memory that `target = value` changes, and its new bytes; converted as C does.
    pub fn assignment(&mut self, target: &Value, value: &Value) -> Result<(u64, Vec<u8>), Problem> {
        let span = 0..self.text.len();
        let target = self.referent(target.clone(), &span)?;
        let Place::Memory(address) = target.place else {
            let message = "it isn't in memory here: only what is can be set";
            return Err(Problem::undefined(&span, message.to_string()));
        };
        let kept = self.converted(value, &target.of, &span)?;
        let size = self.view.catalog.size(&target.of).map_err(NoPlace::from);
        let Some(size) = self.at(&span, size)? else {
            return Err(Problem::wrong(&span, "its size isn't known"));
        };
        let Some(bits) = target.bits else {
            let bytes = self.view.bytes(&kept, size);
            return Ok((address, self.at(&span, bytes)?));
        };
        let new = self.number(&kept, &span)?.signed() as u128;
        let len = (bits.from + bits.size).div_ceil(8).min(16);
        let old = self.view.bytes(&target, len.into());
        let old = self.at(&span, old)?;
        let mut whole = [0; 16];
        whole[..old.len()].copy_from_slice(&old);
        let mask = u128::MAX.checked_shr(128 - bits.size).unwrap_or(0) << bits.from;
        let whole = u128::from_le_bytes(whole) & !mask | (new << bits.from) & mask;
        Ok((address, whole.to_le_bytes()[..old.len()].to_vec()))
    }

    /// As a cast, but that structures and arrays must be of the same type.
    fn converted(&mut self, value: &Value, to: &Type, span: &Span) -> Result<Value, Problem> {
        if let Type::Record(_) | Type::Array { .. } = self.strip(to, span)? {
            let value = self.referent(value.clone(), span)?;
            let names = [to, &value.of].map(|of| self.view.catalog.type_name(of));
            let [wanted, given] = names.map(|name| self.at(span, name));
            let (wanted, given) = (wanted?, given?);
            if wanted != given {
                let message = format!("it is a {wanted}, which a {given} can't be assigned to");
                return Err(Problem::wrong(span, message));
            }
        }
        self.cast(value, to, span)
    }
}
