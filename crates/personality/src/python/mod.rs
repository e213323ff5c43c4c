//! CPython 3.11 to 3.13. In: a recorded interpreter. Out: its frames, lines and values.
//!
//! The interpreter's loop stores the instruction that it executes next into the frame, at the beginning of each
//! opcode's code: those stores are the sites. There the frame is in one register and the new instruction in another,
//! while the frame still has the last one, so that one look tells whether a line begins.

mod code;
mod conditions;
mod evaluate;
mod layout;
mod sites;

use std::collections::HashMap;
use std::rc::Rc;

use clew_recording::event::ThreadId;
use clew_timeline::{Break, Direction, Gate, Reason, Sites, Stops, Target};

use crate::agent::Code as Agent;
use crate::breakpoints::Spot;
use crate::view::word;
use crate::{Error, Frame, Moment, Personality, Question, Raised, Result, Told, View, Within};
use code::Code;
use layout::{Layout, OWNED_BY_C, SIZE, Way};
use sites::Found;

/// Frames of a thread that are told.
const MOST_FRAMES: usize = 2_000;
const MOST_THREADS: usize = 10_000;
/// Of so many frames the lines are looked at one by one; the others, further out, stop at any instruction.
const NEAR_FRAMES: usize = 8;
const FS_BASE: usize = 18;
/// The beginning of a file's name that is no file: the interpreter's own machinery.
const HIDDEN: &[u8; 8] = b"<frozen ";
/// The first argument's register, as instructions number it.
const RDI: u8 = 7;
/// In a frame's object: the frame.
const FRAME_OF_OBJECT: u64 = 24;
/// In an exception object.
const TRACEBACK: u64 = 40;

pub struct Python {
    layout: Layout,
    minor: u32,
    micro: u32,
    runtime: u64,
    sites: Found,
    codes: HashMap<u64, Rc<Code>>,
    /// Code objects whose inner ones are known too.
    expanded: std::collections::HashSet<u64>,
}

fn strange() -> Error {
    Error::Refused("the interpreter isn't in a state that is understood".into())
}

impl Python {
    /// Knows the interpreter by its symbols, and compares what is believed of it with its first objects.
    pub fn recognise(view: &mut View) -> Result<Python> {
        let Some((evaluator, size)) = view.symbol("_PyEval_EvalFrameDefault") else {
            return Err(Error::Unknown("it is no CPython".into()));
        };
        let unknown = |what: &str| {
            Error::Unknown(format!(
                "this CPython isn't known: {what}; 3.11 to 3.13 are. gdb (--personality c) works on any program"
            ))
        };
        let here = view.timeline.position()?;
        // Its file may not be mapped yet.
        view.timeline.set_stops(Stops {
            breaks: vec![Break {
                addr: evaluator,
                thread: None,
                conditions: Vec::new(),
            }],
            ..Stops::default()
        });
        view.timeline.seek(Target::Start)?;
        let stop = view.timeline.run(Direction::Forward, None)?;
        view.timeline.set_stops(Stops::default());
        if stop.reason != Reason::Break {
            return Err(Error::Unknown("it runs no Python at all".into()));
        }
        let Some((version, _)) = view.symbol("Py_Version") else {
            return Err(unknown("it is older than 3.11"));
        };
        let version = view.word(version)?;
        let (major, minor) = ((version >> 24) as u32, (version >> 16 & 255) as u32);
        let micro = (version >> 8 & 255) as u32;
        let Some(layout) = layout::of(major, minor) else {
            return Err(unknown(&format!("it is {major}.{minor}")));
        };
        let runtime = view.address("_PyRuntime")?;
        let Some(sites) = sites::find(view, &layout, evaluator, size)? else {
            return Err(unknown("its loop isn't understood"));
        };
        let mut python = Python {
            layout,
            minor,
            micro,
            runtime,
            sites,
            codes: HashMap::new(),
            expanded: Default::default(),
        };
        if !python.fits(view).unwrap_or(false) {
            return Err(unknown("its objects aren't where they are expected"));
        }
        view.timeline.seek(Target::Position(here))?;
        Ok(python)
    }

