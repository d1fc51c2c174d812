//! What an engine cannot do.

use super::copy_error::CopyError;
use super::id::SequenceId;
use crate::cancel::Cancelled;
use crate::device::DeviceError;
use crate::model::ModelError;
use crate::record::RecordError;
use crate::setting::Setting;
use crate::weights::WeightError;

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model, or the draft model, cannot be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The weights cannot be loaded.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// The programs cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device failed, or refused a request.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Loading was interrupted, by [`ImageOptions::cancel`](crate::weights::ImageOptions::cancel).
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// A model whose tokens see later ones, where text is to be written.
    #[error(
        "models of architecture {arch} write no text, because their tokens see later ones; they give vectors, \
         with hexflash embed and hexflash serve --embeddings"
    )]
    WritesNoText {
        /// `general.architecture`.
        arch: String,
    },
    /// A draft model and an encoder of pictures for one model.
    #[error(
        "a draft model and pictures do not go together yet: leave out the draft{}, or the encoder{}",
        Setting::DraftModel.in_parentheses(),
        Setting::Encoder.in_parentheses()
    )]
    DraftsWithPictures,
    /// More rows of pictures than there are ids for.
    #[error("there were too many pictures since the model was loaded; load it again")]
    TooManyPictures,
    /// A prompt that has some rows of a picture whose rows see all others.
    #[error("a prompt has all rows of a picture, or none")]
    PartOfPicture,
    /// A prompt whose last row is a picture's, after which no token can be chosen.
    #[error("a prompt must end with text, and not with a picture")]
    PictureLast,
    /// A setting is out of range.
    #[error("{}{} must be {allowed}, not {found}", setting.words(), setting.in_parentheses())]
    Setting {
        /// The setting.
        setting: Setting,
        /// The values that are allowed.
        allowed: String,
        /// The value that was asked for.
        found: u64,
    },
    /// The model does not fit the device, over however many sessions.
    #[error(
        "the model does not fit this device: {sessions} sessions would have to map up to {needed} bytes \
         each, and can map {limit}; use a smaller context{} or a smaller quantization, see what would fit \
         with hexflash info, or try it with a number of sessions{}",
        Setting::Context.in_parentheses(),
        Setting::Sessions.in_parentheses()
    )]
    DoesNotFit {
        /// Most sessions.
        sessions: usize,
        /// Bytes that the fullest of them would need.
        needed: u64,
        /// Bytes that each can map.
        limit: u64,
    },
    /// There is no such program.
    #[error(
        "with these settings there is no program \"{name}\": there are {known}; the others need a draft model, \
         several sequences, or snapshots"
    )]
    NoProgram {
        /// The value that was asked for.
        name: String,
        /// The programs that there are.
        known: String,
    },
    /// The context is full.
    #[error(
        "{wanted} tokens do not fit the context of {n_ctx} with {n_past} in it; \
         shorten the prompt or raise the context{} (the model was trained for {n_ctx_train})",
        Setting::Context.with()
    )]
    ContextFull {
        /// Tokens to add.
        wanted: usize,
        /// Tokens in the context.
        n_past: u32,
        /// Positions of the context.
        n_ctx: u32,
        /// Positions of the training.
        n_ctx_train: u32,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {token} is outside the vocabulary of {n_vocab}; use ids of this model's tokenizer")]
    Token {
        /// The token id.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: u32,
    },
    /// More tokens would be kept than the last verification has.
    #[error(
        "{wanted} of {verified} verified tokens cannot be kept; this is a bug of the caller, and nothing \
         was changed"
    )]
    Commit {
        /// Tokens to keep.
        wanted: usize,
        /// Tokens that were verified and not decided about.
        verified: usize,
    },
    /// There is no such sequence.
    #[error("there is no {id}: the engine was loaded with room for {room}, and they count from 0")]
    NoSequence {
        /// The sequence.
        id: SequenceId,
        /// Sequences of the engine.
        room: usize,
    },
    /// A step has rows of a sequence in two places.
    #[error("{id} is named twice in a step; this is a bug of the caller, and nothing was changed")]
    Twice {
        /// The sequence.
        id: SequenceId,
    },
    /// A sequence cannot be rolled back to tokens that it does not have.
    #[error("a text of {n_past} tokens cannot be rolled back to {wanted}")]
    RollBack {
        /// Tokens that should stay.
        wanted: u32,
        /// Tokens in the context.
        n_past: u32,
    },
    /// The engine was loaded without what the call needs.
    #[error("this needs {what}, which the engine was loaded without")]
    Without {
        /// What the engine lacks.
        what: &'static str,
    },
    /// A step gave values that are infinite or no numbers.
    #[error(
        "a value that is infinite or not a number came up in {place}: the weights, or the memory that holds them, \
         are damaged; run it again, and if this comes back, delete the weight cache or download the model again"
    )]
    NotFinite {
        /// The op whose result was the first such, and its layer.
        place: String,
    },
    /// An earlier step failed half-way.
    #[error(
        "an earlier step failed half-way, so the context is lost; start again from the beginning of the text"
    )]
    Broken,
    /// A copy of a sequence cannot be made or used.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A step was asked for without tokens.
    #[error("there are no tokens to run; give a prompt of at least one token")]
    NoTokens,
}

impl EngineError {
    /// Whether this is a cancellation that the caller asked for, and not a failure.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled(_) | Self::Weights(WeightError::Cancelled(_)))
    }

    /// Whether the device itself failed: see [`DeviceError::is_loss`].
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_loss())
    }
}
