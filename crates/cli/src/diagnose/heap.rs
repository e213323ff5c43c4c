//! `clew heap`: who allocated and freed what.

use std::ffi::{CStr, OsStr};

use super::arguments::Heap;
use crate::answers::{NOTHING, done, failed, next, open};
use crate::{recordings, text};
use clew_debugger::{Debugger, Error};
use clew_diagnose::heap::Block;
use clew_diagnose::places::{Life, Told};
use clew_diagnose::scene::Scene;
use serde_json::{Value, json};

type Answer = Result<(Value, String, Option<String>), Error>;

pub fn heap(line: &Heap, envp: &[&CStr]) -> i32 {
    // One word alone is a recording if there is one of that name.
    let (recording, what) = match &line.words[..] {
        [] => (None, None),
        [word] => match recordings::find_exactly(envp, OsStr::new(word)) {
            Ok(_) => (Some(word), None),
            Err(_) if is_name(word) => (Some(word), None),
            Err(_) => (None, Some(word)),
        },
        [recording, what, ..] => (Some(recording), Some(what)),
    };
    let (mut debugger, name) = match open(&line.which, recording.map(String::as_str), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let answer = match what {
        Some(what) => of_address(&mut debugger, line, what),
        None if line.all => of_all(&mut debugger),
        None if line.leaks || line.at.is_some() => of_live(&mut debugger, line),
        None => of_whole(&mut debugger, line),
    };
    let (mut json, mut shown, position) = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(&error),
    };
    done(&mut debugger);
    if line.which.json {
        if let Some(json) = json.as_object_mut() {
            json.insert("recording".into(), json!(name));
        }
        text::print(&format!("{json:#}\n"));
    } else {
        if let Some(position) = &position {
            let style = text::Style::stdout();
            shown.push_str(&style.faint(&next(&name, &line.which, position)));
        }
        text::print(&shown);
    }
    match position {
        Some(_) => 0,
        None => NOTHING,
    }
}

/// Whether a word could be a recording's name, and no address or expression.
fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !word.starts_with("0x") && word.chars().all(plain) && word.parse::<u64>().is_err()
}

/// What lived at an address.
fn of_address(debugger: &mut Debugger, line: &Heap, what: &str) -> Answer {
    let at = line.at.as_deref().unwrap_or("end");
    let here = debugger.seek(at)?;
    let address = match address(what) {
        Some(address) => address,
        None => {
            let node = debugger.evaluate(here.thread, 0, what)?;
            // A pointer's value, or the place of anything else.
            let value = node.text.split_whitespace().next().and_then(address);
            let value = value.or(node.address);
            value.ok_or_else(|| {
                Error::Expression(format!("{what} is no address; ask for a pointer"))
            })?
        }
    };
    let mut scene = Scene::new(debugger)?;
    let lives = scene.lives(address, line.most as usize)?;
    let style = text::Style::stdout();
    let mut shown = match lives.is_empty() {
        true => format!("no allocator ever gave {address:#x}\n"),
        false => format!("{}\n", style.bold(&format!("{address:#x}"))),
    };
    for life in &lives {
        shown.push_str(&life_text(life, address));
    }
    let position = lives.last().map(|life| match &life.freed {
        Some(freed) => freed.position.clone(),
        None => life.allocated.position.clone(),
    });
    let json = json!({ "address": format!("{address:#x}"), "blocks": lives });
    Ok((json, shown, position))
}

