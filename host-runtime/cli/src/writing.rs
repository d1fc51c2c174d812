//! Options of commands that write text: the model, who drafts, how tokens are chosen, and where it runs.

use super::CliError;
use super::options::{DeviceArgs, Drafter, EngineArgs, ModelArgs, PlacementArgs, SpecArgs};
use super::sampling::SamplingArgs;
use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::gguf::Gguf;
use hexflash::model;

#[derive(Debug, clap::Args)]
pub(super) struct WritingArgs {
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) model: ModelArgs,
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

    /// Opens the model's file, which may take a download.
    ///
    /// # Errors
    /// There is none, it is damaged, or its architecture cannot be run: that is told before anybody reads the
    /// tokenizer, which differs where the architecture does, so that the cause is named and not its
    /// consequence.
    pub(super) fn open(&self, cancel: &Cancel) -> Result<Gguf, CliError> {
        let gguf = self.model.open(cancel)?;
        model::read(&gguf)?;
        Ok(gguf)
    }

    /// Loads the model with who drafts for it.
    ///
    /// # Errors
    /// A setting cannot be used, or the device has no room or fails.
    pub(super) fn load(
        &self,
        gguf: &Gguf,
        drafter: &Drafter,
        options: &EngineOptions,
        cancel: &Cancel,
    ) -> Result<Engine, CliError> {
        let places = (&self.device, &self.engine);
        let engine = self.placement.load(places, gguf, drafter.draft.as_ref(), options, cancel)?;
        if let Some(note) = self.spec.note(&engine) {
            tracing::warn!("{note}");
        }
        Ok(engine)
    }
}
