//! Functions as graphs, from the program's files. In: addresses of code. Out: the function there, its blocks, and which
//! depend on which branch.
//!
//! Where indirect jumps lead is told by their tables, where these are found, and by every jump that was really made.
//! What the files don't have (generated code) has no graph.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use clew_symbols::Modules;
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Bits, Ways, dependents};

/// A function, by number.
pub type Id = u32;

/// All that is known of code.
pub struct Code {
    modules: Modules,
    /// Where indirect jumps lead is found out.
    jumps: bool,
    /// The dynamic linker's.
    linker: Option<Range<u64>>,
    functions: Vec<Function>,
    /// Pieces of code: their ends, and whose they are, by where they begin.
    pieces: BTreeMap<u64, (u64, Id)>,
    /// Pages on which nothing was found.
    unknown: FxHashSet<u64>,
    /// Addresses that were asked for last, with their functions, and their blocks.
    recent: Box<[(u64, Option<Id>)]>,
    recent_blocks: Box<[(u64, u32, Option<u32>)]>,
}

const RECENT: usize = 4096;

struct Function {
    entry: u64,
    /// Changes with each graph.
    version: u32,
    graph: Option<Graph>,
    /// Indirect jumps, and where they were seen to lead.
    jumps: FxHashMap<u64, BTreeSet<u64>>,
    stub: bool,
    only_moves: bool,
    starts: bool,
    library: bool,
    returns: Option<bool>,
}

/// A function's blocks.
struct Graph {
    /// Where they begin and end, in order.
    blocks: Vec<Range<u64>>,
    dependents: Vec<Option<Bits>>,
    returns: bool,
}

/// Functions that call the first one of a program or thread.
const STARTING: [&str; 7] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "__clone3",
];
/// Entries of a jump table, at most.
const LONGEST_TABLE: usize = 2048;
/// How far before a jump its table is looked for.
const TABLE_SEARCH: usize = 24;
/// Functions that are looked at to find out whether they return: those that only report an error are short.
const SMALL: u64 = 512;
const DEEPEST: u32 = 3;

impl Code {
    /// `jumps`: where indirect jumps lead is found out.
    pub fn new(modules: Modules, jumps: bool) -> Code {
        let of_linker = modules.images().iter().filter(|image| {
            let name = image.module.name().file_name();
            name.is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        });
        let linker = of_linker.map(|image| image.range.clone());
        let linker = linker.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        Code {
            modules,
            jumps,
            linker,
            functions: Vec::new(),
            pieces: BTreeMap::new(),
            unknown: FxHashSet::default(),
            recent: vec![(u64::MAX, None); RECENT].into(),
            recent_blocks: vec![(u64::MAX, 0, None); RECENT].into(),
        }
    }

    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The function around an address.
    pub fn function(&mut self, pc: u64) -> Option<Id> {
        let slot = pc as usize % RECENT;
        if self.recent[slot].0 != pc {
            self.recent[slot] = (pc, self.find(pc));
        }
        self.recent[slot].1
    }

    fn find(&mut self, pc: u64) -> Option<Id> {
        if let Some((_, &(end, id))) = self.pieces.range(..=pc).next_back()
            && pc < end
        {
            return Some(id);
        }
        if self.unknown.contains(&(pc >> 12)) {
            return None;
        }
        let Some((range, entry, stub)) = self.extent(pc) else {
            if self.modules.find(pc).is_none() {
                self.unknown.insert(pc >> 12);
            }
            return None;
        };
        let id = match entry {
            // A part of a function that lies elsewhere.
            Some(entry) if !range.contains(&entry) => self.function(entry),
            _ => None,
        };
        let id = id.unwrap_or_else(|| {
            let only_moves = self.is_named_for_moving(range.start);
            let library = self.is_of_system(range.start);
            let starts = self.name(range.start);
            let starts = starts.is_some_and(|name| STARTING.contains(&name.as_str()));
            self.functions.push(Function {
                entry: range.start,
                version: 0,
                graph: None,
                jumps: FxHashMap::default(),
                stub,
                only_moves,
                starts,
                library,
                returns: None,
            });
            self.functions.len() as Id - 1
        });
        self.pieces.insert(range.start, (range.end, id));
        Some(id)
    }

