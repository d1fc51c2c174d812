//! Every operation of a back end on one input, for comparing it with [`Portable`](super::portable::Portable):
//! in tests on the host, and on Hexagon by `hexflash-v67 check`.

use super::{BYTES, Hvx, LANES, Lookup, Numbers, Vectors, WithHvx};

/// The bits of a vector.
pub(super) type Bits = [u32; LANES];

/// What an operation gave.
pub(super) struct Outcome {
    /// Its name.
    pub op: &'static str,
    /// Which NaN it gives is not defined; all else is.
    pub arithmetic: bool,
    /// What it gave.
    pub bits: Bits,
}

/// What the operations gave, always in the same order.
pub(super) type Outcomes = heapless::Vec<Outcome, 136>;

/// A table of sixteen bytes, all different.
static TABLE: Lookup = Lookup::new([7, 250, 0, 255, 128, 127, 1, 64, 33, 200, 90, 11, 176, 66, 254, 19]);

/// A table of sixteen numbers, all different.
static NUMBERS: Numbers = Numbers::new([7, -6, 0, -1, -128, 127, 1, 64, 33, -56, 90, 11, -80, 66, -2, 19]);

/// One input for every operation.
pub(super) struct Operations {
    pub floats: [Bits; 4],
    /// Floats that `to_int` is defined for.
    pub roundable: Bits,
    pub words: [Bits; 2],
}

fn f<H: Hvx>(bits: &Bits) -> H::F {
    // SAFETY: `bits` is an array of 32 words, which are 128 bytes.
    unsafe { H::load(bits.as_ptr().cast()) }
}

fn b<H: Hvx>(bits: &Bits) -> H::B {
    // SAFETY: `bits` is an array of 32 words, which are 128 bytes.
    unsafe { H::load_b(bits.as_ptr().cast()) }
}

/// Where a vector may be aligned.
#[repr(align(128))]
struct Aligned(Bits);

/// What is written somewhere in two vectors, which hold this before.
const BEFORE: u32 = 0x5a5a_5a5a;

/// Integers as floats, others in each vector and none of them -0.
struct Integers<'a>(&'a Bits);

impl<H: Hvx> Vectors<H> for Integers<'_> {
    #[inline(always)]
    fn get(&self, i: usize) -> H::F {
        let shift = (i as u32).wrapping_mul(0x0765_4321) as i32;
        H::to_float(H::add_i(H::words(b::<H>(self.0)), H::splat_i(shift)))
    }
}

impl WithHvx for &Operations {
    type Output = Outcomes;

    #[inline(always)]
    fn with<H: Hvx>(self) -> Outcomes {
        let mut all = Outcomes::new();
        self.floats_of::<H>(&mut all);
        self.integers_of::<H>(&mut all);
        self.sums_of::<H>(&mut all);
        self.stores_of::<H>(&mut all);
        all
    }
}

/// Adds the outcome of an operation that gives floats: of arithmetic, or the very bits.
#[inline(always)]
fn put<H: Hvx>(all: &mut Outcomes, op: &'static str, arithmetic: bool, v: H::F) {
    let mut bits = [0; LANES];
    // SAFETY: `bits` is an array of 32 words, which are 128 bytes.
    unsafe { H::store(bits.as_mut_ptr().cast(), v) };
    put_bits(all, op, arithmetic, bits);
}

/// Adds the outcome of an operation that gives words.
#[inline(always)]
fn put_i<H: Hvx>(all: &mut Outcomes, op: &'static str, v: H::I) {
    put_b::<H>(all, op, H::bytes(v));
}

/// Adds the outcome of an operation that gives bytes.
#[inline(always)]
fn put_b<H: Hvx>(all: &mut Outcomes, op: &'static str, v: H::B) {
    let mut bits = [0; LANES];
    // SAFETY: `bits` is an array of 32 words, which are 128 bytes.
    unsafe { H::store_b(bits.as_mut_ptr().cast(), v) };
    put_bits(all, op, false, bits);
}

fn put_bits(all: &mut Outcomes, op: &'static str, arithmetic: bool, bits: Bits) {
    assert!(all.push(Outcome { op, arithmetic, bits }).is_ok());
}

