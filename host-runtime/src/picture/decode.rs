//! From the bytes of a file to pixels.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};

use super::error::PictureError;
use super::size::Size;

/// Most pixels of a picture: phones make pictures of 50 megapixels, and encoders see no more than four of
/// these.
pub const MAX_PIXELS: u64 = 64_000_000;

/// Most bytes that a decoder may take: 64 megapixels of three colours with 16 bits, and something.
const MAX_BYTES: u64 = 448 << 20;

/// A picture as red, green and blue, 8 bits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub(super) size: Size,
    /// Lines from top to bottom, pixels from left to right.
    pub(super) rgb: Vec<u8>,
}

impl Picture {
    /// Decodes a PNG, JPEG, WebP, GIF or BMP file: of an animation, its first picture. It stands upright, as
    /// the camera says (EXIF). Of colours with 16 bits the upper 8 are taken; transparency is left out, as
    /// encoders were trained.
    ///
    /// # Errors
    /// Another format, more than [`MAX_PIXELS`], or bytes that are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, PictureError> {
        let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
        let mut reader = reader.map_err(|error| damaged(&error))?;
        if reader.format().is_none() {
            return Err(PictureError::Format);
        }
        let mut limits = Limits::default();
        limits.max_alloc = Some(MAX_BYTES);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(explain)?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(PictureError::TooLarge { width, height });
        }
        let upright = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let mut picture = DynamicImage::from_decoder(decoder).map_err(explain)?.into_rgb8();
        if upright != Orientation::NoTransforms {
            let mut whole = DynamicImage::ImageRgb8(picture);
            whole.apply_orientation(upright);
            picture = whole.into_rgb8();
        }
        let (width, height) = picture.dimensions();
        if width == 0 || height == 0 {
            return Err(PictureError::Damaged { reason: "it has no pixels".to_owned() });
        }
        Ok(Self { size: Size { width, height }, rgb: picture.into_raw() })
    }

    /// A picture of these pixels: three bytes each, line after line. `None` if there are too few or too many.
    pub fn from_rgb(size: Size, rgb: Vec<u8>) -> Option<Self> {
        let sound = size.pixels() > 0 && size.pixels() <= MAX_PIXELS && rgb.len() as u64 == 3 * size.pixels();
        sound.then_some(Self { size, rgb })
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Red, green and blue of each pixel, line after line.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// A part of it, which begins at (`x`, `y`) and lies inside.
    pub(super) fn part(&self, x: u32, y: u32, size: Size) -> Self {
        let row = |line: u32| {
            let start = 3 * ((y + line) as usize * self.size.width as usize + x as usize);
            &self.rgb[start..start + 3 * size.width as usize]
        };
        Self { size, rgb: (0..size.height).flat_map(row).copied().collect() }
    }
}

fn explain(error: ImageError) -> PictureError {
    match error {
        ImageError::Unsupported(_) => PictureError::Format,
        error => damaged(&error),
    }
}

fn damaged(error: &impl std::fmt::Display) -> PictureError {
    // Decoders quote what they read.
    let reason = error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    PictureError::Damaged { reason }
}

#[cfg(test)]
mod tests {
    use image::{ImageBuffer, ImageFormat, Luma, Rgb, Rgba};

    use super::*;

    fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn formats_and_kinds_of_pixels_become_three_bytes() {
        let colours = ImageBuffer::from_fn(5, 3, |x, y| Rgb([x as u8 * 40, y as u8 * 80, 7]));
        let of = |picture: DynamicImage, format| Picture::decode(&encoded(picture, format)).unwrap();
        for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP] {
            let picture = of(colours.clone().into(), format);
            assert_eq!(picture.size(), Size { width: 5, height: 3 });
            assert_eq!(picture.rgb(), colours.as_raw().as_slice(), "{format:?}");
        }
        let deep = ImageBuffer::from_fn(2, 2, |x, _| Rgb([x as u16 * 0x8012, 0x1234, 0xffff]));
        assert_eq!(&of(DynamicImage::ImageRgb16(deep), ImageFormat::Png).rgb()[3..6], [0x80, 0x12, 0xff]);
        let grey = ImageBuffer::from_fn(2, 1, |x, _| Luma([x as u8 * 200]));
        assert_eq!(of(grey.into(), ImageFormat::Png).rgb(), [0, 0, 0, 200, 200, 200]);
        let clear = ImageBuffer::from_fn(1, 1, |_, _| Rgba([10u8, 20, 30, 0]));
        assert_eq!(of(clear.into(), ImageFormat::Png).rgb(), [10, 20, 30]);
    }

    #[test]
    fn the_camera_says_where_up_is() {
        let wide =
            ImageBuffer::from_fn(64, 32, |x, _| if x < 32 { Rgb([250u8, 0, 0]) } else { Rgb([0, 0, 250]) });
        let jpeg = encoded(wide, ImageFormat::Jpeg);
        // An APP1 segment with an orientation (tag 0x112) of 6: to be turned to the right.
        let exif =
            b"\xff\xe1\x00\x22Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        let turned = [&jpeg[..2], exif, &jpeg[2..]].concat();
        let picture = Picture::decode(&turned).unwrap();
        assert_eq!(picture.size(), Size { width: 32, height: 64 });
        // What was on the left is on top.
        assert!(picture.rgb()[0] > 200 && *picture.rgb().last().unwrap() > 200);
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_a_line() {
        let png = encoded(ImageBuffer::from_pixel(40, 40, Rgb([1u8, 2, 3])), ImageFormat::Png);
        assert_eq!(Picture::decode(b"%PDF-1.7"), Err(PictureError::Format));
        assert_eq!(Picture::decode(&[]), Err(PictureError::Format));
        for bytes in [&png[..png.len() / 2], &png[..20]] {
            let error = Picture::decode(bytes).unwrap_err();
            assert!(matches!(error, PictureError::Damaged { .. }), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        // A header that claims 100 megapixels, of which nothing is there.
        let mut bomb = png.clone();
        bomb[16..24].copy_from_slice(&[0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10]);
        let crc = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(Picture::decode(&bomb), Err(PictureError::TooLarge { width: 10_000, height: 10_000 }));
    }

    /// The checksum of PNG's chunks.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
        })
    }
}
