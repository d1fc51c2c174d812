//! Memory that outlives a step: caches, recurrent states, inputs and outputs.

use std::cell::Cell;

use hexflash_abi::DType;
use hexflash_abi::accept::{HEAD, SLOTS};
use hexflash_abi::registers::StepRegisters;

use super::{AttentionConfig, Config, DraftConfig, Mixer, Split};
use crate::record::{RecordError, packed_bytes};

/// Tokens of the widest step that may later be taken back in part (verify).
pub const MAX_VERIFY: u32 = 16;

/// Ids that may end a generation on the device.
pub use hexflash_abi::op::MAX_STOPS;

/// Words of a round's report.
pub const ROUND_WORDS: u32 = HEAD as u32 + MAX_VERIFY;

impl AttentionConfig {
    /// The K cache of a layer for `n_ctx` positions, tiled.
    pub(super) const fn k_cache(&self, n_ctx: u32) -> (DType, [u32; 4]) {
        (DType::F16x32, [self.key_dim, n_ctx, self.n_head_kv, 1])
    }

    /// The V cache of a layer for `n_ctx` positions.
    pub(super) const fn v_cache(&self, n_ctx: u32) -> (DType, [u32; 4]) {
        (DType::F16, [self.value_dim, n_ctx, self.n_head_kv, 1])
    }

    /// The longest context whose caches programs can describe: the step from head to head has 32 bits.
    pub fn longest_context(&self) -> u32 {
        let fits = |n_ctx| {
            let caches = [self.k_cache(n_ctx), self.v_cache(n_ctx)];
            caches.into_iter().all(|(dtype, ne)| packed_bytes(dtype, ne).is_ok())
        };
        // Halving the distance: the caches only grow with the context.
        let (mut most, mut step) = (0, 1u32 << 31);
        while step > 0 {
            if fits(most + step) {
                most += step;
            }
            step /= 2;
        }
        most
    }
}

/// Where a layer's state lies in the state buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// Full attention: K cache (tiled F16) and V cache (F16).
    Attention {
        /// First byte of the K cache, `{key_dim, n_ctx, n_head_kv}`.
        k: u64,
        /// First byte of the V cache, `{value_dim, n_ctx, n_head_kv}`.
        v: u64,
    },
    /// Linear attention: ring of raw convolution inputs, and S.
    Linear {
        /// First byte of the ring, `{channels, ring_rows}`.
        ring: u64,
        /// First byte of S, `{state, state, n_head_v}`.
        state: u64,
    },
}

/// The caches and states of all layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLayout {
    /// Per layer of the trunk, as if all parts were one.
    pub layers: Vec<LayerState>,
    /// Positions of every cache.
    pub n_ctx: u32,
    /// Rows of a convolution ring: as many as it has taps.
    pub ring_rows: u32,
    /// Bytes of KV caches.
    pub kv_bytes: u64,
    /// Bytes of recurrent state and rings.
    pub recurrent_bytes: u64,
    /// First byte of each session's part, which is a buffer of its own.
    pub parts: Vec<u64>,
}

impl StateLayout {
    /// The state of `config` for `n_ctx` positions, in sessions as `split` says.
    ///
    /// # Errors
    /// A cache is larger than programs can describe: see [`AttentionConfig::longest_context`].
    pub fn new(config: &Config, n_ctx: u32, split: &Split) -> Result<Self, RecordError> {
        let (a, l) = (&config.attention, &config.linear);
        let ring_rows = l.conv_kernel;
        let at = Cell::new(0);
        let (mut kv_bytes, mut recurrent_bytes) = (0, 0);
        let place = |(dtype, ne), total: &mut u64| -> Result<u64, RecordError> {
            let bytes = packed_bytes(dtype, ne)?.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            *total += bytes;
            Ok(at.replace(at.get() + bytes))
        };
        let f32 = |ne| (DType::F32, ne);
        let mut parts = vec![0];
        let layers = config
            .mixers
            .iter()
            .enumerate()
            .map(|(layer, mixer)| {
                if split.begins(layer) {
                    parts.push(at.get());
                }
                Ok(match mixer {
                    Mixer::Full => LayerState::Attention {
                        k: place(a.k_cache(n_ctx), &mut kv_bytes)?,
                        v: place(a.v_cache(n_ctx), &mut kv_bytes)?,
                    },
                    Mixer::Linear => LayerState::Linear {
                        ring: place(f32([l.channels(), ring_rows, 1, 1]), &mut recurrent_bytes)?,
                        state: place(f32([l.state, l.state, l.n_head_v, 1]), &mut recurrent_bytes)?,
                    },
                })
            })
            .collect::<Result<_, RecordError>>()?;
        Ok(Self { layers, n_ctx, ring_rows, kv_bytes, recurrent_bytes, parts })
    }

