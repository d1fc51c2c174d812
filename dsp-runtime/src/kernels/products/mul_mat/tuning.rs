//! The tuned constants of products, each with its reason and its unit.
//!
//! [`ROWS`], [`PIECE_BYTES`], [`STRIPS_BYTES`] and [`UNITS_OF_WORKER`] change no bit: partial sums wait
//! between pieces, and a row depends on itself alone. [`fewest_rows_for_hmx`] does, in programs of the class
//! `fast`. Run after a change:
//!
//! * `cargo test -p hexflash-dsp --lib mul_mat`, `cargo test -p hexflash-dsp --test stream` and
//!   `cargo test -p hexflash --test mul_mat`,
//! * `cargo xtask packets --op MUL_MAT`, with `--update` if the counts are to be kept,
//! * where bits changed, `cargo test -p hexflash-e2e`: it has texts that are expected.
//!
//! None was timed on a phone. What decided is packets under the emulator, which counts no stalls.

use hexflash_abi::DType;

use crate::stream::MAX_ROWS;

/// Rows of x that share one pass over the weights: as many as a step of a program with a weight stream may
/// have, which reads its weights once. Each takes two vectors of partial sums of a worker's VTCM.
pub const ROWS: usize = MAX_ROWS;

/// Bytes of a piece of a strip, at most. Two are in VTCM per worker: one is multiplied while the other is on
/// its way.
pub const PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a piece of several whole strips, at most. Strips of few groups would be many small pieces, and
/// claiming and fetching cost the same for each.
pub const STRIPS_BYTES: usize = 160 * 1024;
const _: () = assert!(STRIPS_BYTES >= 2 * PIECE_BYTES, "two strips that are a piece each fit into one");

/// Units that a worker should find in a product, at least, when strips are put together: none then waits long
/// for the last.
pub const UNITS_OF_WORKER: usize = 8;

/// Fewest rows that take fewer packets by the matrix unit than by HVX. The unit takes 32 to 58 packets per
/// tile for all rows together. HVX takes 21 to 58 for each row where weights are floats, and 8 to 12 where
/// they are quants (`toolchain/packets.json`).
pub const fn fewest_rows_for_hmx(weights: DType) -> u32 {
    if weights.wants_q8_activations() { 5 } else { 2 }
}