impl Operations {
    #[inline(always)]
    fn floats_of<H: Hvx>(&self, all: &mut Outcomes) {
        let [x, y, u, v] = [0, 1, 2, 3].map(|i| f::<H>(&self.floats[i]));
        let scalar = self.words[1][0];
        put::<H>(all, "load, store", false, x);
        put::<H>(all, "add", true, H::add(x, y));
        put::<H>(all, "sub", true, H::sub(x, y));
        put::<H>(all, "mul", true, H::mul(x, y));
        put::<H>(all, "div", true, H::div(x, y));
        put::<H>(all, "max", false, H::max(x, y));
        put::<H>(all, "min", false, H::min(x, y));
        put::<H>(all, "select_gt", false, H::select_gt(x, y, u, v));
        put::<H>(all, "splat", false, H::splat(f32::from_bits(scalar)));
        put_i::<H>(all, "to_int", H::to_int(f::<H>(&self.roundable)));
        put_i::<H>(all, "bits", H::bits(x));
        put::<H>(all, "rsqrt", true, H::rsqrt(x));
        let lanes = H::lanes(x);
        put::<H>(all, "lane 0", false, H::lane(&lanes, 0));
        put::<H>(all, "lane 31", false, H::lane(&lanes, LANES - 1));
        put::<H>(all, "lane n", false, H::lane(&lanes, scalar as usize % LANES));
        let pairs = H::lane_pairs(x);
        for (op, i) in [("lane_pair 0", 0), ("lane_pair 7", 7), ("lane_pair 15", 15)] {
            let (even, odd) = H::lane_pair(&pairs, i);
            put::<H>(all, op, false, even);
            put::<H>(all, op, false, odd);
        }
        put::<H>(all, "swap_lanes 1", false, H::swap_lanes::<1>(x));
        put::<H>(all, "swap_lanes 2", false, H::swap_lanes::<2>(x));
        put::<H>(all, "swap_lanes 4", false, H::swap_lanes::<4>(x));
        put::<H>(all, "swap_lanes 8", false, H::swap_lanes::<8>(x));
        put::<H>(all, "swap_lanes 16", false, H::swap_lanes::<16>(x));
        let (low, high) = H::interleave(x, y);
        put::<H>(all, "interleave, low", false, low);
        put::<H>(all, "interleave, high", false, high);
        put::<H>(all, "add_ieee", true, H::add_ieee(x, y));
        put::<H>(all, "sub_ieee", true, H::sub_ieee(x, y));
        put::<H>(all, "mul_ieee", true, H::mul_ieee(x, y));
        // Sums of products.
        let product = H::mul_q(x, y);
        put::<H>(all, "mul_q", true, H::float(product));
        put::<H>(all, "add_q", true, H::float(H::add_q(product, H::mul_q(u, v))));
        put::<H>(all, "add_qf", true, H::float(H::add_qf(product, u)));
        put::<H>(all, "zero_q", true, H::float(H::add_qf(H::zero_q(), x)));
    }

