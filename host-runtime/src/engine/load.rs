//! Loading: weights, memory and programs onto a device.

use std::collections::HashMap;

use hexflash_abi::message::{Load, MatrixUnit, Range};
use hexflash_abi::program::{MAX_SLOTS, MAX_TOKENS, Numerics};
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, Fault};

use super::placed::PlacedDraft;
use super::programs::{Has, Layouts, RecordedPrograms, embedding_readers};
use super::sequence::SequenceState;
use super::snapshots::Snapshots;
use super::weights::{self, Image};
use super::{Engine, EngineError, EngineOptions, RESERVED, SessionProgram, Spec, StepStats, copies, rounds};
use crate::device::{Buffer, Device, SessionSet};
use crate::gguf::Gguf;
use crate::model::{self, Buffers, DRAFT_BLOCK, Decoder, DraftModel, Region, Rollback, Scope, Widths};
use crate::record::Homes;
use crate::setting::Setting;
use crate::weights::ImageOptions;

/// What is said where the matrix unit was wanted and cannot be trusted.
const NO_TRUST: &str = "the device's matrix unit (HMX) failed its test: products are computed without it";

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
        Self::load_with(gguf, None, device, options, image)
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
        Self::load_part(Has::Target, target, draft, device, options, image)
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
        let (n_ctx, options) = settle(&config, Some(&*model), options)?;
        let options = EngineOptions {
            n_ctx: Some(n_ctx),
            speculate: true,
            probes: model.taps().to_vec(),
            probe_steps: true,
            ..options
        };
        let mut engine = Self::load_part(Has::Target, target, None, device, &options, image)?;
        // It has neither states of the target nor room to go back to them.
        let options = EngineOptions { snapshot_bytes: 0, ..options };
        let draft = Self::load_part(Has::Draft, target, Some(draft), draft_device, &options, image)?;
        engine.warnings.extend_from_slice(&draft.warnings);
        engine.placed = Some(Box::new(PlacedDraft::new(draft)));
        Ok(engine)
    }

    /// Loads what a device [has](Has) of a pair.
    fn load_part(
        has: Has,
        target: &Gguf,
        draft: Option<&Gguf>,
        mut device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        image.cancel.check()?;
        let config = model::read(target)?;
        let draft_gguf = draft;
        let draft = draft_gguf.map(|gguf| model::read_draft(gguf, &config)).transpose()?;
        let (n_ctx, mut options) = settle(&config, draft.as_deref(), options)?;
        let (mut weights, mut warnings) = (Vec::new(), Vec::new());
        if options.numerics.wants_matrix_unit() && device.info().matrix_unit == MatrixUnit::Failed {
            options.numerics = Numerics::Exact;
            warnings.push(NO_TRUST.to_owned());
        }
        let options = &options;
        let embedding = embedding_readers(&config, draft.as_deref());
        let (plan, part) = match has {
            Has::Target => (config.weights(target)?, None),
            Has::Draft => (config.shared_weights(target)?, Some("shared")),
        };
        let own = Image::load(target, plan, &ImageOptions { part, ..image.clone() }, &*device)?;
        let split = own.split(&config, embedding, device.info().sessions)?;
        warnings.extend_from_slice(own.warnings());
        let mut weight_bytes = (own.bytes(), 0);
        let constants = own.constants();
        let readers = weights::readers(&constants, &split, embedding);
        let mut map = own.map(&mut *device, readers, &mut weights)?;
        if let Some((gguf, draft)) = draft_gguf.zip(draft.as_deref()) {
            // A head in the target's own file: each of the two images has a cache of its own.
            let part = Some("mtp").filter(|_| gguf.path() == target.path());
            let image = &ImageOptions { part, ..image.clone() };
            let more = Image::load(gguf, draft.weights(gguf)?, image, &*device)?;
            warnings.extend_from_slice(more.warnings());
            weight_bytes.1 = more.bytes();
            let last = SessionSet::one(split.last());
            map = map.with(more.map(&mut *device, |_| last, &mut weights)?);
        }

        let layouts = Layouts::new(&config, draft.as_deref(), n_ctx, options, split, has)?;
        let n_slots = layouts.kept.n_slots;
        let parts = layouts.kept.part_bytes().enumerate();
        // Where a draft model is alone there may be no state, and nothing cannot be mapped.
        let state = parts.map(|(n, bytes)| device.allocate_in(SessionSet::one(n), bytes.max(1)));
        let state = state.collect::<Result<Vec<_>, _>>()?;
        let io = device.allocate(layouts.io.bytes)?;
        let spec = Some(layouts.kept.region_bytes(Region::Speculation)).filter(|&bytes| bytes > 0);
        let spec = spec.map(|bytes| device.allocate(bytes)).transpose()?;
        let spec_id = spec.as_ref().map_or(BufferId(u32::MAX), |spec| spec.id);
        let state_id = |n: usize| state.get(n).map_or(BufferId(u32::MAX), |part| part.id);
        let ids = Buffers { state: std::array::from_fn(state_id), io: io.id, spec: spec_id };
        let recipes = layouts.recipes(&config, &map, draft.as_deref(), ids, options.numerics);
        let programs = RecordedPrograms::record(&recipes, options, has)?;
        let sessions = 0..layouts.split.sessions();
        let activations =
            sessions.map(|n| device.allocate_in(SessionSet::one(n), programs.activation_bytes()));
        let activations = activations.collect::<Result<Vec<_>, _>>()?;
        let handed = Some(programs.handed_bytes()).filter(|&bytes| bytes > 0);
        let handed = handed.map(|bytes| device.allocate(bytes)).transpose()?;

        let memory = programs.memory(&config, &layouts, weight_bytes, device.info());
        let info = |buffer: &Buffer, read_only| {
            (buffer.id, BufferInfo { size: buffer.memory.len() as u64, read_only })
        };
        let read = weights.iter().map(|weights| info(&weights.buffer, true));
        let written = state.iter().chain(&activations).chain([&io]).chain(&handed).chain(&spec);
        let sizes: HashMap<_, _> = read.chain(written.map(|buffer| info(buffer, false))).collect();
        let sizes = |id: BufferId| sizes.get(&id).copied();
        let spec = match layouts.kept.rollback {
            Rollback::None => None,
            Rollback::LastStep => {
                let block = draft.as_ref().map(|_| layouts.kept.place(&Scope::DRAFT.label(DRAFT_BLOCK)));
                // Behind the anchor.
                let drafts_at = block.map_or(0, |block| block.offset as usize + 4);
                let rounds = rounds::State::default();
                let spec = Spec { draft, buffer: spec, drafts_at, pending: None, rounds };
                spec.write_tables(&layouts.kept);
                Some(spec)
            }
        };
        let mut stages = Vec::with_capacity(programs.recorded.len());
        for (program, recorded) in &programs.recorded {
            for session in (0..activations.len()).filter(|&session| recorded.runs_in(session)) {
                let activations = activations[session].id;
                let handed = handed.as_ref().map_or(BufferId(u32::MAX), |handed| handed.id);
                let homes = Homes { activations, kept_at: programs.kept_at(), handed };
                let bytes = recorded.block(session, &homes, sizes)?;
                let sites = recorded.sites(session).to_vec();
                let stage = SessionProgram { session, program: program.id(), bytes, sites };
                image.cancel.check()?;
                stage.load(&mut *device)?;
                stages.push(stage);
            }
        }
        tracing::info!(?memory, "model loaded");
        let widths = Widths::new(options.batch, n_slots);
        Ok(Self {
            identity: copies::identity(target, draft_gguf).map_err(model::ModelError::from)?,
            logits: vec![0.0; config.n_vocab as usize],
            tokens: Vec::with_capacity(widths.max_tokens as usize),
            rows: Vec::with_capacity(widths.rows as usize),
            table: Vec::with_capacity(n_slots as usize),
            batch: options.batch,
            plan: memory,
            warnings,
            io,
            layout: layouts.io,
            state,
            snapshots: Snapshots::new(layouts.kept.n_snapshots),
            sequences: (0..n_slots).map(|_| SequenceState::new(n_ctx.min(RESERVED))).collect(),
            kept: layouts.kept,
            spec,
            device,
            config,
            stats: StepStats::default(),
            steps: 0,
            weights,
            activations,
            handed,
            stages,
            placed: None,
        })
    }
}

