//! Values that others have recorded: the emulator against results that tests of Qualcomm's have from the
//! vendor's simulator, `toolchain/qemu/recorded`.
//!
//! All else that the emulator is compared with was written here, from the same descriptions that the emulator
//! was written from. These numbers were not.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use hexflash_hvx_float::forms::{FORMS, Input, Version, Word};

use crate::emulator_build::CLANG;
use crate::failure::{Failure, Result};
use crate::float_values::{self, plain};
use crate::process;
use crate::toolchain::{self, Toolchain};

/// Versions that execute all of the recorded float instructions; v79 and v81 where they are told to.
const VERSIONS: [Version; 6] = [Version(68), Version(69), Version(73), Version(75), Version(79), Version(81)];
/// Words of a vector.
const LANES: usize = 32;
/// Vectors that v6mpy was recorded for.
const VECTORS: usize = 16;

/// Compares all that is recorded.
pub fn check(root: &Path, emulator: &Path) -> Result<()> {
    let floats = read_floats(&text(root, "ieee.txt")?)?;
    let words = read_words(&text(root, "v6mpy.txt")?)?;
    let mut wrong = Vec::new();
    for version in VERSIONS {
        let calls: Vec<_> = floats.iter().map(|it| (it.form, it.input)).collect();
        let got = float_values::lowest_words(root, emulator, version, &calls)?;
        wrong.extend(float_differences(version, &floats, &got));
    }
    let folder = toolchain::output_dir(root)?.join("recorded");
    fs::create_dir_all(&folder).map_err(|error| Failure::on_disk("write", &folder, &error))?;
    let program = assemble(&folder)?;
    for version in VERSIONS {
        wrong.extend(word_differences(version, &words, &multiply(emulator, version, &program, &folder)?));
    }
    if wrong.is_empty() {
        println!(
            "recorded by others: {} values of float instructions, {} of v6mpy, on each version the same",
            floats.len(),
            words.len()
        );
        return Ok(());
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    Err(Failure::failed(
        format!("{} recorded values are not what the emulator computes", wrong.len()),
        "the lines above name them; toolchain/qemu/recorded says where each comes from",
    ))
}

fn text(root: &Path, name: &str) -> Result<String> {
    let file = root.join("toolchain/qemu/recorded").join(name);
    fs::read_to_string(&file).map_err(|error| Failure::on_disk("read", &file, &error))
}

/// Lines that are no comment, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty())
}

fn malformed(line: usize, what: &str) -> Failure {
    Failure::failed(
        format!("line {line} of the recorded values: {what}"),
        "see the comment at the beginning of the file in toolchain/qemu/recorded",
    )
}

/// A recorded result of a float instruction.
#[derive(Debug)]
struct Float {
    /// Its line in the file.
    line: usize,
    /// The instruction's place in [`FORMS`].
    form: usize,
    input: Input,
    /// What is in the lowest element of what it writes.
    result: u32,
}

fn read_floats(text: &str) -> Result<Vec<Float>> {
    lines(text).map(|(line, content)| read_float(line, content)).collect()
}

fn read_float(line: usize, content: &str) -> Result<Float> {
    let fields: Vec<_> = content.split_whitespace().collect();
    let [syntax, u, v, x, result] = fields[..] else {
        return Err(malformed(line, "not an instruction and four numbers"));
    };
    let form = FORMS.iter().position(|form| form.syntax == syntax);
    let form = form.ok_or_else(|| malformed(line, "an instruction that is in no table"))?;
    let number = |field: &str| match field {
        "-" => Ok(0),
        digits => u32::from_str_radix(digits, 16).map_err(|_| malformed(line, "no hexadecimal number")),
    };
    let shape = FORMS[form].shape();
    let u = plain(splat(number(u)?, shape.u.holds.width()));
    let v = plain(splat(number(v)?, shape.v.map_or(32, |v| v.holds.width())));
    let x = splat(number(x)?, shape.to.width());
    let input = Input { u: [u, u], v, x: [x, x], q: 0, t: 0 };
    Ok(Float { line, form, input, result: number(result)? })
}

