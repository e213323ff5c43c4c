//! Packs without the environment: what can go goes, what can't is named, and the result replays.

use std::fs;

use clew_recording::environment;
use clew_recording::reader::Recording;
use libtest_mimic::{Failed, Trial};

use super::diverged;
use super::place::{Place, code, require};

pub fn trials() -> Vec<Trial> {
    let title = "environment/stripped";
    vec![Trial::test(title, move || stripped(&Place::new(title)))]
}

fn stripped(place: &Place) -> Result<(), Failed> {
    diverged::record(place)?;
    let plain = place.clew(&["pack", "good", "-o", "plain.clew"]);
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    require(
        said.contains("memory") && said.contains("its environment: --strip-env"),
        || plain.printed(),
    )?;
    let packed = place.clew(&["pack", "good", "--strip-env", "-o", "packed.clew"]);
    let said = String::from_utf8_lossy(&packed.stderr).into_owned();
    require(code(&packed) == Some(0), || packed.printed())?;
    // How often it steps depends on it.
    require(
        said.contains("still in it: NEEDED;") || said.contains("NEEDED"),
        || said.clone(),
    )?;
    require(!said.contains("SECRET"), || said.clone())?;
    let unpacked = place.clew(&["unpack", "-n", "theirs", "packed.clew"]);
    require(code(&unpacked) == Some(0), || unpacked.printed())?;
    for (name, there) in [("good", true), ("theirs", false)] {
        let folder = place.folder(name);
        let variables = environment::of(&Recording::open(&folder)?)?;
        let value = |name: &str| {
            let found = variables.iter().find(|variable| variable.name == name);
            found.map(|variable| String::from_utf8_lossy(&variable.value).into_owned())
        };
        let secret = value("SECRET").unwrap_or_default();
        require(
            secret.starts_with("what-is") == there && !secret.is_empty(),
            || format!("{name}: {secret:?}"),
        )?;
        require(value("NEEDED").as_deref() == Some("aaab"), || {
            format!("{variables:?}")
        })?;
        let replay = place.clew(&["replay", "--verify", name]);
        require(code(&replay) == Some(0), || replay.printed())?;
    }
    // Nothing is left beside the recordings.
    let left = fs::read_dir(place.recordings())?.flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("strip"))
        .collect();
    require(left.is_empty(), || format!("{left:?}"))
}
