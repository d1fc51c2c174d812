//! Generations without end: random prompts, lengths, drafts and samplers, on every device, with faults. Each
//! must give what plain decoding gives; afterwards no memory, file, thread or process may be left over.
//!
//! `cargo xtask soak` builds what this needs and starts it. Exit codes: 0 nothing was wrong; 1 something was,
//! and it says which session and how to repeat it.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod resources;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod speed;
#[cfg(target_os = "linux")]
mod totals;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    soak::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: the devices that this tries are there on Linux only");
    std::process::ExitCode::from(2)
}
