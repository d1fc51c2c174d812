//! The programs of a model, recorded, and the memory that they and their data take.

use super::kind::ProgramKind;
use super::layouts::{Holds, Layouts};
use super::memory::{MemoryPlan, SpeculationMemory};
use super::options::EngineOptions;
use crate::device::DeviceInfo;
use crate::model::{
    Decoder, Features, MAX_SHARED, Purpose, Recipes, Region, Rollback, Rows, StepInput, StepShape, Tapes,
};
use crate::record::{RecordError, Recorded};

/// A model's programs before they are loaded: enough for a memory plan without weights.
pub(super) struct RecordedPrograms {
    pub(super) recorded: Vec<(ProgramKind, Recorded)>,
    kept_bytes: u64,
}

impl RecordedPrograms {
    /// Records every program that there are recipes for, by number.
    pub(super) fn record(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
        holds: Holds,
    ) -> Result<Self, RecordError> {
        let recorded = match holds {
            Holds::Target => Self::of_target(recipes, options)?,
            Holds::Draft => Self::of_placed(recipes, options)?,
        };
        Ok(Self { recorded, kept_bytes: recipes.cx.kept.region_bytes(Region::Activations) })
    }

    /// The programs of a draft model on a device of its own.
    fn of_placed(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
    ) -> Result<Vec<(ProgramKind, Recorded)>, RecordError> {
        let Some(draft) = recipes.draft else { return Ok(Vec::new()) };
        Ok(vec![
            (ProgramKind::Round, recipes.placed_round(draft)?),
            (ProgramKind::DraftBlock, recipes.draft_block(draft)?),
            (ProgramKind::Inject, recipes.placed_inject(draft, options.batch)?),
        ])
    }

    /// The programs of a target, and of a draft model beside it.
    fn of_target(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
    ) -> Result<Vec<(ProgramKind, Recorded)>, RecordError> {
        if options.vectors {
            let vectors = recipes.vectors(options.batch, options.numerics)?;
            return Ok(vec![(ProgramKind::Prefill, vectors)]);
        }
        let of_steps = if options.probe_steps { &options.probes[..] } else { &[] };
        let all = |max_tokens, tapes, features| StepShape {
            input: StepInput::Tokens,
            max_tokens,
            rows: Rows::All,
            probes: of_steps.to_vec(),
            tapes,
            features,
            numerics: recipes.numerics,
        };
        let prefill = StepShape {
            input: StepInput::Tokens,
            max_tokens: options.batch,
            rows: Rows::One,
            probes: options.probes.clone(),
            tapes: Tapes::Unused,
            features: Features::Inject,
            numerics: options.numerics,
        };
        let mut recorded = vec![
            (ProgramKind::Decode, recipes.step(&all(1, Tapes::Fold, Features::Keep))?),
            (
                ProgramKind::Verify,
                recipes.step(&all(recipes.verify_tokens(), Tapes::Defer, Features::Inject))?,
            ),
            (ProgramKind::Prefill, recipes.step(&prefill)?),
        ];
        if let Some(draft) = recipes.draft {
            recorded.push((ProgramKind::Round, recipes.round(draft)?));
            recorded.push((ProgramKind::DraftBlock, recipes.draft_block(draft)?));
            recorded.push((ProgramKind::Inject, recipes.inject(draft)?));
        }
        if let Some(encoder) = recipes.encoder {
            recorded.push((ProgramKind::Encode, recipes.encode(encoder, options.numerics)?));
            recorded.push((ProgramKind::Project, recipes.project(encoder, options.numerics)?));
            // No picture has more rows than a context, which may be smaller than what the encoder can give.
            let max_tokens = options.batch.max(encoder.rows_at_once()).min(recipes.cx.kept.n_ctx);
            // Tokens that the last step may take back can come right before a picture.
            let picture = StepShape { input: StepInput::Picture, max_tokens, tapes: Tapes::Fold, ..prefill };
            recorded.push((ProgramKind::Picture, recipes.step(&picture)?));
        }
        let kept = recipes.cx.kept;
        if kept.n_slots > 1 {
            let shared = StepShape {
                rows: Rows::Listed,
                ..all(MAX_SHARED.min(kept.n_ctx), Tapes::Defer, Features::Inject)
            };
            recorded.push((ProgramKind::Shared, recipes.step(&shared)?));
        }
        if kept.n_snapshots > 0 {
            recorded.push((ProgramKind::Save, recipes.copy_states(false)?));
            recorded.push((ProgramKind::Restore, recipes.copy_states(true)?));
        }
        Ok(recorded)
    }

    /// Bytes of activations, kept tensors aside.
    fn activations(&self) -> u64 {
        self.recorded.iter().map(|(_, r)| r.activation_bytes).max().unwrap_or(0)
    }

    /// Offset of the kept tensors: behind the activations of every program that may run between a round and
    /// the step that commits its tokens. Prefill is not one of them and may overwrite kept tensors; where
    /// there is an encoder none are there.
    pub(super) fn kept_at(&self) -> u64 {
        let long = [ProgramKind::Prefill, ProgramKind::Encode, ProgramKind::Project, ProgramKind::Picture];
        let short = self.recorded.iter().filter(|(program, _)| !long.contains(program));
        short.map(|(_, r)| r.activation_bytes).max().unwrap_or(0)
    }

    /// Bytes that sessions hand over.
    pub(super) fn handed_bytes(&self) -> u64 {
        self.recorded.iter().map(|(_, r)| r.handed_bytes).max().unwrap_or(0)
    }

    /// Bytes of the activations' buffer of each session.
    pub(super) fn activation_bytes(&self) -> u64 {
        self.activations().max(self.kept_at() + self.kept_bytes)
    }

    pub(super) fn memory(
        &self,
        target: &Decoder,
        layouts: &Layouts,
        [weights, draft_weights, encoder_weights]: [u64; 3],
        device: &DeviceInfo,
    ) -> MemoryPlan {
        let Layouts { kept, io, split } = layouts;
        let unshared = self.recorded.iter().map(|(_, r)| r.activation_bytes_unshared);
        let speculation = match kept.rollback {
            Rollback::None => None,
            Rollback::LastStep => {
                let conv_rows = match kept.region_bytes(Region::Activations) {
                    0 => kept.bytes(Purpose::ConvRows),
                    _ => self.activation_bytes() - self.activations(),
                };
                Some(SpeculationMemory::new(target, kept, conv_rows, draft_weights))
            }
        };
        MemoryPlan {
            weights,
            kv: kept.bytes(Purpose::Kv),
            recurrent: kept.bytes(Purpose::Recurrent),
            snapshots: kept.bytes(Purpose::Snapshot),
            activations: self.activations(),
            activations_unshared: unshared.max().unwrap_or(0),
            handed_over: self.handed_bytes(),
            sessions: split.sessions() as u32,
            io: io.bytes,
            encoder: encoder_weights + kept.bytes(Purpose::Encoder),
            speculation,
            programs: self.recorded.iter().map(|(_, recorded)| recorded.block_bytes()).sum(),
            vtcm: device.vtcm_bytes.into(),
            n_ctx: kept.n_ctx,
            sequences: kept.n_slots,
        }
    }
}
