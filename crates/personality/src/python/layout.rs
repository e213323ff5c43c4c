//! Where CPython keeps things. In: its version. Out: offsets into its structures, and the opcodes that matter.
//!
//! Taken from the headers of each version. Nothing is believed before `Python::recognise` has compared it with
//! objects of the recorded interpreter.

/// Offsets in bytes.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `_PyRuntime` to the first interpreter.
    pub interpreters: u64,
    /// An interpreter to its first thread state, its flags that ask threads to stop.
    pub threads: u64,
    /// What makes the interpreter's loop look up, and a request for its lock: in the interpreter, or in the thread state.
    pub breaker: Breaker,
    /// Thread states: the next, the thread, the way to the innermost frame.
    pub next: u64,
    pub thread_id: u64,
    pub frame: Way,
    /// An exception that is on its way.
    pub exception: u64,
    /// Frames: the code, the caller's, the last instruction, who made it.
    pub code: u64,
    pub previous: u64,
    pub instruction: u64,
    pub owner: u64,
    /// Code: its first line, file, names, tables, bytecode.
    pub first_line: u64,
    pub file: u64,
    pub name: u64,
    pub qualified: u64,
    pub constants: u64,
    pub handlers: u64,
    pub lines: u64,
    pub bytecode: u64,
    /// Text of a short string object.
    pub text: u64,
    pub opcodes: Opcodes,
}

#[derive(Clone, Copy, Debug)]
pub enum Breaker {
    /// Two words of 32 bits in the interpreter.
    Interpreter(u64, u64),
    /// A word in the thread state.
    Thread(u64),
}

#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Through a structure on the C stack.
    Through(u64, u64),
    Direct(u64),
}

#[derive(Clone, Debug)]
pub struct Opcodes {
    /// A frame is entered.
    pub resume: &'static [u8],
    pub send: u8,
    pub extended: &'static [u8],
    pub forward: &'static [Jump],
    pub backward: &'static [Jump],
}

/// A jump's opcode, and the units of its cache.
pub type Jump = (u8, u8);

/// Sizes and offsets that didn't change.
pub const TYPE: u64 = 8;
pub const SIZE: u64 = 16;
pub const BYTES: u64 = 32;
pub const ITEMS: u64 = 24;
/// A frame that isn't one of the program's.
pub const OWNED_BY_C: u8 = 3;

pub fn of(major: u32, minor: u32) -> Option<Layout> {
    let common = Layout {
        interpreters: 40,
        threads: 16,
        breaker: Breaker::Interpreter(100, 104),
        next: 8,
        thread_id: 152,
        frame: Way::Through(56, 8),
        exception: 96,
        code: 32,
        previous: 48,
        instruction: 56,
        owner: 69,
        first_line: 72,
        file: 112,
        name: 120,
        qualified: 128,
        constants: 24,
        handlers: 40,
        lines: 136,
        bytecode: 184,
        text: 48,
        opcodes: Opcodes {
            resume: &[151, 150],
            send: 123,
            extended: &[144, 34],
            forward: &[
                (93, 0),
                (110, 0),
                (111, 0),
                (112, 0),
                (114, 0),
                (115, 0),
                (123, 0),
                (128, 0),
                (129, 0),
            ],
            backward: &[
                (134, 0),
                (140, 0),
                (38, 0),
                (173, 0),
                (174, 0),
                (175, 0),
                (176, 0),
            ],
        },
    };
    match (major, minor) {
        (3, 11) => Some(common),
        (3, 12) => Some(Layout {
            threads: 72,
            breaker: Breaker::Interpreter(368, 372),
            thread_id: 136,
            frame: Way::Through(56, 0),
            code: 0,
            previous: 8,
            owner: 70,
            first_line: 68,
            bytecode: 192,
            text: 40,
            opcodes: Opcodes {
                resume: &[151, 240],
                send: 123,
                extended: &[144],
                forward: &[
                    (93, 1),
                    (62, 1),
                    (63, 1),
                    (64, 1),
                    (65, 1),
                    (110, 0),
                    (114, 0),
                    (115, 0),
                    (123, 1),
                    (168, 1),
                    (128, 0),
                    (129, 0),
                ],
                backward: &[(134, 0), (140, 0)],
            },
            ..common
        }),
        (3, 13) => Some(Layout {
            interpreters: 632,
            threads: 7344,
            breaker: Breaker::Thread(24),
            frame: Way::Direct(72),
            exception: 112,
            code: 0,
            previous: 8,
            owner: 70,
            first_line: 68,
            bytecode: 200,
            text: 40,
            opcodes: Opcodes {
                resume: &[149, 207, 236],
                send: 104,
                extended: &[71],
                forward: &[
                    (72, 1),
                    (187, 1),
                    (188, 1),
                    (189, 1),
                    (190, 1),
                    (79, 0),
                    (97, 1),
                    (98, 1),
                    (99, 1),
                    (100, 1),
                    (104, 1),
                    (208, 1),
                ],
                backward: &[(77, 1), (78, 0)],
            },
            ..common
        }),
        _ => None,
    }
}