    /// At the first instruction of all: are code, names, frame and thread what they are believed to be?
    fn fits(&mut self, view: &mut View) -> Result<bool> {
        let any = Within::Any {
            thread: None,
            from: None,
        };
        let sites = self.lines(view, any)?;
        view.timeline.set_stops(Stops {
            sites,
            ..Stops::default()
        });
        let stop = view.timeline.run(Direction::Forward, None)?;
        view.timeline.set_stops(Stops::default());
        if stop.reason != Reason::Break {
            return Ok(false);
        }
        self.sites.find_entries(view, &self.layout)?;
        let Some(moment) = self.moment(view)? else {
            return Ok(false);
        };
        let Some(state) = self.state_of(view, moment.thread)? else {
            return Ok(false);
        };
        let code = self.code(view, moment.frame.code)?;
        Ok(code.contains(moment.place)
            && !self.sites.entries.is_empty()
            && self.innermost(view, state)? == moment.frame.id)
    }

    fn interpreter(&self, view: &mut View) -> Result<u64> {
        view.word(self.runtime + self.layout.interpreters)
    }

    /// The state of a thread; none if it has none.
    fn state_of(&self, view: &mut View, thread: ThreadId) -> Result<Option<u64>> {
        let base = view.registers(thread)?.words[FS_BASE];
        let interpreter = self.interpreter(view)?;
        if interpreter == 0 {
            return Ok(None);
        }
        let mut state = view.word(interpreter + self.layout.threads)?;
        for _ in 0..MOST_THREADS {
            if state == 0 {
                break;
            }
            if view.word(state + self.layout.thread_id)? == base {
                return Ok(Some(state));
            }
            state = view.word(state + self.layout.next)?;
        }
        Ok(None)
    }

    fn innermost(&self, view: &mut View, state: u64) -> Result<u64> {
        match self.layout.frame {
            Way::Direct(frame) => view.word(state + frame),
            Way::Through(there, frame) => {
                let there = view.word(state + there)?;
                view.word(there + frame)
            }
        }
    }

    /// The code object there, read anew if it is another one than before.
    fn code(&mut self, view: &mut View, address: u64) -> Result<Rc<Code>> {
        if let Some(known) = self.codes.get(&address) {
            let known = known.clone();
            if known.is_there(view, &self.layout)? {
                return Ok(known);
            }
            self.expanded.remove(&address);
        }
        let code = Rc::new(Code::read(view, &self.layout, address)?);
        self.codes.insert(address, code.clone());
        Ok(code)
    }

    fn is_at_site(&self, view: &View) -> bool {
        self.sites.all.binary_search(&view.timeline.at().pc).is_ok()
    }

    fn frame(code: &Code, id: u64, instruction: u64) -> Frame {
        Frame {
            id,
            code: code.address,
            function: code.qualified.clone(),
            file: code.file.clone(),
            line: code.line(instruction).unwrap_or(code.first_line()),
            hidden: code.file.as_bytes().starts_with(HIDDEN),
        }
    }

    fn all_sites(&self, thread: Option<ThreadId>, gate: Option<Gate>, condition: Agent) -> Sites {
        Sites {
            addrs: self.sites.all.clone(),
            thread,
            gate,
            conditions: vec![condition.end()],
        }
    }

    /// A breakpoint's condition, as far as it can be asked in the midst of a run. Not in code that is gone, or isn't there yet.
    fn condition(&self, view: &mut View, code: &Code, text: &str) -> Result<Option<Agent>> {
        let (layout, tagged) = (&self.layout, self.minor >= 12);
        let asked = code.is_there(view, layout).and_then(|there| match there {
            true => conditions::agent(view, layout, tagged, code, self.sites.frame, text),
            false => Ok(None),
        });
        match asked {
            Err(Error::Refused(_)) => Ok(None),
            asked => asked,
        }
    }

    /// Instructions of the language's own, in order.
    fn gate(&self, ranges: Vec<(u64, u64)>) -> Gate {
        Gate {
            register: self.sites.instruction,
            displacement: 0,
            ranges,
        }
    }

    /// Sites at which frames are entered.
    fn entries(&self, condition: Agent) -> Sites {
        Sites {
            addrs: self.sites.entries.clone(),
            thread: None,
            gate: None,
            conditions: vec![condition.end()],
        }
    }

