//! Memory for a call that a proxy makes while other guest threads run.
//!
//! In: a call with its arguments. Out: arguments that point into memory of the engine's, where
//! everything that the kernel reads was copied when the call was made. What it has written there
//! goes to the guest in the thread's own turn. So a waiting call touches guest memory at two
//! moments that a recording knows, and never in between.

use std::alloc::Layout;
use std::sync::{Mutex, PoisonError};

use super::outputs::{self, MAX_TRANSFER, Query};
use super::requests;
use super::table::{Arg, Args, Call, Len};
use crate::executor::Executor;
use crate::guest::access;
use crate::memory::Memory;
use crate::sys::{err, is_err};

/// While nothing is recorded, larger transfers go straight to the guest: copying them would only
/// cost time.
const LIVE_MOST: u64 = 16 << 10;
/// Control data of a message, and strings: more is the kernel's to refuse.
const MOST_CONTROL: u64 = 1 << 20;
const MOST_STRING: usize = 4096;
const MOST_ADDRESS: u64 = 128;
const MSG_ZEROCOPY: u64 = 0x400_0000;
const ALIGN: u64 = 64;

/// The call can't be made with other memory than the guest's.
struct Direct;

pub struct Scratch {
    call: &'static Call,
    args: Args,
    block: Block,
    parts: Vec<Part>,
}

/// A piece of the block that stands for guest memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    len: u64,
    guest: u64,
    fill: Fill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// With the guest's bytes.
    Copy,
    /// Not at all: the kernel writes all that is given back.
    Nothing,
}

/// A pointer to be set once the block has an address.
struct Pointer {
    place: Place,
    to: u64,
}

#[derive(Clone, Copy)]
enum Place {
    Arg(usize),
    Offset(u64),
}

impl Scratch {
    /// Takes what the call needs; `None` if the guest's own memory must do, either because the
    /// kernel refers to it beyond the call, or because it isn't all accessible (then the kernel
    /// finds out at the right moment).
    pub fn take(ex: &Executor, call: &'static Call, args: &Args) -> Option<Scratch> {
        let mut plan = Plan {
            memory: &ex.memory,
            call,
            args: *args,
            size: 0,
            parts: Vec::new(),
            pointers: Vec::new(),
            strings: Vec::new(),
        };
        plan.arguments().ok()?;
        if plan.parts.is_empty() {
            return None;
        }
        if plan.size > LIVE_MOST && !ex.recording() {
            return None;
        }
        plan.build()
    }

    /// All guest memory that the kernel reads or writes for the call, as far as it can be told.
    pub fn ranges(ex: &Executor, call: &'static Call, args: &Args) -> Vec<(u64, u64)> {
        let mut plan = Plan {
            memory: &ex.memory,
            call,
            args: *args,
            size: 0,
            parts: Vec::new(),
            pointers: Vec::new(),
            strings: Vec::new(),
        };
        // What couldn't be copied is left to the kernel.
        let _ = plan.arguments();
        plan.parts
            .iter()
            .map(|part| (part.guest, part.len))
            .collect()
    }

    /// The arguments for the kernel.
    pub fn args(&self) -> Args {
        self.args
    }

    /// Gives the guest what the kernel has written; returns the guest's result.
    pub fn give_back(self, ex: &mut Executor, ret: i64) -> i64 {
        let peek = &|addr: u64, into: &mut [u8]| self.peek(addr, into);
        let query = Query {
            call: self.call,
            args: &self.args,
            ret: Some(ret),
            peek,
            exact: true,
        };
        let mut fault = false;
        query.each(&mut |addr, len| {
            if let Some((guest, bytes)) = self.written(addr, len) {
                fault |= ex.write_guest(guest, bytes).is_err();
            }
        });
        if fault && !is_err(ret) {
            err(libc::EFAULT)
        } else {
            ret
        }
    }

