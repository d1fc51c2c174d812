//! Tells the linker that the library stays in memory once it is loaded.

fn main() {
    // ggml's tables point to functions here, and a host may close a library before its last object is freed.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
