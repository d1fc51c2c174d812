//! Stand-ins for the types of `pictures` in a program that is built without that feature.

use std::path::Path;

use clap::Args;

use super::CliError;
use super::hub::EncoderWish;
use hexflash::engine::Engine;
use hexflash::gguf::Gguf;
use hexflash::text::{TextError, TextModel};

/// Nothing.
#[derive(Debug, Clone, Args)]
pub(super) struct EncoderArgs {}

impl EncoderArgs {
    /// None is named.
    pub(super) fn is_given(&self) -> bool {
        false
    }

    /// There is none.
    ///
    /// # Errors
    /// None.
    pub(super) fn open_for(&self, _model: &Gguf) -> Result<Option<Gguf>, CliError> {
        Ok(None)
    }

    /// No wish is left.
    pub(super) fn allow(&self, _wish: EncoderWish) -> EncoderWish {
        EncoderWish::Never
    }
}

/// Never called: no [wish](EncoderArgs::allow) is left.
///
/// # Errors
/// There is no encoder.
pub(super) fn open(_path: &Path, _model: &Gguf) -> Result<Gguf, CliError> {
    Err(CliError::NoEncoder)
}

/// Nothing.
#[derive(Debug, Args)]
pub(super) struct PictureArgs {}

/// No pictures.
pub(super) struct Shown;

impl PictureArgs {
    /// None is needed.
    pub(super) fn wish(&self) -> EncoderWish {
        EncoderWish::Never
    }

    /// There are none.
    ///
    /// # Errors
    /// None.
    pub(super) fn read(&self) -> Result<Shown, CliError> {
        Ok(Shown)
    }
}

impl Shown {
    /// There are none.
    pub(super) fn is_empty(&self) -> bool {
        true
    }

    /// The text as it is.
    ///
    /// # Errors
    /// None.
    pub(super) fn place(&self, text: String) -> Result<String, CliError> {
        Ok(text)
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// The text cannot be split.
    pub(super) fn prompt(
        &self,
        _engine: &mut Engine,
        model: &TextModel,
        written: &str,
        _is_chat: bool,
    ) -> Result<Tokens, CliError> {
        Ok(Tokens { tokens: model.encode(written)? })
    }
}

/// No pictures.
#[derive(Default)]
pub(super) struct Gallery {}

impl Gallery {
    /// Refuses a picture.
    ///
    /// # Errors
    /// Always.
    pub(super) fn add(
        &mut self,
        path: &Path,
        _engine: &mut Engine,
        _model: &TextModel,
    ) -> Result<usize, CliError> {
        let reason = "this hexflash was built without pictures; build it with --features pictures".to_owned();
        Err(CliError::Picture { path: path.to_owned(), reason })
    }

    /// The text as it is.
    pub(super) fn place(&mut self, text: String) -> String {
        text
    }

    /// The tokens of a rendered conversation.
    ///
    /// # Errors
    /// The text cannot be split.
    pub(super) fn prompt(&mut self, model: &TextModel, written: &str) -> Result<Vec<u32>, CliError> {
        Ok(model.tokenizer.encode_prompt(written).map_err(TextError::from)?)
    }
}

/// The content of a message as it is.
pub(super) fn spelled(content: &str) -> String {
    content.to_owned()
}

/// The tokens of a prompt.
pub(super) struct Tokens {
    pub(super) tokens: Vec<u32>,
}
