//! The vector layer: what kernels are written against.
//!
//! An [`Hvx`] back end gives 128-byte vectors as three types: `F` (32 f32 lanes), `I` (32 i32 lanes) and `B`
//! (128 bytes). Every operation is defined here, once, to the bit: single precision, IEEE, one rounding per
//! operation, no contraction. (Which NaN arithmetic gives is left open.) So a kernel gives the same bits on
//! every back end that does IEEE arithmetic, and [`portable`] is the definition that the others are tested
//! against. HVX float does not: its sums and products are about an ulp off, x + 0 and x * 1 included. What
//! counts on an exact sum or product takes [`Hvx::add_ieee`] and its like, or integers.
//!
//! Back ends are chosen at run time ([`Isa::detect`]); a kernel is compiled once per back end, with that back
//! end's instructions, by [`Isa::run`]. No `#[cfg]` is needed in a kernel. The Hexagon back end implements
//! the same trait with HVX instructions.

#[cfg(any(vectors_avx2, vectors_avx512, target_arch = "aarch64"))]
#[macro_use]
mod chunks;
mod choose;
pub mod functions;
#[cfg(target_arch = "hexagon")]
pub mod hexagon;
mod lines;
pub mod math;
#[cfg(target_arch = "aarch64")]
pub mod neon;
// In images without HVX float, `hexagon::check` uses it.
#[cfg(any(test, all(target_arch = "hexagon", not(target_feature = "hvx-qfloat"))))]
mod operations;
pub mod portable;
#[cfg(any(test, feature = "qf32"))]
pub mod qf32;
pub mod sin_cos;
#[cfg(test)]
mod tests;
pub mod transpose;
#[cfg(any(vectors_avx2, vectors_avx512))]
pub mod x86;

use half::f16;

pub use choose::choose;
pub use lines::VectorPtr;

/// f32 lanes of a vector.
pub const LANES: usize = 32;
/// Bytes of a vector.
pub const BYTES: usize = hexflash_abi::VECTOR_BYTES;

/// A table of sixteen bytes, for [`Hvx::lookup`].
#[repr(C, align(128))]
pub struct Lookup {
    /// Entry i % 16 in byte 2i for i below 32, as HVX looks for them.
    spread: [u8; BYTES],
    /// Entry i in byte i.
    dense: [u8; 16],
}

impl Lookup {
    /// The table of `numbers` with `zero` added, which makes them bytes without a sign.
    pub const fn unsigned(numbers: [i8; 16], zero: i32) -> Self {
        let (mut all, mut i) = ([0; 16], 0);
        while i < all.len() {
            let number = numbers[i] as i32 + zero;
            assert!(number >= 0 && number < 256);
            all[i] = number as u8;
            i += 1;
        }
        Self::new(all)
    }

    /// The table with these entries.
    pub const fn new(dense: [u8; 16]) -> Self {
        let (mut spread, mut i) = ([0; BYTES], 0);
        while i < dense.len() {
            spread[2 * i] = dense[i];
            spread[2 * (dense.len() + i)] = dense[i];
            i += 1;
        }
        Self { spread, dense }
    }
}

/// A table of sixteen numbers, for [`Hvx::lookup_floats`].
#[repr(C, align(128))]
pub struct Numbers {
    /// Number i % 16 as f16 in both halves of word i, as HVX looks for them.
    halves: [u32; LANES],
    /// The numbers as bytes.
    bytes: Lookup,
}

impl Numbers {
    /// The table of these numbers.
    pub const fn new(numbers: [i8; 16]) -> Self {
        let (mut halves, mut bytes, mut i) = ([0; LANES], [0; 16], 0);
        while i < LANES {
            let number = numbers[i % numbers.len()];
            halves[i] = f16::from_f32_const(number as f32).to_bits() as u32 * 0x0001_0001;
            bytes[i % bytes.len()] = number as u8;
            i += 1;
        }
        Self { halves, bytes: Lookup::new(bytes) }
    }
}

/// Sums of products of f16: those of the low halves of words, and those of the high halves. From v79 on they
/// have bits outside of their registers, so that nothing but the operations on them may touch them.
#[derive(Clone, Copy)]
pub struct HalfSums<H: Hvx>(pub(crate) H::F, pub(crate) H::F);

