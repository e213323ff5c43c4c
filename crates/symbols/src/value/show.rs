//! Values as people read them: a value in, text in gdb's style for C out, of bounded length.

use super::containers::Container;
use super::{Number, Place, Value, View, float_text};
use crate::location::NoPlace;
use crate::types::{BaseKind, Enum, Language, Member, Offset, Record, Type};
use std::fmt::Write as _;

/// Elements of arrays and characters of strings, all together.
const MOST_ELEMENTS: usize = 200;
/// So many equal elements are shown as one.
const REPEATS: usize = 10;
/// No more elements are looked at, equal or not.
const MOST_LOOKED: u64 = 4096;
/// Larger arrays aren't read at once.
const LARGEST_ARRAY: u64 = 1 << 20;
const DEEPEST: usize = 20;
const LONGEST: usize = 10_000;

impl View<'_> {
    /// The value as text; what can't be read says so in its place.
    pub fn show(&mut self, value: &Value) -> String {
        let mut text = String::new();
        let mut shower = Shower {
            view: self,
            elements: 0,
            means: false,
        };
        if let Err(error) = shower.top(value, &mut text) {
            text = unreadable(&error);
        }
        text
    }

    /// The value as text, without its type, and containers of the standard libraries by what they hold.
    pub fn text_of(&mut self, value: &Value) -> String {
        let mut text = String::new();
        let referent = match self.catalog.strip(&value.of) {
            Ok(Type::Reference(_)) => self.deref(value),
            _ => Ok(value.clone()),
        };
        let mut shower = Shower {
            view: self,
            elements: 0,
            means: true,
        };
        let shown = referent.and_then(|value| shower.inner(&value, 0, &mut text));
        if let Err(error) = shown {
            text = unreadable(&error);
        }
        text
    }
}

fn unreadable(error: &NoPlace) -> String {
    match error {
        NoPlace::Gone => "<optimized out>".into(),
        NoPlace::Unreadable(address) => format!("<can't read memory at {address:#x}>"),
        error => format!("<{error}>"),
    }
}

struct Shower<'a, 'b> {
    view: &'a mut View<'b>,
    elements: usize,
    /// Containers are shown by what they hold.
    means: bool,
}

type Shown = Result<(), NoPlace>;

impl Shower<'_, '_> {
    /// Outermost values say the type of pointers.
    fn top(&mut self, value: &Value, out: &mut String) -> Shown {
        let catalog = self.view.catalog;
        match catalog.strip(&value.of)? {
            Type::Pointer { to, .. } => {
                let text = matches!(catalog.strip(&to)?, Type::Base(base) if is_char(base.kind, base.size));
                if !text || matches!(value.place, Place::Synthetic { .. }) {
                    let _ = write!(out, "({}) ", catalog.type_name(&value.of)?);
                }
                self.inner(value, 0, out)
            }
            Type::Reference(_) => {
                let target = self.view.deref(value)?;
                let _ = write!(out, "({}) ", catalog.type_name(&value.of)?);
                if let Place::Memory(address) = target.place {
                    let _ = write!(out, "@{address:#x}: ");
                }
                self.inner(&target, 0, out)
            }
            Type::Function(_) => {
                let Place::Memory(address) = value.place else {
                    return Err(NoPlace::Gone);
                };
                let name = catalog.type_name(&value.of)?;
                let _ = write!(out, "{{{name}}} {}", self.address(address));
                Ok(())
            }
            _ => self.inner(value, 0, out),
        }
    }

    fn inner(&mut self, value: &Value, depth: usize, out: &mut String) -> Shown {
        if out.len() > LONGEST {
            out.push_str("...");
            return Ok(());
        }
        let of = self.view.catalog.strip(&value.of)?;
        match &of {
            Type::Base(base) => {
                let number = self.view.number(value)?;
                let text = number.map(|number| base_text(&number, base.kind));
                out.push_str(&text.unwrap_or_default());
            }
            Type::Enum(of) => {
                let number = self.view.number(value)?;
                out.push_str(&number.map_or_else(String::new, |number| enum_text(&number, of)));
            }
            Type::Pointer { to, .. } => self.pointer(value, to, out)?,
            Type::Reference(_) => {
                let target = self.view.deref(value)?;
                if let Place::Memory(address) = target.place {
                    let _ = write!(out, "@{address:#x}");
                }
            }
            Type::Array { of, count } => self.array(value, of, *count, depth, out)?,
            Type::Record(record) => self.record(value, record, depth, out)?,
            Type::Void => out.push_str("void"),
            Type::Function(_) => {
                if let Place::Memory(address) = value.place {
                    let _ = write!(out, "{}", self.address(address));
                }
            }
            Type::Other { name, size } => {
                // Rust's `()`.
                if *size == 0 {
                    let _ = write!(out, "{name}");
                } else {
                    let _ = write!(out, "<{name}>");
                }
            }
            Type::Named { .. } | Type::Qualified { .. } | Type::Entry(_) => {}
        }
        Ok(())
    }

