//! Accesses to shared memory, against what single steps through the whole program see.

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clew_recording::event::{Effect, Event, Record};
use clew_recording::maps::Change;
use clew_recording::reader::Recording;
use clew_recording::script::Point;
use clew_timeline::{
    Direction, Error, Next, Position, Reason, Target, Timeline, Touch, TouchLimits, Touches,
};
use common::{Program, open, open_stream, record_with, state};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// Names, options of `clew record`, and the guest's arguments.
const RUNS: [(&str, &[&str], &[&str]); 4] = [
    ("as it comes", &[], &[]),
    ("at random", &["--sched", "random", "--seed", "11"], &[]),
    (
        "at random, again",
        &["--sched", "random", "--seed", "12"],
        &[],
    ),
    ("a stack used twice", &[], &["more"]),
];

const PLENTY: TouchLimits = TouchLimits {
    accesses: 1 << 20,
    time: Duration::from_secs(600),
};

fn main() {
    let exact =
        |(name, options, arguments): (&str, &'static [&'static str], &'static [&'static str])| {
            common::test(name, move || {
                same_as_stepping(&record(options, arguments), true);
                common::no_children();
            })
        };
    let mut tests: Vec<_> = RUNS.map(exact).into();
    tests.push(common::test("functions", functions));
    tests.push(common::test("limits", limits));
    tests.push(common::test("one thread", one_thread));
    tests.push(common::test("a real program", real_program));
    // Takes minutes. CLEW_PROGRAM is a program with its arguments, CLEW_OPTIONS are those of clew record.
    tests.push(common::test("a program by stepping", by_stepping).with_ignored_flag(true));
    common::tests(tests)
}

fn record(options: &[&str], arguments: &[&str]) -> PathBuf {
    record_with("touches", options, arguments)
}

/// What is compared: pieces of a long access count as one.
type Seen = (u32, Point, u64, Option<(u64, u32)>, bool, bool, Position);

fn seen(touch: &Touch) -> Seen {
    const LONG: u32 = 64;
    let exactly = (touch.addr, touch.len);
    (
        touch.thread,
        touch.point,
        touch.pc,
        (!is_long(touch.pc) && touch.len <= LONG).then_some(exactly),
        touch.write,
        touch.locked,
        touch.position,
    )
}

thread_local! {
    /// Instructions that go through more memory than is told in one piece.
    static LONG_ONES: std::cell::RefCell<BTreeSet<u64>> = Default::default();
}

fn is_long(pc: u64) -> bool {
    LONG_ONES.with(|long| long.borrow().contains(&pc))
}

fn same_as_stepping(folder: &Path, complete: bool) {
    let timeline = &mut open_threads(folder);
    // Somewhere in the midst.
    let end = timeline.end().unwrap();
    let somewhere = Position::after(end.event * 3 / 4);
    timeline.seek(Target::Position(somewhere)).unwrap();
    let (position, before) = (timeline.position().unwrap(), state(timeline));
    let found = timeline.touches(&PLENTY).unwrap();
    assert!(found.complete || !complete);
    assert_eq!(timeline.position().unwrap(), position);
    assert!(state(timeline) == before, "the timeline has moved");
    assert_eq!(timeline.touches(&PLENTY).unwrap(), found, "the second time");

    let began = Instant::now();
    let (steps, expected) = stepped(timeline, folder);
    println!(
        "{} accesses, {} threads; {steps} steps in {:?}",
        expected.len(),
        expected
            .iter()
            .map(|touch| touch.thread)
            .collect::<BTreeSet<_>>()
            .len(),
        began.elapsed()
    );
    let expected = first_and_last(expected);
    let mut expected: Vec<Seen> = expected.iter().map(seen).collect();
    let mut found: Vec<Seen> = found.touches.iter().map(seen).collect();
    expected.dedup();
    found.dedup();
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "access {n}");
    }
    assert_eq!(found.len(), expected.len());
    assert!(found.len() > 100, "few");
}

/// At most 32 times of each thread, instruction and address are told.
fn first_and_last(touches: Vec<Touch>) -> Vec<Touch> {
    let key = |touch: &Touch| (touch.thread, touch.pc, touch.addr);
    let mut counts: HashMap<_, usize> = HashMap::new();
    for touch in &touches {
        *counts.entry(key(touch)).or_default() += 1;
    }
    let mut so_far: HashMap<_, usize> = HashMap::new();
    touches
        .into_iter()
        .filter(|touch| {
            let n = so_far.entry(key(touch)).or_default();
            *n += 1;
            *n <= 16 || *n + 16 > counts[&key(touch)]
        })
        .collect()
}

