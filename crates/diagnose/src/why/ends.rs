//! A program that ended itself. In: the thread that did it. Out: the assertion, exception, panic, or check behind it, the
//! values that it went by, and where those came from.

use clew_recording::event::ThreadId;
use clew_slice::origin::Value;
use clew_symbols::Stack;
use clew_timeline::{CallSeen, LeftBy, Position};
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};

use super::decide::{Code, Decision};
use super::tell::{number_text, quoted};
use super::trail::{Choice, Trail, TrailEnd, general, register_value};
use super::{Asking, Kind};
use crate::Result;
use crate::scene::{Site, plain_name};

/// rdi and rsi, as instructions number registers.
pub const RDI: usize = 7;
const RSI: usize = 6;
/// Decisions behind decisions.
const DEEPEST: usize = 3;

/// Functions by which Rust gives up, the telling ones first.
const PANICS: [&str; 16] = [
    "core::panicking::panic_bounds_check",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
    "core::panicking::panic_const::panic_const_add_overflow",
    "core::panicking::panic_const::panic_const_sub_overflow",
    "core::panicking::panic_const::panic_const_mul_overflow",
    "core::panicking::panic_const::panic_const_neg_overflow",
    "core::panicking::panic_const::panic_const_div_by_zero",
    "core::panicking::panic_const::panic_const_rem_by_zero",
    "core::panicking::panic_const::panic_const_div_overflow",
    "core::panicking::panic_const::panic_const_shl_overflow",
    "core::panicking::panic_const::panic_const_shr_overflow",
    "core::panicking::panic_fmt",
    "core::panicking::panic",
    "rust_panic",
];

/// Functions by which libstdc++ throws: which register has the number that was wrong.
const THROWERS: [(&str, Option<usize>); 4] = [
    ("_ZSt24__throw_out_of_range_fmtPKcz", Some(RSI)),
    ("_ZSt20__throw_out_of_rangePKc", None),
    ("_ZSt20__throw_length_errorPKc", None),
    ("_ZSt19__throw_logic_errorPKc", None),
];

