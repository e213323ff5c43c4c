//! What a program has at addresses, or which functions a name means, with how long it took:
//! `places FILE 0x1234 main geometry::Box::area shapes.c:12`

use clew_symbols::{DebugSearch, Error, Module};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments
        .next()
        .expect("usage: places FILE (0xADDRESS | NAME | FILE:LINE)...");
    let started = Instant::now();
    let module = Module::open(Path::new(&file), Path::new(&file), &DebugSearch::default())?;
    println!(
        "opened in {:?}, debug file: {:?}",
        started.elapsed(),
        module.debug_path()
    );
    for wanted in arguments {
        let started = Instant::now();
        if let Some(address) = wanted.strip_prefix("0x") {
            let address = u64::from_str_radix(address, 16).expect("an address in hexadecimal");
            for place in module.places_at(address)? {
                let line = place
                    .line
                    .map(|line| format!("{}:{}:{}", line.file, line.line, line.column));
                let function = place.function.as_deref().unwrap_or("??");
                println!("  {function} at {}", line.as_deref().unwrap_or("??"));
            }
        } else if let Some((file, line)) = wanted
            .split_once(':')
            .filter(|(_, line)| line.parse::<u32>().is_ok())
        {
            for one in module.addresses_of(file, line.parse().expect("checked above"))? {
                println!("  {:#x} {}:{}", one.address, one.line.file, one.line.line);
            }
        } else {
            for function in module.functions_named(&wanted)?.iter().take(10) {
                println!("  {:#x} {}", function.entry, function.name);
            }
        }
        println!("{wanted}: {:?}", started.elapsed());
    }
    Ok(())
}
