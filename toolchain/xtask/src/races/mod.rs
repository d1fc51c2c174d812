//! `cargo xtask races`: the DSP runtime under the emulator's detector of races.
//!
//! Threads, copy engines and the matrix unit work beside one another, and a wait that is missing shows
//! seldom, or on phones only. The emulator has vector clocks for all of them (`toolchain/qemu`): it reports
//! two accesses that nothing orders, whether or not they came too near in time. Here the image for v73 writes
//! texts by all three pipelines of the matrix unit, the weight stream and rounds of speculation, with DMA
//! late and out of order; there must be no race. Then the waits for the unit are taken out of a copy of the
//! image, pipeline by pipeline, and each must be found. Waits of every other kind are left out of a program
//! of the emulator's self-test.

mod planted;
pub mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::emulator_build;
use crate::failure::{Failure, Result};
use crate::hexagon::{self, Product};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain::Toolchain;
use report::{Report, Symbols, VARIABLE};

/// Characters of the prompt: a few hundred tokens, so that all pipelines have whole tiles.
const PROMPT: usize = 500;

/// A text that is written.
struct Text {
    model: &'static str,
    /// Options of `hexflash run`.
    options: &'static [&'static str],
    /// How many tokens, as `-n` takes it: drafts need some.
    tokens: &'static str,
    /// How engines copy.
    dma: &'static str,
    /// Whether the matrix unit is used.
    by_unit: bool,
}

/// Products, attention and the delta rule by the unit.
const PIPELINES: Text =
    Text { model: "tiny-hybrid-q8_0.gguf", options: &["--hmx"], tokens: "4", dma: "late", by_unit: true };

const TEXTS: [Text; 3] = [
    PIPELINES,
    Text {
        model: "tiny-hybrid-f16.gguf",
        options: &["--numerics", "hmx", "--model-draft", "models/tiny-hybrid-dflash-f16.gguf"],
        tokens: "16",
        dma: "shuffle",
        by_unit: true,
    },
    Text {
        model: "tiny-hybrid-q4_0.gguf",
        options: &["--model-draft", "models/tiny-hybrid-dflash-q8_0.gguf"],
        tokens: "16",
        dma: "late",
        by_unit: false,
    },
];

/// Accesses of the matrix unit that a text by it takes at least: its test at the start of a session takes
/// some fifty.
const LEAST_BY_UNIT: u64 = 1000;

/// The verb.
pub fn run() -> Result<()> {
    for set in [Set::Base, Set::Hexagon, Set::Emulator] {
        setup::ensure(set)?;
    }
    let root = process::workspace_root()?;
    let image = hexagon::build(&Toolchain::wanted(None)?, Arch::V73, Product::Image)?;
    let bytes = fs::read(&image).map_err(|error| Failure::on_disk("read", &image, &error))?;
    let symbols = Symbols::read(&bytes, 0).ok_or_else(|| {
        Failure::failed(format!("{} is no ELF file", image.display()), "remove it and try again")
    })?;
    let writer = Writer::build(&root)?;
    for text in &TEXTS {
        let report = writer.write(text, &image)?;
        if let Some(race) = report.races.first() {
            return Err(Failure::failed(
                format!("{} races, the first: {}", report.races.len(), symbols.describe(race)),
                "see which wait orders these two; toolchain/qemu/races.md says what counts as one",
            ));
        }
        let [scalar, vector, copy, matrix] = report.accesses;
        if report.processes == 0 || vector == 0 || copy == 0 || (matrix >= LEAST_BY_UNIT) != text.by_unit {
            return Err(Failure::failed(
                format!("{}: {report:?} is not what such a text takes", text.model),
                "see whether it still runs where it should (races/mod.rs)",
            ));
        }
        println!(
            "{} {}: no race between {scalar} scalar accesses, {vector} of vectors, {copy} of copies, \
             {matrix} of the matrix unit",
            text.model,
            text.options.join(" ")
        );
    }
    planted::check(&writer, &image, &bytes)
}

/// What writes texts on the device `qemu`.
struct Writer {
    program: PathBuf,
    /// The prompt, and the detector's reports.
    folder: PathBuf,
    root: PathBuf,
}

impl Writer {
    fn build(root: &Path) -> Result<Self> {
        process::run(process::cargo().current_dir(root).args([
            "build",
            "-p",
            "hexflash-cli",
            "--bin",
            "hexflash",
        ]))?;
        let target = process::target_dir(root)?;
        let folder = target.join("races");
        fs::create_dir_all(&folder).map_err(|error| Failure::on_disk("create", &folder, &error))?;
        let data = root.join("tests/data/compare.txt");
        let text = fs::read_to_string(&data).map_err(|error| Failure::on_disk("read", &data, &error))?;
        let prompt = folder.join("prompt.txt");
        let short: String = text.chars().take(PROMPT).collect();
        fs::write(&prompt, short).map_err(|error| Failure::on_disk("write", &prompt, &error))?;
        Ok(Self { program: target.join("debug/hexflash"), folder, root: root.to_owned() })
    }

    /// Writes a text by this image; gives what the detector says.
    fn write(&self, text: &Text, image: &Path) -> Result<Report> {
        let file = self.folder.join("report.txt");
        // The emulator appends to it.
        fs::write(&file, "").map_err(|error| Failure::on_disk("write", &file, &error))?;
        let mut command = Command::new(&self.program);
        command.current_dir(&self.root).args(["run", "--device", "qemu", "--arch", "v73", "--threads", "3"]);
        command.args(["--temp", "0", "-n", text.tokens, "--no-repack-cache", "-m"]);
        command.arg(Path::new("models").join(text.model)).args(text.options);
        command.arg("-f").arg(self.folder.join("prompt.txt"));
        command.env("HEXFLASH_QEMU", emulator_build::path()?).env("HEXFLASH_QEMU_IMAGE", image);
        command.env(VARIABLE, &file).env("HEXAGON_DMA", text.dma);
        process::run(&mut command)?;
        let said = fs::read_to_string(&file).map_err(|error| Failure::on_disk("read", &file, &error))?;
        Ok(Report::read(&said))
    }
}
