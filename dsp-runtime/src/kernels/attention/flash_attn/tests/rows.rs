//! ATTEND: the bits of FLASH_ATTN_EXT over caches that hold the same, however the rows lie; and rows of Q8_0
//! give the bits of rows of F16 that hold the same.

use std::ops::Range;

use hexflash_abi::op::params;

use super::by_hmx::large;
use super::*;

/// Halves beyond each row, which nobody may see.
const GAP: usize = 3;

/// d of block `block` of a row, a power of two, so that products with codes are f16.
fn d_of(block: usize) -> f32 {
    1.0 / (64 << (block % 3)) as f32
}

/// The codes of a block.
fn codes(block: usize, x: &[f32]) -> impl Iterator<Item = i8> {
    x.iter().map(move |x| (x / d_of(block)).round().clamp(-127.0, 127.0) as i8)
}

/// A row as halves in memory.
fn halves(dtype: DType, row: &[f32]) -> Vec<u16> {
    if dtype == DType::F16 {
        return row.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
    }
    let mut bytes = Vec::new();
    for (block, x) in row.chunks_exact(32).enumerate() {
        bytes.extend(f16::from_f32(d_of(block)).to_le_bytes());
        bytes.extend(codes(block, x).map(|q| q as u8));
    }
    bytes.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])).collect()
}

/// Rows of `width` as Q8_0 holds them.
fn rounded(rows: &[f32], width: usize) -> Vec<f32> {
    let blocks = rows.chunks_exact(32).enumerate().map(|(i, x)| (i % (width / 32), x));
    blocks.flat_map(|(block, x)| codes(block, x).map(move |q| d_of(block) * f32::from(q))).collect()
}

/// Where ATTEND finds keys and values, and their types.
pub(super) struct Rows {
    pub inputs: Inputs,
    pub types: [DType; 2],
}

impl Case {
    /// Keys or values of `width` {width,n,hk,b} as rows of one position's heads, which is how ggml's caches
    /// have them; poison where the mask hides them, and between.
    fn in_rows(&self, batch: &mut Batch, dtype: DType, values: &[f32], width: usize) -> TensorIndex {
        let (n, heads, stride) = (self.end(), self.kv_heads, dtype.row_bytes(width) / 2 + GAP);
        let mut all = vec![POISON; stride * heads * n * self.sequences];
        for (i, row) in values.chunks_exact(width).enumerate() {
            if self.ever_seen(i / heads % n) {
                let row = halves(dtype, row);
                all[i * stride..][..row.len()].copy_from_slice(&row);
            }
        }
        let ne = [stride, heads, n, self.sequences].map(|n| n as u32);
        let whole = batch.tensor(DType::F16, ne);
        batch.write(whole, all.as_bytes());
        batch.view(whole, |t| {
            t.ne = [width as u32, ne[2], ne[1], ne[3]];
            t.nb.swap(1, 2);
            t.dtype = dtype.wire();
            t.nb[0] = dtype.row_block().unwrap().bytes as u32;
        })
    }

    /// y {dv,h,t,b} of some tokens, over all keys.
    fn attend(&self, setup: Setup, tokens: Range<usize>, rows: &Rows) -> Vec<f32> {
        self.attend_counted(setup, tokens, rows).0
    }

    /// The same, and bytes that went through DMA.
    pub(super) fn attend_counted(&self, setup: Setup, tokens: Range<usize>, rows: &Rows) -> (Vec<f32>, u64) {
        let &Case { d, dv, sequences, .. } = self;
        let (inputs, heads, n, t) = (&rows.inputs, self.heads(), self.end(), tokens.len());
        let mut batch = Batch::new(1, 1);
        if self.fast {
            batch = batch.fast();
        }
        let ne = |a: usize, b: usize, c: usize| [a as u32, b as u32, c as u32, sequences as u32];
        let of_sequence = inputs.q.chunks_exact(d * heads * self.tokens);
        let q: Vec<f32> =
            of_sequence.flat_map(|q| &q[tokens.start * d * heads..tokens.end * d * heads]).copied().collect();
        let q = batch.f32(ne(d, heads, t), &q);
        let [keys, values] = rows.types;
        let k = self.in_rows(&mut batch, keys, &inputs.k, d);
        let v = self.in_rows(&mut batch, values, &inputs.v, dv);
        let mut src = vec![q, k, v, TensorIndex::NONE, TensorIndex::NONE];
        if self.mask_heads > 0 {
            let whole = [n, self.tokens, self.mask_heads, 1].map(|n| n as u32);
            src[3] = batch.tensor(DType::F16, whole);
            let bits: Vec<_> = inputs.mask.iter().map(|x| x.to_bits()).collect();
            batch.write(src[3], bits.as_bytes());
            src[3] = batch.view(src[3], |mask| {
                mask.offset += u64::from(mask.nb[1]) * tokens.start as u64;
                mask.ne[1] = t as u32;
            });
        }
        if self.sinks {
            src[4] = batch.f32([heads as u32, 1, 1, 1], &inputs.sinks);
        }
        let y = batch.f32(ne(dv, heads, t), &vec![f32::NAN; dv * heads * t * sequences]);
        let params = params::Attend { scale: self.scale(), softcap: self.softcap, max_bias: self.max_bias };
        batch.run(setup, Op::Attend, &src, &[y], &params, StepRegisters::step(0, 1)).unwrap();
        (batch.floats(y), batch.moved)
    }

