//! Rows of int8 activations.

/// Layout of one row of int8 activations (`Q8_ACT`), which QUANTIZE writes and MUL_MAT reads.
///
/// `k` values padded with zeros to a multiple of 256, then an f32 scale per 32 (rounded to f16, as ggml's
/// Q8_0 block has it, so that both compute with the same numbers). Then an i16 per 16: minus the sum of the
/// int8 values, which is multiplied with what stands for zero in weights, two of them by an instruction. Then
/// the scales once more, as f16: HVX multiplies them with the weights' own in one instruction. Last, an f32
/// per 32: the scale times the sum of the int8 values, which weights with mins are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationRow {
    /// Values of the row, padding included.
    pub padded_k: usize,
}

impl ActivationRow {
    /// The layout of a row of `k` values.
    pub const fn new(k: usize) -> Self {
        Self { padded_k: k.next_multiple_of(256) }
    }

    /// First byte of the scales.
    pub const fn scales(self) -> usize {
        self.padded_k
    }

    /// First byte of the negative sums.
    pub const fn negative_sums(self) -> usize {
        self.padded_k + self.padded_k / 8
    }

    /// First byte of the scales as f16.
    pub const fn halves(self) -> usize {
        self.negative_sums() + self.padded_k / 8
    }

    /// First byte of the scaled sums.
    pub const fn scaled_sums(self) -> usize {
        self.halves() + self.padded_k / 16
    }

    /// Bytes from one row to the next: a multiple of [`crate::VECTOR_BYTES`].
    pub const fn bytes(self) -> usize {
        (self.scaled_sums() + self.padded_k / 8).next_multiple_of(crate::VECTOR_BYTES)
    }
}
