//! The program: reads a record, executes its instruction, writes what it has written, and so on to the end of
//! the input.

use std::fmt::Write;

use hexflash_hvx_float::forms::{FORMS, Form, Input};

use super::{LANES, Record};

/// Bytes of a vector.
const VECTOR: usize = 4 * LANES;
/// Bytes of a record: a vector that begins with three words (number of the instruction, Rt, whether there are
/// bits beside registers), u (a pair), v, x (a pair), the predicate, and the bits beside u and v.
const INPUT: usize = 10 * VECTOR;
/// Bytes of an answer: the registers written (a pair), the predicate, the bits beside the registers.
pub const OUTPUT: usize = 5 * VECTOR;
/// Vector of an answer with the predicate.
pub const PREDICATE: usize = 2;
/// The first vector of an answer with bits beside registers.
pub const BESIDE: usize = 3;

/// The main loop. Registers: v2 and v3 are u, v4 is v, v0 and v1 are x and what is written, q0 is the
/// predicate, r5 is Rt.
const LOOP: &str = "
        .text
        .globl _start
_start:
        r16 = ##input
        r19 = add(r16,#512)
        r20 = ##output
.Lnext:
        r0 = #0
        r1 = r16
        r2 = ##INPUT
        r6 = #63
        trap0(#1)
        p0 = cmp.eq(r0,##INPUT)
        if (!p0) jump .Lend
        r17 = memw(r16+#0)
        r5 = memw(r16+#4)
        r18 = memw(r16+#8)
        v2 = vmem(r19+#-3)
        v3 = vmem(r19+#-2)
        v4 = vmem(r19+#-1)
        v0 = vmem(r19+#0)
        v1 = vmem(r19+#1)
        v7 = vmem(r19+#2)
        r8 = ##0x01010101
        q0 = vand(v7,r8)
        p1 = cmp.eq(r18,#0)
        if (p1) jump .Lexecute
        r7 = #-1
        v10 = vmem(r19+#3)
        v10.x = vsetqfext(v10,r7)
        v2 = vmerge(v10.x,v2.w)
        v10 = vmem(r19+#4)
        v10.x = vsetqfext(v10,r7)
        v3 = vmerge(v10.x,v3.w)
        v10 = vmem(r19+#5)
        v10.x = vsetqfext(v10,r7)
        v4 = vmerge(v10.x,v4.w)
.Lexecute:
        r9 = ##forms
        r9 = memw(r9+r17<<#2)
        callr r9
        if (p1) jump .Lstore
        r7 = ##0x08040201
        v10 = vgetqfext(v0.x,r7)
        v11 = vgetqfext(v1.x,r7)
        vmem(r20+#3) = v10
        vmem(r20+#4) = v11
.Lstore:
        vmem(r20+#0) = v0
        vmem(r20+#1) = v1
        v10 = vand(q0,r8)
        vmem(r20+#2) = v10
        r0 = #1
        r1 = r20
        r2 = ##OUTPUT
        r6 = #64
        trap0(#1)
        jump .Lnext
.Lend:
        r6 = #94
        trap0(#1)

        .bss
        .p2align 7
input:  .space INPUT
output: .space OUTPUT
";

/// `Vd.h=Vu.hf:rnd`, which the assembler does not know, with the registers of [`LOOP`].
const ROUNDS: &str = ".word 0x1e06e2c0";

/// The program's text.
pub fn source() -> String {
    let mut text = LOOP.replace("INPUT", &INPUT.to_string()).replace("OUTPUT", &OUTPUT.to_string());
    text.push_str("\n        .text\n");
    for (i, form) in FORMS.iter().enumerate() {
        writeln!(text, "form{i}:\n        {}\n        jumpr r31", instruction(form)).expect("a string grows");
    }
    text.push_str("\n        .data\n        .p2align 2\nforms:\n");
    for i in 0..FORMS.len() {
        writeln!(text, "        .word form{i}").expect("a string grows");
    }
    text
}

/// The instruction with registers.
fn instruction(form: &Form) -> String {
    if form.shape().rounds {
        return ROUNDS.to_owned();
    }
    let mut text = form.syntax.to_owned();
    // The longer names first, which begin with the shorter ones.
    for (letters, register) in [
        ("Vdd", "v1:0"),
        ("Vxx", "v1:0"),
        ("Vuu", "v3:2"),
        ("Vd", "v0"),
        ("Vx", "v0"),
        ("Vu", "v2"),
        ("Vv", "v4"),
        ("Qd", "q0"),
        ("Qx", "q0"),
        ("Rt", "r5"),
    ] {
        text = text.replace(letters, register);
    }
    text
}

/// Appends a record.
pub fn write_record(record: &Record, extended: bool, to: &mut Vec<u8>) {
    let start = to.len();
    // The scalar register is the same for all lanes.
    for word in [record.form as u32, record.lanes[0].t, extended.into()] {
        to.extend(word.to_le_bytes());
    }
    to.resize(start + VECTOR, 0);
    let mut vector = |word: &dyn Fn(&Input) -> u32| {
        to.extend(record.lanes.iter().flat_map(|lane| word(lane).to_le_bytes()));
    };
    vector(&|lane| lane.u[0].bits);
    vector(&|lane| lane.u[1].bits);
    vector(&|lane| lane.v.bits);
    vector(&|lane| lane.x[0]);
    vector(&|lane| lane.x[1]);
    vector(&|lane| spread(lane.q));
    vector(&|lane| spread(lane.u[0].beside));
    vector(&|lane| spread(lane.u[1].beside));
    vector(&|lane| spread(lane.v.beside));
}

/// Four bits, one in each byte.
fn spread(bits: u32) -> u32 {
    (0..4).map(|i| (bits >> i & 1) << (8 * i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_become_registers() {
        let texts = ["Vxx.sf+=vmpy(Vu.hf,Vv.hf)", "Vd.hf=Vuu.qf32", "Vd=vgetqfext(Vu.x,Rt)"];
        let instructions = texts.map(|syntax| instruction(&Form { since: 0, syntax }));
        assert_eq!(instructions, ["v1:0.sf+=vmpy(v2.hf,v4.hf)", "v0.hf=v3:2.qf32", "v0=vgetqfext(v2.x,r5)"]);
    }

    #[test]
    fn a_bit_goes_to_each_byte() {
        assert_eq!(spread(0b1010), 0x0100_0100);
    }
}
