//! What is there. In: threads, frames and values by the numbers that an editor was told. Out: stacks, scopes, values,
//! memory, code.

use base64::Engine;
use clew_debugger::{Frame, Node, ScopeKind, ValueId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::session::{Answer, Failed, Open, arguments};
use crate::wire::Request;

/// Frames and values that were told of this place, by number; and how the editor counts.
#[derive(Default)]
pub struct References {
    frames: Vec<(u32, usize)>,
    values: Vec<Held>,
    pub first_line: u32,
    pub first_column: u32,
}

/// What an editor may open.
#[derive(Clone, Copy)]
enum Held {
    Scope {
        thread: u32,
        frame: usize,
        kind: ScopeKind,
    },
    Value {
        thread: u32,
        frame: usize,
        id: ValueId,
    },
}

impl References {
    pub fn clear(&mut self) {
        self.frames.clear();
        self.values.clear();
    }

    /// Numbers begin with 1: 0 means that there is nothing within.
    fn keep(&mut self, held: Held) -> u64 {
        self.values.push(held);
        self.values.len() as u64
    }

    fn held(&self, reference: u64) -> Result<Held, Failed> {
        let index = reference.checked_sub(1).map(|index| index as usize);
        let held = index.and_then(|index| self.values.get(index));
        held.copied()
            .ok_or_else(|| "that value isn't of this place; ask for the scopes again".into())
    }

    fn keep_frame(&mut self, thread: u32, frame: usize) -> u64 {
        if let Some(known) = self.frames.iter().position(|one| *one == (thread, frame)) {
            return known as u64 + 1;
        }
        self.frames.push((thread, frame));
        self.frames.len() as u64
    }

    /// Whose a value is: thread, frame, and the value that it is within, none for a scope.
    pub fn owner(&self, reference: u64) -> Result<(u32, usize, Option<ValueId>), Failed> {
        match self.held(reference)? {
            Held::Scope { thread, frame, .. } => Ok((thread, frame, None)),
            Held::Value { thread, frame, id } => Ok((thread, frame, Some(id))),
        }
    }

    pub fn frame(&self, id: u64) -> Result<(u32, usize), Failed> {
        let index = id.checked_sub(1).map(|index| index as usize);
        let frame = index.and_then(|index| self.frames.get(index));
        frame
            .copied()
            .ok_or_else(|| "that frame isn't of this place; ask for the stack again".into())
    }
}

/// `0x…`, or a number.
pub fn address(text: &str) -> Result<u64, Failed> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Failed::Because(format!("{text:?} is no address")))
}

/// A place of memory that a request is about.
fn memory_at(reference: &str, offset: i64) -> Result<u64, Failed> {
    Ok(address(reference)?.wrapping_add_signed(offset))
}

impl Open {
    pub fn threads(&mut self) -> Answer {
        let all = self.debugger.threads()?;
        let all: Vec<Value> = all
            .iter()
            .map(|thread| {
                let mut name = format!("{} ({})", thread.name, thread.tid);
                if let Some(call) = &thread.waits {
                    name.push_str(&format!(", waits in {call}"));
                }
                json!({"id": u64::from(thread.number) + 1, "name": name})
            })
            .collect();
        Ok(json!({"threads": all}))
    }

