//! Whether a model fits a device, over how many sessions, and what would make it fit.

use serde::Serialize;

use super::error::EngineError;
use super::files::ModelFiles;
use super::layouts::Holds;
use super::options::EngineOptions;
use super::plan::Plan;
use crate::device::{self, CHIPS, Device, DeviceOptions, MAX_SESSIONS, SessionLimits};
use crate::gguf::{Gguf, GgufError};
use crate::model::{self, CacheTypes, EmbeddingReaders, Purpose, Region, Split};

/// Contexts that are proposed are multiples of this: nobody wants to type other ones.
const CONTEXT_STEP: u64 = 256;
/// Fewest bits per weight that are proposed: no quantization has less and is of use.
const FEWEST_BITS: f64 = 2.0;

/// Bytes that a session maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionNeeds {
    /// Weights.
    pub weights: u64,
    /// KV caches.
    pub kv: u64,
    /// Recurrent states, and snapshots of them.
    pub recurrent: u64,
    /// Activations, inputs and outputs, what speculation adds, and what sessions hand over.
    pub other: u64,
    /// The largest mapping of weights.
    pub largest_weights: u64,
    /// The largest mapping of anything else.
    pub largest_other: u64,
}

impl SessionNeeds {
    /// All of them; the most that fits the type where metadata claim more.
    pub fn total(&self) -> u64 {
        [self.weights, self.kv, self.recurrent, self.other].into_iter().fold(0, u64::saturating_add)
    }

    /// Whether they fit.
    pub fn fit(&self, limits: SessionLimits) -> bool {
        self.total() <= limits.total && self.largest_weights.max(self.largest_other) <= limits.mapping
    }
}

/// What a model needs over so many sessions.
struct Needs {
    n_ctx: u32,
    weight_bytes: u64,
    sessions: Vec<SessionNeeds>,
}

impl Needs {
    /// Needs of a model that this version runs.
    fn new(files: ModelFiles<'_>, options: &EngineOptions, sessions: usize) -> Result<Self, EngineError> {
        let plan = Plan::new(Holds::Target, files, options, sessions as u32)?;
        let kept = plan.kept();
        let shared = plan.shared_bytes();
        let other = shared.iter().sum();
        let largest = shared.into_iter().max().unwrap_or(0);
        let session =
            |state: u64| SessionNeeds { other, largest_other: largest.max(state), ..Default::default() };
        let mut sessions: Vec<_> = kept.part_bytes().map(session).collect();
        for (_, tensor) in kept.iter().filter(|(_, tensor)| tensor.region == Region::State) {
            let (session, _) = kept.home(tensor.offset);
            let bytes = tensor.slot_bytes(1).next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            match tensor.purpose {
                Purpose::Kv => sessions[session].kv += bytes,
                // What else lies among the states.
                Purpose::Recurrent
                | Purpose::Snapshot
                | Purpose::Tape
                | Purpose::ConvRows
                | Purpose::DraftKv
                | Purpose::DraftRows
                | Purpose::Rounds
                | Purpose::Encoder => sessions[session].recurrent += bytes,
            }
        }
        for (readers, bytes) in plan.mapped_weights() {
            for session in readers.iter() {
                sessions[session].weights += bytes;
                sessions[session].largest_weights = sessions[session].largest_weights.max(bytes);
            }
        }
        Ok(Self { n_ctx: kept.n_ctx, weight_bytes: plan.weight_bytes(), sessions })
    }

    fn fits(&self, limits: SessionLimits) -> bool {
        self.sessions.iter().all(|needs| needs.fit(limits))
    }

    /// The longest context that would fit, if a shorter one would.
    fn context(&self, limits: SessionLimits) -> Option<u32> {
        let mut longest = u64::from(self.n_ctx);
        for needs in &self.sessions {
            if needs.largest_weights > limits.mapping {
                return None;
            }
            let rest = needs.total() - needs.kv;
            let room = limits.total.checked_sub(rest)?.min(limits.mapping.checked_sub(needs.recurrent)?);
            if needs.kv > room {
                let n = u128::from(self.n_ctx) * u128::from(room) / u128::from(needs.kv);
                longest = longest.min(n as u64);
            }
        }
        let longest = longest / CONTEXT_STEP * CONTEXT_STEP;
        (0 < longest && longest < u64::from(self.n_ctx)).then_some(longest as u32)
    }

    /// The most bits per weight that would fit, of `bits` that it has, if fewer would.
    fn bits(&self, limits: SessionLimits, bits: f64) -> Option<f64> {
        let mut share = 1.0f64;
        for needs in &self.sessions {
            if needs.largest_other > limits.mapping {
                return None;
            }
            let room = limits.total.checked_sub(needs.total() - needs.weights)?;
            share = share.min(room as f64 / needs.weights.max(1) as f64);
            share = share.min(limits.mapping as f64 / needs.largest_weights.max(1) as f64);
        }
        let most = (bits * share * 10.0).floor() / 10.0;
        (share < 1.0 && most >= FEWEST_BITS).then_some(most)
    }
}

