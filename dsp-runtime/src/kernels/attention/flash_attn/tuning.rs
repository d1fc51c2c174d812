//! The tuned constants of attention, each with its reason and its unit.
//!
//! [`SPLIT`] and [`KEY_TILES`] decide in which order a row is summed up, and so about bits: the former about
//! those of exact programs, the latter about those of the class `fast`. [`LEAST_TOKENS`] and [`LEAST_ROWS`]
//! decide which of the two a row of a `fast` program gets. The others change no bit. Run after a change:
//!
//! * `cargo test -p hexflash-dsp --lib flash_attn` and `cargo xtask conformance --op FLASH_ATTN_EXT`,
//! * `cargo xtask packets --op FLASH_ATTN`, with `--update` if the counts are to be kept,
//! * where bits changed, `cargo test -p hexflash-e2e`: it has texts that are expected.
//!
//! None was timed on a phone. What decided is packets under the emulator, which counts no stalls.

use super::positions::TILE;

/// Query rows of a unit, at most: those that share a staged tile of keys. Where VTCM has no room for the
/// state of so many, half of them are tried, and so on.
pub const MAX_ROWS: usize = 32;
const _: () = assert!(MAX_ROWS <= u32::BITS as usize, "rows of a unit are bits of a word");

/// Positions of a split: what is found in it is found by itself, and then put together, split by split. Long
/// enough that putting together takes little, short enough that a thousand keys keep four workers busy.
pub const SPLIT: usize = 256;
const _: () = assert!(SPLIT.is_multiple_of(TILE), "a tile is of one split");

/// Key tiles of a block of the matrix unit. Long blocks: what was found before is scaled once per block. Not
/// as many as there is room for, so that results do not depend on that.
pub const KEY_TILES: usize = 8;
const _: () = assert!(KEY_TILES * TILE == SPLIT, "a block of the unit has the positions of a split");

/// Rows of a part: what a worker softens at once for the matrix unit.
pub const PART: usize = 8;
const _: () = assert!(TILE.is_multiple_of(PART), "a part is of one matrix tile");

/// Matrix tiles of rows of a pass of the matrix unit, at most. It bounds what the kernel keeps about them on
/// its stack; with less VTCM there are fewer.
pub const MOST_ROW_TILES: usize = 16;

/// Tokens that a program has for the matrix unit, at least. With 16 the unit takes less than a third of the
/// packets of HVX (`toolchain/PACKETS.md`, ATTEND over 1,024 keys); fewer were not compared.
pub const LEAST_TOKENS: usize = 16;

/// Rows of a kv head that a sequence has in a step for the matrix unit, at least: a matrix tile. Others are
/// done without it.
pub const LEAST_ROWS: usize = TILE;