/// A number in all elements of a word.
fn splat(element: u32, width: u32) -> u32 {
    (0..32 / width).fold(0, |word, i| word | element << (i * width))
}

/// A line for each recorded value that is another one.
fn float_differences(version: Version, recorded: &[Float], got: &[u32]) -> Vec<String> {
    let differs = |(it, got): (&Float, &u32)| {
        let form = &FORMS[it.form];
        let width = form.shape().to.width();
        let got = got & (u32::MAX >> (32 - width));
        let [Word { bits: u, .. }, _] = it.input.u;
        (got != it.result).then(|| {
            format!(
                "v{}: {} of {u:08x} and {:08x}: {got:x}, and line {} of ieee.txt has {:x}",
                version.0, form.syntax, it.input.v.bits, it.line, it.result
            )
        })
    };
    recorded.iter().zip(got).filter_map(differs).collect()
}

/// The words of v6mpy, vector by vector.
fn read_words(text: &str) -> Result<Vec<u32>> {
    let mut words = Vec::new();
    for (line, content) in lines(text) {
        for digits in content.split_whitespace() {
            let word = u32::from_str_radix(digits, 16);
            words.push(word.map_err(|_| malformed(line, "no hexadecimal number"))?);
        }
    }
    if words.len() != VECTORS * LANES {
        return Err(malformed(1, &format!("{} words of v6mpy, not {}", words.len(), VECTORS * LANES)));
    }
    Ok(words)
}

/// A line for each recorded word that is another one.
fn word_differences(version: Version, recorded: &[u32], got: &[u32]) -> Vec<String> {
    let pairs = recorded.iter().zip(got).enumerate().filter(|(_, (recorded, got))| recorded != got);
    pairs
        .map(|(i, (recorded, got))| {
            format!(
                "v{}: v6mpy, vector {}, word {}: {got:08x}, and v6mpy.txt has {recorded:08x}",
                version.0,
                i / LANES,
                i % LANES
            )
        })
        .collect()
}

/// A program that executes v6mpy on four vectors as often as they come, and writes one.
const MULTIPLY: &str = "
        .text
        .globl _start
_start:
        r16 = ##input
        r20 = ##output
