//! Strips of weights as matrix tiles of fp16.
//!
//! Quants become integers: a quant, as a fraction of 2^15, times the scale of its tile, as a fraction of the
//! largest scale of its column, rounded to 16 bits with a sign and then to fp16. Columns are rows of the
//! matrix w, and their factors are powers of two, so that nothing is rounded when they are taken back.
//!
//! How results stay in range: a result of fp16 is the sum times 2^t. Sums of k products are below 2^(a + log
//! - down), where weights are below 2^a ([`Depth`]), and t is chosen so that they come out below 2^15.

use hexflash_abi::VECTOR_BYTES;

use super::super::flat::{Flat, Halves};
use super::super::float::F16;
use super::super::quants::{Bytes, FiveBits, Indices, Iq4Nl, Nibbles, Quants};
use super::activations::Depth;
use crate::hmx::{TILE_BYTES, TilePtr};
use crate::hvx::{Hvx, VectorPtr, math};

/// Weights that become matrix tiles.
pub(in crate::kernels) trait Tiles: Sync + 'static {
    /// Whether values 1 and 2 of every four k change places, here and in the activations: sums do not mind,
    /// and bytes become halves without a shuffle.
    const EXCHANGED: bool;

    /// Makes the `k_tiles` matrix tiles of a strip at `to`.
    ///
    /// # Safety
    /// 1. `packed` holds `groups` groups of weights, with as many tiles as `k_tiles` or more.
    /// 2. Room for a strip ([`super::layout::place`]) is valid for writing at `to`, and nobody else touches
    ///    it. `packed` are the last bytes of the room for `groups` groups.
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H>;
}

/// What is done to the results of a strip's columns, a lane each.
pub(in crate::kernels) struct Columns<H: Hvx> {
    /// The logarithm of what the unit multiplies sums with, -14 to 15.
    scale: H::I,
    /// The logarithm of what a result is multiplied with to become the product; 128 if it is none.
    factor: H::I,
}

impl<H: Hvx> Columns<H> {
    /// Those of columns whose weights, or scales of weights, have largest magnitudes with these exponent
    /// codes of f16. Results that an infinity or a NaN is part of become infinite or NaN again.
    #[inline(always)]
    fn new(scale: H::I, factor: H::I, code: H::I) -> Self {
        // 128 for code 31, and -128, which is below all factors, for the others.
        let beyond = H::shl_i::<8>(H::shr_i::<5>(H::add_i(code, H::splat_i(1))));
        let beyond = H::sub_i(beyond, H::splat_i(128));
        Self { scale, factor: H::max_i(factor, beyond) }
    }

    /// Writes the table of the unit, and the factors behind it.
    ///
    /// # Safety
    /// Three vectors at `table` are valid for writing, and nobody else touches them.
    #[inline(always)]
    pub(super) unsafe fn store(self, table: TilePtr) {
        let (table, zero) = (table.vectors(), H::bytes(H::splat_i(0)));
        let scale = H::shl_i::<10>(H::add_i(self.scale, H::splat_i(15)));
        let factor = H::shl_i::<23>(H::add_i(self.factor, H::splat_i(127)));
        // SAFETY: these are three vectors, which are valid for writing (the caller's contract).
        unsafe {
            table.store_b::<H>(0, H::bytes(scale));
            table.store_b::<H>(1, zero);
            table.store::<H>(2, H::from_bits(factor));
        }
    }
}

/// The largest magnitudes of low halves and of high halves so far, as bits of f16 in the upper half of a
/// word.
struct Largest<H: Hvx>([H::I; 2]);

impl<H: Hvx> Largest<H> {
    #[inline(always)]
    fn new() -> Self {
        Self([H::splat_i(0); 2])
    }

    /// Takes in both halves of every word.
    #[inline(always)]
    fn add(&mut self, halves: H::B) {
        // What is in the lower half does not change which upper half is larger.
        let magnitudes = H::and_i(H::words(halves), H::splat_i(0x7fff_7fff));
        self.0[0] = H::max_i(self.0[0], H::shl_i::<16>(magnitudes));
        self.0[1] = H::max_i(self.0[1], magnitudes);
    }

