//! Options of commands that write text: the model, who drafts, how tokens are chosen, and where it runs.

use super::CliError;
use super::hub::EncoderWish;
use super::options::{DeviceArgs, Drafter, EngineArgs, ModelArgs, PlacementArgs, SpecArgs};
use super::pictures::{self, EncoderArgs};
use super::sampling::SamplingArgs;
use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineError, EngineOptions, ModelFiles};
use hexflash::gguf::Gguf;
use hexflash::model;

#[derive(Debug, clap::Args)]
pub(super) struct WritingArgs {
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    pub(super) encoder: EncoderArgs,
    #[command(flatten)]
    pub(super) spec: SpecArgs,
    #[command(flatten)]
    pub(super) engine: EngineArgs,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    #[command(flatten)]
    pub(super) placement: PlacementArgs,
}

impl WritingArgs {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [!self.model.is_given(), self.spec.drafter.lacks_model()]
    }

    /// Opens the model's file, which may take a download, with `wish` of an encoder of pictures, too.
    ///
    /// # Errors
    /// There is none, it is damaged, or its architecture cannot be run: that is told before anybody reads the
    /// tokenizer, which differs where the architecture does, so that the cause is named and not its
    /// consequence.
    pub(super) fn open(&self, wish: EncoderWish, cancel: &Cancel) -> Result<Gguf, CliError> {
        let gguf = self.model.open_with(self.encoder.allow(wish), cancel)?;
        model::read(&gguf)?;
        Ok(gguf)
    }

    /// Drafters for the model. Beside an encoder of pictures no head of the model's own does, unless it is
    /// asked for.
    ///
    /// # Errors
    /// It is not there, or was made for something else.
    pub(super) fn drafter(&self, gguf: &Gguf) -> Result<Drafter, CliError> {
        if !self.encoder.is_given() || self.spec.drafter.is_chosen() {
            return self.spec.find(gguf);
        }
        if model::has_mtp_head(gguf) {
            tracing::warn!(
                "the model's own head drafts nothing, because drafts and pictures do not go together yet"
            );
        }
        Ok(Drafter::nobody())
    }

    /// Loads the model with its encoder of pictures, if it has one, and with who drafts for it. An encoder
    /// that came with the model is loaded as `wish` says, and beside a draft model only for a picture.
    ///
    /// # Errors
    /// A setting cannot be used, or the device has no room or fails.
    pub(super) fn load(
        &self,
        (gguf, wish): (&Gguf, EncoderWish),
        drafter: &Drafter,
        options: &EngineOptions,
        cancel: &Cancel,
    ) -> Result<Engine, CliError> {
        let places = (&self.device, &self.engine);
        let beside = || self.model.encoder().map(|path| pictures::open(&path, gguf)).transpose();
        let encoder = match self.encoder.allow(wish) {
            EncoderWish::Never => self.encoder.open_for(gguf)?,
            EncoderWish::WithDownload if drafter.draft.is_some() => None,
            EncoderWish::WithDownload => beside().unwrap_or_else(|error| {
                tracing::warn!("the model takes no pictures: {error}");
                None
            }),
            EncoderWish::Needed => beside()?,
        };
        if encoder.is_some() && drafter.draft.is_some() {
            return Err(EngineError::DraftsWithPictures.into());
        }
        let files = ModelFiles::of(gguf).with_draft(drafter.draft.as_ref()).with_encoder(encoder.as_ref());
        let engine = self.placement.load(places, files, options, cancel)?;
        if let Some(note) = self.spec.note(&engine) {
            tracing::warn!("{note}");
        }
        Ok(engine)
    }
}