    /// The code object of the frame at a site.
    fn agent_code(&self) -> Agent {
        let frame = Agent::new().register(self.sites.frame);
        frame.word(self.layout.code)
    }

    /// Whether the string object that `of` leaves has these characters, at its end or in all.
    fn agent_text(&self, of: Agent, text: &str, whole: bool) -> Agent {
        let bytes = text.as_bytes();
        let length = of.clone().word(SIZE);
        let mut same = match whole {
            true => length.clone().equals(bytes.len() as u64),
            false => Agent::new().constant(1),
        };
        // Eight characters at the end are enough: who stops there looks at all of it.
        let end = of.plus(self.layout.text).add(length);
        match bytes.last_chunk::<8>() {
            Some(last) => {
                let there = end.plus(8u64.wrapping_neg()).word(0);
                same = same.and(there.equals(u64::from_le_bytes(*last)));
            }
            None => {
                for (n, &byte) in bytes.iter().rev().enumerate() {
                    let there = end.clone().plus((n as u64 + 1).wrapping_neg()).byte(0);
                    same = same.and(there.equals(byte.into()));
                }
            }
        }
        same
    }

    /// Code objects that are defined in this one, and in those.
    fn expand(&mut self, view: &mut View, code: &Rc<Code>) -> Result<()> {
        let mut left = vec![code.clone()];
        while let Some(code) = left.pop() {
            if !self.expanded.insert(code.address) {
                continue;
            }
            for inner in code.inner(view, &self.layout)? {
                left.push(self.code(view, inner)?);
            }
        }
        Ok(())
    }
}

