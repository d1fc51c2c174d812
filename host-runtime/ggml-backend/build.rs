//! Tells the linker that the library stays in memory once it is loaded, and that tests can load it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // ggml's tables point to functions here, and a host may close a library before its last object is freed.
    // Other systems' linkers have no word for it.
    if matches!(std::env::var("CARGO_CFG_TARGET_OS").as_deref(), Ok("linux" | "android")) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Under a sanitizer, the library that a test loads finds the sanitizer's functions in the test.
        println!("cargo::rustc-link-arg-tests=-rdynamic");
    }
}
