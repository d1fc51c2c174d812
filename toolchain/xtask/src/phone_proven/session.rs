//! A library for the DSP, and how programs are run with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build::Harness;
use super::cases::{Row, Unit};
use super::report::Run;
use crate::failure::{Failure, Result};
use crate::process;

/// A library, and the version of Hexagon that runs it.
pub struct Session<'a> {
    pub harness: &'a Harness,
    pub arch: &'a str,
    pub library: PathBuf,
    /// How engines copy, as the emulator calls it.
    pub dma: &'a str,
}

impl Session<'_> {
    /// Runs the cases of a row.
    pub fn run(&self, row: &Row) -> Result<Run> {
        self.run_with(row, &[])
    }

    /// Runs them with these variables besides.
    pub fn run_with(&self, row: &Row, variables: &[(&str, &str)]) -> Result<Run> {
        let mut command = self.command(&self.harness.tests, row.unit);
        command.args(["test", "-b", "HTP0", "-o", row.op]);
        if !row.only.is_empty() {
            command.args(["-p", row.only]);
        }
        command.env("PROVEN_SECONDS", "120").envs(variables.iter().copied());
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            let cause = format!("`{}` could not be started ({error})", process::typed(&command));
            Failure::unusable(cause, "remove target/phone-proven and try again")
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Run::read(&text(&output.stdout), &text(&output.stderr)))
    }

    /// A program that finds the library, behind the stand-in for FastRPC.
    pub fn command(&self, program: &Path, unit: Unit) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.harness.libraries);
        // Else the CPU would read weights that are arranged for the DSP.
        command.env("LM_GGML_HEXAGON_HOSTBUF", "0");
        command.env("PROVEN_ARCH", self.arch.trim_start_matches('v')).env("PROVEN_LIBRARY", &self.library);
        command.env("PROVEN_QEMU", &self.harness.emulator).env("PROVEN_GUEST", &self.harness.guest);
        command.env("PROVEN_THREADS", "2");
        command.env("PROVEN_LOG", if unit == Unit::AtOnce { "5" } else { "1" });
        // Nothing is copied before it is waited for; an error is a signal, and is counted besides.
        command.env("HEXAGON_DMA", self.dma).env("HEXAGON_DMA_ERROR", "signal").env("HEXAGON_DMA_STATS", "1");
        command
    }

    /// Keeps what a run printed, for whoever wants to know why it failed.
    pub fn keep(&self, what: &str, printed: &str) -> Result<()> {
        let path = self.harness.libraries.join(format!("{what}-{}.txt", self.arch));
        fs::write(&path, printed).map_err(|error| Failure::on_disk("write", &path, &error))?;
        println!("  what it printed is in {}", path.display());
        Ok(())
    }
}
