//! A value's way as sentences. In: a trail. Out: the few steps of it that matter, each with its line; the last one names
//! the cause.

use clew_calls::names;
use clew_recording::event::{Call, End, Event};
use clew_slice::EventKind;
use clew_slice::origin::{Source, Step};
use clew_timeline::Position;
use iced_x86::Register;

use super::Asking;
use super::trail::{Trail, TrailEnd, general};
use crate::Result;
use crate::scene::Site;

/// Steps between the symptom and the cause that are told.
const MOST_STEPS: usize = 3;
/// Lines are looked up for so many steps of a trail.
const MOST_LOOKED: usize = 400;

impl Asking<'_> {
    /// Lines of the program that a value passed, newest first, without repetitions: the step and its line.
    pub fn lines_of(&mut self, trail: &Trail) -> Vec<(usize, Site)> {
        let mut lines: Vec<(usize, Site)> = Vec::new();
        for (n, step) in trail.steps.iter().enumerate().take(MOST_LOOKED) {
            let own = self
                .scene
                .own_line(step.ins.ip(), step.position, step.thread);
            let Some(site) = own else {
                continue;
            };
            match lines.last_mut() {
                Some((_, last)) if last.same_line(&site) => {}
                _ => lines.push((n, site)),
            }
        }
        lines
    }

    /// Tells where a value came from, as far back as it goes: the cause is at the end.
    pub fn tell_source(&mut self, trail: &Trail, symptom: &Site, what: &str) -> Result<()> {
        if let Some((step, from, to)) = self.narrowed(trail)? {
            let site = self.site_of(&step)?;
            let text = format!("{what} was cut off from {from} to {to}");
            self.add(format!("{text}{}.", quoted(&site)), Some(site), false, true);
            return Ok(());
        }
        let last = trail.steps.last().cloned();
        // Between the symptom and the end: stores, and lines in other functions.
        let lines = self.lines_of(trail);
        let ending = last.as_ref().map(|step| self.site_of(step)).transpose()?;
        let between = lines.iter().filter(|(n, site)| {
            let ends = !matches!(trail.end, TrailEnd::Event { .. });
            let told = ends && ending.as_ref().is_some_and(|end| end.same_line(site));
            let step = &trail.steps[*n];
            !told && !site.same_line(symptom) && (!step.written.is_empty() || !step.moved)
        });
        let between: Vec<(usize, Site)> = between.take(MOST_STEPS).cloned().collect();
        for (n, site) in &between {
            let step = trail.steps[*n].clone();
            let other = self.other_thread(symptom, step.thread);
            let verb = match step.moved {
                true => "was stored",
                false => "was computed",
            };
            let inferred = *n >= trail.certain;
            self.add(
                format!("{what} {verb}{other}{}.", quoted(site)),
                Some(site.clone()),
                inferred,
                false,
            );
        }
        let inferred = trail.choices > 0;
        match &trail.end {
            TrailEnd::Constant => {
                if let (Some(step), Some(site)) = (last, ending) {
                    self.constant(&step, site, symptom, what, inferred)?;
                }
            }
            TrailEnd::Computed | TrailEnd::Cut => {
                if let (Some(step), Some(site)) = (last, ending) {
                    let other = self.other_thread(symptom, step.thread);
                    let values = self.values_of(&step)?;
                    self.add(
                        format!("{what} was computed{other}{values}{}.", quoted(&site)),
                        Some(site),
                        inferred,
                        true,
                    );
                }
            }
            TrailEnd::Beginning => self.never_written(trail, symptom, what, inferred)?,
            TrailEnd::Event {
                position,
                thread,
                kind,
            } => {
                let site = self.scene.site_at(*position, *thread)?;
                let how = event_text(kind);
                self.add(
                    format!("{what} came in by {how}{}.", quoted(&site)),
                    Some(site),
                    inferred,
                    true,
                );
            }
        }
        Ok(())
    }

    /// The last computation of the program itself that a value went through is the cause; without one, its source.
    pub fn tell_last_change(&mut self, trail: &Trail, symptom: &Site, what: &str) -> Result<()> {
        if let Some((step, from, to)) = self.narrowed(trail)? {
            let site = self.site_of(&step)?;
            let text = format!("{what} was cut off from {from} to {to}");
            self.add(format!("{text}{}.", quoted(&site)), Some(site), false, true);
            return Ok(());
        }
        let computing: Vec<Step> = trail.computing().take(MOST_LOOKED).cloned().collect();
        for step in computing {
            if !self.is_own(&step) {
                continue;
            }
            let site = self.site_of(&step)?;
            if site.same_line(symptom) {
                continue;
            }
            let constant = matches!(trail.end, TrailEnd::Constant)
                && trail.steps.last().map(|last| last.position) == Some(step.position);
            if constant {
                break;
            }
            let other = self.other_thread(symptom, step.thread);
            let values = self.values_of(&step)?;
            self.add(
                format!("{what} was computed last{other}{values}{}.", quoted(&site)),
                Some(site),
                false,
                true,
            );
            return Ok(());
        }
        self.tell_source(trail, symptom, what)
    }

    /// A constant of the program, or of a library that says so that a call failed.
    fn constant(
        &mut self,
        step: &Step,
        site: Site,
        symptom: &Site,
        what: &str,
        inferred: bool,
    ) -> Result<()> {
        let other = self.other_thread(symptom, step.thread);
        if !self.is_own(step)
            && let Some((call, value, position)) = self.failed_before(step)?
        {
            let error = names::errno(-value).unwrap_or("an error").to_string();
            let told = self.call_text(&call, position)?;
            let site = self.scene.site_at(position, step.thread)?;
            let closed = self.closed_before(&call, -value, position)?;
            let cause = closed.is_none();
            self.add(
                format!("{told} had failed: {error}{}.", quoted(&site)),
                Some(site),
                false,
                cause,
            );
            if let Some((closed, thread)) = closed {
                let site = self.scene.site_at(closed, thread)?;
                let text = format!(
                    "Descriptor {} had been closed before{}.",
                    call.args[0] as i32,
                    quoted(&site)
                );
                self.add(text, Some(site), false, true);
            }
            return Ok(());
        }
        let inside = match &site.inside {
            Some(inside) => format!(" (in {inside})"),
            None => String::new(),
        };
        self.add(
            format!("{what} was set{inside}{other}{}.", quoted(&site)),
            Some(site),
            inferred,
            true,
        );
        self.meanwhile(step.position, step.thread, symptom)
    }

    /// Where the thread that failed was when another one did that.
    fn meanwhile(&mut self, position: Position, thread: u32, symptom: &Site) -> Result<()> {
        if thread == symptom.thread {
            return Ok(());
        }
        self.scene.go(position)?;
        let Ok(site) = self.scene.site(symptom.thread) else {
            return Ok(());
        };
        let inside = match &site.inside {
            Some(inside) => format!(" (in {inside})"),
            None => String::new(),
        };
        self.say(
            format!(
                "Thread {} was there then{inside}{}.",
                symptom.thread,
                quoted(&site)
            ),
            Some(site),
        );
        Ok(())
    }

    /// The last system call of a thread before a step, if it failed and not much lies between.
    pub fn failed_before(&mut self, step: &Step) -> Result<Option<(Call, i64, Position)>> {
        let mut last: Option<(Call, i64, u64)> = None;
        let mut waiting = std::collections::HashMap::new();
        self.scene.debugger.events(|event, number, thread| {
            if number > step.position.event {
                return false;
            }
            if thread == step.thread {
                match event {
                    Event::Call(call) => match call.end {
                        End::Returned(value) => last = Some((*call, value, number)),
                        End::Waits => {
                            waiting.insert(thread, *call);
                        }
                        _ => last = None,
                    },
                    Event::Resumed {
                        result: Some(value),
                        ..
                    } => {
                        if let Some(call) = waiting.remove(&thread) {
                            last = Some((call, *value, number));
                        }
                    }
                    _ => {}
                }
            }
            true
        })?;
        Ok(last
            .filter(|(_, value, _)| (-4095..0).contains(value))
            .map(|(call, value, number)| (call, value, Position::after(number))))
    }

    /// A call with what its first argument points to, where that is text.
    fn call_text(&mut self, call: &Call, position: Position) -> Result<String> {
        self.scene.go(position)?;
        let name = names::call(call.nr);
        let path = match name.as_str() {
            "open" | "stat" | "access" | "execve" | "unlink" | "mkdir" | "chdir" | "readlink"
            | "rename" => Some(call.args[0]),
            "openat" | "newfstatat" | "faccessat" | "faccessat2" | "unlinkat" | "mkdirat"
            | "readlinkat" | "statx" => Some(call.args[1]),
            _ => None,
        };
        Ok(match path {
            Some(path) => {
                let text = self.scene.text(path)?.unwrap_or_default();
                format!("{name}({text:?})")
            }
            None => {
                let first = call.args[0];
                match first < 1 << 20 {
                    true => format!("{name}({first}, …)"),
                    false => format!("{name}(…)"),
                }
            }
        })
    }

    /// Who closed the descriptor that a call didn't know.
    fn closed_before(
        &mut self,
        call: &Call,
        errno: i64,
        position: Position,
    ) -> Result<Option<(Position, u32)>> {
        const EBADF: i64 = 9;
        const CLOSE: u32 = 3;
        if errno != EBADF {
            return Ok(None);
        }
        let mut found = None;
        self.scene.debugger.events(|event, number, thread| {
            if number >= position.event {
                return false;
            }
            if let Event::Call(other) = event
                && other.nr == CLOSE
                && other.args[0] as i32 == call.args[0] as i32
                && other.end == End::Returned(0)
            {
                found = Some((Position::after(number), thread));
            }
            true
        })?;
        Ok(found)
    }

    /// It was there before the program ran: nobody ever wrote it.
    fn never_written(
        &mut self,
        trail: &Trail,
        symptom: &Site,
        what: &str,
        inferred: bool,
    ) -> Result<()> {
        let read = trail.steps.iter().rev().find_map(|step| {
            step.from.iter().find_map(|source| match source {
                Source::Memory { addr, .. } => Some((step.clone(), *addr)),
                _ => None,
            })
        });
        let Some((step, address)) = read else {
            self.looked(format!(
                "where {what} came from: it was there from the beginning"
            ));
            return Ok(());
        };
        self.scene.go(step.position)?;
        const PROT_WRITE: u32 = 2;
        let mappings = self.scene.mappings()?;
        let found = super::fault::mapping(&mappings, address);
        if found.is_some_and(|found| found.prot & PROT_WRITE == 0) {
            // The program's own, as much as if it were in an instruction.
            let site = self.site_of(&step)?;
            let other = self.other_thread(symptom, step.thread);
            self.add(
                format!("{what} was set{other}{}.", quoted(&site)),
                Some(site),
                inferred,
                true,
            );
            return self.meanwhile(step.position, step.thread, symptom);
        }
        let name = self.scene.variable(address)?;
        let declared = match &name {
            Some(name) => {
                let whole = name.split('+').next().unwrap_or(name).to_string();
                self.scene.declared(&whole)?
            }
            None => None,
        };
        match (name, declared) {
            (Some(name), Some((file, line))) => {
                let site = Site {
                    position: step.position.to_string(),
                    thread: step.thread,
                    source: self.scene.source(&file, line),
                    file: Some(file),
                    line: Some(line),
                    ..Site::default()
                };
                let text = format!(
                    "{what} was read from `{name}`, which nobody had written: it is as the program began{}.",
                    quoted(&site)
                );
                self.add(text, Some(site), false, true);
            }
            (name, _) => {
                let site = self.site_of(&step)?;
                let from = name.map_or(format!("{address:#x}"), |name| format!("`{name}`"));
                let text = format!(
                    "{what} was read from {from}, which nobody had written{}.",
                    quoted(&site)
                );
                self.add(text, Some(site), false, true);
            }
        }
        Ok(())
    }

    /// A store of fewer bytes than the value had: the step, the value before and after.
    fn narrowed(&mut self, trail: &Trail) -> Result<Option<(Step, u64, u64)>> {
        for step in trail.steps.iter().take(40) {
            let (true, Some(&(_, len))) = (step.moved, step.written.first()) else {
                continue;
            };
            let [Source::Register(register)] = step.from[..] else {
                continue;
            };
            if len >= 4 || !register.is_gpr() || register.size() as u64 != len {
                continue;
            }
            if !self.is_own(step) {
                continue;
            }
            self.scene.go(step.position)?;
            let registers = self.scene.registers(step.thread)?;
            // As much as an int, which is what values are computed in.
            let whole = general(&registers, register.full_register32()).unwrap_or(0);
            let part = general(&registers, register).unwrap_or(0);
            let negative = (whole as i32) < 0;
            if whole != part && !negative {
                return Ok(Some((step.clone(), whole, part)));
            }
        }
        Ok(None)
    }

    /// `, by thread 2`, if that isn't the one in which it failed.
    pub fn other_thread(&self, symptom: &Site, thread: u32) -> String {
        match thread == symptom.thread {
            true => String::new(),
            false => format!(", by thread {thread}"),
        }
    }

    /// What a computation was made of.
    fn values_of(&mut self, step: &Step) -> Result<String> {
        self.scene.go(step.position)?;
        let registers = self.scene.registers(step.thread)?;
        let mut values = Vec::new();
        for source in &step.from {
            let value = match source {
                Source::Register(register) if register.full_register() != Register::RSP => {
                    general(&registers, *register)
                }
                Source::Memory { addr, len } => self.scene.number(*addr, *len)?,
                _ => None,
            };
            values.extend(value.map(number_text));
        }
        Ok(match values.is_empty() {
            true => String::new(),
            false => format!(" from {}", values.join(" and ")),
        })
    }
}

/// Small numbers as people count, others as addresses are written.
pub fn number_text(number: u64) -> String {
    let signed = number as i64;
    let int = number as u32 as i32;
    match number {
        0..100_000 => number.to_string(),
        _ if (-100_000..0).contains(&signed) => signed.to_string(),
        _ if number <= u64::from(u32::MAX) && (-100_000..0).contains(&int) => int.to_string(),
        _ => format!("{number:#x}"),
    }
}

/// What an event is called.
fn event_text(kind: &EventKind) -> String {
    match kind {
        EventKind::Call(call) => format!("{}()", names::call(call.nr)),
        EventKind::Signal { signo } => format!("the frame of {}", names::signal(*signo)),
        other => other.words().into(),
    }
}

/// `: \`x = y;\``, if the line is known.
pub fn quoted(site: &Site) -> String {
    let source = site.source.as_deref().map(|text| {
        let text = text.split(" // ").next().unwrap_or(text).trim();
        text.to_string()
    });
    match source {
        Some(source) if !source.is_empty() => format!(": `{source}`"),
        _ => String::new(),
    }
}