    /// The piece of code around an address, the entry of the function that it is a part of, if known, and whether it only leads
    /// to another function.
    fn extent(&self, pc: u64) -> Option<(Range<u64>, Option<u64>, bool)> {
        let image = self.modules.find(pc)?;
        let (module, local) = (&image.module, image.local(pc));
        let here = |range: Range<u64>| {
            range.start.wrapping_add(image.bias)..range.end.wrapping_add(image.bias)
        };
        let symbol = module.symbol_at(local).ok().flatten();
        if let Some(symbol) = &symbol
            && symbol.name.ends_with("@plt")
        {
            let size = symbol.size.max(1);
            return Some((here(symbol.address..symbol.address + size), None, true));
        }
        let range = module.extent(local).or_else(|| {
            let symbol = symbol.as_ref().filter(|symbol| symbol.size > 0)?;
            Some(symbol.address..symbol.address.checked_add(symbol.size)?)
        })?;
        // Unlikely parts are named after their function.
        let whole = symbol.as_ref().and_then(|symbol| {
            let (name, _) = symbol.name.split_once(".cold")?;
            let all = module.symbols_named(name).ok()?;
            let near = all
                .into_iter()
                .min_by_key(|other| other.address.abs_diff(range.start))?;
            Some(near.address.wrapping_add(image.bias))
        });
        // The table's first entry has no name.
        let table = symbol.is_none() && {
            let second = module.symbol_at(range.start + 16).ok().flatten();
            second.is_some_and(|symbol| symbol.name.ends_with("@plt"))
        };
        Some((here(range), whole, table))
    }

    /// Whether it only leads to a function of another file.
    pub fn is_stub(&self, id: Id) -> bool {
        self.functions[id as usize].stub
    }

    /// Whether it is the dynamic linker that puts something into a program's or library's file in memory: that is the
    /// same in all runs, and nobody asks for it.
    pub fn links(&self, pc: u64, addr: u64) -> bool {
        let linker = self.linker.as_ref();
        linker.is_some_and(|range| range.contains(&pc) && !range.contains(&addr))
            && self.modules.find(addr).is_some()
    }

    pub fn is_linker(&self, pc: u64) -> bool {
        self.linker
            .as_ref()
            .is_some_and(|range| range.contains(&pc))
    }

    /// Whether code only brings a program or a thread to its first function: what it decides on the way is of no
    /// interest.
    pub fn starts(&mut self, pc: u64) -> bool {
        if self.is_linker(pc) {
            return true;
        }
        let id = self.function(pc);
        id.is_some_and(|id| self.functions[id as usize].starts)
    }

    /// Whether what is there does nothing but move values from one place to the other: how it does that tells nobody
    /// anything.
    pub fn only_moves(&mut self, pc: u64) -> bool {
        let id = self.function(pc);
        id.is_some_and(|id| self.functions[id as usize].only_moves)
    }

    /// Whether it is in a library of the system.
    pub fn is_library(&mut self, pc: u64) -> bool {
        let id = self.function(pc);
        id.is_some_and(|id| self.functions[id as usize].library)
    }

    fn is_of_system(&self, pc: u64) -> bool {
        const FOLDERS: [&str; 5] = [
            "/lib/",
            "/lib64/",
            "/usr/lib/",
            "/usr/lib64/",
            "/usr/local/lib/",
        ];
        let image = self.modules.find(pc);
        image.is_some_and(|image| {
            let name = image.module.name();
            let library = FOLDERS.iter().any(|folder| name.starts_with(folder));
            let shared = name.to_string_lossy().contains(".so");
            library && shared || name.starts_with("[vdso]")
        })
    }

    /// Changes when blocks may have other numbers than before.
    pub fn version(&self, id: Id) -> u32 {
        self.functions[id as usize].version
    }

    /// The number of the block around an address; none if it isn't among what is known of the function.
    pub fn block(&mut self, id: Id, pc: u64) -> Option<u32> {
        self.graph(id);
        let (slot, version) = (pc as usize % RECENT, self.version(id));
        let recent = self.recent_blocks[slot];
        if (recent.0, recent.1) != (pc, version) {
            self.recent_blocks[slot] = (pc, version, self.find_block(id, pc));
        }
        self.recent_blocks[slot].2
    }

    fn find_block(&mut self, id: Id, pc: u64) -> Option<u32> {
        let graph = self.graph(id);
        let at = graph.blocks.partition_point(|block| block.start <= pc);
        let at = at.checked_sub(1)?;
        graph.blocks[at].contains(&pc).then_some(at as u32)
    }

    /// Where a block is.
    pub fn extent_of(&mut self, id: Id, block: u32) -> Option<Range<u64>> {
        self.graph(id).blocks.get(block as usize).cloned()
    }