.Lnext: r0 = #0
        r1 = r16
        r2 = #512
        r6 = #63
        trap0(#1)
        p0 = cmp.eq(r0,##512)
        if (!p0) jump .Lend
        v2 = vmem(r16+#0)
        v3 = vmem(r16+#1)
        v4 = vmem(r16+#2)
        v5 = vmem(r16+#3)
        v5:4.w = v6mpy(v5:4.ub,v3:2.b,#1):v
        vmem(r20+#0) = v4
        r0 = #1
        r1 = r20
        r2 = #128
        r6 = #64
        trap0(#1)
        jump .Lnext
.Lend:  r0 = #0
        r6 = #94
        trap0(#1)

        .bss
        .p2align 7
input:  .space 512
output: .space 128
";

/// Builds that program.
fn assemble(folder: &Path) -> Result<PathBuf> {
    let [source, object, program] = ["v6mpy.s", "v6mpy.o", "v6mpy"].map(|name| folder.join(name));
    fs::write(&source, MULTIPLY).map_err(|error| Failure::on_disk("write", &source, &error))?;
    let clang = process::find_program(&[CLANG]).ok_or_else(|| {
        Failure::unusable(format!("{CLANG} is not on PATH"), "run `cargo xtask setup emulator`")
    })?;
    let mut assembler = Command::new(clang);
    assembler.args(["--target=hexagon-unknown-none-elf", "-mcpu=hexagonv68", "-mhvx=v68"]);
    process::run(assembler.args(["-mhvx-length=128b", "-c"]).arg(&source).arg("-o").arg(&object))?;
    process::run(Toolchain::wanted(None)?.linker()?.arg("-static").arg(&object).arg("-o").arg(&program))?;
    Ok(program)
}

/// What the emulator computes for v6mpy's operands.
fn multiply(emulator: &Path, version: Version, program: &Path, folder: &Path) -> Result<Vec<u32>> {
    let input = folder.join("input");
    let on_disk = |error: std::io::Error| Failure::on_disk("write", &input, &error);
    fs::write(&input, operands()).map_err(on_disk)?;
    let mut command = Command::new(emulator);
    command.env("QEMU_CPU", format!("v{}", version.0));
    let output = command.arg(program).stdin(File::open(&input).map_err(on_disk)?).output();
    let output = output.map_err(|error| Failure::on_disk("start", emulator, &error))?;
    if !output.status.success() || output.stdout.len() != 4 * VECTORS * LANES {
        return Err(Failure::failed(
            format!("v{}: the program of v6mpy ended with {}", version.0, output.status),
            format!("it said: {}", String::from_utf8_lossy(&output.stderr).trim()),
        ));
    }
    let words = output.stdout.chunks_exact(4);
    Ok(words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
}

/// The operands that the comment of v6mpy.txt describes: v2, v3, v4 and v5, vector by vector.
fn operands() -> Vec<u8> {
    /// By how much numbers of v4 and v5 are above those of v2 and v3.
    const ABOVE: u32 = 17;
    let mut bytes = Vec::new();
    for i in 0..VECTORS as u32 {
        for above in [0, ABOVE] {
            bytes.extend((0..4 * LANES as u32).map(|j| (4 * LANES as u32 * i + j + above) as u8));
            bytes.extend((0..LANES as u32).flat_map(|j| (LANES as u32 * i + j + above).to_le_bytes()));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats() -> Vec<Float> {
        read_floats(include_str!("../../qemu/recorded/ieee.txt")).unwrap()
    }

    /// What the definition in Rust computes.
    fn defined(version: Version, recorded: &[Float]) -> Vec<u32> {
        recorded.iter().map(|it| FORMS[it.form].compute(version, &it.input).d[0].bits).collect()
    }

    #[test]
    fn more_than_500_values_are_recorded() {
        let words = read_words(include_str!("../../qemu/recorded/v6mpy.txt")).unwrap();
        assert_eq!(floats().len() + words.len(), 541);
    }

    #[test]
    fn the_definition_of_float_instructions_has_the_recorded_values() {
        for version in VERSIONS {
            let recorded = floats();
            let differences = float_differences(version, &recorded, &defined(version, &recorded));
            assert!(differences.is_empty(), "{differences:#?}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_wherever_it_is_planted() {
        let version = Version(73);
        for i in 0..floats().len() {
            let mut recorded = floats();
            recorded[i].result ^= 1;
            let [difference] = &float_differences(version, &recorded, &defined(version, &recorded))[..]
            else {
                panic!("one difference, and no other");
            };
            assert!(difference.contains(&format!("line {} of ieee.txt", recorded[i].line)), "{difference}");
            assert!(difference.contains(FORMS[recorded[i].form].syntax), "{difference}");
        }
        let words = read_words(include_str!("../../qemu/recorded/v6mpy.txt")).unwrap();
        let mut planted = words.clone();
        planted[33] ^= 0x80;
        let differences = word_differences(version, &planted, &words);
        assert!(matches!(&differences[..], [one] if one.starts_with("v73: v6mpy, vector 1, word 1: ")));
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused() {
        let text = include_str!("../../qemu/recorded/v6mpy.txt");
        assert!(read_words(&text[..text.len() - 20]).is_err());
        assert!(read_floats("Vd.hf=vcvt(Vu.h) fffd -").is_err());
        assert!(read_floats("Vd.hf=vneg(Vu.h) fffd - - c200").is_err());
    }

    #[test]
    fn operands_count_on_from_vector_to_vector() {
        let bytes = operands();
        assert_eq!(bytes.len(), 512 * VECTORS);
        // Of the second vector: the first byte of v2 and of v4, and the first words of v3 and v5.
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((bytes[512], bytes[768], word(640), word(896)), (128, 145, 32, 49));
    }
}
