//! Pictures in prompts.

use std::collections::VecDeque;

use super::error::PictureError;
use super::layout::Layout;
use super::tile::{Part, Tile};
use crate::engine::{Engine, EngineError, PictureRows};
use crate::error::Error;
use crate::model::Encoder;
use crate::text::TextError;
use crate::tokenizer::Tokenizer;

/// Marker that users write where a picture is to be in a text, as in llama.cpp.
pub const MARKER: &str = "<__media__>";

/// Place of a picture in messages and rendered templates: no character, so that no text has it.
pub const PLACE: &str = "\u{fdd0}";

/// Id in place of a row of a tile that is yet to be encoded.
const PENDING: u32 = u32::MAX;

/// Tokens of a picture in a prompt, with something in place of each row of its tiles; and the places where
/// the rows of each tile begin.
fn tokens(
    layout: &Layout,
    tokenizer: &Tokenizer,
    encoder: &Encoder,
) -> Result<(Vec<u32>, Vec<usize>), Error> {
    let (mut tokens, mut places) = (Vec::new(), Vec::new());
    for part in &layout.parts {
        match part {
            Part::Text(text) => tokens.extend(tokenizer.encode(text, false, true).map_err(TextError::from)?),
            Part::Tile(tile) => {
                let rows = tile.grid(encoder).len() / encoder.patches_per_row();
                places.push(tokens.len());
                tokens.extend((0..rows).map(|_| PENDING));
            }
        }
    }
    Ok((tokens, places))
}

/// Puts the ids of rows where they stand in a prompt.
fn put(tokens: &mut [u32], at: usize, rows: &PictureRows) {
    tokens[at..].iter_mut().zip(rows.ids()).for_each(|(place, id)| *place = id);
}

/// A picture that a model has encoded. Its rows are kept as long as this is, or as a context has them.
#[derive(Clone, Debug)]
pub struct EncodedPicture {
    /// Tokens of the texts around the tiles, and rows of the tiles.
    tokens: Vec<u32>,
    rows: Vec<PictureRows>,
}

impl EncodedPicture {
    /// Encodes the tiles of a picture; `progress` gets the tiles done, and how many there are.
    ///
    /// # Errors
    /// The model was loaded without an encoder, or the device failed.
    pub fn new(
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        layout: &Layout,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self, Error> {
        let encoder = engine.require_encoder()?.clone();
        let (mut tokens, places) = tokens(layout, tokenizer, &encoder)?;
        let mut rows = Vec::with_capacity(places.len());
        for (tile, &at) in layout.tiles().zip(&places) {
            let tile = engine.encode(tile.grid(&encoder), &tile.patches(&encoder))?;
            put(&mut tokens, at, &tile);
            rows.push(tile);
            progress(rows.len(), places.len());
        }
        Ok(Self { tokens, rows })
    }

    /// Tokens that stand for it in a prompt, and ids of rows.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The rows of its tiles.
    pub fn rows(&self) -> &[PictureRows] {
        &self.rows
    }
}

/// A prompt with pictures whose tiles are encoded one by one, by whoever has the engine.
#[derive(Clone, Debug)]
pub struct PicturePrompt {
    tokens: Vec<u32>,
    /// The tiles that are left, and where their rows begin.
    tiles: VecDeque<(usize, Tile)>,
    rows: Vec<PictureRows>,
}

impl PicturePrompt {
    /// The prompt of a rendered conversation with pictures in its [places](PLACE), for a model with this
    /// encoder.
    ///
    /// # Errors
    /// There is another number of places than of pictures, or the text cannot be split.
    pub fn new(
        tokenizer: &Tokenizer,
        rendered: &str,
        layouts: &[Layout],
        encoder: &Encoder,
    ) -> Result<Self, Error> {
        let mut tiles = VecDeque::new();
        let tokens = insert(rendered, layouts.len(), rendered_piece(tokenizer), |i, tokens| {
            let (of_picture, places) = self::tokens(&layouts[i], tokenizer, encoder)?;
            let start = tokens.len();
            tiles.extend(places.iter().map(|at| start + at).zip(layouts[i].tiles().cloned()));
            tokens.extend(of_picture);
            Ok(())
        })?;
        Ok(Self { tokens, tiles, rows: Vec::new() })
    }

    /// Tokens, and rows of pictures that are among them.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Encodes the next tile, if one is left; whether there was one.
    ///
    /// # Errors
    /// The model was loaded without an encoder, or the device failed.
    pub fn encode_next(&mut self, engine: &mut Engine) -> Result<bool, EngineError> {
        let Some((at, tile)) = self.tiles.pop_front() else { return Ok(false) };
        let encoder = engine.require_encoder()?;
        let (grid, patches) = (tile.grid(encoder), tile.patches(encoder));
        let rows = engine.encode(grid, &patches)?;
        put(&mut self.tokens, at, &rows);
        self.rows.push(rows);
        Ok(true)
    }

