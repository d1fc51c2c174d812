//! What the compiler made, read from a disassembly: of a skel library what the inner loops of the kernels
//! became, and of everything that no instruction is newer than the architecture or, from v79 on, loses bits
//! of floats.

use crate::arch::Arch;
use crate::failure::{Failure, Result};
use crate::hidden_bits::{self, Flaw};
use crate::listing::functions;
use crate::process;
use std::borrow::Cow;
use std::path::Path;
use std::process::Command;

/// A kernel whose inner loops are checked.
struct Kernel {
    /// Name for people.
    name: &'static str,
    /// Parts of the names of the functions that it is compiled into.
    function: &'static [&'static str],
    /// Each must occur in some hardware loop that has no call and moves no vector from or to the stack.
    looped: &'static [&'static str],
}

/// Float multiplication.
const MULTIPLY: &str = "vmpy(v?.sf,v?.sf)";

const KERNELS: &[Kernel] = &[
    Kernel { name: "MUL_MAT", function: &["mul_mat6MulMat"], looped: &["vrmpy(v?.ub,r?.b)", MULTIPLY] },
    Kernel { name: "GATED_DELTA_NET", function: &["13GatedDeltaNet"], looped: &[MULTIPLY] },
    Kernel { name: "RMS_NORM and L2_NORM", function: &["4norm", "4Norm"], looped: &[MULTIPLY] },
    Kernel { name: "FLASH_ATTN_EXT", function: &["10flash_attn6attend", "5tiles"], looped: &[MULTIPLY] },
];

/// As many flaws are written out.
const SHOWN: usize = 5;

/// Flaws in the code of a skel library.
pub fn check(file: &Path, arch: Arch) -> Result<Vec<String>> {
    let listing = listing(file, arch)?;
    let mut flaws: Vec<_> = KERNELS.iter().flat_map(|kernel| kernel.flaws(&listing)).collect();
    flaws.extend(shown(&instruction_flaws(&listing, arch)));
    Ok(flaws)
}

/// Flaws in the code of a plain skel library: what no library has that is known to run on phones.
pub fn check_plain(file: &Path, arch: Arch) -> Result<Vec<String>> {
    let listing = listing(file, arch)?;
    let mut flaws = unknown(&listing, arch);
    flaws.extend(hidden_bits::ieee(&listing));
    Ok(shown(&flaws))
}

/// Flaws in the code of an image, of which only the instructions matter.
pub fn check_instructions(file: &Path, arch: Arch) -> Result<Vec<String>> {
    Ok(shown(&flaws(file, arch)?))
}

/// The instructions of a file that must not be there.
pub fn flaws(file: &Path, arch: Arch) -> Result<Vec<Flaw>> {
    Ok(instruction_flaws(&listing(file, arch)?, arch))
}

fn instruction_flaws(listing: &str, arch: Arch) -> Vec<Flaw> {
    let mut flaws = unknown(listing, arch);
    if arch.hides_bits() {
        flaws.extend(hidden_bits::flaws(listing));
    }
    flaws
}

/// Words that no disassembler knows, and that may be there: what fills the space between functions, and
/// copies of c20, c21 and c22 to r0, r1 and r2, the emulator's counters.
const NO_INSTRUCTIONS: [u32; 4] = [0, 0x6a14_c000, 0x6a15_c001, 0x6a16_c002];

/// Whether a word that no disassembler knows is one of the matrix unit's, which v73 and later have: the bits
/// that all of them share are in `dsp-runtime/src/hmx/words.rs`.
fn is_matrix(word: u32, arch: Arch) -> bool {
    arch >= Arch::V73 && matches!(word & 0xffe0_0000, 0x9200_0000 | 0xa6e0_0000)
}

/// Words that the disassembler, which is told the architecture, takes for no instruction.
fn unknown(listing: &str, arch: Arch) -> Vec<Flaw> {
    let places = functions(listing).flat_map(|(name, body)| {
        body.lines().filter_map(move |line| {
            let (at, word) = line.strip_suffix("<unknown>")?.split_once(':')?;
            let at = u64::from_str_radix(at.trim(), 16).ok()?;
            let word = u32::from_str_radix(word.trim(), 16).ok()?;
            let text = format!("{name} at {at:#x} has an instruction that {arch} has not: {word:08x}");
            let known = NO_INSTRUCTIONS.contains(&word) || is_matrix(word, arch);
            (!known).then_some(Flaw { at, text })
        })
    });
    places.collect()
}

/// The first few, and how many more there are.
fn shown(flaws: &[Flaw]) -> Vec<String> {
    let mut lines: Vec<_> = flaws.iter().take(SHOWN).map(|flaw| flaw.text.clone()).collect();
    if flaws.len() > SHOWN {
        lines.push(format!("and {} more", flaws.len() - SHOWN));
    }
    lines
}

fn listing(file: &Path, arch: Arch) -> Result<String> {
    let mut objdump = Command::new("llvm-objdump-22");
    objdump.arg("-d").arg(format!("--mcpu=hexagon{arch}")).arg(format!("--mattr={}", arch.attributes()));
    let listing = process::output(objdump.arg(file)).ok_or_else(|| {
        Failure::unusable("llvm-objdump-22 could not read what was built", "run `cargo xtask setup hexagon`")
    })?;
    let mut short = String::with_capacity(listing.len());
    for line in listing.lines() {
        short.push_str(&without_words(line));
        short.push('\n');
    }
    Ok(short)
}