    #[inline(always)]
    fn integers_of<H: Hvx>(&self, all: &mut Outcomes) {
        let [i, j] = [0, 1].map(|k| H::words(b::<H>(&self.words[k])));
        let (bytes, scalar) = (H::bytes(i), self.words[1][0]);
        put_b::<H>(all, "load_b, store_b, words, bytes", bytes);
        put_i::<H>(all, "splat_i", H::splat_i(scalar as i32));
        put_b::<H>(all, "splat_b", H::splat_b(scalar as u8));
        put::<H>(all, "to_float", false, H::to_float(i));
        put::<H>(all, "from_bits", false, H::from_bits(i));
        put_i::<H>(all, "add_i", H::add_i(i, j));
        put_i::<H>(all, "sub_i", H::sub_i(i, j));
        put_i::<H>(all, "mul_i", H::mul_i(i, j));
        put_i::<H>(all, "max_i", H::max_i(i, j));
        put_i::<H>(all, "and_i", H::and_i(i, j));
        put_i::<H>(all, "or_i", H::or_i(i, j));
        put_b::<H>(all, "and_b", H::and_b(bytes, H::bytes(j)));
        put_b::<H>(all, "or_b", H::or_b(bytes, H::bytes(j)));
        put_b::<H>(all, "xor_b", H::xor_b(bytes, H::bytes(j)));
        put_b::<H>(all, "raise_even_bytes", H::raise_even_bytes(bytes));
        // No half of the second is -32768.
        let factor = H::or_i(j, H::splat_i(0x0001_0001));
        put_b::<H>(all, "mul_fractions_f16", H::mul_fractions_f16(bytes, H::bytes(factor)));
        // Products and what is taken away are below 2^14.
        let [factor, less] = [j, i].map(|x| H::bytes(H::and_i(x, H::splat_i(0x3fff_3fff))));
        put_b::<H>(all, "mul_fractions_less_f16", H::mul_fractions_less_f16(bytes, factor, less));
        put_i::<H>(all, "shl_i 1", H::shl_i::<1>(i));
        put_i::<H>(all, "shl_i 23", H::shl_i::<23>(i));
        put_i::<H>(all, "shl_i 31", H::shl_i::<31>(i));
        put_i::<H>(all, "shr_i 1", H::shr_i::<1>(i));
        put_i::<H>(all, "shr_i 4", H::shr_i::<4>(i));
        put_i::<H>(all, "shr_i 31", H::shr_i::<31>(i));
        put_i::<H>(all, "sar_i 1", H::sar_i::<1>(i));
        put_i::<H>(all, "sar_i 23", H::sar_i::<23>(i));
        put_i::<H>(all, "sar_i 31", H::sar_i::<31>(i));
        // Neither sums nor products leave a word.
        let small = H::sar_i::<4>(j);
        put_i::<H>(all, "dot_halves", H::dot_halves(small, bytes, (scalar & 0x3fff_3fff) as i32));
        put_i::<H>(all, "dot_halves, negative", H::dot_halves(small, bytes, (scalar | 0xc000_c000) as i32));
        put_i::<H>(all, "vrmpy", H::vrmpy(j, bytes, scalar as i32));
        put_i::<H>(all, "first_dot_halves", H::first_dot_halves(bytes, (scalar & 0x3fff_3fff) as i32));
        put_b::<H>(all, "mul_halves", H::mul_halves(bytes, 32));
        put_b::<H>(all, "mul_halves, negative", H::mul_halves(bytes, -128));
        put_i::<H>(all, "first_vrmpy", H::first_vrmpy(bytes, scalar as i32));
        put_i::<H>(all, "vrmpy, largest", H::vrmpy(j, bytes, 0x7f7f_7f7f));
        put_i::<H>(all, "vrmpy, smallest", H::vrmpy(j, bytes, 0x8080_8080_u32 as i32));
        let (low, high) = H::nibbles(bytes);
        put_b::<H>(all, "nibbles, low", low);
        put_b::<H>(all, "nibbles, high", high);
        put_b::<H>(all, "pair_halves", H::pair_halves(i, j));
        let (lower, upper) = H::deal_halves(bytes, H::bytes(j));
        put_b::<H>(all, "deal_halves, low", lower);
        put_b::<H>(all, "deal_halves, high", upper);
        // No half is -32768.
        let [a, b] = [i, j].map(|x| H::bytes(H::or_i(x, H::splat_i(0x0001_0001))));
        put_i::<H>(all, "dot_pairs", H::dot_pairs(a, b));
        put_b::<H>(all, "shr_b 4", H::shr_b::<4>(bytes));
        put_b::<H>(all, "shr_b 7", H::shr_b::<7>(bytes));
        put_i::<H>(all, "add_shl 1", H::add_shl::<1>(i, j));
        put_i::<H>(all, "add_shl 4", H::add_shl::<4>(i, j));
        put_i::<H>(all, "add_sar 2", H::add_sar::<2>(i, j));
        put_i::<H>(all, "mul_low_halves", H::mul_low_halves(i, j));
        put_i::<H>(all, "mul_high_halves", H::mul_high_halves(i, j));
        put_i::<H>(all, "mul_add_low_halves", H::mul_add_low_halves(j, i, j));
        let (even, odd) = H::widen_bytes(bytes);
        put_i::<H>(all, "widen_bytes, even", even);
        put_i::<H>(all, "widen_bytes, odd", odd);
        for (op, words) in
            ["unpack_bytes, first", "unpack_bytes, second", "unpack_bytes, third", "unpack_bytes, last"]
                .into_iter()
                .zip(H::unpack_bytes(bytes))
        {
            put_i::<H>(all, op, words);
        }
        put_i::<H>(all, "add_pairs", H::add_pairs(i, j));
        put_b::<H>(all, "lookup", H::lookup(low, &TABLE));
        put_b::<H>(all, "lookup_low", H::lookup_low(bytes, &TABLE));
        for (op, numbers) in ["lookup_floats, 0", "lookup_floats, 1", "lookup_floats, 2", "lookup_floats, 3"]
            .into_iter()
            .zip(H::lookup_floats(bytes, &NUMBERS))
        {
            put::<H>(all, op, true, numbers);
        }
        let halves = H::lookup_f16(bytes, &NUMBERS);
        put_b::<H>(all, "lookup_f16, even", halves[0]);
        put_b::<H>(all, "lookup_f16, odd", halves[1]);
        let signed = H::bytes_to_f16(bytes);
        put_b::<H>(all, "bytes_to_f16, low", signed[0]);
        put_b::<H>(all, "bytes_to_f16, high", signed[1]);
        // Products of finite numbers that are no larger than an f16.
        let fractions = H::bytes(H::and_i(i, H::splat_i(0xbfff_bfff_u32 as i32)));
        put_b::<H>(all, "mul_f16", H::mul_f16(signed[0], fractions));
        put_b::<H>(
            all,
            "mul_f16, small",
            H::mul_f16(fractions, H::bytes(H::shr_i::<16>(H::words(fractions)))),
        );
        // Numbers from 2^-15 to 4, which 2^12 makes normal f16 of.
        let number = |x: H::I| {
            H::from_bits(H::add_i(H::and_i(x, H::splat_i(0x87ff_ffff_u32 as i32)), H::splat_i(0x3800_0000)))
        };
        let scales = [H::splat(4096.0), H::splat(0.25)];
        put_b::<H>(all, "scaled_to_f16", H::scaled_to_f16(number(i), number(j), scales));
        put_b::<H>(all, "to_f16", H::to_f16(number(i), number(j)));
        let (low, high) = H::widen_f16(bytes);
        put::<H>(all, "widen_f16, low", true, low);
        put::<H>(all, "widen_f16, high", true, high);
        let factors = [scalar as u16, (scalar >> 16) as u16];
        let same = factors.map(|bits| half::f16::from_bits(bits).to_f32());
        let (low, high) = H::widen_f16_scaled(bytes, scalar as i32, same);
        put::<H>(all, "widen_f16_scaled, low", true, low);
        put::<H>(all, "widen_f16_scaled, high", true, high);
        let other = H::bytes(H::or_i(H::shr_i::<16>(H::words(bytes)), H::shl_i::<16>(H::words(bytes))));
        let sums = H::add_half_products(H::no_half_sums(), bytes, other);
        let (low, high) = H::end_half_sums(H::add_half_products(sums, bytes, bytes));
        put::<H>(all, "half sums, low", true, low);
        put::<H>(all, "half sums, high", true, high);
        let sums = H::start_half_sums((low, high), H::splat(0.3));
        let (low, high) = H::end_half_sums(H::add_half_products(sums, bytes, other));
        put::<H>(all, "half sums from floats, low", true, low);
        put::<H>(all, "half sums from floats, high", true, high);
        let four = [i, j, H::add_i(i, j), H::sub_i(i, j)];
        put_b::<H>(all, "low_bytes", H::low_bytes(four));
        put_b::<H>(all, "low_halves", H::low_halves([i, j]));
        put_i::<H>(all, "sums_of_16", H::sums_of_16(four.map(H::bytes)));
    }

