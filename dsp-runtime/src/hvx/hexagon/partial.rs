//! Loads and stores of part of a vector.
//!
//! Memory is read in whole aligned vectors that hold at least one wanted byte: such a vector never leaves the
//! pages of the wanted bytes, so that reading it cannot fault, and what is unwanted is dropped. Stores write
//! exactly their bytes. Both are done in assembly, where only the machine's rules count.

use core::arch::asm;
use core::arch::hexagon::v128::{q6_v_valign_vvr, q6_v_vror_vr};

use super::{BYTES, V, hvx};

/// Reads the aligned vector that holds the byte at `p`.
///
/// # Safety
/// The byte at `p` may be read.
#[inline(always)]
unsafe fn around(p: *const u8) -> V {
    let v: V;
    // SAFETY: the byte at `p` may be read (the caller's contract), and so may the whole aligned vector around
    // it, which lies in the same page. `vmem` ignores the low bits of the address.
    unsafe { asm!("{v} = vmem({p}+#0)", v = lateout(vreg) v, p = in(reg) p, options(readonly, nostack)) };
    v
}

/// Reads `bytes` bytes (1 to 128) at `p`; the rest of the vector is zero.
///
/// # Safety
/// `bytes` is 1 to 128, and `p` is valid for reading as many.
#[inline(always)]
pub(super) unsafe fn load(p: *const u8, bytes: usize) -> V {
    // SAFETY: `bytes` is 1 to 128, and `p` is valid for reading them (the caller's contract): these are the
    // first and the last of them.
    let (low, high) = unsafe { (around(p), around(p.add(bytes - 1))) };
    // Takes as many bytes of the upper vector as `p` is past alignment; both are the same vector if one is
    // enough.
    let v = hvx!(q6_v_valign_vvr(high, low, p.addr() as i32));
    let out: V;
    // SAFETY: the assembly works on registers only, and names each one that it changes.
    unsafe {
        asm!(
            "q0 = vsetq2({n})",
            "{out} = vmux(q0, {v}, {zero})",
            n = in(reg) bytes,
            v = in(vreg) v,
            zero = in(vreg) super::vector(super::Words::splat(0)),
            out = lateout(vreg) out,
            out("q0") _,
            options(pure, nomem, nostack),
        );
    }
    out
}

/// Writes bytes `from..to` (0 <= from < to <= 128, from < 128) of `v` to the aligned vector at or below `p`.
///
/// # Safety
/// Those bytes may be written.
#[inline(always)]
unsafe fn put(p: *mut u8, v: V, from: usize, to: usize) {
    // SAFETY: `vmem` ignores the low bits of the address and writes the bytes `from..to` of the aligned
    // vector at or below `p`, which may be written (the caller's contract); bytes whose predicate is clear
    // are not written.
    unsafe {
        asm!(
            "q0 = vsetq({from})",
            "q1 = vsetq2({to})",
            "q0 = and(q1, !q0)",
            "if (q0) vmem({p}+#0) = {v}",
            from = in(reg) from,
            to = in(reg) to,
            p = in(reg) p,
            v = in(vreg) v,
            out("q0") _,
            out("q1") _,
            options(nostack),
        );
    }
}

/// Writes the first `bytes` bytes (1 to 128) of `v` to `p`.
///
/// # Safety
/// `bytes` is 1 to 128, and `p` is valid for writing as many.
#[inline(always)]
pub(super) unsafe fn store(p: *mut u8, v: V, bytes: usize) {
    let from = p.addr() % BYTES;
    // The first byte to its place in an aligned vector; what does not fit there starts the next one.
    let v = hvx!(q6_v_vror_vr(v, (p.addr() as i32).wrapping_neg()));
    let end = from + bytes;
    // SAFETY: `bytes` is 1 to 128, and `p` is valid for writing them (the caller's contract). The first `put`
    // writes those that lie in the aligned vector of `p`, from `from` on and at most to its end. If `end`
    // exceeds that, the second writes the other `end - 128` from the start of the next vector, in which `p +
    // bytes - 1` lies.
    unsafe {
        put(p, v, from, end.min(BYTES));
        if end > BYTES {
            put(p.add(bytes - 1), v, 0, end - BYTES);
        }
    }
}
