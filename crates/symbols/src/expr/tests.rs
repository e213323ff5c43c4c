//! What the parser makes of expressions, without a program.

use super::parser::parse;
use super::syntax::{Binary, Kind, Names, NoNames, Path};
use super::{calls, check, parts};

fn message(text: &str) -> String {
    check(text).unwrap_err().pointed(text)
}

#[test]
fn assignments_are_refused() {
    for text in ["a = 1", "a += 1", "a++", "--a", "*p = 3", "a <<= 2"] {
        let problem = check(text).unwrap_err();
        assert!(problem.message.contains("not assign"), "{text}: {problem}");
    }
}

#[test]
fn mistakes_are_pointed_at() {
    assert_eq!(
        message("a + (b"),
        "`)` is missing at the end\n  a + (b\n        ^"
    );
    assert_eq!(
        message("a b"),
        "an operator or the end was expected, not `b`\n  a b\n    ^"
    );
    assert_eq!(
        message("ä + 'x"),
        "there is no closing '\n  ä + 'x\n      ^^"
    );
    assert_eq!(message("9x"), "9x: no such number\n  9x\n  ^^");
    assert_eq!(message(""), "there is no expression\n  \n  ^");
    assert!(check(&"(".repeat(100_000)).is_err());
    assert!(check(&"-".repeat(100_000)).is_err());
    assert!(check(&"a?".repeat(100_000)).is_err());
    assert!(check("(unsigned float) x").is_err());
}

#[test]
fn precedence_is_cs() {
    let root = parse("a + b * c == d || e", &mut NoNames).unwrap();
    let Kind::Or(left, _) = root.kind else {
        panic!("{root:?}");
    };
    let Kind::Binary(Binary::Eq, sum, _) = left.kind else {
        panic!();
    };
    assert!(matches!(sum.kind, Kind::Binary(Binary::Add, ..)));
}

struct Types;

impl Names for Types {
    fn is_type(&mut self, path: &Path) -> bool {
        path.last() == "word"
    }

    fn is_template(&mut self, name: &str) -> bool {
        name == "box<int>"
    }
}

#[test]
fn casts_are_told_from_parentheses() {
    let kind = |text: &str| parse(text, &mut Types).unwrap().kind;
    assert!(matches!(kind("(word) - 1"), Kind::Cast(..)));
    assert!(matches!(kind("(other) - 1"), Kind::Binary(..)));
    assert!(matches!(kind("(other) x"), Kind::Cast(..)));
    assert!(matches!(kind("(other *) (x)"), Kind::Cast(..)));
    assert!(matches!(kind("(f)(x)"), Kind::Call(..)));
    assert!(matches!(kind("(struct node *) p"), Kind::Cast(..)));
    assert!(matches!(kind("(unsigned long const) 3"), Kind::Cast(..)));
    assert!(matches!(kind("(int (*)(int, char *)) p"), Kind::Cast(..)));
    assert!(matches!(kind("(a * b)"), Kind::Binary(..)));
    assert!(matches!(kind("sizeof(int[3])"), Kind::SizeofType(_)));
    assert!(matches!(kind("box<int>::made"), Kind::Name(_)));
    assert!(matches!(kind("a < b"), Kind::Binary(Binary::Lt, ..)));
    assert!(matches!(kind("a < b > c"), Kind::Binary(Binary::Gt, ..)));
}

#[test]
fn parts_explain_the_whole() {
    assert_eq!(
        parts("head->next != NULL && count(list, 3) > limit"),
        [
            "head",
            "head->next",
            "NULL",
            "list",
            "count(list, 3)",
            "limit"
        ]
    );
    assert_eq!(parts("has_cycle() == 1"), ["has_cycle()"]);
    assert_eq!(parts("x"), [""; 0]);
    assert_eq!(parts("x == x"), ["x"]);
    assert!(calls("1 + f(x)") && !calls("a[3].b"));
}
