//! Stand-in: access to guest memory without fault tolerance.
use crate::layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

fn check(addr: u64, len: usize) -> Result<(), Fault> {
    if layout::is_guest(addr, len as u64) {
        Ok(())
    } else {
        Err(Fault)
    }
}

pub fn read<T: Copy>(addr: u64) -> Result<T, Fault> {
    check(addr, size_of::<T>())?;
    // SAFETY: stand-in; trusts the guest's pointer.
    Ok(unsafe { (addr as *const T).read_unaligned() })
}

pub fn write<T: Copy>(addr: u64, value: &T) -> Result<(), Fault> {
    check(addr, size_of::<T>())?;
    // SAFETY: stand-in; trusts the guest's pointer.
    unsafe { (addr as *mut T).write_unaligned(*value) };
    Ok(())
}

pub fn read_bytes(addr: u64, into: &mut [u8]) -> Result<(), Fault> {
    check(addr, into.len())?;
    // SAFETY: stand-in; trusts the guest's pointer.
    unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, into.as_mut_ptr(), into.len()) };
    Ok(())
}

pub fn write_bytes(addr: u64, from: &[u8]) -> Result<(), Fault> {
    check(addr, from.len())?;
    // SAFETY: stand-in; trusts the guest's pointer.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), addr as *mut u8, from.len()) };
    Ok(())
}

pub fn read_cstr(addr: u64, max: usize) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    while text.len() < max {
        match read::<u8>(addr + text.len() as u64)? {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}
