//! Float arithmetic from v79 on, read from a disassembly: what is gone is not used, and what is hidden is not
//! lost.
//!
//! Those processors have no IEEE sums and products of vectors any more, only qfloat. Of its numbers some bits
//! lie outside of the register that holds them. Only operands that are written `.qf32` or `.qf16` have them;
//! any other instruction that reads such a register, a store, a permutation, a copy, a spill, takes the rest
//! for the number.
//!
//! So registers are followed through each function, along all branches and hardware loops: one that may hold
//! a qfloat result must not be read otherwise. Which way a predicate goes is not followed: both ways are
//! taken. But a write if it is true and one if it is false, with nothing between them, are taken for one
//! write. What registers hold when a function begins, or after a call, is not followed either: vectors go
//! into and out of functions through memory, and only a register that nothing was written to would show what
//! is left there.

use std::collections::{BTreeMap, BTreeSet};

use crate::listing::functions;

/// Operations that do not exist on IEEE vectors any more: sums, products, and what the vendor's compiler
/// replaces by them.
const GONE: [&str; 10] = ["vadd", "vsub", "vmpy", "vdmpy", "vcvt", "vfmax", "vfmin", "vfneg", "vabs", "vfmv"];
/// Suffixes of IEEE operands.
const IEEE: [&str; 3] = ["sf", "hf", "bf"];
/// Suffixes of operands whose hidden bits count. (`x` is those bits alone.)
const QFLOAT: [&str; 3] = ["qf32", "qf16", "x"];
/// An instruction that must not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The address of its packet.
    pub at: u64,
    /// What is wrong.
    pub text: String,
}

/// What is wrong with the code.
pub fn flaws(listing: &str) -> Vec<Flaw> {
    let mut found = Vec::new();
    for (name, body) in functions(listing) {
        let mut packets = packets(body);
        complete(&mut packets);
        found.extend(of_packets(name, &packets, |i| i.gone));
        if name.contains(COPIES) {
            continue;
        }
        found.extend(lost(&packets).into_iter().map(|(at, register, text)| {
            let text = format!("{name} at {at:#x} reads v{register}, which may hold a qfloat result: {text}");
            Flaw { at, text }
        }));
    }
    found
}

/// IEEE arithmetic of HVX, and conversions of the same kind (`vcvt`).
pub fn ieee(listing: &str) -> Vec<Flaw> {
    let converts = |text: &str| text.contains("= vcvt(v");
    let found = functions(listing).flat_map(|(name, body)| {
        of_packets(name, &packets(body), |i| i.gone || converts(i.text)).collect::<Vec<_>>()
    });
    found.collect()
}

/// The function that copies a qfloat to see what becomes of it (`hvx/hexagon/forms.rs` of the DSP runtime).
const COPIES: &str = "5forms6copied";

/// The instructions of a function that are such.
fn of_packets(
    name: &str,
    packets: &[Packet<'_>],
    is: impl Fn(&Instruction<'_>) -> bool,
) -> impl Iterator<Item = Flaw> {
    let all = packets.iter().flat_map(|p| p.instructions.iter().map(|i| (p.address, i)));
    all.filter(move |(_, i)| is(i)).map(move |(at, i)| {
        let text = format!("IEEE arithmetic in {name} at {at:#x}: {}", i.text);
        Flaw { at, text }
    })
}

/// A set of the 32 vector registers.
type Registers = u32;
/// Predicate registers.
const PREDICATES: usize = 4;

/// What an instruction does to vector registers.
#[derive(Debug, Default)]
struct Instruction<'a> {
    text: &'a str,
    /// Read for what 32 bits of each word say.
    reads: Registers,
    /// Read as results of the same packet.
    reads_new: Registers,
    /// Written with a qfloat result.
    qfloat: Registers,
    /// Written with something else.
    plain: Registers,
    /// Loaded for the other instructions of the packet.
    early: Registers,
    /// Whether it may leave the register as it was.
    conditional: bool,
    /// The predicate register that decides it, and whether that has to be true.
    predicate: Option<(usize, bool)>,
    /// Which predicate registers it writes.
    changes: [bool; PREDICATES],
    /// Whether it does not exist any more.
    gone: bool,
}

/// A packet, and where the program may go on.
#[derive(Debug, Default)]
struct Packet<'a> {
    address: u64,
    instructions: Vec<Instruction<'a>>,
    /// Registers that this packet and earlier ones have written by now, whatever a predicate is.
    completed: Registers,
    targets: Vec<u64>,
    /// Where the loops that it sets up start, the inner and the outer one.
    begins: [Option<u64>; 2],
    /// Whether it is the last of a loop, of the inner and of the outer one.
    ends: [bool; 2],
    falls_through: bool,
    /// Jumps to where a register says, and does not return.
    indirect: bool,
    calls: bool,
    /// The same, or only if a condition holds.
    may_call: bool,
}

