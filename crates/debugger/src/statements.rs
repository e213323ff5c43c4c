//! The lines of a function. In: a frame of a stack. Out: where statements start in its function, which inlined calls they
//! are in, what it calls, and how one call of it is told from another.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clew_recording::event::ThreadId;
use clew_symbols::gimli::Register;
use clew_symbols::{Die, Line, Module, Modules, Registers};
use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::condition::Condition;
use crate::debugger::Debugger;
use crate::going::{MOST_STOPPERS, Stopper};
use crate::{Error, Result};

/// A module's address, which [`Body`] keeps, its bias, and the function.
pub(crate) type BodyKey = (usize, u64, Die);

/// Functions that are longer aren't searched for calls.
const LONGEST: u64 = 4 << 20;

/// A function's code as lines. Addresses are the process's.
pub(crate) struct Body {
    /// Keeps the address, which is the key, from being another's.
    _module: Arc<Module>,
    pub name: String,
    pub entry: u64,
    /// Behind the code that makes the frame.
    pub start: u64,
    pub ranges: Vec<Range<u64>>,
    pub statements: Vec<Statement>,
    calls: OnceLock<Arc<Callees>>,
    /// How frames are told at its addresses, once somebody asked.
    rules: Mutex<HashMap<u64, Option<(Register, i64)>>>,
}

/// Where a statement starts.
pub(crate) struct Statement {
    pub address: u64,
    /// The function, and the calls inlined into it that the statement is in, outermost first.
    pub chain: Vec<Die>,
    /// The line in each of them: but for the innermost, that of the call.
    pub lines: Vec<Option<LineOf>>,
    /// So many of the innermost ones begin right here.
    pub begins: usize,
}

impl Statement {
    /// Is it at this line of a call, or in a call inlined there?
    pub fn is_at(&self, line: Option<&LineOf>, chain: &[Die]) -> bool {
        let own = chain
            .len()
            .checked_sub(1)
            .and_then(|level| self.lines.get(level));
        self.chain.starts_with(chain) && own.is_some_and(|own| own.as_ref() == line)
    }

    /// Is it within a call that was inlined into this one?
    pub fn is_deeper(&self, chain: &[Die]) -> bool {
        self.chain.len() > chain.len() && self.chain.starts_with(chain)
    }
}

/// A line of a file.
pub(crate) type LineOf = (Arc<str>, u32);

/// What a function calls.
#[derive(Default)]
pub(crate) struct Callees {
    /// Where functions that have lines, and are called by name, begin: behind what makes their frames.
    pub bodies: Vec<u64>,
    /// Calls through pointers, where anybody may be called.
    pub indirect: Vec<u64>,
    /// Behind each call of a function that has lines, or may have.
    pub returns: Vec<u64>,
    /// Each call by name of a function that has lines, and where that begins.
    pub named: Vec<(u64, Vec<u64>)>,
}

/// A frame in which lines are stepped over.
pub(crate) struct Standing {
    pub thread: ThreadId,
    pub body: Arc<Body>,
    pub chain: Vec<Die>,
    /// None between lines, in code that no line has.
    pub line: Option<LineOf>,
    /// Its canonical frame address.
    pub cfa: u64,
    /// Where it returns to.
    pub back: Option<Stopper>,
    /// The calls around it: their functions and frames.
    pub around: Vec<(Arc<Body>, u64)>,
    pub modules: Modules,
}

impl Body {
    pub fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}

impl Standing {
    /// A condition for an address of this frame's function: it is this call of it.
    pub fn frame_at(&self, address: u64) -> Condition {
        frame_at(&self.modules, &self.body, address, self.cfa)
    }

    pub fn stopper(&self, address: u64) -> Stopper {
        Stopper {
            address,
            condition: self.frame_at(address),
        }
    }

    pub fn entry(&self) -> Stopper {
        self.stopper(self.body.entry)
    }

    /// Statements of this frame, or of those that it is inlined into; not those that only make the frame. Calls that are
    /// inlined into it are statements where they begin. `into`: and all that is within them.
    pub fn statements(&self, into: bool) -> impl Iterator<Item = &Statement> {
        let making = self.body.entry..self.body.start;
        self.body.statements.iter().filter(move |statement| {
            let around = self.chain.starts_with(&statement.chain);
            let deeper = statement.chain.len().saturating_sub(self.chain.len());
            let within = statement.is_deeper(&self.chain) && (into || deeper <= statement.begins);
            (around || within) && !making.contains(&statement.address)
        })
    }

