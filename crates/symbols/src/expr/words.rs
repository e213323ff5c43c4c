//! C's own words: which they are, and which types they make together.

use super::syntax::Builtin;

pub(super) fn qualifier(word: &str) -> bool {
    matches!(
        word,
        "const" | "volatile" | "restrict" | "__restrict" | "_Atomic"
    )
}

pub(super) fn builtin_word(word: &str) -> bool {
    matches!(
        word,
        "void"
            | "_Bool"
            | "bool"
            | "char"
            | "short"
            | "int"
            | "long"
            | "signed"
            | "unsigned"
            | "float"
            | "double"
            | "__int128"
    )
}

pub(super) fn keyword(word: &str) -> bool {
    qualifier(word)
        || builtin_word(word)
        || matches!(word, "struct" | "union" | "enum" | "class" | "sizeof")
}

pub(super) fn builtin(words: &[String]) -> Option<Builtin> {
    use Builtin::*;
    let count = |word: &str| words.iter().filter(|other| *other == word).count();
    let known = |names: &[&str]| words.iter().all(|word| names.contains(&word.as_str()));
    let (unsigned, signed) = (count("unsigned"), count("signed"));
    let (short, long, int) = (count("short"), count("long"), count("int"));
    if unsigned + signed > 1 || int > 1 || long > 2 || short > 1 {
        return None;
    }
    let either = |plain, no_sign| Some(if unsigned == 1 { no_sign } else { plain });
    match words {
        [one] if one == "void" => return Some(Void),
        [one] if one == "bool" || one == "_Bool" => return Some(Bool),
        [one] if one == "float" => return Some(Float),
        [one] if one == "double" => return Some(Double),
        _ => {}
    }
    if count("double") == 1 && long == 1 && words.len() == 2 {
        return Some(LongDouble);
    }
    if count("char") == 1 && known(&["char", "unsigned", "signed"]) {
        return match signed {
            1 => Some(SignedChar),
            _ => either(Char, UnsignedChar),
        };
    }
    if count("__int128") == 1 && known(&["__int128", "unsigned", "signed"]) {
        return either(Int128, UnsignedInt128);
    }
    if !known(&["unsigned", "signed", "short", "long", "int"]) || short == 1 && long > 0 {
        return None;
    }
    match (short, long) {
        (1, _) => either(Short, UnsignedShort),
        (_, 0) => either(Int, UnsignedInt),
        (_, 1) => either(Long, UnsignedLong),
        _ => either(LongLong, UnsignedLongLong),
    }
}