    #[inline(always)]
    fn sums_of<H: Hvx>(&self, all: &mut Outcomes) {
        let [x, y, u, v] = [0, 1, 2, 3].map(|i| f::<H>(&self.floats[i]));
        let finite = f::<H>(&self.roundable);
        put_bits(all, "sum", true, [H::sum(x).to_bits(); LANES]);
        put_bits(all, "sum of finite", true, [H::sum(finite).to_bits(); LANES]);
        put_bits(all, "max_lane", false, [H::max_lane(x).to_bits(); LANES]);
        put::<H>(all, "sum_all", true, H::sum_all(x));
        put::<H>(all, "sum_all of finite", true, H::sum_all(finite));
        put::<H>(all, "sum_all_q", true, H::sum_all_q(H::mul_q(finite, H::splat(0.5))));
        let half = H::splat(0.5);
        for (op, four) in [
            ("sum_four", [x, y, u, v]),
            ("sum_four of finite", [finite, H::mul(finite, half), H::mul(finite, finite), half]),
        ] {
            let mut sums = [0u32; LANES];
            // SAFETY: `sums` is an array of 32 words, which are 128 bytes.
            unsafe {
                H::store(sums.as_mut_ptr().cast(), H::sum_four(four.map(|x| H::mul_q(x, H::splat(1.0)))))
            };
            // The lanes between are left open.
            let wanted = core::array::from_fn(|i| if i.is_multiple_of(8) { sums[i] } else { 0 });
            put_bits(all, op, true, wanted);
        }
        let [a, b] = [0, 1].map(|k| H::to_float(H::words(b::<H>(&self.words[k]))));
        put::<H>(all, "larger", false, H::larger(a, b));
        put::<H>(all, "smaller", false, H::smaller(a, b));
        put::<H>(all, "max_lanes", false, H::max_lanes(&Integers(&self.words[0])));
    }

