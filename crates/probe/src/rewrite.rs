//! Binding names. In: a preprocessed unit of C or C++ with debug code in it, and who knows the program's names. Out: the unit
//! with each name of the program that debug code uses bound to the recorded image, and with the program's own functions as
//! declarations only.
//!
//! Names are told from members, labels and types by a real parse, and from the debug code's own by following scopes. What
//! system headers have isn't parsed: only which names they declare is noted, because those are the debug code's own libc.

mod shared;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use tree_sitter::{Node, Parser};

use shared::Shared;

/// Debug code begins with this: a region or a call-back.
pub const PREFIX: &str = "__clew_";

/// Where a name is declared, as far as the unit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// By the program's own text.
    Program,
    /// By a system header alone: then only what is nearer than file level can be the program's.
    System,
    Nowhere,
}

/// Who knows the program.
pub trait Names {
    /// What a name in debug code means, as C; none if it isn't the program's. `function`: the piece of debug code.
    fn bound(&mut self, function: &str, name: &str, declared: Declared) -> Option<String>;

    /// Does the program have code for a function of that name?
    fn has_function(&mut self, name: &str) -> bool;

    /// Parameters that a piece of debug code needs, once all its names are bound; none if it stays as it is.
    fn parameters(&mut self, function: &str) -> Option<String>;
}

/// What a unit was made of.
pub struct Rewritten {
    pub text: String,
    /// Pieces of debug code, by name.
    pub pieces: Vec<String>,
    /// Assignments to the program's variables: line of its file, and name.
    pub writes: Vec<(String, u32, String)>,
    /// Variables of the program that nobody knows: debug code would see copies that never change.
    pub missing: Vec<(String, u32, String)>,
    /// Groups of pieces that share locals.
    pub shared: Vec<usize>,
}

/// A stretch of the text that comes from one file.
struct Origin {
    start: usize,
    file: String,
    line: u32,
    system: bool,
}

