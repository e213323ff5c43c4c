// Two functions that call each other for ever.
// held: out
// kind: stack-overflow
fn even(n: u64, steps: &mut Vec<u64>) -> bool {
    steps[0] += 1;
    if n == 0 { return true; }
    odd(n.wrapping_sub(1), steps) && steps[0] > 0 // CAUSE
}
fn odd(n: u64, steps: &mut Vec<u64>) -> bool {
    steps[0] += 1;
    even(n.wrapping_sub(1), steps) && steps[0] > 1 // CAUSE
}
fn main() {
    let mut steps = vec![0];
    let n = std::env::args().count() as u64;
    println!("{}", even(n, &mut steps));
}
