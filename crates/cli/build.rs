//! Links `clew` at a fixed address.
//!
//! Every guest process starts with an exec of clew, so its start must be cheap. A static-pie has
//! thousands of relocations that dirty 38 pages before `main`. The engine reserves the address
//! range that it is linked to (`layout::ENGINE_IMAGE`), so nothing is lost by a fixed place: the
//! code stays position-independent (it must reach itself far above 2 GiB), the data is final.

/// Inside `layout::ENGINE_IMAGE`, with room for the heap behind it.
const BASE: &str = "0x555555554000";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is =
        |key: &str, value: &str| std::env::var(key).is_ok_and(|v| v.split(',').any(|v| v == value));
    if !is("CARGO_CFG_TARGET_ENV", "musl") || !is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        return;
    }
    let arg = |arg: &str| println!("cargo:rustc-link-arg-bins=-Wl,{arg}");
    arg("-no-pie");
    arg(&format!("-Ttext-segment={BASE}"));
    // One mapping for code and constants: mappings cost time at exec and exit.
    arg("-z,noseparate-code");
    arg("-z,norelro");
    // C code is compiled for addresses below 2 GiB to be guessed at by the linker: not here.
    arg("--no-relax");
    // Rust's library uses it if it is linked, and an address that isn't can't be reached.
    arg("--undefined=getrandom");
    // The start-up object of a static-pie applies the relocations listed here: none.
    arg("--defsym=_DYNAMIC=clew_no_dynamic");
    // Optional functions, which this program hasn't got. As undefined weak symbols they would be
    // at 0, out of reach of a call.
    for name in [
        "__cxa_finalize",
        "__register_frame_info",
        "__deregister_frame_info",
        "ZSTD_trace_compress_begin",
        "ZSTD_trace_compress_end",
        "ZSTD_trace_decompress_begin",
        "ZSTD_trace_decompress_end",
    ] {
        arg(&format!("--defsym={name}=clew_nothing"));
    }
}
