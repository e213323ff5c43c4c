//! A program stopped by gdb: compiles and runs it up to its line marked STOP, keeps a core file of it, and what
//! gdb prints there.

use clew_symbols::value::{Context, Returned};
use clew_symbols::{DebugSearch, Mapping, Module, Modules, Registers};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub struct Core {
    bytes: Vec<u8>,
    /// Address, file offset, size.
    memory: Vec<(u64, usize, usize)>,
    /// Address, size, contents: what gdb leaves to the files.
    files: Vec<(u64, Vec<u8>)>,
    registers: Registers,
    fs_base: u64,
    pub modules: Modules,
    /// Answers of [`Context::call`], for tests of calls.
    pub calls: Vec<(u64, Vec<u64>)>,
    pub answers: HashMap<u64, Result<Returned, String>>,
}

/// Runs gdb: what it prints for each expression, and the core file.
pub fn stopped(
    program: &Path,
    source: &Path,
    core: &Path,
    expressions: &[&str],
) -> (Vec<String>, Core) {
    let text = std::fs::read_to_string(source).unwrap();
    let line = 1 + text.lines().position(|line| line.contains("STOP")).unwrap();
    let file = source.file_name().unwrap().to_string_lossy();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args(["-iex", "set disable-randomization on"])
        .args(["-ex", "set width 0", "-ex", "set print static-members off"])
        .args(["-ex", &format!("break {file}:{line}")])
        .args(["-ex", "run", "-ex", &format!("gcore {}", core.display())]);
    for expression in expressions {
        gdb.args(["-ex", "echo @@\\n", "-ex", &format!("print {expression}")]);
    }
    gdb.args(["-ex", "echo @@\\n", "-ex", "kill"]).arg(program);
    let output = gdb.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        core.exists(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut answers: Vec<String> = text.split("@@\n").skip(1).map(str::to_string).collect();
    answers.pop();
    assert_eq!(answers.len(), expressions.len(), "{text}");
    let answers = answers
        .iter()
        .map(|answer| {
            let answer = answer.trim_end();
            match answer.split_once(" = ") {
                Some((name, value)) if name.starts_with('$') => value.to_string(),
                _ => format!("error: {answer}"),
            }
        })
        .collect();
    (answers, Core::open(core))
}

impl Core {
    pub fn open(path: &Path) -> Core {
        let bytes = std::fs::read(path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let headers = word(32) as usize;
        let count = u16::from_le_bytes(bytes[56..58].try_into().unwrap());
        let mut memory = Vec::new();
        let mut registers = None;
        let mut fs_base = 0;
        let mut files: Vec<(u64, u64, u64, PathBuf)> = Vec::new();
        for n in 0..usize::from(count) {
            let header = headers + n * 56;
            let (kind, offset) = (half(header), word(header + 8) as usize);
            let (address, size) = (word(header + 16), word(header + 32) as usize);
            if kind == 1 {
                memory.push((address, offset, size));
            }
            if kind != 4 {
                continue;
            }
            let mut at = offset;
            while at < offset + size {
                let (name, len, note) = (half(at), half(at + 4), half(at + 8));
                let data = at + 12 + (name as usize).next_multiple_of(4);
                // NT_PRSTATUS of the first thread, NT_FILE.
                if note == 1 && registers.is_none() {
                    let saved = |index: usize| word(data + 112 + index * 8);
                    // r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig rip cs flags rsp ss fs gs
                    let order = [10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];
                    registers = Some(Registers::from_encoding_order(order.map(saved), saved(16)));
                    fs_base = saved(21);
                }
                if note == 0x4649_4c45 {
                    let count = word(data) as usize;
                    let page = word(data + 8);
                    let mut name = data + 16 + count * 24;
                    for file in 0..count {
                        let entry = data + 16 + file * 24;
                        let end = name + bytes[name..].iter().position(|b| *b == 0).unwrap();
                        let path = String::from_utf8_lossy(&bytes[name..end]).into_owned();
                        name = end + 1;
                        files.push((
                            word(entry),
                            word(entry + 8),
                            word(entry + 16) * page,
                            path.into(),
                        ));
                    }
                }
                at = data + (len as usize).next_multiple_of(4);
            }
        }
        let mut modules = Modules::new();
        let mut contents = Vec::new();
        let mut opened: HashMap<PathBuf, Option<Arc<Module>>> = HashMap::new();
        for (start, end, offset, path) in files {
            let module = opened.entry(path.clone()).or_insert_with(|| {
                Module::open(&path, &path, &DebugSearch::default())
                    .ok()
                    .map(Arc::new)
            });
            if let Ok(file) = std::fs::read(&path) {
                let from = (offset as usize).min(file.len());
                let to = (from + (end - start) as usize).min(file.len());
                contents.push((start, file[from..to].to_vec()));
            }
            if let Some(module) = module {
                let range = start..end;
                modules.map(module, &Mapping { range, offset });
            }
        }
        Core {
            bytes,
            memory,
            files: contents,
            registers: registers.unwrap(),
            fs_base,
            modules,
            calls: Vec::new(),
            answers: HashMap::new(),
        }
    }
}

impl Context for Core {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            let holds =
                |(start, _, size): &&(u64, usize, usize)| at >= *start && at - start < *size as u64;
            let Some((start, offset, size)) = self.memory.iter().find(holds) else {
                let holds = |(start, bytes): &&(u64, Vec<u8>)| {
                    at >= *start && at - start < bytes.len() as u64
                };
                let Some((start, bytes)) = self.files.iter().find(holds) else {
                    break;
                };
                let from = &bytes[(at - start) as usize..];
                let len = from.len().min(into.len() - done);
                into[done..done + len].copy_from_slice(&from[..len]);
                done += len;
                continue;
            };
            let skip = (at - start) as usize;
            let len = (size - skip).min(into.len() - done);
            let from = offset + skip;
            into[done..done + len].copy_from_slice(&self.bytes[from..from + len]);
            done += len;
        }
        done
    }

    fn registers(&mut self) -> Registers {
        self.registers.clone()
    }

    fn thread_pointer(&mut self) -> Option<u64> {
        Some(self.fs_base)
    }

    fn call(&mut self, function: u64, arguments: &[u64]) -> Result<Returned, String> {
        self.calls.push((function, arguments.to_vec()));
        let answer = self.answers.get(&function).cloned();
        answer.unwrap_or_else(|| Err("can't be called: this is a core file".into()))
    }

    fn place(&mut self, _: &[u8]) -> Result<u64, String> {
        Ok(0x1000)
    }
}
