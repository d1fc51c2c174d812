//! The engine: a model on a device, fed with tokens, giving logits.
//!
//! Loading records and loads one program per shape; a step writes token ids and registers into shared memory and
//! sends one `Exec`. Nothing is allocated, rebuilt or re-sent per step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hexflash_abi::message::{Exec, Load, Message, Range};
use hexflash_abi::program::MAX_TOKENS;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, ProgramId};
use zerocopy::IntoBytes;

use crate::device::{Buffer, Device, DeviceError, DeviceInfo};
use crate::gguf::Gguf;
use crate::model::{
    Buffers, Config, IoLayout, MAX_VERIFY, ModelError, Rows, Shape, StateLayout, WeightMap, WeightPlan,
    record,
};
use crate::record::{RecordError, Recorded};
use crate::weights::{ImageOptions, WeightError, WeightImage};

/// How long a step may take before the device counts as hung.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Positions of the caches; `None` for the model's, at most 4096.
    pub n_ctx: Option<u32>,
    /// Tokens of a prefill step.
    pub batch: u32,
    /// Layers whose input is kept, for drafters and tests (see [`Shape::taps`]).
    pub taps: Vec<u32>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { n_ctx: None, batch: 256, taps: Vec::new() }
    }
}

/// Context length when the user names none: a quarter of a million positions of cache is not a sensible default.
const DEFAULT_CTX: u32 = 4096;

/// What an engine cannot do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its weights.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// Its programs.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A setting is out of range.
    #[error("{what} must be {allowed}, not {found}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// Its range.
        allowed: String,
        /// What was asked for.
        found: u64,
    },
    /// The context is full.
    #[error(
        "{wanted} tokens do not fit the context of {n_ctx} with {n_past} in it; \
         shorten the prompt or raise the context with -c (the model was trained for {n_ctx_train})"
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
        /// The id.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: u32,
    },
    /// A step without tokens.
    #[error("there are no tokens to run; give a prompt of at least one token")]
    NoTokens,
}

/// Bytes that a loaded model takes, for `info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Weights as the device reads them.
    pub weights: u64,
    /// KV caches.
    pub kv: u64,
    /// Recurrent state and convolution rings.
    pub recurrent: u64,
    /// Activations, shared by all programs.
    pub activations: u64,
    /// What activations would take without reuse.
    pub activations_unshared: u64,
    /// Inputs and outputs.
    pub io: u64,
    /// Program blocks.
    pub programs: u64,
    /// VTCM of the device.
    pub vtcm: u64,
    /// Positions of the caches.
    pub n_ctx: u32,
}

/// What steps cost the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStats {
    /// Steps since the last reset of the statistics.
    pub steps: u64,
    /// Messages sent for them.
    pub messages: u64,
    /// Host time for packing, submitting and reading; waiting excluded.
    pub host: Duration,
    /// Bytes that the device's DMA engines moved.
    pub dma_bytes: u64,
}

/// The programs of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// One token, its logits.
    Decode = 0,
    /// Up to [`MAX_VERIFY`] tokens, the logits of each.
    Verify = 1,
    /// Up to a batch of tokens, the logits of the last.
    Prefill = 2,
}

/// A model on a device.
pub struct Engine {
    device: Box<dyn Device>,
    config: Config,
    plan: MemoryPlan,
    notes: Vec<String>,
    io: Buffer,
    layout: IoLayout,
    /// Layout of the state buffer.
    pub state_layout: StateLayout,
    state: Buffer,
    batch: u32,
    n_past: u32,
    /// Rows of logits of the last step.
    rows: usize,
    logits: Vec<f32>,
    tokens: Vec<i32>,
    stats: StepStats,
    /// The image's memory is mapped on the device.
    _weights: Arc<WeightImage>,
}

/// A model's programs before they are loaded: enough for a memory plan without weights.
struct Programs {
    recorded: Vec<Recorded>,
}

impl Programs {
    fn record(
        config: &Config,
        weights: &WeightMap,
        state: &StateLayout,
        layout: &IoLayout,
        buffers: Buffers,
        options: &EngineOptions,
    ) -> Self {
        let shape = |program| match program {
            Program::Decode => Shape { max_tokens: 1, rows: Rows::All, taps: Vec::new() },
            Program::Verify => {
                Shape { max_tokens: MAX_VERIFY.min(state.n_ctx), rows: Rows::All, taps: Vec::new() }
            }
            Program::Prefill => {
                Shape { max_tokens: options.batch, rows: Rows::One, taps: options.taps.clone() }
            }
        };
        let recorded = [Program::Decode, Program::Verify, Program::Prefill]
            .map(|program| record(config, weights, state, layout, buffers, &shape(program)));
        Self { recorded: recorded.into() }
    }

    fn activation_bytes(&self) -> u64 {
        self.recorded.iter().map(|r| r.activation_bytes).max().unwrap_or(0)
    }

