//! Model files: whatever they hold is refused with a line, or loads into programs that a device accepts.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use hexflash::device::{self, Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, Source};
use hexflash::engine::{Engine, EngineOptions};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::model;
use hexflash::text::TextModel;
use hexflash::weights::tiles::TILED;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::Seq;
use hexflash_abi::message::{Message, Response};

use crate::scratch;

/// Most bytes that a model of an input may take on the device.
const MOST: u64 = 32 << 20;

static FOLDER: LazyLock<std::path::PathBuf> = LazyLock::new(|| scratch::folder("gguf"));

/// One byte says what follows: a whole file, or changes of a small valid one.
pub fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let path = FOLDER.join("model.gguf");
    let file = if mode % 2 == 0 {
        rest.to_vec()
    } else {
        let mut u = Unstructured::new(rest);
        let mut fields = Fields::default();
        while !u.is_empty() && fields.change(&mut u).is_ok() {}
        fields.file()
    };
    // Truncated and written in place: nothing maps the file any more.
    fs::write(&path, &file).expect("a folder of our own");
    if let Err(error) = load(&path, file.len()) {
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
    }
}

/// Opens a model and goes as far as it goes.
fn load(path: &Path, bytes: usize) -> std::result::Result<(), String> {
    let gguf = Gguf::open(path).map_err(|e| e.to_string())?;
    if let Err(error) = TextModel::read(&gguf) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let config = model::read(&gguf).map_err(|e| e.to_string())?;
    if let Err(error) = model::read_draft(&gguf, &config) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    // A small file may share its bytes among many tensors.
    let wanted: u64 = gguf.tensors().map(|t| t.size).sum();
    if wanted > 4 * bytes as u64 + 4096 {
        return Ok(());
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.data(tensor).map_err(|e| e.to_string())?.len() as u64, tensor.size);
    }
    let device = Limited { inner: device::open("inproc", &small()).map_err(|e| e.to_string())?, left: MOST };
    let options = EngineOptions { n_ctx: Some(64), batch: 20, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let mut engine = Engine::load(&gguf, Box::new(device), &options, &image).map_err(|e| e.to_string())?;
    let word = config.n_vocab - 1;
    // What the weights hold may be anything; the model runs all the same.
    engine.prefill(&[word, 0, word], |_| {}).map_err(|e| e.to_string())?;
    engine.decode(0).map_err(|e| e.to_string())?;
    assert_eq!(engine.logits(0).len(), config.n_vocab as usize);
    Ok(())
}

fn small() -> DeviceOptions {
    DeviceOptions { threads: Some(1), vtcm_bytes: Some(1 << 20), ..DeviceOptions::default() }
}

/// A device with little memory.
struct Limited {
    inner: Box<dyn Device>,
    left: u64,
}

impl Device for Limited {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocate(&mut self, bytes: u64) -> std::result::Result<Buffer, DeviceError> {
        let none = || DeviceError::Memory { bytes, source: std::io::ErrorKind::OutOfMemory.into() };
        self.left = self.left.checked_sub(bytes).ok_or_else(none)?;
        self.inner.allocate(bytes)
    }

    fn import(&mut self, source: Arc<dyn Source>) -> std::result::Result<Buffer, DeviceError> {
        self.inner.import(source)
    }