impl Asking<'_> {
    /// SIGABRT. The scene stands at the end.
    pub fn aborted(&mut self, thread: ThreadId) -> Result<()> {
        let end = self.scene.here()?;
        let stack = self.scene.stack(thread)?;
        let has = |name: &str| {
            stack.frames.iter().any(|frame| {
                let function = frame.function.as_deref().unwrap_or("");
                plain_name(function) == name
            })
        };
        if has("__assert_fail") || has("__assert_fail_base") || has("__GI___assert_fail") {
            return self.assertion(thread);
        }
        if has("__stack_chk_fail") || has("__GI___stack_chk_fail") || has("__fortify_fail") {
            return self.smashed(thread, &stack);
        }
        if self.in_allocator(&stack, thread)? {
            return Ok(());
        }
        self.scene.go(end)?;
        if self.exception(thread)? || self.panic(thread)? {
            return Ok(());
        }
        self.scene.go(end)?;
        self.answer.kind = Kind::Abort;
        let site = self.scene.site(thread)?;
        self.say(
            format!("abort() was called{}.", quoted(&site)),
            Some(site.clone()),
        );
        self.said_last()?;
        self.scene.go(end)?;
        let Some(frame) = self.scene.own_frame(&stack) else {
            self.looked("the stack: there is no line of the program in it");
            return Ok(());
        };
        self.explain_decision(thread, frame, &site, 0)
    }

    /// The last thing that was written to standard error.
    fn said_last(&mut self) -> Result<()> {
        let written = self.scene.debugger.output(10_000)?;
        if let Some(last) = written.iter().rev().find(|one| one.to == 2) {
            let text: String = last
                .text
                .trim()
                .lines()
                .last()
                .unwrap_or("")
                .chars()
                .take(120)
                .collect();
            let position: Option<Position> = last.position.parse().ok();
            if let Some(position) = position.filter(|_| !text.is_empty()) {
                let site = self.scene.site_at(position, last.thread)?;
                self.say(format!("It said: {text}"), Some(site));
            }
        }
        Ok(())
    }

    /// The last call of one of these functions in a thread, and its position.
    fn last_call(
        &mut self,
        names: &[&str],
        thread: ThreadId,
    ) -> Result<Option<(CallSeen, Position)>> {
        let seen = self.scene.debugger.calls_of(names, 100_000)?;
        let mut own = seen.calls.into_iter().filter(|call| call.thread == thread);
        let Some(call) = own.next_back() else {
            return Ok(None);
        };
        let position = self.scene.position(call.at)?;
        Ok(Some((call, position)))
    }

    fn assertion(&mut self, thread: ThreadId) -> Result<()> {
        self.answer.kind = Kind::Assertion;
        let Some((call, position)) = self.last_call(&["__assert_fail"], thread)? else {
            self.looked("calls of __assert_fail: none is seen");
            return Ok(());
        };
        self.scene.go(position)?;
        let said = self.scene.text(call.registers[RDI])?.unwrap_or_default();
        let site = self.scene.site(thread)?;
        self.say(
            format!("The assertion `{said}` failed."),
            Some(site.clone()),
        );
        self.scene.go(position)?;
        let stack = self.scene.stack(thread)?;
        let Some(frame) = self.scene.own_frame(&stack) else {
            self.looked("the stack: there is no line of the program in it");
            return Ok(());
        };
        self.values_in(thread, frame, &said)?;
        self.scene.go(position)?;
        self.explain_decision(thread, frame, &site, 0)
    }

    /// The values of what an expression names.
    fn values_in(&mut self, thread: ThreadId, frame: usize, expression: &str) -> Result<()> {
        let mut told = Vec::new();
        for name in named(expression) {
            if let Ok(node) = self.scene.debugger.evaluate(thread, frame, &name)
                && node.children == 0
            {
                told.push(format!("{name} was {}", node.text));
            }
        }
        if !told.is_empty() {
            self.say(format!("{}.", told.join(", ")), None);
        }
        Ok(())
    }

    /// The decision in a frame that led to where the scene stands, and where its values came from.
    pub fn explain_decision(
        &mut self,
        thread: ThreadId,
        frame: usize,
        symptom: &Site,
        depth: usize,
    ) -> Result<()> {
        let Some(decision) = self.decision(thread, frame)? else {
            self.looked(
                "what decided to go there: no comparison is found before it in its function",
            );
            return Ok(());
        };
        self.explain_comparison(&decision, symptom, depth)
    }

    fn explain_comparison(
        &mut self,
        decision: &Decision,
        symptom: &Site,
        depth: usize,
    ) -> Result<()> {
        let site = self
            .scene
            .own_line(decision.ins.ip(), decision.position, decision.thread);
        let site = match site {
            Some(site) => site,
            None => self.scene.site_at(decision.position, decision.thread)?,
        };
        if !site.same_line(symptom) {
            let values = decision
                .compared
                .iter()
                .map(|(_, number)| number_text(*number));
            let mut values: Vec<String> = values.collect();
            values.extend(decision.constant.map(|number| number_text(number as u64)));
            let text = match values.len() {
                2 => format!(
                    "It went there because of {} against {}",
                    values[0], values[1]
                ),
                _ => format!("It went there because of {}", values.join(", ")),
            };
            self.say(format!("{text}{}.", quoted(&site)), Some(site.clone()));
        }
        // The one that isn't a constant of the program tells more.
        let mut trails = Vec::new();
        for (value, number) in &decision.compared {
            self.scene.go(decision.position)?;
            let trail = self.trail(value, Choice::Stop)?;
            trails.push((trail, *number));
        }
        trails.sort_by_key(|(trail, _)| {
            let moving = trail.computing().count() > 0;
            let constant = matches!(trail.end, TrailEnd::Constant | TrailEnd::Beginning);
            (!moving, constant)
        });
        let Some((trail, number)) = trails.into_iter().next() else {
            self.looked("the comparison, which is of nothing in registers or memory");
            return Ok(());
        };
        self.explain_value(&trail, number, &site, symptom, depth)
    }

    /// Where a value that a decision went by came from; behind a constant is another decision.
    fn explain_value(
        &mut self,
        trail: &Trail,
        number: u64,
        site: &Site,
        symptom: &Site,
        depth: usize,
    ) -> Result<()> {
        let what = format!("The value {}", number_text(number));
        let last = trail.steps.last().cloned();
        // An error of a system call tells more than what was computed of it.
        if let (TrailEnd::Constant, Some(last)) = (&trail.end, &last)
            && !self.is_own(last)
            && self.failed_before(last)?.is_some()
        {
            return self.tell_source(trail, symptom, &what);
        }
        // A comparison's result, as a number.
        if let (TrailEnd::Computed, Some(last)) = (&trail.end, &last)
            && depth < DEEPEST
            && last.ins.rflags_read() != 0
        {
            self.scene.go(last.position)?;
            let stack = self.scene.stack(last.thread)?;
            if let Some(code) = stack.frames.first().and_then(Code::of)
                && let Some(before) = self.comparison(last.thread, &code, true)?
            {
                return self.explain_comparison(&before, symptom, depth + 1);
            }
        }
        // What a function answers by a constant, it has decided.
        if let (TrailEnd::Constant, Some(last)) = (&trail.end, &last)
            && depth < DEEPEST
            && trail.computing().count() <= 1
            && number <= 1
            && self.is_own(last)
        {
            let at = self.site_of(last)?;
            if at.function != site.function {
                self.scene.go(last.position)?;
                let text = format!("{what} was answered{}.", quoted(&at));
                self.add(text, Some(at.clone()), false, true);
                return self.explain_decision(last.thread, 0, &at, DEEPEST);
            }
        }
        self.tell_last_change(trail, symptom, &what)
    }

    /// The guard on the stack was overwritten: by whom?
    fn smashed(&mut self, thread: ThreadId, stack: &Stack) -> Result<()> {
        self.answer.kind = Kind::StackSmash;
        let end = self.scene.here()?;
        let site = self.scene.site_in(stack, thread, end);
        let function = site
            .function
            .as_deref()
            .map(plain_name)
            .unwrap_or("a function")
            .to_string();
        self.say(
            format!("The guard on the stack of {function} was overwritten: it was found when the function returned."),
            Some(site.clone()),
        );
        let Some(frame) = self.scene.own_frame(stack) else {
            self.looked("the stack: there is no line of the program in it");
            return Ok(());
        };
        let frame = &stack.frames[frame];
        let Some(guard) = self.guard_of(frame)? else {
            self.looked("where the guard is: the function's code doesn't tell");
            return Ok(());
        };
        self.scene.go(end)?;
        let chain = self.scene.origin(&Value::Memory {
            addr: guard,
            len: 8,
        })?;
        let Some(step) = chain.steps.first().cloned() else {
            self.looked("who wrote the guard: nobody did");
            return Ok(());
        };
        let at = self.site_of(&step)?;
        let inside = match &at.inside {
            Some(inside) => format!(" (in {inside})"),
            None => String::new(),
        };
        let other = self.other_thread(&site, step.thread);
        self.add(
            format!("It was written over{other}{inside}{}.", quoted(&at)),
            Some(at),
            false,
            true,
        );
        Ok(())
    }

    /// Where a function keeps the guard: behind its beginning it takes it from the thread and stores it.
    fn guard_of(&mut self, frame: &clew_symbols::Frame) -> Result<Option<u64>> {
        let Some(code) = Code::of(frame) else {
            return Ok(None);
        };
        let mut bytes = [0; 256];
        let got = self
            .scene
            .debugger
            .timeline()
            .read(code.entry, &mut bytes)?;
        let mut decoder = Decoder::with_ip(64, &bytes[..got], code.entry, DecoderOptions::NONE);
        let mut taken = None;
        while decoder.can_decode() {
            let ins = decoder.decode();
            let memory = (0..ins.op_count()).any(|n| ins.op_kind(n) == OpKind::Memory);
            if memory
                && ins.memory_segment() == Register::FS
                && ins.memory_displacement64() == 0x28
                && ins.op0_kind() == OpKind::Register
            {
                taken = Some(ins.op0_register());
            } else if let Some(register) = taken
                && memory
                && ins.op0_kind() == OpKind::Memory
                && ins.op1_kind() == OpKind::Register
                && ins.op1_register() == register
            {
                let name = format!("{:?}", ins.memory_base()).to_lowercase();
                let number = clew_symbols::Registers::number(&name);
                let base = number.and_then(|number| frame.registers.get(number));
                return Ok(base.map(|base| base.wrapping_add(ins.memory_displacement64())));
            }
        }
        Ok(None)
    }

    /// An exception that nobody caught.
    fn exception(&mut self, thread: ThreadId) -> Result<bool> {
        let Some((call, position)) = self.last_call(&["__cxa_throw"], thread)? else {
            return Ok(false);
        };
        self.answer.kind = Kind::Exception;
        self.scene.go(position)?;
        let of = self.scene.type_name(call.registers[RSI])?;
        // Most of the library's begin with a table of functions and the text.
        let message = match self.scene.number(call.registers[RDI].wrapping_add(8), 8)? {
            Some(text) if of.starts_with("std::") => self.scene.text(text)?,
            _ => None,
        };
        let message = message.filter(|text| !text.is_empty() && text.is_ascii());
        let message = message.map_or(String::new(), |text| format!(" ({text})"));
        let stack = self.scene.stack(thread)?;
        let site = self.scene.site_in(&stack, thread, position);
        let names: Vec<&str> = THROWERS.iter().map(|one| one.0).collect();
        let thrower = self.last_call(&names, thread)?;
        let thrower = thrower
            .filter(|(call, at)| *at <= position && !matches!(call.left, LeftBy::Return { .. }));
        let by_library = thrower.is_some();
        let text = format!("{of}{message} was thrown and not caught{}.", quoted(&site));
        self.add(text, Some(site.clone()), false, !by_library);
        if let Some((call, at)) = thrower
            && let Some(register) = THROWERS[call.function as usize].1
        {
            self.scene.go(at)?;
            let number = call.registers[register];
            let trail = self.trail(&register_value(thread, Register::RSI), Choice::Stop)?;
            let what = format!("The number {}", number_text(number));
            self.tell_last_change(&trail, &site, &what)?;
            return Ok(true);
        }
        self.scene.go(position)?;
        if let Some(frame) = self.scene.own_frame(&stack) {
            self.explain_decision(thread, frame, &site, DEEPEST)?;
        }
        Ok(true)
    }

    /// A Rust panic.
    pub fn panic(&mut self, thread: ThreadId) -> Result<bool> {
        let seen = self.scene.debugger.calls_of(&PANICS, 1_000)?;
        // The first of the last panic: those that it calls are within it.
        let mut own = seen.calls.into_iter().filter(|call| call.thread == thread);
        let Some(call) = own.rfind(|call| call.depth == 0) else {
            return Ok(false);
        };
        self.answer.kind = Kind::Panic;
        let position = self.scene.position(call.at)?;
        self.scene.go(position)?;
        let stack = self.scene.stack(thread)?;
        let site = self.scene.site_in(&stack, thread, position);
        let written = self.scene.debugger.output(10_000)?;
        let said: String = written
            .iter()
            .filter(|one| one.to == 2)
            .map(|one| one.text.as_str())
            .collect();
        let mut lines = said
            .lines()
            .skip_while(|line| !line.contains("panicked at"));
        let message = lines.nth(1).unwrap_or("").trim().to_string();
        let message = match message.is_empty() {
            true => "it panicked".to_string(),
            false => message,
        };
        self.say(
            format!("panic: {message}{}.", quoted(&site)),
            Some(site.clone()),
        );
        self.scene.go(position)?;
        let name = PANICS[call.function as usize];
        if name.ends_with("panic_bounds_check") {
            let value = register_value(thread, Register::RDI);
            let number = call.registers[RDI];
            let trail = self.trail(&value, Choice::Stop)?;
            let what = format!("The index {}", number_text(number));
            self.tell_last_change(&trail, &site, &what)?;
        } else if name.contains("panic_const") {
            let frame = self.scene.own_frame(&stack);
            if let (Some(frame), Some(source)) = (frame, site.source.clone()) {
                self.values_in(thread, frame, &source)?;
            }
            let text = format!("It was computed there{}.", quoted(&site));
            self.add(text, Some(site), false, true);
        } else {
            // What was unwrapped is looked at in the frame that gave up, inlined or not.
            let frame = (1..stack.frames.len()).find(|&n| !stack.frames[n].inlined);
            if let Some(frame) = frame {
                self.explain_panic(thread, frame, &site)?;
            }
        }
        if self.answer.cause().is_none()
            && let Some(first) = self.answer.statements.first_mut()
        {
            first.cause = true;
        }
        Ok(true)
    }

    fn explain_panic(&mut self, thread: ThreadId, frame: usize, site: &Site) -> Result<()> {
        let Some(decision) = self.decision(thread, frame)? else {
            self.looked("what decided to panic: no comparison is found before it");
            return Ok(());
        };
        let Some((value, number)) = decision.compared.first().cloned() else {
            return Ok(());
        };
        self.scene.go(decision.position)?;
        let trail = self.trail(&value, Choice::Stop)?;
        self.explain_value(&trail, number, site, site, 0)
    }

    /// It exited with an error.
    pub fn exited(&mut self, thread: ThreadId, status: i32) -> Result<()> {
        const RUST: i32 = 101;
        if status == RUST && self.panic(thread)? {
            return Ok(());
        }
        let end = self.scene.debugger.stand_at_end()?;
        self.answer.kind = Kind::Exit;
        let registers = self.scene.registers(thread)?;
        let stack = self.scene.stack(thread)?;
        let site = self.scene.site_in(&stack, thread, end);
        self.said_last()?;
        self.scene.go(end)?;
        let known = general(&registers, Register::EDI).map(|value| value as i32);
        if known != Some(status) {
            self.say(
                format!("It exited with status {status}{}.", quoted(&site)),
                Some(site),
            );
            self.looked("the status that the exit was called with: it isn't in its register");
            return Ok(());
        }
        let trail = self.trail(&register_value(thread, Register::EDI), Choice::Stop)?;
        let lines = self.lines_of(&trail);
        let Some((n, line)) = lines.last().cloned() else {
            self.say(
                format!("It exited with status {status}{}.", quoted(&site)),
                Some(site),
            );
            self.looked("where the status came from: no line of the program made it");
            return Ok(());
        };
        self.say(
            format!("It exited with status {status}{}.", quoted(&line)),
            Some(line.clone()),
        );
        let step = trail.steps[n].clone();
        self.scene.go(step.position)?;
        if matches!(trail.end, TrailEnd::Constant) {
            self.explain_decision(step.thread, 0, &line, 0)?;
        } else {
            self.explain_value(&trail, status as u64, &line, &line, 0)?;
        }
        Ok(())
    }
}

