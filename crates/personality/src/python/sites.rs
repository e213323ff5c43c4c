//! Where the interpreter's loop begins an instruction. In: the loop's machine code. Out: the stores of the new
//! instruction into the frame, and those of them at which a frame is entered.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::layout::Layout;
use crate::view::word;
use crate::{Result, View};

const LARGEST: u64 = 1 << 20;
/// A loop with fewer opcodes is none.
const FEWEST: usize = 100;
const OPCODES: usize = 256;
/// A store comes within so many bytes of the beginning of an opcode's code.
const NEAR: u64 = 64;
const LARGEST_DATA: u64 = 16 << 20;

pub struct Found {
    /// In order.
    pub all: Vec<u64>,
    /// At which a frame is entered.
    pub entries: Vec<u64>,
    /// Registers with the frame and the new instruction, as instructions number them.
    pub frame: u8,
    pub instruction: u8,
    evaluator: (u64, u64),
}

/// The stores with the pair of registers that most of them have.
pub fn find(view: &mut View, layout: &Layout, start: u64, size: u64) -> Result<Option<Found>> {
    let code = view.bytes(start, size.min(LARGEST) as usize)?;
    let mut decoder = Decoder::with_ip(64, &code, start, DecoderOptions::NONE);
    let mut stores: HashMap<(Register, Register), Vec<u64>> = HashMap::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let plain = instruction.code() == Code::Mov_rm64_r64
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_index() == Register::None
            && instruction.memory_base() != Register::RSP
            && instruction.memory_displacement64() == layout.instruction;
        if plain {
            let pair = (instruction.memory_base(), instruction.op1_register());
            stores.entry(pair).or_default().push(instruction.ip());
        }
    }
    let most = stores.into_iter().max_by_key(|(_, all)| all.len());
    let Some(((frame, instruction), mut all)) = most.filter(|(_, all)| all.len() >= FEWEST) else {
        return Ok(None);
    };
    all.sort_unstable();
    Ok(Some(Found {
        all,
        entries: Vec::new(),
        frame: frame.number() as u8,
        instruction: instruction.number() as u8,
        evaluator: (start, start + size),
    }))
}

impl Found {
    /// The table by which the loop jumps to an opcode's code tells where those begin that enter a frame. It is known by
    /// leading from the opcode that is executed here to this site.
    pub fn find_entries(&mut self, view: &mut View, layout: &Layout) -> Result<()> {
        let at = view.timeline.at();
        let words = view.registers(at.thread)?.words;
        let place = words[usize::from(self.instruction)];
        let opcode = view.bytes(place, 1)?[0];
        let Some(table) = self.table(view, opcode, at.pc)? else {
            return Ok(());
        };
        let entries = layout.opcodes.resume.iter();
        let mut entries: Vec<u64> = entries
            .filter_map(|&opcode| self.site_of(table[usize::from(opcode)]))
            .collect();
        entries.sort_unstable();
        entries.dedup();
        self.entries = entries;
        Ok(())
    }

    /// The site of the opcode whose code begins there.
    fn site_of(&self, code: u64) -> Option<u64> {
        let store = self.all.partition_point(|&site| site < code);
        let store = self.all.get(store).copied();
        store.filter(|store| store - code < NEAR)
    }

    /// As many addresses of the loop, one after the other, as there are opcodes; some of them are apart, where the
    /// compiler put what is seldom executed.
    fn table(&self, view: &mut View, opcode: u8, site: u64) -> Result<Option<Vec<u64>>> {
        let mappings = view.timeline.mappings()?;
        let own = mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&self.evaluator.0));
        let Some(text) = own.filter(|own| own.copy.is_some()) else {
            return Ok(None);
        };
        for mapping in &mappings {
            let length = mapping.end - mapping.start;
            if mapping.copy != text.copy || length > LARGEST_DATA {
                continue;
            }
            let bytes = view.bytes(mapping.start, length as usize)?;
            let words: Vec<u64> = (0..bytes.len())
                .step_by(8)
                .map(|at| word(&bytes, at))
                .collect();
            let (mut run, mut inside) = (0, 0);
            for (n, &word) in words.iter().enumerate() {
                let is_code = (text.start..text.end).contains(&word);
                let is_loop = |word: u64| self.evaluator.0 <= word && word < self.evaluator.1;
                run = if is_code { run + 1 } else { 0 };
                inside = match is_code {
                    true => inside + usize::from(is_loop(word)),
                    false => 0,
                };
                if run > OPCODES {
                    inside -= usize::from(is_loop(words[n - OPCODES]));
                }
                if run >= OPCODES && inside >= FEWEST {
                    let table = &words[n + 1 - OPCODES..=n];
                    if self.site_of(table[usize::from(opcode)]) == Some(site) {
                        return Ok(Some(table.to_vec()));
                    }
                }
            }
        }
        Ok(None)
    }
}