    fn memory(&self, weights: u64, state: &StateLayout, io: &IoLayout, device: &DeviceInfo) -> MemoryPlan {
        MemoryPlan {
            weights,
            kv: state.kv_bytes,
            recurrent: state.recurrent_bytes,
            activations: self.activation_bytes(),
            activations_unshared: self
                .recorded
                .iter()
                .map(|r| r.activation_bytes_unshared)
                .max()
                .unwrap_or(0),
            io: io.bytes,
            programs: self.recorded.iter().map(Recorded::block_bytes).sum(),
            vtcm: device.vtcm_bytes.into(),
            n_ctx: state.n_ctx,
        }
    }
}

/// What a model would take on a device, without loading it.
///
/// # Errors
/// As [`Engine::load`], as far as it can be known.
pub fn plan(
    gguf: &Gguf,
    config: &Config,
    options: &EngineOptions,
    device: &DeviceInfo,
) -> Result<MemoryPlan, EngineError> {
    let n_ctx = context(config, options.n_ctx)?;
    let options = &EngineOptions { batch: batch(options.batch, n_ctx)?, ..options.clone() };
    let weights = WeightPlan::of(gguf, config)?;
    let (entries, bytes) = crate::weights::layout(gguf, &weights.specs)?;
    let [weight_buffer, state, io] = [0, 1, 2].map(BufferId);
    let map = WeightMap::new(weights, |label| entries.get(label).copied(), weight_buffer);
    let state_layout = StateLayout::new(config, n_ctx);
    let layout = IoLayout::new(config, options.batch.max(MAX_VERIFY), options.taps.len());
    let programs = Programs::record(config, &map, &state_layout, &layout, Buffers { state, io }, options);
    Ok(programs.memory(bytes, &state_layout, &layout, device))
}

impl Engine {
    /// Loads a model onto a device.
    ///
    /// # Errors
    /// The model is not one that hexflash runs, a setting is out of range, or the device has no room.
    pub fn load(
        gguf: &Gguf,
        mut device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        let config = Config::read(gguf)?;
        let n_ctx = context(&config, options.n_ctx)?;
        let options = &EngineOptions { batch: batch(options.batch, n_ctx)?, ..options.clone() };
        let plan = WeightPlan::of(gguf, &config)?;
        let weights = Arc::new(WeightImage::load(gguf, &plan.specs, image)?);
        let notes = weights.warnings().to_vec();
        let weight_buffer = device.import(Arc::clone(&weights) as _)?;
        let map = WeightMap::new(plan, |label| weights.entry(label).copied(), weight_buffer.id);

        let state_layout = StateLayout::new(&config, n_ctx);
        let layout = IoLayout::new(&config, options.batch.max(MAX_VERIFY), options.taps.len());
        let state = device.allocate(state_layout.bytes())?;
        let io = device.allocate(layout.bytes)?;
        let buffers = Buffers { state: state.id, io: io.id };
        let programs = Programs::record(&config, &map, &state_layout, &layout, buffers, options);
        let activations = device.allocate(programs.activation_bytes())?;

        let memory = programs.memory(weights.bytes(), &state_layout, &layout, device.info());
        let sizes = |id: BufferId| {
            let all = [&weight_buffer, &state, &io, &activations];
            let buffer = all.into_iter().find(|b| b.id == id)?;
            Some(BufferInfo { size: buffer.memory.len() as u64, read_only: id == weight_buffer.id })
        };
        for (id, recorded) in programs.recorded.iter().enumerate() {
            let block = recorded.block(activations.id, sizes)?;
            load_program(&mut *device, ProgramId(id as u32), &block)?;
        }
        tracing::info!(?memory, "model loaded");
        Ok(Self {
            logits: vec![0.0; config.n_vocab as usize],
            tokens: Vec::with_capacity(options.batch.max(MAX_VERIFY) as usize),
            batch: options.batch,
            plan: memory,
            notes,
            io,
            layout,
            state,
            state_layout,
            device,
            config,
            n_past: 0,
            rows: 0,
            stats: StepStats::default(),
            _weights: weights,
        })
    }

    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that the model takes.
    pub fn memory(&self) -> &MemoryPlan {
        &self.plan
    }

    /// What happened while loading that users should know: a weight cache that was rebuilt or cannot be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Positions of the context.
    pub fn n_ctx(&self) -> u32 {
        self.state_layout.n_ctx
    }

    /// Tokens in the context.
    pub fn n_past(&self) -> u32 {
        self.n_past
    }

    /// What steps have cost since [`reset_stats`](Self::reset_stats).
    pub fn stats(&self) -> StepStats {
        self.stats
    }

    /// Starts counting anew.
    pub fn reset_stats(&mut self) {
        self.stats = StepStats::default();
    }

    /// Forgets all tokens. Nothing is cleared: states are taken as zero at position 0.
    pub fn reset(&mut self) {
        self.n_past = 0;
        self.rows = 0;
    }