    /// With the symbol there, if there is one.
    fn address(&mut self, address: u64) -> String {
        let symbol = self.view.catalog.symbol_at(self.view.modules, address);
        match symbol {
            Some((name, 0)) => format!("{address:#x} <{name}>"),
            Some((name, offset)) => format!("{address:#x} <{name}+{offset}>"),
            None => format!("{address:#x}"),
        }
    }

    fn pointer(&mut self, value: &Value, to: &Type, out: &mut String) -> Shown {
        if let Place::Synthetic { .. } = value.place {
            out.push_str("<synthetic pointer>");
            return Ok(());
        }
        let bytes = self.view.bytes(value, 8)?;
        let address = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        match self.view.catalog.strip(to)? {
            Type::Base(base) if is_char(base.kind, base.size) => {
                let _ = write!(out, "{address:#x}");
                if address != 0
                    && let Some(text) = self.string(address)
                {
                    let _ = write!(out, " {text}");
                }
            }
            _ => out.push_str(&self.address(address)),
        }
        Ok(())
    }

    /// What is at an address up to a zero byte.
    fn string(&mut self, address: u64) -> Option<String> {
        let most = MOST_ELEMENTS.saturating_sub(self.elements);
        let mut bytes = vec![0; most];
        let got = self.view.context.read(address, &mut bytes);
        bytes.truncate(got);
        let end = bytes.iter().position(|byte| *byte == 0);
        if end.is_none() && got < most {
            return None;
        }
        bytes.truncate(end.unwrap_or(got));
        self.elements += bytes.len();
        let more = if end.is_none() { "..." } else { "" };
        Some(format!("{}{more}", string_text(&bytes)))
    }

    fn array(
        &mut self,
        value: &Value,
        of: &Type,
        count: Option<u64>,
        depth: usize,
        out: &mut String,
    ) -> Shown {
        let Some(count) = count else {
            if let Place::Memory(address) = value.place {
                out.push_str(&self.address(address));
            }
            return Ok(());
        };
        if let Type::Base(base) = self.view.catalog.strip(of)?
            && is_char(base.kind, base.size)
            && count > 0
        {
            let most = MOST_ELEMENTS.saturating_sub(self.elements) as u64;
            let mut bytes = self.view.bytes(value, count.min(most))?;
            let whole = bytes.len() as u64 == count;
            // The zero at the end says nothing.
            if whole && bytes.last() == Some(&0) {
                bytes.pop();
            }
            self.elements += bytes.len();
            out.push_str(&string_text(&bytes));
            if !whole {
                out.push_str("...");
            }
            return Ok(());
        }
        if depth >= DEEPEST {
            out.push_str("{...}");
            return Ok(());
        }
        out.push('{');
        let mut at = 0;
        let mut run: Option<(String, usize)> = None;
        let mut first = true;
        let mut flush = |run: &Option<(String, usize)>, elements: &mut usize, out: &mut String| {
            let Some((text, times)) = run else { return };
            if *times > REPEATS {
                let comma = if first { "" } else { ", " };
                let _ = write!(out, "{comma}{text} <repeats {times} times>");
                *elements += REPEATS;
                first = false;
                return;
            }
            for _ in 0..*times {
                let comma = if first { "" } else { ", " };
                let _ = write!(out, "{comma}{text}");
                first = false;
            }
            *elements += *times;
        };
        let shown = count.min(MOST_LOOKED);
        let whole = self.whole(value, of, shown)?;
        while at < shown && out.len() < LONGEST {
            // What is gathered counts when it is written.
            let gathered = run.as_ref().map_or(0, |(_, times)| (*times).min(REPEATS));
            let few = run.as_ref().is_none_or(|(_, times)| *times <= REPEATS);
            if self.elements + gathered >= MOST_ELEMENTS && few {
                break;
            }
            let element = match &whole {
                Some((bytes, size)) => {
                    let start = at as usize * size;
                    Value::made(of.clone(), &bytes[start..start + size])
                }
                None => self.view.element(value, at as i64)?,
            };
            let mut text = String::new();
            self.inner(&element, depth + 1, &mut text)?;
            match &mut run {
                Some((known, times)) if *known == text => *times += 1,
                _ => {
                    flush(&run, &mut self.elements, out);
                    run = Some((text, 1));
                }
            }
            at += 1;
        }
        flush(&run, &mut self.elements, out);
        if at < count {
            out.push_str("...");
        }
        out.push('}');
        Ok(())
    }

