//! Loops whose packets are written out here, so that their number is known. Each gives it.
//!
//! They are functions of their own: the compiler takes no part in the registers of the hardware's loop, and a
//! call is what keeps it from having a loop of its own around.

use core::arch::asm;
use core::arch::hexagon::v128::*;

use hexflash_abi::probe::Loop;

use crate::hvx::VectorPtr;

/// Turns of a loop.
const TURNS: u32 = 1 << 16;
/// Packets of a turn, as they are written below.
const PACKETS: u32 = 8;

/// Runs a loop, and gives the number of its packets.
///
/// # Safety
/// Four vectors at `place` are valid for reading.
pub(super) unsafe fn run(kind: Loop, place: VectorPtr) -> u32 {
    match kind {
        Loop::Scalar => scalar(),
        Loop::Vectors => vectors(),
        // SAFETY: four vectors at `place` are valid for reading (the caller's contract).
        Loop::Loads => unsafe { loads(place) },
    }
}

/// Packets of four additions.
#[inline(never)]
fn scalar() -> u32 {
    // SAFETY: the assembly changes the four registers that are named, and those of the hardware's loop, which
    // nobody uses across a call. It touches no memory.
    unsafe {
        asm!(
            "loop0(2f,{turns})",
            "2:",
            ".rept 7",
            "{{ {a} = add({a},#1)",
            "   {b} = add({b},#1)",
            "   {c} = add({c},#1)",
            "   {d} = add({d},#1) }}",
            ".endr",
            "{{ {a} = add({a},#1)",
            "   {b} = add({b},#1)",
            "   {c} = add({c},#1)",
            "   {d} = add({d},#1) }}:endloop0",
            turns = in(reg) TURNS,
            a = inout(reg) 0 => _,
            b = inout(reg) 0 => _,
            c = inout(reg) 0 => _,
            d = inout(reg) 0 => _,
            options(nomem, nostack),
        );
    }
    TURNS * PACKETS
}

fn ones() -> HvxVector {
    // SAFETY: the intrinsic works on registers only, and needs HVX in 128-byte mode, which the whole crate is
    // compiled for.
    unsafe { q6_v_vsplat_r(1) }
}

/// Packets of two vector additions, which the packet behind does not need.
#[inline(never)]
fn vectors() -> u32 {
    let ones = ones();
    // SAFETY: the assembly changes the four registers that are named, and those of the hardware's loop, which
    // nobody uses across a call. It touches no memory.
    unsafe {
        asm!(
            "loop0(2f,{turns})",
            "2:",
            ".rept 3",
            "{{ {a}.w = vadd({a}.w,{ones}.w)",
            "   {b}.w = vadd({b}.w,{ones}.w) }}",
            "{{ {c}.w = vadd({c}.w,{ones}.w)",
            "   {d}.w = vadd({d}.w,{ones}.w) }}",
            ".endr",
            "{{ {a}.w = vadd({a}.w,{ones}.w)",
            "   {b}.w = vadd({b}.w,{ones}.w) }}",
            "{{ {c}.w = vadd({c}.w,{ones}.w)",
            "   {d}.w = vadd({d}.w,{ones}.w) }}:endloop0",
            turns = in(reg) TURNS,
            ones = in(vreg) ones,
            a = inout(vreg) ones => _,
            b = inout(vreg) ones => _,
            c = inout(vreg) ones => _,
            d = inout(vreg) ones => _,
            options(nomem, nostack),
        );
    }
    TURNS * PACKETS
}

/// Packets of a vector addition and a load, whose vector is added by the packet after the next.
///
/// # Safety
/// Four vectors at `place` are valid for reading.
#[inline(never)]
unsafe fn loads(place: VectorPtr) -> u32 {
    let ones = ones();
    // SAFETY: the assembly reads four vectors at `place`, which are readable (the caller's contract), and
    // changes the registers that are named, and those of the hardware's loop, which nobody uses across a
    // call.
    unsafe {
        asm!(
            "loop0(2f,{turns})",
            "2:",
            "{{ {x} = vmem({place}+#0)",
            "   {a}.w = vadd({a}.w,{z}.w) }}",
            "{{ {y} = vmem({place}+#1)",
            "   {b}.w = vadd({b}.w,{w}.w) }}",
            "{{ {z} = vmem({place}+#2)",
            "   {a}.w = vadd({a}.w,{x}.w) }}",
            "{{ {w} = vmem({place}+#3)",
            "   {b}.w = vadd({b}.w,{y}.w) }}",
            "{{ {x} = vmem({place}+#0)",
            "   {a}.w = vadd({a}.w,{z}.w) }}",
            "{{ {y} = vmem({place}+#1)",
            "   {b}.w = vadd({b}.w,{w}.w) }}",
            "{{ {z} = vmem({place}+#2)",
            "   {a}.w = vadd({a}.w,{x}.w) }}",
            "{{ {w} = vmem({place}+#3)",
            "   {b}.w = vadd({b}.w,{y}.w) }}:endloop0",
            turns = in(reg) TURNS,
            place = in(reg) place.get(),
            x = inout(vreg) ones => _,
            y = inout(vreg) ones => _,
            z = inout(vreg) ones => _,
            w = inout(vreg) ones => _,
            a = inout(vreg) ones => _,
            b = inout(vreg) ones => _,
            options(readonly, nostack),
        );
    }
    TURNS * PACKETS
}