    /// The blocks that depend on where this one goes.
    pub fn dependents(&mut self, id: Id, block: u32) -> Option<&Bits> {
        self.graph(id).dependents.get(block as usize)?.as_ref()
    }

    /// An indirect jump was seen to lead there.
    pub fn jumped(&mut self, id: Id, from: u64, to: u64) {
        if !self.jumps {
            return;
        }
        let function = &mut self.functions[id as usize];
        if function.jumps.entry(from).or_default().insert(to)
            && self.block_starting(id, from, to).is_none()
        {
            self.functions[id as usize].graph = None;
        }
    }

    /// Whether a graph is there, and has a way from a jump to a block's beginning.
    fn block_starting(&mut self, id: Id, from: u64, to: u64) -> Option<()> {
        self.functions[id as usize].graph.as_ref()?;
        let known = self.table_targets(id, from).contains(&to);
        known.then_some(())
    }

    fn graph(&mut self, id: Id) -> &Graph {
        self.graph_within(id, 0)
    }

    fn graph_within(&mut self, id: Id, depth: u32) -> &Graph {
        if self.functions[id as usize].graph.is_none() {
            // Whoever asks while it is being made gets nothing of it.
            let graph = Builder::new(self, id, depth).build();
            let function = &mut self.functions[id as usize];
            function.version += 1;
            function.returns = Some(graph.returns);
            function.graph = Some(graph);
        }
        self.functions[id as usize]
            .graph
            .as_ref()
            .expect("just made")
    }

    /// Whether a call of what is there comes back.
    fn returns(&mut self, target: u64, depth: u32) -> bool {
        if self.is_named_for_leaving(target) {
            return false;
        }
        let Some(id) = self.function(target) else {
            return true;
        };
        let function = &mut self.functions[id as usize];
        if let Some(returns) = function.returns {
            return returns;
        }
        let small = self.pieces.get(&target);
        let small = small.is_some_and(|(end, _)| end - target <= SMALL);
        if depth >= DEEPEST || !small || function.stub || function.entry != target {
            return true;
        }
        // A call of itself returns if it does.
        function.returns = Some(true);
        self.graph_within(id, depth + 1).returns
    }

    fn name(&self, pc: u64) -> Option<String> {
        let image = self.modules.find(pc)?;
        let symbol = image.module.symbol_at(image.local(pc)).ok().flatten()?;
        let name = symbol.name.strip_suffix("@plt").unwrap_or(&symbol.name);
        Some(name.into())
    }

