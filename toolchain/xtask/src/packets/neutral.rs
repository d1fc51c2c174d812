//! A copy of an image in which each HVX float instruction is an integer one with the same registers.
//!
//! The emulator refuses HVX float. Its results are wrong then, but kernels do not branch on values (where
//! they do, on values that stay ordinary), so that the path through the code is the one of a phone, and with
//! it the counts. Parse bits stay, and so do operands: packets keep their ends, and a `.new` its producer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile32, ProgramHeader};
use object::{LittleEndian, elf::PT_LOAD};

use crate::failure::{Failure, Result};
use crate::process;

/// Parse bits, and the fields of a vector instruction's operands.
const PARSE: u32 = 0x0000_c000;
const SECOND: u32 = 0x001f_0000;
const FIRST: u32 = 0x0000_1f00;
const VECTOR: u32 = 0x0000_001f;
const PREDICATE: u32 = 0x0000_0003;
/// The class, in the upper four bits, of vector instructions other than loads and stores.
const VECTOR_CLASS: u32 = 1;

/// Shapes of float instructions: how the text begins and goes on, which bits stay, and what the others
/// become.
const SHAPES: &[(Shape, u32, u32)] = &[
    // Vd.w = vmax(Vu.w,Vv.w): of numbers that are not negative, the larger one.
    (Shape { pair: false, sources: 2 }, PARSE | SECOND | FIRST | VECTOR, 0x1f20_0000),
    // Vd = Vu
    (Shape { pair: false, sources: 1 }, PARSE | FIRST | VECTOR, 0x1e03_20e0),
    // Vdd.h = vadd(Vu.ub,Vv.ub)
    (Shape { pair: true, sources: 2 }, PARSE | SECOND | FIRST | VECTOR, 0x1ca0_0040),
    // Vdd.h = vunpack(Vu.b)
    (Shape { pair: true, sources: 1 }, PARSE | FIRST | VECTOR, 0x1e01_0040),
];

/// Comparisons: the assignment, and the integer one.
const COMPARISONS: &[(&str, u32)] = &[("=", 0x1f80_0018), ("&=", 0x1c80_2018), ("|=", 0x1c80_2058)];

/// What an instruction writes and reads: a vector or a pair of them, of one or two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    pair: bool,
    sources: usize,
}

/// Writes the copy beside the image; `attributes` are what the disassembler must be told.
pub(super) fn neutralise(image: &Path, attributes: &str) -> Result<PathBuf> {
    let unusable = |what: &str| {
        Failure::failed(format!("{}: {what}", image.display()), "see toolchain/xtask/src/packets/neutral.rs")
    };
    let mut objdump = Command::new("llvm-objdump-22");
    objdump.arg("-d").arg(format!("--mattr={attributes}")).arg(image);
    let listing = process::output(&mut objdump).ok_or_else(|| unusable("llvm-objdump-22 cannot read it"))?;
    let mut data = fs::read(image).map_err(|error| unusable(&error.to_string()))?;
    let segments = segments(&data).ok_or_else(|| unusable("not an ELF file of this processor"))?;
    for line in listing.lines() {
        let Some((address, word, text)) = instruction(line) else { continue };
        let new = neutral(word, text).map_err(|what| unusable(&format!("{what} at {address:#x}: {text}")))?;
        let Some(new) = new else { continue };
        let place = segments.iter().find_map(|&(start, size, offset)| {
            let at = address.checked_sub(start).filter(|&at| at < size)?;
            Some((offset + at) as usize)
        });
        let place = place.and_then(|at| data.get_mut(at..)?.first_chunk_mut::<4>());
        let place = place.ok_or_else(|| unusable("code outside of its segments"))?;
        if u32::from_le_bytes(*place) != word {
            return Err(unusable(&format!("the listing is of another file at {address:#x}")));
        }
        *place = new.to_le_bytes();
    }
    let copy = image.with_extension("neutral");
    fs::write(&copy, data).map_err(|error| unusable(&error.to_string()))?;
    if let Ok(metadata) = fs::metadata(image) {
        fs::set_permissions(&copy, metadata.permissions()).map_err(|error| unusable(&error.to_string()))?;
    }
    Ok(copy)
}

/// Address, size and place in the file of each loaded segment.
fn segments(data: &[u8]) -> Option<Vec<(u32, u32, u32)>> {
    let elf = ElfFile32::<LittleEndian>::parse(data).ok()?;
    let endian = elf.endian();
    let loaded = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_LOAD);
    Some(loaded.map(|h| (h.p_vaddr(endian), h.p_filesz(endian), h.p_offset(endian))).collect())
}