    /// The tokens and ids of rows, when no tile is left; and the rows, which must live until they are in a
    /// context.
    pub fn into_parts(self) -> (Vec<u32>, Vec<PictureRows>) {
        (self.tokens, self.rows)
    }
}

/// The text with a [`PLACE`] in place of each [`MARKER`], of which there are as many as `pictures`; without
/// any, all places are before it.
///
/// # Errors
/// It has another number of markers.
pub fn placed(text: &str, pictures: usize) -> Result<String, PictureError> {
    match text.matches(MARKER).count() {
        0 => Ok(PLACE.repeat(pictures) + text),
        markers if markers == pictures => Ok(text.replace(MARKER, PLACE)),
        markers => Err(PictureError::Markers { markers, pictures }),
    }
}

/// The tokens of a text with pictures in its places, as [`TextModel::encode`](crate::text::TextModel::encode)
/// makes them of a text.
///
/// # Errors
/// It has another number of places, or cannot be split.
pub fn text(tokenizer: &Tokenizer, text: &str, pictures: &[EncodedPicture]) -> Result<Vec<u32>, Error> {
    let encode = |piece: &str, first| Ok(tokenizer.encode(piece, first, true).map_err(TextError::from)?);
    insert(text, pictures.len(), encode, put_encoded(pictures))
}

/// The tokens of a rendered conversation with pictures in its places, as
/// [`Tokenizer::encode_prompt`](crate::tokenizer::Tokenizer::encode_prompt) makes them of a text.
///
/// # Errors
/// As [`text`].
pub fn prompt(tokenizer: &Tokenizer, rendered: &str, pictures: &[EncodedPicture]) -> Result<Vec<u32>, Error> {
    insert(rendered, pictures.len(), rendered_piece(tokenizer), put_encoded(pictures))
}

/// Maker of tokens for the pieces of a rendered conversation, which may put BOS before the first one.
fn rendered_piece(tokenizer: &Tokenizer) -> impl FnMut(&str, bool) -> Result<Vec<u32>, Error> {
    |piece, first| {
        let tokens =
            if first { tokenizer.encode_prompt(piece) } else { tokenizer.encode(piece, false, true) };
        Ok(tokens.map_err(TextError::from)?)
    }
}

/// Function that appends picture number `i`.
fn put_encoded(pictures: &[EncodedPicture]) -> impl FnMut(usize, &mut Vec<u32>) -> Result<(), Error> {
    |i, tokens| {
        tokens.extend_from_slice(&pictures[i].tokens);
        Ok(())
    }
}

/// The tokens of a text with so many pictures in its places. `encode` makes tokens of each piece of the text,
/// and is told whether it is the first; `picture` appends the picture of a number.
fn insert(
    text: &str,
    pictures: usize,
    mut encode: impl FnMut(&str, bool) -> Result<Vec<u32>, Error>,
    mut picture: impl FnMut(usize, &mut Vec<u32>) -> Result<(), Error>,
) -> Result<Vec<u32>, Error> {
    let markers = text.matches(PLACE).count();
    if markers != pictures {
        return Err(PictureError::Markers { markers, pictures }.into());
    }
    let mut tokens = Vec::new();
    for (i, piece) in text.split(PLACE).enumerate() {
        if i == 0 || !piece.is_empty() {
            tokens.extend(encode(piece, i == 0)?);
        }
        if i < pictures {
            picture(i, &mut tokens)?;
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_take_the_places_of_their_markers() {
        let picture = |tokens: &[u32]| EncodedPicture { tokens: tokens.to_vec(), rows: Vec::new() };
        let pictures = [picture(&[100, 101]), picture(&[200])];
        let tokens = |text: &str, pictures: &[EncodedPicture]| {
            let text = placed(text, pictures.len())?;
            let encode = |text: &str, first: bool| {
                Ok(first.then_some(1).into_iter().chain(text.bytes().map(u32::from)).collect())
            };
            insert(&text, pictures.len(), encode, put_encoded(pictures))
        };
        assert_eq!(tokens("a<__media__><__media__>b", &pictures).unwrap(), [1, 97, 100, 101, 200, 98]);
        assert_eq!(tokens("<__media__>b", &pictures[..1]).unwrap(), [1, 100, 101, 98]);
        assert_eq!(tokens("b", &pictures).unwrap(), [1, 100, 101, 200, 98]);
        for markers in [1, 3] {
            let error = tokens(&MARKER.repeat(markers), &pictures).unwrap_err();
            assert_eq!(error.to_string(), PictureError::Markers { markers, pictures: 2 }.to_string());
        }
    }
}
