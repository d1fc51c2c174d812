//! The engine: a model on a device, fed with tokens, giving logits.
//!
//! Loading records and loads one program per shape; a step writes token ids and registers into shared memory
//! and sends one `Exec`. Nothing is allocated, rebuilt or re-sent per step.
//!
//! With speculation (see [`rounds`](self)) the recurrent states may lag behind the context by the tokens that
//! the last verification kept: `n_commit` of the next step folds them. All that a step needs to know is in
//! its registers.

mod error;
mod programs;
mod recovery;
mod rounds;
mod weights;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hexflash_abi::message::{Exec, Load, Message, MessageKind, Range, Response};
use hexflash_abi::program::{MAX_TOKENS, PARTS};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, ErrorCode, Fault, ProgramId, Seq};
use zerocopy::IntoBytes;

use crate::device::{Buffer, Device, DeviceError, SessionSet};
use crate::gguf::Gguf;
use crate::model::{
    self, Buffers, DRAFT_BLOCK, DRAFT_PREFIX, Decoder, Draft, IoLayout, KeptLayout, MAX_VERIFY, Region,
    Rollback, Scope,
};
use crate::record::{Homes, Site};
use crate::setting::Setting;
use crate::weights::ImageOptions;
use weights::{Image, Weights};

pub use error::EngineError;
use programs::{Layouts, Program, Programs, embedding_readers};
pub use programs::{MemoryPlan, SpeculationMemory, list_program, plan, program_names};
pub use rounds::{Block, IdleRounds, RoundLimits, RoundReport, Rounds};

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Positions of the caches: `None` for the model's context length but at most 4096, 0 for the model's
    /// context length.
    pub n_ctx: Option<u32>,
    /// Tokens of a prefill step.
    pub batch: u32,
    /// Layers whose input is kept for tests (see [`Shape::taps`](crate::model::Shape::taps)).
    #[doc(hidden)]
    pub taps: Vec<u32>,
    /// Whether to make room to take tokens back, for drafters without a model. A draft model implies it.
    pub speculate: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { n_ctx: None, batch: 256, taps: Vec::new(), speculate: false }
    }
}

/// Context length when the user names none: a quarter of a million positions of cache is not a sensible
/// default.
const DEFAULT_CTX: u32 = 4096;

/// Most tokens of history for which memory is reserved when the engine is loaded; longer texts allocate more.
const RESERVED: u32 = 1 << 20;

/// What steps cost the host and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStats {
    /// Steps since the last reset of the statistics.
    pub steps: u64,
    /// Messages sent for these steps.
    pub messages: u64,
    /// Host time for packing, submitting and reading; waiting excluded.
    pub host: Duration,
    /// Bytes that the device's DMA engines moved.
    pub dma_bytes: u64,
    /// Bytes that the host wrote into and read from shared memory.
    pub host_bytes: u64,
    /// What each [`Part`](crate::model::Part) cost the device, in its [`CostUnit`](crate::device::CostUnit).
    pub parts: [u64; PARTS],
}

/// A model on a device.
pub struct Engine {
    device: Box<dyn Device>,
    pub(crate) config: Decoder,
    plan: MemoryPlan,
    warnings: Vec<String>,
    pub(crate) io: Buffer,
    pub(crate) layout: IoLayout,
    kept: KeptLayout,
    /// Each session's part.
    pub(crate) state: Vec<Buffer>,
    spec: Option<Spec>,
    pub(crate) batch: u32,
    n_past: u32,
    /// Tokens of the context that are on the tape and not in the recurrent states.
    n_commit: u32,
    /// Tokens of the last verification, until a commit says how many of them stay.
    verified: u32,
    /// Whether a step has failed before its end, so that the contents of states and caches are unknown.
    broken: bool,
    /// Rows of logits of the last step.
    rows: usize,
    logits: Vec<f32>,
    tokens: Vec<i32>,
    stats: StepStats,
    /// What of the images' memory is mapped on the device.
    weights: Vec<Weights>,
    /// Each session's.
    activations: Vec<Buffer>,
    /// What sessions hand over, if there are several.
    handed: Option<Buffer>,
    stages: Vec<Stage>,
    /// The tokens of the context, `n_past` of them.
    history: Vec<u32>,
}

/// What a session runs of a program.
struct Stage {
    session: usize,
    program: ProgramId,
    bytes: Vec<u8>,
    /// The op and the weight behind each op number, for messages.
    sites: Vec<Site>,
}

