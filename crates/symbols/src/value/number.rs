//! Numbers as C computes with them: bytes and a base type in; conversions and text out.

use crate::types::{Base, BaseKind};

#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// The bits above the base's size are zero.
    Int {
        bits: u128,
        base: Base,
    },
    Float {
        value: f64,
        base: Base,
    },
}

fn mask(size: u8) -> u128 {
    if size >= 16 {
        u128::MAX
    } else {
        (1u128 << (u32::from(size) * 8)) - 1
    }
}

impl Number {
    pub fn int(value: i128, base: Base) -> Number {
        Number::Int {
            bits: value as u128 & mask(base.size),
            base,
        }
    }

    pub fn address(address: u64) -> Number {
        Number::int(address.into(), super::address_base())
    }

    /// `None` for floats of an unknown format.
    pub fn from_bytes(bytes: &[u8], base: Base) -> Option<Number> {
        let mut whole = [0; 16];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let bits = u128::from_le_bytes(whole);
        if base.kind != BaseKind::Float {
            return Some(Number::Int {
                bits: bits & mask(base.size),
                base,
            });
        }
        let value = match base.size {
            4 => f64::from(f32::from_bits(bits as u32)),
            8 => f64::from_bits(bits as u64),
            10 | 12 | 16 => extended(bits),
            _ => return None,
        };
        Some(Number::Float { value, base })
    }

    /// A bit field of so many bits.
    pub fn from_bits(raw: u128, size: u32, base: Base) -> Option<Number> {
        if base.kind == BaseKind::Float || size == 0 {
            return None;
        }
        let keep = if size >= 128 {
            u128::MAX
        } else {
            (1 << size) - 1
        };
        let bits = raw & keep;
        let negative = base.kind.signed() && bits >> (size.min(128) - 1) & 1 == 1;
        let value = if negative { bits | !keep } else { bits };
        Some(Number::int(value as i128, base))
    }

    pub fn base(&self) -> &Base {
        match self {
            Number::Int { base, .. } | Number::Float { base, .. } => base,
        }
    }

    /// As a signed number of any size; unsigned ones of 128 bits wrap.
    pub fn signed(&self) -> i128 {
        match self {
            Number::Int { bits, base } if base.kind.signed() => {
                let unused = 128 - u32::from(base.size.min(16)) * 8;
                ((*bits << unused) as i128) >> unused
            }
            Number::Int { bits, .. } => *bits as i128,
            Number::Float { value, .. } => *value as i128,
        }
    }

    pub fn float(&self) -> f64 {
        match self {
            Number::Int { bits, base } if !base.kind.signed() => *bits as f64,
            Number::Int { .. } => self.signed() as f64,
            Number::Float { value, .. } => *value,
        }
    }

    pub fn truth(&self) -> bool {
        match self {
            Number::Int { bits, .. } => *bits != 0,
            Number::Float { value, .. } => *value != 0.0,
        }
    }

    /// As a cast does it.
    pub fn converted(&self, base: &Base) -> Number {
        match base.kind {
            BaseKind::Float => {
                let value = self.float();
                let value = if base.size == 4 {
                    f64::from(value as f32)
                } else {
                    value
                };
                Number::Float {
                    value,
                    base: base.clone(),
                }
            }
            BaseKind::Bool => Number::int(self.truth().into(), base.clone()),
            _ => Number::int(self.signed(), base.clone()),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Number::Int { bits, base } => {
                bits.to_le_bytes()[..usize::from(base.size.min(16))].to_vec()
            }
            Number::Float { value, base } => match base.size {
                4 => (*value as f32).to_le_bytes().to_vec(),
                8 => value.to_le_bytes().to_vec(),
                size => {
                    let mut bytes = to_extended(*value).to_le_bytes().to_vec();
                    bytes.resize(size.into(), 0);
                    bytes
                }
            },
        }
    }
}

/// The x87's 80 bits.
fn extended(bits: u128) -> f64 {
    let mantissa = bits as u64;
    let exponent = (bits >> 64) as i32 & 0x7fff;
    let sign = if bits >> 79 & 1 == 1 { -1.0 } else { 1.0 };
    let magnitude = match exponent {
        0 if mantissa == 0 => 0.0,
        0x7fff if mantissa << 1 == 0 => f64::INFINITY,
        0x7fff => f64::NAN,
        // Two steps, since one power may be beyond what a double holds.
        exponent => {
            let power = exponent - 16383 - 63;
            mantissa as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
        }
    };
    sign * magnitude
}

fn to_extended(value: f64) -> u128 {
    let sign = u128::from(value.is_sign_negative()) << 79;
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (exponent, mantissa) = match exponent {
        0 if fraction == 0 => (0, 0),
        0 => {
            let shift = fraction.leading_zeros();
            (16383 - 1022 + 11 - shift as i32, fraction << shift)
        }
        0x7ff => (0x7fff, 1 << 63 | fraction << 11),
        exponent => (exponent - 1023 + 16383, 1 << 63 | fraction << 11),
    };
    sign | (exponent as u128) << 64 | u128::from(mantissa)
}

/// As C's `%g` with so many digits.
pub fn float_text(value: f64, digits: usize) -> String {
    if value.is_nan() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}nan(0x{:x})", value.to_bits() & ((1 << 52) - 1));
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.into();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.into();
    }
    let scientific = format!("{:.*e}", digits - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        } else {
            text.to_string()
        }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let places = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_c_prints_them() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (100.0, "100"),
            (1e20, "1e+20"),
            (-1.25e-7, "-1.2499999999999999e-07"),
            (123456789.125, "123456789.125"),
            (0.0, "0"),
        ] {
            assert_eq!(float_text(value, 17), text);
        }
        assert_eq!(float_text(f64::from(0.1f32), 9), "0.100000001");
    }

    #[test]
    fn extended_floats_there_and_back() {
        for value in [0.0, 1.0, -2.5, 1e300, 1e-310, 0.1, f64::INFINITY] {
            assert_eq!(extended(to_extended(value)), value);
        }
    }

    #[test]
    fn bit_fields_keep_their_sign() {
        let base = Base {
            name: "int".into(),
            size: 4,
            kind: BaseKind::Signed,
        };
        let field = |raw| Number::from_bits(raw, 3, base.clone()).unwrap().signed();
        assert_eq!((field(0b011), field(0b111), field(0b1100)), (3, -1, -4));
    }
}
