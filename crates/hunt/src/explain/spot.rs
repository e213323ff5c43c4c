//! A place in the program. In: a thread, where the timeline stands. Out: the function and line it is at, or the address.

use std::fmt;
use std::path::Path;

use clew_recording::event::ThreadId;
use clew_recording::reader::Recording;
use clew_symbols::{Frame, Line};
use clew_timeline::program::Program;
use clew_timeline::{Result, Thread, Timeline};
use serde::{Deserialize, Serialize};

use super::Who;

const LONGEST_LINE: usize = 160;
const LARGEST_SOURCE: u64 = 16 << 20;

/// Where a thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// In that function, where the thread goes on.
    pub address: String,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// What the line says, if the file is there.
    pub source: Option<String>,
    /// The thread is in this function, without a line, and was called from that one.
    pub inside: Option<String>,
    /// The file that the address is in.
    pub module: Option<String>,
}

impl Spot {
    /// The place in the function with the line, whatever it called.
    pub fn caller(&self) -> Spot {
        Spot {
            inside: None,
            ..self.clone()
        }
    }

    /// `a.c:12`, with the file's name alone.
    pub fn short_line(&self) -> Option<String> {
        let (file, line) = (self.file.as_deref()?, self.line?);
        let name = Path::new(file).file_name()?.to_string_lossy();
        Some(format!("{name}:{line}"))
    }
}

/// `a.c:12 in f`, `read, called from a.c:12 in f`, `0x401136 in f`.
impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(inside) = &self.inside {
            write!(f, "in {inside}, called from ")?;
        }
        match self.short_line() {
            Some(line) => write!(f, "{line}")?,
            None => write!(f, "{}", self.address)?,
        }
        match (&self.function, &self.module) {
            (Some(function), _) => write!(f, " in {function}"),
            (None, Some(module)) => write!(f, " in {module}"),
            (None, None) => Ok(()),
        }
    }
}

/// A timeline, and what is needed to say where it stands.
pub(super) struct View {
    pub timeline: Timeline,
    pub program: Program,
}

impl View {
    pub fn new(recording: &Recording, timeline: Timeline) -> View {
        View {
            timeline,
            program: Program::new(recording),
        }
    }

    /// The threads that there are, and how they are called.
    pub fn threads(&mut self) -> Result<Vec<(Thread, Who)>> {
        let threads = self.timeline.threads()?;
        let usual = threads.first().map(|thread| thread.name.clone());
        let who = |thread: Thread| {
            let own = !thread.name.is_empty() && Some(&thread.name) != usual.as_ref();
            let who = Who {
                number: thread.number,
                tid: thread.tid,
                name: own.then(|| thread.name.clone()),
            };
            (thread, who)
        };
        Ok(threads.into_iter().map(who).collect())
    }

    /// Where a thread is.
    pub fn spot(&mut self, thread: ThreadId) -> Result<Spot> {
        let stack = self.program.stack(&mut self.timeline, thread)?;
        let frames = &stack.frames;
        if frames.is_empty() {
            return Ok(Spot::default());
        }
        let n = self.telling(frames);
        let frame = &frames[n];
        // A function that was inlined is in the program's own text, line and all.
        let called = frames[..n].iter().rfind(|frame| !frame.inlined);
        let inside = match called {
            Some(called) => Some(self.usual_name(called)?),
            None => None,
        };
        let line = frame.line.as_ref().filter(|line| line.line != 0);
        Ok(Spot {
            address: format!("{:#x}", frame.pc),
            function: frame.function.clone(),
            file: line.map(|line| line.file.to_string()),
            line: line.map(|line| line.line),
            source: line.and_then(source_text),
            inside,
            module: frame.module.as_ref().map(|module| file_name(module.name())),
        })
    }
}

impl View {
    /// Where a thread is, and where that was called from: functions whose source is there, so many at most.
    pub fn stack(&mut self, thread: ThreadId, most: usize) -> Result<Vec<Spot>> {
        let mut spots = vec![self.spot(thread)?];
        let stack = self.program.stack(&mut self.timeline, thread)?;
        if stack.frames.is_empty() {
            return Ok(Vec::new());
        }
        let outer = &stack.frames[self.telling(&stack.frames) + 1..];
        for frame in outer.iter().filter(|frame| readable(frame)) {
            if spots.len() == most {
                break;
            }
            spots.push(Spot {
                address: format!("{:#x}", frame.pc),
                function: frame.function.clone(),
                file: frame.line.as_ref().map(|line| line.file.to_string()),
                line: frame.line.as_ref().map(|line| line.line),
                source: frame.line.as_ref().and_then(source_text),
                ..Spot::default()
            });
        }
        Ok(spots)
    }

