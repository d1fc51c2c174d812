//! Values of every float instruction: the emulator against [`hexflash_hvx_float`], word for word.
//!
//! A program that is generated ([`guest`]) executes each instruction on many vectors ([`operands`]), on every
//! version that has it. Where published descriptions leave a result open it is not compared, and what a
//! version does not have must be refused.

mod guest;
mod operands;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hexflash_hvx_float::extended::DEFAULT;
use hexflash_hvx_float::forms::{self, FORMS, Form, Input, Version, Word};

use crate::emulator_build::CLANG;
use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::{self, Toolchain};

/// The versions that the emulator has models of.
const VERSIONS: [Version; 6] = [Version(68), Version(69), Version(73), Version(75), Version(79), Version(81)];
/// Lanes of a vector.
const LANES: usize = 32;
/// With it v79 and later execute IEEE arithmetic.
const ALLOW_IEEE: &str = "HEXAGON_HVX_IEEE";
/// The signal of a word that is no instruction.
const SIGILL: i32 = 4;
/// How many instructions a message names.
const NAMED: usize = 8;

/// A vector of operands, lane by lane, and what they are for.
struct Record {
    form: usize,
    lanes: [Input; LANES],
}

/// What a record's instruction has written.
struct Written<'a> {
    bytes: &'a [u8],
}

/// Compiles the program, and runs it under each version.
pub fn check(root: &Path, emulator: &Path) -> Result<()> {
    let run = Run::new(root, emulator)?;
    let mut wrong = Vec::new();
    for version in VERSIONS {
        let (mut forms, mut values) = (0, 0);
        for (index, form) in FORMS.iter().enumerate() {
            if form.since <= version.0 && form.is_known() {
                let records = operands::records(index, form);
                forms += 1;
                values += run.compare(version, form, &records, &mut wrong)?;
            }
        }
        let refused = run.refused(version, &mut wrong)?;
        println!("v{}: {values} vectors of {forms} instructions, {refused} refused", version.0);
    }
    println!("results that descriptions leave open, and nothing here asserts:");
    println!("  {} instructions with f8: the emulator refuses them", forms::UNKNOWN.len());
    println!("  vsetqfext: what is in the words afterwards");
    println!("  vcvt to uh of minus infinity and of NaN with a minus sign");
    if wrong.is_empty() {
        return Ok(());
    }
    for line in wrong.iter().take(NAMED) {
        eprintln!("{line}");
    }
    Err(Failure::failed(
        format!("{} float instructions of the emulator have other results than they should", wrong.len()),
        "one of toolchain/qemu/patches and dsp-runtime/hvx-float is wrong; the lines above have operands",
    ))
}

/// Executes instructions of [`FORMS`], by their places in it, on operands that are the same in all lanes;
/// gives the lowest word of what each has written.
pub fn lowest_words(
    root: &Path,
    emulator: &Path,
    version: Version,
    calls: &[(usize, Input)],
) -> Result<Vec<u32>> {
    let records: Vec<_> =
        calls.iter().map(|(form, input)| Record { form: *form, lanes: [*input; LANES] }).collect();
    let output = Run::new(root, emulator)?.start(version, &records, true)?;
    if !output.status.success() || output.stdout.len() != records.len() * guest::OUTPUT {
        return Err(Failure::failed(
            format!("v{}: the program of float instructions ended with {}", version.0, output.status),
            format!("it said: {}", String::from_utf8_lossy(&output.stderr).trim()),
        ));
    }
    let words = output.stdout.chunks_exact(guest::OUTPUT).map(|bytes| Written { bytes }.word(0, 0));
    Ok(words.collect())
}

/// The program for all versions: LLVM writes an instruction alike for each.
fn assemble(folder: &Path) -> Result<PathBuf> {
    let [source, object, program] = ["guest.s", "guest.o", "guest"].map(|name| folder.join(name));
    fs::write(&source, guest::source()).map_err(|error| Failure::on_disk("write", &source, &error))?;
    let clang = process::find_program(&[CLANG]).ok_or_else(|| {
        Failure::unusable(format!("{CLANG} is not on PATH"), "run `cargo xtask setup emulator`")
    })?;
    let mut assembler = Command::new(clang);
    assembler.args(["--target=hexagon-unknown-none-elf", "-mcpu=hexagonv81", "-mhvx=v81"]);
    assembler.args(["-mhvx-length=128b", "-mhvx-qfloat", "-mhvx-ieee-fp", "-c"]);
    process::run(assembler.arg(&source).arg("-o").arg(&object))?;
    let mut linker = Toolchain::wanted(None)?.linker()?;
    process::run(linker.arg("-static").arg(&object).arg("-o").arg(&program))?;
    Ok(program)
}

/// What runs, and where its input lies.
struct Run<'a> {
    emulator: &'a Path,
    program: PathBuf,
    folder: PathBuf,
}

impl<'a> Run<'a> {
    fn new(root: &Path, emulator: &'a Path) -> Result<Self> {
        let folder = toolchain::output_dir(root)?.join("float-values");
        fs::create_dir_all(&folder).map_err(|error| Failure::on_disk("write", &folder, &error))?;
        Ok(Self { emulator, program: assemble(&folder)?, folder })
    }