    /// The bytes of so many elements, and the size of one; none if they are better read one by one.
    fn whole(
        &mut self,
        value: &Value,
        of: &Type,
        count: u64,
    ) -> Result<Option<(Vec<u8>, usize)>, NoPlace> {
        let size = self.view.catalog.size(of)?.unwrap_or(0);
        let len = size.saturating_mul(count);
        // A container may have what it holds in itself: it must know where it is.
        let holds = self.means && matches!(self.view.catalog.strip(of)?, Type::Record(_));
        let far = !matches!(value.place, Place::Memory(_));
        if size == 0 || len > LARGEST_ARRAY || far || holds {
            return Ok(None);
        }
        let bytes = self.view.bytes(value, len)?;
        Ok(Some((bytes, size as usize)))
    }

    fn record(&mut self, value: &Value, record: &Record, depth: usize, out: &mut String) -> Shown {
        if record.incomplete {
            out.push_str("<incomplete type>");
            return Ok(());
        }
        if depth >= DEEPEST {
            out.push_str("{...}");
            return Ok(());
        }
        if self.means
            && let Some(container) = self.view.container(value, record)?
        {
            return self.container(&container, depth, out);
        }
        if record.language == Language::Rust
            && let Some(done) = self.rust(value, record, depth, out)?
        {
            return Ok(done);
        }
        out.push('{');
        let bias = self.bias(record);
        let means = self.means;
        let catalog = self.view.catalog;
        let members = record.members.iter();
        let members = members.filter(|member| !(means && catalog.is_empty_base(member)));
        for (n, member) in members.enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            match &member.name {
                Some(name) if member.base => {
                    let _ = write!(out, "<{name}> = ");
                }
                Some(name) => {
                    let _ = write!(out, "{name} = ");
                }
                None => {}
            }
            self.member(value, member, bias, depth, out);
        }
        out.push('}');
        Ok(())
    }

    fn member(
        &mut self,
        value: &Value,
        member: &Member,
        bias: u64,
        depth: usize,
        out: &mut String,
    ) {
        let before = out.len();
        let shown = self
            .view
            .member(value, member, bias)
            .and_then(|inner| self.inner(&inner, depth + 1, out));
        if let Err(error) = shown {
            out.truncate(before);
            out.push_str(&unreadable(&error));
        }
    }

    fn container(&mut self, container: &Container, depth: usize, out: &mut String) -> Shown {
        match container {
            Container::Text { address, len } => {
                let most = MOST_ELEMENTS.saturating_sub(self.elements) as u64;
                let bytes = self.view.read(*address, (*len).min(most) as usize)?;
                self.elements += bytes.len();
                out.push_str(&string_text(&bytes));
                if *len > most {
                    out.push_str("...");
                }
                Ok(())
            }
            Container::Elements(array) => self.inner(array, depth, out),
            Container::Contents(None) => {
                out.push_str("<nothing>");
                Ok(())
            }
            Container::Contents(Some(value)) => self.inner(value, depth + 1, out),
            Container::Items { walk, count } => {
                out.push('{');
                let most = MOST_ELEMENTS.saturating_sub(self.elements) as u64;
                let items = self.view.walk(walk, *count, 0, most);
                let mut shown = 0;
                for item in &items {
                    if out.len() > LONGEST || self.elements >= MOST_ELEMENTS {
                        break;
                    }
                    if shown > 0 {
                        out.push_str(", ");
                    }
                    if let Some(key) = &item.key {
                        out.push('[');
                        self.inner(key, depth + 1, out)?;
                        out.push_str("] = ");
                    }
                    self.inner(&item.value, depth + 1, out)?;
                    shown += 1;
                    self.elements += 1;
                }
                if shown < *count {
                    out.push_str("...");
                }
                out.push('}');
                Ok(())
            }
        }
    }

    fn bias(&self, record: &Record) -> u64 {
        self.view.bias_of(record)
    }

    /// Rust's own shapes: enums, tuples, string slices. `None`: it is a plain struct.
    fn rust(
        &mut self,
        value: &Value,
        record: &Record,
        depth: usize,
        out: &mut String,
    ) -> Result<Option<()>, NoPlace> {
        let name = record.name.as_deref().unwrap_or_default();
        if name == "&str"
            && let [data, length, ..] = &record.members[..]
        {
            let data = self.view.member(value, data, 0)?;
            let length = self.view.member(value, length, 0)?;
            let (data, length) = (self.view.number(&data)?, self.view.number(&length)?);
            if let (Some(data), Some(length)) = (data, length) {
                let most = MOST_ELEMENTS.saturating_sub(self.elements) as i128;
                let shown = length.signed().clamp(0, most);
                let bytes = self.view.read(data.signed() as u64, shown as usize)?;
                self.elements += bytes.len();
                out.push_str(&string_text(&bytes));
                if shown < length.signed() {
                    out.push_str("...");
                }
                return Ok(Some(()));
            }
        }
        let Some(variants) = &record.variants else {
            return Ok(None);
        };
        let present = self.view.variant(value, record)?;
        let Some(member) = present.map(|n| variants.variants[n].member.clone()) else {
            let _ = write!(out, "{name}::<no such variant>");
            return Ok(Some(()));
        };
        let _ = write!(out, "{name}::{}", member.name.as_deref().unwrap_or("?"));
        let inner = self.view.member(value, &member, 0)?;
        let Type::Record(fields) = self.view.catalog.strip(&inner.of)? else {
            return Ok(Some(()));
        };
        let fields = &fields.members;
        if fields.is_empty() {
            return Ok(Some(()));
        }
        let tuple = fields.iter().all(|field| {
            field
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with("__"))
        });
        out.push(if tuple { '(' } else { '{' });
        for (n, field) in fields.iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            if !tuple {
                let _ = write!(out, "{} = ", field.name.as_deref().unwrap_or("?"));
            }
            self.member(&inner, field, 0, depth + 1, out);
        }
        out.push(if tuple { ')' } else { '}' });
        Ok(Some(()))
    }
}

