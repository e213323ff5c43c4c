//! What-ifs: functions of the guest called in a fork, memory changed, ends of all kinds.

use clew_engine::replay::worker::protocol::*;

use crate::Case;
use crate::commander::*;

pub fn cases() -> Vec<Case> {
    vec![
        ("functions_are_called", calls),
        ("memory_is_changed", writes),
    ]
}

const RSP: usize = 4;
const RDI: usize = 7;
const RIP: usize = 16;

struct Stage {
    scratch: Scratch,
    all: Commander,
    /// A worker that stands at a call of `mix` in a thread.
    at: u32,
    mix: u64,
}

fn stage(name: &str) -> Stage {
    let scratch = Scratch::new(name);
    let recording = record(&scratch, &[]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let mix = symbol(&scratch, "mix");
    let (at, _) = all.fork(0);
    all.stops(
        at,
        Stops {
            breaks: vec![Break {
                addr: mix,
                thread: Some(2),
                conditions: vec![],
            }],
            ..Stops::default()
        },
    );
    assert_eq!(all.first(at, Goal::End).why, Why::Break);
    Stage {
        scratch,
        all,
        at,
        mix,
    }
}

impl Stage {
    /// Calls a function in a fork; it returns to where the thread stands, at a breakpoint.
    fn call(&mut self, function: &str, argument: u64, ticks: u64) -> (Excursion, u64) {
        let (worker, _) = self.all.fork(self.at);
        let thread = self.all.at(worker).thread;
        let mut registers = self.all.registers(worker, thread);
        let sp = (registers.words[RSP] - 256) & !15;
        let words = &mut registers.words;
        (words[RSP], words[RDI]) = (sp - 8, argument);
        words[RIP] = symbol(&self.scratch, function);
        // Variadic functions look at al.
        words[0] = 0;
        let bytes = self.mix.to_le_bytes().to_vec();
        let addr = sp - 8;
        assert_eq!(
            self.all.ask(worker, Command::Write { addr, bytes }),
            Reply::Done
        );
        let registers = Box::new(registers);
        let set = Command::SetRegisters { thread, registers };
        assert_eq!(self.all.ask(worker, set), Reply::Done);
        let ran = match self.all.ask(worker, Command::Run { ticks }) {
            Reply::Excursion(excursion) => excursion,
            reply => panic!("{reply:?}"),
        };
        assert_eq!(ran.thread, thread);
        let value = self.all.registers(worker, thread).words[0];
        assert!(matches!(
            self.all.ask(worker, Command::Step),
            Reply::Refused(_)
        ));
        self.all.end(worker);
        (ran, value)
    }
}

fn mixed(mut x: u64) -> u64 {
    for i in 0..50 {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(x >> 7)
            .wrapping_add(i);
    }
    x
}

fn calls() {
    let mut stage = stage("calls");
    let before = stage.all.state(stage.at);
    let plenty = 10_000_000;
    let (ran, value) = stage.call("mix", 7, plenty);
    assert_eq!((ran.why, ran.pc), (ExcursionEnd::Break, stage.mix));
    assert_eq!(value, mixed(7));
    let (ran, value) = stage.call("say", 12, plenty);
    assert_eq!(ran.why, ExcursionEnd::Break, "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.output), "12 of 1 bytes\n");
    assert_eq!(value, 14);
    for size in [1000, 50 << 20] {
        let (ran, value) = stage.call("take_memory", size, plenty);
        assert_eq!((ran.why, value), (ExcursionEnd::Break, 7));
    }
    let (ran, _) = stage.call("abort_now", 0, plenty);
    let (signo, addr) = (libc::SIGABRT, 0);
    assert_eq!(ran.why, ExcursionEnd::Signal { signo, addr });
    let (ran, _) = stage.call("touch", 0x77, plenty);
    let (signo, addr) = (libc::SIGSEGV, 0x77);
    assert_eq!(ran.why, ExcursionEnd::Signal { signo, addr });
    let (ran, _) = stage.call("leave", 1, plenty);
    assert_eq!(ran.why, ExcursionEnd::Exited);
    let (ran, _) = stage.call("spin", 0, 3_000_000);
    assert_eq!(ran.why, ExcursionEnd::Ticks);
    let (ran, _) = stage.call("wait_for_nobody", 0, plenty);
    let nr = libc::SYS_futex as u32;
    assert_eq!(ran.why, ExcursionEnd::Waits { nr });
    assert_eq!(stage.all.state(stage.at), before, "a fork is a fork");
    // An endless one is interrupted.
    let (worker, _) = stage.all.fork(stage.at);
    let thread = stage.all.at(worker).thread;
    let mut registers = Box::new(stage.all.registers(worker, thread));
    registers.words[RIP] = symbol(&stage.scratch, "spin");
    let set = Command::SetRegisters { thread, registers };
    assert_eq!(stage.all.ask(worker, set), Reply::Done);
    stage.all.send(worker, &Command::Run { ticks: u64::MAX });
    std::thread::sleep(std::time::Duration::from_millis(50));
    stage.all.send(worker, &Command::Interrupt);
    match stage.all.receive(worker) {
        Reply::Excursion(ran) => assert_eq!(ran.why, ExcursionEnd::Interrupted),
        reply => panic!("{reply:?}"),
    }
}

fn writes() {
    let mut stage = stage("writes");
    let addr = symbol(&stage.scratch, "counter");
    let (worker, _) = stage.all.fork(stage.at);
    let before = stage.all.read(stage.at, addr, 8);
    let bytes = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let write = Command::Write {
        addr,
        bytes: bytes.clone(),
    };
    assert_eq!(stage.all.ask(worker, write), Reply::Done);
    assert_eq!(stage.all.read(worker, addr, 8), bytes);
    assert_eq!(stage.all.read(stage.at, addr, 8), before);
    let nowhere = Command::Write {
        addr: 0x10,
        bytes: vec![1],
    };
    assert!(matches!(stage.all.ask(worker, nowhere), Reply::Refused(_)));
    // Code, too: `mix` returns at once, with what it was given in rdi: mov rax, rdi; ret.
    let code = Command::Write {
        addr: stage.mix,
        bytes: vec![0x48, 0x89, 0xf8, 0xc3],
    };
    assert_eq!(stage.all.ask(worker, code), Reply::Done);
    let thread = stage.all.at(worker).thread;
    let registers = stage.all.registers(worker, thread);
    let top = stage.all.read(worker, registers.words[RSP], 8);
    let back = u64::from_le_bytes(top.try_into().unwrap());
    stage.all.stops(
        worker,
        Stops {
            breaks: vec![Break {
                addr: back,
                thread: None,
                conditions: vec![],
            }],
            ..Stops::default()
        },
    );
    match stage.all.ask(worker, Command::Run { ticks: 1000 }) {
        Reply::Excursion(ran) => assert_eq!((ran.why, ran.pc), (ExcursionEnd::Break, back)),
        reply => panic!("{reply:?}"),
    }
    let after = stage.all.registers(worker, thread);
    assert_eq!(after.words[0], registers.words[RDI]);
}