    /// Against caches, and each token alone.
    pub(super) fn attends_as_over_caches(&self) {
        let case = Case { visibility: Visibility::Block, append: false, ..*self };
        let in_rows = Rows { inputs: case.inputs(), types: [DType::F16; 2] };
        let rows = everywhere(|setup| case.attend(setup, 0..case.tokens, &in_rows));
        let error = nmse(&rows, &case.expected());
        assert!(error <= OTHER_ROUNDING, "{case:?}: {error}");
        let caches = everywhere(|setup| case.run(setup, &[case.tokens]));
        assert_eq!(rows.as_bytes(), caches.as_bytes(), "{case:?}");
        let row = case.dv * case.heads();
        for t in (0..case.tokens).step_by(5) {
            let alone = case.attend(setups()[0], t..t + 1, &in_rows);
            for (b, alone) in alone.chunks_exact(row).enumerate() {
                let together = &rows[(b * case.tokens + t) * row..][..row];
                assert_eq!(alone.as_bytes(), together.as_bytes(), "{case:?} token {t}");
            }
        }
    }
}

impl Case {
    /// By the matrix unit: the bits of its attention over caches, others than without it.
    pub(super) fn attends_by_unit(&self) {
        let case = Case { visibility: Visibility::Block, append: false, fast: true, ..*self };
        let in_rows = Rows { inputs: case.inputs(), types: [DType::F16; 2] };
        let rows = everywhere(|setup| case.attend(large(setup), 0..case.tokens, &in_rows));
        let error = nmse(&rows, &case.expected());
        assert!(error <= 3e-7, "{case:?}: {error}");
        let caches = case.run(large(setups()[0]), &[case.tokens]);
        assert_eq!(rows.as_bytes(), caches.as_bytes(), "{case:?}");
        let exact = Case { fast: false, ..case }.attend(setups()[0], 0..case.tokens, &in_rows);
        assert_ne!(rows, exact, "{case:?}");
    }
}

impl Case {
    /// Of what Q8_0 holds, f16 has each number, so that all results are the same.
    fn attends_to_blocks(&self) {
        let case = Case { visibility: Visibility::Block, append: false, ..*self };
        let inputs = || {
            let Inputs { q, k, v, mask, sinks } = case.inputs();
            Inputs { q, k: rounded(&k, case.d), v: rounded(&v, case.dv), mask, sinks }
        };
        let of = |setup, types| case.attend(setup, 0..case.tokens, &Rows { inputs: inputs(), types });
        let want = of(setups()[0], [DType::F16; 2]);
        assert!(want.iter().all(|y| y.is_finite()), "{case:?}");
        for types in [[DType::Q8_0, DType::Q8_0], [DType::Q8_0, DType::F16], [DType::F16, DType::Q8_0]] {
            let got = everywhere(|setup| of(setup, types));
            assert_eq!(got.as_bytes(), want.as_bytes(), "{case:?} {types:?}");
        }
    }
}

#[test]
fn blocks_give_the_bits_of_f16() {
    for d in [32, 64, 96, 128, 192, 256, 512] {
        Case { d, dv: d, ..CASE }.attends_to_blocks();
        Case { d, dv: 96, tokens: 1, mask_heads: 1, ..CASE }.attends_to_blocks();
    }
    for n_past in [0, 26, 27, 28, 59, 95, 700] {
        Case { n_past, mask_heads: 1, ..CASE }.attends_to_blocks();
    }
    for (kv_heads, group, sequences) in [(1, 1, 1), (3, 1, 2), (2, 4, 2), (1, 6, 3)] {
        Case { kv_heads, group, sequences, tokens: 40, softcap: 5.0, sinks: true, ..CASE }
            .attends_to_blocks();
    }
}

#[test]
fn rows_give_the_bits_of_caches() {
    for d in [1, 2, 16, 33, 64, 80, 96, 100, 128, 192, 256, 512] {
        Case { d, dv: d, ..CASE }.attends_as_over_caches();
        Case { d, dv: 32 + d % 32, tokens: 1, mask_heads: 1, ..CASE }.attends_as_over_caches();
    }
    for n_past in [0, 26, 27, 28, 59, 95] {
        Case { n_past, mask_heads: 1, ..CASE }.attends_as_over_caches();
    }
    for (kv_heads, group, sequences) in [(1, 1, 1), (3, 1, 2), (2, 4, 2), (1, 40, 1), (1, 6, 3)] {
        Case { kv_heads, group, sequences, tokens: 40, ..CASE }.attends_as_over_caches();
    }
}

