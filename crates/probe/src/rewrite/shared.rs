//! Locals of debug code that several regions of one function use. In: the regions' bodies. Out: which names those are, and a
//! structure for each function that has them; a call of the function has one of its own.
//!
//! What a region declares at its outermost level and a later region of the same function uses, as if both stood in one text,
//! lives as long as the call does: so recursion works, and threads.

use std::collections::{BTreeMap, HashMap, HashSet};

use tree_sitter::Node;

use super::{Rewriter, children, declared_name, is_file_level};

/// What is shared within a group: the pieces of one function.
#[derive(Default)]
pub(super) struct Shared {
    /// By group.
    names: BTreeMap<usize, HashSet<String>>,
    /// Members of each group's structure.
    members: BTreeMap<usize, String>,
    /// The piece before which the structure stands.
    first: HashMap<String, usize>,
    /// Declared in the declaration that is looked at: they aren't in their structure yet.
    pub fresh: HashSet<String>,
}

/// A region on its way.
struct Region<'t> {
    name: String,
    group: usize,
    /// What its outermost level declares.
    declarations: Vec<Node<'t>>,
    free: Vec<String>,
}

impl Shared {
    pub fn groups(&self) -> Vec<usize> {
        self.names.keys().copied().collect()
    }

    fn has(&self, group: usize, name: &str) -> bool {
        self.names
            .get(&group)
            .is_some_and(|names| names.contains(name))
    }

    /// The structure that stands before a piece, and what makes and ends one.
    pub fn structure(&self, piece: &str, cpp: bool) -> Option<String> {
        let group = *self.first.get(piece)?;
        let members = self.members.get(&group)?.trim_end();
        let (make, end) = match cpp {
            true => (
                format!("new __clew_locals_{group}()"),
                format!("delete (__clew_locals_{group} *)old"),
            ),
            false => (
                format!("calloc(1, sizeof(struct __clew_locals_{group}))"),
                "free(old)".into(),
            ),
        };
        Some(format!(
            "struct __clew_locals_{group} {{ {members} }}; static void *__clew_make_{group}(void) {{ return {make}; }} \
             static void __clew_end_{group}(void *old) {{ {end}; }} "
        ))
    }
}

/// A shared local before it is in its structure.
fn initial(name: &str) -> String {
    format!("__clew_i_{name}")
}

