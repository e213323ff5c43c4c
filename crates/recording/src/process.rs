//! Which process of a recording somebody means: words in, a number out.
//!
//! People know processes by pid. Several may have the same: in nested pid namespaces, or one after the
//! other. Then the process's own number is added, as in `1#4`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::event::{ProcessId, StreamId};
use crate::reader::StreamInfo;

/// A process as a person names it: `4711`, or `4711#2` where that is the pid of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessName {
    pub pid: i32,
    pub process: Option<ProcessId>,
}

impl FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessName, String> {
        let (pid, process) = match text.split_once('#') {
            Some((pid, process)) => (pid, Some(process)),
            None => (text, None),
        };
        let wrong = |_| format!("{text:?} is no process: a pid, or a pid and a number as in 1#4");
        let pid: NonZeroU32 = pid.parse().map_err(wrong)?;
        let process: Option<NonZeroU32> = process.map(str::parse).transpose().map_err(wrong)?;
        Ok(ProcessName {
            pid: pid.get() as i32,
            process: process.map(NonZeroU32::get),
        })
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "{}#{process}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

/// The process that is meant; without a name the first, which is the recorded program. The error says why
/// there is none.
pub fn find(streams: &[StreamInfo], name: Option<ProcessName>) -> Result<ProcessId, String> {
    let Some(name) = name else {
        return Ok(1);
    };
    let mut found: Vec<ProcessId> = streams
        .iter()
        .filter(|info| info.start.pid == name.pid)
        .map(|info| info.process)
        .filter(|&process| name.process.is_none_or(|wanted| wanted == process))
        .collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [one] => Ok(one),
        [] => Err(format!("there is no process {name} in this recording")),
        [..] => {
            let all: Vec<String> = found
                .iter()
                .map(|process| format!("{}#{process}", name.pid))
                .collect();
            Err(format!(
                "{} is the pid of several processes: {}",
                name.pid,
                all.join(", ")
            ))
        }
    }
}

/// The stream that is meant: of this process its last program, or the one with that number, from 1.
pub fn program(
    streams: &[StreamInfo],
    name: Option<ProcessName>,
    number: Option<usize>,
) -> Result<StreamId, String> {
    let process = find(streams, name)?;
    let programs: Vec<StreamId> = streams
        .iter()
        .filter(|info| info.process == process)
        .map(|info| info.id)
        .collect();
    let Some(&last) = programs.last() else {
        return Err("there is no process in this recording".into());
    };
    let Some(number) = number else {
        return Ok(last);
    };
    let found = number.checked_sub(1).and_then(|n| programs.get(n));
    found.copied().ok_or_else(|| {
        let many = match programs.len() {
            1 => "1 program".into(),
            n => format!("{n} programs"),
        };
        match name {
            Some(name) => format!("process {name} has run {many} only"),
            None => format!("the recorded process has run {many} only"),
        }
    })
}

/// How to name a process so that it is found again.
pub fn name(streams: &[StreamInfo], process: ProcessId) -> Option<ProcessName> {
    let pid = streams
        .iter()
        .find(|info| info.process == process)?
        .start
        .pid;
    let shared = streams
        .iter()
        .any(|info| info.start.pid == pid && info.process != process);
    Some(ProcessName {
        pid,
        process: shared.then_some(process),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Origin, Start};

    fn stream(id: u32, process: ProcessId, pid: i32) -> StreamInfo {
        StreamInfo {
            id,
            process,
            raw: 0,
            end: None,
            start: Start {
                origin: Origin::Exec { before: 0 },
                pid,
                parent_pid: 1,
                tid: pid,
                exe: Vec::new(),
                argv: Vec::new(),
                time: 0,
            },
        }
    }

    #[test]
    fn a_pid_is_enough_where_it_is_one_process_only() {
        let streams = [stream(1, 1, 7), stream(2, 2, 9), stream(3, 3, 7)];
        let meant = |text: &str| find(&streams, Some(text.parse().unwrap()));
        assert_eq!(find(&streams, None), Ok(1));
        assert_eq!(meant("9"), Ok(2));
        assert_eq!(meant("7#3"), Ok(3));
        assert!(meant("7").unwrap_err().contains("7#1, 7#3"));
        assert!(meant("8").is_err() && meant("9#1").is_err());
        for process in 1..=3 {
            let name = name(&streams, process).unwrap().to_string();
            assert_eq!(meant(&name), Ok(process), "{name}");
        }
        for wrong in ["x", "7#", "0", "-7", "7#0", "#2"] {
            assert!(wrong.parse::<ProcessName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn which_program() {
        let streams = [stream(1, 1, 10), stream(2, 2, 11), stream(3, 1, 10)];
        let choose = |pid: Option<i32>, number| {
            let name = pid.map(|pid| ProcessName { pid, process: None });
            program(&streams, name, number)
        };
        assert_eq!(choose(None, None), Ok(3));
        assert_eq!(choose(None, Some(1)), Ok(1));
        assert_eq!(choose(Some(11), None), Ok(2));
        assert!(choose(Some(12), None).is_err());
        assert!(choose(Some(11), Some(0)).is_err());
        let why = choose(Some(11), Some(2)).unwrap_err();
        assert_eq!(why, "process 11 has run 1 program only");
    }
}
