//! Every kind of record, to bytes and back.

use clew_recording::codec::{Decoder, Encoder};
use clew_recording::deadlock::{Awaited, Waiter};
use clew_recording::event::*;
use proptest::prelude::*;

/// A record whose bytes live elsewhere.
#[derive(Clone, Debug)]
enum Made {
    Event(Event<'static>),
    Signal(Place, Cause, i32, Vec<u8>),
    Values(Vec<u8>),
    Note(String),
    Memory(u64, Vec<u8>),
    Registers(u32, [u64; REGISTERS]),
    Extended(Vec<u8>),
    Map(Vec<u8>),
    Output(u64, u64),
}

impl Made {
    fn record(&self) -> Record<'_> {
        match self {
            Made::Event(event) => Record::Event(event.clone()),
            &Made::Signal(place, cause, signo, ref info) => Record::Event(Event::Signal {
                place,
                cause,
                signo,
                info,
            }),
            Made::Values(bytes) => Record::Event(Event::Values(bytes)),
            Made::Note(text) => Record::Event(Event::Note(text)),
            Made::Memory(addr, bytes) => Record::Effect(Effect::Memory { addr: *addr, bytes }),
            &Made::Registers(mask, values) => Record::Effect(Effect::Registers { mask, values }),
            Made::Extended(bytes) => Record::Effect(Effect::Extended(bytes)),
            Made::Map(bytes) => Record::Effect(Effect::Map(bytes)),
            &Made::Output(order, bytes) => Record::Effect(Effect::Output { order, bytes }),
        }
    }
}

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..200u64, any::<u64>(), (0..64u32).prop_map(|n| 1 << n)]
}

fn place() -> impl Strategy<Value = Place> {
    (number(), any::<u32>()).prop_map(|(ticks, steps)| Place { ticks, steps })
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![Just(Cause::Outside), Just(Cause::Fault)]
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        9 => prop::collection::vec(any::<u8>(), 0..300.min(most)),
        1 => prop::collection::vec(any::<u8>(), 0..=most),
    ]
}

fn waiter() -> impl Strategy<Value = Waiter> {
    let waits = prop_oneof![
        (number(), any::<i32>()).prop_map(|(addr, owner)| Awaited::Lock { addr, owner }),
        any::<i32>().prop_map(|tid| Awaited::End { tid }),
        number().prop_map(|addr| Awaited::Wake { addr }),
    ];
    (any::<i32>(), waits).prop_map(|(tid, waits)| Waiter { tid, waits })
}

fn call() -> impl Strategy<Value = Call> {
    let end = prop_oneof![
        any::<i64>().prop_map(End::Returned),
        Just(End::Restarted),
        Just(End::Waits),
        Just(End::Replaced),
    ];
    let output = prop::option::of((1..=2u8, number()).prop_map(|(to, order)| Output { to, order }));
    // Few numbers, so that calls come again; some that aren't remembered.
    let nr = prop_oneof![0..4u32, 510..515u32, any::<u32>()];
    let arg = prop_oneof![Just(0), Just(7), number()];
    (number(), nr, prop::array::uniform6(arg), end, output).prop_map(
        |(ticks, nr, args, end, output)| Call {
            ticks,
            nr,
            args,
            end,
            output,
        },
    )
}

fn start() -> impl Strategy<Value = Start> {
    let origin = prop_oneof![
        any::<u32>().prop_map(|before| Origin::Exec { before }),
        any::<u32>().prop_map(|parent| Origin::Fork { parent }),
        (number(), number(), number()).prop_map(|(events, ticks, stack)| Origin::Midst {
            events,
            ticks,
            stack
        }),
    ];
    let argv = prop::collection::vec(bytes(200), 0..5);
    (origin, any::<[i32; 3]>(), bytes(4096), argv, number()).prop_map(
        |(origin, [pid, parent_pid, tid], exe, argv, time)| Start {
            origin,
            pid,
            parent_pid,
            tid,
            exe,
            argv,
            time,
        },
    )
}

