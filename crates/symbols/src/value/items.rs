//! Items of containers, one by one: how to come from one to the next in, those of a range out.

use super::containers::DEEPEST;
use super::{Place, Value, View};
use crate::types::Type;

/// Nodes of a list that are passed for one question.
const MOST_PASSED: u64 = 1 << 20;
const NODE_BASE: u64 = 32;

/// How to come from one item to the next.
#[derive(Clone, Debug)]
pub enum Walk {
    /// A doubly linked list, or a hash table's chain: the first node, and where the next one's address and items lie in nodes.
    Chain {
        first: u64,
        link: u64,
        offset: u64,
        of: Type,
    },
    /// A red-black tree: its leftmost node.
    Tree { first: u64, nodes: Nodes, of: Type },
    /// Blocks of items: the table of blocks, items in a block, and how many the first one lacks.
    Blocks {
        table: u64,
        each: u64,
        skip: u64,
        of: Type,
    },
    /// Items in a ring: the memory, for how many it has room, and where the first one lies.
    Ring {
        data: u64,
        room: u64,
        first: u64,
        of: Type,
    },
    /// A table of control bytes; items lie before it, the last one first. A byte below 128 says that one is there.
    Buckets {
        control: u64,
        buckets: u64,
        of: Type,
    },
    /// Rust's ordered tree.
    BTree(Box<BTree>),
}

/// Where a tree's nodes have their neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    pub left: u64,
    pub right: u64,
    pub parent: u64,
}

/// Nodes of several keys each, with values beside them; those above the leaves have children, one more than keys.
#[derive(Clone, Debug)]
pub struct BTree {
    /// The root, and how many levels are below it.
    pub node: u64,
    pub height: u64,
    /// Where these lie in a node.
    pub keys: u64,
    pub values: u64,
    pub len: u64,
    pub edges: u64,
    pub key: Type,
    pub of: Type,
}

/// An item of a container; of a map, with its key.
#[derive(Clone, Debug)]
pub struct Item {
    pub key: Option<Value>,
    pub value: Value,
}