impl Personality for Python {
    fn language(&self) -> &'static str {
        "python"
    }

    fn version(&self) -> String {
        format!("CPython 3.{}.{}", self.minor, self.micro)
    }

    fn moment(&mut self, view: &mut View) -> Result<Option<Moment>> {
        if !self.is_at_site(view) {
            return Ok(None);
        }
        let thread = view.timeline.at().thread;
        let words = view.registers(thread)?.words;
        let id = words[usize::from(self.sites.frame)];
        let place = words[usize::from(self.sites.instruction)];
        let head = view.bytes(id, self.layout.owner as usize + 1)?;
        if head[self.layout.owner as usize] == OWNED_BY_C {
            // What leads from C into Python and back has a frame too, but no code of the program's.
            return Ok(None);
        }
        let code = self.code(view, word(&head, self.layout.code as usize))?;
        let last = word(&head, self.layout.instruction as usize);
        Ok(Some(Moment {
            thread,
            frame: Python::frame(&code, id, place),
            place,
            begins: code.begins(&self.layout, last, place),
            enters: code.enters(&self.layout, place),
            called: place == code.entered(),
        }))
    }

    fn stack(&mut self, view: &mut View, thread: ThreadId) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut id = match self.moment(view)?.filter(|moment| moment.thread == thread) {
            Some(moment) => {
                let id = moment.frame.id;
                frames.push(moment.frame);
                view.word(id + self.layout.previous)?
            }
            None => match self.state_of(view, thread)? {
                Some(state) => self.innermost(view, state)?,
                None => return Ok(frames),
            },
        };
        while id != 0 && frames.len() < MOST_FRAMES {
            let head = view.bytes(id, self.layout.owner as usize + 1)?;
            if head[self.layout.owner as usize] != OWNED_BY_C {
                let code = self.code(view, word(&head, self.layout.code as usize))?;
                let last = word(&head, self.layout.instruction as usize);
                frames.push(Python::frame(&code, id, last));
            }
            id = word(&head, self.layout.previous as usize);
        }
        Ok(frames)
    }

    fn lines(&mut self, view: &mut View, within: Within<'_>) -> Result<Vec<Sites>> {
        let (frame, place) = (self.sites.frame, self.sites.instruction);
        let (frame, place) = (Agent::new().register(frame), Agent::new().register(place));
        match within {
            Within::Any { thread, from: None } => {
                Ok(vec![self.all_sites(thread, None, Agent::new().constant(1))])
            }
            Within::Any {
                thread,
                from: Some(from),
            } => {
                // What is hidden isn't stopped at: a search backwards would begin anew at each call in it.
                let file = self.agent_code().word(self.layout.file);
                let begins = file.word(self.layout.text);
                let hidden = begins.equals(u64::from_le_bytes(*HIDDEN));
                let mut condition = frame.equals(from.frame.id).not().and(hidden.not());
                if !from.frame.hidden {
                    let code = self.code(view, from.frame.code)?;
                    let wide = Agent::within(&place, &code.ranges());
                    let wide = Some(wide).filter(Agent::fits);
                    condition = condition.or(wide.unwrap_or(Agent::new().constant(1)));
                }
                Ok(vec![self.all_sites(thread, None, condition)])
            }
            Within::Frames {
                thread,
                frames,
                any,
            } => {
                let register = self.sites.frame;
                let gate = |frames: &[Frame]| Gate {
                    register,
                    displacement: 0,
                    ranges: frames
                        .iter()
                        .map(|frame| (frame.id, frame.id + 1))
                        .collect(),
                };
                let near = if any { 0 } else { NEAR_FRAMES };
                let (near, far) = frames.split_at(frames.len().min(near));
                let far_gate = gate(far);
                let mut all = Vec::new();
                for one in near {
                    let gate = gate(std::slice::from_ref(one));
                    let code = self.code(view, one.code)?;
                    let lines = Agent::within(&place, &code.ranges());
                    let lines = Some(lines).filter(Agent::fits);
                    let lines = lines.unwrap_or(Agent::new().constant(1));
                    all.push(self.all_sites(Some(thread), Some(gate), lines));
                }
                if !far.is_empty() {
                    let always = Agent::new().constant(1);
                    all.push(self.all_sites(Some(thread), Some(far_gate), always));
                }
                Ok(all)
            }
        }
    }

    fn spots(&mut self, view: &mut View, spots: &[(Spot, Option<String>)]) -> Result<Vec<Sites>> {
        let mut plain = Vec::new();
        let mut all = Vec::new();
        for (spot, condition) in spots {
            let known = self.codes.values().filter(|code| spot.may_be_in(code));
            let known: Vec<Rc<Code>> = known.cloned().collect();
            for code in &known {
                let ranges = match spot {
                    Spot::Line { line, .. } => code.ranges_of(*line),
                    Spot::Function { .. } => code.first().into_iter().collect(),
                };
                let condition = match condition {
                    Some(text) if !ranges.is_empty() => self.condition(view, code, text)?,
                    _ => None,
                };
                match condition {
                    Some(condition) => {
                        let gate = self.gate(ranges);
                        all.push(self.all_sites(None, Some(gate), condition));
                    }
                    None => plain.extend(ranges),
                }
            }
            // Others are known when they are first entered.
            let code = self.agent_code();
            let is_new = match spot {
                Spot::Line { file, .. } => {
                    self.agent_text(code.word(self.layout.file), file, false)
                }
                Spot::Function { name } => {
                    let last = name.rsplit('.').next().unwrap_or(name);
                    self.agent_text(code.word(self.layout.name), last, true)
                }
            };
            let mut addresses: Vec<(u64, u64)> = known
                .iter()
                .map(|code| (code.address, code.address + 1))
                .collect();
            addresses.sort_unstable();
            let is_known = Agent::within(&self.agent_code(), &addresses);
            all.push(self.entries(is_new.and(is_known.not())));
        }
        if !plain.is_empty() {
            plain.sort_unstable();
            let gate = self.gate(plain);
            let always = Agent::new().constant(1);
            all.push(self.all_sites(None, Some(gate), always));
        }
        Ok(all)
    }

    fn is_spot(&mut self, view: &mut View, moment: &Moment, spot: &Spot) -> Result<bool> {
        let code = self.code(view, moment.frame.code)?;
        if !spot.may_be_in(&code) {
            return Ok(false);
        }
        self.expand(view, &code)?;
        Ok(moment.begins
            && match spot {
                Spot::Line { line, .. } => moment.frame.line == *line,
                Spot::Function { .. } => code.first().is_some_and(|first| first.0 == moment.place),
            })
    }

    fn raises(&mut self, view: &mut View, ends: bool) -> Result<Option<Stops>> {
        let addr = view.address("PyTraceBack_Here")?;
        // Of the outermost frame the caller is none, or the one by which C leads into Python.
        let frame = Agent::new().register(RDI).word(FRAME_OF_OBJECT);
        let caller = frame.word(self.layout.previous);
        let outermost = caller
            .clone()
            .equals(0)
            .or(caller.word(self.layout.previous).equals(0));
        Ok(Some(Stops {
            breaks: vec![Break {
                addr,
                thread: None,
                conditions: match ends {
                    true => vec![outermost.end()],
                    false => Vec::new(),
                },
            }],
            ..Stops::default()
        }))
    }

    fn raised(&mut self, view: &mut View) -> Result<Option<Raised>> {
        let thread = view.timeline.at().thread;
        let Some(state) = self.state_of(view, thread)? else {
            return Ok(None);
        };
        let ends = self.stack(view, thread)?.len() == 1;
        let exception = state + self.layout.exception;
        let what = view.word(exception)?;
        if what == 0 {
            return Ok(None);
        }
        let new = match self.minor < 12 {
            // Its type: an exception object may not have been made yet.
            true => view.word(exception + 16)? == 0,
            false => view.word(what + TRACEBACK)? == 0,
        };
        Ok(Some(Raised { new, ends, what }))
    }

    fn main(&mut self, _view: &mut View) -> Result<Vec<Sites>> {
        let name = self.agent_code().word(self.layout.name);
        let module = self.agent_text(name, "<module>", true);
        Ok(vec![self.entries(module)])
    }

    fn is_main(&mut self, view: &mut View, moment: &Moment) -> Result<bool> {
        let file = |name: &str| name.rsplit('/').next().map(String::from);
        match started(&view.arguments) {
            Started::Text if moment.frame.file != "<string>" => Ok(false),
            Started::Script(script) if file(&script) == file(&moment.frame.file) => Ok(true),
            Started::Script(script) if script.ends_with(".py") => Ok(false),
            _ if moment.frame.hidden => Ok(false),
            // The frame can't be asked yet.
            _ if moment.enters => Ok(true),
            _ => {
                let question = Question {
                    frame: 0,
                    anywhere: false,
                    what: crate::What::Values(&["__name__ == '__main__'"]),
                };
                let told = self.evaluate(view, &question)?;
                Ok(told
                    .values
                    .iter()
                    .any(|(_, value)| value.truth() == Some(true)))
            }
        }
    }

    fn ask(&mut self, view: &mut View, question: &Question<'_>) -> Result<Told> {
        self.evaluate(view, question)
    }

    fn threads(&mut self, view: &mut View) -> Result<Vec<ThreadId>> {
        let mut all = Vec::new();
        for thread in view.timeline.threads()? {
            if self.state_of(view, thread.number)?.is_some() {
                all.push(thread.number);
            }
        }
        Ok(all)
    }
}