fn touch() -> impl Strategy<Value = Touch> {
    prop_oneof![
        Just(Touch::Unknown),
        Just(Touch::Engine),
        (number(), number()).prop_map(|(pc, page)| Touch::Instruction { pc, page }),
    ]
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let instruction = prop_oneof![
        Just(Instruction::Cpuid),
        Just(Instruction::TimeStamp),
        Just(Instruction::Random),
        Just(Instruction::Other),
        any::<u32>().prop_map(|passed| Instruction::Quiet { passed }),
    ];
    prop_oneof![
        start().prop_map(Event::Started),
        call().prop_map(Event::Call),
        (any::<Option<i64>>(), any::<Option<u32>>())
            .prop_map(|(result, by)| Event::Resumed { result, by }),
        (number(), instruction).prop_map(|(ticks, what)| Event::Instruction { ticks, what }),
        (number(), touch()).prop_map(|(ticks, touch)| Event::Shared { ticks, touch }),
        (place(), any::<u32>()).prop_map(|(place, to)| Event::Switched { place, to }),
        any::<(u32, i32)>().prop_map(|(thread, tid)| Event::NewThread { thread, tid }),
        any::<u32>().prop_map(|thread| Event::EndedThread { thread }),
        (place(), any::<u64>()).prop_map(|(place, left_out)| Event::Leap { place, left_out }),
        prop::collection::vec(waiter(), 0..5).prop_map(Event::Deadlock),
        any::<(u64, u32, i32)>().prop_map(|(ticks, stream, pid)| Event::Forked {
            ticks,
            stream,
            pid
        }),
        (place(), any::<u64>(), prop::option::of(any::<u64>())).prop_map(
            |(place, registers, memory)| Event::Check {
                place,
                registers,
                memory
            }
        ),
        number().prop_map(|ticks| Event::Exec { ticks }),
        (number(), any::<i32>()).prop_map(|(ticks, status)| Event::Exited { ticks, status }),
        (place(), cause(), any::<i32>()).prop_map(|(place, cause, signo)| Event::Killed {
            place,
            cause,
            signo
        }),
        number().prop_map(Event::Time),
        (number(), prop::option::of(call())).prop_map(|(ticks, waits)| Event::State {
            ticks,
            name: b"a thread",
            waits: waits.map(|call| Call {
                end: End::Waits,
                ..call
            }),
        }),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let registers = (0..1u32 << REGISTERS, any::<[u64; REGISTERS]>()).prop_map(|(mask, all)| {
        let kept = |n| if mask >> n & 1 != 0 { all[n] } else { 0 };
        Made::Registers(mask, std::array::from_fn(kept))
    });
    prop_oneof![
        event().prop_map(Made::Event),
        (place(), cause(), any::<i32>(), bytes(128))
            .prop_map(|(place, cause, signo, info)| Made::Signal(place, cause, signo, info)),
        bytes(LONGEST_PIECE).prop_map(Made::Values),
        "\\PC{0,80}".prop_map(Made::Note),
        (number(), bytes(LONGEST_PIECE)).prop_map(|(addr, bytes)| Made::Memory(addr, bytes)),
        registers,
        bytes(16 << 10).prop_map(Made::Extended),
        bytes(5000).prop_map(Made::Map),
        (number(), number()).prop_map(|(order, bytes)| Made::Output(order, bytes)),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(all in prop::collection::vec(made(), 1..30)) {
        let mut encoder = Encoder::default();
        let mut room = vec![0; LONGEST_RECORD];
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for made in &all {
            let len = match made.record() {
                Record::Event(event) => encoder.event(&event, &mut room),
                Record::Effect(effect) => encoder.effect(&effect, &mut room),
            };
            prop_assert!(len <= LONGEST_RECORD);
            stream.extend_from_slice(&room[..len]);
            ends.push(stream.len());
        }
        let mut decoder = Decoder::default();
        let mut at = 0;
        for (made, end) in all.iter().zip(ends) {
            // A part of a record is none.
            for cut in [at, at + 1, (at + end) / 2, end - 1] {
                prop_assert_eq!(decoder.clone().next(&stream[at..cut.min(end - 1)]), Ok(None));
            }
            let (record, used) = decoder.next(&stream[at..]).unwrap().unwrap();
            prop_assert_eq!(record, made.record());
            at += used;
            prop_assert_eq!(at, end);
        }
    }
}
