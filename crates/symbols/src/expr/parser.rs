//! In: an expression in C's syntax. Out: its tree, or where it stops being one.
//!
//! The whole of C's expressions but assignments, which have no place here: an expression only looks.

use super::lexer::{Token, tokens};
use super::syntax::{
    BaseName, Binary, Derived, Kind, Names, Node, Path, Problem, Span, Tag, TypeName, Unary,
};
use super::words::{builtin, builtin_word, keyword, qualifier};

/// Nesting beyond this is a mistake or an attack.
const DEEPEST: usize = 200;

pub fn parse(text: &str, names: &mut dyn Names) -> Result<Node, Problem> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        names,
    };
    if parser.peek() == &Token::End {
        return Err(Problem::wrong(&parser.span(), "there is no expression"));
    }
    let node = parser.comma()?;
    match parser.peek() {
        Token::End => Ok(node),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: usize,
    names: &'a mut dyn Names,
}

fn binary(sign: &str) -> Option<(u8, Option<Binary>)> {
    use Binary::*;
    Some(match sign {
        "||" => (1, None),
        "&&" => (2, None),
        "|" => (3, Some(Or)),
        "^" => (4, Some(Xor)),
        "&" => (5, Some(And)),
        "==" => (6, Some(Eq)),
        "!=" => (6, Some(Ne)),
        "<" => (7, Some(Lt)),
        ">" => (7, Some(Gt)),
        "<=" => (7, Some(Le)),
        ">=" => (7, Some(Ge)),
        "<<" => (8, Some(Shl)),
        ">>" => (8, Some(Shr)),
        "+" => (9, Some(Add)),
        "-" => (9, Some(Sub)),
        "*" => (10, Some(Mul)),
        "/" => (10, Some(Div)),
        "%" => (10, Some(Rem)),
        _ => return None,
    })
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1.clone()
    }

    fn sign(&self) -> Option<&'static str> {
        match self.peek() {
            Token::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    /// The End token is never passed.
    fn advance(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    fn accept(&mut self, sign: &str) -> bool {
        let is = self.sign() == Some(sign);
        if is {
            self.advance();
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Result<(), Problem> {
        if self.accept(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}`")))
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        let span = self.span();
        match self.peek() {
            Token::Sign(
                "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=" | "++"
                | "--",
            ) => Problem::wrong(
                &span,
                "an expression can only look at the program, not assign; to compare, write ==",
            ),
            Token::End => Problem::wrong(&span, format!("{wanted} is missing at the end")),
            _ => {
                let found = &self.text[span.clone()];
                Problem::wrong(&span, format!("{wanted} was expected, not `{found}`"))
            }
        }
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.depth == DEEPEST {
            return Err(Problem::wrong(&self.span(), "it is nested too deeply"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn comma(&mut self) -> Result<Node, Problem> {
        let mut left = self.choice()?;
        while self.accept(",") {
            let right = self.choice()?;
            left = Node {
                span: left.span.start..right.span.end,
                kind: Kind::Comma(Box::new(left), Box::new(right)),
            };
        }
        Ok(left)
    }

    fn choice(&mut self) -> Result<Node, Problem> {
        let condition = self.binary(0)?;
        if !self.accept("?") {
            return Ok(condition);
        }
        self.deeper(|parser| {
            let yes = parser.comma()?;
            parser.expect(":")?;
            let no = parser.choice()?;
            Ok(Node {
                span: condition.span.start..no.span.end,
                kind: Kind::Choice(Box::new(condition), Box::new(yes), Box::new(no)),
            })
        })
    }

    fn binary(&mut self, above: u8) -> Result<Node, Problem> {
        let mut left = self.unary()?;
        while let Some(sign) = self.sign()
            && let Some((level, operation)) = binary(sign)
            && level > above
        {
            self.advance();
            let right = self.deeper(|parser| parser.binary(level))?;
            let span = left.span.start..right.span.end;
            let (left_box, right_box) = (Box::new(left), Box::new(right));
            let kind = match (operation, sign) {
                (Some(operation), _) => Kind::Binary(operation, left_box, right_box),
                (None, "&&") => Kind::And(left_box, right_box),
                (None, _) => Kind::Or(left_box, right_box),
            };
            left = Node { span, kind };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        self.deeper(Parser::unary_here)
    }

    fn unary_here(&mut self) -> Result<Node, Problem> {
        let start = self.span().start;
        let operation = match self.sign() {
            Some("*") => Some(Unary::Deref),
            Some("&") => Some(Unary::Address),
            Some("!") => Some(Unary::Not),
            Some("~") => Some(Unary::Complement),
            Some("-") => Some(Unary::Minus),
            Some("+") => Some(Unary::Plus),
            // C++ has no address of an address; this can only be two of them in a row.
            Some("&&") => return Err(self.unexpected("a value")),
            _ => None,
        };
        if let Some(operation) = operation {
            self.advance();
            let of = self.unary()?;
            return Ok(Node {
                span: start..of.span.end,
                kind: Kind::Unary(operation, Box::new(of)),
            });
        }
        if self.peek() == &Token::Word("sizeof".into()) {
            return self.sizeof(start);
        }
        if self.sign() == Some("(")
            && let Some(name) = self.cast()?
        {
            let of = self.unary()?;
            return Ok(Node {
                span: start..of.span.end,
                kind: Kind::Cast(name, Box::new(of)),
            });
        }
        self.postfix()
    }

    fn sizeof(&mut self, start: usize) -> Result<Node, Problem> {
        self.advance();
        if self.sign() == Some("(") {
            let before = self.at;
            self.advance();
            if let Some(name) = self.type_name()?
                && self.sign() == Some(")")
            {
                // A plain name may be a variable's: whoever evaluates it sees.
                let plain = matches!(name.base, BaseName::Named(_)) && name.derived.is_empty();
                if !plain {
                    self.advance();
                    let end = self.tokens[self.at - 1].1.end;
                    return Ok(Node {
                        span: start..end,
                        kind: Kind::SizeofType(name),
                    });
                }
            }
            self.at = before;
        }
        let of = self.unary()?;
        Ok(Node {
            span: start..of.span.end,
            kind: Kind::Sizeof(Box::new(of)),
        })
    }

    /// Passes `(type)` if that is what stands here.
    fn cast(&mut self) -> Result<Option<TypeName>, Problem> {
        let before = self.at;
        self.advance();
        let name = self.type_name()?;
        if let Some(name) = name
            && self.accept(")")
        {
            let sure = !matches!(name.base, BaseName::Named(_)) || !name.derived.is_empty();
            let is = match self.peek() {
                _ if sure => true,
                Token::Sign("!" | "~") => true,
                // Both a cast and an expression could go on with these.
                Token::Sign("(" | "*" | "&" | "-" | "+" | "::") => match &name.base {
                    BaseName::Named(path) => self.names.is_type(path),
                    _ => true,
                },
                Token::Sign(_) | Token::End => false,
                _ => true,
            };
            if is {
                return Ok(Some(name));
            }
        }
        self.at = before;
        Ok(None)
    }

    fn postfix(&mut self) -> Result<Node, Problem> {
        let mut node = self.primary()?;
        loop {
            let start = node.span.start;
            let kind = match self.sign() {
                Some("[") => {
                    self.advance();
                    let index = self.deeper(Parser::comma)?;
                    self.expect("]")?;
                    Kind::Index(Box::new(node), Box::new(index))
                }
                Some("(") => {
                    self.advance();
                    let mut arguments = Vec::new();
                    while self.sign() != Some(")") {
                        arguments.push(self.deeper(Parser::choice)?);
                        if !self.accept(",") {
                            break;
                        }
                    }
                    self.expect(")")?;
                    Kind::Call(Box::new(node), arguments)
                }
                Some(sign @ ("." | "->")) => {
                    self.advance();
                    let Token::Word(name) = self.peek().clone() else {
                        return Err(self.unexpected("a member's name"));
                    };
                    self.advance();
                    Kind::Member {
                        of: Box::new(node),
                        name,
                        arrow: sign == "->",
                    }
                }
                _ => return Ok(node),
            };
            node = Node {
                span: start..self.tokens[self.at - 1].1.end,
                kind,
            };
        }
    }

    fn primary(&mut self) -> Result<Node, Problem> {
        let span = self.span();
        let kind = match self.peek().clone() {
            Token::Integer(integer) => Kind::Integer(integer),
            Token::Float { value, single } => Kind::Float { value, single },
            Token::Char(byte) => Kind::Char(byte),
            Token::Register(name) => Kind::Register(name),
            Token::Text(mut bytes) => {
                // Neighbours are one.
                while let Some((Token::Text(more), _)) = self.tokens.get(self.at + 1) {
                    bytes.extend(more);
                    self.at += 1;
                }
                Kind::Text(bytes)
            }
            Token::Sign("(") => {
                self.advance();
                let inner = self.deeper(Parser::comma)?;
                self.expect(")")?;
                return Ok(Node {
                    span: span.start..self.tokens[self.at - 1].1.end,
                    kind: inner.kind,
                });
            }
            Token::Word(_) | Token::Quoted(_) | Token::Sign("::") => {
                if let Token::Word(word) = self.peek()
                    && keyword(word)
                {
                    return Err(self.unexpected("a value"));
                }
                let path = self.path()?;
                return Ok(Node {
                    span: span.start..self.tokens[self.at - 1].1.end,
                    kind: Kind::Name(path),
                });
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.advance();
        Ok(Node {
            span: span.start..self.tokens[self.at - 1].1.end,
            kind,
        })
    }

    /// `a::b`, `::a`, `'file.c'::a`, `'std::vector<int>'`, `list<int>::size`.
    fn path(&mut self) -> Result<Path, Problem> {
        let mut path = Path {
            file: None,
            global: self.accept("::"),
            parts: Vec::new(),
        };
        loop {
            match self.peek().clone() {
                Token::Word(word) => {
                    self.advance();
                    path.parts.push(word);
                    self.template(&mut path);
                }
                Token::Quoted(name) => {
                    self.advance();
                    let first = path.parts.is_empty() && !path.global && path.file.is_none();
                    if first && self.sign() == Some("::") && file_like(&name) {
                        path.file = Some(name);
                    } else {
                        path.parts.extend(split(&name));
                    }
                }
                _ => return Err(self.unexpected("a name")),
            }
            if !self.accept("::") {
                return Ok(path);
            }
        }
    }

    /// Takes `<...>` into the last part of a path if the program knows such a name.
    fn template(&mut self, path: &mut Path) {
        if self.sign() != Some("<") {
            return;
        }
        let start = self.span().start;
        let mut open = 0i32;
        for at in self.at..self.tokens.len() {
            let (token, span) = &self.tokens[at];
            open += match token {
                Token::Sign("<") => 1,
                Token::Sign(">") => -1,
                Token::Sign(">>") => -2,
                Token::End => return,
                _ => 0,
            };
            if open <= 0 {
                let arguments = &self.text[start..span.end];
                let mut name = path.parts.join("::");
                name.push_str(arguments);
                if open == 0 && self.names.is_template(&name) {
                    path.parts
                        .last_mut()
                        .expect("there is one before `<`")
                        .push_str(arguments);
                    self.at = at + 1;
                }
                return;
            }
        }
    }

    /// A type's name with what is derived from it; `None` (and wherever) if that isn't what stands here.
    fn type_name(&mut self) -> Result<Option<TypeName>, Problem> {
        let start = self.span().start;
        self.qualifiers();
        let Some(base) = self.type_base()? else {
            return Ok(None);
        };
        let mut derived = Vec::new();
        if !self.deeper(|parser| parser.declarator(&mut derived))? {
            return Ok(None);
        }
        Ok(Some(TypeName {
            span: start..self.tokens[self.at.max(1) - 1].1.end,
            base,
            derived,
        }))
    }

    fn qualifiers(&mut self) {
        while matches!(self.peek(), Token::Word(word) if qualifier(word)) {
            self.advance();
        }
    }

    fn type_base(&mut self) -> Result<Option<BaseName>, Problem> {
        let Token::Word(word) = self.peek().clone() else {
            if matches!(self.peek(), Token::Quoted(_) | Token::Sign("::")) {
                return Ok(Some(BaseName::Named(self.path()?)));
            }
            return Ok(None);
        };
        let tag = match word.as_str() {
            "struct" => Some(Tag::Struct),
            "union" => Some(Tag::Union),
            "enum" => Some(Tag::Enum),
            "class" => Some(Tag::Class),
            _ => None,
        };
        if let Some(tag) = tag {
            self.advance();
            let path = self.path()?;
            self.qualifiers();
            return Ok(Some(BaseName::Tagged(tag, path)));
        }
        let span = self.span();
        let mut words = Vec::new();
        while let Token::Word(word) = self.peek() {
            if builtin_word(word) {
                words.push(word.clone());
            } else if !qualifier(word) {
                break;
            }
            self.advance();
        }
        if words.is_empty() {
            let path = self.path()?;
            self.qualifiers();
            return Ok(Some(BaseName::Named(path)));
        }
        match builtin(&words) {
            Some(builtin) => Ok(Some(BaseName::Builtin(builtin))),
            None => {
                let message = format!("there is no type `{}`", words.join(" "));
                Err(Problem::wrong(&span, message))
            }
        }
    }

    /// `*`, `&`, `[3]`, `(*)(int)`; whether it can be one.
    fn declarator(&mut self, derived: &mut Vec<Derived>) -> Result<bool, Problem> {
        loop {
            match self.sign() {
                Some("*") => derived.push(Derived::Pointer),
                Some("&" | "&&") => derived.push(Derived::Reference),
                _ => break,
            }
            self.advance();
            self.qualifiers();
        }
        let mut inner = Vec::new();
        if self.sign() == Some("(")
            && matches!(self.tokens[self.at + 1].0, Token::Sign("*" | "&" | "("))
        {
            self.advance();
            if !self.deeper(|parser| parser.declarator(&mut inner))? || !self.accept(")") {
                return Ok(false);
            }
        }
        let mut suffixes = Vec::new();
        loop {
            match self.sign() {
                Some("[") => {
                    self.advance();
                    let Token::Integer(length) = *self.peek() else {
                        return Ok(false);
                    };
                    self.advance();
                    if !self.accept("]") {
                        return Ok(false);
                    }
                    suffixes.push(Derived::Array(length.value));
                }
                // Parameters don't matter: arguments are passed as what they are.
                Some("(") if !inner.is_empty() => {
                    let mut open = 0;
                    loop {
                        match self.peek() {
                            Token::Sign("(") => open += 1,
                            Token::Sign(")") => open -= 1,
                            Token::End => return Ok(false),
                            _ => {}
                        }
                        self.advance();
                        if open == 0 {
                            break;
                        }
                    }
                    suffixes.push(Derived::Function);
                }
                _ => break,
            }
        }
        derived.extend(suffixes.into_iter().rev());
        derived.extend(inner);
        Ok(true)
    }
}

fn file_like(name: &str) -> bool {
    name.contains(['.', '/']) && !name.contains("::")
}

/// A path's parts; `::` between angle brackets or parentheses separates nothing.
pub fn split(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut open = 0i32;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' | '(' | '{' => open += 1,
            '>' | ')' | '}' => open -= 1,
            ':' if open == 0 && chars.peek() == Some(&':') => {
                chars.next();
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("never empty").push(c);
    }
    parts.retain(|part| !part.is_empty());
    parts
}
