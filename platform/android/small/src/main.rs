//! A small program for Android with what is hard about linking for it: threads, thread-locals with
//! destructors, a panic that is caught, a backtrace, and a library that is a shared one, too.
//!
//! `cargo xtask android` links and checks it. On a phone it prints `all is well`, and ends with exit code 0.

use std::backtrace::Backtrace;
use std::panic;
use std::process::ExitCode;

use hexflash_android_small::sum_by_threads;

fn main() -> ExitCode {
    let arguments = std::env::args().count();
    let caught = panic::catch_unwind(|| {
        let nothing: Vec<u32> = Vec::new();
        nothing[arguments]
    });
    if caught.is_ok() {
        eprintln!("a panic was not caught");
        return ExitCode::FAILURE;
    }
    let sum = sum_by_threads(1000);
    if sum != 499_500 {
        eprintln!("the threads' sum is {sum}");
        return ExitCode::FAILURE;
    }
    println!("{}", Backtrace::force_capture());
    println!("all is well");
    ExitCode::SUCCESS
}
