//! A product that others have recorded: `toolchain/qemu/recorded/hmx.txt`, which says where it comes from.
//!
//! It is a filter over a picture. The emulator has no filters, but a filter is a sum of products of tiles:
//! one for each of its taps, of the picture, moved by as much, and of the tap's weights.

use std::fs;
use std::path::Path;

use hexflash_hvx_float::matrix::{SIDE, VALUES};

use super::{PAIRS, Record, Tile, place};
use crate::failure::{Failure, Result};

/// Extents of the picture, in pixels; the tile that is stored has half of its rows.
const WIDTH: usize = 4;
const HEIGHT: usize = 16;
/// Taps of the filter, down and across.
const DOWN: usize = 3;
const ACROSS: usize = 2;
/// Taps of the filter that the input has weights for.
const TAPS: usize = 9;
/// Weights that are in the order that the unit reads; those after them have columns innermost.
const IN_ORDER: usize = TAPS * VALUES / 2;

/// What was recorded: the tile that the unit stores.
pub(super) fn read(root: &Path) -> Result<Tile> {
    let file = root.join("toolchain/qemu/recorded/hmx.txt");
    let text = fs::read_to_string(&file).map_err(|error| Failure::on_disk("read", &file, &error))?;
    parse(&text).ok_or_else(|| {
        Failure::failed(
            format!("{} is not {VALUES} halves", file.display()),
            "see the comment at its beginning, and restore it from git",
        )
    })
}

fn parse(text: &str) -> Option<Tile> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let halves = lines.flat_map(str::split_whitespace).map(|half| u16::from_str_radix(half, 16).ok());
    Tile::try_from(halves.collect::<Option<Vec<_>>>()?.into_boxed_slice()).ok()
}

/// A line for each half that is another one than the recorded.
pub(super) fn differences(cpu: &str, recorded: &[u16; VALUES], stored: &[u16]) -> Vec<String> {
    let places = (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column)));
    let differs = |(row, column)| {
        let (got, recorded) = (stored[place(row, column)], recorded[place(row, column)]);
        (got != recorded).then(|| {
            format!(
                "{cpu}: matrix unit, row {row}, column {column}: {got:04x}, and hmx.txt has {recorded:04x}"
            )
        })
    };
    places.filter_map(differs).collect()
}

/// The filter and the picture, as products of tiles.
pub(super) fn operands() -> Record {
    let halves: Vec<u16> =
        rand().take(SIDE * WIDTH * HEIGHT + TAPS * VALUES).map(|x| 0x3800 | (x & 0x3ff) as u16).collect();
    let (picture, filter) = halves.split_at(SIDE * WIDTH * HEIGHT);
    let (mut a, mut w) = (Vec::new(), Vec::new());
    for tap in 0..DOWN * ACROSS {
        a.push(moved(picture, tap / ACROSS, tap % ACROSS));
        w.push(weights(filter, tap));
    }
    assert!(a.len() <= PAIRS, "a record has room for the filter");
    Record { a, w, table: [[0x3c00, 0]; SIDE] }
}

/// Activations whose row 4 y + x is pixel (x - right, y + down) of the picture, or 0 where there is none.
fn moved(picture: &[u16], down: usize, right: usize) -> Tile {
    let mut tile: Tile = Box::new([0; VALUES]);
    for row in 0..SIDE {
        let (y, x) = (row / WIDTH + down, row % WIDTH);
        let Some(x) = x.checked_sub(right) else { continue };
        for k in 0..SIDE {
            tile[place(row, k)] = picture[(y * WIDTH + x) * SIDE + k];
        }
    }
    tile
}

/// A tile of weights as it is in memory.
fn weights(filter: &[u16], number: usize) -> Tile {
    let weight = |k: usize, column: usize| filter[TAPS * (SIDE * column + k) + number];
    let mut tile: Tile = Box::new([0; VALUES]);
    for (i, half) in tile.iter_mut().enumerate() {
        let (k, column) = match number * VALUES + i < IN_ORDER {
            // Two of k side by side.
            true => (i / (2 * SIDE) * 2 + i % 2, i % (2 * SIDE) / 2),
            false => (i / SIDE, i % SIDE),
        };
        *half = weight(k, column);
    }
    tile
}

/// Numbers of the C library's generator, seeded with 1: the sum of the third and the thirty-first before it,
/// without its last bit, after 310 that are not given.
fn rand() -> impl Iterator<Item = u32> {
    const LAG: usize = 31;
    const NEAR: usize = 3;
    const DISCARDED: usize = 310;
    let mut state = vec![1_u32];
    while state.len() < LAG {
        // Park and Miller's, modulo 2^31 - 1.
        let last = u64::from(state[state.len() - 1]);
        state.push((last * 16_807 % 0x7fff_ffff) as u32);
    }
    let mut next = NEAR;
    let numbers = std::iter::from_fn(move || {
        state[next] = state[next].wrapping_add(state[(next + LAG - NEAR) % LAG]);
        let number = state[next] >> 1;
        next = (next + 1) % LAG;
        Some(number)
    });
    numbers.skip(DISCARDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hexflash_hvx_float::matrix::Generation;

    fn recorded() -> Tile {
        read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))).unwrap()
    }

    /// What the definition in Rust stores.
    fn defined(generation: Generation) -> Tile {
        let record = operands();
        let mut tile: Tile = Box::new([0; VALUES]);
        for row in 0..SIDE {
            for column in 0..SIDE {
                tile[place(row, column)] = record.result(generation, row, column);
            }
        }
        tile
    }

    #[test]
    fn the_generator_is_the_one_of_the_c_library() {
        let numbers: Vec<_> = rand().take(4).collect();
        assert_eq!(numbers, [1_804_289_383, 846_930_886, 1_681_692_777, 1_714_636_915]);
    }

    #[test]
    fn the_definition_of_the_matrix_unit_has_the_recorded_halves() {
        for generation in [Generation::V73, Generation::V75] {
            let differences = differences("defined", &recorded(), &*defined(generation));
            assert!(differences.is_empty(), "{generation:?}: {differences:#?}");
        }
    }

    #[test]
    fn a_wrong_half_is_named_wherever_it_is_planted() {
        let right = recorded();
        for row in 0..SIDE {
            for column in 0..SIDE {
                let mut planted = right.clone();
                planted[place(row, column)] ^= 1;
                let found = differences("v73", &planted, &*right);
                let start = format!("v73: matrix unit, row {row}, column {column}: ");
                assert!(matches!(&found[..], [one] if one.starts_with(&start)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused() {
        assert!(parse("# none\n3c00 3c01\n").is_none());
        assert!(parse(&"3c00 ".repeat(VALUES)).is_some());
        assert!(parse(&"3c0g ".repeat(VALUES)).is_none());
    }
}