/// What would make a model fit so many sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// The sessions.
    pub sessions: usize,
    /// A context of so many positions, with these weights.
    pub context: Option<u32>,
    /// Weights of at most so many bits on average, with this context.
    pub weight_bits: Option<f64>,
}

/// How a model fits a version of the Hexagon NPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChipFit {
    /// The version.
    pub chip: &'static str,
    /// What its sessions can map.
    pub limits: SessionLimits,
    /// The fewest sessions that it fits; `None` if it fits none.
    pub sessions: Option<usize>,
    /// What each of them needs; of the most sessions where it fits none.
    pub needs: Vec<SessionNeeds>,
    /// What would make it fit, or make one session less do.
    pub remedy: Option<Remedy>,
}

/// How a model fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFit {
    /// Whether it is estimated from the file: weights as they are there, caches for every layer, and no
    /// activations.
    pub estimated: bool,
    /// Positions of the context.
    pub n_ctx: u32,
    /// Bits per weight on average, as the device reads them.
    pub weight_bits: f64,
    /// Each version, the oldest first.
    pub chips: Vec<ChipFit>,
}

/// How a model that this version runs fits each version.
///
/// # Errors
/// As [`memory_needs`](crate::engine::memory_needs).
pub fn fit(files: ModelFiles<'_>, options: &EngineOptions) -> Result<ModelFit, EngineError> {
    let layers = model::read(files.target)?.layers.len();
    report(files.target, layers, false, |sessions| Needs::new(files, options, sessions))
}

/// How any model would fit each version, by its metadata and tensors; `None` where those do not say.
pub fn estimate_fit(gguf: &Gguf, options: &EngineOptions) -> Option<ModelFit> {
    let shape = Shape::read(gguf, options.caches).ok().flatten()?;
    let layers = shape.positions.len();
    report(gguf, layers, true, |sessions| shape.plan(gguf, options, sessions).ok_or(())).ok()
}

fn report<E>(
    gguf: &Gguf,
    layers: usize,
    estimated: bool,
    plan: impl Fn(usize) -> Result<Needs, E>,
) -> Result<ModelFit, E> {
    let most = layers.clamp(1, MAX_SESSIONS);
    let mut plans = vec![plan(1)?];
    let elements: f64 = gguf.tensors().map(|tensor| tensor.shape().iter().product::<u64>() as f64).sum();
    let weight_bits = 8.0 * plans[0].weight_bytes as f64 / elements.max(1.0);
    let mut chips = Vec::with_capacity(CHIPS.len());
    for chip in CHIPS {
        let limits = chip.limits;
        let mut sessions = None;
        for n in 1..=most {
            if plans.len() < n {
                plans.push(plan(n)?);
            }
            if plans[n - 1].fits(limits) {
                sessions = Some(n);
                break;
            }
        }
        let wished = sessions.map_or(most, |n| n - 1);
        let remedy = wished.checked_sub(1).map(|at| Remedy {
            sessions: wished,
            context: plans[at].context(limits),
            weight_bits: plans[at].bits(limits, weight_bits),
        });
        chips.push(ChipFit {
            chip: chip.name,
            limits,
            sessions,
            needs: plans[sessions.unwrap_or(most) - 1].sessions.clone(),
            remedy: remedy.filter(|remedy| remedy.context.is_some() || remedy.weight_bits.is_some()),
        });
    }
    Ok(ModelFit { estimated, n_ctx: plans[0].n_ctx, weight_bits, chips })
}

/// What metadata of any architecture say of caches.
struct Shape {
    /// Positions of the training.
    trained: u32,
    /// Bytes of a position of each layer's cache.
    positions: Vec<u64>,
}

impl Shape {
    /// `None` where keys are missing.
    fn read(gguf: &Gguf, caches: CacheTypes) -> Result<Option<Self>, GgufError> {
        let meta = gguf.meta();
        let Some(arch) = meta.str_opt("general.architecture")? else { return Ok(None) };
        let key = |name: &str| format!("{arch}.{name}");
        let number = |name: &str| meta.u32_opt(&key(name));
        let (layers, trained) = (number("block_count")?, number("context_length")?);
        let Some((layers, trained)) = layers.zip(trained) else { return Ok(None) };
        let layers = layers as usize;
        let heads = meta.u32_per_layer(&key("attention.head_count"), layers)?;
        let kv_heads = match meta.u32_per_layer(&key("attention.head_count_kv"), layers)? {
            None => heads.clone(),
            heads => heads,
        };
        let most = heads.iter().flatten().copied().max().unwrap_or(1).max(1);
        let width = number("embedding_length")?.unwrap_or(0) / most;
        let k = number("attention.key_length")?.unwrap_or(width);
        let v = number("attention.value_length")?.unwrap_or(width);
        let bytes = |heads: u32| caches.position_bytes(k, v).saturating_mul(heads.into());
        // A model without heads has no caches.
        let kv_heads = kv_heads.unwrap_or_else(|| vec![0; layers]);
        Ok(Some(Self { trained, positions: kv_heads.into_iter().map(bytes).collect() }))
    }

