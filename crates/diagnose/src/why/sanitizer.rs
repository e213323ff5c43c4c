//! A sanitizer's report. In: what the program wrote to standard error. Out: what was reported and where; for
//! AddressSanitizer who allocated and freed the memory, for UndefinedBehaviorSanitizer where the bad value came from.
//!
//! The report only says that there is something, and at which address: all else is read from the recording, as without a sanitizer.

use clew_debugger::Written;
use clew_recording::event::ThreadId;
use clew_timeline::{CallSeen, Position};
use iced_x86::Register;

use super::tell::{number_text, quoted};
use super::trail::{Choice, NULL_PAGE, register_value};
use super::{Asking, Kind};
use crate::Result;
use crate::heap::{Block, Held};
use crate::scene::Site;

/// Reports come early in what is written, or after very much.
const MOST_WRITES: usize = 10_000;
/// Handlers' calls that are looked at: the first one that reported is among them.
const MOST_CALLS: u64 = 10_000;
const ADDRESS: &str = "ERROR: AddressSanitizer: ";
const UNDEFINED: &str = ": runtime error: ";
/// rsi and rdx, as instructions number registers.
const RSI: usize = 6;
const RDX: usize = 2;

/// Functions that programs have which were compiled with a sanitizer.
const MARKS: [&str; 2] = ["__asan_init", "__ubsan_handle_type_mismatch_v1"];

/// Functions by which compiled code says that an access isn't right.
const ACCESSES: [&str; 12] = [
    "__asan_report_load1",
    "__asan_report_load2",
    "__asan_report_load4",
    "__asan_report_load8",
    "__asan_report_load16",
    "__asan_report_load_n",
    "__asan_report_store1",
    "__asan_report_store2",
    "__asan_report_store4",
    "__asan_report_store8",
    "__asan_report_store16",
    "__asan_report_store_n",
];

/// What a handler of undefined behaviour is told, beside a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// A value that is wrong.
    Value,
    /// A pointer that is.
    Pointer,
    /// Two operands; the second one is wrong, unless the report speaks of the first.
    Second,
    /// Operands that are right: the result isn't.
    Operands,
    Nothing,
}

/// Handlers, without the `_abort` of those that don't return.
const HANDLERS: [(&str, Told); 17] = [
    ("__ubsan_handle_out_of_bounds", Told::Value),
    ("__ubsan_handle_shift_out_of_bounds", Told::Second),
    ("__ubsan_handle_divrem_overflow", Told::Second),
    ("__ubsan_handle_type_mismatch_v1", Told::Pointer),
    ("__ubsan_handle_load_invalid_value", Told::Value),
    ("__ubsan_handle_pointer_overflow", Told::Operands),
    ("__ubsan_handle_vla_bound_not_positive", Told::Value),
    ("__ubsan_handle_add_overflow", Told::Operands),
    ("__ubsan_handle_sub_overflow", Told::Operands),
    ("__ubsan_handle_mul_overflow", Told::Operands),
    ("__ubsan_handle_negate_overflow", Told::Operands),
    ("__ubsan_handle_float_cast_overflow", Told::Nothing),
    ("__ubsan_handle_invalid_builtin", Told::Nothing),
    ("__ubsan_handle_nonnull_arg", Told::Nothing),
    ("__ubsan_handle_nonnull_return_v1", Told::Nothing),
    ("__ubsan_handle_builtin_unreachable", Told::Nothing),
    ("__ubsan_handle_missing_return", Told::Nothing),
];

/// A report, as it was written.
struct Report {
    /// `heap-use-after-free on address …`, or what follows `runtime error:`.
    message: String,
    address: bool,
    /// Behind the write of its first line.
    position: Position,
    thread: ThreadId,
    /// Lines from there on.
    lines: Vec<String>,
    /// Other reports behind it.
    more: usize,
}

