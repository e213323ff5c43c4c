// A Rust program: panics caught and unwound, threads, collections, a child process.
use std::collections::{BTreeMap, HashMap};
use std::panic;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

struct Loud(&'static str);
impl Drop for Loud {
    fn drop(&mut self) {
        println!("drop {}", self.0);
    }
}

fn main() {
    panic::set_hook(Box::new(|_| println!("hook")));
    let caught = panic::catch_unwind(|| {
        let _a = Loud("a");
        let _b = Loud("b");
        let v: Vec<i32> = Vec::new();
        v[std::hint::black_box(3)]
    });
    println!("caught {}", caught.is_err());
    println!("thread panicked {}", thread::spawn(|| panic!("x")).join().is_err());
    let total = Arc::new(Mutex::new(0u64));
    let (send, receive) = mpsc::channel();
    let threads: Vec<_> = (0..8u64)
        .map(|n| {
            let (total, send) = (total.clone(), send.clone());
            thread::spawn(move || {
                for i in 0..1000 {
                    *total.lock().unwrap() += i * n;
                    send.send(i).unwrap();
                }
            })
        })
        .collect();
    drop(send);
    let received: u64 = receive.iter().sum();
    for t in threads {
        t.join().unwrap();
    }
    println!("{} {received}", total.lock().unwrap());
    let words: HashMap<_, _> = (0..1000).map(|n| (n, n * n)).collect();
    let sorted: BTreeMap<_, _> = words.iter().filter(|(k, _)| *k % 250 == 0).collect();
    println!("{sorted:?}");
    let output = Command::new("echo").arg("from a child").output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{:?}", Command::new("/no/such").spawn().map(|_| ()).map_err(|e| e.kind()));
}