impl View<'_> {
    /// Where a record's module lies, if that matters to where its members are.
    pub(super) fn bias_of(&self, record: &Record) -> u64 {
        let computed = |member: &Member| matches!(member.offset, Offset::Computed(_));
        if !record.members.iter().any(computed) {
            return 0;
        }
        let mut images = self.modules.modules();
        let image =
            images.find(|image| std::sync::Arc::ptr_eq(&image.module, &record.entry.module));
        image.map_or(0, |image| image.bias)
    }

    /// Which variant of a Rust enum is there.
    pub fn variant(&mut self, value: &Value, record: &Record) -> Result<Option<usize>, NoPlace> {
        let Some(variants) = &record.variants else {
            return Ok(None);
        };
        let Some(tag) = &variants.tag else {
            return Ok((!variants.variants.is_empty()).then_some(0));
        };
        let tag = self.member(value, tag, 0)?;
        let Some(Number::Int { bits, base }) = self.number(&tag)? else {
            return Ok(None);
        };
        let keep = if base.size >= 16 {
            u128::MAX
        } else {
            (1 << (u32::from(base.size) * 8)) - 1
        };
        let all = &variants.variants;
        let exact = all
            .iter()
            .position(|variant| variant.tag.map(|tag| tag & keep) == Some(bits));
        Ok(exact.or_else(|| all.iter().position(|variant| variant.tag.is_none())))
    }
}

fn is_char(kind: BaseKind, size: u8) -> bool {
    size == 1
        && matches!(
            kind,
            BaseKind::SignedChar | BaseKind::UnsignedChar | BaseKind::Unicode
        )
}