impl<'a> Packet<'a> {
    /// The registers that may hold qfloat results after the packet.
    fn after(&self, before: Registers) -> Registers {
        if self.calls {
            // All vector registers are the callee's.
            return 0;
        }
        let sure = self.instructions.iter().filter(|i| !i.conditional);
        let written = sure.fold(self.completed, |all, i| all | i.plain | i.qfloat);
        self.instructions.iter().fold(before & !written, |all, i| all | i.qfloat)
    }

    /// What is read of registers that may hold qfloat results: a register and the instruction.
    fn lost(&self, before: Registers) -> Vec<(u32, &'a str)> {
        let early = self.instructions.iter().fold(0, |all, i| all | i.early);
        let results = self.instructions.iter().fold(0, |all, i| all | i.qfloat);
        let reads =
            self.instructions.iter().map(|i| ((i.reads & before & !early) | (i.reads_new & results), i.text));
        reads.filter(|(lost, _)| *lost != 0).map(|(lost, text)| (lost.trailing_zeros(), text)).collect()
    }
}

/// What is known where a packet begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Registers that may hold qfloat results.
    qfloat: Registers,
    /// Where the hardware loops may start over, the inner and the outer one.
    starts: [BTreeSet<u64>; 2],
}

impl State {
    /// Takes in what is known on another way; gives whether that is new.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        self.qfloat |= other.qfloat;
        for (starts, other) in self.starts.iter_mut().zip(&other.starts) {
            starts.extend(other);
        }
        *self != before
    }
}

/// Finds the registers that are written if a predicate is true, and if it is false, where nothing between the
/// two writes changes the predicate, and no other way leads there.
fn complete(packets: &mut [Packet<'_>]) {
    let starts = packets.iter().flat_map(|p| p.begins.iter().flatten().chain(&p.targets));
    let entries: BTreeSet<u64> = starts.copied().collect();
    // Written by each predicate: if it is false, and if it is true.
    let mut written = [[0; 2]; PREDICATES];
    for packet in packets {
        if entries.contains(&packet.address) {
            written = Default::default();
        }
        let qfloat = packet.instructions.iter().fold(0, |all, i| all | i.qfloat);
        for (p, written) in written.iter_mut().enumerate() {
            // Where a packet changes a predicate, its conditions may mean the old value or the new one.
            if packet.instructions.iter().any(|i| i.changes[p]) {
                *written = Default::default();
                continue;
            }
            for i in &packet.instructions {
                if let Some((_, truth)) = i.predicate.filter(|(number, _)| *number == p) {
                    written[usize::from(truth)] |= i.plain;
                }
            }
            written.iter_mut().for_each(|all: &mut Registers| *all &= !qfloat);
            packet.completed |= written[0] & written[1];
        }
        if packet.may_call || !packet.falls_through {
            written = Default::default();
        }
    }
}

/// Address, register and instruction of each read that loses bits.
fn lost<'a>(packets: &[Packet<'a>]) -> Vec<(u64, u32, &'a str)> {
    let place: BTreeMap<u64, usize> = packets.iter().enumerate().map(|(i, p)| (p.address, i)).collect();
    // Where a jump table may lead: code that nothing falls into.
    let islands: Vec<usize> = (1..packets.len()).filter(|&i| !packets[i - 1].falls_through).collect();
    let mut before = vec![State::default(); packets.len()];
    let mut waiting: Vec<usize> = (0..packets.len()).rev().collect();
    while let Some(i) = waiting.pop() {
        let packet = &packets[i];
        let mut after = State { qfloat: packet.after(before[i].qfloat), ..before[i].clone() };
        let looped = after.starts.iter().zip(packet.ends).filter(|(_, ends)| *ends).flat_map(|(all, _)| all);
        let targets = packet.targets.iter().chain(looped).filter_map(|target| place.get(target).copied());
        let next = (packet.falls_through && i + 1 < packets.len()).then_some(i + 1);
        let anywhere = islands.iter().copied().filter(|_| packet.indirect);
        let onward: Vec<usize> = targets.chain(next).chain(anywhere).collect();
        for (starts, begun) in after.starts.iter_mut().zip(packet.begins) {
            if let Some(start) = begun {
                *starts = BTreeSet::from([start]);
            }
        }
        waiting.extend(onward.into_iter().filter(|&to| before[to].join(&after)));
    }
    let reads = packets.iter().zip(before);
    let lost = |(p, before): (&Packet<'a>, State)| {
        let at = p.address;
        p.lost(before.qfloat).into_iter().map(move |(register, text)| (at, register, text))
    };
    reads.flat_map(lost).collect()
}

