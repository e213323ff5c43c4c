//! How fast records get into a log and out again: `cargo run --release -p clew-recording --example speed`.

use std::time::Duration;

use clew_recording::channel::{Channel, Finished};
use clew_recording::codec::Encoder;
use clew_recording::event::*;
use clew_recording::reader::Recording;
use clew_recording::writer;

/// CPU time of a process; what else the machine does matters less then.
fn cpu(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn mine() -> Duration {
    cpu(std::process::id() as i32)
}

fn main() {
    // Like a program that reads small pieces and asks for the time: two events, three effects.
    measure("small calls", 1_000_000, |n, put| {
        put(Record::Event(call(
            n,
            0,
            [3, 0x7ffd_1234_5000, 64, 0, 0, 0],
            64,
        )));
        put(Record::Effect(memory(0x7ffd_1234_5000, &data(n, 64))));
        put(Record::Event(call(
            n,
            228,
            [1, 0x7ffd_1234_6000, 0, 0, 0, 0],
            0,
        )));
        put(Record::Effect(memory(
            0x7ffd_1234_6000,
            &(n * 1013).to_le_bytes(),
        )));
    });
    // Like one that reads files in large pieces.
    measure("large reads", 30_000, |n, put| {
        let bytes = data(n, LONGEST_PIECE);
        put(Record::Event(call(
            n,
            0,
            [3, 0x7000_0000, 32768, 0, 0, 0],
            32768,
        )));
        put(Record::Effect(memory(0x7000_0000, &bytes)));
    });
}

fn call(n: u64, nr: u32, args: [u64; 6], result: i64) -> Event<'static> {
    Event::Call(Call {
        ticks: 17 + n % 5,
        nr,
        args,
        end: End::Returned(result),
        output: None,
    })
}

fn memory(addr: u64, bytes: &[u8]) -> Effect<'_> {
    Effect::Memory { addr, bytes }
}

/// Text of a kind: compressible, but not the same all over.
fn data(n: u64, len: usize) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&WORDS[state as usize % WORDS.len()]);
    }
    out.truncate(len);
    out
}

const WORDS: [[u8; 8]; 7] = [
    *b"the life",
    *b" of one ",
    *b"address ",
    *b"space: i",
    *b"t begins",
    *b" with an",
    *b" exec or",
];

fn measure(name: &str, rounds: u64, make: impl Fn(u64, &mut dyn FnMut(Record))) {
    let folder = std::env::temp_dir().join(format!("clew-speed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (channel, _fd) = Channel::create().unwrap();
    writer::spawn(&channel, &folder, &Default::default()).unwrap();
    let mut producer = channel.new_stream().unwrap();
    let mut encoder = Encoder::default();
    let (mut records, mut bytes) = (0u64, 0);
    let start = Event::Started(Start {
        origin: Origin::Exec { before: 0 },
        pid: 1,
        parent_pid: 1,
        tid: 1,
        exe: Vec::new(),
        argv: Vec::new(),
        time: 0,
    });
    let len = encoder.event(&start, producer.reserve());
    producer.commit(len);

    // The making of records alone, to be taken off.
    let begun = mine();
    for n in 0..rounds {
        make(n, &mut |record| {
            std::hint::black_box(&record);
        });
    }
    let making = mine() - begun;
    let writer = channel.writer().unwrap();
    let begun = mine();
    for n in 0..rounds {
        make(n, &mut |record| {
            let room = producer.reserve();
            let len = match &record {
                Record::Event(event) => encoder.event(event, room),
                Record::Effect(effect) => encoder.effect(effect, room),
            };
            producer.commit(len);
            records += 1;
            bytes += len;
        });
    }
    let put = mine() - begun;
    producer.drain();
    let written = cpu(writer);
    producer.finish(Finished::Ended);
    channel.wait_for_end();

    let begun = mine();
    let recording = Recording::open(&folder).unwrap();
    let opened = mine() - begun;
    let mut reader = recording.stream(1).unwrap();
    let mut found = 0;
    let begun = mine();
    while reader.next().unwrap().is_some() {
        found += 1;
    }
    let read = mine() - begun;
    assert_eq!(found, records + 1);
    let mb = bytes as f64 / 1e6;
    println!(
        "{name}: {records} records, {mb:.1} MB -> {:.1} MB; put {:.0} ns each ({:.0} MB/s), the writer {:.0} MB/s; open {opened:.1?}; read {:.0} ns each ({:.0} MB/s)",
        recording.size() as f64 / 1e6,
        put.saturating_sub(making).as_nanos() as f64 / records as f64,
        mb / put.saturating_sub(making).as_secs_f64(),
        mb / written.as_secs_f64(),
        read.as_nanos() as f64 / records as f64,
        mb / read.as_secs_f64(),
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