    fn start(&self, version: Version, records: &[Record], allow_ieee: bool) -> Result<Output> {
        let file = self.folder.join("input");
        let mut input = Vec::new();
        for record in records {
            guest::write_record(record, version.is_extended(), &mut input);
        }
        fs::write(&file, input).map_err(|error| Failure::on_disk("write", &file, &error))?;
        let input = File::open(&file).map_err(|error| Failure::on_disk("write", &file, &error))?;
        let mut command = Command::new(self.emulator);
        command.env("QEMU_CPU", format!("v{}", version.0)).env_remove(ALLOW_IEEE);
        if allow_ieee {
            command.env(ALLOW_IEEE, "1");
        }
        command.arg(&self.program).stdin(input);
        command.output().map_err(|error| {
            Failure::unusable(
                format!("{} could not be started ({error})", self.emulator.display()),
                "run `cargo xtask setup emulator`",
            )
        })
    }

    /// Compares all results of an instruction; gives the number of vectors.
    fn compare(
        &self,
        version: Version,
        form: &Form,
        records: &[Record],
        wrong: &mut Vec<String>,
    ) -> Result<usize> {
        let name = format!("v{}: {}", version.0, form.syntax);
        let output = self.start(version, records, true)?;
        if !output.status.success() || output.stdout.len() != records.len() * guest::OUTPUT {
            let said = String::from_utf8_lossy(&output.stderr);
            wrong.push(format!("{name}: the program ended with {}: {}", output.status, said.trim()));
            return Ok(0);
        }
        let mut differences = Vec::new();
        for (record, bytes) in records.iter().zip(output.stdout.chunks_exact(guest::OUTPUT)) {
            let written = Written { bytes };
            differences
                .extend((0..LANES).filter_map(|i| difference(form, version, &record.lanes[i], &written, i)));
        }
        if let Some(first) = differences.first() {
            wrong.push(format!("{name}: {} lanes differ, the first: {first}", differences.len()));
        }
        Ok(records.len())
    }

    /// Sees that what the version does not have ends the program; gives the number of instructions.
    fn refused(&self, version: Version, wrong: &mut Vec<String>) -> Result<usize> {
        let mut refused = 0;
        for (index, form) in FORMS.iter().enumerate() {
            let gone = version.is_extended() && form.is_ieee_arithmetic();
            if form.since <= version.0 && form.is_known() && !gone {
                continue;
            }
            refused += 1;
            let nothing = operands::nothing(index);
            let status = self.start(version, &[nothing], false)?.status;
            if signal(status) != Some(SIGILL) {
                wrong.push(format!("v{}: {} is not refused, but ends with {status}", version.0, form.syntax));
            }
        }
        Ok(refused)
    }
}

/// What is wrong in a lane.
fn difference(
    form: &Form,
    version: Version,
    input: &Input,
    written: &Written<'_>,
    lane: usize,
) -> Option<String> {
    let want = form.compute(version, input);
    let (got, right) = if form.shape().writes_predicate() {
        let got = written.predicate(lane);
        (format!("{got:04b}"), got == want.q)
    } else {
        let got = written.words(lane);
        let same = |i: usize| {
            let bits = (got[i].bits ^ want.d[i].bits) & want.known[i] == 0;
            bits && (!version.is_extended() || got[i].beside == want.d[i].beside)
        };
        let registers = if form.shape().writes_pair() { 2 } else { 1 };
        (got[..registers].iter().map(|word| show(*word)).collect::<String>(), (0..registers).all(same))
    };
    (!right).then(|| {
        let [u, v] = [input.u.map(show).concat(), show(input.v)];
        let x = input.x.map(|word| format!(" {word:08x}")).concat();
        let d = want.d.map(show).concat();
        format!("u{u} v{v} x{x} q {:04b} t {:08x}: {got} is not{d} or {:04b}", input.q, input.t, want.q)
    })
}

fn show(word: Word) -> String {
    format!(" {:08x}/{:x}", word.bits, word.beside)
}

impl Written<'_> {
    fn word(&self, vector: usize, lane: usize) -> u32 {
        let at = 4 * (vector * LANES + lane);
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    /// Both registers of the pair, or the one that is written, first.
    fn words(&self, lane: usize) -> [Word; 2] {
        [0, 1].map(|i| {
            // One bit of the four in each byte.
            let beside = self.word(guest::BESIDE + i, lane);
            Word { bits: self.word(i, lane), beside: beside.wrapping_mul(0x0101_0101) >> 24 }
        })
    }

    fn predicate(&self, lane: usize) -> u32 {
        let bytes = self.word(guest::PREDICATE, lane);
        (0..4).map(|i| (bytes >> (8 * i) & 1) << i).sum()
    }
}

#[cfg(unix)]
fn signal(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: std::process::ExitStatus) -> Option<i32> {
    None
}

/// A word with the bits beside it of a register that no qfloat instruction has written.
pub fn plain(bits: u32) -> Word {
    Word { bits, beside: DEFAULT }
}
