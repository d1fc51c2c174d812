//! What of a sequence's state later steps read.

use hexflash::engine::{Engine, EngineError, Sequence, SequenceId};
use hexflash::model::{Mixer, Queries, Scope};
use hexflash::testing::state_bytes;
use hexflash_abi::DType;

/// The parts of caches, rings and states that count at some position: all that any later step reads.
#[derive(Clone, PartialEq)]
pub struct Snapshot {
    /// Position.
    pub n_past: usize,
    /// Bytes by what and where they are.
    parts: Vec<(String, Vec<u8>)>,
    /// Logits of the last step's row 0.
    logits: Vec<u32>,
}

impl Snapshot {
    /// The state of the first sequence after a plain step, which has left nothing on the tape.
    pub fn of(engine: &mut Engine) -> Self {
        Self::of_sequence(engine, SequenceId::FIRST)
    }

    /// The state of a sequence after a plain step of it, which has left nothing on the tape.
    ///
    /// # Panics
    /// If the engine has no such sequence, or if the step was not the last one.
    pub fn of_sequence(engine: &mut Engine, id: SequenceId) -> Self {
        let bytes = state_bytes(engine);
        let n_slots = engine.sequences().len() as u32;
        let slot = engine.sequences().position(|other| other == id).unwrap_or_else(|| panic!("no {id}"));
        let mut sequence = engine.sequence(id).unwrap_or_else(|error| panic!("{error}"));
        let n_past = sequence.n_past() as usize;
        let logits = sequence.logits(0).iter().map(|x| x.to_bits()).collect();
        let mut parts = Vec::new();
        // The rows of a conv ring that the next token's taps meet.
        let ring = |at: u64, channels: u32, taps: u32| -> Vec<u8> {
            let (row, taps) = (4 * channels as usize, taps as usize);
            let history = n_past.saturating_sub(taps - 1)..n_past;
            history.flat_map(|p| bytes[at as usize + p % taps * row..][..row].to_vec()).collect()
        };
        for (layer, block) in engine.config().layers.iter().enumerate() {
            let kept = |name: &str| engine.kept().place(&Scope::TARGET.layer(layer).label(name));
            let place = |name: &str| kept(name).offset + slot as u64 * kept(name).slot_bytes(n_slots);
            match &block.mixer {
                // Its caches are another layer's.
                Mixer::Attention(a) if matches!(a.queries, Queries::Alone(_)) => {}
                Mixer::Attention(a) => {
                    for (name, width) in [("cache_k", a.key_dim), ("cache_v", a.value_dim)] {
                        let cache = Cache {
                            bytes: &bytes[place(name) as usize..],
                            dtype: kept(name).dtype,
                            width: width as usize,
                            n: kept(name).ne[1] as usize,
                            keys: name == "cache_k",
                        };
                        let seen = match a.window as usize {
                            0 => 0..n_past,
                            window => n_past.saturating_sub(window)..n_past,
                        };
                        let heads = 0..a.n_head_kv as usize;
                        let places = heads.flat_map(|head| seen.clone().map(move |p| (head, p)));
                        let rows = places.flat_map(|(head, p)| cache.row(head, p)).collect();
                        parts.push((format!("{name} of layer {layer}"), rows));
                    }
                }
                Mixer::DeltaNet(l) => {
                    let rows = ring(place("conv_ring"), l.channels(), l.conv_kernel);
                    parts.push((format!("ring of layer {layer}"), rows));
                    let state = place("state");
                    let size = 4 * (l.state * l.state * l.n_head_v) as usize;
                    parts.push((
                        format!("recurrent state of layer {layer}"),
                        bytes[state as usize..][..size].to_vec(),
                    ));
                }
                Mixer::ShortConv(l) => {
                    let rows = ring(place("conv_ring"), l.n_embd, l.taps);
                    parts.push((format!("ring of layer {layer}"), rows));
                }
            }
        }
        Self { n_past, parts, logits }
    }

    /// Fails with what differs.
    ///
    /// # Panics
    /// That is how it fails.
    pub fn assert_same(&self, other: &Self, what: &str) {
        assert_eq!(self.n_past, other.n_past, "{what}: position");
        for ((name, a), (_, b)) in self.parts.iter().zip(&other.parts) {
            if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
                panic!("{what}: the {name} differs from byte {at} of {}", a.len());
            }
        }
        assert!(self == other, "{what}: the logits differ");
    }

    /// Bytes compared.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.len()).sum::<usize>() + 4 * self.logits.len()
    }
}

/// A cache of one sequence.
struct Cache<'b> {
    bytes: &'b [u8],
    dtype: DType,
    width: usize,
    /// Its positions: fewer than the context's if it is a KV ring.
    n: usize,
    /// Whether it holds keys, and not values.
    keys: bool,
}

impl Cache<'_> {
    /// What it holds for a head at a position.
    fn row(&self, head: usize, p: usize) -> Vec<u8> {
        let Self { bytes, dtype, width, n, keys } = *self;
        let p = p % n;
        let Some(group) = dtype.tile_group() else {
            let row = width * dtype.element_bytes().unwrap_or(0);
            return bytes[(head * n + p) * row..][..row].to_vec();
        };
        let strip = &bytes[(head * n.div_ceil(32) + p / 32) * group.strip_bytes(width)..];
        let r = p % 32;
        // Keys and scales: a word of each vector.
        let words = |from: &[u8], vectors: usize| -> Vec<u8> {
            (0..vectors).flat_map(|v| from[v * 128 + r * 4..][..4].to_vec()).collect()
        };
        if keys {
            return words(strip, group.strip_bytes(width) / 128);
        }
        // Values: a code of each word of a vector per tile of 32 dimensions.
        let mut row = Vec::new();
        for (group, strip) in strip.chunks_exact(group.bytes).enumerate().take(group.count(width)) {
            match dtype {
                DType::Q8_0Cache => {
                    for tile in strip.chunks_exact(1024) {
                        row.extend(tile[r / 4 * 128..][..128].iter().skip(r % 4).step_by(4));
                    }
                    row.extend(words(&strip[2 * 1024..], 1));
                }
                DType::Q4RCache => {
                    let byte = r % 2 * 2 + r % 4 / 2;
                    let codes = strip[r / 8 * 128..][..128].iter().skip(byte).step_by(4);
                    row.extend(codes.map(|byte| byte >> (r % 8 / 4 * 4) & 15));
                }
                other => panic!("values in {other}, group {group}"),
            }
        }
        row.extend(words(&strip[group.count(width) * group.bytes..], group.tail / 128));
        row
    }
}

/// Writes `text` into an empty sequence in steps of every kind: a prompt of `prompt` tokens, plain steps, and
/// blocks of which a part is kept, with a snapshot before each of them.
///
/// # Panics
/// If a step fails.
pub fn write_with_snapshots(sequence: &mut Sequence<'_>, text: &[u32], prompt: usize) {
    let all = |outcome: Result<(), EngineError>| outcome.unwrap_or_else(|error| panic!("{error}"));
    all(sequence.prefill(&text[..prompt], |_| ()));
    while (sequence.n_past() as usize) < text.len() {
        let at = sequence.n_past() as usize;
        let saved = sequence.save().unwrap_or_else(|error| panic!("{error}"));
        assert!(saved as usize <= at);
        if at.is_multiple_of(3) {
            let block = (at + 9).min(text.len());
            all(sequence.verify(&text[at..block]));
            all(sequence.commit((block - at).min(7) as u32));
        } else {
            all(sequence.decode(text[at]));
        }
    }
}
