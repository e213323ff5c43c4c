# rustc on a small program, then cargo on a small crate with a library, a binary and a test.
# run: long
# timeout: 600
# ignore: crate/target* *.cargo*
"$CARGO_HOME/bin/rustc" --version >/dev/null
cat >main.rs <<'X'
fn main() { let v: Vec<u64> = (1..=20).map(|n| n * n).collect(); println!("{:?} {}", &v[17..], v.iter().sum::<u64>()); }
X
"$CARGO_HOME/bin/rustc" -O main.rs -o main && ./main && rm main
mkdir -p crate/src
printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' >crate/Cargo.toml
echo 'pub fn twice(n: i32) -> i32 { n * 2 } #[test] fn works() { assert_eq!(twice(2), 4) }' >crate/src/lib.rs
echo 'fn main() { println!("{}", small::twice(21)); }' >crate/src/main.rs
cd crate
"$CARGO_HOME/bin/cargo" run --offline -q --target x86_64-unknown-linux-gnu
"$CARGO_HOME/bin/cargo" test --offline -q --target x86_64-unknown-linux-gnu 2>&1 | grep -o 'test result: ok. 1 passed' | head -1
rm -rf target
