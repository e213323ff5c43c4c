//! Thread-local variables. In: `qGetTLSAddr`, and where glibc says how its structures are laid out. Out: an
//! address.
//!
//! A module's block is in the thread's vector of blocks (the dtv, which the ABI fixes), by the module's
//! number; only where the loader keeps that number differs from version to version, and glibc has a
//! constant for debuggers that tells.

use crate::Result;
use crate::hex;
use crate::ids::{Id, Which};
use crate::session::{Answer, FAILED, Session};

/// Three numbers: bits, elements, and where it is in the loader's entry of a library.
const MODULE_NUMBER: &str = "_thread_db_link_map_l_tls_modid";
const FS_BASE: usize = 18;
/// Of the thread's own block, at its fs base.
const VECTOR: u64 = 8;
/// Of one element of the vector.
const ELEMENT: u64 = 16;
/// The block is made when it is first used, which wasn't yet.
const NOT_YET: u64 = u64::MAX;

impl Session<'_> {
    /// `qSymbol:value:name`: gdb has loaded symbols, or tells the one that it was asked for.
    pub(crate) fn symbol(&mut self, rest: &[u8]) -> Result<Answer> {
        let name = hex::text(MODULE_NUMBER.as_bytes());
        let mut parts = rest.splitn(2, |&byte| byte == b':');
        let value = parts.next().and_then(hex::number);
        let told = parts.next() == Some(name.as_bytes());
        if self.module_number.is_none() && !told {
            return Ok(Answer::Reply(format!("qSymbol:{name}").into_bytes()));
        }
        if let (true, Some(addr)) = (told, value) {
            let mut numbers = [0; 12];
            // Known by its address: the library may not be mapped here, or not yet be relocated.
            if self.read_exactly(addr, &mut numbers) {
                let [_, _, offset] = [0, 4, 8]
                    .map(|n| u32::from_le_bytes(std::array::from_fn(|byte| numbers[n + byte])));
                self.module_number = Some(u64::from(offset));
            }
        }
        Ok("OK".into())
    }

    /// `qGetTLSAddr:thread,offset,entry`, what is behind the colon.
    pub(crate) fn thread_local(&mut self, rest: &[u8]) -> Result<Answer> {
        let Some((id, (offset, entry))) = rest
            .iter()
            .position(|&byte| byte == b',')
            .and_then(|at| Some((Id::parse(&rest[..at])?, hex::pair(&rest[at + 1..], b',')?)))
        else {
            return Ok(FAILED.into());
        };
        let thread = match id.tid {
            Which::One(tid) => self.number_of(tid)?,
            _ => Some(self.meant()?),
        };
        let registers = match thread {
            Some(thread) => self.registers(thread)?,
            None => None,
        };
        let found = registers.and_then(|registers| {
            let number = self.word(entry.checked_add(self.module_number?)?)?;
            let vector = self.word(registers.words[FS_BASE].checked_add(VECTOR)?)?;
            let element = vector.checked_add(number.checked_mul(ELEMENT)?)?;
            let block = self.word(element).filter(|&block| block != NOT_YET);
            match number {
                0 => None,
                _ => block?.checked_add(offset),
            }
        });
        Ok(found.map_or(FAILED.into(), |addr| {
            Answer::Reply(format!("{addr:x}").into_bytes())
        }))
    }

    fn word(&mut self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read_exactly(addr, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }
}
