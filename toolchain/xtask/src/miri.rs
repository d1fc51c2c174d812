//! `cargo xtask miri`: tests of the parts that are pure, under Miri.
//!
//! Miri interprets a program and stops at undefined behaviour: pointers that leave what they came from,
//! references that alias, uninitialised bytes, races. It is slow and knows no foreign code, so it takes the
//! ABI and those parts of the DSP runtime that need no kernels: arena, buffer tables, DMA queues, VTCM plans,
//! the worker pool.

use std::process::Command;

use crate::failure::{Failure, Result};
use crate::process;

/// Arguments of `cargo xtask miri`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The toolchain of rustup that has Miri
    #[arg(long, value_name = "NAME", default_value = "nightly")]
    toolchain: String,
}

/// Modules of the DSP runtime whose unit tests are run.
const PURE: [&str; 6] = ["program::", "buffers::", "memory::", "dma::", "vtcm::", "pool::tests::every_unit"];

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let toolchain = &arguments.toolchain;
    let miri = |words: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", toolchain, "cargo", "miri"]).args(words);
        // Another cargo runs us: its choices are not for this one.
        for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
        command
    };
    if process::output(&mut miri(&["--version"])).is_none() {
        return Err(Failure::unusable(
            format!("rustup's toolchain `{toolchain}` has no Miri"),
            format!("rustup component add miri rust-src --toolchain {toolchain}"),
        ));
    }
    let root = process::workspace_root()?;
    let abi = ["test", "--package", "hexflash-abi"];
    let mut dsp = vec!["test", "--package", "hexflash-dsp", "--lib", "--"];
    dsp.extend(PURE);
    for words in [&abi[..], &dsp] {
        // Time is asked for by the session's platform.
        let flags = "-Zmiri-disable-isolation";
        process::run(miri(words).current_dir(&root).env("MIRIFLAGS", flags))?;
    }
    Ok(())
}