/// What speculation adds to an engine.
struct Spec {
    draft: Option<Box<dyn Draft>>,
    /// What it keeps beside states and caches; a dense target without a draft keeps nothing.
    buffer: Option<Buffer>,
    /// Where in it the tokens are that the draft guessed last.
    drafts_at: usize,
    /// Tokens whose features wait for the draft, the last of the context.
    pending: u32,
    rounds: rounds::State,
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
        Self::load_with(gguf, None, device, options, image)
    }

    /// Loads a model onto a device, with a draft model if there is one.
    ///
    /// # Errors
    /// As [`load`](Self::load); the draft model cannot be run, or was made for another target;
    /// [`EngineError::Cancelled`].
    pub fn load_with(
        gguf: &Gguf,
        draft: Option<&Gguf>,
        mut device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        image.cancel.check()?;
        let config = model::read(gguf)?;
        let draft_gguf = draft;
        let draft = draft_gguf.map(|gguf| model::read_draft(gguf, &config)).transpose()?;
        let (n_ctx, options) = &settle(&config, draft.as_deref(), options)?;
        let n_ctx = *n_ctx;
        let (mut weights, mut warnings) = (Vec::new(), Vec::new());
        let embedding = embedding_readers(&config, draft.as_deref());
        let own = Image::load(gguf, config.weights(gguf)?, image, &*device)?;
        let split = own.split(&config, embedding, device.info().sessions)?;
        warnings.extend_from_slice(own.warnings());
        let mut weight_bytes = (own.bytes(), 0);
        let constants = own.constants();
        let readers = |label: &str| match constants.contains(label) {
            true => SessionSet::all(split.sessions()),
            false => split.readers(label, embedding),
        };
        let mut map = own.map(&mut *device, readers, &mut weights)?;
        if let Some((gguf, draft)) = draft_gguf.zip(draft.as_deref()) {
            let more = Image::load(gguf, draft.weights(gguf)?, image, &*device)?;
            warnings.extend_from_slice(more.warnings());
            weight_bytes.1 = more.bytes();
            let last = SessionSet::one(split.last());
            map = map.with(more.map(&mut *device, |_| last, &mut weights)?);
        }

        let layouts = Layouts::new(&config, draft.as_deref(), n_ctx, options, split)?;
        let parts = layouts.kept.part_bytes().enumerate();
        let state = parts.map(|(n, bytes)| device.allocate_in(SessionSet::one(n), bytes));
        let state = state.collect::<Result<Vec<_>, _>>()?;
        let io = device.allocate(layouts.io.bytes)?;
        let spec = Some(layouts.kept.region_bytes(Region::Speculation)).filter(|&bytes| bytes > 0);
        let spec = spec.map(|bytes| device.allocate(bytes)).transpose()?;
        let spec_id = spec.as_ref().map_or(BufferId(u32::MAX), |spec| spec.id);
        let state_id = |n: usize| state.get(n).map_or(BufferId(u32::MAX), |part| part.id);
        let ids = Buffers { state: std::array::from_fn(state_id), io: io.id, spec: spec_id };
        let programs = Programs::record(&layouts.recipes(&config, &map, draft.as_deref(), ids), options)?;
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
                let spec = Spec { draft, buffer: spec, drafts_at, pending: 0, rounds };
                spec.write_tables(&layouts.kept);
                Some(spec)
            }
        };
        let mut stages = Vec::with_capacity(programs.recorded.len());
        for (id, recorded) in programs.recorded.iter().enumerate() {
            for session in (0..activations.len()).filter(|&session| recorded.runs_in(session)) {
                let activations = activations[session].id;
                let handed = handed.as_ref().map_or(BufferId(u32::MAX), |handed| handed.id);
                let homes = Homes { activations, kept_at: programs.kept_at(), handed };
                let bytes = recorded.block(session, &homes, sizes)?;
                let sites = recorded.sites(session).to_vec();
                let stage = Stage { session, program: ProgramId(id as u32), bytes, sites };
                image.cancel.check()?;
                stage.load(&mut *device)?;
                stages.push(stage);
            }
        }
        tracing::info!(?memory, "model loaded");
        Ok(Self {
            logits: vec![0.0; config.n_vocab as usize],
            tokens: Vec::with_capacity(options.batch.max(MAX_VERIFY) as usize),
            batch: options.batch,
            plan: memory,
            warnings,
            io,
            layout: layouts.io,
            state,
            kept: layouts.kept,
            spec,
            device,
            config,
            n_past: 0,
            n_commit: 0,
            verified: 0,
            broken: false,
            rows: 0,
            stats: StepStats::default(),
            weights,
            activations,
            handed,
            stages,
            history: Vec::with_capacity(n_ctx.min(RESERVED) as usize),
        })
    }

    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Decoder {
        &self.config
    }

    /// The draft model, if there is one.
    pub fn draft_model(&self) -> Option<&dyn Draft> {
        self.spec.as_ref()?.draft.as_deref()
    }

    /// Where caches, states and tapes lie.
    pub fn kept(&self) -> &KeptLayout {
        &self.kept
    }

    /// Whether tokens can be verified and taken back.
    pub fn speculates(&self) -> bool {
        self.spec.is_some()
    }

    /// The memory that the model takes.
    pub fn memory(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Warnings of the loading, for users: a weight cache that was rebuilt or cannot be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Number of positions of the context.
    pub fn n_ctx(&self) -> u32 {
        self.kept.n_ctx
    }

    /// Number of tokens in the context.
    pub fn n_past(&self) -> u32 {
        self.n_past
    }

    /// The tokens of the context, [`n_past`](Self::n_past) of them.
    pub fn history(&self) -> &[u32] {
        &self.history
    }

    /// What steps have cost since [`reset_stats`](Self::reset_stats).
    pub fn stats(&self) -> StepStats {
        self.stats
    }

    /// Sets the statistics to zero.
    pub fn reset_stats(&mut self) {
        self.stats = StepStats::default();
    }

    /// Forgets all tokens. Nothing is cleared: states are taken as zero at position 0.
    pub fn reset(&mut self) {
        // Their context is forgotten, and so is what went wrong with them.
        if let Err(error) = self.end_rounds() {
            tracing::debug!("while rounds were ended: {error}");
        }
        (self.n_past, self.n_commit, self.verified, self.rows, self.broken) = (0, 0, 0, 0, false);
        self.history.clear();
        if let Some(spec) = &mut self.spec {
            spec.pending = 0;
        }
    }

    /// Runs a prompt, a batch at a time; afterwards row 0 has the logits after its last token. `progress`
    /// gets the tokens done.
    ///
    /// # Errors
    /// The context is too small, a token is not in the vocabulary, or the device failed.
    pub fn prefill(&mut self, tokens: &[u32], mut progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.admit(tokens)?;
        let mut done = 0;
        while done < tokens.len() {
            done += self.prefill_piece(&tokens[done..])?;
            progress(done);
        }
        Ok(())
    }

    /// Runs as many tokens of a prompt as one step takes, at most a batch, and gives how many they were;
    /// afterwards row 0 has the logits after the last of them. The rest, or another prompt, can follow at any
    /// time.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), for the tokens of this step.
    pub fn prefill_piece(&mut self, tokens: &[u32]) -> Result<usize, EngineError> {
        self.end_rounds()?;
        if self.n_commit > 0 {
            // Prefill needs the memory of what is still to be committed: a plain step does that.
            let one = tokens.first().ok_or(EngineError::NoTokens)?;
            return self.decode(*one).map(|()| 1);
        }
        let piece = &tokens[..tokens.len().min(self.batch as usize)];
        self.admit(piece)?;
        self.catch_up()?;
        self.step(Program::Prefill, piece)?;
        self.advance(piece);
        self.rows = 1;
        Ok(piece.len())
    }

    /// Runs one token; afterwards row 0 has the logits after it.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: u32) -> Result<(), EngineError> {
        self.admit(&[token])?;
        if self.spec.as_ref().is_some_and(|spec| spec.pending == crate::model::MAX_PENDING) {
            self.catch_up()?;
        }
        self.step(Program::Decode, &[token])?;
        self.advance(&[token]);
        if let Some(spec) = self.spec.as_mut().filter(|spec| spec.draft.is_some()) {
            spec.pending += 1;
        }
        self.rows = 1;
        Ok(())
    }

    /// Runs up to [`MAX_VERIFY`] tokens; afterwards row i has the logits after token i.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill); there are too many tokens.
    pub fn decode_many(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.wide_step(tokens)?;
        let n = tokens.len() as u32;
        if self.spec.is_some() {
            self.verified = n;
            return self.commit(n);
        }
        self.advance(tokens);
        Ok(())
    }

    /// Runs tokens as [`decode_many`](Self::decode_many) does, but none of them becomes part of the context
    /// until [`commit`](Self::commit) says how many do. Any other step before that takes all of them back.
    ///
    /// # Errors
    /// As [`decode_many`](Self::decode_many); the engine was loaded without speculation.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.spec()?;
        self.wide_step(tokens)?;
        self.verified = tokens.len() as u32;
        Ok(())
    }

    /// Keeps the first `n` tokens of the last [`verify`](Self::verify) and takes the others back. The next
    /// step folds the kept tokens into the recurrent states.
    ///
    /// # Errors
    /// [`EngineError::Commit`] if fewer tokens were verified; nothing has changed then.
    pub fn commit(&mut self, n: u32) -> Result<(), EngineError> {
        if n > self.verified {
            return Err(EngineError::Commit { wanted: n as usize, verified: self.verified as usize });
        }
        self.verified = 0;
        self.n_past += n;
        self.n_commit = n;
        // The last step was the verification.
        self.history.extend(self.tokens[..n as usize].iter().map(|&token| token as u32));
        Ok(())
    }

    fn wide_step(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        if tokens.len() > MAX_VERIFY as usize {
            let allowed = format!("at most {MAX_VERIFY}");
            let found = tokens.len() as u64;
            return Err(EngineError::Setting { setting: Setting::StepWidth, allowed, found });
        }
        self.admit(tokens)?;
        self.catch_up()?;
        self.step(Program::Verify, tokens)?;
        self.n_commit = 0;
        self.rows = tokens.len();
        Ok(())
    }

    /// All tokens of a step are in the states.
    fn advance(&mut self, tokens: &[u32]) {
        (self.n_past, self.n_commit) = (self.n_past + tokens.len() as u32, 0);
        self.history.extend(tokens);
    }

    /// That `tokens` can be run next. Rounds end here.
    pub(crate) fn admit(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.usable()?;
        self.end_rounds()?;
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        let n_vocab = self.config.n_vocab;
        if let Some(&token) = tokens.iter().find(|&&t| t >= n_vocab) {
            return Err(EngineError::Token { token, n_vocab });
        }
        let n_ctx = self.n_ctx();
        if tokens.len() > (n_ctx - self.n_past) as usize {
            let (wanted, n_past) = (tokens.len(), self.n_past);
            let n_ctx_train = self.config.n_ctx_train;
            return Err(EngineError::ContextFull { wanted, n_past, n_ctx, n_ctx_train });
        }
        self.verified = 0;
        Ok(())
    }

    fn usable(&self) -> Result<(), EngineError> {
        if self.broken { Err(EngineError::Broken) } else { Ok(()) }
    }

    /// One message: token ids and registers into shared memory, `Exec`, response.
    fn step(&mut self, program: Program, tokens: &[u32]) -> Result<(), EngineError> {
        let start = Instant::now();
        self.tokens.clear();
        // Ids are below n_vocab, which is below 2^20.
        self.tokens.extend(tokens.iter().map(|&t| t as i32));
        let (ids, at) = (self.tokens.as_bytes(), &self.layout);
        self.stats.host_bytes += ids.len() as u64;
        self.io.memory.write(at.tokens as usize, ids);
        let row = match program {
            Program::Prefill => Some(tokens.len() as u32 - 1),
            Program::Decode => self.spec.as_ref().map(|spec| spec.pending),
            _ => None,
        };
        if let Some(row) = row {
            self.stats.host_bytes += 4;
            self.io.memory.write(at.row as usize, row.as_bytes());
        }
        let registers = StepRegisters::step(self.n_past, tokens.len() as u32);
        self.stats.host += start.elapsed();
        self.exec(program, registers.with(Register::NCommit, self.n_commit))
    }

    /// Writes the registers, sends `program` and waits for it.
    fn exec(&mut self, program: Program, registers: StepRegisters) -> Result<(), EngineError> {
        let start = Instant::now();
        self.write_registers(&registers);
        let seq = self.submit(program)?;
        self.stats.host += start.elapsed();
        self.finish(program, seq)?;
        Ok(())
    }

    fn write_registers(&mut self, registers: &StepRegisters) {
        self.io.memory.write(IoLayout::REGISTERS as usize, registers.as_bytes());
        self.stats.host_bytes += size_of::<StepRegisters>() as u64;
    }

    /// Sends `program` with the registers as they are in shared memory when it is its turn.
    fn submit(&mut self, program: Program) -> Result<Seq, EngineError> {
        let range =
            Range { buffer: self.io.id, len: size_of::<StepRegisters>() as u32, offset: IoLayout::REGISTERS };
        let exec = Exec { program: ProgramId(program as u32), reserved: 0, registers: range };
        self.stats.messages += 1;
        Ok(self.device.submit(&Message::Exec(exec))?)
    }

    /// Waits for the answer to `seq`, which ran `program` and must be a success. A failure leaves the context
    /// lost.
    fn finish(&mut self, program: Program, seq: Seq) -> Result<Response, EngineError> {
        // Reset below, when the answer is a success.
        self.broken = true;
        let response = {
            let patience = self.device.patience();
            self.device.wait(patience)?
        };
        let start = Instant::now();
        if response.seq != seq {
            return Err(DeviceError::OutOfOrder { expected: seq, found: response.seq }.into());
        }
        if let Err((status, fault)) = response.outcome() {
            if fault.code == ErrorCode::NotFinite {
                return Err(EngineError::NotFinite { place: self.place(program, &fault) });
            }
            let error = DeviceError::fault(MessageKind::Exec, status, fault);
            return Err(error
                .explained(|fault| self.site(program, fault).map(|site| site.explain(fault)))
                .into());
        }
        self.broken = false;
        self.stats.steps += 1;
        self.stats.dma_bytes += response.dma_bytes;
        for (sum, cost) in self.stats.parts.iter_mut().zip(response.info) {
            *sum += u64::from(cost);
        }
        self.stats.host += start.elapsed();
        Ok(response)
    }

    /// The op of `program` that a fault of the session that answered last concerns.
    fn site(&self, program: Program, fault: &Fault) -> Option<&Site> {
        let (session, id) = (self.device.answered(), ProgramId(program as u32));
        let stage = self.stages.iter().find(|stage| stage.session == session && stage.program == id);
        stage?.sites.get(fault.op.0 as usize)
    }

    /// Where in `program` a fault of the session that answered last was, for people.
    fn place(&self, program: Program, fault: &Fault) -> String {
        let Some(site) = self.site(program, fault) else {
            return format!("op {}", fault.op);
        };
        let weight = site.weight().unwrap_or_default();
        let (model, name) =
            weight.strip_prefix(DRAFT_PREFIX).map_or(("the model", weight), |name| ("the draft", name));
        let before = if fault.detail == 0 { " or before" } else { "" };
        match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, _)) => format!("layer {layer} of {model}{before} ({site})"),
            None => format!("{model}{before} ({site})"),
        }
    }

    /// The best token of a row of the last step: the first maximum, found on the device.
    ///
    /// # Panics
    /// If the last step has no such row.
    pub fn argmax(&mut self, row: usize) -> u32 {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let start = Instant::now();
        let mut best = [0; 4];
        self.io.memory.read(self.layout.argmax as usize + 4 * row, &mut best);
        self.stats.host_bytes += 4;
        self.stats.host += start.elapsed();
        i32::from_le_bytes(best) as u32
    }

    /// The logits of a row of the last step, `n_vocab` of them.
    ///
    /// # Panics
    /// If the last step has no such row.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let at = self.layout.logits as usize + 4 * row * self.logits.len();
        self.io.memory.read(at, self.logits.as_mut_bytes());
        self.stats.host_bytes += 4 * self.logits.len() as u64;
        &self.logits
    }
}

/// The context length, and the options, as far as model and draft allow them.
fn settle(
    target: &Decoder,
    draft: Option<&dyn Draft>,
    options: &EngineOptions,
) -> Result<(u32, EngineOptions), EngineError> {
    let trained = target.n_ctx_train;
    let n_ctx = match options.n_ctx {
        None => trained.min(DEFAULT_CTX),
        Some(0) => trained,
        Some(n) => n,
    };
    let longest = target.longest_context().min(draft.map_or(u32::MAX, |draft| draft.longest_context()));
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

impl Stage {
    /// Loads it; the block is only needed in shared memory until the device has its own copy.
    fn load(&self, device: &mut dyn Device) -> Result<(), EngineError> {
        let buffer = device.allocate_in(SessionSet::one(self.session), self.bytes.len() as u64)?;
        buffer.memory.write(0, &self.bytes);
        let block = Range { buffer: buffer.id, len: self.bytes.len() as u32, offset: 0 };
        let loaded = device.load_in(self.session, &Load { program: self.program, reserved: 0, block });
        device.free(buffer)?;
        let named = |fault: &Fault| Some(self.sites.get(fault.op.0 as usize)?.explain(fault));
        loaded.map_err(|error| error.explained(named).into())
    }
}