impl View<'_> {
    /// Items from number `from` on, at most `most`; fewer if memory ends.
    pub fn walk(&mut self, walk: &Walk, count: u64, from: u64, most: u64) -> Vec<Item> {
        let to = count.min(from.saturating_add(most));
        let mut items = Vec::new();
        let mut take = |n: u64, address: u64, of: &Type| {
            if n >= from {
                items.push(Value::new(of.clone(), Place::Memory(address)));
            }
        };
        match walk {
            Walk::Chain {
                first,
                link,
                offset,
                of,
            } => {
                let mut node = *first;
                for n in 0..to.min(MOST_PASSED) {
                    let Some(next) = self.pointer_at(node.wrapping_add(*link)) else {
                        break;
                    };
                    take(n, node.wrapping_add(*offset), of);
                    node = next;
                }
            }
            Walk::Tree { first, nodes, of } => {
                let align = self.alignment(of).max(1);
                let offset = NODE_BASE.next_multiple_of(align);
                let mut node = *first;
                for n in 0..to.min(MOST_PASSED) {
                    take(n, node.wrapping_add(offset), of);
                    match self.tree_next(node, *nodes) {
                        Some(next) => node = next,
                        None => break,
                    }
                }
            }
            Walk::Blocks {
                table,
                each,
                skip,
                of,
            } => {
                let size = self.catalog.size(of).ok().flatten().unwrap_or(1);
                for n in from..to {
                    let at = n + skip;
                    let Some(block) = self.pointer_at(table.wrapping_add(at / each * 8)) else {
                        break;
                    };
                    take(n, block.wrapping_add(at % each * size), of);
                }
            }
            Walk::Ring {
                data,
                room,
                first,
                of,
            } => {
                let size = self.catalog.size(of).ok().flatten().unwrap_or(0);
                for n in from..to {
                    // Neither is more than the room.
                    let at = match first + n < *room {
                        true => first + n,
                        false => first + n - room,
                    };
                    take(n, data.wrapping_add(at.wrapping_mul(size)), of);
                }
            }
            Walk::Buckets {
                control,
                buckets,
                of,
            } => {
                let size = self.catalog.size(of).ok().flatten().unwrap_or(0);
                let (mut n, mut at) = (0, 0);
                let mut bytes = [0u8; 4096];
                while at < *buckets && n < to {
                    let len = (*buckets - at).min(bytes.len() as u64) as usize;
                    let got = self
                        .context
                        .read(control.wrapping_add(at), &mut bytes[..len]);
                    for (bucket, _) in (at..).zip(&bytes[..got]).filter(|(_, byte)| **byte < 128) {
                        if n >= to {
                            break;
                        }
                        let back = (bucket + 1).wrapping_mul(size);
                        take(n, control.wrapping_sub(back), of);
                        n += 1;
                    }
                    if got < len {
                        break;
                    }
                    at += len as u64;
                }
            }
            Walk::BTree(tree) => return self.btree_items(tree, from, to),
        }
        items.into_iter().map(|item| self.item_of(item)).collect()
    }

    fn item_of(&mut self, item: Value) -> Item {
        match self.pair(&item) {
            Some((key, value)) => Item {
                key: Some(key),
                value,
            },
            None => Item {
                key: None,
                value: item,
            },
        }
    }

    /// Items of an ordered tree from number `from` up to `to`.
    fn btree_items(&mut self, tree: &BTree, from: u64, to: u64) -> Vec<Item> {
        let size = |of: &Type| self.catalog.size(of).ok().flatten().unwrap_or(0);
        let (key_size, value_size) = (size(&tree.key), size(&tree.of));
        let mut items = Vec::new();
        let mut passed = 0;
        // Nodes on the way down, with the number of the key that comes next in each.
        let mut way: Vec<(u64, u64)> = Vec::new();
        let mut down = (to > 0).then_some(tree.node);
        while passed < to.min(MOST_PASSED) {
            while let Some(node) = down.take() {
                way.push((node, 0));
                let level = way.len() as u64 - 1;
                if level < tree.height {
                    if level > DEEPEST as u64 {
                        return items;
                    }
                    down = self.pointer_at(node.wrapping_add(tree.edges));
                }
            }
            let level = way.len() as u64;
            let Some((node, next)) = way.last_mut() else {
                break;
            };
            let (node, n) = (*node, *next);
            let Ok(count) = self.read(node.wrapping_add(tree.len), 2) else {
                break;
            };
            // Nodes have eleven keys at most.
            let count = count[..].try_into().map_or(0, u16::from_le_bytes);
            if n >= u64::from(count.min(11)) {
                way.pop();
                continue;
            }
            *next += 1;
            if passed >= from {
                let place = |at: u64, size: u64| {
                    Place::Memory(node.wrapping_add(at).wrapping_add(n.wrapping_mul(size)))
                };
                let key = Value::new(tree.key.clone(), place(tree.keys, key_size));
                let value = Value::new(tree.of.clone(), place(tree.values, value_size));
                items.push(match value_size {
                    // A set.
                    0 => Item {
                        key: None,
                        value: key,
                    },
                    _ => Item {
                        key: Some(key),
                        value,
                    },
                });
            }
            passed += 1;
            if level <= tree.height {
                let edge = node.wrapping_add(tree.edges + (n + 1) * 8);
                down = self.pointer_at(edge);
            }
        }
        items
    }

    /// The node after this one in order.
    fn tree_next(&mut self, node: u64, nodes: Nodes) -> Option<u64> {
        let right = self.pointer_at(node.wrapping_add(nodes.right))?;
        if right != 0 {
            let mut node = right;
            // A tree isn't deeper than twice its size has bits.
            for _ in 0..128 {
                match self.pointer_at(node.wrapping_add(nodes.left))? {
                    0 => return Some(node),
                    left => node = left,
                }
            }
            return None;
        }
        let (mut node, mut parent) = (node, self.pointer_at(node.wrapping_add(nodes.parent))?);
        for _ in 0..128 {
            if self.pointer_at(parent.wrapping_add(nodes.right))? != node {
                return Some(parent);
            }
            node = parent;
            parent = self.pointer_at(node.wrapping_add(nodes.parent))?;
        }
        None
    }

    fn pointer_at(&mut self, address: u64) -> Option<u64> {
        let bytes = self.read(address, 8).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// What addresses of a type's values are multiples of: that of its largest part, at most 16.
    fn alignment(&self, of: &Type) -> u64 {
        self.alignment_within(of, 0)
    }

    fn alignment_within(&self, of: &Type, depth: usize) -> u64 {
        if depth > DEEPEST {
            return 1;
        }
        match self.catalog.strip(of) {
            Ok(Type::Record(record)) => {
                let of_member =
                    |member: &crate::types::Member| self.alignment_within(&member.of, depth + 1);
                record.members.iter().map(of_member).max().unwrap_or(1)
            }
            Ok(Type::Array { of, .. }) => self.alignment_within(&of, depth + 1),
            Ok(other) => self
                .catalog
                .size(&other)
                .ok()
                .flatten()
                .unwrap_or(1)
                .min(16),
            Err(_) => 1,
        }
    }
}
