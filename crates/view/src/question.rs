//! What a page can ask. In: JSON. Out: a question, or what is wrong with it.

use clew_debugger::{Spot, Touch};
use clew_recording::event::{StreamId, ThreadId};
use serde::Deserialize;

/// Where somebody looks: a stream, a position in it, a thread there and a frame of its stack.
#[derive(Clone, Debug, Deserialize)]
pub struct Place {
    pub stream: StreamId,
    /// `start` and `end` are positions, too.
    pub at: String,
    /// None: who runs there.
    #[serde(default)]
    pub thread: Option<ThreadId>,
    #[serde(default)]
    pub frame: usize,
    /// Calls that were inlined into each other begin there: it stands before so many of them.
    #[serde(default)]
    pub hidden: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Forward,
    Backward,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stride {
    Over,
    Into,
    Out,
    Instruction,
}

/// A breakpoint as the page keeps it.
#[derive(Clone, Debug, Deserialize)]
pub struct Stop {
    /// FILE:LINE, a function, or an address.
    pub spot: String,
    #[serde(default)]
    pub condition: Option<String>,
}

/// Memory to stop at.
#[derive(Clone, Debug, Deserialize)]
pub struct Watched {
    /// As 0x12ab.
    pub address: String,
    pub size: u64,
    #[serde(default)]
    pub touch: Touched,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Touched {
    #[default]
    Change,
    Read,
    Access,
}

impl From<Touched> for Touch {
    fn from(touched: Touched) -> Touch {
        match touched {
            Touched::Change => Touch::Change,
            Touched::Read => Touch::Read,
            Touched::Access => Touch::Access,
        }
    }
}

/// A value's root: a variable in a scope of the frame, or an expression.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    /// Number of the scope, number of the variable in it.
    Variable(usize, usize),
    Expression(String),
}

/// An analysis that is a command of clew by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Analysis {
    Why,
    Alerts,
    Races,
    Order,
    Slice,
    Origin,
    Heap,
    Watch,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Question {
    /// What is the same wherever one stands.
    Recording,
    /// Threads over time.
    Overview,
    /// A part of that.
    Lanes {
        from: f64,
        to: f64,
        parts: usize,
        first: usize,
        last: usize,
    },
    /// The position at a place of the overview.
    Locate {
        lane: usize,
        x: f64,
    },
    /// Places in the overview of positions.
    Places {
        stream: StreamId,
        positions: Vec<String>,
    },
    /// Instructions that were executed from a position on.
    Executed {
        stream: StreamId,
        from: String,
        most: usize,
    },
    /// Where it stands, threads, a stack.
    Stand(Place),
    Scopes(Place),
    Children {
        #[serde(flatten)]
        place: Place,
        root: Root,
        path: Vec<u64>,
        #[serde(default)]
        from: u64,
        most: u64,
    },
    Evaluate {
        #[serde(flatten)]
        place: Place,
        expressions: Vec<String>,
    },
    Step {
        #[serde(flatten)]
        place: Place,
        stride: Stride,
        way: Way,
    },
    /// On to the next breakpoint, or back.
    Go {
        #[serde(flatten)]
        place: Place,
        way: Way,
        #[serde(default)]
        stops: Vec<Stop>,
        #[serde(default)]
        watches: Vec<Watched>,
    },
    /// To the next time that a place is come to.
    RunTo {
        #[serde(flatten)]
        place: Place,
        way: Way,
        spot: String,
    },
    LastChange {
        #[serde(flatten)]
        place: Place,
        expression: String,
    },
    Source {
        stream: StreamId,
        file: String,
    },
    Sources {
        stream: StreamId,
    },
    Coverage {
        stream: StreamId,
        file: String,
    },
    Code {
        #[serde(flatten)]
        place: Place,
        /// None: where the frame stands.
        #[serde(default)]
        address: Option<String>,
        before: i64,
        count: usize,
    },
    Memory {
        #[serde(flatten)]
        place: Place,
        /// A C expression, or 0x12ab.
        address: String,
        size: usize,
    },
    Output {
        stream: StreamId,
        most: usize,
    },
    /// What went into files and to services.
    Logged {
        stream: StreamId,
        most: usize,
    },
    History {
        #[serde(flatten)]
        place: Place,
        expression: String,
        most: u64,
    },
    Calls {
        stream: StreamId,
        function: String,
        most: u64,
    },
    Tree {
        #[serde(flatten)]
        place: Place,
        most: u64,
    },
    /// All times that a line was executed, with values there.
    Executions {
        stream: StreamId,
        spot: String,
        #[serde(default)]
        condition: Option<String>,
        #[serde(default)]
        expressions: Vec<String>,
        most: usize,
    },
    Analyse {
        #[serde(flatten)]
        place: Place,
        analysis: Analysis,
        #[serde(default)]
        expression: Option<String>,
        /// More words for the command, of those that it may be given.
        #[serde(default)]
        flags: Vec<String>,
    },
    /// Failing recordings against passing ones.
    Diagnose {
        fail: Vec<String>,
        pass: Vec<String>,
    },
    /// The recordings that there are.
    Recordings,
    /// Events whose text has this in it.
    Search {
        stream: StreamId,
        text: String,
        most: usize,
    },
    Notes,
    /// All notes anew; `version` is that of those that were changed.
    Note {
        version: u64,
        notes: Vec<serde_json::Value>,
    },
}

/// A place as people write it.
pub fn spot(text: &str) -> Result<Spot, String> {
    text.parse()
        .map_err(|error: clew_debugger::Error| error.to_string())
}

pub fn address(text: &str) -> Option<u64> {
    let digits = text.trim().strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}