/// The packets of a function, from lines such as `1000: {  v0.qf32 = vmpy(v1.sf,v2.sf)`.
fn packets(body: &str) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    let mut packet = Packet::default();
    for line in body.lines() {
        let Some((address, text)) = line.split_once(':') else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        let text = text.trim();
        if text.starts_with('{') {
            packet = Packet { address, falls_through: true, ..Packet::default() };
        }
        let (code, end) = match text.split_once('}') {
            Some((code, end)) => (code, Some(end)),
            None => (text, None),
        };
        for text in code.trim_start_matches('{').split(';').map(str::trim) {
            for (kind, begins) in packet.begins.iter_mut().enumerate() {
                // `loop0(0x1000,r1)`, and pipelined ones: `p3 = sp1loop0(0x1000,r1)`.
                let start = text.split_once(&format!("loop{kind}(")).and_then(|(_, rest)| number(rest));
                *begins = begins.or(start);
            }
            packet.control(text);
            packet.instructions.push(Instruction::parse(text));
        }
        let Some(end) = end else { continue };
        packet.ends = [end.contains("endloop0"), end.contains("endloop1") || end.contains("endloop01")];
        packets.push(std::mem::take(&mut packet));
    }
    packets
}

/// The number at the start of the text, in hexadecimal digits after `0x`.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim_start().strip_prefix("0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

impl Packet<'_> {
    /// Takes in how an instruction changes the path of the program.
    fn control(&mut self, text: &str) {
        let (condition, text) = without_condition(text);
        let conditional = condition.is_some();
        let word = text.split([' ', ':', '(']).next().unwrap_or_default();
        match word {
            "jump" => {
                self.targets.extend(text.split_once(' ').and_then(|(_, rest)| number(rest)));
                self.falls_through &= conditional;
            }
            "jumpr" => {
                self.falls_through &= conditional;
                self.indirect |= !text.ends_with("r31");
            }
            "call" | "callr" => {
                self.may_call = true;
                self.calls |= !conditional;
            }
            _ => {}
        }
    }
}

/// The condition of an instruction, and the rest of it.
fn without_condition(text: &str) -> (Option<&str>, &str) {
    let Some(rest) = text.strip_prefix("if (") else { return (None, text) };
    let mut depth = 1;
    for (at, c) in rest.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return (Some(&rest[..at]), rest[at + 1..].trim_start());
        }
    }
    (Some(rest), rest)
}