    /// The exponent code of the largest, with that of the smallest normal number for all below.
    #[inline(always)]
    fn exponent_code(self) -> H::I {
        H::max_i(H::shr_i::<26>(H::max_i(self.0[0], self.0[1])), H::splat_i(1))
    }
}

/// They are matrix tiles already.
impl Tiles for F16 {
    const EXCHANGED: bool = false;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        _groups: usize,
        _to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        let mut largest = Largest::<H>::new();
        for i in 0..k_tiles * (TILE_BYTES / VECTOR_BYTES) {
            // SAFETY: `packed` has so many tiles of 16 vectors (the caller's contract, point 1).
            largest.add(unsafe { packed.load_b::<H>(i) });
        }
        let code = largest.exponent_code();
        // Weights are below 2^(code - 14). A scale is 2^15 at most.
        let scale = H::sub_i(H::splat_i(29 - depth.log + depth.down), code);
        let factor = H::max_i(H::sub_i(H::splat_i(0), scale), H::splat_i(-15));
        Columns::new(H::sub_i(H::splat_i(0), factor), factor, code)
    }
}

/// Quants whose zero is in the middle of what their bits can say.
pub(in crate::kernels) trait Centred: Quants {
    /// Bits of a quant.
    const BITS: i32;

    /// The quants of bytes 0 and 2 of every word, and of bytes 1 and 3, as fractions of 2^15: halves with the
    /// quant in their first bits. `quants` are numbers with a sign, of so many bits.
    fn halves<H: Hvx>(quants: H::B) -> [H::B; 2];
}

macro_rules! centred {
    ($($quants:ty: $bits:literal, $even:literal, $odd:literal;)+) => {$(
        impl Centred for $quants {
            const BITS: i32 = $bits;

            #[inline(always)]
            fn halves<H: Hvx>(quants: H::B) -> [H::B; 2] {
                const { assert!(Self::ZERO == 1 << ($bits - 1) && $even == 16 - $bits && $odd == 8 - $bits) };
                const FIRST: u32 = (0xffff << $even & 0xffff) * 0x1_0001;
                let (words, first) = (H::words(quants), H::splat_i(FIRST as i32));
                [H::shl_i::<$even>(words), H::shl_i::<$odd>(words)].map(|x| H::bytes(H::and_i(x, first)))
            }
        }
    )+};
}

centred! {
    Bytes: 8, 8, 0;
    Nibbles<8>: 4, 12, 4;
    FiveBits<16>: 5, 11, 3;
    Indices<Iq4Nl>: 8, 8, 0;
}

impl<Q: Centred> Tiles for Flat<Q, Halves<0>> {
    const EXCHANGED: bool = true;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        const { assert!(reads_before_it_writes(Self::GROUP.vectors(), Q::LOW)) };
        let (vectors, scales_at) = (Self::GROUP.vectors(), Self::GROUP.scales_at());
        let mut largest = Largest::<H>::new();
        for group in 0..groups {
            for i in 0..2 {
                // SAFETY: `group` is below `groups`, and each has two vectors of scales there (the caller's
                // contract, point 1).
                largest.add(unsafe { packed.skip(group * vectors + scales_at).load_b::<H>(i) });
            }
        }
        // Scales are below 2^(code - 14): this makes fractions of them.
        let code = largest.exponent_code();
        let fraction = H::from_bits(H::shl_i::<23>(H::sub_i(H::splat_i(127 + 15 + 14), code)));
        for pair in 0..k_tiles.div_ceil(2) {
            let (group, first) = (packed.skip(pair / 2 * vectors), pair % 2 * 2);
            // SAFETY: the pair has one of the `k_tiles` tiles, and so is one of the two of a group, whose
            // scales are in a vector of their own (the caller's contract, point 1).
            let scales = H::widen_f16(unsafe { group.load_b::<H>(scales_at + pair % 2) });
            let to = to.skip(2 * pair);
            // SAFETY: the tiles are two of their group's four, so their bits are inside of the group (the
            // caller's contract, point 1), and their matrix tiles are in the room, which has tiles for whole
            // groups (point 2). Tiles are made in order, each before what is read for it and for all that
            // come after it (`reads_before_it_writes`).
            unsafe {
                Self::unpack_tile::<H>(group, first, H::mul_ieee(scales.0, fraction), to);
                Self::unpack_tile::<H>(group, first + 1, H::mul_ieee(scales.1, fraction), to.skip(1));
            }
        }
        // Integers are weights times 2^(16 - BITS - (code - 14)), and below 2^15.
        let factor = H::add_i(code, H::splat_i(depth.log - depth.down + Q::BITS - 30));
        Columns::new(H::splat_i(depth.down - depth.log), factor, code)
    }
}

