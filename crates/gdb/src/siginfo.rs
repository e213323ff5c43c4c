//! What a signal told the program. In: an event of the log, or a fault. Out: a siginfo as the kernel's.

use clew_recording::event::{Event, Record, StreamId};
use clew_recording::reader::{ReadError, Recording};
use clew_timeline::Mapping;

const SIZE: usize = 128;
const ADDR: usize = 16;

/// The siginfo of the signal whose event follows so many others; `None` if it isn't written down.
pub fn recorded(
    recording: &Recording,
    stream: StreamId,
    after: u64,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut reader = recording.stream(stream)?;
    let mut number = 0;
    while let Some(record) = reader.next()? {
        let Record::Event(event) = record else {
            continue;
        };
        number += 1;
        if number <= after {
            continue;
        }
        match event {
            Event::Signal { info, .. } => {
                let mut info = info.to_vec();
                info.resize(SIZE, 0);
                return Ok(Some(info));
            }
            // They do nothing, and may lie in between.
            Event::Time(_)
            | Event::Note(_)
            | Event::Deadlock(_)
            | Event::Values(_)
            | Event::Check { .. } => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// That of a fault which killed: the log has its number, the rest can be told from memory.
pub fn of_fault(signo: i32, addr: u64, mappings: &[Mapping]) -> Vec<u8> {
    const SEGV_MAPERR: i32 = 1;
    const SEGV_ACCERR: i32 = 2;
    const SI_KERNEL: i32 = 0x80;
    const BUS_ADRERR: i32 = 2;
    const ILL_ILLOPN: i32 = 2;
    const FPE_INTDIV: i32 = 1;
    // Nothing can be mapped there; the CPU doesn't tell which address it was.
    let canonical = addr as i64 >> 47 == addr as i64 >> 63;
    let is_mapped = mappings.iter().any(|m| (m.start..m.end).contains(&addr));
    let (code, addr) = match signo {
        libc::SIGSEGV if !canonical => (SI_KERNEL, 0),
        libc::SIGSEGV if is_mapped => (SEGV_ACCERR, addr),
        libc::SIGSEGV => (SEGV_MAPERR, addr),
        libc::SIGBUS => (BUS_ADRERR, addr),
        libc::SIGILL => (ILL_ILLOPN, addr),
        libc::SIGFPE => (FPE_INTDIV, addr),
        _ => (SI_KERNEL, addr),
    };
    let mut info = vec![0; SIZE];
    info[..4].copy_from_slice(&signo.to_le_bytes());
    info[8..12].copy_from_slice(&code.to_le_bytes());
    info[ADDR..ADDR + 8].copy_from_slice(&addr.to_le_bytes());
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_knows_its_address() {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x2000,
            prot: 0,
            shared: false,
            name: String::new(),
            offset: 0,
            copy: None,
        };
        let told = |addr| {
            let info = of_fault(libc::SIGSEGV, addr, std::slice::from_ref(&mapping));
            (
                info[8],
                u64::from_le_bytes(info[16..24].try_into().unwrap()),
            )
        };
        assert_eq!(told(0), (1, 0));
        assert_eq!(told(0x1800), (2, 0x1800));
        assert_eq!(told(0xdead_0000_0000_0000), (0x80, 0));
    }
}
