//! Every operation of this back end against [`Portable`], on the processor that it is for.
//!
//! `hexflash-v67 check` runs it under the emulator. It is for targets without HVX float: qfloat is not the definition.

use super::Hexagon;
use crate::hvx::portable::Portable;
use crate::hvx::{Hvx, LANES};

type Bits = [u32; LANES];

/// What the operations gave, with their names; `true` where a NaN may be any NaN.
type Outcomes = heapless::Vec<(&'static str, bool, Bits), 48>;

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

fn f<H: Hvx>(bits: &Bits) -> H::F {
    // SAFETY: 128 bytes.
    unsafe { H::load(bits.as_ptr().cast()) }
}

fn out<H: Hvx>(v: H::F) -> Bits {
    let mut bits = [0; LANES];
    // SAFETY: 128 bytes.
    unsafe { H::store(bits.as_mut_ptr().cast(), v) };
    bits
}

/// Small enough for `to_int`.
fn roundable(word: u32) -> u32 {
    if f32::from_bits(word).abs() < 2_147_483_648.0 { word } else { word & 0xbfff_ffff }
}

#[inline(never)]
fn operations<H: Hvx>(floats: &[Bits; 4], words: &[Bits; 2]) -> Outcomes {
    let [x, y, u, v] = [0, 1, 2, 3].map(|i| f::<H>(&floats[i]));
    let [i, j] = [0, 1].map(|k| H::bits(f::<H>(&words[k])));
    let bytes = H::bytes(i);
    let scalar = words[1][0];
    let (low, high) = H::nibbles(bytes);
    let (even, odd) = H::widen_f16(bytes);
    let int = |v| out::<H>(H::from_bits(v));
    let byte = |v| out::<H>(H::from_bits(H::words(v)));
    let mut all = Outcomes::new();
    let mut put = |name, nan, bits| all.push((name, nan, bits)).unwrap_or_else(|_| unreachable!());
    put("add", true, out::<H>(H::add(x, y)));
    put("sub", true, out::<H>(H::sub(x, y)));
    put("mul", true, out::<H>(H::mul(x, y)));
    put("div", true, out::<H>(H::div(x, y)));
    put("max", false, out::<H>(H::max(x, y)));
    put("min", false, out::<H>(H::min(x, y)));
    put("select_gt", false, out::<H>(H::select_gt(x, y, u, v)));
    put("splat", false, out::<H>(H::splat(f32::from_bits(scalar))));
    put("splat_i", false, int(H::splat_i(scalar as i32)));
    put("splat_b", false, byte(H::splat_b(scalar as u8)));
    put("to_int", false, int(H::to_int(f::<H>(&floats[0].map(roundable)))));
    put("to_float", false, out::<H>(H::to_float(i)));
    put("add_i", false, int(H::add_i(i, j)));
    put("sub_i", false, int(H::sub_i(i, j)));
    put("mul_i", false, int(H::mul_i(i, j)));
    put("and_i", false, int(H::and_i(i, j)));
    put("or_i", false, int(H::or_i(i, j)));
    put("shl_i", false, int(H::shl_i::<23>(i)));
    put("shr_i", false, int(H::shr_i::<4>(i)));
    put("sar_i", false, int(H::sar_i::<31>(i)));
    put("vrmpy", false, int(H::vrmpy(j, bytes, scalar as i32)));
    put("nibbles, low", false, byte(low));
    put("nibbles, high", false, byte(high));
    put("widen_f16, low", false, out::<H>(even));
    put("widen_f16, high", false, out::<H>(odd));
    put("sum", true, [H::sum(x).to_bits(); LANES]);
    put("max_lane", false, [H::max_lane(x).to_bits(); LANES]);
    // Parts, at every alignment: what is around them must stay.
    let n = 1 + scalar as usize % LANES;
    let at = words[0][0] as usize % LANES;
    let mut memory = [0x5a5a_5a5a; 2 * LANES];
    // SAFETY: at + n <= 64 floats; 32 bytes from at most word 32.
    let part = unsafe {
        H::store_n(memory.as_mut_ptr().add(at).cast(), x, n);
        H::load_n(memory.as_ptr().add(at).cast(), n)
    };
    let half = |h: usize| core::array::from_fn(|lane| memory[h * LANES + lane]);
    put("load_n", false, out::<H>(part));
    put("store_n, first vector", false, half(0));
    put("store_n, second vector", false, half(1));
    let mut memory = [0x5a5a_5a5a; LANES];
    // SAFETY: 32 bytes inside of 128, at any byte.
    unsafe { H::store_low_bytes(memory.as_mut_ptr().cast::<u8>().add(at), i) };
    put("store_low_bytes", false, memory);
    all
}

/// Maxima and minima by the definition's words. The compiler (LLVM 22) turns `if a > b { a } else { b }` into `sfmax`,
/// which gives the number where one operand is NaN, and so gets `Portable` wrong on this processor.
fn correct(want: &mut Outcomes, [x, y, ..]: &[Bits; 4]) {
    let greater = |a: u32, b: u32| core::hint::black_box(f32::from_bits(a) > f32::from_bits(b));
    let larger = |a, b| if greater(a, b) { a } else { b };
    for (op, _, bits) in want {
        match *op {
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
        let floats = core::array::from_fn(|_| random.bits(edges));
        let words = core::array::from_fn(|_| random.bits(edges && round % 4 == 0));
        let got = operations::<Hexagon>(&floats, &words);
        let mut want = operations::<Portable>(&floats, &words);
        correct(&mut want, &floats);
        for (&(op, nan, got), (_, _, want)) in got.iter().zip(&want) {
            for (lane, (&got, &want)) in got.iter().zip(want).enumerate() {
                let both_nan = f32::from_bits(got).is_nan() && f32::from_bits(want).is_nan();
                if got != want && !(nan && both_nan) {
                    return Err(Difference { op, lane, got, want });
                }
            }
        }
    }
    Ok(())
}