/// The first stream with threads, and the event that makes the second one. What is started may start another
/// program.
fn threads_in(folder: &Path) -> (u32, u64) {
    let recording = Recording::open(folder).unwrap();
    for stream in recording.streams() {
        let mut reader = recording.stream(stream.id).unwrap();
        while let Some(record) = reader.next().unwrap() {
            if let Record::Event(Event::NewThread { .. }) = record {
                return (stream.id, reader.position());
            }
        }
    }
    panic!("no threads");
}

/// What events map and unmap, by their number and in order: memory that is new there isn't what it was.
fn mapped_in(folder: &Path) -> BTreeMap<(u64, usize), Range<u64>> {
    let recording = Recording::open(folder).unwrap();
    let mut reader = recording.stream(threads_in(folder).0).unwrap();
    let mut mapped = BTreeMap::new();
    loop {
        let event = reader.position();
        let pages = match reader.next().unwrap() {
            None => return mapped,
            Some(Record::Effect(Effect::Map(bytes))) => match Change::decode(bytes).unwrap() {
                Change::Map { mapping, .. } => mapping.pages,
                Change::Unmap(pages) => pages,
                _ => continue,
            },
            Some(_) => continue,
        };
        mapped.insert((event, mapped.len()), pages.start..pages.end);
    }
}

fn open_threads(folder: &Path) -> Timeline {
    open_stream(folder, threads_in(folder).0)
}

/// All accesses to shared memory, found by looking at each instruction, and how many those are.
fn stepped(timeline: &mut Timeline, folder: &Path) -> (usize, Vec<Touch>) {
    let begin = Position::after(threads_in(folder).1);
    timeline.seek(Target::Position(begin)).unwrap();
    let begin = timeline.position().unwrap();
    // So far there was one thread: all ticks are its own.
    const EVENT_WORK: u64 = 64;
    let at = timeline.at();
    let ticks = at.work - EVENT_WORK * at.event;
    let mut lives: BTreeMap<u32, Point> = BTreeMap::new();
    lives.insert(
        at.thread,
        Point {
            ticks,
            calls: calls_here(timeline, begin),
            steps: 0,
        },
    );
    // Children that borrow the memory don't count: nothing else happens meanwhile.
    const FORKS: [u32; 4] = [56, 57, 58, 435];
    let mut borrowers = BTreeSet::new();
    let mapped = mapped_in(folder);
    let mut seen = Accesses::default();
    let mut factory = InstructionInfoFactory::new();
    let mut known: BTreeSet<u32> = timeline
        .threads()
        .unwrap()
        .iter()
        .map(|t| t.number)
        .collect();
    for steps in 0.. {
        let at = timeline.at();
        let position = Position {
            steps: 0,
            ..timeline.position().unwrap()
        };
        let life = lives.entry(at.thread).or_default();
        if at.next.is_none() && !borrowers.contains(&at.thread) {
            for touch in executed(timeline, &mut factory) {
                seen.add(Touch {
                    thread: at.thread,
                    point: *life,
                    position,
                    ..touch
                });
            }
        }
        life.calls += counts_as_call(timeline, at.next) as u32;
        let stop = timeline.step_any(Direction::Forward).unwrap();
        if matches!(stop.reason, Reason::End(_)) {
            return (steps, seen.end());
        }
        let now = timeline.at();
        // Only instructions tick; behind an event the count begins again.
        if at.next.is_none() && now.work - EVENT_WORK * now.event > at.work - EVENT_WORK * at.event
        {
            *life = Point {
                ticks: life.ticks + 1,
                ..Point::default()
            };
        }
        if now.event != at.event {
            for (_, range) in mapped.range((at.event + 1, 0)..(now.event + 1, 0)) {
                seen.renew(range);
            }
            let threads = timeline.threads().unwrap();
            let maker = threads.iter().find(|thread| thread.number == at.thread);
            let waits = maker.and_then(|maker| maker.waits);
            for thread in &threads {
                if !known.insert(thread.number) {
                } else if waits.is_some_and(|nr| FORKS.contains(&nr)) {
                    borrowers.insert(thread.number);
                } else {
                    seen.renew(&stack_of(timeline, thread.number, thread.sp));
                }
            }
        }
    }
    unreachable!()
}

