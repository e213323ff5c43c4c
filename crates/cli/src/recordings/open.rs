//! Opens a recording to replay it. In: the word that names it; out: what is in it, or why it can't be replayed here.

use std::ffi::{CStr, OsStr};
use std::fmt::Display;

use crate::replay::CANT_REPLAY;
use crate::{machine, text, weave};
use clew_recording::meta::Meta;
use clew_recording::reader::Recording;

/// A recording that can be replayed here.
pub struct Opened {
    pub name: String,
    pub meta: Meta,
    pub recording: Recording,
}

/// Why there is none, as a user reads it.
pub enum NotOpened {
    /// It isn't there, or can't be read.
    Unreadable(String),
    /// It is from a machine that is too different, or made by another clew.
    Unfit(String),
}

impl NotOpened {
    fn unreadable(error: &dyn Display) -> NotOpened {
        NotOpened::Unreadable(error.to_string())
    }

    /// Says it; the exit status for it.
    pub fn failed(&self) -> i32 {
        match self {
            NotOpened::Unreadable(why) => text::failed(why),
            NotOpened::Unfit(why) => {
                text::failed(why);
                CANT_REPLAY
            }
        }
    }
}

/// Opens what `word` names; the latest one without a word.
pub fn open(envp: &[&CStr], word: Option<&OsStr>) -> Result<Opened, NotOpened> {
    let mut folder = super::find(envp, word).map_err(|error| NotOpened::unreadable(&error))?;
    let name = super::name(&folder);
    let mut meta = Meta::read(&folder).map_err(|error| NotOpened::unreadable(&error))?;
    if weave::is_woven(&meta) {
        folder = weave::exact(&folder, envp).map_err(NotOpened::Unfit)?;
        meta = Meta::read(&folder).map_err(|error| NotOpened::unreadable(&error))?;
    }
    meta.fits(&machine::here(false))
        .map_err(|why| NotOpened::Unfit(format!("{name} can't be replayed: {why}")))?;
    let recording = Recording::open(&folder).map_err(|error| NotOpened::unreadable(&error))?;
    Ok(Opened {
        name,
        meta,
        recording,
    })
}
