//! `cargo xtask arm64`: the host program as machines with a Snapdragon run it, under emulation, against the
//! stand-in for FastRPC. The process that plays the DSP runs on this machine itself.

use crate::failure::Result;
use crate::linux_arm64::{LINKER, TARGET};
use crate::process;
use crate::setup::{self, Set};

/// The verb.
pub fn run() -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Cross)?;
    let root = process::workspace_root()?;
    let mut build = process::cargo();
    build
        .current_dir(&root)
        .args(["build", "--locked", "--package", "hexflash-cdsprpc", "--target", TARGET])
        // The emulated processor runs no kernel, and kernels take longest to optimise.
        .args(["--config", "profile.dev.package.hexflash-dsp.opt-level=0"])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    process::run(&mut build)?;
    // The whole workspace's features, as in the step before: what that built is used again.
    let mut test = process::cargo();
    test.current_dir(&root)
        .args(["test", "--locked", "--workspace", "--test", "htp", "arm64"])
        .env("HEXFLASH_ARM64_REQUIRED", "1");
    process::run(&mut test)
}
