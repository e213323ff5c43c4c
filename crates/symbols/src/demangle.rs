//! Names of C++ and Rust functions: a linker's name in, what people wrote out; and whether a name
//! that somebody typed means a function.

/// Longer names take a demangler long and no one to read.
const MAX_MANGLED: usize = 8192;
/// Substitutions let a short mangled name stand for an endless one.
const MAX_PLAIN: usize = 1 << 16;

/// Text that refuses to grow too long.
#[derive(Default)]
struct Bounded(String);

impl cpp_demangle::DemangleWrite for Bounded {
    fn write_string(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > MAX_PLAIN {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The name as people write it, qualified, without parameters; none if it isn't mangled.
pub fn demangle(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED {
        return None;
    }
    // The linker's version and the compiler's clones: `f@@GLIBC_2.2.5`, `f.constprop.0`.
    let plain = name.split_once('@').map_or(name, |(plain, _)| plain);
    // C++ names of version 3 also start with _ZN; Rust's have a hash at their end.
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        return Some(format!("{rust:#}"));
    }
    let end = if plain.starts_with("_Z") {
        plain.find('.').unwrap_or(plain.len())
    } else {
        0
    };
    let symbol =
        cpp_demangle::Symbol::new(plain.get(..end).filter(|plain| !plain.is_empty())?).ok()?;
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(96);
    let mut text = Bounded::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    let mut text = text.0;
    if let Some(suffix) = plain.get(end..).filter(|suffix| !suffix.is_empty()) {
        text.push_str(&format!(" [clone {suffix}]"));
    }
    Some(text)
}

/// A qualified name's parts: `a::B<c::D>::e` has `a`, `B<c::D>` and `e`.
pub(crate) fn parts(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let mut parts = Vec::new();
    let (mut start, mut depth, mut at) = (0, 0usize, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'o' if is_operator(name, at) => break,
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // `->` is no bracket.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                parts.push(&name[start..at]);
                start = at + 2;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&name[start..]);
    parts
}

/// Whether a C++ operator's name starts here, in which brackets mean something else.
fn is_operator(name: &str, at: usize) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let before = at == 0 || !word(name.as_bytes()[at - 1]);
    before
        && name.as_bytes()[at..].starts_with(b"operator")
        && !name.as_bytes().get(at + 8).is_some_and(|&byte| word(byte))
}

/// A part without what is in its angle brackets, and without parameters: `B` of `B<c::D>`.
pub(crate) fn base(part: &str) -> &str {
    if is_operator_part(part) {
        let end = part
            .find('(')
            .filter(|&at| at > 8 && !part.starts_with("operator()"));
        return part[..end.unwrap_or(part.len())].trim_end();
    }
    let end = part
        .find(['<', '('])
        .filter(|&at| at > 0)
        .unwrap_or(part.len());
    part[..end].trim_end()
}

fn is_operator_part(part: &str) -> bool {
    !part.is_empty() && is_operator(part, 0)
}

/// Whether `wanted`, as somebody typed it, means the function called `name`: its parts are the
/// last ones of the name; where it gives no template arguments, any will do.
pub fn means(wanted: &str, name: &str) -> bool {
    let wanted = wanted.trim().trim_start_matches("::");
    let (wanted, name) = (parts(wanted), parts(name));
    let ends = |name: &[&str]| {
        name.len() >= wanted.len()
            && name[name.len() - wanted.len()..]
                .iter()
                .zip(&wanted)
                .all(|(name, wanted)| {
                    let exact = squeeze(name) == squeeze(wanted);
                    exact
                        || (base(wanted).len() == wanted.trim().len() && base(name) == base(wanted))
                })
    };
    if ends(&name) {
        return true;
    }
    // Rust's `<a::T as b::Trait>::f` is also `a::T::f` and `b::Trait::f`.
    let Some(inner) = name
        .first()
        .and_then(|first| first.strip_prefix('<')?.strip_suffix('>'))
    else {
        return false;
    };
    inner.split(" as ").any(|side| {
        let mut whole = parts(side.trim());
        whole.extend(&name[1..]);
        ends(&whole)
    })
}

/// Spaces don't matter: `a<b, c>` is `a<b,c>`.
fn squeeze(part: &str) -> String {
    part.chars()
        .filter(|character| !character.is_whitespace())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages() {
        assert_eq!(
            demangle("_ZN3foo3BarIiE4pushEi").as_deref(),
            Some("foo::Bar<int>::push")
        );
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE").as_deref(),
            Some("core::fmt::Write::write_fmt")
        );
        assert_eq!(
            demangle("_RNvCs1234_7mycrate3foo").as_deref(),
            Some("mycrate::foo")
        );
        assert_eq!(
            demangle("_Z3addii.constprop.0").as_deref(),
            Some("add [clone .constprop.0]")
        );
        assert_eq!(demangle("main"), None);
        assert_eq!(demangle("printf@@GLIBC_2.2.5"), None);
        assert_eq!(demangle(&"_ZN".repeat(10_000)), None);
    }

    #[test]
    fn parts_know_brackets_and_operators() {
        assert_eq!(parts("a::B<c::D>::e"), ["a", "B<c::D>", "e"]);
        assert_eq!(parts("A::operator<"), ["A", "operator<"]);
        assert_eq!(parts("A::operator->"), ["A", "operator->"]);
        assert_eq!(
            parts("(anonymous namespace)::f"),
            ["(anonymous namespace)", "f"]
        );
        assert_eq!(parts("<a::T as b::U>::f"), ["<a::T as b::U>", "f"]);
        assert_eq!(parts("main::{closure#0}"), ["main", "{closure#0}"]);
        assert_eq!(base("B<c::D>"), "B");
        assert_eq!(base("operator<<"), "operator<<");
        assert_eq!(base("f(int)"), "f");
        assert_eq!(base("{closure#0}"), "{closure#0}");
    }

    #[test]
    fn a_typed_name_means_the_names_that_end_in_it() {
        assert!(means("push", "foo::Bar<int>::push"));
        assert!(means("Bar::push", "foo::Bar<int>::push"));
        assert!(means("Bar<int>::push", "foo::Bar<int>::push"));
        assert!(!means("Bar<long>::push", "foo::Bar<int>::push"));
        assert!(!means("ar::push", "foo::Bar<int>::push"));
        assert!(means("::foo::Bar::push", "foo::Bar<int>::push"));
        assert!(means("T::f", "<a::T as b::U>::f"));
        assert!(means("b::U::f", "<a::T as b::U>::f"));
        assert!(means("operator<", "A::operator<"));
        assert!(!means("operator<", "A::operator<<"));
    }
}
