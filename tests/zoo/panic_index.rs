// An index out of bounds, computed elsewhere.
// kind: panic
#[inline(never)]
fn slot(hash: u32, count: usize) -> usize {
    (hash as usize) % (count + 1) // CAUSE
}
fn main() {
    let mut cells = vec![0u32; 7];
    for hash in 0..40 {
        let at = slot(hash, cells.len());
        cells[at] += 1;
    }
    println!("{cells:?}");
}
