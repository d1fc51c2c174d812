//! The engine: a model on a device, and the sequences that it runs.

use hexflash_abi::registers::StepRegisters;
use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::IntoBytes;

use super::pending::PendingFeatures;
use super::pictures::{PictureRows, PictureStore};
use super::placed::PlacedDraft;
use super::snapshots::Snapshots;
use super::state::Texts;
use super::under_way::UnderWay;
use crate::device::Device;
use crate::gguf::Gguf;
use crate::model::{
    self, Decoder, DraftError, DraftModel, Encoder, KeptLayout, MAX_SHARED, MAX_VERIFY, ModelError,
    PatchGrid, Widths,
};
use crate::runtime::error::EngineError;
use crate::runtime::files::ModelFiles;
use crate::runtime::id::SequenceId;
use crate::runtime::kind::ProgramKind;
use crate::runtime::loaded::Runtime;
use crate::runtime::memory::MemoryPlan;
use crate::runtime::options::{EngineOptions, settle};
use crate::runtime::stats::StepStats;
use crate::setting::Setting;
use crate::weights::ImageOptions;

/// Most tokens of history for which memory is reserved when the engine is loaded; longer texts allocate more.
const RESERVED: u32 = 1 << 20;

/// A model on a device, with room for one or several sequences.
pub struct Engine {
    pub(super) runtime: Runtime,
    pub(super) texts: Texts,
    pub(super) snapshots: Snapshots,
    pub(super) pending: PendingFeatures,
    pub(super) rounds: UnderWay,
    pub(super) pictures: PictureStore,
    /// The draft model, where it has a device of its own.
    pub(super) placed: Option<Box<PlacedDraft>>,
    pub(super) step: SharedStep,
    /// Rows of the last step.
    pub(super) last_rows: usize,
}

/// Input of a step of several sequences: its memory is used again.
pub(super) struct SharedStep {
    pub(super) tokens: Vec<u32>,
    /// The rows whose logits it gives.
    pub(super) rows: Vec<u32>,
    /// The registers of each sequence.
    pub(super) table: Vec<StepRegisters>,
}

impl Engine {
    /// Loads a model onto a device.
    ///
    /// # Errors
    /// The model is not one that hexflash runs, a setting is out of range, or the device has no room.
    pub fn load(
        gguf: &Gguf,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        Self::load_files(ModelFiles::of(gguf), device, options, image)
    }

    /// Loads a model onto a device, with a draft model if there is one. That may be the same file once more:
    /// then the drafts are those of the head that the file [has](model::has_mtp_head).
    ///
    /// # Errors
    /// As [`load`](Self::load); the draft model cannot be run, or was made for another target;
    /// [`EngineError::Cancelled`].
    pub fn load_with(
        target: &Gguf,
        draft: Option<&Gguf>,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        Self::load_files(ModelFiles::of(target).with_draft(draft), device, options, image)
    }

    /// Loads a model onto a device, with a draft model or an encoder of pictures if there is one.
    ///
    /// # Errors
    /// As [`load_with`](Self::load_with); the encoder cannot be run, or was made for another model;
    /// [`EngineError::DraftsWithPictures`].
    pub fn load_files(
        files: ModelFiles<'_>,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        Ok(Self::new(Runtime::load(files, device, options, image)?, None))
    }

    /// Loads a model onto a device, and a draft model onto another one. A round is one message to each: the
    /// host hands the features of the accepted tokens over, and the drafts.
    ///
    /// # Errors
    /// As [`load_with`](Self::load_with), for both devices.
    pub fn load_placed(
        target: &Gguf,
        draft: &Gguf,
        [device, draft_device]: [Box<dyn Device>; 2],
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        let config = model::read(target)?;
        let model = model::read_draft(draft, &config)?;
        if model.reads_caches_from().is_some() {
            let error = DraftError::Apart;
            return Err(ModelError::Draft { path: draft.path().to_path_buf(), error }.into());
        }
        let (n_ctx, options) = settle(&config, Some(&*model), options)?;
        let options = EngineOptions {
            n_ctx: Some(n_ctx),
            speculate: true,
            probes: model.taps().to_vec(),
            probe_steps: true,
            ..options
        };
        let mut runtime = Runtime::load(ModelFiles::of(target), device, &options, image)?;
        // It has neither states of the target nor room to go back to them.
        let options = EngineOptions { snapshot_bytes: 0, ..options };
        let draft = Runtime::load_draft(target, draft, draft_device, &options, image)?;
        runtime.add_warnings(draft.warnings());
        Ok(Self::new(runtime, Some(Box::new(PlacedDraft::new(draft)))))
    }