    /// Where a byte is: the session, and the place in its part.
    pub fn home(&self, at: u64) -> (usize, u64) {
        let session = self.parts.partition_point(|&start| start <= at) - 1;
        (session, at - self.parts[session])
    }

    /// Bytes of each session's part.
    pub fn part_bytes(&self) -> impl Iterator<Item = u64> {
        let ends = self.parts[1..].iter().copied().chain([self.bytes()]);
        self.parts.iter().zip(ends).map(|(start, end)| end - start)
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.kv_bytes + self.recurrent_bytes
    }
}

/// Features of plain steps that the draft has yet to read: as many tokens at most.
pub const MAX_PENDING: u32 = 32;

/// Where the factor tape of a linear layer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapePlace {
    /// First byte of the keys, `{state, n_head_k, MAX_VERIFY}`.
    pub k: u64,
    /// First byte of the deltas, `{state, n_head_v, MAX_VERIFY}`.
    pub delta: u64,
    /// First byte of the log decays, `{1, n_head_v, MAX_VERIFY}`.
    pub g: u64,
    /// First byte of the convolution's inputs, `{channels, MAX_VERIFY}`, behind the activations: between two rounds
    /// nothing else uses the memory that prefill needs.
    pub x: u64,
}

/// What a draft model keeps on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftPlaces {
    /// First bytes of the K and V cache of each layer.
    pub kv: Vec<(u64, u64)>,
    /// The block to verify: anchor, then drafts, I32 `{1 + MAX_VERIFY}`.
    pub block: u64,
    /// The block to draft from: anchor, then masks, I32 `{MAX_VERIFY}`.
    pub noise: u64,
    /// 1, 2, .., I32 `{MAX_VERIFY}`: rows of the block that are drafts.
    pub rows: u64,
    /// Target ids of a reduced head, I32 `{1, rows}`.
    pub d2t: Option<u64>,
    /// Taps that wait to be read, F32 `{tap width, MAX_PENDING}`.
    pub pending: u64,
}

/// The buffer that speculation adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecLayout {
    /// Tape per layer of the trunk; `None` for full attention.
    pub tapes: Vec<Option<TapePlace>>,
    /// The draft model's, if there is one.
    pub draft: Option<DraftPlaces>,
    /// Bytes of factor tapes.
    pub tape_bytes: u64,
    /// Bytes of tapes behind the activations.
    pub kept_bytes: u64,
    /// Bytes of the draft's KV cache.
    pub draft_kv_bytes: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl SpecLayout {
    /// What `target` needs for speculation over `n_ctx` positions, with `draft` if there is one.
    ///
    /// # Errors
    /// As [`StateLayout::new`].
    pub fn new(target: &Config, draft: Option<&DraftConfig>, n_ctx: u32) -> Result<Self, RecordError> {
        let padded = |dtype, ne| -> Result<u64, RecordError> {
            Ok(packed_bytes(dtype, ne)?.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64))
        };
        let mut at = 0;
        let mut place = |(dtype, ne), total: &mut u64| -> Result<u64, RecordError> {
            let bytes = padded(dtype, ne)?;
            *total += bytes;
            at += bytes;
            Ok(at - bytes)
        };
        let (mut tape_bytes, mut kept_bytes, mut draft_kv_bytes, mut rest) = (0, 0, 0, 0);
        let l = &target.linear;
        let mut tape = |heads, width| place((DType::F32, [width, heads, MAX_VERIFY, 1]), &mut tape_bytes);
        let tapes = target
            .mixers
            .iter()
            .map(|mixer| {
                if *mixer == Mixer::Full {
                    return Ok(None);
                }
                let x = kept_bytes;
                kept_bytes += padded(DType::F32, [l.channels(), MAX_VERIFY, 1, 1])?;
                Ok(Some(TapePlace {
                    k: tape(l.n_head_k, l.state)?,
                    delta: tape(l.n_head_v, l.state)?,
                    g: tape(l.n_head_v, 1)?,
                    x,
                }))
            })
            .collect::<Result<_, RecordError>>()?;
        let mut places = |d: &DraftConfig| -> Result<DraftPlaces, RecordError> {
            let a = &d.attention;
            let kv = d.windows.iter().map(|_| {
                let k = place(a.k_cache(n_ctx), &mut draft_kv_bytes)?;
                Ok((k, place(a.v_cache(n_ctx), &mut draft_kv_bytes)?))
            });
            let kv = kv.collect::<Result<_, RecordError>>()?;
            let mut ints = |n| place((DType::I32, [n, 1, 1, 1]), &mut rest);
            Ok(DraftPlaces {
                kv,
                block: ints(1 + MAX_VERIFY)?,
                noise: ints(MAX_VERIFY)?,
                rows: ints(MAX_VERIFY)?,
                d2t: d.d2t.as_ref().map(|ids| ints(ids.len() as u32)).transpose()?,
                pending: place((DType::F32, [d.tap_width(target), MAX_PENDING, 1, 1]), &mut rest)?,
            })
        };
        let draft = draft.map(&mut places).transpose()?;
        Ok(Self { tapes, draft, tape_bytes, kept_bytes, draft_kv_bytes, bytes: at })
    }
}