    fn peek(&self, addr: u64, into: &mut [u8]) -> bool {
        match self.bytes(addr, into.len() as u64) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => access::read_bytes(addr, into).is_ok(),
        }
    }

    fn bytes(&self, addr: u64, len: u64) -> Option<&[u8]> {
        let offset = addr.checked_sub(self.block.addr())?;
        let inside = offset.checked_add(len)? <= self.block.len();
        // SAFETY: the range lies in the block, and no kernel thread writes to it any more.
        inside.then(|| unsafe {
            std::slice::from_raw_parts(self.block.at.add(offset as usize), len as usize)
        })
    }

    /// Where a written range of the block belongs, and its bytes; a length that the kernel gave
    /// may be longer than the memory it had.
    fn written(&self, addr: u64, len: u64) -> Option<(u64, &[u8])> {
        let offset = addr.checked_sub(self.block.addr())?;
        let part = self
            .parts
            .iter()
            .find(|part| (part.offset..part.offset + part.len).contains(&offset))?;
        let inside = offset - part.offset;
        let bytes = self.bytes(addr, len.min(part.len - inside))?;
        Some((part.guest + inside, bytes))
    }
}

/// What is to be put where, before there is any memory for it.
struct Plan<'a> {
    memory: &'a Memory,
    call: &'static Call,
    args: Args,
    size: u64,
    parts: Vec<Part>,
    pointers: Vec<Pointer>,
    strings: Vec<(u64, Vec<u8>)>,
}

