//! Whether the checks of the disassembly find what they are for: instructions that must not be there are
//! planted in a copy of an image, and each of them must be found where it is.
//!
//! A word of the image is replaced by another with the same registers, so that what is around it stays.

use std::fs;
use std::path::Path;

use object::read::elf::ElfFile32;
use object::{LittleEndian, Object, ObjectSection};

use crate::arch::Arch;
use crate::disassembly;
use crate::failure::{Failure, Result};

/// As many of a kind are planted, all over the image.
const PLACES: usize = 16;
/// Bytes of the largest packet.
const PACKET: u64 = 16;
/// What a word keeps: where its packet ends.
const PACKET_END: u32 = 0xc000;

/// An instruction to plant.
struct Seed {
    what: &'static str,
    /// Words that it may replace: those that are `value` where `mask` has bits.
    mask: u32,
    value: u32,
    /// What becomes of such a word, but for the bits of the packet's end.
    planted: fn(u32) -> u32,
}

/// Vv and Vu of a word, and its Vd, where they stay.
const SOURCES_AND_RESULT: u32 = 0x001f_1f1f;

/// `Vd.sf=Vu.qf32`
const CONVERSION: [u32; 2] = [0xffff_20e0, 0x1e04_2000];

const IEEE_SUM: Seed = Seed {
    what: "an IEEE sum for one of qfloat",
    // `Vd.qf32=vadd(Vu.sf,Vv.sf)`
    mask: 0xffe0_20e0,
    value: 0x1fa0_2020,
    // `Vd.sf=vadd(Vu.sf,Vv.sf)`
    planted: |word| 0x1f80_20c0 | (word & SOURCES_AND_RESULT),
};
const SPILL: Seed = Seed {
    what: "a store to the stack for a conversion",
    mask: CONVERSION[0],
    value: CONVERSION[1],
    // `vmem(r29+#0)=Vs` of what was Vu
    planted: |word| 0x2820_0000 | 29 << 16 | (word >> 8 & 31),
};
const NEWER: Seed = Seed {
    what: "a conversion of integers for one of qfloat",
    mask: CONVERSION[0],
    value: CONVERSION[1],
    // `Vd.sf=Vu.w`, of v73
    planted: |word| 0x1e05_2060 | (word & SOURCES_AND_RESULT),
};

/// What an image of this architecture must not have.
fn seeds(arch: Arch) -> &'static [Seed] {
    match arch {
        Arch::V68 | Arch::V69 => &[NEWER],
        Arch::V79 | Arch::V81 => &[IEEE_SUM, SPILL],
        // It has no float vectors; and they have all that our code could have by mistake.
        Arch::V67 | Arch::V73 | Arch::V75 => &[],
    }
}

/// Plants each kind in a copy of an image, and sees that the checks find them.
pub fn are_found(image: &Path, arch: Arch) -> Result<()> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("{} cannot be read ({error})", image.display()), "build it again")
    };
    let original = fs::read(image).map_err(|error| unreadable(&error))?;
    for seed in seeds(arch) {
        let mut bytes = original.clone();
        let planted = seed.plant(&mut bytes).map_err(|error| unreadable(&error))?;
        let copy = image.with_extension("planted");
        fs::write(&copy, bytes).map_err(|error| unreadable(&error))?;
        let found = disassembly::flaws(&copy, arch);
        // It is made anew each time, and of no other use.
        let _ = fs::remove_file(&copy);
        let found = found?;
        let missed: Vec<_> = planted
            .iter()
            .filter(|&&at| !found.iter().any(|flaw| (flaw.at..flaw.at + PACKET).contains(&at)))
            .map(|at| format!("{at:#x}"))
            .collect();
        if planted.len() < PLACES || !missed.is_empty() {
            return Err(Failure::failed(
                format!(
                    "{}: {} was planted in {} places, and the check of the disassembly missed {} ({})",
                    image.display(),
                    seed.what,
                    planted.len(),
                    missed.len(),
                    missed.join(", ")
                ),
                "toolchain/xtask/src/disassembly.rs and toolchain/xtask/src/hidden_bits.rs look for such code",
            ));
        }
        println!("{arch}: {} is found in each of {} places", seed.what, planted.len());
    }
    Ok(())
}

impl Seed {
    /// Changes words of the code, evenly over all that fit; gives their addresses.
    fn plant(&self, image: &mut [u8]) -> object::Result<Vec<u64>> {
        let (start, length, address) = {
            let elf = ElfFile32::<LittleEndian>::parse(&*image)?;
            // Without code there is no place, which the caller tells.
            let Some(code) = elf.section_by_name(".text") else { return Ok(Vec::new()) };
            let (start, length) = code.file_range().unwrap_or_default();
            (start as usize, length as usize, code.address())
        };
        let (words, _) = image[start..start + length].as_chunks_mut::<4>();
        let fits = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & self.mask == self.value;
        let all: Vec<usize> = (0..words.len()).filter(|&i| fits(&words[i])).collect();
        let chosen = all.iter().step_by((all.len() / PLACES).max(1)).take(PLACES);
        let mut places = Vec::new();
        for &i in chosen {
            let word = u32::from_le_bytes(words[i]);
            words[i] = ((self.planted)(word) & !PACKET_END | word & PACKET_END).to_le_bytes();
            places.push(address + 4 * i as u64);
        }
        Ok(places)
    }
}
