# rustc on a one-line program.
# timeout: 180
echo 'fn main() { println!("{}", (1..=10).product::<u64>()); }' >main.rs
"$CARGO_HOME/bin/rustc" -C debuginfo=0 main.rs -o main
./main
rm main