    /// Parts, at every alignment: what is around them must stay.
    #[inline(always)]
    fn stores_of<H: Hvx>(&self, all: &mut Outcomes) {
        let (x, i) = (f::<H>(&self.floats[0]), H::words(b::<H>(&self.words[0])));
        let n = 1 + self.words[1][0] as usize % LANES;
        let at = self.words[0][0] as usize % LANES;
        let mut memory = [BEFORE; 2 * LANES];
        // SAFETY: `at` is below 32 and `n` is 1 to 32, so words `at..at + n` are inside the array of 64; a
        // word is aligned for f32.
        let part = unsafe {
            H::store_n(memory.as_mut_ptr().add(at).cast(), x, n);
            H::load_n(memory.as_ptr().add(at).cast(), n)
        };
        let half = |memory: &[u32], h: usize| core::array::from_fn(|lane| memory[h * LANES + lane]);
        put::<H>(all, "load_n", false, part);
        put_bits(all, "store_n, first vector", false, half(&memory, 0));
        put_bits(all, "store_n, second vector", false, half(&memory, 1));
        let mut memory = [BEFORE; 2 * LANES];
        // SAFETY: `at` is below 32 and the array has 256 bytes: 32 bytes from byte `at` on end before byte
        // 64, and 64 bytes from half `64 + at` on end before byte 256.
        unsafe {
            H::store_low_bytes(memory.as_mut_ptr().cast::<u8>().add(at), i);
            H::store_low_halves(memory.as_mut_ptr().cast::<u16>().add(64 + at), i);
        }
        put_bits(all, "store_low_bytes", false, half(&memory, 0));
        put_bits(all, "store_low_halves", false, half(&memory, 1));
        let mut memory = Aligned([0; LANES]);
        const { assert!(align_of::<Aligned>() == BYTES && size_of::<Aligned>() == BYTES) };
        // SAFETY: `memory` is a whole vector aligned to 128 bytes, by the assertion above.
        let loaded = unsafe {
            H::store_aligned(memory.0.as_mut_ptr().cast(), x);
            H::load_aligned(memory.0.as_ptr().cast())
        };
        put::<H>(all, "load_aligned, store_aligned", false, loaded);
    }
}

/// Whether two lanes are the same, as far as they are defined.
pub(super) fn agree(want: u32, got: u32, arithmetic: bool) -> bool {
    want == got || (arithmetic && f32::from_bits(want).is_nan() && f32::from_bits(got).is_nan())
}
