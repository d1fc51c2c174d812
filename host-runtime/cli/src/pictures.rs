//! Pictures on the command line: the encoder beside a model, and the files that are shown to it.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::CliError;
use super::hub::EncoderWish;
use super::input;
use super::progress::Progress;
use hexflash::engine::Engine;
use hexflash::gguf::Gguf;
use hexflash::model::{self, Encoder};
use hexflash::picture::{EncodedPicture, Layout, MARKER, PLACE, Picture, placed, prompt, text};
use hexflash::text::TextModel;

/// Most bytes of a file: pictures of the largest size that is read have fewer.
const MAX_BYTES: usize = 256 << 20;

/// The encoder beside a model.
#[derive(Debug, Clone, Args)]
pub(super) struct EncoderArgs {
    /// Encoder of pictures for the model (GGUF), as SmolVLM, LFM2-VL, Gemma 3 and Gemma 4 have one; without
    /// drafts of a draft model
    #[arg(long, alias = "mm", value_name = "FILE")]
    mmproj: Option<PathBuf>,
    /// Leave out the encoder of pictures that comes with a model of the Hub
    #[arg(long, conflicts_with = "mmproj")]
    no_mmproj: bool,
}

impl EncoderArgs {
    /// Whether one is named.
    pub(super) fn is_given(&self) -> bool {
        self.mmproj.is_some()
    }

    /// Opens it, if one is named, for a model: before there is a device, as it costs nothing.
    ///
    /// # Errors
    /// It is no GGUF file, no encoder, or another model's.
    pub(super) fn open_for(&self, model: &Gguf) -> Result<Option<Gguf>, CliError> {
        self.mmproj.as_deref().map(|path| open(path, model)).transpose()
    }

    /// The wish for the encoder that a model's repository has, unless the options name another or none.
    pub(super) fn allow(&self, wish: EncoderWish) -> EncoderWish {
        if self.no_mmproj || self.is_given() { EncoderWish::Never } else { wish }
    }
}

/// Opens the encoder of a file for a model.
///
/// # Errors
/// It is no GGUF file, no encoder that this version runs, or another model's.
pub(super) fn open(path: &Path, model: &Gguf) -> Result<Gguf, CliError> {
    let encoder = Gguf::open(path)?;
    Encoder::read(&encoder, &model::read(model)?)?;
    Ok(encoder)
}

/// The pictures of a prompt.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("sight").args(["mmproj", "hf_repo"]).multiple(true))]
pub(super) struct PictureArgs {
    /// Show a picture (PNG, JPEG, WebP, GIF or BMP) to the model, before the prompt or where that has
    /// <__media__>; may be given several times
    #[arg(
        long,
        value_name = "FILE",
        value_delimiter = ',',
        requires = "sight",
        conflicts_with = "prompt_ids"
    )]
    image: Vec<PathBuf>,
}

/// Pictures that were read, before there is a model.
pub(super) struct Shown {
    pictures: Vec<Picture>,
}

impl PictureArgs {
    /// The encoder that they need.
    pub(super) fn wish(&self) -> EncoderWish {
        if self.image.is_empty() { EncoderWish::Never } else { EncoderWish::Needed }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or is no picture.
    pub(super) fn read(&self) -> Result<Shown, CliError> {
        let pictures = self.image.iter().map(|path| read(path));
        Ok(Shown { pictures: pictures.collect::<Result<_, _>>()? })
    }
}

impl Shown {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.pictures.is_empty()
    }

    /// A text with places for them.
    ///
    /// # Errors
    /// It has another number of markers than there are pictures.
    pub(super) fn place(&self, text: String) -> Result<String, CliError> {
        if self.is_empty() {
            return Ok(text);
        }
        Ok(placed(&text, self.pictures.len()).map_err(hexflash::Error::from)?)
    }

    /// Encodes them, and makes tokens of a text that has places for them: of a rendered conversation if
    /// `is_chat`.
    ///
    /// # Errors
    /// A picture does not suit the encoder, or the device failed.
    pub(super) fn prompt(
        &self,
        engine: &mut Engine,
        model: &TextModel,
        written: &str,
        is_chat: bool,
    ) -> Result<Tokens, CliError> {
        let mut encoded = Vec::with_capacity(self.pictures.len());
        for picture in &self.pictures {
            let encoder = engine.encoder().ok_or(CliError::NoEncoder)?;
            let layout = Layout::new(picture, encoder).map_err(hexflash::Error::from)?;
            encoded.push(encode(&layout, engine, model)?);
        }
        let make = if is_chat { prompt } else { text };
        Ok(Tokens { tokens: make(&model.tokenizer, written, &encoded)?, _rows: encoded })
    }
}

/// The pictures of a conversation, in the order of their places.
#[derive(Default)]
pub(super) struct Gallery {
    all: Vec<EncodedPicture>,
    /// Number of them at the end that belong to the next message.
    waiting: usize,
}

impl Gallery {
    /// Encodes the picture of a file for the next message; its tokens and rows.
    ///
    /// # Errors
    /// There is no encoder, the file is no picture, or the device failed.
    pub(super) fn add(
        &mut self,
        path: &Path,
        engine: &mut Engine,
        model: &TextModel,
    ) -> Result<usize, CliError> {
        let failed = |reason: String| CliError::Picture { path: path.to_owned(), reason };
        let picture = read(path)?;
        let Some(encoder) = engine.encoder() else {
            return Err(failed(CliError::NoEncoder.to_string()));
        };
        let layout = Layout::new(&picture, encoder).map_err(|error| failed(error.to_string()))?;
        let encoded = encode(&layout, engine, model)?;
        let n = encoded.tokens().len();
        self.all.push(encoded);
        self.waiting += 1;
        Ok(n)
    }

    /// A message with places for the pictures that wait for it.
    pub(super) fn place(&mut self, text: String) -> String {
        PLACE.repeat(std::mem::take(&mut self.waiting)) + &text
    }

    /// The tokens of a rendered conversation. Pictures of messages that were taken back are forgotten.
    ///
    /// # Errors
    /// The text cannot be split.
    pub(super) fn prompt(&mut self, model: &TextModel, written: &str) -> Result<Vec<u32>, CliError> {
        self.all.truncate(written.matches(PLACE).count());
        Ok(prompt(&model.tokenizer, written, &self.all)?)
    }
}

/// The content of a message as it is written to files.
pub(super) fn spelled(content: &str) -> String {
    content.replace(PLACE, MARKER)
}

/// Reads the picture of a file.
fn read(path: &Path) -> Result<Picture, CliError> {
    let failed = |reason: String| CliError::Picture { path: path.to_owned(), reason };
    let bytes = input::read(path, MAX_BYTES).map_err(|error| failed(error.to_string()))?;
    Picture::decode(&bytes).map_err(|error| failed(error.to_string()))
}

/// Encodes a picture, with a bar for its tiles.
fn encode(layout: &Layout, engine: &mut Engine, model: &TextModel) -> Result<EncodedPicture, CliError> {
    let bar = Progress::count("encoding a picture", layout.tiles().count());
    let encoded = EncodedPicture::new(engine, &model.tokenizer, layout, |done, _| bar.at(done as u64));
    bar.finish();
    Ok(encoded?)
}

/// The tokens of a prompt, and the rows of pictures that it needs.
pub(super) struct Tokens {
    pub(super) tokens: Vec<u32>,
    _rows: Vec<EncodedPicture>,
}