/// Where the text comes from, by the preprocessor's markers, and the text without them.
fn origins(text: &str) -> (Vec<Origin>, Vec<u8>) {
    let mut origins: Vec<Origin> = Vec::new();
    let mut blank = text.as_bytes().to_vec();
    let mut at = 0;
    let mut system = false;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(rest) = line.strip_prefix("# ")
            && let Some((number, rest)) = rest.split_once(' ')
            && let Ok(number) = number.parse()
            && let Some(rest) = rest.strip_prefix('"')
            && let Some((file, flags)) = rest.rsplit_once('"')
        {
            system = flags.split_whitespace().any(|flag| flag == "3");
            origins.push(Origin {
                start: end,
                file: file.into(),
                line: number,
                system,
            });
            blank[at..end - 1].fill(b' ');
        } else if system || line.starts_with('#') {
            blank[at..end]
                .iter_mut()
                .filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    (origins, blank)
}

/// Names that system headers declare at file level.
fn declared_by_system(text: &str, origins: &[Origin]) -> HashSet<String> {
    let mut names = HashSet::new();
    for (n, origin) in origins
        .iter()
        .enumerate()
        .filter(|(_, origin)| origin.system)
    {
        let end = origins.get(n + 1).map_or(text.len(), |next| next.start);
        let part = &text.as_bytes()[origin.start.min(end)..end];
        let (mut at, mut last) = (0, None);
        while at < part.len() {
            let byte = part[at];
            if byte.is_ascii_alphabetic() || byte == b'_' {
                let from = at;
                while at < part.len() && (part[at].is_ascii_alphanumeric() || part[at] == b'_') {
                    at += 1;
                }
                last = Some(from..at);
                continue;
            }
            if let Some(word) = last.take()
                && matches!(byte, b'(' | b';' | b'[' | b'=')
            {
                names.insert(String::from_utf8_lossy(&part[word]).into_owned());
            } else if byte == b' ' && at > 0 {
                // `name (` is the same.
                let next = part[at..]
                    .iter()
                    .position(|byte| *byte != b' ')
                    .map(|skip| part[at + skip]);
                let from = part[..at]
                    .iter()
                    .rposition(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
                let word = &part[from.map_or(0, |from| from + 1)..at];
                if next == Some(b'(') && !word.is_empty() {
                    names.insert(String::from_utf8_lossy(word).into_owned());
                }
            }
            at += 1;
        }
    }
    names
}

struct Rewriter<'a> {
    text: &'a str,
    origins: Vec<Origin>,
    names: &'a mut dyn Names,
    system: HashSet<String>,
    declared: HashSet<String>,
    /// Variables among them that may change.
    variables: HashSet<String>,
    /// Declared at file level by debug code.
    own: HashSet<String>,
    /// Files that are debug code.
    own_files: &'a [String],
    /// Another unit has the definitions of what is debug code's own.
    repeated: bool,
    cpp: bool,
    edits: BTreeMap<usize, (Range<usize>, String)>,
    pieces: Vec<String>,
    writes: Vec<(String, u32, String)>,
    missing: Vec<(String, u32, String)>,
    function: String,
    scopes: Vec<HashSet<String>>,
    /// Pieces of one function have the same number.
    groups: &'a HashMap<String, usize>,
    shared: Shared,
    /// Only names that aren't in scope are collected.
    free: Option<Vec<String>>,
}

/// Binds the names of a unit. `own_files`: those that are debug code; `groups`: pieces that are one function's.
pub fn rewrite(
    text: &str,
    cpp: bool,
    own_files: &[String],
    repeated: bool,
    groups: &HashMap<String, usize>,
    names: &mut dyn Names,
) -> Result<Rewritten, String> {
    let (origins, blank) = origins(text);
    let system = declared_by_system(text, &origins);
    let mut parser = Parser::new();
    let language = match cpp {
        true => tree_sitter_cpp::LANGUAGE.into(),
        false => tree_sitter_c::LANGUAGE.into(),
    };
    parser
        .set_language(&language)
        .map_err(|error| error.to_string())?;
    let tree = parser
        .parse(&blank, None)
        .ok_or("the unit can't be parsed")?;
    let mut rewriter = Rewriter {
        text,
        origins,
        names,
        system,
        declared: HashSet::new(),
        variables: HashSet::new(),
        own: HashSet::new(),
        own_files,
        repeated,
        cpp,
        edits: BTreeMap::new(),
        pieces: Vec::new(),
        writes: Vec::new(),
        missing: Vec::new(),
        function: String::new(),
        scopes: Vec::new(),
        groups,
        shared: Shared::default(),
        free: None,
    };
    rewriter.declare_all(tree.root_node());
    rewriter.share(tree.root_node());
    rewriter.file_level(tree.root_node());
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, with) in rewriter.edits.into_values() {
        if range.start < at {
            continue;
        }
        out.push_str(&text[at..range.start]);
        out.push_str(&with);
        at = range.end;
    }
    out.push_str(&text[at..]);
    Ok(Rewritten {
        text: out,
        pieces: rewriter.pieces,
        writes: rewriter.writes,
        missing: rewriter.missing,
        shared: rewriter.shared.groups(),
    })
}

fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).collect()
}