    fn is_named_for_moving(&self, entry: u64) -> bool {
        let Some(name) = self.name(entry) else {
            return false;
        };
        const MOVING: [&str; 8] = [
            "memcpy", "memmove", "mempcpy", "memset", "strcpy", "strncpy", "stpcpy", "stpncpy",
        ];
        let name = name.trim_start_matches('_');
        MOVING.iter().any(|moving| {
            let rest = name.strip_prefix(moving);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    }

    fn is_named_for_leaving(&self, target: u64) -> bool {
        let Some(name) = self.name(target) else {
            return false;
        };
        let name = name.as_str();
        const LEAVING: [&str; 27] = [
            "abort",
            "exit",
            "_exit",
            "_Exit",
            "quick_exit",
            "pthread_exit",
            "thrd_exit",
            "__assert_fail",
            "__assert",
            "__assert_perror_fail",
            "__stack_chk_fail",
            "__chk_fail",
            "__fortify_fail",
            "__libc_fatal",
            "longjmp",
            "siglongjmp",
            "_longjmp",
            "__longjmp_chk",
            "_Unwind_Resume",
            "__cxa_throw",
            "__cxa_rethrow",
            "__cxa_bad_cast",
            "__cxa_throw_bad_array_new_length",
            "_ZSt9terminatev",
            "err",
            "errx",
            "__libc_start_call_main",
        ];
        LEAVING.contains(&name)
            || name.starts_with("_ZSt") && name.contains("__throw_")
            || name.contains("core9panicking")
            || name.contains("unwrap_failed")
            || name.contains("expect_failed")
    }

    fn bytes(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let image = self.modules.find(range.start)?;
        let len = range.end.checked_sub(range.start)?;
        let start = image.local(range.start);
        image.module.bytes(start..start.checked_add(len)?)
    }

    /// Where the table of an indirect jump leads, by its code.
    fn table_targets(&mut self, id: Id, jump: u64) -> Vec<u64> {
        if !self.jumps {
            return Vec::new();
        }
        let Some((&start, &(end, _))) = self.pieces.range(..=jump).next_back() else {
            return Vec::new();
        };
        let Some(bytes) = self.bytes(start..end) else {
            return Vec::new();
        };
        let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
        let mut before: Vec<Instruction> = Vec::new();
        while decoder.can_decode() && decoder.ip() <= jump {
            before.push(decoder.decode());
        }
        match before.last() {
            Some(last) if last.ip() == jump => self.table(id, &before),
            _ => Vec::new(),
        }
    }

    /// Where a jump, the last of some instructions, leads by its table: `jmp [table + index * 8]`, or offsets from the table,
    /// `movsxd r, [table + index * 4]; add r, table; jmp r`.
    fn table(&mut self, id: Id, before: &[Instruction]) -> Vec<u64> {
        let Some((jump, before)) = before.split_last() else {
            return Vec::new();
        };
        let near = &before[before.len().saturating_sub(TABLE_SEARCH)..];
        let address_in = |register: Register, before: &[Instruction]| {
            let lea = before.iter().rev().find(|ins| {
                ins.op_count() > 0
                    && ins.op0_kind() == OpKind::Register
                    && ins.op0_register().full_register() == register
            })?;
            let known = lea.mnemonic() == Mnemonic::Lea && lea.is_ip_rel_memory_operand();
            known.then(|| lea.ip_rel_memory_address())
        };
        if jump.op0_kind() == OpKind::Memory {
            let absolute = jump.memory_base() == Register::None && jump.memory_index_scale() == 8;
            let table = match absolute {
                true => Some(jump.memory_displacement64()),
                false if jump.memory_index_scale() == 8 => address_in(jump.memory_base(), near)
                    .map(|table| table.wrapping_add(jump.memory_displacement64())),
                false => None,
            };
            return table.map_or(Vec::new(), |table| self.entries(id, table, 8));
        }
        let Some(load) = near.iter().rposition(|ins| {
            ins.code() == Opcode::Movsxd_r64_rm32 && ins.memory_index_scale() == 4
        }) else {
            return Vec::new();
        };
        let base = near[load].memory_base();
        let table = address_in(base, &near[..load]);
        table.map_or(Vec::new(), |table| self.entries(id, table, 4))
    }

    /// Entries of a table, as far as they lie in the function.
    fn entries(&mut self, id: Id, table: u64, size: u64) -> Vec<u64> {
        let mut all = Vec::new();
        while all.len() < LONGEST_TABLE {
            let at = table + all.len() as u64 * size;
            let Some(bytes) = self.bytes(at..at + size) else {
                break;
            };
            let target = match size {
                4 => {
                    let offset = i32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                    table.wrapping_add_signed(offset.into())
                }
                _ => u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            };
            if self.function(target) != Some(id) {
                break;
            }
            all.push(target);
        }
        all
    }
}

/// A graph under construction.
struct Builder<'a> {
    code: &'a mut Code,
    id: Id,
    depth: u32,
    found: BTreeMap<u64, Found>,
}

/// An instruction of a function.
struct Found {
    next: u64,
    /// None goes on at the next.
    leads: Option<Leads>,
}

#[derive(Default)]
struct Leads {
    to: Vec<u64>,
    out: bool,
}

impl<'a> Builder<'a> {
    fn new(code: &'a mut Code, id: Id, depth: u32) -> Builder<'a> {
        Builder {
            code,
            id,
            depth,
            found: BTreeMap::new(),
        }
    }

    fn build(mut self) -> Graph {
        let function = &self.code.functions[self.id as usize];
        let mut work = vec![function.entry];
        let mut heads: BTreeSet<u64> = work.iter().copied().collect();
        let mut returns = false;
        while let Some(pc) = work.pop() {
            let to = self.decode_from(pc, &mut returns);
            heads.extend(&to);
            work.extend(to);
        }
        self.graph(&heads, returns)
    }

    /// Decodes up to a branch, or what is known; where that may go on.
    fn decode_from(&mut self, pc: u64, returns: &mut bool) -> Vec<u64> {
        if self.found.contains_key(&pc) || self.code.function(pc) != Some(self.id) {
            return Vec::new();
        }
        let piece = self.code.pieces.range(..=pc).next_back();
        let end = piece.map_or(pc, |(_, (end, _))| *end);
        let Some(bytes) = self.code.bytes(pc..end) else {
            return Vec::new();
        };
        let mut decoder = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE);
        let mut before = Vec::new();
        while decoder.can_decode() {
            let ins = decoder.decode();
            if ins.is_invalid() || self.found.contains_key(&ins.ip()) {
                break;
            }
            before.push(ins);
            let leads = self.leads(&before, returns);
            let to = leads.as_ref().map(|leads| leads.to.clone());
            let found = Found {
                next: ins.next_ip(),
                leads,
            };
            self.found.insert(ins.ip(), found);
            if let Some(to) = to {
                return to;
            }
        }
        Vec::new()
    }