impl Asking<'_> {
    /// Explains a sanitizer's report, if there is one; whether there is.
    pub fn sanitizer(&mut self) -> Result<bool> {
        let marked = self.scene.modules.modules().any(|image| {
            let has = |name: &str| {
                let found = image.module.symbols_named(name);
                found.is_ok_and(|found| !found.is_empty())
            };
            MARKS.iter().any(|name| has(name))
        });
        if !marked {
            return Ok(false);
        }
        let here = self.scene.here()?;
        let written = self.scene.debugger.output(MOST_WRITES)?;
        let explained = match report(&written) {
            Some(report) if report.address => self.bad_address(&report)?,
            Some(report) => self.undefined(&report)?,
            None => false,
        };
        if !explained {
            self.scene.go(here)?;
        }
        Ok(explained)
    }

    fn bad_address(&mut self, report: &Report) -> Result<bool> {
        // Its handler of signals: the fault itself tells more.
        let signal = ["SEGV", "FPE", "BUS", "ILL", "stack-overflow", "ABRT"];
        if signal.iter().any(|word| report.message.starts_with(word)) {
            let Some((position, thread, signo)) = self.last_fault()? else {
                return Ok(false);
            };
            self.stand_before_fault(position)?;
            self.fault(thread, signo)?;
            return Ok(true);
        }
        self.answer.kind = Kind::Sanitizer;
        let address = hexadecimal(&report.message);
        let position = self.reported_access(report, address)?;
        let site = self.scene.site_at(position, report.thread)?;
        let what = report.message.split(" on ").next().unwrap_or_default();
        let inside = match &site.inside {
            Some(inside) if !inside.contains("__asan_report") => {
                format!(" (in {})", inside.trim_start_matches("__interceptor_"))
            }
            _ => String::new(),
        };
        let touched = report.lines.iter().take(4).find_map(|line| {
            let did = ["READ", "WRITE"].iter().find(|did| line.starts_with(**did));
            let size = line.split_whitespace().nth(3)?;
            did.map(|did| format!(", a {} of {size} bytes", did.to_lowercase()))
        });
        let touched = touched.unwrap_or_default();
        let to = address.map_or(String::new(), |address| format!(" at {address:#x}"));
        let text = format!(
            "AddressSanitizer: {what}{touched}{to}{inside}{}.",
            quoted(&site)
        );
        self.say(text, Some(site.clone()));
        if let Some(address) = address {
            self.block_of_report(report, address, position, &site)?;
        }
        self.cause_is_first();
        Ok(true)
    }

    /// Where the access is made that was reported: a library's function that is checked by the sanitizer itself has no call for it.
    fn reported_access(&mut self, report: &Report, address: Option<u64>) -> Result<Position> {
        let seen = self.scene.debugger.calls_of(&ACCESSES, MOST_CALLS)?;
        let own = seen.calls.iter().filter(|call| {
            call.thread == report.thread && Some(call.registers[super::ends::RDI]) == address
        });
        for call in own {
            let position = self.scene.position(call.at)?;
            if position <= report.position {
                return Ok(position);
            }
        }
        Ok(report.position)
    }

    /// Whose memory it is.
    fn block_of_report(
        &mut self,
        report: &Report,
        address: u64,
        position: Position,
        site: &Site,
    ) -> Result<()> {
        let history = self.scene.history()?;
        let mut wrong = history.wrong.iter();
        let freeing = report.message.contains("free on")
            || report.message.contains("double-free")
            || report.message.contains("mismatch");
        if freeing && let Some(wrong) = wrong.rfind(|one| one.address == address).copied() {
            // The same place in other words is said once.
            self.answer.statements.pop();
            self.wrong_free(&wrong)?;
            self.answer.kind = Kind::Sanitizer;
            if let Some(first) = self.answer.statements.first_mut() {
                first.text = format!("AddressSanitizer: {}", first.text);
            }
            return Ok(());
        }
        if let Some(held) = self.scene.block_at(address, position)?
            && held.gone
        {
            return self.freed_block(&held, "The memory");
        }
        if report.message.starts_with("heap") {
            if let Some(held) = self.nearest_block(address, position)? {
                let text = beside(&held.block, address);
                self.add(
                    format!("That is {text}{}.", quoted(site)),
                    Some(site.clone()),
                    false,
                    true,
                );
                let told = self.scene.told(&held.block.allocated)?;
                self.say(
                    format!("The block was allocated{}.", quoted(&told.site)),
                    Some(told.site),
                );
            }
            return Ok(());
        }
        // Variables' borders are known to the sanitizer only.
        let named = report.lines.iter().find_map(|line| {
            let line = line.trim();
            let global = line.contains("global variable '") && line.contains(" is located ");
            (global || line.contains("<== Memory access")).then(|| line.to_string())
        });
        if let Some(line) = named {
            let text = line.replace("<== ", "").trim_end_matches(':').to_string();
            self.add(
                format!("The report says: {text}."),
                Some(site.clone()),
                false,
                true,
            );
        }
        Ok(())
    }

    /// The block that an address lies beside.
    fn nearest_block(&mut self, address: u64, position: Position) -> Result<Option<Held>> {
        let live = self.scene.live_at(position)?;
        let nearest = live.into_iter().min_by_key(|(_, block)| {
            let end = block.address.saturating_add(block.size);
            match address < block.address {
                true => block.address - address,
                false => address.saturating_sub(end),
            }
        });
        Ok(nearest.map(|(number, block)| Held {
            number,
            block,
            gone: false,
        }))
    }

    fn undefined(&mut self, report: &Report) -> Result<bool> {
        let Some((call, told, position)) = self.handler_of(report)? else {
            return Ok(false);
        };
        self.answer.kind = Kind::Sanitizer;
        let site = self.scene.site_at(position, call.thread)?;
        let message = &report.message;
        self.say(
            format!("UndefinedBehaviorSanitizer: {message}{}.", quoted(&site)),
            Some(site.clone()),
        );
        let first = message.contains("left shift of");
        let wrong = match told {
            Told::Value => Some((RSI, Register::RSI)),
            Told::Pointer => Some((RSI, Register::RSI)),
            Told::Second if first => None,
            // The least number by -1 isn't the divisor's fault alone.
            Told::Second if message.contains("cannot be represented") => None,
            Told::Second => Some((RDX, Register::RDX)),
            Told::Operands | Told::Nothing => None,
        };
        if let Some((number, register)) = wrong {
            self.scene.go(position)?;
            let value = call.registers[number];
            let place = register_value(call.thread, register);
            if told == Told::Pointer {
                let (choice, what) = match value < NULL_PAGE {
                    true => (Choice::Null, "The null pointer".to_string()),
                    false => (Choice::Number, format!("The pointer {value:#x}")),
                };
                let trail = self.trail(&place, choice)?;
                self.pointer(&trail, &site, &what, value)?;
                self.answer.kind = Kind::Sanitizer;
            } else {
                let trail = self.trail(&place, Choice::Stop)?;
                let what = format!("The value {}", number_text(value));
                self.tell_last_change(&trail, &site, &what)?;
            }
        }
        self.cause_is_first();
        if report.more > 0 {
            let more = report.more;
            self.say(
                format!("{more} more reports follow: `clew alerts` has them."),
                None,
            );
        }
        Ok(true)
    }

    /// The handler that wrote a report: the last one that its thread had begun by then.
    fn handler_of(&mut self, report: &Report) -> Result<Option<(CallSeen, Told, Position)>> {
        let aborting: Vec<String> = HANDLERS
            .iter()
            .map(|(name, _)| format!("{name}_abort"))
            .collect();
        let mut names: Vec<&str> = HANDLERS.iter().map(|one| one.0).collect();
        names.extend(aborting.iter().map(String::as_str));
        let seen = self.scene.debugger.calls_of(&names, MOST_CALLS)?;
        let mut own = seen.calls.into_iter().filter(|call| {
            call.thread == report.thread
                && call.depth == 0
                && call.at.event <= report.position.event
        });
        let Some(call) = own.next_back() else {
            return Ok(None);
        };
        let told = HANDLERS[call.function as usize % HANDLERS.len()].1;
        let position = self.scene.position(call.at)?;
        Ok(Some((call, told, position)))
    }

    /// Where nothing before it is known to be wrong, what was reported is itself the cause.
    fn cause_is_first(&mut self) {
        if self.answer.cause().is_none()
            && let Some(first) = self.answer.statements.first_mut()
        {
            first.cause = true;
        }
    }
}

