//! Pictures in other sizes, as Pillow makes them: what encoders were trained with.

use fast_image_resize::images::Image;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::decode::Picture;
use super::size::Size;

/// Values of a pixel.
const COLOURS: usize = 3;
/// Lines that are resized at once where each is for itself: their floats stay in a cache.
const LINES: usize = 16;

/// A filter by Pillow's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Bilinear,
    Bicubic,
    Lanczos,
}

/// The picture in another size; a filter is as wide as the distance of the pixels of the smaller one.
///
/// As with Pillow lines come first, and then columns of what these became, each value rounded to the nearest
/// one of 0 to 255. Sums are made of floats, because the library's own sums of bytes have fewer bits than
/// Pillow's, so that a quarter of all values would be one off.
pub(super) fn resized(picture: &Picture, size: Size, filter: Filter) -> Picture {
    if picture.size == size {
        return picture.clone();
    }
    let filter = match filter {
        Filter::Bilinear => FilterType::Bilinear,
        // With a = -1/2, as Pillow has it.
        Filter::Bicubic => FilterType::CatmullRom,
        Filter::Lanczos => FilterType::Lanczos3,
    };
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(false);
    let mut resizer = Resizer::new();
    let mut resize = |rgb: &[u8], from: Size, to: Size| -> Vec<u8> {
        let mut source = Image::new(from.width, from.height, PixelType::F32x3);
        for (bytes, &value) in source.buffer_mut().as_chunks_mut::<4>().0.iter_mut().zip(rgb) {
            *bytes = f32::from(value).to_ne_bytes();
        }
        let mut target = Image::new(to.width, to.height, PixelType::F32x3);
        // Both have as many bytes as their sizes say, and one type of pixels: nothing is left that could be
        // refused.
        let done = resizer.resize(&source, &mut target, &options);
        debug_assert!(done.is_ok(), "{done:?}");
        let values = target.buffer().as_chunks().0.iter().map(|&value| f32::from_ne_bytes(value));
        values.map(|value| (value + 0.5).clamp(0.0, 255.0) as u8).collect()
    };
    let Size { width, height } = picture.size;
    let narrow = if width == size.width {
        picture.rgb.clone()
    } else {
        let strips = picture.rgb.chunks(LINES * COLOURS * width as usize);
        strips
            .flat_map(|strip| {
                let lines = (strip.len() / COLOURS / width as usize) as u32;
                resize(strip, Size { width, height: lines }, Size { width: size.width, height: lines })
            })
            .collect()
    };
    let rgb = match height == size.height {
        true => narrow,
        false => resize(&narrow, Size { width: size.width, height }, size),
    };
    Picture { size, rgb }
}

/// The picture as large as fits into `size`, in the middle of black.
pub(super) fn padded(picture: &Picture, size: Size, filter: Filter) -> Picture {
    if picture.size == size {
        return picture.clone();
    }
    let scale = |to: u32, from: u32| to as f32 / from as f32;
    let [x, y] = [scale(size.width, picture.size.width), scale(size.height, picture.size.height)];
    let fit = |n: u32, most: u32| ((n as f32 * x.min(y)).ceil() as u32).min(most);
    let inner =
        Size { width: fit(picture.size.width, size.width), height: fit(picture.size.height, size.height) };
    let inner = resized(picture, inner, filter);
    let mut rgb = vec![0; 3 * size.pixels() as usize];
    let (left, top) = ((size.width - inner.size.width) / 2, (size.height - inner.size.height) / 2);
    for (line, pixels) in inner.rgb.chunks_exact(3 * inner.size.width as usize).enumerate() {
        let at = 3 * ((top as usize + line) * size.width as usize + left as usize);
        rgb[at..at + pixels.len()].copy_from_slice(pixels);
    }
    Picture { size, rgb }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line of greys.
    fn line(values: &[u8]) -> Picture {
        let rgb = values.iter().flat_map(|&value| [value; COLOURS]).collect();
        Picture { size: Size { width: values.len() as u32, height: 1 }, rgb }
    }

    fn greys(picture: &Picture) -> Vec<u8> {
        picture.rgb.iter().step_by(COLOURS).copied().collect()
    }

    /// Results of Pillow 13.0.0.
    #[test]
    fn values_are_those_of_pillow() {
        let source = line(&[0, 10, 200, 90, 255, 0, 31, 77]);
        let wide = |n, filter| greys(&resized(&source, Size { width: n, height: 1 }, filter));
        assert_eq!(wide(4, Filter::Bilinear), [33, 142, 111, 46]);
        assert_eq!(wide(3, Filter::Bicubic), [55, 150, 47]);
        assert_eq!(wide(5, Filter::Lanczos), [0, 123, 186, 51, 49]);
        assert_eq!(wide(12, Filter::Lanczos), [4, 0, 41, 189, 141, 108, 250, 146, 0, 11, 65, 80]);
        // Columns are as lines.
        let high = Picture { size: Size { width: 1, height: 8 }, ..source };
        let high = resized(&high, Size { width: 1, height: 5 }, Filter::Lanczos);
        assert_eq!(greys(&high), [0, 123, 186, 51, 49]);
    }

    #[test]
    fn what_is_padded_is_in_the_middle_of_black() {
        let white = Picture { size: Size { width: 2, height: 1 }, rgb: vec![255; 6] };
        let padded = padded(&white, Size::square(4), Filter::Bilinear);
        assert_eq!(greys(&padded), [[0; 4], [255; 4], [255; 4], [0; 4]].concat());
    }
}
