//! Reading rows of int8 activations as scalars, which `vrmpy` takes from a register.

use hexflash_abi::dtype::{ActivationRow, TILE_K};

use crate::hvx::Hvx;

/// An activation row from some block of 32 values on. Blocks are counted from there.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    values: *const u8,
    scales: *const f32,
    negative_sums: *const i32,
    halves: *const u16,
    scaled_sums: *const f32,
}

impl Activations {
    /// R rows of `k.1` values from value `k.0`, which is the first of a block.
    ///
    /// # Safety
    /// 1. Each `x` is an activation row of `k.1` values, aligned to vectors and readable as long as the
    ///    result is used.
    /// 2. `k.0` is the first value of one of its blocks.
    #[inline(always)]
    pub unsafe fn all<const R: usize>(x: [*const u8; R], k: (usize, usize)) -> [Self; R] {
        // SAFETY: each `x` is an activation row of `k.1` values, aligned to vectors and readable as long as
        // the result is used (the caller's contract, point 1), and `k.0 / 32` is one of its blocks (point 2).
        x.map(|x| unsafe { Self::new(x, ActivationRow::new(k.1), k.0 / TILE_K) })
    }

    /// The row at `row` from block `first`.
    ///
    /// # Safety
    /// 1. `row` is an activation row of `layout`, aligned to vectors and readable as long as this value is
    ///    used.
    /// 2. The row has block `first`.
    #[inline(always)]
    unsafe fn new(row: *const u8, layout: ActivationRow, first: usize) -> Self {
        // SAFETY: the row has the bytes of its layout (the caller's contract, point 1): scales, sums and
        // halves begin inside, and `first` is one of its blocks (point 2), each of which has 32 values, a
        // scale, a word of negative sums, a half and a scaled sum.
        unsafe {
            Self {
                values: row.add(first * 32),
                scales: row.add(layout.scales()).cast::<f32>().add(first),
                negative_sums: row.add(layout.negative_sums()).cast::<i32>().add(first),
                halves: row.add(layout.halves()).cast::<u16>().add(first),
                scaled_sums: row.add(layout.scaled_sums()).cast::<f32>().add(first),
            }
        }
    }

    /// The eight activations from `k` of a block, packed in two words.
    ///
    /// # Safety
    /// The row has the block; `k` is 0, 8, 16 or 24.
    #[inline(always)]
    pub unsafe fn eight<H: Hvx>(self, block: usize, k: usize) -> [i32; 2] {
        // SAFETY: the row has the block, and `k` is 24 at most (the caller's contract), so these are 8 bytes
        // of its values. They are aligned to 8, because rows are aligned to vectors, and blocks have 32
        // bytes.
        unsafe { H::two_words(self.values.add(block * 32 + k)) }.into()
    }

    /// Minus the sums of both halves of a block, as halves of a word.
    ///
    /// # Safety
    /// The row has the block.
    #[inline(always)]
    pub unsafe fn negative_sums(self, block: usize) -> i32 {
        // SAFETY: the row has the block (the caller's contract), so this is one of its words. It is aligned,
        // because rows are aligned to vectors, and these words begin at a multiple of 32 bytes.
        unsafe { self.negative_sums.add(block).read() }
    }

    /// As [`negative_sums`](Self::negative_sums), of `block`, which is even, and of the next one.
    ///
    /// # Safety
    /// The row has both blocks, and starts at an even block.
    #[inline(always)]
    pub unsafe fn negative_sums_of_pair<H: Hvx>(self, block: usize) -> [i32; 2] {
        // SAFETY: the row has `block` and the next one (the caller's contract), so these are two words of it.
        // They are aligned to 8: these words begin at a multiple of 32 bytes, the row starts at an even
        // block, and `block` is even.
        unsafe { H::two_words(self.negative_sums.add(block).cast()) }.into()
    }

    /// The scaled sums of `block`, which is even, and of the next one.
    ///
    /// # Safety
    /// The row has both blocks, and starts at an even block.
    #[inline(always)]
    pub unsafe fn scaled_sums<H: Hvx>(self, block: usize) -> [f32; 2] {
        // SAFETY: the row has `block` and the next one (the caller's contract), so these are two floats of
        // it. They are aligned to 8: scaled sums begin at a multiple of 16 bytes, the row starts at an even
        // block, and `block` is even.
        unsafe { two_floats::<H>(self.scaled_sums.add(block)) }
    }

    /// The scales of `block`, which is even, and of the next one: as two f16 in a word, and as f32.
    ///
    /// # Safety
    /// The row has both blocks, and starts at an even block.
    #[inline(always)]
    pub unsafe fn scales<H: Hvx>(self, block: usize) -> (i32, [f32; 2]) {
        // SAFETY: the row has `block` and the next one (the caller's contract), so these are two halves and
        // two floats of it. The row starts at an even block, and `block` is even: so the two halves are
        // aligned to 4, and the floats to 8, as the scales begin at a multiple of 256 bytes.
        unsafe { (self.halves.add(block).cast::<i32>().read(), two_floats::<H>(self.scales.add(block))) }
    }
}

/// Two floats, to be taken as scalars.
///
/// # Safety
/// `p` is valid for reading two floats, and aligned to 8.
#[inline(always)]
unsafe fn two_floats<H: Hvx>(p: *const f32) -> [f32; 2] {
    // SAFETY: `p` is aligned to 8 bytes and valid for reading 8 bytes (the caller's contract).
    let (a, b) = unsafe { H::two_words(p.cast()) };
    [a, b].map(|word| f32::from_bits(word as u32))
}

/// Whether the scale of every block is finite: as f16, four to a word.
///
/// # Safety
/// `row` is an activation row of `layout`, aligned to vectors and readable.
pub(super) unsafe fn finite(row: *const u8, layout: ActivationRow) -> bool {
    const EXPONENT: u64 = 0x7c00_7c00_7c00_7c00;
    const LOWEST: u64 = 0x0400_0400_0400_0400;
    const CARRIED: u64 = 0x8000_8000_8000_8000;
    let (blocks, mut carried) = (layout.padded_k / TILE_K, 0);
    for i in 0..blocks / 4 {
        // SAFETY: `i` is below `blocks / 4`, so these are the halves of four blocks of the row, which is
        // readable (the caller's contract). They are aligned to 8, because rows are aligned to vectors and
        // the halves begin at a multiple of 32 bytes.
        let four = unsafe { row.add(layout.halves()).cast::<u64>().add(i).read() };
        // An exponent of ones, and no other, carries into the place of the sign.
        carried |= (four & EXPONENT) + LOWEST;
    }
    carried & CARRIED == 0
}