/// The name that a declarator declares.
fn declared_name(node: Node<'_>) -> Option<Node<'_>> {
    match node.kind() {
        "identifier"
        | "qualified_identifier"
        | "field_identifier"
        | "destructor_name"
        | "operator_name" => Some(node),
        _ => match node.child_by_field_name("declarator") {
            Some(inner) => declared_name(inner),
            None => children(node).into_iter().find_map(|child| {
                (child.kind().ends_with("declarator") || child.kind() == "identifier")
                    .then(|| declared_name(child))
                    .flatten()
            }),
        },
    }
}

/// Scopes at file level that hold declarations.
fn is_file_level(kind: &str) -> bool {
    matches!(
        kind,
        "linkage_specification" | "declaration_list" | "namespace_definition" | "ERROR"
    )
}

impl Rewriter<'_> {
    fn word(&self, node: Node<'_>) -> &str {
        &self.text[node.byte_range()]
    }

    fn origin(&self, at: usize) -> Option<&Origin> {
        let after = self.origins.partition_point(|origin| origin.start <= at);
        self.origins.get(after.checked_sub(1)?)
    }

    fn is_own(&self, at: usize) -> bool {
        self.origin(at)
            .is_some_and(|origin| self.own_files.contains(&origin.file))
    }

    fn edit(&mut self, range: Range<usize>, with: impl Into<String>) {
        self.edits.insert(range.start, (range, with.into()));
    }

    /// Notes what is declared at file level.
    fn declare_all(&mut self, node: Node<'_>) {
        for child in children(node) {
            match child.kind() {
                kind if is_file_level(kind) => self.declare_all(child),
                "function_definition" | "declaration" => {
                    for declarator in self.declarators(child) {
                        if let Some(name) = declared_name(declarator) {
                            let word = self.word(name).to_string();
                            if self.is_own(name.start_byte()) {
                                self.own.insert(word);
                                continue;
                            }
                            if child.kind() == "declaration" && self.may_change(child, declarator) {
                                self.variables.insert(word.clone());
                            }
                            self.declared.insert(word);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Is it a variable, and not a constant with its value?
    fn may_change(&self, declaration: Node<'_>, declarator: Node<'_>) -> bool {
        let constant = children(declaration).iter().any(|child| {
            child.kind() == "type_qualifier" && ["const", "constexpr"].contains(&self.word(*child))
        });
        match declarator.kind() {
            // `(*f)(int)` is a variable.
            "function_declarator" => {
                let inner = declarator.child_by_field_name("declarator");
                inner.is_some_and(|inner| inner.kind() == "parenthesized_declarator")
            }
            "pointer_declarator" | "reference_declarator" => {
                let inner = declarator
                    .child_by_field_name("declarator")
                    .or(declarator.named_child(0));
                inner.is_none_or(|inner| self.may_change(declaration, inner) || constant)
                    && inner.is_none_or(|inner| inner.kind() != "function_declarator")
            }
            "init_declarator" => {
                let inner = declarator.child_by_field_name("declarator");
                let pointer = inner.is_some_and(|inner| inner.kind() == "pointer_declarator");
                pointer || !constant
            }
            _ => true,
        }
    }

    fn declarators<'t>(&self, node: Node<'t>) -> Vec<Node<'t>> {
        let mut cursor = node.walk();
        node.children_by_field_name("declarator", &mut cursor)
            .collect()
    }

    fn file_level(&mut self, node: Node<'_>) {
        for child in children(node) {
            match child.kind() {
                kind if is_file_level(kind) => self.file_level(child),
                "function_definition" => self.definition(child),
                "declaration" if self.is_own(child.start_byte()) && self.repeated => {
                    self.elsewhere(child)
                }
                _ => {}
            }
        }
    }

    /// A variable of debug code that another unit defines.
    fn elsewhere(&mut self, node: Node<'_>) {
        let storage = children(node)
            .into_iter()
            .find(|child| child.kind() == "storage_class_specifier");
        let is_function = |declarator: &Node<'_>| declarator.kind() == "function_declarator";
        if self.declarators(node).iter().any(is_function) {
            return;
        }
        match storage {
            Some(storage) if self.word(storage) == "extern" => return,
            Some(storage) => self.edit(storage.byte_range(), "extern"),
            None => self.edit(node.start_byte()..node.start_byte(), "extern "),
        }
        for declarator in self.declarators(node) {
            if let (Some(name), Some(value)) = (
                declarator.child_by_field_name("declarator"),
                declarator.child_by_field_name("value"),
            ) {
                self.edit(name.end_byte()..value.end_byte(), "");
            }
        }
    }

    fn definition(&mut self, node: Node<'_>) {
        let (Some(declarator), Some(body)) = (
            node.child_by_field_name("declarator"),
            node.child_by_field_name("body"),
        ) else {
            return;
        };
        let Some(name) = declared_name(declarator) else {
            return;
        };
        let word = self.word(name).to_string();
        let own = self.is_own(node.start_byte());
        if own && word.starts_with(PREFIX) {
            self.pieces.push(word.clone());
        } else if own && self.repeated && !self.word(node).trim_start().starts_with("static") {
            self.edit(body.byte_range(), ";");
            return;
        }
        // The old way to declare parameters stands between both.
        let plain = children(node)
            .iter()
            .all(|child| child.kind() != "declaration");
        if !own && plain && self.names.has_function(&word) {
            match name.kind() {
                "qualified_identifier" => self.edit(node.byte_range(), ""),
                _ => self.edit(declarator.end_byte()..body.end_byte(), ";"),
            }
            return;
        }
        if let Some(structure) = self.shared.structure(&word, self.cpp) {
            self.edit(node.start_byte()..node.start_byte(), structure);
        }
        self.function = word.clone();
        self.scopes.push(HashSet::new());
        self.parameters(declarator);
        self.walk(body);
        self.scopes.pop();
        if let Some(parameters) = own.then(|| self.names.parameters(&word)).flatten()
            && let Some(list) = function_parameters(declarator)
        {
            self.edit(list.byte_range(), format!("({parameters})"));
        }
    }

    fn parameters(&mut self, declarator: Node<'_>) {
        let Some(list) = function_parameters(declarator) else {
            return;
        };
        for parameter in children(list) {
            if let Some(inner) = parameter.child_by_field_name("declarator") {
                self.declare(inner);
            }
        }
    }

    fn declare(&mut self, declarator: Node<'_>) {
        if let Some(name) = declared_name(declarator) {
            let word = self.word(name).to_string();
            if let Some(scope) = self.scopes.last_mut() {
                scope.insert(word);
            }
        }
    }

    fn walk(&mut self, node: Node<'_>) {
        match node.kind() {
            "identifier" => self.reference(node),
            "this" if self.cpp => self.reference(node),
            "qualified_identifier" => {
                let whole = self.word(node).to_string();
                if !whole.starts_with("std::") && !whole.starts_with("::std") {
                    self.reference(node);
                }
            }
            "compound_statement" | "for_statement" | "for_range_loop" | "if_statement"
            | "while_statement" | "lambda_expression" | "catch_clause" => {
                self.scopes.push(HashSet::new());
                if node.kind() == "lambda_expression"
                    && let Some(declarator) = node.child_by_field_name("declarator")
                {
                    self.parameters(declarator);
                }
                self.walk_children(node);
                self.scopes.pop();
            }
            "declaration" | "for_range_declaration" | "condition_clause_declaration" => {
                self.declaration(node)
            }
            "enumerator" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.declare(name);
                }
                if let Some(value) = node.child_by_field_name("value") {
                    self.walk(value);
                }
            }
            "parameter_declaration" | "attribute_specifier" | "attribute_declaration" => {}
            "assignment_expression" | "update_expression" => {
                self.assigns(node);
                self.walk_children(node);
            }
            _ => self.walk_children(node),
        }
    }

    fn walk_children(&mut self, node: Node<'_>) {
        for child in children(node) {
            self.walk(child);
        }
    }

    fn declaration(&mut self, node: Node<'_>) {
        let declarators = self.declarators(node);
        let outside = children(node).iter().any(|child| {
            child.kind() == "storage_class_specifier" && self.word(*child) == "extern"
        });
        let mut begun = Vec::new();
        for child in children(node) {
            if !declarators.contains(&child) {
                // Types, and sizes in them.
                self.walk(child);
                continue;
            }
            if self.free.is_none() && self.shares(node, child) {
                let name = declared_name(child).map(|name| self.word(name).to_string());
                self.declarator(child);
                if child.kind() == "init_declarator" {
                    begun.extend(name.clone());
                }
                self.shared.fresh.extend(name);
                continue;
            }
            if !outside {
                self.declare(child);
            }
            self.declarator(child);
        }
        if !self.shared.fresh.is_empty() {
            self.shared.fresh.clear();
            self.put(node, &begun);
        }
    }

    /// What stands within a declarator and isn't the name: sizes, values.
    fn declarator(&mut self, node: Node<'_>) {
        for field in ["size", "value"] {
            if let Some(inner) = node.child_by_field_name(field) {
                self.walk(inner);
            }
        }
        if let Some(inner) = node.child_by_field_name("declarator") {
            self.declarator(inner);
        }
    }

    fn is_in_scope(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains(name)) || self.own.contains(name)
    }

    fn declared(&self, name: &str) -> Declared {
        match (self.declared.contains(name), self.system.contains(name)) {
            (true, _) => Declared::Program,
            (false, true) => Declared::System,
            (false, false) => Declared::Nowhere,
        }
    }

    fn reference(&mut self, node: Node<'_>) {
        let name = self.word(node).to_string();
        if self.is_in_scope(&name) {
            return;
        }
        if let Some(free) = &mut self.free {
            free.push(name);
            return;
        }
        if let Some(with) = self.shared_as(&name) {
            return self.edit(node.byte_range(), with);
        }
        let (function, declared) = (self.function.clone(), self.declared(&name));
        match self.names.bound(&function, &name, declared) {
            Some(with) => self.edit(node.byte_range(), with),
            None if self.variables.contains(&name) && self.is_own(node.start_byte()) => {
                let told = self.told(node, name);
                self.missing.extend(told);
            }
            None => {}
        }
    }

    /// Notes assignments to variables of the program: they can't be made.
    fn assigns(&mut self, node: Node<'_>) {
        let target = node
            .child_by_field_name("left")
            .or(node.child_by_field_name("argument"));
        let mut target = target;
        while let Some(inner) = target {
            match inner.kind() {
                "identifier" => break,
                // Only members and elements of variables are surely the program's.
                "field_expression" if self.text[inner.byte_range()].contains("->") => return,
                "field_expression" | "parenthesized_expression" => {
                    target = inner
                        .child_by_field_name("argument")
                        .or(inner.named_child(0));
                }
                _ => return,
            }
        }
        let Some(name) = target else { return };
        let word = self.word(name).to_string();
        let own = self.is_in_scope(&word) || self.shared_as(&word).is_some();
        if own || self.free.is_some() || !self.function.starts_with(PREFIX) {
            return;
        }
        let (function, declared) = (self.function.clone(), self.declared(&word));
        if self.names.bound(&function, &word, declared).is_some()
            && let Some(told) = self.told(name, word)
        {
            self.writes.push(told);
        }
    }

    /// A name with the file and line that it stands in.
    fn told(&self, node: Node<'_>, name: String) -> Option<(String, u32, String)> {
        let origin = self.origin(node.start_byte())?;
        let before = &self.text[origin.start..node.start_byte()];
        let lines = before.matches('\n').count() as u32;
        Some((origin.file.clone(), origin.line + lines, name))
    }
}

fn function_parameters(declarator: Node<'_>) -> Option<Node<'_>> {
    declarator.child_by_field_name("parameters").or_else(|| {
        let inner = declarator.child_by_field_name("declarator")?;
        function_parameters(inner)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows a few names, and shouts them.
    struct Few;

    impl Names for Few {
        fn bound(&mut self, function: &str, name: &str, _: Declared) -> Option<String> {
            let known = ["stack", "inst", "out", "this"].contains(&name);
            known.then(|| format!("<{}:{name}>", function.trim_start_matches(PREFIX)))
        }

        fn has_function(&mut self, name: &str) -> bool {
            name == "out"
        }

        fn parameters(&mut self, function: &str) -> Option<String> {
            function.ends_with("region_0").then(|| "int *p".into())
        }
    }

    fn rewritten(own: &str) -> Rewritten {
        let text = format!(
            "# 1 \"/usr/include/s.h\" 1 3\nextern int printf(const char *, ...);\n# 1 \"p.c\" 2\n\
             struct s {{ int inst; struct s *stack; }};\nstatic struct s *stack;\n\
             void out(int inst) {{ stack = 0; }}\n# 1 \"own\"\n{own}\n"
        );
        let groups = HashMap::from([("__clew_region_0".into(), 7), ("__clew_region_1".into(), 7)]);
        rewrite(&text, false, &["own".into()], false, &groups, &mut Few).unwrap()
    }

    #[test]
    fn names_are_bound_and_members_are_not() {
        let made =
            rewritten("void __clew_region_0(void) { printf(\"%d\", stack->inst); out(inst); }");
        assert!(
            made.text.contains(
                "printf(\"%d\", <region_0:stack>->inst); <region_0:out>(<region_0:inst>);"
            )
        );
        assert!(made.text.contains("__clew_region_0(int *p)"));
        assert!(made.text.contains("void out(int inst);"), "{}", made.text);
        assert_eq!(made.pieces, ["__clew_region_0"]);
    }

    #[test]
    fn inner_declarations_hide() {
        let made = rewritten(
            "int depth; void __clew_region_1(void) { int inst = depth; { struct s *stack = &x[inst]; use(stack, inst); } \
             for (int out = 0; out < inst; out++) {} stack; }",
        );
        assert!(
            made.text.contains(
                "use(stack, inst); } for (int out = 0; out < inst; out++) {} <region_1:stack>; }"
            ),
            "{}",
            made.text
        );
        assert!(made.writes.is_empty());
    }

    #[test]
    fn variables_that_nobody_knows_are_noticed() {
        let text = "# 1 \"p.c\"\nstatic long gone, *also;\nstatic const int known = 5;\nstatic const char *name = \"x\";\n\
                    int there(void);\nint *give(void);\nstatic int (*call)(void);\n# 1 \"own\"\n\
                    void __clew_region_0(void) {\n gone; *also; known; name; there(); give();\n call(); }\n";
        let none = HashMap::new();
        let made = rewrite(text, false, &["own".into()], false, &none, &mut Few).unwrap();
        let missing: Vec<(u32, &str)> = made
            .missing
            .iter()
            .map(|(_, line, name)| (*line, &name[..]))
            .collect();
        assert_eq!(
            missing,
            [(2, "gone"), (2, "also"), (2, "name"), (3, "call")]
        );
    }

    #[test]
    fn locals_are_shared_between_regions_of_a_function() {
        let made = rewritten(
            "void __clew_region_0(void) { int depth = 1, *at = &depth, own = 2; { int inner = own; } }\n\
             void __clew_region_1(void) { depth++; *at = inst; { int depth = 3; use(depth, inner); } }",
        );
        let locals = "(((struct __clew_locals_7 *)__clew_instance)->";
        assert_eq!(made.shared, [7]);
        for part in [
            "struct __clew_locals_7 { int depth; int *at; };".to_string(),
            "int __clew_i_depth = 1, *__clew_i_at = &__clew_i_depth, own = 2; ".into(),
            format!(
                "memcpy((void *)&{locals}depth), (const void *)&__clew_i_depth, sizeof __clew_i_depth);"
            ),
            format!(
                "{{ {locals}depth)++; *{locals}at) = <region_1:inst>; {{ int depth = 3; use(depth, inner); }} }}"
            ),
        ] {
            assert!(made.text.contains(&part), "{part}\n{}", made.text);
        }
        assert!(made.writes.is_empty());
        // Other functions' regions have nothing in common.
        let made = rewritten(
            "void __clew_region_0(void) { int depth; } void __clew_region_2(void) { depth; }",
        );
        assert!(made.shared.is_empty() && made.text.contains("{ depth; }"));
    }

    #[test]
    fn writes_are_noticed() {
        let made = rewritten("void __clew_region_0(void) {\n stack = 0;\n inst++; }");
        let writes: Vec<(u32, &str)> = made
            .writes
            .iter()
            .map(|(_, line, name)| (*line, &name[..]))
            .collect();
        assert_eq!(writes, [(2, "stack"), (3, "inst")]);
    }
}