    fn free(&mut self, buffer: Buffer) -> std::result::Result<(), DeviceError> {
        self.inner.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> std::result::Result<Seq, DeviceError> {
        self.inner.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> std::result::Result<Response, DeviceError> {
        self.inner.wait(timeout)
    }

    fn reset(&mut self) -> std::result::Result<(), DeviceError> {
        self.inner.reset()
    }
}

/// A tensor: name, dimensions, type.
type Tensor = (String, Vec<u64>, GgmlType);

/// A small model, as the fields of its file.
pub struct Fields {
    numbers: Vec<(String, u32)>,
    floats: Vec<(String, f32)>,
    words: Vec<(String, String)>,
    tensors: Vec<Tensor>,
    /// Changes of the finished file.
    bytes: Vec<(u16, u8)>,
    keep: Option<u16>,
}

impl Default for Fields {
    /// Two layers, one of each kind.
    fn default() -> Self {
        let numbers = [
            ("block_count", 2),
            ("context_length", 64),
            ("embedding_length", 32),
            ("feed_forward_length", 32),
            ("vocab_size", 4),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 16),
            ("attention.value_length", 16),
            ("rope.dimension_count", 8),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 16),
            ("ssm.group_count", 1),
            ("ssm.time_step_rank", 2),
            ("ssm.inner_size", 32),
            ("full_attention_interval", 2),
            ("rope.scaling.original_context_length", 64),
        ];
        let floats = [
            ("attention.layer_norm_rms_epsilon", 1e-6),
            ("rope.freq_base", 1e7),
            ("rope.scaling.factor", 1.0),
        ];
        let words = [("general.architecture", "qwen35"), ("qwen35.rope.scaling.type", "none")];
        let tensors: &[(&str, &[u64])] = &[
            ("token_embd.weight", &[32, 4]),
            ("output_norm.weight", &[32]),
            ("blk.0.attn_norm.weight", &[32]),
            ("blk.0.post_attention_norm.weight", &[32]),
            ("blk.0.attn_qkv.weight", &[32, 64]),
            ("blk.0.attn_gate.weight", &[32, 32]),
            ("blk.0.ssm_beta.weight", &[32, 2]),
            ("blk.0.ssm_alpha.weight", &[32, 2]),
            ("blk.0.ssm_conv1d.weight", &[4, 64]),
            ("blk.0.ssm_a", &[2]),
            ("blk.0.ssm_dt.bias", &[2]),
            ("blk.0.ssm_norm.weight", &[16]),
            ("blk.0.ssm_out.weight", &[32, 32]),
            ("blk.0.ffn_gate.weight", &[32, 32]),
            ("blk.0.ffn_up.weight", &[32, 32]),
            ("blk.0.ffn_down.weight", &[32, 32]),
            ("blk.1.attn_norm.weight", &[32]),
            ("blk.1.post_attention_norm.weight", &[32]),
            ("blk.1.attn_q.weight", &[32, 64]),
            ("blk.1.attn_k.weight", &[32, 16]),
            ("blk.1.attn_v.weight", &[32, 16]),
            ("blk.1.attn_q_norm.weight", &[16]),
            ("blk.1.attn_k_norm.weight", &[16]),
            ("blk.1.attn_output.weight", &[32, 32]),
            ("blk.1.ffn_gate.weight", &[32, 32]),
            ("blk.1.ffn_up.weight", &[32, 32]),
            ("blk.1.ffn_down.weight", &[32, 32]),
        ];
        let matrix = |ne: &[u64]| if ne.len() == 2 && ne[0] == 32 { GgmlType::Q8_0 } else { GgmlType::F32 };
        Self {
            numbers: numbers.map(|(key, n)| (format!("qwen35.{key}"), n)).into(),
            floats: floats.map(|(key, x)| (format!("qwen35.{key}"), x)).into(),
            words: words.map(|(key, word)| (key.to_owned(), word.to_owned())).into(),
            tensors: tensors.iter().map(|(name, ne)| ((*name).to_owned(), ne.to_vec(), matrix(ne))).collect(),
            bytes: Vec::new(),
            keep: None,
        }
    }
}

impl Fields {
    /// Changes a field.
    fn change(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=9u8)? {
            0..=2 => {
                let number = any(u, &mut self.numbers)?;
                number.1 = match u.int_in_range(0..=3u8)? {
                    0 | 1 => u.arbitrary::<u8>()?.into(),
                    // Bounds are powers of two.
                    2 => (1u32 << u.int_in_range(0..=31u32)?).wrapping_sub(u.int_in_range(0..=1)?),
                    _ => u.arbitrary()?,
                };
            }
            3 => any(u, &mut self.floats)?.1 = u.arbitrary()?,
            4 => any(u, &mut self.words)?.1 = u.arbitrary::<&str>()?.to_owned(),
            5 => {
                let (_, ne, _) = any(u, &mut self.tensors)?;
                let axis = u.choose_index(ne.len())?;
                ne[axis] =
                    if u.ratio(7, 8)? { u.arbitrary::<u8>()?.into() } else { u.arbitrary::<u32>()?.into() };
            }
            6 => any(u, &mut self.tensors)?.2 = *u.choose(TILED)?,
            7 => {
                let i = u.choose_index(self.tensors.len())?;
                let tensor = self.tensors.swap_remove(i);
                if u.arbitrary()? {
                    self.tensors.push((u.arbitrary::<&str>()?.to_owned(), tensor.1, tensor.2));
                }
            }
            8 => self.keep = Some(u.arbitrary()?),
            _ => self.bytes.push((u.arbitrary()?, u.arbitrary()?)),
        }
        Ok(())
    }

    /// The file, as far as one can be written.
    pub fn file(&self) -> Vec<u8> {
        let mut w = GgufWriter::new();
        for (key, n) in &self.numbers {
            w.kv(key, *n);
        }
        for (key, x) in &self.floats {
            w.kv(key, *x);
        }
        for (key, word) in &self.words {
            w.kv(key, word.as_str());
        }
        for (name, ne, ty) in &self.tensors {
            let bytes = ty.tensor_bytes(ne).filter(|&n| n <= 1 << 20).unwrap_or(0);
            // What cannot be in a file is left out.
            let _ = w.tensor(name, *ty, ne, vec![0x11; bytes as usize]);
        }
        let mut file = Vec::new();
        let _ = w.write_to(&mut file);
        for &(at, value) in &self.bytes {
            file.get_mut(usize::from(at)).into_iter().for_each(|byte| *byte = value);
        }
        file.truncate(self.keep.map_or(usize::MAX, usize::from));
        file
    }
}

fn any<'a, T>(u: &mut Unstructured<'_>, of: &'a mut [T]) -> Result<&'a mut T> {
    let i = u.choose_index(of.len())?;
    Ok(&mut of[i])
}

/// Inputs of [`check`] to begin with: the small model, whole and to be changed.
pub fn files() -> Vec<Vec<u8>> {
    let whole =
        Fields { numbers: Fields::default().numbers[..3].to_vec(), tensors: Vec::new(), ..Fields::default() };
    vec![vec![1], [&[0][..], &whole.file()].concat()]
}
