//! What an expression consists of. In: nothing. Out: the tree that the parser builds and the
//! evaluator walks.

use std::fmt;
use std::ops::Range;

/// Bytes of the expression's text.
pub type Span = Range<usize>;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub kind: ProblemKind,
    /// Where in the text.
    pub at: Span,
    pub message: String,
}

/// Whether another place in the program's life could help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// It is no expression, or its types don't fit: wrong everywhere.
    Wrong,
    /// There is no such variable, function or type in sight here.
    Unknown,
    /// Memory isn't there, the value was optimised away, a division by zero.
    Undefined,
    /// A function of the program crashed, or never returned.
    Call,
}

impl Problem {
    pub fn new(kind: ProblemKind, at: &Span, message: impl Into<String>) -> Problem {
        Problem {
            kind,
            at: at.clone(),
            message: message.into(),
        }
    }

    pub fn wrong(at: &Span, message: impl Into<String>) -> Problem {
        Problem::new(ProblemKind::Wrong, at, message)
    }

    pub fn undefined(at: &Span, message: impl Into<String>) -> Problem {
        Problem::new(ProblemKind::Undefined, at, message)
    }

    /// Three lines: the message, the expression, and a caret below the place.
    pub fn pointed(&self, text: &str) -> String {
        let start = self.at.start.min(text.len());
        let end = self.at.end.clamp(start, text.len());
        let width = |part: Option<&str>| part.map_or(0, |part| part.chars().count());
        let before = " ".repeat(width(text.get(..start)));
        let carets = "^".repeat(width(text.get(start..end)).max(1));
        format!("{}\n  {text}\n  {before}{carets}", self.message)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Integer(Integer),
    Float {
        value: f64,
        single: bool,
    },
    Char(u8),
    /// Without the zero byte at its end.
    Text(Vec<u8>),
    Name(Path),
    /// `$rip`
    Register(String),
    Member {
        of: Box<Node>,
        name: String,
        arrow: bool,
    },
    Index(Box<Node>, Box<Node>),
    Call(Box<Node>, Vec<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Comma(Box<Node>, Box<Node>),
    Cast(TypeName, Box<Node>),
    Sizeof(Box<Node>),
    SizeofType(TypeName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    pub value: u64,
    pub unsigned: bool,
    pub long: bool,
    /// Decimal literals never become unsigned by being large.
    pub decimal: bool,
}

/// A name, maybe of a file (`'list.c'::head`) or within namespaces (`a::b`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    pub file: Option<String>,
    /// It begins with `::`.
    pub global: bool,
    pub parts: Vec<String>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "'{file}'::")?;
        }
        if self.global {
            write!(f, "::")?;
        }
        write!(f, "{}", self.parts.join("::"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Deref,
    Address,
    Not,
    Complement,
    Minus,
    Plus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Mul,
    Div,
    Rem,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    And,
    Xor,
    Or,
}

impl Binary {
    pub fn compares(self) -> bool {
        use Binary::*;
        matches!(self, Lt | Gt | Le | Ge | Eq | Ne)
    }

    pub fn symbol(self) -> &'static str {
        use Binary::*;
        match self {
            Mul => "*",
            Div => "/",
            Rem => "%",
            Add => "+",
            Sub => "-",
            Shl => "<<",
            Shr => ">>",
            Lt => "<",
            Gt => ">",
            Le => "<=",
            Ge => ">=",
            Eq => "==",
            Ne => "!=",
            And => "&",
            Xor => "^",
            Or => "|",
        }
    }
}

/// `struct node *const [4]`: the name and, from there outwards, what is made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    pub span: Span,
    pub base: BaseName,
    pub derived: Vec<Derived>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BaseName {
    /// `unsigned long`, in a form that says all of it.
    Builtin(Builtin),
    /// `struct node`
    Tagged(Tag, Path),
    Named(Path),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Struct,
    Union,
    Enum,
    Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Void,
    Bool,
    Char,
    SignedChar,
    UnsignedChar,
    Short,
    UnsignedShort,
    Int,
    UnsignedInt,
    Long,
    UnsignedLong,
    LongLong,
    UnsignedLongLong,
    Int128,
    UnsignedInt128,
    Float,
    Double,
    LongDouble,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Derived {
    Pointer,
    Reference,
    Array(u64),
    /// What is called with anything and returns what stands before.
    Function,
}

/// What the parser has to know of the program: C can't be read without knowing its types.
pub trait Names {
    fn is_type(&mut self, path: &Path) -> bool;

    /// Whether `name`, with its `<...>`, is the name of something or of a type.
    fn is_template(&mut self, name: &str) -> bool;
}

/// Knows no names: enough to check what an expression looks like.
pub struct NoNames;

impl Names for NoNames {
    fn is_type(&mut self, _: &Path) -> bool {
        false
    }

    fn is_template(&mut self, _: &str) -> bool {
        false
    }
}

/// The parts of an expression whose values explain its own, each as its own text: variables, what is reached
/// through them, calls. Not the expression itself.
pub fn parts(root: &Node) -> Vec<Span> {
    let mut spans = Vec::new();
    collect(root, &mut spans);
    spans.retain(|span| *span != root.span);
    spans
}

fn collect(node: &Node, into: &mut Vec<Span>) {
    match &node.kind {
        Kind::Integer(_) | Kind::Float { .. } | Kind::Char(_) | Kind::Text(_) => return,
        Kind::Sizeof(_) | Kind::SizeofType(_) => return,
        Kind::Name(_) | Kind::Register(_) => {}
        Kind::Member { of, .. } => collect(of, into),
        Kind::Call(function, arguments) => {
            // A function's own value says nothing.
            if !matches!(function.kind, Kind::Name(_)) {
                collect(function, into);
            }
            for argument in arguments {
                collect(argument, into);
            }
        }
        Kind::Unary(Unary::Deref, of) => collect(of, into),
        Kind::Unary(_, of) | Kind::Cast(_, of) => return collect(of, into),
        Kind::Index(a, b) => {
            collect(a, into);
            collect(b, into);
        }
        Kind::Binary(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) | Kind::Comma(a, b) => {
            collect(a, into);
            return collect(b, into);
        }
        Kind::Choice(a, b, c) => {
            collect(a, into);
            collect(b, into);
            return collect(c, into);
        }
    }
    into.push(node.span.clone());
}
