//! Values as trees. In: a frame, an expression, or a value that was told. Out: nodes: type, text, and what is within
//! them when somebody asks for it.

use clew_recording::event::ThreadId;
use clew_symbols::expr::{Bindings, Evaluator};
use clew_symbols::types::Entry;
use clew_symbols::value::{PartKind, Place, ReturnRegisters, Value, Within};
use clew_timeline::program::Asked;
use serde::{Deserialize, Serialize};

use crate::debugger::{Debugger, hexadecimal};
use crate::{Error, Result};

/// Functions that an expression calls may take so many ticks.
const TICKS: u64 = 20_000_000;
/// More nodes aren't told at once.
pub(crate) const MOST: u64 = 10_000;
/// Static variables of a file that are told.
const MOST_STATICS: usize = 1_000;

/// A value that was told of this position: what is within it can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueId(pub u64);

/// A value of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The variable, member, or `[element]`; `*` is what a pointer points at.
    pub name: String,
    #[serde(rename = "type")]
    pub of: String,
    /// As people read it. What can't be read says why, in angle brackets.
    pub text: String,
    /// Where it is in memory.
    #[serde(serialize_with = "maybe_hexadecimal")]
    pub address: Option<u64>,
    pub size: Option<u64>,
    /// A base class, of which members count as the outer's.
    pub base: bool,
    /// How many parts there are within it; asked for with `id`.
    pub children: u64,
    /// The parts are numbered, and may be many.
    pub numbered: bool,
    /// There if there is something within.
    pub id: Option<ValueId>,
}