    pub fn stack_trace(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            thread_id: u64,
            #[serde(default)]
            start_frame: usize,
            #[serde(default)]
            levels: usize,
        }
        let asked: Asked = arguments(request)?;
        let thread = u32::try_from(asked.thread_id.saturating_sub(1)).unwrap_or(u32::MAX);
        let stack = self.debugger.stack(thread)?;
        let levels = match asked.levels {
            0 => usize::MAX,
            some => some,
        };
        let total = stack.frames.len();
        let some = stack.frames.iter().skip(asked.start_frame).take(levels);
        let frames: Vec<Value> = some.map(|frame| self.told_frame(thread, frame)).collect();
        Ok(json!({"stackFrames": frames, "totalFrames": total}))
    }

    fn told_frame(&mut self, thread: u32, frame: &Frame) -> Value {
        let at = &frame.location;
        let mut name = at
            .function
            .clone()
            .unwrap_or_else(|| format!("{:#x}", at.address));
        if frame.inlined {
            name.push_str(" [inlined]");
        }
        if frame.signal {
            name.push_str(" [signal handler called]");
        }
        let mut told = json!({
            "id": self.references.keep_frame(thread, frame.number),
            "name": name,
            "line": 0,
            "column": 0,
            "instructionPointerReference": format!("{:#x}", at.address),
        });
        if let Some(module) = &at.module {
            told["moduleId"] = module.clone().into();
        }
        match (&at.file, at.line) {
            (Some(file), Some(line)) => {
                let short = file.rsplit('/').next().unwrap_or(file);
                told["source"] = json!({"name": short, "path": file});
                told["line"] = (line + self.references.first_line - 1).into();
                let column = at.column.unwrap_or(1).max(1);
                told["column"] = (column + self.references.first_column - 1).into();
            }
            // Code without lines is of no interest to most.
            _ => told["presentationHint"] = "subtle".into(),
        }
        told
    }

    pub fn frame_or_first(&mut self, id: Option<u64>) -> Result<(u32, usize), Failed> {
        match id {
            Some(id) => self.references.frame(id),
            None => Ok((self.debugger.thread(), 0)),
        }
    }

    pub fn scopes(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            frame_id: u64,
        }
        let asked: Asked = arguments(request)?;
        let (thread, frame) = self.references.frame(asked.frame_id)?;
        let scopes = self.debugger.scopes(thread, frame)?;
        let mut told = Vec::new();
        for scope in &scopes {
            let (name, hint) = match scope.kind {
                ScopeKind::Arguments => ("Arguments", "arguments"),
                ScopeKind::Locals => ("Locals", "locals"),
                ScopeKind::Statics => ("Statics", "globals"),
                ScopeKind::Registers => ("Registers", "registers"),
            };
            if scope.variables.is_empty() && scope.kind != ScopeKind::Locals {
                continue;
            }
            let kind = scope.kind;
            told.push(json!({
                "name": name,
                "presentationHint": hint,
                "variablesReference": self.references.keep(Held::Scope { thread, frame, kind }),
                "namedVariables": scope.variables.len(),
                "expensive": false,
            }));
        }
        Ok(json!({"scopes": told}))
    }

    pub fn variables(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            variables_reference: u64,
            #[serde(default)]
            start: u64,
            #[serde(default)]
            count: u64,
        }
        let asked: Asked = arguments(request)?;
        let most = match asked.count {
            0 => u64::MAX,
            some => some,
        };
        let nodes = self.parts(asked.variables_reference, asked.start, most)?;
        let (thread, frame, _) = self.references.owner(asked.variables_reference)?;
        let told = nodes.iter();
        let told: Vec<Value> = told
            .map(|node| self.told_value(thread, frame, node))
            .collect();
        Ok(json!({"variables": told}))
    }

    fn parts(&mut self, reference: u64, from: u64, most: u64) -> Result<Vec<Node>, Failed> {
        match self.references.held(reference)? {
            Held::Value { id, .. } => Ok(self.debugger.children(id, from, most)?),
            Held::Scope {
                thread,
                frame,
                kind,
            } => {
                let scopes = self.debugger.scopes(thread, frame)?;
                let scope = scopes.into_iter().find(|scope| scope.kind == kind);
                let all = scope.map(|scope| scope.variables).unwrap_or_default();
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                Ok(all.into_iter().skip(from as usize).take(most).collect())
            }
        }
    }

    /// A part of something, by its name.
    pub fn part(&mut self, reference: u64, name: &str) -> Result<Node, Failed> {
        let parts = self.parts(reference, 0, u64::MAX)?;
        let found = parts.into_iter().find(|part| part.name == name);
        found.ok_or_else(|| Failed::Because(format!("there is no {name} in it")))
    }

    pub fn told_value(&mut self, thread: u32, frame: usize, node: &Node) -> Value {
        let held = |id| Held::Value { thread, frame, id };
        let reference = node.id.map(|id| self.references.keep(held(id)));
        let mut told = json!({
            "name": node.name,
            "value": node.text,
            "type": node.of,
            "variablesReference": reference.unwrap_or(0),
        });
        if reference.is_some() {
            let counted = match node.numbered {
                true => "indexedVariables",
                false => "namedVariables",
            };
            told[counted] = node.children.into();
        }
        if let Some(address) = node.address {
            told["memoryReference"] = format!("{address:#x}").into();
        }
        told
    }

    /// The answer to an expression.
    pub fn told_result(&mut self, thread: u32, frame: usize, node: &Node) -> Value {
        let mut told = self.told_value(thread, frame, node);
        told["result"] = told["value"].take();
        if let Value::Object(fields) = &mut told {
            fields.remove("value");
            fields.remove("name");
        }
        told
    }

    pub fn read_memory(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            memory_reference: String,
            #[serde(default)]
            offset: i64,
            count: usize,
        }
        let asked: Asked = arguments(request)?;
        let address = memory_at(&asked.memory_reference, asked.offset)?;
        let bytes = self.debugger.read_memory(address, asked.count)?;
        Ok(json!({
            "address": format!("{address:#x}"),
            "data": base64::engine::general_purpose::STANDARD.encode(&bytes),
            "unreadableBytes": asked.count - bytes.len().min(asked.count),
        }))
    }

    pub fn disassemble(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            memory_reference: String,
            #[serde(default)]
            offset: i64,
            #[serde(default)]
            instruction_offset: i64,
            instruction_count: usize,
        }
        let asked: Asked = arguments(request)?;
        let address = memory_at(&asked.memory_reference, asked.offset)?;
        let count = asked.instruction_count.min(10_000);
        let (skip, wanted) = (asked.instruction_offset, count);
        let code = self.debugger.code(address, skip, wanted)?;
        let mut told: Vec<Value> = Vec::new();
        for one in &code {
            let bytes: Vec<String> = one.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut line = json!({
                "address": format!("{:#x}", one.location.address),
                "instruction": one.text,
                "instructionBytes": bytes.join(" "),
            });
            if let Some(function) = &one.location.function {
                line["symbol"] = function.clone().into();
            }
            if let (Some(file), Some(number)) = (&one.location.file, one.location.line) {
                line["location"] = json!({"path": file});
                line["line"] = (number + self.references.first_line - 1).into();
            }
            told.push(line);
        }
        // As many as were asked for, says the protocol: what isn't there is no instruction.
        let first = code.first().map_or(address, |one| one.location.address);
        let known_before = code
            .iter()
            .filter(|one| one.location.address < address)
            .count();
        let lacking = (-skip).max(0) as usize;
        let lacking = lacking.min(count).saturating_sub(known_before);
        for n in 0..lacking {
            told.insert(0, nothing(first.wrapping_sub(n as u64 + 1)));
        }
        told.truncate(count);
        let mut last = code.last().map_or(address, |one| {
            one.location.address.wrapping_add(one.bytes.len() as u64)
        });
        while told.len() < count {
            told.push(nothing(last));
            last = last.wrapping_add(1);
        }
        Ok(json!({"instructions": told}))
    }

    pub fn modules(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            #[serde(default)]
            start_module: usize,
            #[serde(default)]
            module_count: usize,
        }
        let asked: Asked = arguments(request)?;
        let mut names: Vec<String> = Vec::new();
        for loaded in self.debugger.libraries()? {
            if loaded.loaded && !names.contains(&loaded.name) {
                names.push(loaded.name);
            }
        }
        let total = names.len();
        let most = match asked.module_count {
            0 => usize::MAX,
            some => some,
        };
        let told = names.iter().skip(asked.start_module).take(most);
        let told = told.map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            json!({"id": path, "name": name, "path": path})
        });
        let told: Vec<Value> = told.collect();
        Ok(json!({"modules": told, "totalModules": total}))
    }

    /// Files that programs and libraries were compiled from.
    pub fn loaded_sources(&mut self) -> Answer {
        let all = self.debugger.sources()?;
        let told = all.iter().map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            json!({"name": name, "path": &**path})
        });
        let told: Vec<Value> = told.collect();
        Ok(json!({"sources": told}))
    }

    pub fn exception_info(&mut self) -> Answer {
        match &self.ended {
            Some(how) => Ok(json!({
                "exceptionId": how,
                "description": format!("the recording ends here: {how}"),
                "breakMode": "unhandled",
            })),
            None => Ok(json!({
                "exceptionId": "exception",
                "description": "an exception is about to be thrown",
                "breakMode": "always",
            })),
        }
    }
}

fn nothing(address: u64) -> Value {
    json!({"address": format!("{address:#x}"), "instruction": "(unknown)", "presentationHint": "invalid"})
}