/// The buffer that host and device hand inputs and outputs over in; byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLayout {
    /// Token ids, I32 `{max_tokens}`.
    pub tokens: u64,
    /// Row of the step whose logits are wanted, I32 `{1}`, where a program gives only one row.
    pub row: u64,
    /// Best token per row of logits, I32 `{rows}`.
    pub argmax: u64,
    /// Logits, F32 `{n_vocab, rows}`.
    pub logits: u64,
    /// Residual stream at the taps, F32 `{n_embd, max_tokens}` each.
    pub taps: u64,
    /// Ids that end a generation, I32 `{MAX_STOPS}`, padded with -1.
    pub stops: u64,
    /// How sure a draft is of each token, F32 `{MAX_VERIFY}`: how far its logit is above all others.
    pub margins: u64,
    /// What rounds tell, I32 `{ROUND_WORDS, SLOTS}` (see [`hexflash_abi::accept`]).
    pub rounds: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl IoLayout {
    /// Registers lie at the start.
    pub const REGISTERS: u64 = 0;

    /// A layout for steps of up to `max_tokens` tokens with `taps` taps.
    pub fn new(config: &Config, max_tokens: u32, taps: usize) -> Self {
        let mut at = size_of::<StepRegisters>() as u64;
        let mut place = |bytes: u64| {
            let start = at.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            at = start + bytes;
            start
        };
        let tokens = place(4 * u64::from(max_tokens));
        let row = place(4);
        let argmax = place(4 * u64::from(MAX_VERIFY));
        let logits = place(4 * u64::from(MAX_VERIFY) * u64::from(config.n_vocab));
        let taps = place(4 * u64::from(config.n_embd) * u64::from(max_tokens) * taps as u64);
        let stops = place(4 * u64::from(MAX_STOPS));
        let rounds = place(4 * u64::from(ROUND_WORDS) * SLOTS as u64);
        let margins = place(4 * u64::from(MAX_VERIFY));
        Self { tokens, row, argmax, logits, taps, stops, margins, rounds, bytes: at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RopeConfig;

    #[test]
    fn the_longest_context_is_the_last_one_whose_caches_can_be_described() {
        let rope = RopeConfig { n_dims: 2, freq_base: 1e4, freq_scale: 1.0, ext_factor: 0.0, n_ctx_orig: 1 };
        for (key_dim, value_dim) in [(64, 64), (33, 512), (512, 1), (2, 2)] {
            let attention =
                AttentionConfig { n_head: 4, n_head_kv: 2, key_dim, value_dim, rope: rope.clone() };
            let longest = attention.longest_context();
            let fits = |n_ctx| {
                let caches = [attention.k_cache(n_ctx), attention.v_cache(n_ctx)];
                caches.map(|(dtype, ne)| packed_bytes(dtype, ne).is_ok()) == [true; 2]
            };
            assert!(
                longest > 1 << 21 && fits(longest) && !fits(longest + 1),
                "{key_dim} {value_dim}: {longest}"
            );
            // A single head is a single matrix, which may be of any size.
            assert_eq!(AttentionConfig { n_head_kv: 1, ..attention }.longest_context(), u32::MAX);
        }
    }
}