    /// The frame that says most: the innermost whose source is there, which a library's seldom is; else the innermost of
    /// the program itself.
    fn telling(&self, frames: &[Frame]) -> usize {
        let with_line = |frame: &Frame| frame.line.as_ref().is_some_and(|line| line.line != 0);
        let own = |frame: &Frame| {
            let stub = frame.function.as_deref().unwrap_or("").ends_with("@plt");
            let module = frame.module.as_ref();
            !stub && module.is_some_and(|module| self.program.catalog().is_program(module))
        };
        let found = frames.iter().position(readable);
        let found = found.or_else(|| frames.iter().position(own));
        found
            .or_else(|| frames.iter().position(with_line))
            .unwrap_or(0)
    }

    /// The outermost function of the program in a thread, where it begins.
    pub fn outermost(&mut self, thread: ThreadId) -> Result<Option<Spot>> {
        let stack = self.program.stack(&mut self.timeline, thread)?;
        let Some(frame) = stack.frames.iter().rfind(|frame| readable(frame)) else {
            return Ok(None);
        };
        let start = frame.offset.map(|offset| frame.pc.wrapping_sub(offset));
        let line = start
            .zip(frame.module.as_ref())
            .and_then(|(start, module)| {
                let line = module.line_at(start.wrapping_sub(frame.bias));
                line.ok().flatten()
            });
        let line = line.or_else(|| frame.line.clone());
        Ok(Some(Spot {
            address: format!("{:#x}", start.unwrap_or(frame.pc)),
            function: frame.function.clone(),
            file: line.as_ref().map(|line| line.file.to_string()),
            line: line.as_ref().map(|line| line.line),
            source: line.as_ref().and_then(source_text),
            ..Spot::default()
        }))
    }

    /// A library's function by the name that programs use, of those that it has.
    fn usual_name(&mut self, frame: &Frame) -> Result<String> {
        let start = frame.offset.map(|offset| frame.pc.wrapping_sub(offset));
        if let Some(start) = start {
            let modules = self.program.modules(&mut self.timeline)?;
            if let Some((name, 0)) = self.program.catalog().symbol_at(&modules, start) {
                return Ok(unversioned(&name));
            }
        }
        let name = frame.function.as_deref().unwrap_or("??");
        Ok(unversioned(name))
    }
}

/// `read` for `read@@GLIBC_2.2.5` and for the stub `read@plt`.
fn unversioned(name: &str) -> String {
    let end = name.find('@').filter(|&at| at > 0);
    name[..end.unwrap_or(name.len())].into()
}

/// Whether the frame has a line whose file is there.
fn readable(frame: &Frame) -> bool {
    let line = frame.line.as_ref();
    line.is_some_and(|line| line.line != 0 && Path::new(&*line.file).is_file())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The text of a line of a source file, as it is on disk now.
fn source_text(line: &Line) -> Option<String> {
    let path = Path::new(&*line.file);
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_SOURCE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let number = (line.line as usize).checked_sub(1)?;
    let text = bytes.split(|byte| *byte == b'\n').nth(number)?;
    let text = String::from_utf8_lossy(text);
    Some(text.trim().chars().take(LONGEST_LINE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_well() {
        let with_line = Spot {
            address: "0x401136".into(),
            function: Some("clerk".into()),
            file: Some("/src/a.c".into()),
            line: Some(12),
            ..Spot::default()
        };
        assert_eq!(with_line.to_string(), "a.c:12 in clerk");
        let inside = Spot {
            inside: Some("pthread_mutex_lock".into()),
            ..with_line
        };
        assert_eq!(
            inside.to_string(),
            "in pthread_mutex_lock, called from a.c:12 in clerk"
        );
        let bare = Spot {
            address: "0x401136".into(),
            module: Some("stripped".into()),
            ..Spot::default()
        };
        assert_eq!(bare.to_string(), "0x401136 in stripped");
    }
}
