//! What a row of a unit keeps, in vectors. From the highest score on this is what was found in a split; what
//! was found in all splits so far follows, in the same order, and then the query (`query.rs`).

/// What the weight of the highest score is: a number of f16, whose smallest normal one is 2^-29 of this.
pub const LARGEST_WEIGHT: f32 = 32_768.0;

/// Weights in the tile at hand, lane by lane: exp(x - highest) times [`LARGEST_WEIGHT`].
pub const WEIGHTS: usize = 0;
/// What the tile at hand makes of sums so far, in all lanes.
pub const SHRINK: usize = 1;
/// The highest score, in all lanes.
pub const HIGHEST: usize = 2;
/// Sums of weights, lane by lane.
pub const SUMS: usize = 3;
/// Sums of values.
pub const VALUES: usize = 4;
/// Vectors before what was found.
pub const FOUND: usize = HIGHEST;

/// Vectors of what is found for a row whose values have `v_vectors`.
pub const fn found_vectors(v_vectors: usize) -> usize {
    VALUES - FOUND + v_vectors
}