impl<Q: Centred> Flat<Q, Halves<0>> {
    /// Makes the matrix tile of tile `t` of a group, whose scales are fractions of 2^15 as floats.
    ///
    /// # Safety
    /// `group` holds a group, and `t` is below 4. A matrix tile is valid for writing at `to`, nobody else
    /// touches it, and it ends before the bits of the tile begin or behind the group.
    #[inline(always)]
    unsafe fn unpack_tile<H: Hvx>(group: VectorPtr, t: usize, scale: H::F, to: TilePtr) {
        let scale = H::to_int(scale);
        let scale = math::pair_halves::<H>(scale, scale);
        let (low, high) = (group.skip(Self::GROUP.low_at(t)), group.skip(Self::GROUP.high_at(t)));
        let to = to.vectors();
        // SAFETY: the bits of a tile of the group are at `low` and `high`, and there are two bundles, or
        // four. The matrix tile at `to` is this call's own (the caller's contract).
        unsafe {
            unpack_bundle::<Q, H, 0>(low, high, scale, to);
            unpack_bundle::<Q, H, 1>(low, high, scale, to);
            if Q::BUNDLES == 4 {
                unpack_bundle::<Q, H, 2>(low, high, scale, to);
                unpack_bundle::<Q, H, 3>(low, high, scale, to);
            }
        }
    }
}

/// Whether every matrix tile of a group of so many vectors, four tiles with `low` vectors of low bits each,
/// ends before the bits of its tile begin, and so before all that is read after them. The last group is the
/// one where they are closest: its end is a matrix tile behind that of its own four.
const fn reads_before_it_writes(vectors: usize, low: usize) -> bool {
    let tile = TILE_BYTES / VECTOR_BYTES;
    let begins = 5 * tile - vectors;
    let (mut t, mut all) = (0, true);
    while t < 4 {
        all &= (t + 1) * tile <= begins + t * low;
        t += 1;
    }
    // Scales are read for every pair of tiles, and lie behind all bits.
    all
}

/// Makes the halves of a bundle of quants.
///
/// # Safety
/// `low` and `high` hold the bits of a tile, and `I` is below `BUNDLES`. A matrix tile is valid for writing
/// at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn unpack_bundle<Q: Centred, H: Hvx, const I: usize>(
    low: VectorPtr,
    high: VectorPtr,
    scale: H::B,
    to: VectorPtr,
) {
    // SAFETY: `low` and `high` hold the bits of a tile, and `I` is below `BUNDLES` (the caller's contract).
    let ((k, quants), second) = unsafe { Q::bundle::<H, I>(low, high) };
    // SAFETY: bundles have eight k from 24 at most; a matrix tile is valid for writing at `to`, and nobody
    // else touches it (the caller's contract).
    unsafe {
        unpack_eight::<Q, H>(k, quants, scale, to);
        if let Some((k, quants)) = second {
            unpack_eight::<Q, H>(k, quants, scale, to);
        }
    }
}

/// Makes the halves of eight k.
///
/// # Safety
/// `k` is 0, 8, 16 or 24. A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn unpack_eight<Q: Centred, H: Hvx>(k: usize, quants: [H::B; 2], scale: H::B, to: VectorPtr) {
    let zero = H::splat_b(Q::ZERO as u8);
    let [a, b] = quants.map(|quants| {
        Q::halves::<H>(H::xor_b(quants, zero)).map(|halves| H::mul_fractions_f16(halves, scale))
    });
    // SAFETY: a vector has two k, and `k` is 24 at most, so that these are four of the 16 vectors of the tile
    // at `to` (the caller's contract).
    unsafe {
        to.store_b::<H>(k / 2, a[0]);
        to.store_b::<H>(k / 2 + 1, a[1]);
        to.store_b::<H>(k / 2 + 2, b[0]);
        to.store_b::<H>(k / 2 + 3, b[1]);
    }
}
