//! A device whose memory is damaged behind the loader's back: weights are copied, and all memory can be
//! overwritten.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hexflash::device::{Buffer, Device, DeviceError, DeviceInfo, SessionSet, SharedMemory, Source};
use hexflash::engine::{Engine, EngineError, EngineOptions};
use hexflash::gguf::Gguf;
use hexflash::model;
use hexflash::weights::{CachePolicy, ImageOptions, WeightEntry, layout};
use hexflash_abi::DType;
use hexflash_abi::Seq;
use hexflash_abi::message::{Load, Message, Response};

/// The memory of a device: of weights, in the order in which they were mapped, and what was allocated
/// otherwise.
#[derive(Clone, Default)]
pub struct Reach(Arc<Mutex<(Vec<Buffer>, Vec<Buffer>)>>);

impl Reach {
    /// Mapped weights number `n`.
    pub fn weights(&self, n: usize) -> SharedMemory {
        self.0.lock().unwrap().0[n].memory.clone()
    }

    /// How often weights were mapped.
    #[allow(dead_code, reason = "for several sessions")]
    pub fn stretches(&self) -> usize {
        self.0.lock().unwrap().0.len()
    }

    /// Where in weights number `n` these bytes are.
    #[allow(dead_code, reason = "for several sessions")]
    pub fn find(&self, n: usize, bytes: &[u8]) -> Option<usize> {
        let memory = self.weights(n);
        let mut all = vec![0; memory.len()];
        memory.read(0, &mut all);
        (0..all.len()).step_by(128).find(|&at| all[at..].starts_with(bytes))
    }

    /// Caches and states of an engine in one session: what it allocates first.
    #[allow(dead_code, reason = "for those who test more")]
    pub fn state(&self) -> SharedMemory {
        self.0.lock().unwrap().1[0].memory.clone()
    }
}

/// Any device, within reach.
pub struct Damaged {
    device: Box<dyn Device>,
    reach: Reach,
}

impl Damaged {
    pub fn new(device: Box<dyn Device>) -> (Self, Reach) {
        let reach = Reach::default();
        (Self { device, reach: reach.clone() }, reach)
    }
}

impl Device for Damaged {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = self.device.allocate(bytes)?;
        self.reach.0.lock().unwrap().1.push(buffer.clone());
        Ok(buffer)
    }

    fn import(&mut self, weights: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.import_in(SessionSet::one(0), weights)
    }

    fn allocate_in(&mut self, sessions: SessionSet, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = self.device.allocate_in(sessions, bytes)?;
        self.reach.0.lock().unwrap().1.push(buffer.clone());
        Ok(buffer)
    }

    fn import_in(&mut self, sessions: SessionSet, weights: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        let mut bytes = vec![0; weights.bytes() as usize];
        weights.copy_to(&mut bytes).unwrap();
        let buffer = self.device.allocate_in(sessions, bytes.len() as u64)?;
        buffer.memory.write(0, &bytes);
        self.reach.0.lock().unwrap().0.push(buffer.clone());
        Ok(buffer)
    }

    fn load_in(&mut self, session: usize, load: &Load) -> Result<(), DeviceError> {
        self.device.load_in(session, load)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.reach.0.lock().unwrap().1.retain(|other| other.id != buffer.id);
        self.device.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        self.device.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.device.wait(timeout)
    }

    fn answered(&self) -> usize {
        self.device.answered()
    }

    fn patience(&self) -> Duration {
        self.device.patience()
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.device.reset()
    }
}

/// What was in memory before it was damaged.
pub struct Wound {
    memory: SharedMemory,
    at: usize,
    before: Vec<u8>,
}

impl Wound {
    pub fn heal(self) {
        self.memory.write(self.at, &self.before);
    }
}

pub fn overwrite(memory: &SharedMemory, at: usize, bytes: &[u8]) -> Wound {
    let mut before = vec![0; bytes.len()];
    memory.read(at, &mut before);
    memory.write(at, bytes);
    Wound { memory: memory.clone(), at, before }
}

/// A weight of the model by its label.
pub fn entry(gguf: &Gguf, label: &str) -> WeightEntry {
    let plan = model::read(gguf).unwrap().weights(gguf).unwrap();
    layout(gguf, &plan.specs).unwrap().0[label]
}

/// Makes the first value of row `row` of a weight NaN, or that of a block's scale.
pub fn nan(memory: &SharedMemory, entry: &WeightEntry, row: usize) -> Wound {
    let (strip, lane) = match entry.dtype.tile_group() {
        Some(group) => (row / 32 * group.strip_bytes(entry.ne[0] as usize), row % 32 * 4),
        None => (0, row * 4 * entry.ne[0] as usize),
    };
    // The vector of d, or else the first one of scales.
    let part = match entry.dtype.quant_group() {
        Some(group) if group.d > 0 => group.d_at() * 128,
        Some(group) => group.scales_at() * 128,
        None => 0,
    };
    let nan = match entry.dtype {
        DType::F32 | DType::F32x32 => f32::NAN.to_le_bytes().to_vec(),
        DType::BF16x32 => vec![0xc0, 0x7f],
        DType::MXFP4x32 => vec![0xff],
        _ => vec![0x00, 0x7e],
    };
    overwrite(memory, entry.offset as usize + strip + part + lane, &nan)
}

/// A model that was sound when it was loaded: what a prompt gives when a weight is damaged, when a cached key
/// is, and when all is well again. The same on every device.
#[allow(dead_code, reason = "not for those who test more")]
pub fn damage_is_reported_with_its_layer(gguf: &Gguf, device: Box<dyn Device>) {
    let (device, reach) = Damaged::new(device);
    let options = EngineOptions { n_ctx: Some(64), batch: 4, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let mut engine = Engine::load(gguf, Box::new(device), &options, &image).unwrap();
    let place = |outcome: Result<(), EngineError>| match outcome {
        Err(EngineError::NotFinite { place }) => place,
        other => panic!("{other:?}"),
    };
    let prompt = [45, 320];
    engine.prefill(&prompt, |_| {}).unwrap();
    let best = engine.argmax(0);

    let wound = nan(&reach.weights(0), &entry(gguf, "blk.2.ffn_down.weight"), 7);
    engine.reset();
    let found = place(engine.prefill(&prompt, |_| {}));
    assert_eq!(found, "layer 2 of the model (MUL_MAT with blk.2.ffn_down.weight)");
    wound.heal();

    let wound = nan(&reach.weights(0), &entry(gguf, "output_norm.weight"), 0);
    engine.reset();
    let found = place(engine.prefill(&prompt, |_| {}));
    assert_eq!(found, "the model (RMS_NORM with output_norm.weight)");
    wound.heal();

    engine.reset();
    engine.prefill(&prompt, |_| {}).unwrap();
    assert_eq!(engine.argmax(0), best);
}