impl<'a> Instruction<'a> {
    fn parse(text: &'a str) -> Self {
        let (condition, code) = without_condition(text);
        let (conditional, predicate) = (condition.is_some(), condition.and_then(self::predicate));
        let mut this = Self { text, conditional, predicate, ..Self::default() };
        if ["jump", "call"].iter().any(|word| code.starts_with(word)) {
            return this;
        }
        let (target, accumulates, source) = match code.split_once('=') {
            Some((target, source)) if !target.contains("mem") => {
                let plain = target.trim_end_matches(['+', '-', '|', '&', '^']);
                (plain.trim(), plain.len() < target.len(), source.trim())
            }
            _ => ("", false, code),
        };
        this.changes = predicates(target);
        let operands = operands(source);
        // A register against itself is a zero, whatever it holds.
        let zero = source.starts_with("vxor") && operands.len() == 2 && operands[0].0 == operands[1].0;
        for &(registers, suffix) in operands.iter().filter(|_| !zero) {
            match suffix {
                "new" => this.reads_new |= registers,
                _ if QFLOAT.contains(&suffix) => {}
                _ => this.reads |= registers,
            }
        }
        for (registers, suffix) in self::operands(target) {
            if QFLOAT.contains(&suffix) {
                this.qfloat |= registers;
            } else {
                this.plain |= registers;
                this.reads |= if accumulates || source.starts_with("vinsert") { registers } else { 0 };
                this.early |= if ["cur", "tmp"].contains(&suffix) { registers } else { 0 };
            }
            let operation = source.split('(').next().unwrap_or_default();
            let ieee = operands.iter().any(|(_, suffix)| IEEE.contains(suffix));
            this.gone |= ieee && GONE.contains(&operation) && !QFLOAT.contains(&suffix);
        }
        if target.is_empty() && (source.starts_with("vshuff(") || source.starts_with("vdeal(")) {
            // They exchange parts of two registers.
            this.plain |= this.reads;
        }
        this
    }
}

/// The number of the predicate register in a condition such as `!p0.new`, and whether it has to be true.
fn predicate(condition: &str) -> Option<(usize, bool)> {
    let (name, truth) = condition.strip_prefix('!').map_or((condition, true), |name| (name, false));
    let number = name.strip_prefix('p')?.trim_end_matches(".new").parse().ok()?;
    (number < PREDICATES).then_some((number, truth))
}

/// Which predicate registers are among the targets of an instruction: `p0`, or all of them in `p3:0`.
fn predicates(targets: &str) -> [bool; PREDICATES] {
    let words = || targets.split(|c: char| !(c.is_ascii_alphanumeric() || c == ':'));
    std::array::from_fn(|number| words().any(|word| word == "p3:0" || word == format!("p{number}")))
}