fn base_text(number: &Number, kind: BaseKind) -> String {
    match (number, kind) {
        (Number::Float { value, base }, _) => {
            float_text(*value, if base.size == 4 { 9 } else { 17 })
        }
        (Number::Int { bits, .. }, BaseKind::Bool) => match bits {
            0 => "false".into(),
            1 => "true".into(),
            other => other.to_string(),
        },
        (Number::Int { bits, .. }, BaseKind::SignedChar | BaseKind::UnsignedChar) => {
            let mut text = format!("{} '", number.signed());
            escape(*bits as u8, '\'', &mut text);
            text.push('\'');
            text
        }
        (Number::Int { bits, .. }, BaseKind::Unicode) => {
            let shown = char::from_u32(*bits as u32).filter(|c| !c.is_control());
            match shown {
                Some(c) => format!("{bits} '{c}'"),
                None => bits.to_string(),
            }
        }
        (Number::Int { bits, .. }, BaseKind::Unsigned) => bits.to_string(),
        (number, _) => number.signed().to_string(),
    }
}

fn enum_text(number: &Number, of: &Enum) -> String {
    let value = number.signed();
    let shown = |name: &str| match (&of.name, of.language) {
        (Some(path), Language::Cpp | Language::Rust) => {
            let scope = if of.scoped || of.language == Language::Rust {
                format!("{path}::")
            } else {
                path.rfind("::")
                    .map_or_else(String::new, |at| path[..at + 2].to_string())
            };
            format!("{scope}{name}")
        }
        _ => name.to_string(),
    };
    if let Some((name, _)) = of.values.iter().find(|(_, known)| *known == value) {
        return shown(name);
    }
    // Flags: each value one bit (or none), or several that lie together.
    let flags = of.values.iter().all(|(_, known)| {
        *known >= 0
            && (*known == 0
                || (known >> known.trailing_zeros()).count_zeros()
                    == known.leading_zeros() + known.trailing_zeros())
    });
    if !flags || of.values.is_empty() || value <= 0 {
        return value.to_string();
    }
    let mut rest = value;
    let mut parts = Vec::new();
    for (name, known) in &of.values {
        if *known != 0 && rest & known == *known {
            parts.push(shown(name));
            rest &= !known;
        }
    }
    if parts.is_empty() {
        return format!("(unknown: {value:#x})");
    }
    if rest != 0 {
        parts.push(format!("unknown: {rest:#x}"));
    }
    format!("({})", parts.join(" | "))
}

fn escape(byte: u8, quote: char, out: &mut String) {
    match byte {
        b'\n' => out.push_str("\\n"),
        b'\t' => out.push_str("\\t"),
        b'\r' => out.push_str("\\r"),
        7 => out.push_str("\\a"),
        8 => out.push_str("\\b"),
        11 => out.push_str("\\v"),
        12 => out.push_str("\\f"),
        27 => out.push_str("\\033"),
        b'\\' => out.push_str("\\\\"),
        byte if byte as char == quote => {
            out.push('\\');
            out.push(quote);
        }
        b' '..=b'~' => out.push(byte as char),
        byte => {
            let _ = write!(out, "\\{byte:03o}");
        }
    }
}

/// A string with long runs of one character set apart, as gdb has it.
fn string_text(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut open = false;
    let close = |open: &mut bool, out: &mut String| {
        if *open {
            out.push('"');
            *open = false;
        }
    };
    // Whole text in another alphabet is text, too.
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.is_ascii()
        && !text.chars().any(char::is_control)
    {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let same = bytes[at..]
            .iter()
            .take_while(|other| **other == byte)
            .count();
        if same > REPEATS {
            close(&mut open, &mut out);
            let comma = if out.is_empty() { "" } else { ", " };
            let _ = write!(out, "{comma}'");
            escape(byte, '\'', &mut out);
            let _ = write!(out, "' <repeats {same} times>");
        } else {
            if !open {
                out.push_str(if out.is_empty() { "\"" } else { ", \"" });
                open = true;
            }
            for _ in 0..same {
                escape(byte, '"', &mut out);
            }
        }
        at += same;
    }
    close(&mut open, &mut out);
    if out.is_empty() {
        out.push_str("\"\"");
    }
    out
}