impl Plan<'_> {
    fn arguments(&mut self) -> Result<(), Direct> {
        let nr = self.call.nr as i64;
        let pinned = match nr {
            // The address itself is what counts.
            libc::SYS_futex => true,
            libc::SYS_sendto | libc::SYS_sendmmsg => self.args[3] & MSG_ZEROCOPY != 0,
            libc::SYS_sendmsg => self.args[2] & MSG_ZEROCOPY != 0,
            // The pipe keeps the pages.
            libc::SYS_vmsplice => outputs::is_write_end(self.args[0] as i32),
            _ => false,
        };
        if pinned {
            return Err(Direct);
        }
        for (i, kind) in self.call.args.iter().enumerate() {
            let addr = self.args[i];
            if addr == 0 {
                continue;
            }
            let place = Place::Arg(i);
            match *kind {
                Arg::Int | Arg::Hex | Arg::Fd | Arg::At | Arg::Addr => {}
                Arg::In(len) => {
                    let len = self.length(len, addr);
                    self.input(place, addr, len)?;
                }
                Arg::Out(len) | Arg::Both(len) | Arg::OutAlways(len) | Arg::BothAlways(len) => {
                    self.output(place, addr, len)?
                }
                Arg::Left => self.copied_output(place, addr, 16)?,
                Arg::Polls(count) => {
                    let len = u64::from(self.args[count as usize] as u32) * 8;
                    self.copied_output(place, addr, len)?;
                }
                Arg::Str => self.string(place, addr)?,
                Arg::IovIn(count) => self.vectors(place, addr, self.args[count as usize], false)?,
                Arg::IovOut(count) | Arg::IovBoth(count) => {
                    self.vectors(place, addr, self.args[count as usize], true)?;
                }
                Arg::MsgIn => self.message(place, addr, false)?,
                Arg::MsgOut => self.message(place, addr, true)?,
                Arg::MmsgIn(count) => self.messages(place, addr, count, false)?,
                Arg::MmsgOut(count) => self.messages(place, addr, count, true)?,
                Arg::By(_) => {
                    let len = requests::reads(nr, &self.args);
                    if len != 0 {
                        self.input(place, addr, len)?;
                    }
                }
                Arg::Strs => return Err(Direct),
            }
        }
        Ok(())
    }

    fn length(&self, len: Len, addr: u64) -> u64 {
        let peek = &|addr: u64, into: &mut [u8]| access::read_bytes(addr, into).is_ok();
        let query = Query {
            call: self.call,
            args: &self.args,
            ret: None,
            peek,
            exact: true,
        };
        query.length(len, addr)
    }

    /// Room in the block, with a pointer to it in `place`.
    fn room(&mut self, place: Place, guest: u64, len: u64, fill: Fill) -> Result<u64, Direct> {
        let offset = self.size.next_multiple_of(ALIGN);
        self.size = offset + len;
        if self.size > 2 * MAX_TRANSFER {
            return Err(Direct);
        }
        self.parts.push(Part {
            offset,
            len,
            guest,
            fill,
        });
        self.pointers.push(Pointer { place, to: offset });
        Ok(offset)
    }

    /// What the kernel only reads isn't given back: it never says that it wrote there.
    fn input(&mut self, place: Place, addr: u64, len: u64) -> Result<(), Direct> {
        let len = len.min(MAX_TRANSFER);
        if len == 0 {
            return Ok(());
        }
        self.room(place, addr, len, Fill::Copy).map(drop)
    }

    fn copied_output(&mut self, place: Place, addr: u64, len: u64) -> Result<(), Direct> {
        if len == 0 {
            return Ok(());
        }
        if self.writable(addr, len) < len {
            return Err(Direct);
        }
        self.room(place, addr, len, Fill::Copy).map(drop)
    }

    fn output(&mut self, place: Place, addr: u64, len: Len) -> Result<(), Direct> {
        let all = self.length(len, addr);
        // Where the result says how much was written, nothing else is given back; and a buffer
        // that isn't all there may be taken as a shorter one.
        let (count, unit) = match len {
            Len::Ret(i) => (i, 1),
            Len::RetItems(i, size) => (i, u64::from(size)),
            _ => return self.copied_output(place, addr, all),
        };
        if all == 0 {
            return Ok(());
        }
        let there = self.writable(addr, all);
        let items = there / unit;
        if items == 0 {
            return Err(Direct);
        }
        if there < all {
            self.args[count as usize] = items;
        }
        self.room(place, addr, items * unit, Fill::Nothing)
            .map(drop)
    }

    fn string(&mut self, place: Place, addr: u64) -> Result<(), Direct> {
        let mut text = access::read_cstr(addr, MOST_STRING).map_err(|_| Direct)?;
        if text.len() == MOST_STRING {
            return Err(Direct);
        }
        text.push(0);
        let offset = self.room(place, addr, text.len() as u64, Fill::Nothing)?;
        self.strings.push((offset, text));
        Ok(())
    }

    /// An array of iovec and what it points to.
    fn vectors(&mut self, place: Place, array: u64, count: u64, out: bool) -> Result<(), Direct> {
        if count == 0 {
            return Ok(());
        }
        if count > libc::UIO_MAXIOV as u64 {
            return Err(Direct);
        }
        // The array itself is never written, so it is no part: only its copy is changed.
        let offset = self.room(place, array, count * 16, Fill::Copy)?;
        let mut left = MAX_TRANSFER;
        for k in 0..count {
            let [base, len] = access::read::<[u64; 2]>(array + k * 16).map_err(|_| Direct)?;
            if len as i64 <= 0 {
                // Nothing, or an error that the kernel finds.
                continue;
            }
            let wanted = len.min(left);
            left -= wanted;
            if wanted == 0 {
                continue;
            }
            let at = Place::Offset(offset + k * 16);
            if !out {
                self.input(at, base, wanted)?;
            } else if self.writable(base, wanted) == wanted {
                self.room(at, base, wanted, Fill::Nothing)?;
            } else {
                return Err(Direct);
            }
        }
        Ok(())
    }

    fn message(&mut self, place: Place, addr: u64, out: bool) -> Result<(), Direct> {
        let offset = self.room(place, addr, 56, Fill::Copy)?;
        self.message_at(offset, addr, out)
    }

    /// The parts of a msghdr whose copy is at `offset`.
    fn message_at(&mut self, offset: u64, addr: u64, out: bool) -> Result<(), Direct> {
        let [name, name_len, iov, iov_len, control, control_len, _] =
            access::read::<[u64; 7]>(addr).map_err(|_| Direct)?;
        let name_len = name_len as i32;
        if name_len < 0 || control_len > MOST_CONTROL {
            return Err(Direct);
        }
        let place = |field: u64| Place::Offset(offset + field);
        if name != 0 {
            let len = (name_len as u64).min(MOST_ADDRESS);
            self.either(place(0), name, len, out)?;
        }
        if iov != 0 {
            self.vectors(place(16), iov, iov_len, out)?;
        }
        if control != 0 {
            self.either(place(32), control, control_len, out)?;
        }
        Ok(())
    }

    fn either(&mut self, place: Place, addr: u64, len: u64, out: bool) -> Result<(), Direct> {
        if out {
            self.copied_output(place, addr, len)
        } else {
            self.input(place, addr, len)
        }
    }

    fn messages(&mut self, place: Place, array: u64, count: u8, out: bool) -> Result<(), Direct> {
        let count = u64::from(self.args[count as usize] as u32).min(libc::UIO_MAXIOV as u64);
        if count == 0 {
            return Ok(());
        }
        // Lengths come back in both directions.
        if self.writable(array, count * 64) < count * 64 {
            return Err(Direct);
        }
        let offset = self.room(place, array, count * 64, Fill::Copy)?;
        for k in 0..count {
            self.message_at(offset + k * 64, array + k * 64, out)?;
        }
        Ok(())
    }

    /// How much of a range the guest may write, from its begin.
    fn writable(&self, addr: u64, len: u64) -> u64 {
        let Some(end) = addr.checked_add(len) else {
            return 0;
        };
        let mut at = addr;
        while at < end {
            match self.memory.find(at) {
                Some(mapping) if mapping.can(libc::PROT_WRITE) => at = mapping.end,
                _ => break,
            }
        }
        at.min(end) - addr
    }

    fn build(self) -> Option<Scratch> {
        let block = Block::new(self.size)?;
        for part in self.parts.iter().filter(|part| part.fill == Fill::Copy) {
            access::read_bytes(part.guest, block.room(part.offset, part.len)).ok()?;
        }
        for (offset, text) in &self.strings {
            block.room(*offset, text.len() as u64).copy_from_slice(text);
        }
        let mut args = self.args;
        for pointer in &self.pointers {
            let to = block.addr() + pointer.to;
            match pointer.place {
                Place::Arg(i) => args[i] = to,
                Place::Offset(at) => block.room(at, 8).copy_from_slice(&to.to_le_bytes()),
            }
        }
        Some(Scratch {
            call: self.call,
            args,
            block,
            parts: self.parts,
        })
    }
}

