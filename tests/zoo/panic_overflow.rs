// A subtraction below zero.
// held: out
// kind: panic
#[inline(never)]
fn remaining(total: u32, used: u32) -> u32 {
    total - used // CAUSE
}
fn main() {
    let mut used = 0;
    for step in 1..10u32 {
        used += step;
        println!("{}", remaining(30, used));
    }
}
