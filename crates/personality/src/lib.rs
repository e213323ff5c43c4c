//! Time travel in the language that a recorded interpreter runs. In: a recording of an interpreter, and what its
//! author asks. Out: lines, stacks and values of the interpreted program, forwards and backwards.
//!
//! A [`Personality`] describes one language: how its interpreter is recognised, where a line begins, which frames
//! there are, how an expression is evaluated in a copy that is thrown away. All else is written once, over that
//! trait: a [`Session`] goes from line to line, both ways, stops at breakpoints, and finds the line that breaks
//! an invariant.
//!
//! * `view`: the recorded process as a personality sees it: memory, registers, symbols
//! * `agent`: conditions that are asked in the midst of a run
//! * `session`, `going`: a place among lines; next, step, finish, until and their ways back
//! * `breakpoints`: where to stop
//! * `exceptions`: back to where one was raised
//! * `transition`: the line that makes a condition true, or false
//! * `prompt`, `commands`: what people type, and what they read
//! * `python`, `perl`: the languages

#![forbid(unsafe_code)]

mod agent;
mod breakpoints;
mod commands;
mod exceptions;
mod going;
mod perl;
pub mod prompt;
mod python;
mod session;
mod transition;
mod view;

pub use breakpoints::{Breakpoint, Spot};
pub use commands::{Answer, Commands, told};
pub use going::{Stop, Why};
pub use session::Session;
pub use transition::{Changed, Flip, Probe, Searched, Sought};
pub use view::View;

use clew_recording::event::ThreadId;
use clew_timeline::{Sites, Stops};

/// Why something couldn't be done, and what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is none, or none that is known.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

/// Languages that may be asked for.
pub const LANGUAGES: [&str; 2] = ["python", "perl"];

/// One interpreter's way to keep the program that it runs.
pub trait Personality {
    /// As it is asked for: one of [`LANGUAGES`].
    fn language(&self) -> &'static str;

    /// Of the interpreter, as people write it.
    fn version(&self) -> String;

    /// What the timeline stands at, in the thread that runs there; none if it is at no site.
    fn moment(&mut self, view: &mut View) -> Result<Option<Moment>>;

    /// The calls under way of a thread, innermost first; of the one that runs, as `moment` says.
    fn stack(&mut self, view: &mut View, thread: ThreadId) -> Result<Vec<Frame>>;

    /// Sites at which a line may begin, or a frame be entered: any of them for no frame, else those in these frames.
    /// May be more than that: [`Personality::moment`] tells.
    fn lines(&mut self, view: &mut View, within: Within<'_>) -> Result<Vec<Sites>>;

    /// Sites at which a line of one of these spots may begin and its condition hold. May be more than that.
    fn spots(&mut self, view: &mut View, spots: &[(Spot, Option<String>)]) -> Result<Vec<Sites>>;

    /// Whether a line of this spot begins at this moment. What is new of its file is learnt.
    fn is_spot(&mut self, view: &mut View, moment: &Moment, spot: &Spot) -> Result<bool>;

    /// What stops where an exception is raised, or only where one may leave the outermost call; nothing for languages without.
    /// May be more than that.
    fn raises(&mut self, view: &mut View, ends: bool) -> Result<Option<Stops>>;

    /// At such a stop: the exception that is on its way.
    fn raised(&mut self, view: &mut View) -> Result<Option<Raised>>;

    /// Sites one of which comes early in the main program; [`Personality::is_main`] tells.
    fn main(&mut self, view: &mut View) -> Result<Vec<Sites>>;

    /// Whether this moment is of the main program; where a frame is entered, whether it may be.
    fn is_main(&mut self, view: &mut View, moment: &Moment) -> Result<bool>;

    /// Evaluates in a copy of the program as it is here.
    fn ask(&mut self, view: &mut View, question: &Question<'_>) -> Result<Told>;

    /// Threads of the language, by the numbers of the recording.
    fn threads(&mut self, view: &mut View) -> Result<Vec<ThreadId>>;
}

/// Where lines are looked for.
#[derive(Clone, Copy, Debug)]
pub enum Within<'a> {
    /// Anywhere, by this thread (or any). It stands at this moment, if it stands at one.
    Any {
        thread: Option<ThreadId>,
        from: Option<&'a Moment>,
    },
    /// In these frames of this thread; at any place in them, or where a line may begin or the frame be entered.
    Frames {
        thread: ThreadId,
        frames: &'a [Frame],
        any: bool,
    },
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Tells it from all others that are there at the same time.
    pub id: u64,
    /// Its code, however the language knows it.
    pub code: u64,
    pub function: String,
    pub file: String,
    pub line: u32,
    /// Part of the language's own machinery.
    pub hidden: bool,
}

/// What happens at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub thread: ThreadId,
    pub frame: Frame,
    /// The instruction of the language's own.
    pub place: u64,
    /// A line begins here.
    pub begins: bool,
    /// The frame is entered here: called, or resumed.
    pub enters: bool,
    /// It is called here: it wasn't there before.
    pub called: bool,
}

/// An exception on its way through a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// It was raised here, and not in a function that was called.
    pub new: bool,
    /// No call is left that could handle it.
    pub ends: bool,
    /// The same for the same exception.
    pub what: u64,
}

/// What is asked in a frame of the running thread.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// How many frames out.
    pub frame: usize,
    /// A frame that doesn't know a name leaves the question to its caller, and the thread to others.
    pub anywhere: bool,
    pub what: What<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// Values of expressions; statements are executed.
    Values(&'a [&'a str]),
    /// The frame's variables, by name.
    Locals,
    /// The same, those that it was called with.
    Arguments,
    /// An exception that is on its way.
    Exception,
}

/// What came of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// One for each expression, or variable.
    pub values: Vec<(String, Value)>,
    /// What it printed.
    pub output: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// As the language writes it, and whether it counts as true.
    Is { text: String, truth: bool },
    /// Why there is none.
    Undefined(String),
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Value::Is { text, .. } => text.clone(),
            Value::Undefined(why) => format!("undefined here: {why}"),
        }
    }

    pub fn truth(&self) -> Option<bool> {
        match self {
            Value::Is { truth, .. } => Some(*truth),
            Value::Undefined(_) => None,
        }
    }
}

/// The personality for a program: the one that is asked for, or whichever knows it.
pub fn recognise(view: &mut View, language: Option<&str>) -> Result<Box<dyn Personality>> {
    let mut whys = Vec::new();
    if matches!(language, None | Some("python")) {
        match python::Python::recognise(view) {
            Err(Error::Unknown(why)) => whys.push(why),
            found => return Ok(Box::new(found?)),
        }
    }
    if matches!(language, None | Some("perl")) {
        match perl::Perl::recognise(view) {
            Err(Error::Unknown(why)) => whys.push(why),
            found => return Ok(Box::new(found?)),
        }
    }
    Err(Error::Unknown(whys.join("; ")))
}
