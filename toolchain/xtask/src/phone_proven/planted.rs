//! Mistakes in a copy of a library: the check must find each of them.

use std::fs;

use object::read::{File as Elf, Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::failure::{Failure, Result};

use super::build::Harness;
use super::cases::{Row, Unit};
use super::report;
use super::session::Session;

/// A function of ggml-hexagon that computes RMS_NORM, and few other things.
const FUNCTION: &str = "unary_task_f32_rms_norm";
/// The cases that are run: the first of them would do.
pub const ROW: Row = Row { op: "RMS_NORM", only: "ne=.64,5,4,3.,v=0,", unit: Unit::Beside, cases: None };
/// The version whose library is changed: it has no IEEE arithmetic.
pub const ARCH: &str = "v79";

/// A word that is put in the place of another one of [`FUNCTION`].
struct Mistake {
    what: &'static str,
    /// The word for the first one that is replaced; none where that stays.
    change: fn(u32) -> Option<u32>,
    /// Words that the failure must have.
    told: &'static str,
}

const MISTAKES: [Mistake; 2] = [
    Mistake { what: "a sum that became a difference", change: difference, told: "is allowed" },
    Mistake {
        what: "an instruction that v79 does not have",
        // v0.sf = vadd(v0.sf,v0.sf), a packet of its own.
        change: |_| Some(0x1f80_e0c0),
        told: "refuses an instruction",
    },
];

/// `vsub` for `vadd` of a qf32 and a float. Sums of two qf32 stand in loops, too, that short rows do not
/// take.
fn difference(word: u32) -> Option<u32> {
    (word & 0xffe0_20e0 == 0x1fa0_2040).then_some(word ^ 0xe0)
}

/// Plants each mistake in a copy of the library, and sees that the cases fail in the way that they should.
pub fn check(harness: &Harness) -> Result<()> {
    let library = harness.library(ARCH);
    let bytes = fs::read(&library).map_err(|error| Failure::on_disk("read", &library, &error))?;
    for mistake in MISTAKES {
        let copy = harness.libraries.join("planted.so");
        fs::write(&copy, planted(&bytes, &mistake)?)
            .map_err(|error| Failure::on_disk("write", &copy, &error))?;
        let run = Session { harness, arch: ARCH, library: copy, dma: "late" }.run(&ROW)?;
        let judgement = report::judge(ARCH, &ROW, false, &run);
        let found = judgement.failures.first().filter(|failure| failure.contains(mistake.told));
        let Some(found) = found else {
            return Err(Failure::failed(
                format!("{} in {FUNCTION} was not found: {:?}", mistake.what, judgement.failures),
                "a check that finds nothing proves nothing: see toolchain/xtask/src/phone_proven/planted.rs",
            ));
        };
        println!("planted: {}; found: {found}", mistake.what);
    }
    Ok(())
}

/// The library with one word changed.
fn planted(library: &[u8], mistake: &Mistake) -> Result<Vec<u8>> {
    let unusable = || {
        Failure::unusable(
            format!("the library has no place in {FUNCTION} for {}", mistake.what),
            "name another function in toolchain/xtask/src/phone_proven/planted.rs",
        )
    };
    let elf = Elf::parse(library).map_err(|_| unusable())?;
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(FUNCTION)).ok_or_else(unusable)?;
    let text = elf.section_by_name(".text").ok_or_else(unusable)?;
    let (start, _) = text.file_range().ok_or_else(unusable)?;
    let first = (start + symbol.address() - text.address()) as usize;
    let mut bytes = library.to_vec();
    let words = bytes.get_mut(first..first + symbol.size() as usize).ok_or_else(unusable)?;
    for word in words.chunks_exact_mut(4) {
        let found = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if let Some(changed) = (mistake.change)(found) {
            word.copy_from_slice(&changed.to_le_bytes());
            return Ok(bytes);
        }
    }
    Err(unusable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_become_differences_of_the_same_registers() {
        // v1.qf32 = vadd(v3.qf32,v23.sf); v0.qf32 = vadd(v1.qf32,v2.qf32).
        assert_eq!(difference(0x1fb7_6341), Some(0x1fb7_63a1));
        assert_eq!(difference(0x1fa2_e100), None);
        assert_eq!(difference(0x1fe8_a7e2), None);
    }
}
