//! What of a sequence's state later steps read.

use hexflash::engine::{Engine, EngineError, Sequence, SequenceId};
use hexflash::model::{Mixer, Queries, Scope};
use hexflash::testing::state_bytes;

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
        let n_ctx = engine.n_ctx() as usize;
        let mut parts = Vec::new();
        // The rows of a conv ring that the next token's taps meet.
        let ring = |at: u64, channels: u32, taps: u32| -> Vec<u8> {
            let (row, taps) = (4 * channels as usize, taps as usize);
            let history = n_past.saturating_sub(taps - 1)..n_past;
            history.flat_map(|p| bytes[at as usize + p % taps * row..][..row].to_vec()).collect()
        };
        for (layer, block) in engine.config().layers.iter().enumerate() {
            let place = |name: &str| {
                let kept = engine.kept().place(&Scope::TARGET.layer(layer).label(name));
                kept.offset + slot as u64 * kept.slot_bytes(n_slots)
            };
            match &block.mixer {
                // Its caches are another layer's.
                Mixer::Attention(a) if matches!(a.queries, Queries::Alone(_)) => {}
                Mixer::Attention(a) => {
                    let (k, v) = (place("cache_k"), place("cache_v"));
                    // Tiles of 32 positions: per pair of values a vector, in which each position has a word.
                    let (pairs, heads) = (a.key_dim as usize / 2, a.n_head_kv as usize);
                    let mut keys = Vec::new();
                    let mut values = Vec::new();
                    for head in 0..heads {
                        for p in 0..n_past {
                            let strip = (head * n_ctx.div_ceil(32) + p / 32) * pairs * 128;
                            for pair in 0..pairs {
                                keys.extend(&bytes[k as usize + strip + pair * 128 + p % 32 * 4..][..4]);
                            }
                            let row = 2 * a.value_dim as usize;
                            values.extend(&bytes[v as usize + (head * n_ctx + p) * row..][..row]);
                        }
                    }
                    parts.push((format!("K cache of layer {layer}"), keys));
                    parts.push((format!("V cache of layer {layer}"), values));
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
