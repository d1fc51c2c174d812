//! Waits that are missing in a copy of the image: the detector must find each of them.

use std::fs;
use std::path::Path;

use object::read::{File as Elf, Object as _, ObjectSection as _, ObjectSymbol as _};

use super::report::{Report, Symbols};
use super::{PIPELINES, Writer};
use crate::failure::{Failure, Result};

/// `syncht`, a packet of its own: the thread waits for the matrix unit.
const SYNC: u32 = 0xa840_c000;
/// `nop`, a packet of its own.
const NOP: u32 = 0x7f00_c000;
/// Pipelines of the matrix unit: a part of the names of their functions.
const PIPELINE_NAMES: [&str; 3] = ["mul_mat", "flash_attn", "gated_delta_net"];
/// The rest of such a name.
const BY_UNIT: &str = "by_hmx";

/// Takes the waits out of one pipeline after another, in a copy of this file with these bytes.
pub fn check(writer: &Writer, file: &Path, image: &[u8]) -> Result<()> {
    let copy = writer.folder.join("hexflash-v73");
    // With its permissions: the emulator runs what is executable.
    fs::copy(file, &copy).map_err(|error| Failure::on_disk("write", &copy, &error))?;
    for pipeline in PIPELINE_NAMES {
        let (bytes, waits) = without_waits(image, pipeline)?;
        fs::write(&copy, &bytes).map_err(|error| Failure::on_disk("write", &copy, &error))?;
        let report = writer.write(&PIPELINES, &copy)?;
        let symbols = Symbols::read(&bytes, 0);
        let Some(found) = symbols.as_ref().and_then(|symbols| found(&report, symbols, pipeline)) else {
            return Err(Failure::failed(
                format!("{waits} waits of {pipeline} for the matrix unit are missing, and nothing was found"),
                "a check that finds nothing proves nothing: see toolchain/xtask/src/races/planted.rs",
            ));
        };
        println!(
            "planted: {waits} waits of {pipeline} are missing; {} races, as {found}",
            report.races.len()
        );
    }
    Ok(())
}

fn is_of(name: &str, pipeline: &str) -> bool {
    name.contains(pipeline) && name.contains(BY_UNIT)
}

/// The first race with an operation of that pipeline's unit.
fn found(report: &Report, symbols: &Symbols, pipeline: &str) -> Option<String> {
    let is_one = |race: &&super::report::Race| {
        race.line.contains("matrix") && race.pair.iter().any(|it| is_of(symbols.name(*it), pipeline))
    };
    report.races.iter().find(is_one).map(|race| symbols.describe(race))
}

/// The image without these waits, and how many there were.
fn without_waits(image: &[u8], pipeline: &str) -> Result<(Vec<u8>, usize)> {
    let none = || {
        Failure::failed(
            format!("no function of {pipeline} waits for the matrix unit"),
            "name its functions anew in toolchain/xtask/src/races/planted.rs",
        )
    };
    let elf = Elf::parse(image).map_err(|_| none())?;
    let text = elf.section_by_name(".text").ok_or_else(none)?;
    let (start, _) = text.file_range().ok_or_else(none)?;
    let mut bytes = image.to_vec();
    let mut waits = 0;
    for symbol in elf.symbols().filter(|symbol| symbol.name().is_ok_and(|name| is_of(name, pipeline))) {
        let Some(offset) = symbol.address().checked_sub(text.address()) else { continue };
        let first = (start + offset) as usize;
        let Some(words) = bytes.get_mut(first..first + symbol.size() as usize) else { continue };
        for word in words.chunks_exact_mut(4).filter(|word| **word == SYNC.to_le_bytes()) {
            word.copy_from_slice(&NOP.to_le_bytes());
            waits += 1;
        }
    }
    if waits == 0 { Err(none()) } else { Ok((bytes, waits)) }
}