/// A vector instruction set: 32-lane operations on 128-byte vectors.
///
/// Loads and stores of whole vectors take any address, those of parts any that is aligned for a float, and
/// those of [`VectorPtr`] multiples of 128, which a DSP does faster. The order of a reduction is part of its
/// definition. What is provided here are loops: a closure would not be compiled with the back end's
/// instructions.
pub trait Hvx: Copy + Send + Sync + 'static {
    /// 32 lanes of f32.
    type F: Copy;
    /// 32 lanes of i32.
    type I: Copy;
    /// 128 bytes.
    type B: Copy;
    /// 32 floats that are wanted one by one: see [`Hvx::lanes`].
    type Lanes: Copy;
    /// 32 floats between operations of a sum of products: [`Hvx::F`], except on a DSP whose float unit has a
    /// form of its own, which it takes an instruction per operation to leave.
    type Q: Copy;
    /// The back end that takes this one's place in code that is compiled for one kind of vectors, where
    /// compiling it for each would not pay: HVX on a DSP, elsewhere the vectors that every processor has. It
    /// gives the same bits.
    type Everywhere: Hvx;

    /// Vectors that the register file holds: how far a kernel should block.
    const REGISTERS: usize;
    /// Whether a [`Hvx::Q`] loses bits in memory, so that no more of them may be in use than there are
    /// registers.
    const Q_STAYS: bool = false;
    /// Whether an operation on floats takes many instructions, so that none must be written twice.
    const COSTLY_FLOATS: bool = false;
    /// Whether long code without loops is worth the time that compiling it takes: where instructions that
    /// have nothing to do with each other share packets.
    const WRITES_OUT: bool = false;
    /// Whether [`Hvx::widen_f16`] takes so little that doing it for every use is better than keeping f32.
    const CHEAP_WIDENING: bool = false;

    /// Whether [`Hvx::larger`] and [`Hvx::smaller`] have places for NaN: beyond infinity, on the side of its
    /// sign, so that NaN among floats is seen from the largest and the smallest of them.
    const NAN_HAS_A_PLACE: bool = false;

    /// Loads 32 floats.
    ///
    /// # Safety
    /// `p` is valid for reading 128 bytes.
    unsafe fn load(p: *const f32) -> Self::F;
    /// Loads the first `n` (1 to 32) floats; the other lanes are zero.
    ///
    /// # Safety
    /// 1. `n` is 1 to 32.
    /// 2. `p` is aligned for f32 and valid for reading `n` floats.
    unsafe fn load_n(p: *const f32, n: usize) -> Self::F;
    /// Stores 32 floats.
    ///
    /// # Safety
    /// `p` is valid for writing 128 bytes.
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Stores the first `n` (1 to 32) lanes.
    ///
    /// # Safety
    /// 1. `n` is 1 to 32.
    /// 2. `p` is aligned for f32 and valid for writing `n` floats.
    unsafe fn store_n(p: *mut f32, v: Self::F, n: usize);
    /// As [`Hvx::load`], of an aligned address.
    ///
    /// # Safety
    /// `p` is valid for reading 128 bytes, and a multiple of 128.
    #[inline(always)]
    unsafe fn load_aligned(p: *const f32) -> Self::F {
        // SAFETY: `p` is valid for reading 128 bytes (the caller's contract, which asks for alignment on top
        // of that of `load`).
        unsafe { Self::load(p) }
    }
    /// As [`Hvx::store`], of an aligned address.
    ///
    /// # Safety
    /// `p` is valid for writing 128 bytes, and a multiple of 128.
    #[inline(always)]
    unsafe fn store_aligned(p: *mut f32, v: Self::F) {
        // SAFETY: `p` is valid for writing 128 bytes (the caller's contract, which asks for alignment on top
        // of that of `store`).
        unsafe { Self::store(p, v) }
    }
    /// Loads 128 bytes.
    ///
    /// # Safety
    /// `p` is valid for reading 128 bytes.
    unsafe fn load_b(p: *const u8) -> Self::B;
    /// Loads the first `n` (1 to 64) halves; the others are zero.
    ///
    /// # Safety
    /// 1. `n` is 1 to 64.
    /// 2. `p` is aligned for u16 and valid for reading `n` halves.
    #[inline(always)]
    unsafe fn load_halves_n(p: *const u16, n: usize) -> Self::B {
        let mut halves = [0_u16; 2 * LANES];
        // SAFETY: `p` is aligned and valid for reading `n` halves (the caller's contract, point 2), of which
        // no more than the array has are copied; the array has 128 bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(p, halves.as_mut_ptr(), n.min(halves.len()));
            Self::load_b(halves.as_ptr().cast())
        }
    }
    /// Stores 128 bytes.
    ///
    /// # Safety
    /// `p` is valid for writing 128 bytes.
    unsafe fn store_b(p: *mut u8, v: Self::B);
    /// Two words, to be taken as scalars. (One by one: where a word is spread over a vector as it is loaded,
    /// that is free. In a pair: an array would be handed over as one number.)
    ///
    /// # Safety
    /// `p` is valid for reading 8 bytes, and aligned to 8.
    #[inline(always)]
    unsafe fn two_words(p: *const u8) -> (i32, i32) {
        // SAFETY: `p` is aligned to 8 bytes and valid for reading 8 bytes, which are these two words (the
        // caller's contract).
        unsafe { (p.cast::<i32>().read(), p.cast::<i32>().add(1).read()) }
    }

    /// All lanes `x`.
    fn splat(x: f32) -> Self::F;
    /// All lanes `x`.
    fn splat_i(x: i32) -> Self::I;
    /// All bytes `x`.
    fn splat_b(x: u8) -> Self::B;

    /// a + b.
    fn add(a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// a * b.
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// [`Hvx::add`] that is IEEE's to the bit also where HVX float has sums of its own: for sums that must be
    /// exact, or round where the caller means them to.
    #[inline(always)]
    fn add_ieee(a: Self::F, b: Self::F) -> Self::F {
        Self::add(a, b)
    }
    /// [`Hvx::sub`], as [`Hvx::add_ieee`] is [`Hvx::add`].
    #[inline(always)]
    fn sub_ieee(a: Self::F, b: Self::F) -> Self::F {
        Self::sub(a, b)
    }
    /// [`Hvx::mul`], as [`Hvx::add_ieee`] is [`Hvx::add`].
    #[inline(always)]
    fn mul_ieee(a: Self::F, b: Self::F) -> Self::F {
        Self::mul(a, b)
    }
    /// a * b, rounded as by [`Hvx::mul`].
    fn mul_q(a: Self::F, b: Self::F) -> Self::Q;
    /// a + b, rounded as by [`Hvx::add`].
    fn add_q(a: Self::Q, b: Self::Q) -> Self::Q;
    /// a + b of two of which one is a float.
    fn add_qf(a: Self::Q, b: Self::F) -> Self::Q;
    /// A zero to add to.
    fn zero_q() -> Self::Q;
    /// The floats.
    fn float(x: Self::Q) -> Self::F;
    /// Has what comes before done before what comes after, where a [`Hvx::Q`] loses bits in memory: the
    /// compiler must not put off a conversion until two ways of the program meet, and bring the `Q` there.
    #[inline(always)]
    fn settle() {}
    /// `x`, computed by now: the compiler must not put off the conversion of a [`Hvx::Q`] until after a call,
    /// after a check that may panic or until two ways of the program meet, and keep the `Q` in memory
    /// meanwhile.
    #[inline(always)]
    fn pin(x: Self::F) -> Self::F {
        x
    }
    /// a / b, correctly rounded. (A back end without division may be off by an ulp and must say so.)
    fn div(a: Self::F, b: Self::F) -> Self::F;
    /// a if a > b, else b: the second operand where they compare equal or unordered.
    fn max(a: Self::F, b: Self::F) -> Self::F;
    /// a if a < b, else b: the second operand where they compare equal or unordered.
    fn min(a: Self::F, b: Self::F) -> Self::F;
    /// The larger of two numbers; either where they compare equal. Of NaN see [`Hvx::NAN_HAS_A_PLACE`];
    /// elsewhere it is the second operand then.
    #[inline(always)]
    fn larger(a: Self::F, b: Self::F) -> Self::F {
        Self::max(a, b)
    }
    /// The smaller of two numbers, as [`Hvx::larger`].
    #[inline(always)]
    fn smaller(a: Self::F, b: Self::F) -> Self::F {
        Self::min(a, b)
    }
    /// x where a > b, else y (also where unordered).
    fn select_gt(a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;

    /// Nearest integer, ties to even. Defined for |x| < 2^31.
    fn to_int(x: Self::F) -> Self::I;
    /// i32 to nearest f32.
    fn to_float(x: Self::I) -> Self::F;
    /// The bits of the floats.
    fn bits(x: Self::F) -> Self::I;
    /// The floats with these bits.
    fn from_bits(x: Self::I) -> Self::F;
    /// The vector's words.
    fn words(x: Self::B) -> Self::I;
    /// The words' bytes.
    fn bytes(x: Self::I) -> Self::B;

    /// a + b, wrapping.
    fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// a - b, wrapping.
    fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// a * b, wrapping.
    fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    /// The larger of two, with signs.
    fn max_i(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(a: Self::I, b: Self::I) -> Self::I;
    /// a << N.
    fn shl_i<const N: i32>(a: Self::I) -> Self::I;
    /// a >> N, zeros shifted in.
    fn shr_i<const N: i32>(a: Self::I) -> Self::I;
    /// a >> N, the sign shifted in.
    fn sar_i<const N: i32>(a: Self::I) -> Self::I;

    /// Per lane r: acc + sum over b of (unsigned) `w[4r+b]` * (signed) `a[b]`, wrapping. `a` is packed in a
    /// word, byte 0 lowest.
    fn vrmpy(acc: Self::I, w: Self::B, a: i32) -> Self::I;
    /// [`Hvx::vrmpy`] that begins with zero.
    #[inline(always)]
    fn first_vrmpy(w: Self::B, a: i32) -> Self::I {
        Self::vrmpy(Self::splat_i(0), w, a)
    }

    /// Sum of the lanes: halves folded onto each other (i with i + 16, then 8, 4, 2, 1).
    fn sum(x: Self::F) -> f32;
    /// Maximum of the lanes, folded in the same order with [`Hvx::max`].
    fn max_lane(x: Self::F) -> f32;

    /// Prepares to take lanes out of `x`.
    fn lanes(x: Self::F) -> Self::Lanes;
    /// All lanes what lane `i` of `x` was. (By reference: where lanes are an array, it is not copied for
    /// each.)
    fn lane(x: &Self::Lanes, i: usize) -> Self::F;

    /// Prepares to take lanes out of `x` in pairs, as by [`Hvx::lane_pair`].
    #[inline(always)]
    fn lane_pairs(x: Self::F) -> [Self::Lanes; 2] {
        [Self::lanes(x); 2]
    }
    /// Lanes 2 i and 2 i + 1, each as by [`Hvx::lane`].
    #[inline(always)]
    fn lane_pair(x: &[Self::Lanes; 2], i: usize) -> (Self::F, Self::F) {
        (Self::lane(&x[0], 2 * i), Self::lane(&x[1], 2 * i + 1))
    }

    /// Lane i: lane i ^ N of x, for N a power of two below 32: neighbours at that distance change places.
    #[inline(always)]
    fn swap_lanes<const N: usize>(x: Self::F) -> Self::F {
        let mut lanes = [0.0; LANES];
        // SAFETY: `lanes` is an array of 32 floats, which are 128 bytes.
        unsafe { Self::store(lanes.as_mut_ptr(), x) };
        let mut swapped = lanes;
        for (i, lane) in swapped.iter_mut().enumerate() {
            *lane = lanes[i ^ N];
        }
        // SAFETY: `swapped` is an array of 32 floats, which are 128 bytes.
        unsafe { Self::load(swapped.as_ptr()) }
    }
    /// [`Hvx::sum`] in all lanes.
    #[inline(always)]
    fn sum_all(x: Self::F) -> Self::F {
        Self::splat(Self::sum(x))
    }
    /// [`Hvx::max_lane`] in all lanes; the sign of zero is left open.
    #[inline(always)]
    fn max_all(x: Self::F) -> Self::F {
        Self::splat(Self::max_lane(x))
    }
    /// a and b, of which the lanes are interleaved: lanes 0 of both, lanes 1 of both, and so on.
    #[inline(always)]
    fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let mut pairs = [[[0.0; 2]; LANES / 2]; 2];
        for (side, x) in [a, b].into_iter().enumerate() {
            let mut lanes = [0.0; LANES];
            // SAFETY: `lanes` is an array of 32 floats, which are 128 bytes.
            unsafe { Self::store(lanes.as_mut_ptr(), x) };
            for (pair, lane) in pairs.as_flattened_mut().iter_mut().zip(lanes) {
                pair[side] = lane;
            }
        }
        // SAFETY: each half of `pairs` is 16 pairs of floats, which are 128 bytes.
        unsafe { (Self::load(pairs[0].as_ptr().cast()), Self::load(pairs[1].as_ptr().cast())) }
    }
    /// Lane i: [`Hvx::max_lane`] of vector i. Of vectors without NaN and without zeros of both signs: the
    /// order of the comparisons is left open.
    #[inline(always)]
    fn max_lanes<X: Vectors<Self>>(x: &X) -> Self::F {
        let mut lanes = [0.0; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = Self::max_lane(x.get(i));
        }
        // SAFETY: `lanes` is an array of 32 floats, which are 128 bytes.
        unsafe { Self::load(lanes.as_ptr()) }
    }
    /// 1 / sqrt(x) as by [`math::rsqrt`].
    #[inline(always)]
    fn rsqrt(x: Self::F) -> Self::F {
        math::rsqrt::<Self>(x)
    }
    /// [`Hvx::sum_all`] of a sum of products.
    #[inline(always)]
    fn sum_all_q(x: Self::Q) -> Self::F {
        Self::sum_all(Self::float(x))
    }
    /// [`Hvx::sum_all_q`] of four sums of products, in lanes 0, 8, 16 and 24; the other lanes are left open.
    #[inline(always)]
    fn sum_four(x: [Self::Q; 4]) -> Self::F {
        let mut sums = [0.0; LANES];
        for (x, sum) in x.into_iter().zip(sums.iter_mut().step_by(8)) {
            *sum = Self::sum(Self::float(x));
        }
        // SAFETY: `sums` is an array of 32 floats, which are 128 bytes.
        unsafe { Self::load(sums.as_ptr()) }
    }
    /// [`Hvx::widen_f16`] of `x`, times an f16 each: `factors` has the bits of the factor of the low halves
    /// in its low half, `same` has both as f32. A back end takes either. The products of two f16 are exact.
    #[inline(always)]
    fn widen_f16_scaled(x: Self::B, _factors: i32, same: [f32; 2]) -> (Self::F, Self::F) {
        let (low, high) = Self::widen_f16(x);
        (Self::mul(low, Self::splat(same[0])), Self::mul(high, Self::splat(same[1])))
    }
    /// Sums of zero.
    #[inline(always)]
    fn no_half_sums() -> HalfSums<Self> {
        HalfSums(Self::splat(0.0), Self::splat(0.0))
    }
    /// Sums that begin with `low` and `high`, each times `factor`, rounded as by [`Hvx::mul_ieee`].
    #[inline(always)]
    fn start_half_sums((low, high): (Self::F, Self::F), factor: Self::F) -> HalfSums<Self> {
        HalfSums(Self::mul_ieee(low, factor), Self::mul_ieee(high, factor))
    }
    /// The sums with the products of the f16 of two vectors: of the low halves of words, and of the high
    /// halves. They are exact, and sums are rounded as by [`Hvx::add_ieee`].
    #[inline(always)]
    fn add_half_products(sums: HalfSums<Self>, a: Self::B, b: Self::B) -> HalfSums<Self> {
        let (a, b) = (Self::widen_f16(a), Self::widen_f16(b));
        HalfSums(
            Self::add_ieee(sums.0, Self::mul_ieee(a.0, b.0)),
            Self::add_ieee(sums.1, Self::mul_ieee(a.1, b.1)),
        )
    }
    /// Sums that begin with these.
    #[inline(always)]
    fn half_sums(low: Self::F, high: Self::F) -> HalfSums<Self> {
        HalfSums(low, high)
    }
    /// Prepares to multiply with pairs of lanes of `x`, as by [`Hvx::add_half_lanes`]: finite floats, each
    /// times a power of two and rounded to f16 as by [`Hvx::scaled_to_f16`].
    #[inline(always)]
    fn half_lanes(x: Self::F, scale: Self::F) -> Self::Lanes {
        math::half_lanes::<Self>(x, scale)
    }
    /// The sums with the products of low halves of words with lane 2 i of what was prepared, and of high
    /// halves with lane 2 i + 1, as by [`Hvx::add_half_products`].
    #[inline(always)]
    fn add_half_lanes(sums: HalfSums<Self>, w: Self::B, x: &Self::Lanes, i: usize) -> HalfSums<Self> {
        math::add_half_lanes::<Self>(sums, w, x, i)
    }
    /// The sums as floats.
    #[inline(always)]
    fn end_half_sums(sums: HalfSums<Self>) -> (Self::F, Self::F) {
        (sums.0, sums.1)
    }
    /// The low byte of every word of four vectors, in order.
    #[inline(always)]
    fn low_bytes(x: [Self::I; 4]) -> Self::B {
        let mut bytes = [0u8; BYTES];
        for (x, part) in x.into_iter().zip(bytes.chunks_exact_mut(LANES)) {
            // SAFETY: `part` is a slice of 32 bytes (`chunks_exact_mut(LANES)`).
            unsafe { Self::store_low_bytes(part.as_mut_ptr(), x) };
        }
        // SAFETY: `bytes` is an array of 128 bytes.
        unsafe { Self::load_b(bytes.as_ptr()) }
    }
    /// The low half of every word of two vectors, in order.
    #[inline(always)]
    fn low_halves(x: [Self::I; 2]) -> Self::B {
        let mut halves = [0u16; 2 * LANES];
        for (x, part) in x.into_iter().zip(halves.chunks_exact_mut(LANES)) {
            // SAFETY: `part` is a slice of 32 halves (`chunks_exact_mut(LANES)`).
            unsafe { Self::store_low_halves(part.as_mut_ptr(), x) };
        }
        // SAFETY: `halves` is an array of 64 halves, which are 128 bytes.
        unsafe { Self::load_b(halves.as_ptr().cast()) }
    }
    /// Sums of 16 adjacent signed bytes of four vectors, in order.
    #[inline(always)]
    fn sums_of_16(x: [Self::B; 4]) -> Self::I {
        let mut sums = [0i32; LANES];
        for (x, sums) in x.into_iter().zip(sums.chunks_exact_mut(8)) {
            let mut bytes = [0i8; BYTES];
            // SAFETY: `bytes` is an array of 128 bytes.
            unsafe { Self::store_b(bytes.as_mut_ptr().cast(), x) };
            for (bytes, sum) in bytes.chunks_exact(16).zip(sums) {
                for &byte in bytes {
                    *sum += i32::from(byte);
                }
            }
        }
        // SAFETY: `sums` is an array of 32 words, which are 128 bytes.
        Self::words(unsafe { Self::load_b(sums.as_ptr().cast()) })
    }
    /// Stores the low half of each word: 64 bytes.
    ///
    /// # Safety
    /// `p` is valid for writing 32 halves.
    #[inline(always)]
    unsafe fn store_low_halves(p: *mut u16, v: Self::I) {
        let mut low = [0; LANES];
        for (low, word) in low.iter_mut().zip(words_of::<Self>(v)) {
            *low = word as u16;
        }
        // SAFETY: `p` is valid for writing 32 halves (the caller's contract), which is the size of `low`; an
        // unaligned write takes any address.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(low) }
    }
    /// Bitwise and.
    #[inline(always)]
    fn and_b(a: Self::B, b: Self::B) -> Self::B {
        Self::bytes(Self::and_i(Self::words(a), Self::words(b)))
    }
    /// Bitwise or.
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        Self::bytes(Self::or_i(Self::words(a), Self::words(b)))
    }
    /// Bitwise exclusive or.
    #[inline(always)]
    fn xor_b(a: Self::B, b: Self::B) -> Self::B {
        // What one of them has, without what both have: nothing is borrowed.
        Self::bytes(Self::sub_i(Self::words(Self::or_b(a, b)), Self::words(Self::and_b(a, b))))
    }
    /// Bytes 0 and 2 of every word as bytes 1 and 3, over zeros.
    #[inline(always)]
    fn raise_even_bytes(x: Self::B) -> Self::B {
        let even = Self::and_i(Self::words(x), Self::splat_i(0x00ff_00ff));
        Self::bytes(Self::shl_i::<8>(even))
    }
    /// Products of signed halves that are fractions of 2^15, rounded to fractions of 2^15 with halves up, and
    /// these integers as f16, to nearest, ties to even. No half of `b` is -32768.
    #[inline(always)]
    fn mul_fractions_f16(a: Self::B, b: Self::B) -> Self::B {
        Self::mul_fractions_less_f16(a, b, Self::bytes(Self::splat_i(0)))
    }
    /// [`mul_fractions_f16`](Self::mul_fractions_f16), but `less` is taken from the integers before they
    /// become f16. Defined where that leaves them within 16 bits.
    #[inline(always)]
    fn mul_fractions_less_f16(a: Self::B, b: Self::B, less: Self::B) -> Self::B {
        math::mul_fractions_less_f16::<Self>(a, b, less)
    }
    /// Stores the low byte of each word: 32 bytes.
    ///
    /// # Safety
    /// `p` is valid for writing 32 bytes.
    #[inline(always)]
    unsafe fn store_low_bytes(p: *mut u8, v: Self::I) {
        let mut low = [0; LANES];
        for (low, word) in low.iter_mut().zip(words_of::<Self>(v)) {
            *low = word as u8;
        }
        // SAFETY: `p` is valid for writing 32 bytes (the caller's contract), which is the size of `low`; an
        // array of bytes has no alignment.
        unsafe { p.cast::<[u8; LANES]>().write_unaligned(low) }
    }
    /// Low and high nibbles of every byte, each 0 to 15.
    #[inline(always)]
    fn nibbles(x: Self::B) -> (Self::B, Self::B) {
        let mask = Self::splat_i(0x0f0f_0f0f);
        let words = Self::words(x);
        let high = Self::and_i(Self::shr_i::<4>(words), mask);
        (Self::bytes(Self::and_i(words, mask)), Self::bytes(high))
    }
    /// Every byte >> N, zeros shifted in.
    #[inline(always)]
    fn shr_b<const N: i32>(x: Self::B) -> Self::B {
        let kept = Self::splat_b(0xff >> N);
        Self::and_b(Self::bytes(Self::shr_i::<N>(Self::words(x))), kept)
    }
    /// acc + (x << N), wrapping.
    #[inline(always)]
    fn add_shl<const N: i32>(acc: Self::I, x: Self::I) -> Self::I {
        Self::add_i(acc, Self::shl_i::<N>(x))
    }
    /// acc + (x >> N), the sign shifted in; wrapping.
    #[inline(always)]
    fn add_sar<const N: i32>(acc: Self::I, x: Self::I) -> Self::I {
        Self::add_i(acc, Self::sar_i::<N>(x))
    }
    /// Byte `x` of a table of sixteen, for every byte, which is below 16.
    fn lookup(x: Self::B, table: &'static Lookup) -> Self::B;
    /// [`Hvx::lookup`] of the low nibble of every byte.
    #[inline(always)]
    fn lookup_low(x: Self::B, table: &'static Lookup) -> Self::B {
        Self::lookup(Self::nibbles(x).0, table)
    }
    /// Numbers of a table of sixteen, by the low nibbles of every word's bytes, as f16: a vector with those
    /// of bytes 0 and 2 as the halves of every word, and one with those of bytes 1 and 3.
    #[inline(always)]
    fn lookup_f16(x: Self::B, table: &'static Numbers) -> [Self::B; 2] {
        math::lookup_f16::<Self>(x, table)
    }
    /// Signed bytes as f16: bytes 0 and 1 of every word, and bytes 2 and 3.
    #[inline(always)]
    fn bytes_to_f16(x: Self::B) -> [Self::B; 2] {
        math::bytes_to_f16::<Self>(x)
    }
    /// Products of finite f16 as f16, rounded to nearest, ties to even. What is too large is not defined.
    #[inline(always)]
    fn mul_f16(a: Self::B, b: Self::B) -> Self::B {
        math::mul_f16::<Self>(a, b)
    }
    /// Finite floats, each times a power of two, as f16, rounded to nearest, ties to even: those of `low` as
    /// the low halves of words, those of `high` as the high ones. What is too large is not defined.
    #[inline(always)]
    fn scaled_to_f16(low: Self::F, high: Self::F, scales: [Self::F; 2]) -> Self::B {
        math::scaled_to_f16::<Self>(low, high, scales)
    }
    /// The same without powers of two.
    #[inline(always)]
    fn to_f16(low: Self::F, high: Self::F) -> Self::B {
        Self::scaled_to_f16(low, high, [Self::splat(1.0); 2])
    }
    /// Numbers of a table of sixteen, by the low nibbles of bytes 0 to 3 of every word.
    #[inline(always)]
    fn lookup_floats(x: Self::B, table: &'static Numbers) -> [Self::F; 4] {
        math::signed_bytes_to_f32::<Self>(Self::words(Self::lookup_low(x, &table.bytes)))
    }
    /// a times the lower half of the word in b, which has no sign; wrapping.
    #[inline(always)]
    fn mul_low_halves(a: Self::I, b: Self::I) -> Self::I {
        Self::mul_i(a, Self::and_i(b, Self::splat_i(0xffff)))
    }
    /// a times the upper half of the word in b, sign-extended; wrapping.
    #[inline(always)]
    fn mul_high_halves(a: Self::I, b: Self::I) -> Self::I {
        Self::mul_i(a, Self::sar_i::<16>(b))
    }
    /// Per lane: acc + the products of the two signed halves of `w` with those of the word `a`. Defined where
    /// that fits a word.
    #[inline(always)]
    fn dot_halves(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let (w, a) = (Self::words(w), Self::splat_i(a));
        let low = Self::mul_add_low_halves(acc, Self::sar_i::<16>(Self::shl_i::<16>(w)), a);
        Self::add_i(low, Self::mul_high_halves(Self::sar_i::<16>(w), a))
    }
    /// [`Hvx::dot_halves`] that begins with zero.
    #[inline(always)]
    fn first_dot_halves(w: Self::B, a: i32) -> Self::I {
        Self::dot_halves(Self::splat_i(0), w, a)
    }
    /// The low 16 bits of each half times `n`, which has a sign.
    #[inline(always)]
    fn mul_halves(x: Self::B, n: i8) -> Self::B {
        let (x, n) = (Self::words(x), Self::splat_i(n.into()));
        let low = Self::and_i(Self::mul_i(x, n), Self::splat_i(0xffff));
        let high = Self::mul_i(Self::shr_i::<16>(x), n);
        Self::bytes(Self::or_i(low, Self::shl_i::<16>(high)))
    }
    /// Per lane: the sum of the products of both signed halves. Defined where no half is -32768.
    #[inline(always)]
    fn dot_pairs(a: Self::B, b: Self::B) -> Self::I {
        let (a, b) = (Self::words(a), Self::words(b));
        let high = Self::mul_high_halves(Self::sar_i::<16>(a), b);
        Self::mul_add_low_halves(high, Self::sar_i::<16>(Self::shl_i::<16>(a)), b)
    }
    /// [`math::pair_halves`].
    #[inline(always)]
    fn pair_halves(low: Self::I, high: Self::I) -> Self::B {
        math::pair_halves::<Self>(low, high)
    }
    /// The lower halves of a's words and then of b's; the upper halves.
    #[inline(always)]
    fn deal_halves(a: Self::B, b: Self::B) -> (Self::B, Self::B) {
        let mut words = [[[0_u16; 2]; LANES]; 2];
        // SAFETY: each part of `words` is 32 pairs of halves, which are 128 bytes.
        unsafe {
            Self::store_b(words[0].as_mut_ptr().cast(), a);
            Self::store_b(words[1].as_mut_ptr().cast(), b);
        }
        let side = |side: usize| {
            let mut halves = [0; 2 * LANES];
            for (half, word) in halves.iter_mut().zip(words.as_flattened()) {
                *half = word[side];
            }
            // SAFETY: `halves` is an array of 64 halves, which are 128 bytes.
            unsafe { Self::load_b(halves.as_ptr().cast()) }
        };
        (side(0), side(1))
    }
    /// acc + a times the lower half of the word in b, sign-extended; wrapping.
    #[inline(always)]
    fn mul_add_low_halves(acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        Self::add_i(acc, Self::mul_i(a, Self::sar_i::<16>(Self::shl_i::<16>(b))))
    }
    /// Every byte sign-extended to a half: bytes 0 and 2 of the words, bytes 1 and 3.
    #[inline(always)]
    fn widen_bytes(x: Self::B) -> (Self::I, Self::I) {
        let words = Self::words(x);
        let low = Self::splat_i(0xffff);
        // Each of two bytes to the top of a word, then down: one stays in the upper half.
        let pair = |even: Self::I, odd: Self::I| {
            let (even, odd) = (Self::sar_i::<24>(even), Self::sar_i::<24>(odd));
            Self::or_i(Self::and_i(even, low), Self::shl_i::<16>(odd))
        };
        (pair(Self::shl_i::<24>(words), Self::shl_i::<8>(words)), pair(Self::shl_i::<16>(words), words))
    }
    /// Every byte zero-extended to a word: bytes 0 to 31, bytes 32 to 63, and so on.
    #[inline(always)]
    fn unpack_bytes(x: Self::B) -> [Self::I; 4] {
        let mut bytes = [0u8; BYTES];
        // SAFETY: `bytes` is an array of 128 bytes.
        unsafe { Self::store_b(bytes.as_mut_ptr(), x) };
        let mut words = [[0u32; LANES]; 4];
        for (word, byte) in words.as_flattened_mut().iter_mut().zip(bytes) {
            *word = u32::from(byte);
        }
        // SAFETY: each element of `words` is an array of 32 words, which are 128 bytes.
        words.map(|words| Self::words(unsafe { Self::load_b(words.as_ptr().cast()) }))
    }
    /// Sums of adjacent lanes: of a, then of b; wrapping.
    #[inline(always)]
    fn add_pairs(a: Self::I, b: Self::I) -> Self::I {
        let mut sums = [0u32; LANES];
        for (x, sums) in [a, b].into_iter().zip(sums.chunks_exact_mut(LANES / 2)) {
            for (pair, sum) in words_of::<Self>(x).chunks_exact(2).zip(sums) {
                *sum = pair[0].wrapping_add(pair[1]);
            }
        }
        // SAFETY: `sums` is an array of 32 words, which are 128 bytes.
        Self::words(unsafe { Self::load_b(sums.as_ptr().cast()) })
    }
    /// Low and high halves of every word, each an f16, as f32: exact, infinities included, and NaN for NaN.
    #[inline(always)]
    fn widen_f16(x: Self::B) -> (Self::F, Self::F) {
        math::widen_f16::<Self>(x)
    }
}

#[inline(always)]
fn words_of<H: Hvx>(v: H::I) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: `words` is an array of 32 words, which are 128 bytes.
    unsafe { H::store_b(words.as_mut_ptr().cast(), H::bytes(v)) };
    words
}