#[test]
fn rows_by_the_matrix_unit() {
    for d in [2, 32, 40, 64, 72, 80, 96, 130, 192, 256] {
        Case { d, dv: d, tokens: 40, ..CASE }.attends_by_unit();
        Case { d, dv: 34 + d % 32, tokens: 17, mask_heads: 1, ..CASE }.attends_by_unit();
    }
    for (n_past, tokens) in [(0, 32), (26, 33), (216, 40), (530, 70)] {
        for (kv_heads, group, sequences) in [(1, 2, 1), (3, 2, 2), (1, 12, 1)] {
            Case { n_past, tokens, kv_heads, group, sequences, mask_heads: 1, ..CASE }.attends_by_unit();
        }
    }
    Case { tokens: 40, softcap: 5.0, sinks: true, mask_heads: 1, max_bias: 3.0, ..CASE }.attends_by_unit();
}

/// Rows that do not fit into a worker's VTCM, and such of Q8_0.
#[test]
fn other_rows_are_done_without_the_unit() {
    let unit = |case: Case, types| {
        let case = Case { visibility: Visibility::Block, append: false, tokens: 40, ..case };
        let rows = Rows { inputs: case.inputs(), types };
        let fast = Case { fast: true, ..case }.attend(large(setups()[0]), 0..40, &rows);
        fast != case.attend(large(setups()[0]), 0..40, &rows)
    };
    assert!(unit(Case { d: 256, ..CASE }, [DType::F16; 2]));
    for (d, types) in [(258, [DType::F16; 2]), (63, [DType::F16; 2]), (64, [DType::Q8_0; 2])] {
        assert!(!unit(Case { d, ..CASE }, types), "{d} {types:?}");
    }
    assert!(!unit(Case { dv: 63, ..CASE }, [DType::F16; 2]));
}

#[test]
fn rows_with_biases_caps_and_sinks() {
    for (kv_heads, group) in [(2, 2), (1, 3), (2, 3)] {
        let case = Case { kv_heads, group, n_past: 60, ..CASE };
        Case { mask_heads: case.heads(), ..case }.attends_as_over_caches();
        Case { mask_heads: 1, max_bias: 8.0, ..case }.attends_as_over_caches();
        Case { softcap: 5.0, sinks: true, mask_heads: 1, max_bias: 3.0, ..case }.attends_as_over_caches();
    }
}

/// Long enough for splits, which workers share.
#[test]
fn splits_of_rows() {
    for (n_past, tokens) in [(250, 3), (254, 1), (255, 1), (700, 2), (700, 40)] {
        let case = Case { kv_heads: 1, group: 4, n_past, tokens, ..CASE };
        case.attends_as_over_caches();
        Case { mask_heads: 1, sinks: true, ..case }.attends_as_over_caches();
    }
}

/// More queries than keys, which no cache has.
#[test]
fn more_queries_than_keys() {
    let (heads, t, n) = (2u32, 70u32, 5u32);
    let q = random(1, (64 * heads * t) as usize, -1.0, 1.0);
    let rows =
        |seed| random(seed, (64 * n) as usize, -1.0, 1.0).into_iter().map(|x| f16::from_f32(x).to_bits());
    let (keys, values): (Vec<_>, Vec<_>) = (rows(2).collect(), rows(3).collect());
    let attend = |setup, q: &[f32]| {
        let mut batch = Batch::new(1, 1);
        let t = q.len() as u32 / (64 * heads);
        let q = batch.f32([64, heads, t, 1], q);
        let [k, v] = [&keys, &values].map(|halves| {
            let rows = batch.tensor(DType::F16, [64, n, 1, 1]);
            batch.write(rows, halves.as_bytes());
            rows
        });
        let y = batch.f32([64, heads, t, 1], &vec![f32::NAN; (64 * heads * t) as usize]);
        let params = params::Attend { scale: 0.3, softcap: 0.0, max_bias: 0.0 };
        batch.run(setup, Op::Attend, &[q, k, v], &[y], &params, StepRegisters::step(0, 1)).unwrap();
        batch.floats(y)
    };
    let together = everywhere(|setup| attend(setup, &q));
    let alone: Vec<f32> =
        q.chunks_exact((64 * heads) as usize).flat_map(|q| attend(setups()[0], q)).collect();
    assert_eq!(together.as_bytes(), alone.as_bytes());
    assert!(together.iter().all(|y| y.is_finite()));
}
