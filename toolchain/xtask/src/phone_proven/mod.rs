//! `cargo xtask phone-proven`: libraries that run on phones every day, under our emulator.
//!
//! An Android package has ggml-hexagon's libraries for the DSP, compiled by the vendor's compiler. They run
//! here unmodified: ggml's own tests of ops call ggml's own host side, which sends its messages to such a
//! library in the emulator, and compare what comes back with ggml's CPU backend by ggml's own tolerances.
//! Nobody of this project wrote what is run, or what it is compared with; so it is evidence for the emulator
//! that our own kernels cannot give.
//!
//! An instruction that the emulator refuses, a DMA transfer that fails, and a result that is further off than
//! ggml allows are failures, unless the difference is in the list of those that are known
//! ([`cases::KNOWN`]). Mistakes that are planted in a copy of a library must be found.

mod build;
mod cases;
mod lanes;
mod model;
mod planted;
mod races;
mod report;
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use object::FileFlags;
use object::read::{File as Elf, Object as _};

use crate::daily;
use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use build::Harness;
use cases::{ARCHS, PIPELINED_ROW, Row, TABLE, Unit};
use lanes::in_lanes;
use session::Session;

/// Arguments of `cargo xtask phone-proven`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Test this library in place of the package's: one of ggml-hexagon that takes the messages of llama.cpp
    /// b10256
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Only this version of Hexagon (with --library: what the file itself says)
    #[arg(long, value_parser = ARCHS)]
    arch: Option<String>,
    /// Only this op, by ggml's name; of one that is not in the table, all cases of ggml's
    #[arg(long)]
    op: Option<String>,
    /// Run a whole model in place of ops: 64 greedy tokens of SmolLM2 135M, compared with ggml's CPU backend
    #[arg(long, conflicts_with = "op")]
    model: bool,
    /// How the DSP's engines copy: descriptors in order, when they are waited for, or out of order
    #[arg(long, value_parser = ["late", "shuffle"], default_value = "late")]
    dma: String,
    /// One version, the next each day: what `test --full` runs
    #[arg(long, conflicts_with_all = ["library", "arch", "dma"])]
    today: bool,
}

/// Sets of what it needs.
pub const NEEDS: &[Set] = &[Set::Base, Set::Hexagon, Set::Emulator, Set::Downloads, Set::Proven];

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    NEEDS.iter().try_for_each(|set| setup::ensure(*set))?;
    let archs: Vec<&str> = match (&arguments.arch, &arguments.library) {
        (Some(arch), _) => vec![arch],
        (None, Some(library)) => vec![arch_of(library)?],
        (None, None) if arguments.today => vec![*daily::turn(&ARCHS)],
        (None, None) => ARCHS.to_vec(),
    };
    let dma = &*arguments.dma;
    let root = process::workspace_root()?;
    let harness = Harness::build(&root)?;
    let session = |arch| {
        let library = arguments.library.clone().unwrap_or_else(|| harness.library(arch));
        Session { harness: &harness, arch, library, dma }
    };
    let sessions: Vec<_> = archs.into_iter().map(session).collect();
    if arguments.model {
        return model::check(&sessions);
    }
    let rows = chosen(arguments.op.as_deref());
    let jobs: Vec<_> =
        sessions.iter().flat_map(|session| rows.iter().map(move |row| (session, row))).collect();
    let is_ours = arguments.library.is_none();
    let judgements = in_lanes(&jobs, |(session, row)| {
        let run = session.run(row)?;
        let judgement = report::judge(session.arch, row, is_ours, &run);
        print!("{judgement}");
        if judgement.has_failed() {
            session.keep(row.op, &run.printed)?;
        }
        Ok(judgement)
    })?;
    report::conclude(&judgements)?;
    // `--arch v79 --op RMS_NORM` is enough to repeat it.
    let is_its_op = arguments.op.as_deref().is_none_or(|op| op == planted::ROW.op);
    if is_ours && is_its_op && sessions.iter().any(|session| session.arch == planted::ARCH) {
        planted::check(&harness)?;
    }
    let has_races = arguments.op.as_deref().is_none_or(|op| op == PIPELINED_ROW.op);
    if is_ours && has_races && sessions.iter().any(|session| session.arch == races::ARCH) {
        races::check(&harness)?;
    }
    Ok(())
}

/// The rows of the table for this op, or one of all its cases.
fn chosen(op: Option<&str>) -> Vec<Row> {
    let Some(op) = op else { return TABLE.to_vec() };
    let rows: Vec<_> = TABLE.iter().filter(|row| row.op == op).cloned().collect();
    // The name lives as long as the process: there is one.
    let all = || Row { op: op.to_owned().leak(), only: "", unit: Unit::Beside, cases: None };
    if rows.is_empty() { vec![all()] } else { rows }
}

/// The version that a library says it is for.
fn arch_of(library: &Path) -> Result<&'static str> {
    let unusable = |what: &str| {
        let cause = format!("{} {what}", library.display());
        Failure::unusable(cause, "name a libggml-htp-vNN.so, or the version by --arch")
    };
    let bytes = fs::read(library).map_err(|error| unusable(&format!("cannot be read ({error})")))?;
    let elf = Elf::parse(&*bytes).map_err(|error| unusable(&format!("is no ELF file ({error})")))?;
    let FileFlags::Elf { e_flags, .. } = elf.flags() else { return Err(unusable("is no ELF file")) };
    let said = format!("v{:x}", e_flags.0 & 0xff);
    ARCHS.into_iter().find(|arch| *arch == said).ok_or_else(|| unusable(&format!("is for {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_outside_of_the_table_is_run_with_all_its_cases() {
        let rows = chosen(Some("POOL_2D"));
        assert!(matches!(&rows[..], [Row { op: "POOL_2D", only: "", cases: None, .. }]));
        assert!(chosen(Some("ROPE")).iter().all(|row| row.cases.is_some()));
        assert_eq!(chosen(None).len(), TABLE.len());
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let error = arch_of(Path::new(file!())).unwrap_err().to_string();
        assert!(error.contains("--arch"), "{error}");
    }
}