    /// What ends a step that doesn't stop in this frame: its return, and statements of the calls around it, which an
    /// exception or a long jump may lead to.
    pub fn leaving(&self, room: usize) -> Vec<Stopper> {
        let mut all: Vec<Stopper> = self.back.into_iter().collect();
        let mut seen = HashSet::new();
        for (body, cfa) in &self.around {
            if !seen.insert((body.entry, *cfa)) || all.len() + body.statements.len() > room {
                continue;
            }
            all.extend(body.statements.iter().map(|statement| Stopper {
                address: statement.address,
                condition: frame_at(&self.modules, body, statement.address, *cfa),
            }));
        }
        all
    }
}

/// A function without unwind information is told by its stack pointer alone: its frames aren't deeper.
fn frame_at(modules: &Modules, body: &Body, address: u64, cfa: u64) -> Condition {
    let mut rules = body.rules.lock().unwrap_or_else(PoisonError::into_inner);
    let rule = rules.entry(address);
    match *rule.or_insert_with(|| modules.cfa_rule(address)) {
        Some((register, offset)) if register.0 <= Registers::RIP.0 => Condition::Frame {
            register,
            offset,
            is: cfa,
        },
        _ => Condition::Always,
    }
}

impl Debugger {
    /// A frame of a thread's stack, to step in; none if its function has no lines.
    pub(crate) fn standing(&mut self, thread: ThreadId, frame: usize) -> Result<Option<Standing>> {
        let stack = self.unwound(thread)?;
        let frames = &stack.frames;
        if frame >= frames.len() {
            return Err(Error::Frame(frame));
        }
        // Of the calls inlined here, those that are shown.
        let Some(real) = (frame..frames.len()).find(|n| !frames[*n].inlined) else {
            return Ok(None);
        };
        let modules = self.program.modules(&mut self.timeline)?;
        let (Some(cfa), Some(body)) = (frames[real].cfa, self.body(&frames[real])?) else {
            return Ok(None);
        };
        let chain = frames[frame..=real].iter().rev();
        let chain: Vec<Die> = chain.filter_map(|frame| frame.die).collect();
        let line = frames[frame].line.as_ref().and_then(line_of);
        let back = match frames.get(real + 1) {
            // A handler returns to what was interrupted.
            Some(signal) if signal.is_signal => frames.get(real + 2).map(|frame| Stopper {
                address: frame.pc,
                condition: Condition::Above(frame.registers.sp().unwrap_or(cfa)),
            }),
            Some(caller) => Some(Stopper {
                address: caller.pc,
                condition: Condition::Above(cfa),
            }),
            None => None,
        };
        let mut around = Vec::new();
        let mut room = MOST_STOPPERS / 2;
        for outer in frames[real + 1..].iter().filter(|frame| !frame.inlined) {
            if let (Some(cfa), Some(body)) = (outer.cfa, self.body(outer)?) {
                match room.checked_sub(body.statements.len()) {
                    Some(left) => room = left,
                    None => break,
                }
                around.push((body, cfa));
            }
        }
        Ok(Some(Standing {
            thread,
            body,
            chain,
            line,
            cfa,
            back,
            around,
            modules,
        }))
    }