/// 32 vectors, each made when it is wanted. (A closure would not be compiled with the back end's
/// instructions.)
pub trait Vectors<H: Hvx> {
    /// Vector `i`. Implementations are `#[inline(always)]`.
    fn get(&self, i: usize) -> H::F;
}

/// A body of work that is compiled for every back end.
pub trait WithHvx {
    /// What the work gives.
    type Output;
    /// Does the work. Implementations are `#[inline(always)]`, and so is what they call with vectors, so that
    /// all of it is compiled with `H`'s instructions.
    fn with<H: Hvx>(self) -> Self::Output;
}

/// The vector instruction set that a session runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// Arrays of lanes, as the compiler vectorizes them for the target's baseline. (The build script chooses
    /// what is compiled.)
    #[cfg(vectors_portable)]
    Portable,
    /// The same with the float arithmetic of v73 and v75: slow, and another text. It is asked for, never
    /// detected.
    #[cfg(feature = "qf32")]
    Qf32,
    /// HVX, of the version that the crate was compiled for.
    #[cfg(target_arch = "hexagon")]
    Hexagon,
    /// AVX2, with the proof that the processor has it.
    #[cfg(vectors_avx2)]
    Avx2(x86::HasAvx2),
    /// AVX-512 F, BW, VL and VNNI, with the proof that the processor has them.
    #[cfg(vectors_avx512)]
    Avx512(x86::HasAvx512),
    /// NEON.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The best instruction set of this processor.
    ///
    /// # Panics
    /// None of those that were compiled, which [`available`](Self::available) tells before.
    #[cfg(feature = "host")]
    pub fn detect() -> Self {
        Self::available().last().expect("the program starts no session without vectors")
    }

    /// The baseline: without `std` this crate cannot ask what the processor has.
    #[cfg(all(vectors_portable, not(feature = "host")))]
    pub fn detect() -> Self {
        Self::Portable
    }

    /// The instruction sets of this processor that were compiled, the best one last. None where the program
    /// was compiled for a better processor alone.
    #[cfg(feature = "host")]
    pub fn available() -> impl Iterator<Item = Self> {
        let vectors: [Option<Self>; _] = [
            #[cfg(vectors_portable)]
            Some(Self::Portable),
            #[cfg(vectors_avx2)]
            x86::HasAvx2::detect().map(Self::Avx2),
            #[cfg(vectors_avx512)]
            x86::HasAvx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            Some(Self::Neon),
        ];
        vectors.into_iter().flatten()
    }

    /// The vectors of this processor that are faster than all that were compiled: the build script leaves out
    /// what the processor that compiles does not need.
    #[cfg(feature = "host")]
    pub fn left_out() -> Option<&'static str> {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx512 = cfg!(not(vectors_avx512)) && std::arch::is_x86_feature_detected!("avx512vnni");
            let has_avx2 = cfg!(not(vectors_avx2)) && std::arch::is_x86_feature_detected!("avx2");
            if has_avx512 {
                return Some("avx512-vnni");
            }
            if has_avx2 && cfg!(not(vectors_avx512)) {
                return Some("avx2");
            }
        }
        None
    }

    /// Name for `devices` and traces.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(vectors_portable)]
            Self::Portable => "portable",
            #[cfg(feature = "qf32")]
            Self::Qf32 => "portable, qf32",
            #[cfg(target_arch = "hexagon")]
            Self::Hexagon => "hvx",
            #[cfg(vectors_avx2)]
            Self::Avx2(_) => "avx2",
            #[cfg(vectors_avx512)]
            Self::Avx512(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// Runs `work` with this instruction set.
    #[inline]
    pub fn run<W: WithHvx>(self, work: W) -> W::Output {
        match self {
            #[cfg(vectors_portable)]
            Self::Portable => work.with::<portable::Portable>(),
            #[cfg(feature = "qf32")]
            Self::Qf32 => work.with::<qf32::Qf32>(),
            #[cfg(target_arch = "hexagon")]
            Self::Hexagon => work.with::<hexagon::Hexagon>(),
            // SAFETY: the variant's field proves that the processor has AVX2.
            #[cfg(vectors_avx2)]
            Self::Avx2(_) => unsafe { x86::run_avx2(work) },
            // SAFETY: the variant's field proves that the processor has AVX-512 F, BW, VL and VNNI.
            #[cfg(vectors_avx512)]
            Self::Avx512(_) => unsafe { x86::run_avx512(work) },
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::run_neon(work),
        }
    }
}
