//! Output that is wrong. In: what should have been printed. Out: the first difference, who printed it, and where the values
//! in it came from.

use clew_slice::origin::Value;
use clew_timeline::Position;

use super::ends::named;
use super::tell::quoted;
use super::trail::Choice;
use super::{Asking, Kind};
use crate::Result;

/// Variables of the line that printed that are looked at.
const MOST_VALUES: usize = 3;

impl Asking<'_> {
    pub fn output(&mut self, expected: &[u8]) -> Result<()> {
        let written = self.scene.debugger.output(100_000)?;
        let printed: Vec<u8> = written
            .iter()
            .filter(|one| one.to == 1)
            .flat_map(|one| one.bytes.iter().copied())
            .collect();
        let same = printed.iter().zip(expected).take_while(|(a, b)| a == b);
        let at = same.count();
        if at == printed.len() && at == expected.len() {
            self.answer.kind = Kind::None;
            self.say("The output is what was expected.".into(), None);
            return Ok(());
        }
        self.answer.kind = Kind::Output;
        let line = 1 + printed[..at].iter().filter(|byte| **byte == b'\n').count();
        let line_of = |bytes: &[u8]| {
            let start = bytes[..at.min(bytes.len())]
                .iter()
                .rposition(|byte| *byte == b'\n');
            let start = start.map_or(0, |start| start + 1);
            let rest = &bytes[start..];
            let end = rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
            String::from_utf8_lossy(&rest[..end.min(80)]).into_owned()
        };
        let (was, should) = (line_of(&printed), line_of(expected));
        self.say(
            format!("Line {line} of the output is {was:?} and should be {should:?}."),
            None,
        );
        if at >= printed.len() {
            self.looked("who printed it: the output ends too early");
            return Ok(());
        }
        let mut before = 0;
        let stdout = written.iter().filter(|one| one.to == 1);
        let mut stdout = stdout.filter_map(|one| {
            let start = before;
            before += one.bytes.len();
            (start..before).contains(&at).then_some((one, at - start))
        });
        let Some((one, offset)) = stdout.next() else {
            return Ok(());
        };
        let Ok(position) = one.position.parse::<Position>() else {
            return Ok(());
        };
        let Some(address) = self.written_from(position, offset as u64)? else {
            self.looked("the memory that was written: only plain writes are followed");
            return Ok(());
        };
        self.scene.go(position)?;
        let value = Value::Memory {
            addr: address,
            len: 1,
        };
        let trail = self.trail(&value, Choice::Stop)?;
        // The newest step under a line of the program is what formatted it.
        let Some(step) = trail.steps.first().cloned() else {
            self.looked("who wrote the byte into the buffer: nobody did");
            return Ok(());
        };
        self.scene.go(step.position)?;
        let stack = self.scene.stack(step.thread)?;
        let site = self.scene.site_in(&stack, step.thread, step.position);
        self.say(
            format!("It was printed{}.", quoted(&site)),
            Some(site.clone()),
        );
        // Text is moved as it is: its own way is the answer.
        let mut further = None;
        for step in trail.steps.iter().skip(1).take(60) {
            if step.written.is_empty() {
                continue;
            }
            let other = self.site_of(step)?;
            if other.line.is_some() && !other.same_line(&site) {
                further = Some((step.clone(), other));
                break;
            }
        }
        if let Some((step, other)) = further {
            self.scene.go(step.position)?;
            let inside = match &other.inside {
                Some(inside) => format!(" (in {inside})"),
                None => String::new(),
            };
            self.add(
                format!("The text was put together there{inside}{}.", quoted(&other)),
                Some(other),
                false,
                true,
            );
            return Ok(());
        }
        let (Some(frame), Some(source)) = (self.scene.own_frame(&stack), site.source.clone())
        else {
            return Ok(());
        };
        let mut told = 0;
        for name in named(&source) {
            self.scene.go(step.position)?;
            let Ok(node) = self.scene.debugger.evaluate(step.thread, frame, &name) else {
                continue;
            };
            let (Some(addr), Some(len)) = (node.address, node.size) else {
                continue;
            };
            if node.children > 0 || len > 8 || told >= MOST_VALUES {
                continue;
            }
            told += 1;
            let trail = self.trail(&Value::Memory { addr, len }, Choice::Stop)?;
            let what = format!("`{name}` ({})", node.text);
            self.tell_last_change(&trail, &site, &what)?;
        }
        Ok(())
    }

    /// Where in memory the byte was that a write at this position took.
    fn written_from(&mut self, position: Position, offset: u64) -> Result<Option<u64>> {
        use clew_recording::event::Event;
        let mut found = None;
        let mut begun = std::collections::HashMap::new();
        self.scene.debugger.events(|event, number, thread| {
            match event {
                Event::Call(call) if call.output.is_some() => {
                    begun.insert(thread, *call);
                    if number == position.event {
                        found = Some(*call);
                    }
                }
                Event::Resumed { .. } if number == position.event => {
                    found = begun.get(&thread).copied();
                }
                _ => {}
            }
            number < position.event
        })?;
        const WRITE: u32 = 1;
        Ok(found
            .filter(|call| call.nr == WRITE)
            .map(|call| call.args[1].wrapping_add(offset)))
    }
}
