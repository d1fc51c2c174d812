//! Gives the library its name, by which programs that were linked with it look for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without it, a program remembers the path that the linker was given. Other systems' linkers have no such
    // word.
    if matches!(std::env::var("CARGO_CFG_TARGET_OS").as_deref(), Ok("linux" | "android")) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhexflash_c.so");
    }
}
