//! Pictures for Idefics 3 and SmolVLM: as many square tiles as a picture needs whose longer side is that of
//! the training, line after line, and the whole picture in one more.
//!
//! Formulas: llama.cpp's `tools/mtmd/mtmd-image.cpp`.

use super::decode::Picture;
use super::resize::{Filter, padded, resized};
use super::size::Size;
use super::tile::{Part, Tile};
use crate::model::Encoder;

/// Text before a tile, and behind the last one.
const AROUND: &str = "<fake_token_around_image>";
const WHOLE: &str = "<global-img>";

/// The tiles of a picture, and the texts around them.
pub(super) fn parts(picture: &Picture, encoder: &Encoder) -> Vec<Part> {
    let side = encoder.image_size;
    let tile = Size::square(side);
    let (grid, tiled) = match encoder.longest_edge {
        // Files of old converters do not name it: the picture keeps its size.
        0 => {
            let size = picture.size;
            // To the next whole number of tiles, half of one up.
            let near = |n: u32| ((n + side / 2) / side).max(1);
            let grid = [near(size.width), near(size.height)];
            let whole = Size { width: grid[0] * side, height: grid[1] * side };
            (grid, padded(picture, whole, Filter::Bicubic))
        }
        longest => {
            let size = scaled(picture.size, longest);
            let grid = [size.width, size.height].map(|n| n.div_ceil(side));
            let scaled = resized(picture, size, Filter::Lanczos);
            let whole = Size { width: grid[0] * side, height: grid[1] * side };
            (grid, resized(&scaled, whole, Filter::Lanczos))
        }
    };
    let overview = match encoder.longest_edge {
        0 => resized(picture, tile, Filter::Bicubic),
        _ => resized(&tiled, tile, Filter::Lanczos),
    };
    let mut parts = Vec::new();
    let text = |text: String| Part::Text(text);
    for line in 0..grid[1] {
        for column in 0..grid[0] {
            parts.push(text(format!("{AROUND}<row_{}_col_{}>", line + 1, column + 1)));
            parts.push(Part::Tile(Tile { picture: tiled.part(column * side, line * side, tile) }));
        }
        if line + 1 < grid[1] {
            parts.push(text("\n".to_owned()));
        }
    }
    parts.extend(["\n\n", AROUND, WHOLE].map(|part| text(part.to_owned())));
    parts.push(Part::Tile(Tile { picture: overview }));
    parts.push(text(AROUND.to_owned()));
    parts
}

/// The size whose longer side is `longest`, and the other one even.
fn scaled(size: Size, longest: u32) -> Size {
    let ratio = f64::from(size.width) / f64::from(size.height);
    let even = |n: f64| (n as u32 + n as u32 % 2).max(1);
    if size.width >= size.height {
        Size { width: longest, height: even(f64::from(longest) / ratio) }
    } else {
        Size { width: even(f64::from(longest) * ratio), height: longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_that_of_the_training() {
        let size = |width, height| scaled(Size { width, height }, 2048);
        assert_eq!(size(4000, 3000), Size { width: 2048, height: 1536 });
        assert_eq!(size(300, 400), Size { width: 1536, height: 2048 });
        assert_eq!(size(1000, 333), Size { width: 2048, height: 682 });
        assert_eq!(size(5000, 1), Size { width: 2048, height: 1 });
    }
}
