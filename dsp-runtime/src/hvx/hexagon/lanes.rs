//! IEEE operations without HVX float: those of the scalar unit, lane by lane, and conversions from f16 by
//! integer operations on whole vectors.
//!
//! They are all that there is below v68, and what code without IEEE arithmetic of HVX (the feature `plain`)
//! takes where qfloat is not exact.

use core::arch::asm;
use core::arch::hexagon::v128::*;
use core::simd::Select;
use core::simd::cmp::{SimdPartialEq, SimdPartialOrd};

use super::{LANES, V, Words, hvx, vector, words};

/// A vector's worth of words in memory.
#[repr(C, align(128))]
pub(super) struct Buffer(pub(super) [u32; LANES]);

impl Buffer {
    /// Puts the words into a register.
    pub(super) fn vector(self) -> V {
        // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
        unsafe { core::mem::transmute(self) }
    }
}

/// One lane: `$instruction` of the scalars `{x}` and `{y}`.
macro_rules! lane_code {
    ($instruction:literal) => {
        concat!(
            "{x} = vextract({a}, {i})\n",
            "{y} = vextract({b}, {i})\n",
            $instruction,
            "\nmemw({out} + {i} << #0) = {x}\n",
            "{i} = add({i}, #4)\n",
        )
    };
}

/// `$instruction` of `$a` and `$b`, lane by lane.
///
/// Assembly, which leaves all other vectors alone: around a call they would go to memory, which the emulator
/// does byte by byte. It is slow at branches, too, so there are eight lanes to one; more would only make the
/// image larger.
macro_rules! each_lane {
    ($a:expr, $b:expr, $instruction:literal) => {{
        let mut buffer = Buffer([0; LANES]);
        // SAFETY: the loop writes 4 bytes at `out + i` for `i` = 0, 4, ... 124, which are the 32 words of
        // `buffer`; all else is registers, which are named.
        unsafe {
            asm!(
                "{i} = #0",
                "2:",
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                "p0 = cmp.eq({i}, #128)",
                "if (!p0) jump 2b",
                a = in(vreg) $a,
                b = in(vreg) $b,
                out = in(reg) buffer.0.as_mut_ptr(),
                i = out(reg) _,
                x = out(reg) _,
                y = out(reg) _,
                out("p0") _,
                options(nostack),
            );
        }
        buffer.vector()
    }};
}

/// a + b, as IEEE has it.
#[inline(always)]
pub(super) fn add(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfadd({x}, {y})")
}

/// a - b, as IEEE has it.
#[inline(always)]
pub(super) fn sub(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfsub({x}, {y})")
}

/// a b, as IEEE has it.
#[inline(always)]
pub(super) fn mul(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfmpy({x}, {y})")
}

/// Integers as floats.
#[cfg(not(target_feature = "hvx-qfloat"))]
#[inline(always)]
pub(super) fn to_float(x: V) -> V {
    each_lane!(x, x, "{x} = convert_w2sf({x})")
}

/// f16 in the low half of each word (the high half is zero) to f32.
#[inline(always)]
fn widen(half: Words) -> Words {
    let sign = (half & Words::splat(0x8000)) << Words::splat(16);
    let magnitude = half & Words::splat(0x7fff);
    // Normal: exponent and mantissa into place, and the bias changed. Infinities and NaN: changed once more.
    let rebias = Words::splat((127 - 15) << 23);
    let normal = (magnitude << Words::splat(13)) + rebias;
    let special = normal + rebias;
    // Subnormal: the leading one to bit 23, where it adds one to the exponent.
    let zeros = words(hvx!(q6_vuw_vcl0_vuw(vector(magnitude))));
    let shifted = words(hvx!(q6_vw_vasl_vwvw(vector(magnitude), vector(zeros - Words::splat(8)))));
    let subnormal = shifted + ((Words::splat(133) - zeros) << Words::splat(23));
    let value = magnitude.simd_lt(Words::splat(0x0400)).select(subnormal, normal);
    let value = magnitude.simd_ge(Words::splat(0x7c00)).select(special, value);
    let value = magnitude.simd_eq(Words::splat(0)).select(magnitude, value);
    value | sign
}

/// Low and high halves of words, each an f16, as f32.
#[inline(always)]
pub(super) fn widen_f16(x: V) -> (V, V) {
    let low = words(x) & Words::splat(0xffff);
    (vector(widen(low)), vector(widen(words(hvx!(q6_vuw_vlsr_vuwr(x, 16))))))
}