impl Rewriter<'_> {
    /// Finds what is shared, before anything is bound.
    pub(super) fn share(&mut self, root: Node<'_>) {
        let mut regions = Vec::new();
        self.regions(root, &mut regions);
        let mut shared = Shared::default();
        for (n, region) in regions.iter().enumerate() {
            let before = regions[..n].iter().filter(|one| one.group == region.group);
            let declared: HashSet<String> = before
                .flat_map(|one| &one.declarations)
                .flat_map(|declaration| self.names_in(*declaration))
                .collect();
            let used = region.free.iter().filter(|name| declared.contains(*name));
            let used: Vec<String> = used.cloned().collect();
            if !used.is_empty() {
                shared.names.entry(region.group).or_default().extend(used);
            }
        }
        for region in &regions {
            let group = region.group;
            let Some(names) = shared.names.get(&group) else {
                continue;
            };
            if !shared.first.values().any(|one| *one == group) {
                shared.first.insert(region.name.clone(), group);
            }
            let mut known = HashSet::new();
            for declaration in &region.declarations {
                let specifiers = self.specifiers(*declaration);
                for declarator in self.declarators(*declaration) {
                    let inner = match declarator.kind() {
                        "init_declarator" => declarator.child_by_field_name("declarator"),
                        _ => Some(declarator),
                    };
                    let Some(inner) = inner else { continue };
                    let name = declared_name(inner).map(|name| self.word(name).to_string());
                    if let Some(name) = name.filter(|name| names.contains(name))
                        && known.insert(name)
                    {
                        let member = format!("{specifiers} {}; ", self.word(inner));
                        shared.members.entry(group).or_default().push_str(&member);
                    }
                }
            }
        }
        self.shared = shared;
    }

    fn regions<'t>(&mut self, node: Node<'t>, regions: &mut Vec<Region<'t>>) {
        for child in children(node) {
            if is_file_level(child.kind()) {
                self.regions(child, regions);
            }
            let (Some(declarator), Some(body)) = (
                child.child_by_field_name("declarator"),
                child.child_by_field_name("body"),
            ) else {
                continue;
            };
            let name = declared_name(declarator).map(|name| self.word(name).to_string());
            let Some(name) = name.filter(|_| child.kind() == "function_definition") else {
                continue;
            };
            let Some(&group) = self.groups.get(&name) else {
                continue;
            };
            let outermost = children(body).into_iter();
            let declarations = outermost.filter(|node| self.is_plain_declaration(*node));
            let declarations = declarations.collect();
            self.free = Some(Vec::new());
            self.walk(body);
            regions.push(Region {
                name,
                group,
                declarations,
                free: self.free.take().unwrap_or_default(),
            });
        }
    }

    /// Of variables that live as long as their block.
    fn is_plain_declaration(&self, node: Node<'_>) -> bool {
        let longer = |child: &Node<'_>| {
            child.kind() == "storage_class_specifier"
                && ["static", "extern", "thread_local"].contains(&self.word(*child))
        };
        node.kind() == "declaration" && !children(node).iter().any(longer)
    }

    fn names_in(&self, declaration: Node<'_>) -> Vec<String> {
        let names = self.declarators(declaration).into_iter();
        let names = names.filter_map(declared_name);
        names.map(|name| self.word(name).to_string()).collect()
    }

    /// The type that a declaration's declarators have in common.
    fn specifiers(&self, declaration: Node<'_>) -> String {
        let declarators = self.declarators(declaration);
        let parts = children(declaration).into_iter().filter(|child| {
            let known = matches!(child.kind(), ";" | "," | "storage_class_specifier");
            !known && !declarators.contains(child)
        });
        let parts: Vec<&str> = parts.map(|part| self.word(part)).collect();
        parts.join(" ")
    }

    /// What a name means if it is shared.
    pub(super) fn shared_as(&self, name: &str) -> Option<String> {
        let group = *self.groups.get(&self.function)?;
        if !self.shared.has(group, name) {
            return None;
        }
        if self.shared.fresh.contains(name) {
            return Some(initial(name));
        }
        Some(format!(
            "(((struct __clew_locals_{group} *)__clew_instance)->{name})"
        ))
    }

    /// A declaration at a region's outermost level: shared names are declared under another name, and what they begin with is put
    /// where it is shared. True for a declarator that was one.
    pub(super) fn shares(&mut self, declaration: Node<'_>, declarator: Node<'_>) -> bool {
        let outermost = declaration
            .parent()
            .and_then(|body| body.parent())
            .is_some_and(|parent| parent.kind() == "function_definition");
        let Some(name) = declared_name(declarator).filter(|_| outermost) else {
            return false;
        };
        let word = self.word(name).to_string();
        if !self.is_plain_declaration(declaration) || self.shared_as(&word).is_none() {
            return false;
        }
        self.edit(name.byte_range(), initial(&word));
        true
    }

    /// What follows a declaration of these shared names.
    pub(super) fn put(&mut self, declaration: Node<'_>, begun: &[String]) {
        let Some(end) = children(declaration)
            .into_iter()
            .rfind(|child| child.kind() == ";")
        else {
            return;
        };
        let mut text = String::from(";");
        for name in begun {
            let (from, to) = (initial(name), self.shared_as(name).unwrap_or_default());
            text.push_str(&match self.cpp {
                true => format!(" __clew_set({to}, {from});"),
                false => format!(
                    " __builtin_memcpy((void *)&{to}, (const void *)&{from}, sizeof {from});"
                ),
            });
        }
        self.edit(end.byte_range(), text);
    }
}
