//! `cargo xtask loom`: models of the queue and of the worker pool, in all orders that threads may take.
//!
//! The models run the code itself, compiled with `--cfg loom`: its atomics, cells and locks are then loom's
//! (`hexflash_abi::sync`), which tries every order of them that the memory model allows.

use crate::failure::Result;
use crate::process;
use crate::setup::{self, Set};

/// Arguments of `cargo xtask loom`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Words for the tests, such as a name to run only the models with it
    #[arg(last = true)]
    words: Vec<String>,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    let root = process::workspace_root()?;
    let mut command = process::cargo();
    command.current_dir(&root).env("RUSTFLAGS", "--cfg loom --cfg fuzzing").arg("test");
    command.arg("--target-dir").arg(root.join("target/loom"));
    // The models are where the time goes; kernels are hardly used.
    command.args(["--config", "profile.dev.package.hexflash-dsp.opt-level=0"]);
    command.args(["--config", "profile.dev.package.hexflash-abi.opt-level=2"]);
    command.args(["--config", "profile.dev.package.loom.opt-level=3"]);
    command.args(["--package", "hexflash-abi", "--package", "hexflash-dsp", "--test", "loom", "--"]);
    process::run(command.args(&arguments.words))
}