/// Names of variables and their members in an expression: without calls and strings.
pub fn named(expression: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(|c: char| {
        c.is_alphabetic() || c == '_' || c == '"' || c == '\'' || c.is_ascii_digit()
    }) {
        rest = &rest[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if first == '"' || first == '\'' {
            let end = rest[1..].find(first).map_or(rest.len(), |end| end + 2);
            rest = &rest[end..];
            continue;
        }
        let mut end = 0;
        let bytes = rest.as_bytes();
        while end < bytes.len() {
            let c = bytes[end];
            if c.is_ascii_alphanumeric() || c == b'_' || c == b'.' {
                end += 1;
            } else if rest[end..].starts_with("->") {
                end += 2;
            } else if c == b'['
                && let Some(close) = rest[end..].find(']')
            {
                end += close + 1;
            } else {
                break;
            }
        }
        let end = end.max(first.len_utf8());
        let name = &rest[..end];
        let called = rest[end..].trim_start().starts_with('(');
        rest = &rest[end..];
        let keyword = matches!(
            name,
            "return"
                | "if"
                | "int"
                | "long"
                | "char"
                | "sizeof"
                | "let"
                | "mut"
                | "NULL"
                | "nullptr"
                | "std"
        );
        if !called
            && !keyword
            && !first.is_ascii_digit()
            && !names.iter().any(|other| other == name)
        {
            names.push(name.to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn names_of_an_expression() {
        assert_eq!(named("sum == 1000"), ["sum"]);
        assert_eq!(
            named("queue->count <= limit[2].most && ok(x)"),
            ["queue->count", "limit[2].most", "x"]
        );
        assert_eq!(named("printf(\"%d of x\\n\", total, 'c');"), ["total"]);
        assert!(named("").is_empty() && named("\"").is_empty());
    }
}
