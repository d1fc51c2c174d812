//! Every operation of this back end against [`Portable`], on the processor that it is for.
//!
//! `hexflash-v67 check` runs it under the emulator. It is for targets without HVX float: qfloat is not the
//! definition.

use super::Hexagon;
use crate::hvx::operations::{Bits, Operations, Outcomes, agree};
use crate::hvx::portable::Portable;
use crate::hvx::{Hvx, LANES, WithHvx};

/// An operation that differs.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Its name.
    pub op: &'static str,
    /// The lane.
    pub lane: usize,
    /// What HVX gave.
    pub got: u32,
    /// What the definition gives.
    pub want: u32,
}

/// Words at the borders of floats and integers: NaNs, infinities, denormals, ties, extremes.
const EDGES: [u32; 20] = [
    0,
    1,
    0x007f_ffff,
    0x0080_0000,
    0x3eff_ffff,
    0x3f00_0000,
    0x3f80_0000,
    0x3f80_0001,
    0x3fc0_0000,
    0x4020_0000,
    0x477f_e000,
    0x4780_0000,
    0x4a80_0001,
    0x4b00_0001,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc0_0000,
    0x7fff_ffff,
    0x7e80_7f00,
];

/// xorshift32.
struct Random(u32);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// Random words, or edges of either sign.
    fn bits(&mut self, edges: bool) -> Bits {
        core::array::from_fn(|_| {
            let word = self.word();
            if edges { EDGES[word as usize % EDGES.len()] | (word & 1 << 31) } else { word }
        })
    }
}

/// Small enough for `to_int`.
fn roundable(word: u32) -> u32 {
    if f32::from_bits(word).abs() < 2_147_483_648.0 { word } else { word & 0xbfff_ffff }
}

#[inline(never)]
fn outcomes<H: Hvx>(operations: &Operations) -> Outcomes {
    operations.with::<H>()
}

/// Maxima and minima by the definition's words. The compiler (LLVM 22) turns `if a > b { a } else { b }` into
/// `sfmax`, which gives the number where one operand is NaN, and so gets `Portable` wrong on this processor.
fn correct(want: &mut Outcomes, Operations { floats: [x, y, ..], .. }: &Operations) {
    let greater = |a: u32, b: u32| core::hint::black_box(f32::from_bits(a) > f32::from_bits(b));
    let larger = |a, b| if greater(a, b) { a } else { b };
    for outcome in want {
        let bits = &mut outcome.bits;
        match outcome.op {
            "max" => *bits = core::array::from_fn(|i| larger(x[i], y[i])),
            "min" => *bits = core::array::from_fn(|i| if greater(y[i], x[i]) { x[i] } else { y[i] }),
            "max_lane" => {
                let mut lanes = *x;
                for half in [16, 8, 4, 2, 1] {
                    for i in 0..half {
                        lanes[i] = larger(lanes[i], lanes[i + half]);
                    }
                }
                *bits = [lanes[0]; LANES];
            }
            _ => {}
        }
    }
}

/// Compares all operations on `rounds` vectors of edges and as many of random words.
///
/// # Errors
/// The first that differs.
pub fn run(rounds: usize) -> Result<(), Difference> {
    let mut random = Random(0x9e37_79b9);
    for round in 0..2 * rounds {
        let edges = round % 2 == 0;
        let floats: [Bits; 4] = core::array::from_fn(|_| random.bits(edges));
        let words = core::array::from_fn(|_| random.bits(edges && round % 4 == 0));
        let operations = Operations { floats, roundable: floats[0].map(roundable), words };
        let got = outcomes::<Hexagon>(&operations);
        let mut want = outcomes::<Portable>(&operations);
        correct(&mut want, &operations);
        for (got, want) in got.iter().zip(&want) {
            for (lane, (&got, &word)) in got.bits.iter().zip(&want.bits).enumerate() {
                if !agree(word, got, want.arithmetic) {
                    return Err(Difference { op: want.op, lane, got, want: word });
                }
            }
        }
    }
    Ok(())
}