    fn new(runtime: Runtime, placed: Option<Box<PlacedDraft>>) -> Self {
        let kept = runtime.kept();
        let widths = Widths::new(runtime.batch(), kept.n_slots);
        Self {
            texts: Texts::new(kept.n_slots, kept.n_ctx.min(RESERVED)),
            snapshots: Snapshots::new(kept.n_snapshots),
            pending: PendingFeatures::default(),
            rounds: UnderWay::default(),
            pictures: PictureStore::default(),
            placed,
            step: SharedStep {
                tokens: Vec::with_capacity(widths.max_tokens as usize),
                rows: Vec::with_capacity(widths.rows as usize),
                table: Vec::with_capacity(kept.n_slots as usize),
            },
            last_rows: 0,
            runtime,
        }
    }

    /// The target on its device, for tests.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The encoder of pictures, if the model was loaded with one.
    pub fn encoder(&self) -> Option<&Encoder> {
        Some(self.runtime.encoder()?.model())
    }

    /// The encoder of pictures.
    ///
    /// # Errors
    /// [`EngineError::Without`]: the model was loaded without one.
    pub fn require_encoder(&self) -> Result<&Encoder, EngineError> {
        self.encoder().ok_or(EngineError::Without { what: "an encoder of pictures (mmproj)" })
    }

    /// Makes rows of a tile of a picture, or finds those that it made of the same before. `patches` are F32
    /// `{patch values, patches}` in the order of [`PatchGrid::patches`].
    ///
    /// # Errors
    /// The model was loaded without an encoder, the tile has another size than the encoder takes, or the
    /// device failed.
    pub fn encode(&mut self, grid: PatchGrid, patches: &[f32]) -> Result<PictureRows, EngineError> {
        let encoder = self.require_encoder()?;
        let (merge, values) = (encoder.merge, encoder.patch_values() as usize);
        let n = u64::from(grid.width) * u64::from(grid.height);
        let whole = grid.width.is_multiple_of(merge) && grid.height.is_multiple_of(merge);
        let most = encoder.max_patches();
        let fits = (1..=u64::from(most)).contains(&n) && grid.width.max(grid.height) <= encoder.max_side();
        if !whole || !fits || patches.len() as u64 != n * values as u64 {
            let allowed = format!("at most {most}, {merge} by {merge} of them a row");
            return Err(EngineError::Setting { setting: Setting::Patches, allowed, found: n });
        }
        let rows = grid.len() / encoder.patches_per_row();
        let mut hasher = Xxh3Default::new();
        hasher.update([grid.width, grid.height].as_bytes());
        hasher.update(patches.as_bytes());
        let key = hasher.digest128();
        if let Some(known) = self.pictures.find(key) {
            return Ok(known);
        }
        self.displace_rounds()?;
        let encoded = match self.runtime.encode(grid, patches) {
            // Nothing of the tile was lost.
            Err(loss) if loss.is_loss() => {
                tracing::warn!("{loss}; starting it again");
                self.recover()?;
                self.runtime.encode(grid, patches)?
            }
            other => other?,
        };
        let texts = &self.texts;
        self.pictures.prune(|ids| texts.have(&ids));
        self.pictures.add(key, encoded, rows).ok_or(EngineError::TooManyPictures)
    }

    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Decoder {
        self.runtime.target()
    }

    /// The target or the placed draft: the one on whose device the draft model is.
    fn drafting_runtime(&self) -> &Runtime {
        self.placed.as_ref().map_or(&self.runtime, |placed| placed.runtime())
    }

    /// The draft model, if there is one.
    pub fn draft_model(&self) -> Option<&dyn DraftModel> {
        self.drafting_runtime().draft()
    }

    /// The draft model's device, if it has one of its own. Rounds are then steps that the host checks.
    pub fn draft_device(&self) -> Option<&dyn Device> {
        self.placed.as_ref().map(|placed| placed.runtime().device())
    }

    /// Where caches, states and tapes lie.
    pub fn kept(&self) -> &KeptLayout {
        self.runtime.kept()
    }

    /// Whether tokens can be verified and taken back.
    pub fn speculates(&self) -> bool {
        self.runtime.speculates()
    }

    /// The memory that the model takes.
    pub fn memory(&self) -> &MemoryPlan {
        self.runtime.memory()
    }

    /// Warnings of the loading, for users: a weight cache that was rebuilt or cannot be used.
    pub fn warnings(&self) -> &[String] {
        self.runtime.warnings()
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        self.runtime.device()
    }

    /// Number of positions of the context of each sequence.
    pub fn n_ctx(&self) -> u32 {
        self.runtime.n_ctx()
    }

    /// Tokens of the longest prefill step.
    pub(crate) fn batch(&self) -> u32 {
        self.runtime.batch()
    }