/// A system call, or an instruction that the engine answers.
fn counts_as_call(timeline: &mut Timeline, next: Option<Next>) -> bool {
    let answered = [
        Mnemonic::Cpuid,
        Mnemonic::Rdtsc,
        Mnemonic::Rdtscp,
        Mnemonic::Rdrand,
        Mnemonic::Rdseed,
        Mnemonic::Xgetbv,
        Mnemonic::Pause,
        Mnemonic::Rdfsbase,
        Mnemonic::Rdgsbase,
        Mnemonic::Wrfsbase,
        Mnemonic::Wrgsbase,
    ];
    match next {
        Some(Next::Call { .. }) => true,
        None | Some(Next::Other) => {
            let pc = timeline.at().pc;
            let mut code = [0; 15];
            let len = timeline.read(pc, &mut code).unwrap();
            let instruction = Decoder::with_ip(64, &code[..len], pc, DecoderOptions::NONE).decode();
            answered.contains(&instruction.mnemonic())
        }
        Some(_) => false,
    }
}

/// System calls since the last tick.
fn calls_here(timeline: &mut Timeline, here: Position) -> u32 {
    let mut calls = 0;
    loop {
        timeline.step_any(Direction::Backward).unwrap();
        let at = timeline.at();
        match at.next {
            Some(Next::Call { .. }) => calls += 1,
            Some(_) => {}
            None if at.ticks > 0 && calls > 0 => break,
            None => {}
        }
        assert!(here.event - at.event < 8, "no tick between calls");
    }
    timeline.seek(Target::Position(here)).unwrap();
    calls
}

/// The memory of a new thread: what was touched there before was something else.
fn stack_of(timeline: &mut Timeline, thread: u32, sp: u64) -> Range<u64> {
    const FS_BASE: usize = 18;
    let registers = timeline.registers(thread).unwrap().unwrap();
    let mappings = timeline.mappings().unwrap();
    let mapping = mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&(sp - 1)))
        .expect("a stack");
    let pointer = registers.words[FS_BASE];
    assert!((sp..mapping.end).contains(&pointer), "glibc's way");
    mapping.start..(pointer + 4096).min(mapping.end)
}

/// What the instruction that the program stands on touches.
fn executed(timeline: &mut Timeline, factory: &mut InstructionInfoFactory) -> Vec<Touch> {
    let at = timeline.at();
    let registers = timeline.registers(at.thread).unwrap().unwrap();
    let mut code = [0; 15];
    let len = timeline.read(at.pc, &mut code).unwrap();
    let instruction = Decoder::with_ip(64, &code[..len], at.pc, DecoderOptions::NONE).decode();
    assert!(!instruction.is_invalid());
    if instruction.mnemonic() == Mnemonic::Nop {
        return Vec::new();
    }
    let value = |register: Register| match register {
        Register::FS => registers.words[18],
        Register::GS => registers.words[19],
        _ if register.is_segment_register() => 0,
        _ => {
            assert!(register.is_gpr64(), "{register:?}");
            registers.words[register.number()]
        }
    };
    let repeats = instruction.has_rep_prefix() && instruction.is_string_instruction();
    let mut touches: Vec<Touch> = Vec::new();
    for used in factory.info(&instruction).used_memory() {
        let write = match used.access() {
            OpAccess::Read | OpAccess::CondRead => false,
            OpAccess::None | OpAccess::NoMemAccess => continue,
            _ => true,
        };
        let addr = used.virtual_address(0, |register, _, _| Some(value(register)));
        let mut len = used.memory_size().size() as u32;
        match instruction.mnemonic() {
            Mnemonic::Xsave | Mnemonic::Xsavec | Mnemonic::Xrstor => len = 832,
            _ => assert!(len > 0 || repeats, "{instruction}"),
        }
        if repeats {
            let count = registers.words[1] as u32;
            let element = instruction.memory_size().size() as u32;
            assert!(element > 0, "{instruction}");
            len = element * count;
            LONG_ONES.with(|long| long.borrow_mut().insert(at.pc));
        }
        if len > 64 {
            LONG_ONES.with(|long| long.borrow_mut().insert(at.pc));
        }
        if len == 0 {
            continue;
        }
        touches.push(Touch {
            thread: at.thread,
            point: Point::default(),
            pc: at.pc,
            addr: addr.unwrap(),
            len,
            write,
            locked: is_locked(&instruction),
            position: Position::default(),
        });
    }
    touches
}

