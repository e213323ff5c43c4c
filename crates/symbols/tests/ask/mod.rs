//! What is done with a file from a stranger, for the test with known damage and for fuzzing.
//! Nothing here may panic or take more time and memory than the bytes justify.

use clew_symbols::{DebugSearch, Module, Modules, NameKind, Registers};
use std::path::Path;
use std::sync::Arc;

/// Asks everything that can be asked of a module.
pub fn ask(bytes: Vec<u8>, code: (u64, u64)) {
    let Ok(module) =
        Module::from_bytes(bytes.clone(), Path::new("damaged"), &DebugSearch::nowhere())
    else {
        return;
    };
    for address in (code.0..code.0 + code.1).step_by(23) {
        let _ = module.places_at(address);
        let _ = module.function_at(address);
        let _ = module.body_of(address);
        let _ = module.symbol_at(address);
    }
    for name in ["area", "main", "Derived::run", "count"] {
        let _ = module.functions_named(name);
        let _ = module.dies_named(name, NameKind::Type);
        let _ = module.dies_named(name, NameKind::Variable);
        let _ = module.symbols_named(name);
    }
    let _ = module.addresses_of("shapes.c", 20);
    let mut modules = Modules::new();
    modules.add(Arc::new(module), 0, 0..1 << 20);
    // Memory with addresses of code everywhere, so that stacks go on.
    let mut memory = |address: u64, buffer: &mut [u8]| {
        for (index, byte) in buffer.iter_mut().enumerate() {
            let at = address.wrapping_add(index as u64);
            let value = code.0 + at / 8 % code.1;
            *byte = value.to_le_bytes()[(at % 8) as usize];
        }
        buffer.len()
    };
    for pc in (code.0..code.0 + code.1).step_by(61) {
        let registers = Registers::from_encoding_order([0x7000_0000; 16], pc);
        let stack = modules.stack_of(&registers, &mut memory, 50);
        let _ = stack.to_string();
    }
}
