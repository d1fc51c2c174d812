//! Pictures for LFM2-VL: one tile of about the picture's shape, or several square ones and the whole picture
//! in one more.
//!
//! Formulas: llama.cpp's `tools/mtmd/mtmd-image.cpp`.

use super::decode::Picture;
use super::resize::{Filter, padded, resized};
use super::size::Size;
use super::tile::{Part, Tile};
use crate::model::Encoder;

const BEGIN: &str = "<|image_start|>";
const END: &str = "<|image_end|>";
const WHOLE: &str = "<|img_thumbnail|>";
/// Fewest and most rows of a tile of the picture's own shape.
const ROWS: [u32; 2] = [64, 256];
/// Fewest and most square tiles.
const TILES: [u32; 2] = [2, 10];
/// Side of a square tile, in pixels.
const SIDE: u32 = 512;
/// How much larger than the largest tile a picture may be that becomes one.
const TOLERANCE: f64 = 2.0;

/// The tiles of a picture, and the texts around them.
pub(super) fn parts(picture: &Picture, encoder: &Encoder) -> Vec<Part> {
    let align = encoder.patch * encoder.merge;
    let limits = ROWS.map(|rows| rows * align * align);
    let whole = Tile { picture: resized(picture, fitting(picture.size, align, limits), Filter::Bilinear) };
    let text = |text: &str| Part::Text(text.to_owned());
    if !is_large(picture.size, encoder, limits[1]) {
        return vec![text(BEGIN), Part::Tile(whole), text(END)];
    }
    let grid = grid(picture.size);
    let tiled = Size { width: SIDE * grid.width, height: SIDE * grid.height };
    let tiled = padded(picture, tiled, Filter::Bilinear);
    let mut parts = vec![text(BEGIN)];
    for line in 0..grid.height {
        for column in 0..grid.width {
            parts.push(Part::Text(format!("<|img_row_{}_col_{}|>", line + 1, column + 1)));
            let tile = tiled.part(column * SIDE, line * SIDE, Size::square(SIDE));
            parts.push(Part::Tile(Tile { picture: tile }));
        }
    }
    parts.extend([text(WHOLE), Part::Tile(whole), text(END)]);
    parts
}

/// The size of whole rows that is nearest to a picture's, with a number of pixels between the `limits` where
/// that can be.
pub(super) fn fitting(size: Size, align: u32, limits: [u32; 2]) -> Size {
    let unit = align as f32;
    let nearest = |n: u32| ((n as f32 / unit).round() as u32 * align).max(align);
    let near = Size { width: nearest(size.width), height: nearest(size.height) };
    let (width, height) = (size.width as f32, size.height as f32);
    let [fewest, most] = limits;
    if near.pixels() > most.into() {
        let shrink = (height * width / most as f32).sqrt();
        let below = |n: f32| ((n / shrink / unit).floor() as u32 * align).max(align);
        Size { width: below(width), height: below(height) }
    } else if near.pixels() < fewest.into() {
        let grow = (fewest as f32 / (height * width)).sqrt();
        let above = |n: f32| (n * grow / unit).ceil() as u32 * align;
        Size { width: above(width), height: above(height) }
    } else {
        near
    }
}

/// Whether a picture has more pixels than one tile does justice to.
fn is_large(size: Size, encoder: &Encoder, most: u32) -> bool {
    let align = encoder.patch * encoder.merge;
    let near =
        |n: u32| ((f64::from(n) / f64::from(align)).round_ties_even() as u32 * align).max(encoder.patch);
    f64::from(near(size.width)) * f64::from(near(size.height)) > f64::from(most) * TOLERANCE
}

/// Tiles in a line, and lines: of all numbers of tiles the grid whose shape is nearest to the picture's, and
/// among equals the largest that the picture fills half of.
fn grid(size: Size) -> Size {
    let [fewest, most] = TILES;
    let all = (1..=most).flat_map(|width| (1..=most).map(move |height| Size { width, height }));
    let mut all: Vec<Size> =
        all.filter(|grid| (fewest.into()..=most.into()).contains(&grid.pixels())).collect();
    all.sort_by_key(|grid| grid.pixels());
    let shape = size.width as f32 / size.height as f32;
    let (mut best, mut least) = (Size::square(1), f32::MAX);
    for grid in all {
        let distance = (shape - grid.width as f32 / grid.height as f32).abs();
        let fills = size.pixels() as f32 > 0.5 * (u64::from(SIDE) * u64::from(SIDE) * grid.pixels()) as f32;
        if distance < least || distance == least && fills {
            (best, least) = (grid, distance.min(least));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_has_the_picture_s_shape_and_a_number_of_rows_in_between() {
        let limits = [64 * 1024, 256 * 1024];
        let fit = |width, height| fitting(Size { width, height }, 32, limits);
        assert_eq!(fit(500, 400), Size { width: 512, height: 416 });
        assert_eq!(fit(4000, 3000), Size { width: 576, height: 416 });
        assert_eq!(fit(100, 100), Size { width: 256, height: 256 });
        assert_eq!(fit(50, 200), Size { width: 128, height: 512 });
    }

    #[test]
    fn a_grid_has_the_picture_s_shape() {
        let grid = |width, height| grid(Size { width, height });
        assert_eq!(grid(2000, 2000), Size { width: 3, height: 3 });
        assert_eq!(grid(800, 800), Size { width: 2, height: 2 });
        assert_eq!(grid(3000, 1000), Size { width: 3, height: 1 });
        assert_eq!(grid(1000, 9000), Size { width: 1, height: 9 });
    }
}