fn is_locked(instruction: &Instruction) -> bool {
    let memory = (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
    instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg && memory
}

/// All accesses, and who touches each byte.
#[derive(Default)]
struct Accesses {
    /// Accesses to memory that is still the same, and those that are known to be to shared memory.
    open: Vec<(usize, Touch)>,
    settled: Vec<(usize, Touch)>,
    bytes: HashMap<u64, (BTreeSet<u32>, bool)>,
    count: usize,
}

impl Accesses {
    fn add(&mut self, touch: Touch) {
        for byte in touch.addr..touch.addr + u64::from(touch.len) {
            let (threads, written) = self.bytes.entry(byte).or_default();
            threads.insert(touch.thread);
            *written |= touch.write;
        }
        self.open.push((self.count, touch));
        self.count += 1;
    }

    fn settle(&mut self, is: impl Fn(&Touch) -> bool) {
        let bytes = &self.bytes;
        let shared = |touch: &Touch| {
            (touch.addr..touch.addr + u64::from(touch.len))
                .any(|byte| matches!(&bytes[&byte], (threads, true) if threads.len() > 1))
        };
        let (done, open): (Vec<_>, Vec<_>) = self.open.drain(..).partition(|(_, t)| is(t));
        self.settled
            .extend(done.into_iter().filter(|(_, touch)| shared(touch)));
        self.open = open;
    }

    fn renew(&mut self, range: &Range<u64>) {
        self.settle(|touch| range.contains(&touch.addr));
        self.bytes.retain(|byte, _| !range.contains(byte));
    }

    fn end(mut self) -> Vec<Touch> {
        self.settle(|_| true);
        self.settled.sort_by_key(|(number, _)| *number);
        self.settled.into_iter().map(|(_, touch)| touch).collect()
    }
}

/// Which of the guest's functions touch shared memory, in which threads, reading or writing.
fn functions() {
    let folder = record(&["--sched", "random", "--seed", "5"], &[]);
    let timeline = &mut open(&folder);
    let program = Program::of(timeline, &folder, "touches");
    let found = timeline.touches(&PLENTY).unwrap();
    assert!(found.complete);
    let by_function = |name: &str, until: &str| -> BTreeSet<(u32, bool, bool)> {
        let range = program.address(name)..program.address(until);
        assert!(!range.is_empty(), "{name} lies before {until}");
        let inside = found.touches.iter().filter(|t| range.contains(&t.pc));
        inside.map(|t| (t.thread, t.write, t.locked)).collect()
    };
    // In the order in which they are in the file.
    let order = [
        "bump_racy",
        "bump_guarded",
        "bump_own",
        "bump_byte",
        "bump_mine",
        "bump_stack",
        "bump_odd",
        "count",
        "exchange",
        "read_table",
        "copy_in",
        "copy_out",
        "write_wide",
        "read_wide",
        "own_stack",
        "worker",
    ];
    let mut places = order.map(|name| (program.address(name), name));
    places.sort();
    let functions: BTreeMap<&str, _> = places
        .windows(2)
        .map(|pair| (pair[0].1, by_function(pair[0].1, pair[1].1)))
        .collect();
    let both = BTreeSet::from([
        (1, false, false),
        (1, true, false),
        (2, false, false),
        (2, true, false),
    ]);
    let atomic = BTreeSet::from([(1, true, true), (2, true, true)]);
    let none = BTreeSet::new();
    for (name, expected) in [
        ("bump_racy", &both),
        ("bump_guarded", &both),
        ("bump_stack", &both),
        ("bump_odd", &both),
        ("count", &atomic),
        ("exchange", &atomic),
        ("copy_in", &BTreeSet::from([(1, true, false)])),
        ("copy_out", &BTreeSet::from([(0, false, false)])),
        ("write_wide", &BTreeSet::from([(1, true, false)])),
        ("read_wide", &BTreeSet::from([(0, false, false)])),
        ("bump_own", &none),
        ("bump_byte", &none),
        ("bump_mine", &none),
        ("read_table", &none),
        ("own_stack", &none),
    ] {
        // The last one ends where something else begins.
        if let Some(found) = functions.get(name) {
            assert_eq!(found, expected, "{name}");
        }
    }
}

fn limits() {
    let folder = record_with("threads", &[], &[]);
    let timeline = &mut open(&folder);
    let all = timeline.touches(&PLENTY).unwrap();
    let few = TouchLimits {
        accesses: 50,
        ..PLENTY
    };
    let some = timeline.touches(&few).unwrap();
    assert!(!some.complete);
    assert!(!some.touches.is_empty() && some.touches.len() <= 50);
    assert!(some.touches.iter().all(|t| all.touches.contains(t)));
    let no_time = TouchLimits {
        time: Duration::ZERO,
        ..PLENTY
    };
    let none = timeline.touches(&no_time).unwrap();
    assert!(!none.complete);
    // An instruction that comes a hundred thousand times doesn't crowd out the others.
    let program = Program::of(timeline, &folder, "threads");
    let of = |name: &str| {
        let addr = program.address(name);
        let touched = all.touches.iter().filter(|t| t.addr == addr);
        touched
            .map(|t| (t.thread, t.write))
            .collect::<BTreeSet<_>>()
    };
    let workers = |t| [(t, false), (t, true)];
    let expected: BTreeSet<(u32, bool)> = (1..4).flat_map(workers).collect();
    for name in ["racy", "rounds"] {
        let mut found = of(name);
        // It prints them.
        assert!(found.remove(&(0, false)), "{name}");
        assert_eq!(found, expected, "{name}");
    }
    // Interrupted, it stays where it is, and goes on as before.
    let position = timeline.position().unwrap();
    timeline.set_watcher(Box::new(|_| true));
    assert!(matches!(timeline.touches(&PLENTY), Err(Error::Interrupted)));
    timeline.set_watcher(Box::new(|_| false));
    assert_eq!(timeline.position().unwrap(), position);
    assert_eq!(timeline.touches(&PLENTY).unwrap(), all);
}

fn one_thread() {
    let folder = record_with("plain", &[], &[]);
    let found = open(&folder).touches(&PLENTY).unwrap();
    let nothing = Touches {
        touches: Vec::new(),
        complete: true,
    };
    assert_eq!(found, nothing);
}

fn by_stepping() {
    let words = |name| std::env::var(name).unwrap_or_default();
    let (options, program) = (words("CLEW_OPTIONS"), words("CLEW_PROGRAM"));
    let split = |words: &'static str| words.split_whitespace().collect::<Vec<_>>();
    let [options, program] = [options, program].map(|words| split(words.leak()));
    assert!(!program.is_empty(), "CLEW_PROGRAM names none");
    same_as_stepping(&common::record_program(&options, &program), false);
}

/// A program of the distribution with threads: whichever is there.
fn real_program() {
    let input = std::env::temp_dir().join(format!("clew-touches-{}", std::process::id()));
    let text: Vec<u8> = (0..400_000u32)
        .flat_map(|n| n.wrapping_mul(n).to_le_bytes())
        .collect();
    std::fs::write(&input, text).unwrap();
    let input = input.to_str().unwrap();
    let python = "import threading\nd = {}\ndef f(n):\n for i in range(2000): d[i % 7] = d.get(i % 7, 0) + n\n\
                  t = [threading.Thread(target=f, args=(n,)) for n in range(3)]\n[x.start() for x in t]\n\
                  [x.join() for x in t]";
    let programs: [&[&str]; 3] = [
        &["xz", "-T2", "--block-size=300KiB", "-1", "-k", "-c", input],
        &["pigz", "-p", "2", "-c", input],
        &["python3", "-c", python],
    ];
    let mut any = false;
    for program in programs {
        let there = Command::new(program[0]).arg("--version").output();
        if !there.is_ok_and(|output| output.status.success()) {
            println!("{} isn't there", program[0]);
            continue;
        }
        any = true;
        let folder = common::record_program(&[], program);
        let timeline = &mut open_threads(&folder);
        let limits = TouchLimits {
            accesses: 100_000,
            time: Duration::from_secs(20),
        };
        let began = Instant::now();
        timeline.seek(Target::End).unwrap();
        let plain = began.elapsed();
        let began = Instant::now();
        let found = timeline.touches(&limits).unwrap();
        let took = began.elapsed();
        let threads: BTreeSet<u32> = found.touches.iter().map(|t| t.thread).collect();
        println!(
            "{}: {} accesses, {} threads, complete: {}; {took:?}, replay {plain:?}",
            program[0],
            found.touches.len(),
            threads.len(),
            found.complete,
        );
        assert!(threads.len() >= 2);
        assert!(found.touches.len() <= limits.accesses);
        let ordered = |pair: &[Touch]| pair[0].position <= pair[1].position;
        assert!(found.touches.windows(2).all(ordered));
    }
    let _ = std::fs::remove_file(input);
    assert!(any, "none of them is there");
}