/// The vector operands in a text, in order: `v3.sf`, `v1:0.qf32`, `v2.new`.
fn operands(text: &str) -> Vec<(Registers, &str)> {
    let mut found = Vec::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '_'))) {
        let (name, suffix) = word.split_once('.').unwrap_or((word, ""));
        let Some(numbers) = name.strip_prefix('v') else { continue };
        let registers: Option<Vec<u32>> = numbers.split(':').map(|n| n.parse().ok()).collect();
        if let Some(registers) = registers.filter(|r| r.iter().all(|&r| r < Registers::BITS)) {
            found.push((registers.iter().fold(0, |all, r| all | 1 << r), suffix));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing of one function `f`; packets are at 0, 16, 32 ...
    fn listing(packets: &[&str]) -> String {
        let lines = packets.iter().enumerate().map(|(i, packet)| {
            let lines = packet.split('\n').enumerate();
            lines.map(|(j, line)| format!("{:8x}: \t{line}\n", 16 * i + 4 * j)).collect::<String>()
        });
        format!("\n00000000 <f>:\n{}", lines.collect::<String>())
    }

    fn flaws_of(packets: &[&str]) -> Vec<String> {
        flaws(&listing(packets)).into_iter().map(|flaw| flaw.text).collect()
    }

    const PRODUCT: &str = "{ v1.qf32 = vmpy(v2.sf,v3.sf) }";
    const CONVERTED: &str = "{ v1.sf = v1.qf32 }";

    #[test]
    fn what_ieee_vectors_had_is_found() {
        for gone in [
            "v1.sf = vadd(v2.sf,v3.sf)",
            "v1.sf = vsub(v2.sf,v3.sf)",
            "v1.sf = vmpy(v2.sf,v3.sf)",
            "v1.hf = vadd(v2.hf,v3.hf)",
            "v1.hf = vsub(v2.hf,v3.hf)",
            "v1.hf = vmpy(v2.hf,v3.hf)",
            "v1.hf += vmpy(v2.hf,v3.hf)",
            "v1:0.sf = vadd(v2.hf,v3.hf)",
            "v1:0.sf = vsub(v2.hf,v3.hf)",
            "v1:0.sf = vmpy(v2.hf,v3.hf)",
            "v1:0.sf += vmpy(v2.hf,v3.hf)",
            "v1.sf = vdmpy(v2.hf,v3.hf)",
            "v1.sf += vdmpy(v2.hf,v3.hf)",
            "v1:0.sf = vadd(v2.bf,v3.bf)",
            "v1:0.sf = vsub(v2.bf,v3.bf)",
            "v1:0.sf = vmpy(v2.bf,v3.bf)",
            "v1:0.sf += vmpy(v2.bf,v3.bf)",
            "v1:0.sf = vcvt(v2.hf)",
        ] {
            let found = flaws_of(&[&format!("{{ r0 = #0\n  {gone} }}  :endloop0")]);
            assert!(found.len() == 1 && found[0].contains(gone), "{gone}: {found:?}");
        }
    }

    #[test]
    fn what_is_still_there_passes() {
        let fine = [
            "{ v1.qf32 = vmpy(v2.sf,v3.sf)\n  v4.qf32 = vadd(v1.qf32,v4.qf32)\n  v5.sf = v6.qf32 }",
            "{ v9:8.qf32 = vmpy(v2.hf,v3.hf)\n  q0 = vcmp.gt(v2.sf,v3.sf)\n  v7.sf = vmax(v2.sf,v3.sf) }",
            "{ v4.qf32 = vadd(v4.qf32,v3.sf)\n  v8.sf = v10.w\n  v11.w = vadd(v12.w,v13.w) }",
            "{ v5.sf = v4.qf32\n  v9 = vxor(v9,v9) }",
            "{ vmem(r0+#0) = v5 }",
        ];
        assert_eq!(flaws_of(&fine), Vec::<String>::new());
    }

    #[test]
    fn a_result_that_is_read_otherwise_is_found() {
        for read in [
            "{ vmem(r29+#0x40) = v1 }",
            "{ vmemu(r0++#1) = v1 }",
            "{ if (q0) vmem(r0+#0x0) = v1 }",
            "{ v4 = vror(v1,r0) }",
            "{ v4 = valign(v2,v1,#4) }",
            "{ v4 = vmux(q0,v1,v2) }",
            "{ v4 = v1 }",
            "{ if (p0) v4 = v1 }",
            "{ v5:4 = vcombine(v2,v1) }",
            "{ vshuff(v1,v2,r0) }",
            "{ v5:4 = vdeal(v1,v2,r0) }",
            "{ v1.w += vrmpy(v2.ub,r0.b) }",
            "{ v1.w = vinsert(r0) }",
            "{ r0 = vextract(v1,r1) }",
            "{ q0 = vcmp.gt(v1.sf,v2.sf) }",
            "{ v4.w = vadd(v1.w,v2.w) }",
            "{ v4.qf32 = vadd(v2.qf32,v1.sf) }",
            "{ v4.sf = vmax(v1.sf,v2.sf) }",
        ] {
            let found = flaws_of(&[PRODUCT, read]);
            assert!(found.len() == 1 && found[0].contains("0x10 reads v1"), "{read}: {found:?}");
            assert_eq!(flaws_of(&[PRODUCT, CONVERTED, read]), Vec::<String>::new(), "{read}");
        }
        // Of a pair, and in the packet that makes it.
        assert_eq!(flaws_of(&["{ v1:0.qf32 = vmpy(v2.hf,v3.hf) }", "{ v4 = v0 }"]).len(), 1);
        assert_eq!(flaws_of(&["{ v1.qf32 = vmpy(v2.sf,v3.sf)\n  vmem(r0+#0x0) = v1.new }"]).len(), 1);
        assert_eq!(flaws_of(&["{ v1.sf = v2.qf32\n  vmem(r0+#0x0) = v1.new }"]).len(), 0);
    }

    #[test]
    fn packets_read_before_they_write() {
        // The store is of what was in v1 before.
        assert_eq!(flaws_of(&["{ v1.qf32 = vmpy(v2.sf,v3.sf)\n  vmem(r0+#0x0) = v1 }"]).len(), 0);
        assert_eq!(flaws_of(&[PRODUCT, "{ v1.sf = v1.qf32\n  vmem(r0+#0x0) = v1 }"]).len(), 1);
        // What a packet loads for itself is not what was there.
        assert_eq!(flaws_of(&[PRODUCT, "{ v4 = vror(v1,r0)\n  v1.cur = vmem(r0+#0x0) }"]).len(), 0);
    }

    #[test]
    fn results_are_followed_along_branches_and_loops() {
        let read = "{ v4 = vror(v1,r0) }";
        // Over code that is skipped.
        assert_eq!(flaws_of(&[PRODUCT, "{ if (p0) jump:nt 0x30 <f+0x30> }", CONVERTED, read]).len(), 1);
        assert_eq!(flaws_of(&[PRODUCT, "{ jump 0x30 <f+0x30> }", read, CONVERTED]).len(), 0);
        assert_eq!(
            flaws_of(&[
                PRODUCT,
                "{ p0 = cmp.eq(r0,#0x0); if (!p0.new) jump:t 0x30 <f+0x30> }",
                CONVERTED,
                read
            ])
            .len(),
            1
        );
        // Back to a loop's start.
        for end in [
            "{ v1.qf32 = vmpy(v2.sf,v3.sf) }  :endloop0",
            "{ v1.qf32 = vmpy(v2.sf,v3.sf)\n  if (p0) jump:nt 0x10 <f+0x10> }",
        ] {
            assert_eq!(flaws_of(&["{ loop0(0x10,r1) }", read, end]).len(), 1, "{end}");
        }
        // The start may lie after the end.
        let turned = [
            "{ loop0(0x30,r1) }",
            "{ jump 0x30 <f+0x30> }",
            "{ nop }  :endloop0",
            read,
            PRODUCT,
            "{ jump 0x20 <f+0x20> }",
        ];
        assert_eq!(flaws_of(&turned).len(), 1);
        // Another loop's end is not this one's.
        let apart = [
            "{ loop0(0x10,r1) }",
            read,
            "{ nop }  :endloop0",
            "{ loop0(0x40,r1) }",
            PRODUCT,
            "{ nop }  :endloop0",
        ];
        assert_eq!(flaws_of(&apart).len(), 0);
        // A write that may not happen leaves what was there.
        assert_eq!(flaws_of(&[PRODUCT, "{ if (p0) v1 = v2 }", read]).len(), 1);
        // Two writes with opposite conditions are one, if nothing between them changes that.
        let [yes, no] = ["{ if (p0) v1 = v2 }", "{ r0 = #0\n  if (!p0) v1 = v3 }"];
        let to_no = "{ if (p1) jump:nt 0x30 <f+0x30> }";
        assert_eq!(flaws_of(&[PRODUCT, yes, no, read]).len(), 0);
        assert_eq!(flaws_of(&[PRODUCT, "{ if (p0) v1 = v2\n  if (!p0) v1 = v3 }", read]).len(), 0);
        assert_eq!(flaws_of(&[PRODUCT, yes, "{ if (!p1) v1 = v3 }", read]).len(), 1);
        assert_eq!(flaws_of(&[PRODUCT, yes, "{ p0 = cmp.eq(r0,#0x0) }", no, read]).len(), 1);
        assert_eq!(flaws_of(&[yes, PRODUCT, no, read]).len(), 1);
        assert_eq!(flaws_of(&[PRODUCT, to_no, yes, no, read]).len(), 1);
        // After a return, another part of the function; after a jump table, any.
        assert_eq!(flaws_of(&[PRODUCT, "{ jumpr r31 }", read]).len(), 0);
        assert_eq!(flaws_of(&[PRODUCT, "{ jumpr r2 }", read]).len(), 1);
        // A call leaves nothing.
        assert_eq!(flaws_of(&[PRODUCT, "{ call 0x100 <g> }", read]).len(), 0);
    }
}