    /// The function of a frame that isn't inlined; none without lines.
    pub(crate) fn body(&mut self, frame: &clew_symbols::Frame) -> Result<Option<Arc<Body>>> {
        let (Some(module), Some(die)) = (&frame.module, frame.die) else {
            return Ok(None);
        };
        let key = (Arc::as_ptr(module) as usize, frame.bias, die);
        if let Some(known) = self.bodies.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(function) = module.function(die)? else {
            return Ok(None);
        };
        let bias = frame.bias;
        let moved = |address: u64| address.wrapping_add(bias);
        let mut statements = Vec::new();
        for range in &function.ranges {
            for found in module.statements(range.clone())? {
                if line_of(&found.line).is_none() {
                    continue;
                }
                let places = module.places_at(found.address)?;
                let places: Vec<_> = places.iter().rev().collect();
                let chain = places.iter().filter_map(|place| place.die);
                let lines = places.iter();
                let lines = lines.map(|place| place.line.as_ref().and_then(line_of));
                let begins = places.iter().rev().take_while(|place| {
                    let die = place.die.filter(|_| place.inlined);
                    let call = die.and_then(|die| module.function(die).ok().flatten());
                    call.is_some_and(|call| call.entry == found.address)
                });
                statements.push(Statement {
                    address: moved(found.address),
                    begins: begins.count(),
                    chain: chain.collect(),
                    lines: lines.collect(),
                });
            }
        }
        if statements.is_empty() {
            return Ok(None);
        }
        if statements.len() > MOST_STOPPERS / 2 {
            return Err(Error::Statements {
                function: function.name,
                count: statements.len(),
            });
        }
        let ranges = function.ranges.iter();
        let body = Arc::new(Body {
            _module: module.clone(),
            entry: moved(function.entry),
            start: moved(module.body_of(function.entry)?),
            ranges: ranges.map(|r| moved(r.start)..moved(r.end)).collect(),
            name: function.name,
            statements,
            calls: OnceLock::new(),
            rules: Mutex::default(),
        });
        self.bodies.insert(key, body.clone());
        Ok(Some(body))
    }

    /// What a function calls, as its code here says.
    pub(crate) fn callees(&mut self, standing: &Standing) -> Result<Arc<Callees>> {
        let body = &standing.body;
        if let Some(known) = body.calls.get() {
            return Ok(known.clone());
        }
        let images = self.images()?;
        let mut callees = Callees::default();
        for range in &body.ranges {
            let mut code = vec![0; (range.end - range.start).min(LONGEST) as usize];
            let got = self.timeline.read(range.start, &mut code)?;
            let mut decoder = Decoder::with_ip(64, &code[..got], range.start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                match instruction.flow_control() {
                    FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                        let bodies = self.lines_of(&images.modules, instruction.near_branch64());
                        if !bodies.is_empty() {
                            callees.returns.push(instruction.next_ip());
                            callees.bodies.extend(&bodies);
                            callees.named.push((instruction.ip(), bodies));
                        }
                    }
                    // A tail call.
                    FlowControl::UnconditionalBranch
                        if instruction.op0_kind() == OpKind::NearBranch64
                            && !body.holds(instruction.near_branch64()) =>
                    {
                        let bodies = self.lines_of(&images.modules, instruction.near_branch64());
                        callees.bodies.extend(bodies);
                    }
                    FlowControl::IndirectCall => {
                        callees.indirect.push(instruction.ip());
                        callees.returns.push(instruction.next_ip());
                    }
                    _ => {}
                }
            }
        }
        callees.bodies.sort_unstable();
        callees.bodies.dedup();
        let callees = Arc::new(callees);
        Ok(body.calls.get_or_init(|| callees).clone())
    }

    /// Where the body of a function that is called begins, if it has lines. A linkage table's entry stands for
    /// whoever has the name.
    fn lines_of(&mut self, modules: &Modules, target: u64) -> Vec<u64> {
        let Some(image) = modules.find(target) else {
            return Vec::new();
        };
        let local = image.local(target);
        if let Some(body) = body_with_lines(&image.module, local) {
            return vec![body.wrapping_add(image.bias)];
        }
        let symbol = image.module.symbol_at(local).ok().flatten();
        let name = symbol.and_then(|symbol| Some(symbol.name.strip_suffix("@plt")?.to_string()));
        let Some(name) = name else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for image in modules.modules() {
            for symbol in image.module.symbols_named(&name).unwrap_or_default() {
                if let Some(body) = body_with_lines(&image.module, symbol.address) {
                    all.push(body.wrapping_add(image.bias));
                }
            }
        }
        all
    }

    /// Where the body of the function at a process's address begins, if it has lines.
    pub(crate) fn body_at(&mut self, modules: &Modules, pc: u64) -> Option<u64> {
        let image = modules.find(pc)?;
        let body = body_with_lines(&image.module, image.local(pc))?;
        Some(body.wrapping_add(image.bias))
    }
}

fn body_with_lines(module: &Module, address: u64) -> Option<u64> {
    module.function_die(address).ok()??;
    let line = module.line_at(address).ok()??;
    (line.line != 0).then_some(())?;
    module.body_of(address).ok()
}

pub(crate) fn line_of(line: &Line) -> Option<LineOf> {
    (line.line != 0).then(|| (line.file.clone(), line.line))
}