/// The context length, and the options, as far as model and draft allow them.
pub(super) fn settle(
    target: &Decoder,
    draft: Option<&dyn DraftModel>,
    options: &EngineOptions,
) -> Result<(u32, EngineOptions), EngineError> {
    let trained = target.n_ctx_train;
    let n_ctx = options.context(trained);
    let n_slots = options.sequences;
    if !(1..=MAX_SLOTS).contains(&n_slots) {
        let allowed = format!("1 to {MAX_SLOTS}");
        return Err(EngineError::Setting { setting: Setting::Sequences, allowed, found: n_slots.into() });
    }
    let caches = options.caches;
    let longest = target.longest_context(caches, n_slots);
    let longest = longest.min(draft.map_or(u32::MAX, |draft| draft.longest_context(caches, n_slots)));
    let block = draft.map_or(1, |draft| draft.block());
    let allowed = if n_ctx > trained {
        format!("1 to {trained}, which the model was trained for")
    } else if n_ctx > longest {
        format!("1 to {longest}, as far as programs can address its caches")
    } else if n_ctx < block {
        format!("at least {block}, a block of the draft")
    } else {
        let options = EngineOptions { batch: batch(options.batch, n_ctx)?, ..options.clone() };
        return Ok((n_ctx, options));
    };
    Err(EngineError::Setting { setting: Setting::Context, allowed, found: n_ctx.into() })
}

fn batch(asked: u32, n_ctx: u32) -> Result<u32, EngineError> {
    if !(1..=MAX_TOKENS).contains(&asked) {
        let allowed = format!("1 to {MAX_TOKENS}");
        return Err(EngineError::Setting { setting: Setting::Batch, allowed, found: asked.into() });
    }
    Ok(asked.min(n_ctx))
}

impl SessionProgram {
    /// Loads it; the block is only needed in shared memory until the device has its own copy.
    pub(super) fn load(&self, device: &mut dyn Device) -> Result<(), EngineError> {
        let buffer = device.allocate_in(SessionSet::one(self.session), self.bytes.len() as u64)?;
        buffer.memory.write(0, &self.bytes);
        let block = Range { buffer: buffer.id, len: self.bytes.len() as u32, offset: 0 };
        let loaded = device.load_in(self.session, &Load { program: self.program, reserved: 0, block });
        device.free(buffer)?;
        device.name_ops(self.session, self.program, &self.sites);
        let named = |fault: &Fault| Some(self.sites.get(fault.op.0 as usize)?.explain(fault));
        loaded.map_err(|error| error.explained(named).into())
    }
}