/// The first report among what was written, if there is one.
fn report(written: &[Written]) -> Option<Report> {
    let said: Vec<&Written> = written.iter().filter(|one| one.to == 2).collect();
    let begins = |one: &Written| one.text.lines().any(|line| message(line).is_some());
    let first = said.iter().position(|one| begins(one))?;
    let (mut lines, mut found, mut more) = (Vec::new(), None, 0);
    for line in said[first..].iter().flat_map(|one| one.text.lines()) {
        match (message(line), &found) {
            (Some(message), None) => found = Some(message),
            (Some(_), Some(_)) => more += 1,
            (None, Some(_)) => lines.push(line.to_string()),
            (None, None) => {}
        }
    }
    let (message, address) = found?;
    Some(Report {
        message,
        address,
        position: said[first].position.parse().ok()?,
        thread: said[first].thread,
        lines,
        more,
    })
}

/// What a line reports, and whether it is about an address.
fn message(line: &str) -> Option<(String, bool)> {
    if let Some((before, message)) = line.split_once(ADDRESS) {
        let process = before.strip_prefix("==")?.strip_suffix("==")?;
        let number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        return number.then(|| (message.trim().to_string(), true));
    }
    let (_, message) = line.split_once(UNDEFINED)?;
    // Colours end behind it.
    let message: String = message.chars().filter(|c| !c.is_control()).collect();
    let message = message.replace("[0m", "").replace("[1m", "");
    Some((message.trim().to_string(), false))
}

/// The first number of that kind in a text.
fn hexadecimal(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    words.find_map(|word| {
        let digits = word.strip_prefix("0x")?;
        let digits = digits.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok()
    })
}

/// Where an address lies, seen from a block.
fn beside(block: &Block, address: u64) -> String {
    let size = block.size;
    match address.checked_sub(block.address) {
        None => {
            let before = block.address - address;
            format!("{before} bytes before the beginning of a block of {size} bytes")
        }
        Some(offset) if offset >= size => {
            let behind = offset - size;
            format!("{behind} bytes behind the end of a block of {size} bytes")
        }
        Some(offset) => format!("{offset} bytes into a block of {size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_told_from_other_lines() {
        let line = "==12==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010 at pc 0x1";
        let (text, address) = message(line).unwrap();
        assert!(address && text.starts_with("heap-use-after-free"));
        assert_eq!(hexadecimal(&text), Some(0x6020_0000_0010));
        let line = "a.c:3:9: runtime error: index 12 out of bounds for type 'int [12]'";
        let expected = ("index 12 out of bounds for type 'int [12]'".into(), false);
        assert_eq!(message(line), Some(expected));
        assert_eq!(message("ERROR: AddressSanitizer: not one"), None);
        assert_eq!(message("runtime error"), None);
        assert_eq!(hexadecimal("0x, 0xg"), None);
    }
}