/// What an interpreter was told to run.
enum Started {
    Script(String),
    /// `-c`
    Text,
    /// `-m`, or what is typed.
    Other,
}

fn started(arguments: &[String]) -> Started {
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-c" => return Started::Text,
            "-m" | "-" => return Started::Other,
            "-W" | "-X" | "--check-hash-based-pycs" => {
                words.next();
            }
            word if word.starts_with("--") => {}
            // Flags may be joined; the last of them may be one of the above.
            word if word.starts_with('-') && word.ends_with('c') => return Started::Text,
            word if word.starts_with('-') && word.ends_with('m') => return Started::Other,
            word if word.starts_with('-') => {}
            word => return Started::Script(word.into()),
        }
    }
    Started::Other
}

impl Spot {
    /// Whether a line of this code may be meant.
    fn may_be_in(&self, code: &Code) -> bool {
        match self {
            Spot::Line { file, .. } => ends_with(&code.file, file, '/'),
            Spot::Function { name } => ends_with(&code.qualified, name, '.'),
        }
    }
}

/// The same, or the end of it after a separator.
fn ends_with(whole: &str, end: &str, separator: char) -> bool {
    let before = whole.strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with(separator))
}

impl Code {
    /// The instruction with which the function's first line begins.
    fn first(&self) -> Option<(u64, u64)> {
        let ranges = self.ranges();
        let behind = self.entered();
        let at = ranges
            .iter()
            .flat_map(|&(from, to)| (from..to).step_by(2))
            .find(|&at| at > behind && self.line(at).is_some())?;
        Some((at, at + 2))
    }
}