/// Address, word and text of a line such as `2eec: 20 e0 e6 1f 1fe6e020 { v0.qf32 = vmpy(v0.sf,v6.sf) }`;
/// bytes, word and text have tabs before them.
fn instruction(line: &str) -> Option<(u32, u32, &str)> {
    let (address, rest) = line.split_once(':')?;
    let address = u32::from_str_radix(address.trim(), 16).ok()?;
    let (_bytes, rest) = rest.trim_start().split_once('\t')?;
    let (word, text) = rest.trim_start().split_once(' ')?;
    Some((address, u32::from_str_radix(word, 16).ok()?, text.trim_matches([' ', '\t', '{', '}'])))
}

/// The word that takes the place of a float instruction; `None` for all others.
fn neutral(word: u32, text: &str) -> std::result::Result<Option<u32>, String> {
    if text.starts_with('<') {
        // Zeros between functions, control registers that only the emulator has. A vector instruction might
        // be float.
        let vector = word >> 28 == VECTOR_CLASS;
        return if vector { Err("a vector instruction that is not known".into()) } else { Ok(None) };
    }
    // What follows the closing brace (`:endloop0`) says nothing of the instruction.
    let text = text.split('}').next().unwrap_or_default().trim();
    let float = [".sf", ".hf", ".bf", ".qf32", ".qf16"].iter().any(|kind| text.contains(kind));
    let Some((target, source)) = text.split_once('=').filter(|_| float) else { return Ok(None) };
    let (target, accumulated) = match target.strip_suffix(['&', '|', '^', '+', '-']) {
        Some(rest) => (rest, &target[rest.len()..]),
        None => (target, ""),
    };
    let unknown = || "a float instruction of an unknown shape".to_owned();
    if target.starts_with('q') {
        let assignment = format!("{accumulated}=");
        let (_, opcode) = COMPARISONS.iter().find(|(a, _)| *a == assignment).ok_or_else(unknown)?;
        return Ok(Some(word & (PARSE | SECOND | FIRST | PREDICATE) | opcode));
    }
    let sources = source.split(['(', ',', ' ', ')']).filter(|part| is_vector(part)).count();
    let shape = Shape { pair: target.contains(':'), sources };
    if !accumulated.is_empty() || !is_vector(target.trim()) {
        return Err(unknown());
    }
    let (_, kept, opcode) = SHAPES.iter().find(|(s, ..)| *s == shape).ok_or_else(unknown)?;
    Ok(Some(word & kept | opcode))
}

/// Whether the operand is a vector or a pair of them: `v1.sf`, `v1:0.qf32`.
fn is_vector(operand: &str) -> bool {
    operand.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = "    2eec:\t20 e0 e6 1f\t1fe6e020 { \tv0.qf32 = vmpy(v0.sf,v6.sf) }";
        assert_eq!(instruction(line), Some((0x2eec, 0x1fe6_e020, "v0.qf32 = vmpy(v0.sf,v6.sf)")));
        assert_eq!(instruction("00002ee0 <f>:"), None);
    }

    /// Words as the assembler gives them, before and after.
    #[test]
    fn float_becomes_integer_with_the_same_registers() {
        for (word, text, expected) in [
            (0x1fe2_e123, "v3.qf32 = vmpy(v1.sf,v2.sf)", Some(0x1f22_c103)),
            (0x1e04_e103, "v3.sf = v1.qf32", Some(0x1e03_e1e3)),
            (0x1fe2_e1e4, "v5:4.qf32 = vmpy(v1.hf,v2.hf)", Some(0x1ca2_c144)),
            (0x1e04_e184, "v5:4.sf = vcvt(v1.hf)", Some(0x1e01_c144)),
            (0x1e04_e4c3, "v3.hf = v5:4.qf32", Some(0x1e03_e4e3)),
            (0x1c82_e171, "q1 = vcmp.gt(v1.sf,v2.sf)", Some(0x1f82_c119)),
            (0x1c82_e1c9, "q1 &= vcmp.gt(v1.sf,v2.sf)", Some(0x1c82_e119)),
            // Inside a packet: other parse bits.
            (0x1fe2_6123, "v3.qf32 = vmpy(v1.sf,v2.sf)", Some(0x1f22_4103)),
            (0x1fe2_e123, "v3.qf32 = vmpy(v1.sf,v2.sf) }  :endloop0", Some(0x1f22_c103)),
            (0x1c42_c103, "v3.w = vadd(v1.w,v2.w)", None),
            (0x7f00_c000, "nop", None),
            (0, "<unknown>", None),
            (0x6a14_c000, "<unknown>", None),
        ] {
            assert_eq!(neutral(word, text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert!(neutral(0x1fe2_e123, "<unknown>").is_err());
        assert!(neutral(1, "v5:4.sf += vmpy(v3.hf,v2.hf)").is_err());
        assert!(neutral(1, "q1 ^= vcmp.gt(v1.sf,v2.sf)").is_err());
    }
}
