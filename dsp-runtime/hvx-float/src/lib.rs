//! What the float instructions of HVX compute, lane by lane.
//!
//! HVX has had three kinds of float arithmetic:
//!
//! * [`qfloat`]: v68 to v75. Numbers of 32 or 16 bits without zero, infinity and NaN, whose lowest bit is
//!   implied.
//! * [`extended`]: v79 and v81. The same registers with a few more bits beside each lane, so that results
//!   are those of IEEE where numbers are normalised.
//! * [`ieee`]: instructions that compute in single, half or bfloat16 precision, and conversions.
//!
//! And [`matrix`] has what HMX, the matrix unit, computes of fp16 tiles.
//!
//! [`forms`] lists the 132 instructions and says what each makes of a lane.
//!
//! All of it is written from descriptions of the formats and of their rounding, with exact integers. It
//! shares nothing with the emulator of `toolchain/qemu`, and each is a test of the other. Neither was
//! compared with a processor.
#![no_std]

pub mod extended;
pub mod forms;
pub mod ieee;
pub mod matrix;
pub mod qfloat;

/// Bits that exact sums and products keep below 2^-[`FRACTION`]; what is lower counts as one bit.
const GUARD: i32 = 64;
/// Significands of all formats are integers in units of 2^-23.
const FRACTION: i32 = 23;

/// x / 2^n, rounded down to an odd number where it is no whole one: comparisons with even numbers stay right.
const fn shift_to_odd(x: i128, n: u32) -> i128 {
    let n = if n < 127 { n } else { 127 };
    let whole = x >> n;
    whole | (whole << n != x) as i128
}

/// A significand in units of 2^-23 at `exponent`, at another one with [`GUARD`] bits below.
const fn align(significand: i64, exponent: i32, to: i32) -> i128 {
    let wide = (significand as i128) << GUARD;
    if significand == 0 {
        0
    } else if exponent >= to {
        wide << (exponent - to)
    } else {
        shift_to_odd(wide, to.abs_diff(exponent))
    }
}