fn address(text: &str) -> Option<u64> {
    let digits = text.trim().strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

fn life_text(life: &Life, address: u64) -> String {
    let offset = address.wrapping_sub(life.address);
    let place = match offset {
        0 => String::new(),
        offset => format!(", {offset} bytes into it"),
    };
    let size = text::counted(life.size, "byte");
    let mut all = format!("block {:#x}, {size}{place}\n", life.address);
    all.push_str(&told_text("allocated", &life.allocated));
    match &life.freed {
        Some(freed) if life.moved => all.push_str(&told_text("moved", freed)),
        Some(freed) => all.push_str(&told_text("freed", freed)),
        None => all.push_str("  never freed\n"),
    }
    all
}

fn told_text(what: &str, told: &Told) -> String {
    let style = text::Style::stdout();
    let mut all = format!(
        "  {} {what} by {}, thread {}\n",
        style.good(&told.position),
        text::plain(&told.function),
        told.thread
    );
    for frame in &told.stack {
        all.push_str(&style.faint(&format!("      {}\n", text::plain(frame))));
    }
    all
}

/// Blocks that are there at a position, or for ever.
fn of_live(debugger: &mut Debugger, line: &Heap) -> Answer {
    let blocks: Vec<Block>;
    let mut scene;
    match &line.at {
        Some(at) => {
            debugger.seek(at)?;
            scene = Scene::new(debugger)?;
            let position = scene.here()?;
            blocks = scene
                .live_at(position)?
                .into_iter()
                .map(|one| one.1)
                .collect();
        }
        None => {
            scene = Scene::new(debugger)?;
            let history = scene.history()?;
            blocks = history.live().map(|(_, block)| *block).collect();
        }
    }
    let bytes: u64 = blocks.iter().map(|block| block.size).sum();
    let (groups, count) = scene.groups(&blocks, line.most as usize)?;
    let style = text::Style::stdout();
    let what = match &line.at {
        Some(at) => format!("allocated at {at}"),
        None => "never freed".into(),
    };
    let number = text::counted(blocks.len() as u64, "block");
    let heading = format!("{what}: {number}, {}", text::counted(bytes, "byte"));
    let mut shown = format!("{}\n", style.bold(&heading));
    for group in &groups {
        let number = text::counted(group.blocks, "block");
        shown.push_str(&format!(
            "{number}, {}\n",
            text::counted(group.bytes, "byte")
        ));
        let first = match group.blocks {
            1 => "allocated",
            _ => "the first allocated",
        };
        shown.push_str(&told_text(first, &group.first.allocated));
    }
    if count > groups.len() {
        shown.push_str(&format!("({count} places in all; more with --most N)\n"));
    }
    let position = groups
        .first()
        .map(|group| group.first.allocated.position.clone());
    let json = json!({ "blocks": blocks.len(), "bytes": bytes, "places": groups });
    Ok((json, shown, position))
}

/// The whole in figures, and what was wrong.
fn of_whole(debugger: &mut Debugger, line: &Heap) -> Answer {
    let mut scene = Scene::new(debugger)?;
    let history = scene.history()?;
    let figures = history.figures();
    let wrong = scene.wrong_frees(line.most as usize)?;
    let style = text::Style::stdout();
    let bytes = |n: u64| text::counted(n, "byte");
    let mut shown = format!(
        "{} allocated ({} in all), {} freed\n{} at most at once\n{} never freed ({}): clew heap --leaks\n",
        text::counted(figures.allocations, "block"),
        bytes(figures.bytes),
        text::count(figures.frees),
        bytes(figures.peak_bytes),
        text::counted(figures.live, "block"),
        bytes(figures.live_bytes),
    );
    if !figures.complete {
        shown.push_str("(the first calls only: there are too many)\n");
    }
    for one in &wrong {
        let what = format!("wrong free of {:#x}: {}", one.address, one.what);
        shown.push_str(&format!("{}\n", style.bad(&what)));
        shown.push_str(&told_text("freed", &one.free));
        if let Some(block) = &one.block {
            shown.push_str(&life_text(block, one.address));
        }
    }
    let position = match wrong.first() {
        Some(one) => Some(one.free.position.clone()),
        None => match history.blocks.first() {
            Some(block) => Some(scene.position(block.allocated.call)?.to_string()),
            None => None,
        },
    };
    let json = json!({ "heap": figures, "wrong": wrong });
    Ok((json, shown, position))
}

/// Every block, in order.
fn of_all(debugger: &mut Debugger) -> Answer {
    let mut scene = Scene::new(debugger)?;
    let history = scene.history()?;
    let rows = history.blocks.iter().enumerate().map(|(n, block)| {
        json!({
            "block": n,
            "address": format!("{:#x}", block.address),
            "size": block.size,
            "by": block.allocated.function,
            "thread": block.allocated.thread,
            "at": [block.allocated.call.event, block.allocated.call.ticks],
            "from": block.from,
            "freed_by": block.freed.map(|moment| moment.function),
            "freed_at": block.freed.map(|moment| [moment.call.event, moment.call.ticks]),
        })
    });
    let rows: Vec<Value> = rows.collect();
    let mut shown = String::new();
    for (n, block) in history.blocks.iter().enumerate() {
        let freed = match &block.freed {
            Some(moment) => format!("freed by {}", moment.function),
            None => "never freed".into(),
        };
        shown.push_str(&format!(
            "{n}: {:#x}, {}, by {} after event {}, {freed}\n",
            block.address,
            text::counted(block.size, "byte"),
            block.allocated.function,
            block.allocated.call.event,
        ));
    }
    let position = match history.blocks.first() {
        Some(block) => Some(scene.position(block.allocated.call)?.to_string()),
        None => None,
    };
    Ok((
        json!({ "blocks": rows, "complete": history.complete }),
        shown,
        position,
    ))
}
