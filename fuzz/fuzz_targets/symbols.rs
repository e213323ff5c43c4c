#![no_main]

#[path = "../../crates/symbols/tests/ask/mod.rs"]
mod ask;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ask::ask(bytes.to_vec(), (0x1000, 0x1000)));
