//! `clew hunt-profile`: which memory the threads of a recorded run share, and who touches it, for a hunt. In: a recording's folder.
//! Out: a [`Profile`] as text.

use std::ffi::CStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::arguments::Engine;
use crate::replay::CANT_REPLAY;
use crate::run;
use crate::{text, variables};
use clew_hunt::idiom::profile::{self, Access, Profile};
use clew_hunt::turns;
use clew_recording::reader::Recording;
use clew_timeline::{Settings, Timeline};
use clew_timeline::{Touch, TouchLimits};

/// More than this says little about a program that isn't known from the first ones.
const LIMITS: TouchLimits = TouchLimits {
    accesses: 200_000,
    time: Duration::from_secs(15),
};

#[derive(Debug, Args)]
pub struct Profiled {
    pub folder: PathBuf,
}

pub fn profile(line: &Profiled, envp: &[&CStr]) -> i32 {
    match profiled(line, envp) {
        Ok(profile) => {
            text::print(&profile.to_string());
            0
        }
        Err(why) => {
            text::failed(&why);
            CANT_REPLAY
        }
    }
}

fn profiled(line: &Profiled, envp: &[&CStr]) -> Result<Profile, String> {
    fn told(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let recording = Recording::open(&line.folder).map_err(told)?;
    let (stream, lives) = profile::busiest(&recording).map_err(told)?;
    let variable = |name: &str| variables::get(envp, name);
    let options = run::options(&Engine::default(), &variable)?;
    let mut settings = Settings::new(options);
    // The hunt has jobs of its own.
    settings.jobs = Some(1);
    let mut timeline = Timeline::open(&recording, stream, settings).map_err(told)?;
    // Before anything has run there is the program and what loads its libraries.
    let start = recording.streams().iter().find(|info| info.id == stream);
    let exe = start.map(|info| String::from_utf8_lossy(&info.start.exe).into_owned());
    let mappings = timeline.mappings().map_err(told)?;
    let own = mappings
        .iter()
        .filter(|mapping| Some(&mapping.name) == exe.as_ref())
        .map(|mapping| (mapping.start, mapping.end))
        .collect();
    let touches = timeline.touches(&LIMITS).map_err(told)?;
    Ok(Profile {
        process: turns::of(&line.folder).map_err(told)?.process,
        lives,
        own,
        accesses: touches.touches.iter().map(access).collect(),
        length: None,
    })
}

fn access(touch: &Touch) -> Access {
    Access {
        thread: touch.thread,
        point: touch.point,
        pc: touch.pc,
        addr: touch.addr,
        len: touch.len,
        write: touch.write,
        locked: touch.locked,
        event: touch.position.event,
    }
}