fn maybe_hexadecimal<S: serde::Serializer>(
    address: &Option<u64>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match address {
        Some(address) => hexadecimal(address, serializer),
        None => serializer.serialize_none(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeKind {
    Arguments,
    Locals,
    /// Of the source file that the frame's function is in.
    Statics,
    Registers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scope {
    pub kind: ScopeKind,
    pub variables: Vec<Node>,
}

/// Values that were told of one position.
#[derive(Default)]
pub(crate) struct Kept {
    values: Vec<Held>,
    /// The number of the first of them: numbers aren't used again.
    first: u64,
}

#[derive(Clone)]
pub(crate) struct Held {
    pub thread: ThreadId,
    pub within: Within,
}

impl Kept {
    pub fn clear(&mut self) {
        self.first += self.values.len() as u64;
        self.values.clear();
    }

    fn keep(&mut self, held: Held) -> ValueId {
        self.values.push(held);
        ValueId(self.first + self.values.len() as u64 - 1)
    }

    pub fn get(&self, id: ValueId) -> Result<Held> {
        let index = id.0.checked_sub(self.first);
        let held = index.and_then(|index| self.values.get(index as usize));
        held.cloned().ok_or(Error::Stale)
    }
}

/// A node before what is within it is kept.
struct Told {
    node: Node,
    within: Within,
}

impl Debugger {
    /// What is in sight in a frame of a thread's stack.
    pub fn scopes(&mut self, thread: ThreadId, frame: usize) -> Result<Vec<Scope>> {
        let shown = frame + self.hidden_in(thread);
        let told = self.look(thread, |evaluator| {
            evaluator
                .choose_frame(shown)
                .then(|| scopes(evaluator, shown))
        })?;
        let Some(told) = told else {
            return Err(Error::Frame(frame));
        };
        let mut all = Vec::new();
        for (kind, nodes) in told {
            let variables = self.keep_all(thread, nodes);
            all.push(Scope { kind, variables });
        }
        Ok(all)
    }

    /// What is within a value, from number `from` on, at most `most`.
    pub fn children(&mut self, id: ValueId, from: u64, most: u64) -> Result<Vec<Node>> {
        let held = self.kept.get(id)?;
        let most = most.min(MOST);
        let nodes = self.look(held.thread, |evaluator| {
            // Pointers that were optimised away are found by their frames.
            evaluator.choose_frame(1);
            let parts = evaluator.view().some(&held.within, from, most);
            let told = parts.into_iter().map(|part| match part.value {
                Ok(value) => {
                    let mut told = told(evaluator, part.name, &value);
                    told.node.base = part.kind == PartKind::Base;
                    told
                }
                Err(error) => unknown(part.name, String::new(), &error.to_string()),
            });
            told.collect()
        })?;
        Ok(self.keep_all(held.thread, nodes))
    }

    /// The value of a C expression in a frame. It may call functions of the program, in a copy that is thrown away.
    pub fn evaluate(&mut self, thread: ThreadId, frame: usize, expression: &str) -> Result<Node> {
        let text = expression.trim();
        let shown = frame + self.hidden_in(thread);
        let node = self.look(thread, |evaluator| {
            if !evaluator.choose_frame(shown) {
                return None;
            }
            let value = evaluator.evaluate(text);
            Some(value.map(|value| told(evaluator, text.into(), &value)))
        })?;
        let node = node.ok_or(Error::Frame(frame))?;
        let node = node.map_err(|problem| self.wrong(&problem, text))?;
        let mut nodes = self.keep_all(thread, vec![node]);
        Ok(nodes.remove(0))
    }

    /// What a function has returned in these registers, as it is in memory here.
    pub(crate) fn returned_node(
        &mut self,
        thread: ThreadId,
        function: &Entry,
        registers: &ReturnRegisters,
    ) -> Result<Option<Node>> {
        let node = self.look(thread, |evaluator| {
            let of = function.type_of().ok()?;
            let value = evaluator.view().returned(&of, registers).ok().flatten()?;
            Some(told(evaluator, "returned".into(), &value))
        })?;
        Ok(node.map(|node| self.keep_all(thread, vec![node]).remove(0)))
    }

    /// Lets somebody look at a thread here.
    pub(crate) fn look<T>(
        &mut self,
        thread: ThreadId,
        question: impl FnOnce(&mut Evaluator<'_>) -> T,
    ) -> Result<T> {
        let asked = Asked {
            thread,
            ticks: TICKS,
            pokes: &self.pokes,
        };
        let names = &mut Bindings::new();
        Ok(self
            .program
            .ask(&mut self.timeline, asked, names, question)?)
    }

    fn keep_all(&mut self, thread: ThreadId, told: Vec<Told>) -> Vec<Node> {
        let keep = |Told { mut node, within }| {
            if node.children > 0 {
                node.id = Some(self.kept.keep(Held { thread, within }));
            }
            node
        };
        told.into_iter().map(keep).collect()
    }
}

fn scopes(evaluator: &mut Evaluator<'_>, frame: usize) -> Vec<(ScopeKind, Vec<Told>)> {
    let (mut arguments, mut locals) = (Vec::new(), Vec::new());
    for (variable, value) in evaluator.variables_in(frame) {
        let name = variable.name.to_string();
        let told = match value {
            Ok(value) => told(evaluator, name, &value),
            Err(problem) => {
                let of = variable.entry.type_of();
                let catalog = evaluator.view().catalog;
                let of = of.ok().and_then(|of| catalog.type_name(&of).ok());
                let why = match problem.message.contains("optimised out") {
                    true => "optimized out".into(),
                    false => problem.message,
                };
                unknown(name, of.unwrap_or_default(), &why)
            }
        };
        match variable.parameter {
            true => arguments.push(told),
            false => locals.push(told),
        }
    }
    let statics = statics(evaluator, frame);
    let registers = registers(evaluator, frame);
    vec![
        (ScopeKind::Arguments, arguments),
        (ScopeKind::Locals, locals),
        (ScopeKind::Statics, statics),
        (ScopeKind::Registers, registers),
    ]
}

/// The variables of the file that a frame's function is in.
fn statics(evaluator: &mut Evaluator<'_>, frame: usize) -> Vec<Told> {
    let view = evaluator.view();
    let Some(lookup) = view.frames.get(frame).map(|frame| frame.lookup) else {
        return Vec::new();
    };
    let (catalog, modules) = (view.catalog, view.modules);
    let Ok(found) = catalog.variables_of_unit(modules, lookup, MOST_STATICS) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, found) in found {
        let view = evaluator.view();
        let value = found.entry.type_of().map_err(Into::into).and_then(|of| {
            let size = view.catalog.size(&of)?;
            let mut locator = view.locator(None);
            let place = locator.variable(&found.entry, found.bias, size)?;
            Ok::<_, clew_symbols::location::NoPlace>(Value::new(of, place))
        });
        all.push(match value {
            Ok(value) => told(evaluator, name.to_string(), &value),
            Err(error) => unknown(name.to_string(), String::new(), &error.to_string()),
        });
    }
    all
}

fn registers(evaluator: &mut Evaluator<'_>, frame: usize) -> Vec<Told> {
    let names = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15", "rip",
    ];
    let Some(frame) = evaluator.view().frames.get(frame) else {
        return Vec::new();
    };
    let registers = frame.registers.clone();
    let told = |name: &str, value: Option<u128>, of: &str, size| Told {
        node: Node {
            name: name.into(),
            of: of.into(),
            text: value.map_or("<unknown here>".into(), |value| format!("{value:#x}")),
            address: None,
            size: Some(size),
            base: false,
            children: 0,
            numbered: false,
            id: None,
        },
        within: Within::Nothing,
    };
    let number = clew_symbols::Registers::number;
    let general = names.map(|name| {
        let value = number(name).and_then(|number| registers.get(number));
        told(name, value.map(u128::from), "unsigned long", 8)
    });
    let vectors = (0..16).filter_map(|n| {
        let name = format!("xmm{n}");
        let value = registers.vector(number(&name)?)?;
        Some(told(&name, Some(value), "unsigned __int128", 16))
    });
    general.into_iter().chain(vectors).collect()
}

fn told(evaluator: &mut Evaluator<'_>, name: String, value: &Value) -> Told {
    let view = evaluator.view();
    let within = view.within(value).unwrap_or(Within::Nothing);
    let node = Node {
        name,
        of: view.catalog.type_name(&value.of).unwrap_or_default(),
        text: view.text_of(value),
        address: match value.place {
            Place::Memory(address) => Some(address),
            _ => None,
        },
        size: view.catalog.size(&value.of).ok().flatten(),
        base: false,
        children: within.count(),
        numbered: within.numbered(),
        id: None,
    };
    Told { node, within }
}

fn unknown(name: String, of: String, why: &str) -> Told {
    Told {
        node: Node {
            name,
            of,
            text: format!("<{why}>"),
            address: None,
            size: None,
            base: false,
            children: 0,
            numbered: false,
            id: None,
        },
        within: Within::Nothing,
    }
}