    /// The sequences.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = SequenceId> + use<> {
        SequenceId::first(self.texts.len())
    }

    /// The slot of a sequence.
    pub(super) fn slot(&self, id: SequenceId) -> Result<usize, EngineError> {
        let room = self.texts.len();
        Some(id.slot()).filter(|&slot| slot < room).ok_or(EngineError::NoSequence { id, room })
    }

    /// Rows of the widest step that sequences share.
    pub fn shared_rows(&self) -> usize {
        MAX_SHARED.min(self.n_ctx()) as usize
    }

    /// Rows of the last step.
    pub(crate) fn last_rows(&self) -> usize {
        self.last_rows
    }

    /// Snapshots that there is room for.
    pub fn snapshot_room(&self) -> usize {
        self.kept().n_snapshots as usize
    }

    /// Whether [`copy_out`](super::view::Sequence::copy_out) and [`copy_in`](super::view::Sequence::copy_in)
    /// work on this device.
    pub fn copies_sequences(&self) -> bool {
        self.runtime.copies_sequences()
    }

    /// What steps have cost since [`reset_stats`](Self::reset_stats).
    ///
    /// A draft model on another device counts as well, but that its messages are no steps.
    pub fn stats(&self) -> StepStats {
        match &self.placed {
            Some(placed) => self.runtime.stats().with(placed.runtime().stats()),
            None => *self.runtime.stats(),
        }
    }

    /// Sets the statistics to zero.
    pub fn reset_stats(&mut self) {
        self.runtime.reset_stats();
        if let Some(placed) = &mut self.placed {
            placed.runtime_mut().reset_stats();
        }
    }

    /// That tokens can be verified and taken back.
    pub(super) fn must_speculate(&self) -> Result<(), EngineError> {
        if self.speculates() { Ok(()) } else { Err(EngineError::Without { what: "speculation" }) }
    }

    /// The most tokens that can be drafted for a sequence now.
    pub(super) fn draft_room_of(&self, slot: usize) -> u32 {
        match self.draft_model() {
            Some(draft) if self.n_ctx() - self.texts[slot].n_past >= draft.block() => draft.block() - 1,
            _ => 0,
        }
    }

    /// Reads the vector of row `row` of the last step, into `n_embd` values, where steps give
    /// [vectors](EngineOptions::vectors).
    pub(crate) fn read_vector(&mut self, row: usize, values: &mut [f32]) {
        let rows = self.batch() as usize;
        self.runtime.read_tap(0, rows, row, values);
    }

    /// Reads the margins of the tokens that were drafted last, as many as `margins` has places for. A margin
    /// is how far the logit of a draft is above all others.
    pub fn read_margins(&mut self, margins: &mut [f32]) {
        match &mut self.placed {
            Some(placed) => placed.runtime_mut().read_margins(margins),
            None => self.runtime.read_margins(margins),
        }
    }

    /// Rounds of another sequence than the one whose turn it is now are read, and wait, and so does what is
    /// wrong with them.
    ///
    /// # Errors
    /// The device was lost.
    pub(crate) fn displace_rounds(&mut self) -> Result<(), EngineError> {
        self.rounds.displace(&mut self.runtime, &mut self.texts)
    }

    /// Hands the features that wait to the draft model, whichever sequence they belong to.
    pub(super) fn flush_pending(&mut self) -> Result<(), EngineError> {
        self.pending.flush(&mut self.runtime, &mut self.texts)
    }

    /// Runs `program` for one sequence with these registers, and waits for it. A failure leaves the sequence
    /// without its context.
    pub(super) fn exec(
        &mut self,
        program: ProgramKind,
        slot: usize,
        registers: StepRegisters,
    ) -> Result<(), EngineError> {
        self.texts.exec(&mut self.runtime, program, slot, registers)
    }

    /// The last step, of `program`, ran `tokens` of a sequence, of which it had the context before them, as
    /// rows from `first` on: keeps their features for a draft model on another device.
    pub(super) fn hand_features(
        &mut self,
        program: ProgramKind,
        slot: usize,
        first: usize,
        tokens: &[u32],
    ) -> Result<(), EngineError> {
        // The taps of all rows that the program has room for lie one after the other.
        let rows = match program {
            ProgramKind::Decode => 1,
            ProgramKind::Prefill => self.batch() as usize,
            ProgramKind::Shared => self.shared_rows(),
            ProgramKind::Verify => MAX_VERIFY.min(self.n_ctx()) as usize,
            // They run no tokens of the host, or there is an encoder and so no draft.
            ProgramKind::Encode
            | ProgramKind::Project
            | ProgramKind::Picture
            | ProgramKind::Round
            | ProgramKind::DraftBlock
            | ProgramKind::Inject
            | ProgramKind::Save
            | ProgramKind::Restore => return Ok(()),
        };
        let Some(placed) = &mut self.placed else { return Ok(()) };
        let runtime = &mut self.runtime;
        placed.keep(slot, self.texts[slot].n_past, tokens, |tap, row, values| {
            runtime.read_tap(tap, rows, first + row, values);
        })
    }
}