/// A line without its word as bytes and as a number, which only one that is no instruction keeps:
/// `1000:\t00 c0 00 7f\t7f00c000 { \tnop }` becomes `1000: { \tnop }`.
fn without_words(line: &str) -> Cow<'_, str> {
    let mut parts = line.splitn(3, '\t');
    let (Some(at), Some(_bytes), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return line.into();
    };
    let text = if rest.ends_with("<unknown>") { rest } else { rest.get(9..).unwrap_or_default() };
    format!("{at} {text}").into()
}

impl Kernel {
    fn flaws(&self, listing: &str) -> Vec<String> {
        let bodies: Vec<_> = functions(listing)
            .filter(|(name, _)| self.function.iter().all(|part| name.contains(part)))
            .map(|(_, body)| body)
            .collect();
        if bodies.is_empty() {
            return vec![format!("{} is not there", self.name)];
        }
        let loops: Vec<String> = bodies
            .iter()
            .flat_map(|body| loops(body))
            .filter(|lines| !lines.iter().any(|line| leaves_registers(line)))
            .map(|lines| lines.iter().map(|line| anonymous(line)).collect())
            .collect();
        let missing = self.looped.iter().filter(|wanted| !loops.iter().any(|code| code.contains(**wanted)));
        missing
            .map(|wanted| format!("no hardware loop of {} without a call or a spill has {wanted}", self.name))
            .collect()
    }
}

/// Whether an instruction calls, or moves a vector from or to the stack frame.
fn leaves_registers(line: &str) -> bool {
    ["call ", "callr ", "vmem(r29", "vmem(r30", "vmemu(r29", "vmemu(r30"]
        .iter()
        .any(|part| line.contains(part))
}

/// The bodies of innermost hardware loops: from the packet after the last loop set-up or loop end to an
/// `endloop0`. Where code before the loop has no such mark, it counts as part of it.
fn loops(body: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut lines = Vec::new();
    for line in body.lines() {
        lines.push(line);
        if line.contains(":endloop0") {
            found.push(std::mem::take(&mut lines));
        } else if line.contains("loop0(") || line.contains("endloop") {
            lines.clear();
        }
    }
    found
}

/// The line with `?` for the numbers of vector and scalar registers.
fn anonymous(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars().peekable();
    let mut word = false;
    while let Some(c) = chars.next() {
        text.push(c);
        if !word && matches!(c, 'v' | 'r') && chars.next_if(char::is_ascii_digit).is_some() {
            while chars.next_if(char::is_ascii_digit).is_some() {}
            text.push('?');
        }
        word = c.is_ascii_alphanumeric();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_instruction_are_found() {
        let lines = [
            "    1000:\t00 c0 00 7f\t7f00c000 { \tnop }",
            "    1004:\t60 e1 05 1e\t1e05e160 <unknown>",
            "    1008:\t00 c0 14 6a\t6a14c000 <unknown>",
            "    100c:\t00 00 00 00\t00000000 <unknown>",
            "    1010:\t13 c0 e0 a6\ta6e0c013 <unknown>",
        ];
        let lines = lines.map(without_words);
        assert_eq!(lines[0], "    1000: { \tnop }");
        let listing = format!("\n00001000 <f>:\n{}\n", lines.join("\n"));
        let flaw = |at, word, arch| Flaw {
            at,
            text: format!("f at {at:#x} has an instruction that {arch} has not: {word}"),
        };
        let (float, matrix) = ((0x1004, "1e05e160"), (0x1010, "a6e0c013"));
        let both = [float, matrix].map(|(at, word)| flaw(at, word, Arch::V68));
        assert_eq!(unknown(&listing, Arch::V68), both);
        assert_eq!(unknown(&listing, Arch::V73), [flaw(float.0, float.1, Arch::V73)]);
    }

    #[test]
    fn many_flaws_are_counted() {
        let flaws = vec![Flaw { at: 0, text: "a".to_owned() }; 9];
        let lines = shown(&flaws);
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[SHOWN], "and 4 more");
    }

    #[test]
    fn registers_lose_their_numbers() {
        assert_eq!(anonymous("v4.w += vrmpy(v18.ub,r2.b)"), "v?.w += vrmpy(v?.ub,r?.b)");
        assert_eq!(anonymous("vmem(r29+#0x40)"), "vmem(r?+#0x40)");
    }

    #[test]
    fn calls_and_spills_are_seen() {
        for line in
            ["{ call 0x100 <f> }", "{ callr r2 }", "  vmem(r29+#0x3) = v0.new }", "{ v1 = vmem(r29+#0x0) }"]
        {
            assert!(leaves_registers(line), "{line}");
        }
        assert!(!leaves_registers("{ v1.cur = vmem(r2++#1)"));
    }

    #[test]
    fn loops_are_cut_at_their_ends() {
        let listing = "\n00001000 <f>:\n{ loop0(0x10,r1) }\n{ v4.w += vrmpy(v8.ub,r2.b) }\n{ nop } \
                       :endloop0\n\n00002000 <g>:\n{ nop }\n";
        let all: Vec<_> = functions(listing).collect();
        assert_eq!(all.len(), 2);
        let (name, body) = all[0];
        assert_eq!(name, "f");
        assert_eq!(loops(body), [["{ v4.w += vrmpy(v8.ub,r2.b) }", "{ nop } :endloop0"]]);
    }
}