    fn plan(&self, gguf: &Gguf, options: &EngineOptions, sessions: usize) -> Option<Needs> {
        let n_ctx = options.context(self.trained);
        let tied = gguf.tensor("output.weight").is_none();
        let embedding = if tied { EmbeddingReaders::FirstAndLast } else { EmbeddingReaders::First };
        let weights = || gguf.tensors().map(|tensor| (tensor.name.as_str(), tensor.size));
        let layers = self.positions.len();
        // Tensors behind the last layer are of heads that predict further tokens.
        let inside = |name: &str| model::layer_of(name).is_none_or(|layer| layer < layers);
        let known = weights().filter(|(name, _)| inside(name));
        let split = Split::balanced(layers, layers, embedding, (known, 0), sessions)?;
        let mut needs = vec![SessionNeeds::default(); sessions];
        for (name, bytes) in weights().filter(|(name, _)| inside(name)) {
            for session in split.readers(name, embedding).iter() {
                needs[session].weights = needs[session].weights.saturating_add(bytes);
                needs[session].largest_weights = needs[session].largest_weights.max(bytes);
            }
        }
        let slots = u64::from(options.sequences).saturating_mul(u64::from(n_ctx));
        for (layer, bytes) in self.positions.iter().enumerate() {
            let needs = &mut needs[split.session_of(layer)];
            needs.kv = needs.kv.saturating_add(bytes.saturating_mul(slots));
        }
        for needs in &mut needs {
            needs.largest_other = needs.kv;
        }
        let weight_bytes = weights().map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
        Some(Needs { n_ctx, weight_bytes, sessions: needs })
    }
}

/// Opens a device for a model: with as many sessions as the options say, else with as few as the model needs
/// there.
///
/// # Errors
/// As [`device::open`]; what is wrong with the model; [`EngineError::DoesNotFit`].
pub fn open_device(
    name: &str,
    options: &DeviceOptions,
    files: ModelFiles<'_>,
    engine: &EngineOptions,
) -> Result<Box<dyn Device>, EngineError> {
    let matrix_unit = options.matrix_unit || engine.numerics.wants_matrix_unit();
    let options = &DeviceOptions { matrix_unit, ..options.clone() };
    let limits = match options.sessions {
        Some(_) => None,
        None => device::session_limits(name, options)?,
    };
    let Some(limits) = limits else { return Ok(device::open(name, options)?) };
    let most = model::read(files.target)?.layers.len().clamp(1, MAX_SESSIONS);
    let mut needed = 0;
    for sessions in 1..=most {
        let plan = Needs::new(files, engine, sessions)?;
        if plan.fits(limits) {
            let options = DeviceOptions { sessions: Some(sessions), ..options.clone() };
            return Ok(device::open(name, &options)?);
        }
        needed = plan.sessions.iter().map(SessionNeeds::total).max().unwrap_or(0);
    }
    Err(EngineError::DoesNotFit { sessions: most, needed, limit: limits.total })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SessionLimits = SessionLimits { total: 1000, mapping: 600 };

    fn plan(weights: u64, kv: u64, other: u64) -> Needs {
        let needs = SessionNeeds {
            weights,
            kv,
            recurrent: 0,
            other,
            largest_weights: weights.min(500),
            largest_other: kv.max(other),
        };
        Needs { n_ctx: 4096, weight_bytes: weights, sessions: vec![SessionNeeds::default(), needs] }
    }

    /// The limit itself fits, and what is proposed fits, too.
    #[test]
    fn the_limits_are_exact() {
        assert!(plan(500, 400, 100).fits(LIMITS));
        assert!(!plan(500, 400, 101).fits(LIMITS));
        assert!(plan(300, 600, 0).fits(LIMITS));
        assert!(!plan(300, 601, 0).fits(LIMITS));
    }

    #[test]
    fn shorter_contexts() {
        // 400 of 800 bytes of cache have room, and 600 of 1200 in one mapping.
        assert_eq!(plan(500, 800, 100).context(LIMITS), Some(2048));
        assert_eq!(plan(100, 1200, 100).context(LIMITS), Some(2048));
        // No context is short enough, or the context is not what is too large.
        assert_eq!(plan(999, 800, 100).context(LIMITS), None);
        assert_eq!(plan(500, 400, 100).context(LIMITS), None);
    }

    #[test]
    fn fewer_bits() {
        assert_eq!(plan(1600, 100, 100).bits(LIMITS, 8.0), Some(4.0));
        assert_eq!(plan(1600, 100, 100).bits(LIMITS, 3.0), None);
        assert_eq!(plan(1600, 1000, 100).bits(LIMITS, 8.0), None);
        assert_eq!(plan(500, 100, 100).bits(LIMITS, 8.0), None);
    }
}