    /// Whether it is another function's beginning: a jump there is a call.
    fn is_elsewhere(&mut self, target: u64) -> bool {
        self.code.function(target) != Some(self.id)
    }

    fn leads(&mut self, before: &[Instruction], returns: &mut bool) -> Option<Leads> {
        let ins = before.last()?;
        let mut leads = Leads::default();
        match ins.flow_control() {
            FlowControl::ConditionalBranch => {
                leads.to.push(ins.next_ip());
                match self.is_elsewhere(ins.near_branch_target()) {
                    true => leads.out = true,
                    false => leads.to.push(ins.near_branch_target()),
                }
            }
            FlowControl::UnconditionalBranch => match self.is_elsewhere(ins.near_branch_target()) {
                true => {
                    leads.out = true;
                    let target = ins.near_branch_target();
                    *returns |= self.code.returns(target, self.depth);
                }
                false => leads.to.push(ins.near_branch_target()),
            },
            FlowControl::IndirectBranch => self.indirect(before, &mut leads, returns),
            FlowControl::Return => {
                leads.out = true;
                *returns = true;
            }
            FlowControl::Call if ins.op0_kind() != OpKind::Memory => {
                if ins.mnemonic() != Mnemonic::Call
                    || self.code.returns(ins.near_branch_target(), self.depth)
                {
                    return None;
                }
                leads.out = true;
            }
            FlowControl::Exception => leads.out = true,
            FlowControl::Next
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend => return None,
        }
        Some(leads)
    }

    /// By its table, and by where it was seen to lead. Where both tell little, it may lead anywhere.
    fn indirect(&mut self, before: &[Instruction], leads: &mut Leads, returns: &mut bool) {
        let jump = before[before.len() - 1].ip();
        leads.to = self.code.table(self.id, before);
        if leads.to.is_empty() {
            // What the jump's block doesn't tell, the code before it may.
            leads.to = self.code.table_targets(self.id, jump);
        }
        let by_table = !leads.to.is_empty();
        let seen = self.code.functions[self.id as usize].jumps.get(&jump);
        let seen: Vec<u64> = seen.into_iter().flatten().copied().collect();
        for target in seen {
            match self.is_elsewhere(target) {
                true => leads.out = true,
                false => leads.to.push(target),
            }
        }
        leads.to.sort_unstable();
        leads.to.dedup();
        leads.out |= !by_table && leads.to.len() < 2;
        *returns |= leads.out;
    }

    fn graph(self, heads: &BTreeSet<u64>, returns: bool) -> Graph {
        let mut blocks: Vec<Range<u64>> = Vec::new();
        let mut last: Vec<u64> = Vec::new();
        for (&pc, found) in &self.found {
            let goes_on = blocks.last().zip(last.last()).is_some_and(|(block, last)| {
                block.end == pc && self.found[last].leads.is_none() && !heads.contains(&pc)
            });
            match goes_on {
                true => {
                    blocks.last_mut().expect("there is one").end = found.next;
                    *last.last_mut().expect("there is one") = pc;
                }
                false => {
                    blocks.push(pc..found.next);
                    last.push(pc);
                }
            }
        }
        let number = |pc: u64| {
            let at = blocks.binary_search_by_key(&pc, |block| block.start);
            at.ok().map(|at| at as u32)
        };
        let ways = last.iter().map(|last| {
            let found = &self.found[last];
            match &found.leads {
                Some(leads) => Ways {
                    blocks: leads.to.iter().filter_map(|to| number(*to)).collect(),
                    out: leads.out,
                },
                None => Ways {
                    blocks: number(found.next).into_iter().collect(),
                    out: false,
                },
            }
        });
        let ways: Vec<Ways> = ways.collect();
        Graph {
            dependents: dependents(&ways),
            blocks,
            returns,
        }
    }
}