    /// Runs a prompt, a batch at a time; afterwards row 0 has the logits after its last token. `progress` gets the
    /// tokens done.
    ///
    /// # Errors
    /// The context is too small, a token is not in the vocabulary, or the device failed.
    pub fn prefill(&mut self, tokens: &[u32], mut progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.admit(tokens)?;
        let mut done = 0;
        for chunk in tokens.chunks(self.batch as usize) {
            self.step(Program::Prefill, chunk)?;
            done += chunk.len();
            progress(done);
        }
        self.rows = 1;
        Ok(())
    }

    /// Runs one token; afterwards row 0 has the logits after it.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: u32) -> Result<(), EngineError> {
        self.admit(&[token])?;
        self.step(Program::Decode, &[token])?;
        self.rows = 1;
        Ok(())
    }

    /// Runs up to [`MAX_VERIFY`] tokens; afterwards row i has the logits after token i.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), and too many tokens.
    pub fn decode_many(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        if tokens.len() > MAX_VERIFY as usize {
            let allowed = format!("at most {MAX_VERIFY}");
            let found = tokens.len() as u64;
            return Err(EngineError::Setting { what: "the width of a step", allowed, found });
        }
        self.admit(tokens)?;
        self.step(Program::Verify, tokens)?;
        self.rows = tokens.len();
        Ok(())
    }

    fn admit(&self, tokens: &[u32]) -> Result<(), EngineError> {
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
        Ok(())
    }

    /// One message: token ids and registers into shared memory, `Exec`, response.
    fn step(&mut self, program: Program, tokens: &[u32]) -> Result<(), EngineError> {
        let start = Instant::now();
        self.tokens.clear();
        // Ids are below n_vocab, which is below 2^20.
        self.tokens.extend(tokens.iter().map(|&t| t as i32));
        let memory = &self.io.memory;
        memory.write(self.layout.tokens as usize, self.tokens.as_bytes());
        if program == Program::Prefill {
            memory.write(self.layout.row as usize, (tokens.len() as i32 - 1).as_bytes());
        }
        let registers = StepRegisters::step(self.n_past, tokens.len() as u32);
        memory.write(IoLayout::REGISTERS as usize, registers.as_bytes());
        let range =
            Range { buffer: self.io.id, len: size_of::<StepRegisters>() as u32, offset: IoLayout::REGISTERS };
        let exec = Exec { program: ProgramId(program as u32), reserved: 0, registers: range };
        let seq = self.device.submit(&Message::Exec(exec))?;
        let submitted = Instant::now();
        let response = self.device.wait(STEP_TIMEOUT)?;
        let woken = Instant::now();
        if response.seq != seq {
            return Err(DeviceError::OutOfOrder { expected: seq, found: response.seq }.into());
        }
        if let Err((status, fault)) = response.outcome() {
            let request = hexflash_abi::message::MessageKind::Exec;
            return Err(DeviceError::Fault { request, status, fault }.into());
        }
        self.n_past += tokens.len() as u32;
        self.stats.steps += 1;
        self.stats.messages += 1;
        self.stats.dma_bytes += response.dma_bytes;
        self.stats.host += (submitted - start) + woken.elapsed();
        Ok(())
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
        &self.logits
    }

    /// The residual stream at tap `tap` for the `n` rows of the last prefill step, `{n_embd, n}`.
    pub fn tap(&self, tap: usize, n: usize) -> Vec<f32> {
        let mut values = vec![0.0f32; self.config.n_embd as usize * n];
        let stride = 4 * self.config.n_embd as usize * self.batch as usize;
        self.io.memory.read(self.layout.taps as usize + tap * stride, values.as_mut_bytes());
        values
    }

    /// The state buffer's bytes: caches and recurrent states, as [`StateLayout`] lays them out. For tests.
    pub fn state_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.state_layout.bytes() as usize];
        self.state.memory.read(0, &mut bytes);
        bytes
    }
}

fn context(config: &Config, asked: Option<u32>) -> Result<u32, EngineError> {
    match asked {
        None => Ok(config.n_ctx_train.min(DEFAULT_CTX)),
        Some(n) if (1..=config.n_ctx_train).contains(&n) => Ok(n),
        Some(n) => {
            let allowed = format!("1 to {}, which the model was trained for", config.n_ctx_train);
            Err(EngineError::Setting { what: "the context length (-c)", allowed, found: n.into() })
        }
    }
}

fn batch(asked: u32, n_ctx: u32) -> Result<u32, EngineError> {
    if !(1..=MAX_TOKENS).contains(&asked) {
        let allowed = format!("1 to {MAX_TOKENS}");
        return Err(EngineError::Setting { what: "the batch size", allowed, found: asked.into() });
    }
    Ok(asked.min(n_ctx))
}

/// Loads one program; its block is only needed until the device has its own copy.
fn load_program(device: &mut dyn Device, program: ProgramId, block: &[u8]) -> Result<(), EngineError> {
    let buffer = device.allocate(block.len() as u64)?;
    buffer.memory.write(0, block);
    let range = Range { buffer: buffer.id, len: block.len() as u32, offset: 0 };
    let loaded = device.call(&Message::Load(Load { program, reserved: 0, block: range }), STEP_TIMEOUT);
    device.free(buffer)?;
    loaded?;
    Ok(())
}
