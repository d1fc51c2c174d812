//! Chooses the vector back ends that kernels are compiled for.
//!
//! Each back end is all kernels once more: AVX2's take three times as long to compile as the portable ones.
//! Who builds hexflash for the machine at hand needs one of them, so the best one that this processor has is
//! compiled, and the portable one if the feature of that name is on. `HEXFLASH_VECTORS` asks for others:
//!
//! | value | compiled for x86-64 |
//! |---|---|
//! | `native`, or not set | the best of the processor that compiles; all of them where it compiles for another kind |
//! | `runnable` | all that the processor which compiles has, and the portable one: for tests |
//! | `all` | all of them, and the portable one: for programs that are given away |
//! | `portable` | the portable one: the quickest to compile, for tests of what does not depend on vectors |
//!
//! Whatever is compiled, the program asks the processor that it runs on, and results have the same bits. One
//! that finds no back end for its processor says so.

use std::env;
use std::process::exit;

/// The variable that asks for other back ends.
const CHOICE: &str = "HEXFLASH_VECTORS";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={CHOICE}");
    for back_end in ["portable", "avx2", "avx512"] {
        println!("cargo::rustc-check-cfg=cfg(vectors_{back_end})");
    }
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    // Fuzz targets do without: kernels are the same, and it would take three times as long to compile them
    // with a sanitizer's checks.
    let has_choice = is("CARGO_CFG_TARGET_ARCH", "x86_64") && env::var_os("CARGO_CFG_FUZZING").is_none();
    let choice = env::var(CHOICE).unwrap_or_else(|_| "native".to_owned());
    let is_for_itself = env::var_os("HOST") == env::var_os("TARGET");
    let mut back_ends = match choice.as_str() {
        "native" if is_for_itself => native().last().into_iter().copied().collect(),
        "runnable" if is_for_itself => native().to_vec(),
        "native" | "runnable" | "all" => vec!["avx2", "avx512"],
        "portable" => Vec::new(),
        other => {
            eprintln!("{CHOICE} is `{other}`: it can be native, runnable, all or portable");
            exit(1);
        }
    };
    if !has_choice {
        back_ends.clear();
    }
    let is_portable = env::var_os("CARGO_FEATURE_PORTABLE").is_some() || choice != "native";
    // On a DSP it would only make the library twice as large.
    if (is_portable || back_ends.is_empty()) && !is("CARGO_CFG_TARGET_ARCH", "hexagon") {
        back_ends.push("portable");
    }
    for back_end in back_ends {
        println!("cargo::rustc-cfg=vectors_{back_end}");
    }
}

/// The back ends of the processor that compiles, the best one last.
#[cfg(target_arch = "x86_64")]
fn native() -> &'static [&'static str] {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    // The same features as `HasAvx512::detect` and `HasAvx2::detect`.
    if has!("avx512f" "avx512bw" "avx512vl" "avx512vnni") {
        &["avx2", "avx512"]
    } else if has!("avx2") {
        &["avx2"]
    } else {
        &[]
    }
}

/// Nothing to choose: on other processors there is one back end at most.
#[cfg(not(target_arch = "x86_64"))]
fn native() -> &'static [&'static str] {
    &[]
}