/// Memory that stays where it is until nobody needs it any more. Its contents are arbitrary at
/// first, and large blocks take real memory only where they are used.
struct Block {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: nobody but its owner knows the address.
unsafe impl Send for Block {}

/// Blocks for the next calls: giving their pages back to the kernel each time and getting new ones
/// costs far more than the copying.
static SPARE: Mutex<Vec<Block>> = Mutex::new(Vec::new());
const MOST_SPARE: usize = 8;
const LARGEST_SPARE: u64 = 1 << 20;

impl Block {
    fn new(len: u64) -> Option<Block> {
        let len = if len <= LARGEST_SPARE {
            len.next_power_of_two().max(4096)
        } else {
            len
        };
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = spare.iter().position(|block| block.len() == len) {
            return Some(spare.swap_remove(at));
        }
        drop(spare);
        let layout = Layout::from_size_align(len as usize, ALIGN as usize).ok()?;
        // SAFETY: the size isn't 0.
        let at = unsafe { std::alloc::alloc(layout) };
        (!at.is_null()).then_some(Block { at, layout })
    }

    fn addr(&self) -> u64 {
        self.at as u64
    }

    fn len(&self) -> u64 {
        self.layout.size() as u64
    }

    /// A part of it, to be filled before the kernel gets it.
    #[expect(
        clippy::mut_from_ref,
        reason = "one at a time, while the block is built"
    )]
    fn room(&self, offset: u64, len: u64) -> &mut [u8] {
        assert!(offset + len <= self.len(), "outside of the scratch block");
        // SAFETY: inside the block; bytes have no invalid values, and nobody else uses them yet.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(offset as usize), len as usize) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if self.len() <= LARGEST_SPARE && spare.len() < MOST_SPARE {
            return spare.push(Block { ..*self });
        }
        // SAFETY: allocated with this layout; the call that used it has ended.
        unsafe { std::alloc::dealloc(self.at, self.layout) };
    }
}
