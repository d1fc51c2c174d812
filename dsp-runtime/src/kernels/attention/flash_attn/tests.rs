//! Attention against its definition in f64, and bit for bit against itself. Caches are F16 here; `formats`
//! has the others, and `rows` and `band` have ATTEND.

mod band;
mod by_hmx;
mod formats;
mod rows;

use half::f16;
use hexflash_abi::op::Op;
use hexflash_abi::op::params::{FlashAttn, Visibility};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode, TensorIndex};
use zerocopy::IntoBytes;

use super::positions::TILE;
use super::state::LARGEST_WEIGHT;
use super::tuning::SPLIT;
use crate::testing::{Batch, Setup, everywhere, nmse, random, setups};

#[derive(Clone, Copy, Debug)]
struct Case {
    d: usize,
    dv: usize,
    kv_heads: usize,
    group: usize,
    sequences: usize,
    /// Positions in the cache before the first step.
    n_past: usize,
    tokens: usize,
    visibility: Visibility,
    window: usize,
    /// First position that queries see.
    first: usize,
    softcap: f32,
    max_bias: f32,
    /// Heads of the mask; 0 for no mask.
    mask_heads: usize,
    /// What a mask hides besides: positions of a token.
    hides: fn(token: usize, position: usize) -> bool,
    sinks: bool,
    /// Whether the op appends K and V, rather than finding them in the cache.
    append: bool,
    /// Whether the caches are rings, no longer than they must be.
    ring: bool,
    /// Whether the program is of the class `fast`, and the unit's kernel to be reached.
    fast: bool,
    /// Scores are a third of this, about.
    steepness: f32,
}

const CASE: Case = Case {
    d: 64,
    dv: 64,
    kv_heads: 2,
    group: 2,
    sequences: 1,
    n_past: 33,
    tokens: 5,
    visibility: Visibility::Causal,
    window: 0,
    first: 0,
    softcap: 0.0,
    max_bias: 0.0,
    mask_heads: 0,
    hides: |_, _| false,
    sinks: false,
    append: true,
    ring: false,
    fast: false,
    steepness: 3.0,
};

/// f16 bits of a NaN: what caches hold where nobody may look.
const POISON: u16 = 0x7e01;

struct Inputs {
    /// {d,h,T,b}
    q: Vec<f32>,
    /// {d,hk,n,b}
    k: Vec<f32>,
    /// {dv,hk,n,b}
    v: Vec<f32>,
    /// {n,T,h',1}
    mask: Vec<f16>,
    sinks: Vec<f32>,
}

/// Positions that the mask hides from every query, so that the cache may hold poison there.
fn buried(position: usize) -> bool {
    position % 7 == 3 || (64..96).contains(&position)
}

impl Case {
    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Positions in the end.
    fn end(&self) -> usize {
        self.n_past + self.tokens
    }

    fn scale(&self) -> f32 {
        // Steeper than usual, so that the softmax has something to do.
        self.steepness / (self.d as f32).sqrt()
    }

    fn inputs(&self) -> Inputs {
        let (n, b) = (self.end(), self.sequences);
        let mut mask: Vec<f16> =
            random(4, n * self.tokens * self.mask_heads, -2.0, 1.0).into_iter().map(f16::from_f32).collect();
        for (i, m) in mask.iter_mut().enumerate() {
            let (token, position) = (i / n % self.tokens, i % n);
            if buried(position) || i % 13 == 0 || (self.hides)(token, position) {
                *m = f16::NEG_INFINITY;
            }
        }
        Inputs {
            q: random(1, self.d * self.heads() * self.tokens * b, -1.0, 1.0),
            k: random(2, self.d * self.kv_heads * n * b, -1.0, 1.0),
            v: random(3, self.dv * self.kv_heads * n * b, -1.0, 1.0),
            mask,
            sinks: random(5, self.heads(), -2.0, 4.0),
        }
    }

    /// Whether any query sees a position that was in the cache at the start.
    fn ever_seen(&self, position: usize) -> bool {
        let windowed = self.window == 0 || position + self.window > self.n_past;
        let end = if self.visibility == Visibility::Past { self.n_past } else { self.end() };
        let seen = (self.first..end).contains(&position);
        seen && windowed && !(self.mask_heads > 0 && buried(position))
    }

    /// y {dv,h,T,b} of all tokens, fed in steps.
    fn run(&self, setup: Setup, steps: &[usize]) -> Vec<f32> {
        let &Case { d, dv, kv_heads, sequences, tokens, .. } = self;
        assert_eq!(steps.iter().sum::<usize>(), tokens);
        let (inputs, heads, n) = (self.inputs(), self.heads(), self.end());
        // Rows that the token axis cuts off, and a cache that ends amid a tile.
        let most = steps.iter().copied().max().unwrap() + 1;
        let n_ctx = n + 5;
        let room = if self.ring { (self.window + most - 1).next_multiple_of(32) } else { n_ctx };
        let mut batch = Batch::new(most as u32, n_ctx as u32);
        if self.fast {
            batch = batch.fast();
        }
        let ne = |a: usize, b: usize, c: usize, d: usize| [a as u32, b as u32, c as u32, d as u32];
        let tokened = |batch: &mut Batch, width: usize, heads: usize| {
            let whole = batch
                .f32(ne(width, heads, most, sequences), &vec![f32::NAN; width * heads * most * sequences]);
            batch.view(whole, |t| t.token_axis = 2)
        };
        let (q, y) = (tokened(&mut batch, d, heads), tokened(&mut batch, dv, heads));
        let (k, v) = (tokened(&mut batch, d, kv_heads), tokened(&mut batch, dv, kv_heads));
        let k_cache = batch.tensor(DType::F16x32, ne(d, room, kv_heads, sequences));
        let v_cache = batch.tensor(DType::F16, ne(dv, room, kv_heads, sequences));
        self.fill_caches(&mut batch, &inputs, k_cache, v_cache);
        let mut src = vec![
            q,
            k_cache,
            v_cache,
            TensorIndex::NONE,
            TensorIndex::NONE,
            TensorIndex::NONE,
            TensorIndex::NONE,
        ];
        if self.append {
            (src[3], src[4]) = (k, v);
        }
        if self.mask_heads > 0 {
            let whole = batch.tensor(DType::F16, ne(n_ctx, most, self.mask_heads, 1));
            src[5] = batch.view(whole, |t| t.token_axis = 1);
        }
        if self.sinks {
            src[6] = batch.f32(ne(heads, 1, 1, 1), &inputs.sinks);
        }
        let params = FlashAttn {
            scale: self.scale(),
            visibility: self.visibility.wire(),
            window: self.window as u32,
            softcap: self.softcap,
            max_bias: self.max_bias,
            first: self.first as u32,
        };
        let (mut out, mut done) = (vec![0.0; dv * heads * tokens * sequences], 0);
        for &count in steps {
            let mut feed = |index, values: &[f32], row: usize, at: usize, of: usize| {
                let mut part = vec![f32::NAN; row * most * sequences];
                for b in 0..sequences {
                    part[b * most * row..][..count * row]
                        .copy_from_slice(&values[(b * of + at) * row..][..count * row]);
                }
                batch.write(index, part.as_bytes());
            };
            feed(q, &inputs.q, d * heads, done, tokens);
            feed(k, &inputs.k, d * kv_heads, self.n_past + done, n);
            feed(v, &inputs.v, dv * kv_heads, self.n_past + done, n);
            if self.mask_heads > 0 {
                let mut part = vec![POISON; n_ctx * most * self.mask_heads];
                for (h, t) in (0..self.mask_heads).flat_map(|h| (0..count).map(move |t| (h, t))) {
                    let from = &inputs.mask[(h * tokens + done + t) * n..][..n];
                    let to = &mut part[(h * most + t) * n_ctx..][..n];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_bits());
                }
                batch.write(src[5], part.as_bytes());
            }
            let step = StepRegisters::step((self.n_past + done) as u32, count as u32);
            batch.run(setup, Op::FlashAttnExt, &src, &[y], &params, step).unwrap();
            let (row, part) = (dv * heads, batch.floats(y));
            for b in 0..sequences {
                let from = &part[b * most * row..];
                out[(b * tokens + done) * row..][..count * row].copy_from_slice(&from[..count * row]);
                assert!(
                    from[count * row..most * row].iter().all(|x| x.is_nan()) || done > 0,
                    "rows past the step"
                );
            }
            done += count;
        }
        out
    }

    /// Past positions, and with nothing to append all of them; poison wherever no query may look.
    fn fill_caches(&self, batch: &mut Batch, inputs: &Inputs, k_cache: TensorIndex, v_cache: TensorIndex) {
        let &Case { d, dv, kv_heads, .. } = self;
        let words = |batch: &Batch, index| vec![POISON; batch.read(index).len() / 2];
        let (mut ks, mut vs) = (words(batch, k_cache), words(batch, v_cache));
        let strides = |batch: &Batch, index| batch.desc(index).nb.map(|nb| nb as usize / 2);
        let (k_nb, v_nb) = (strides(batch, k_cache), strides(batch, v_cache));
        let room = batch.desc(v_cache).ne[1] as usize;
        let known = if self.append { self.n_past } else { self.end() };
        for b in 0..self.sequences {
            for p in (0..known).filter(|&p| self.ever_seen(p)) {
                for h in 0..kv_heads {
                    let row = (b * self.end() + p) * kv_heads + h;
                    let place = p % room;
                    let strip = place / 32 * k_nb[1] + h * k_nb[2] + b * k_nb[3];
                    for i in 0..d {
                        ks[strip + i / 2 * 64 + place % 32 * 2 + i % 2] =
                            f16::from_f32(inputs.k[row * d + i]).to_bits();
                    }
                    let at = place * v_nb[1] + h * v_nb[2] + b * v_nb[3];
                    for i in 0..dv {
                        vs[at + i] = f16::from_f32(inputs.v[row * dv + i]).to_bits();
                    }
                }
            }
        }
        batch.write(k_cache, ks.as_bytes());
        batch.write(v_cache, vs.as_bytes());
    }

    /// The definition, on q, K, V and weights as f16 has them.
    fn expected(&self) -> Vec<f32> {
        let &Case { d, dv, kv_heads, tokens, .. } = self;
        let (inputs, heads, n) = (self.inputs(), self.heads(), self.end());
        let rounded = |values: &[f32]| values.iter().map(|&x| f16::from_f32(x).to_f64()).collect::<Vec<_>>();
        let (k, v) = (rounded(&inputs.k), rounded(&inputs.v));
        let base = 1 << heads.ilog2();
        let mut y = Vec::new();
        for b in 0..self.sequences {
            for (t, h) in (0..tokens).flat_map(|t| (0..heads).map(move |h| (t, h))) {
                let q = query(&inputs.q[((b * tokens + t) * heads + h) * d..][..d]);
                let at = self.n_past + t;
                let slope = match (self.max_bias > 0.0, h < base) {
                    (false, _) => 1.0,
                    (_, true) => (-f64::from(self.max_bias) / base as f64 * (h + 1) as f64).exp2(),
                    _ => (-f64::from(self.max_bias) / 2.0 / base as f64 * (2 * (h - base) + 1) as f64).exp2(),
                };
                let end = match self.visibility {
                    Visibility::Causal => at + 1,
                    Visibility::Block => n,
                    Visibility::Past => self.n_past,
                    Visibility::Around if self.window > 0 => n.min(at + self.window),
                    Visibility::Around => n,
                };
                let row = |p: usize| (b * n + p) * kv_heads + h / self.group;
                let score = |p: usize| {
                    let dot: f64 = (0..d).map(|i| q[i] * k[row(p) * d + i]).sum();
                    let mut x = dot * f64::from(self.scale());
                    if self.softcap > 0.0 {
                        x = f64::from(self.softcap) * (x / f64::from(self.softcap)).tanh();
                    }
                    if self.mask_heads > 0 {
                        x += slope * inputs.mask[((h % self.mask_heads) * tokens + t) * n + p].to_f64();
                    }
                    (p, x)
                };
                let visible = (self.first..end).filter(|p| self.window == 0 || p + self.window > at);
                let scores: Vec<_> = visible.map(score).filter(|s| s.1 != f64::NEG_INFINITY).collect();
                let (weights, top) = weights(&scores);
                let sink = if self.sinks { (f64::from(inputs.sinks[h]) - top).exp() } else { 0.0 };
                let sum = weights.iter().map(|w| w.weight).sum::<f64>() + sink;
                y.extend((0..dv).map(|i| {
                    let value: f64 = weights.iter().map(|w| w.weight * v[row(w.position) * dv + i]).sum();
                    if scores.is_empty() { 0.0 } else { (value / sum) as f32 }
                }));
            }
        }
        y
    }

    fn check(&self, setup: Setup) {
        let error = nmse(&self.run(setup, &[self.tokens]), &self.expected());
        assert!(error <= OTHER_ROUNDING, "{self:?} {setup:?}: {error}");
    }
}

/// The largest NMSE: a weight that is an ulp of f32 from the middle between two f16 may become another one
/// than the definition's. That is one in thousands, and changes by 2^-11 of itself.
const OTHER_ROUNDING: f64 = 1e-8;

/// A query as f16 has it: numbers of this size need no scale.
fn query(q: &[f32]) -> Vec<f64> {
    q.iter().map(|&x| f16::from_f32(x).to_f64()).collect()
}

/// A position's weight.
struct Weight {
    position: usize,
    /// In units of that of the highest score.
    weight: f64,
    /// In units of that of the highest score of its split when its tile was at hand.
    in_tile: f64,
}

/// Weights of positions with their scores, and the highest score. They are rounded when their tile is at
/// hand.
fn weights(scores: &[(usize, f64)]) -> (Vec<Weight>, f64) {
    let highest = |scores: &[(usize, f64)], least| scores.iter().fold(least, |most: f64, s| most.max(s.1));
    let top = highest(scores, f64::NEG_INFINITY);
    let mut weights = Vec::new();
    for split in scores.chunk_by(|a, b| a.0 / SPLIT == b.0 / SPLIT) {
        let mut so_far = f64::NEG_INFINITY;
        for tile in split.chunk_by(|a, b| a.0 / TILE == b.0 / TILE) {
            so_far = highest(tile, so_far);
            for &(position, x) in tile {
                let largest = f64::from(LARGEST_WEIGHT);
                let in_tile = f16::from_f64((x - so_far).exp() * largest).to_f64() / largest;
                weights.push(Weight { position, weight: in_tile * (so_far - top).exp(), in_tile });
            }
        }
    }
    (weights, top)
}

#[test]
fn matches_the_definition() {
    for setup in setups() {
        for n_past in [0, 31, 32, 33, 95] {
            for tokens in [1, 2, 16, 40] {
                Case { n_past, tokens, ..CASE }.check(setup);
            }
        }
        for d in [1, 16, 32, 33, 80, 100, 128, 256, 512] {
            Case { d, dv: d, ..CASE }.check(setup);
            Case { d, dv: 32 + d % 32, tokens: 1, ..CASE }.check(setup);
        }
        for (kv_heads, group, sequences) in [(1, 1, 1), (3, 1, 2), (2, 4, 2), (1, 40, 1), (1, 6, 3)] {
            Case { kv_heads, group, sequences, ..CASE }.check(setup);
        }
    }
}

/// Every way to hide keys, with poison where nobody may look.
#[test]
fn hides_what_it_should() {
    for setup in setups() {
        for (n_past, tokens) in [(0, 1), (3, 2), (33, 5), (95, 16), (130, 40)] {
            let case = Case { n_past, tokens, ..CASE };
            for &visibility in Visibility::ALL {
                for window in [0, 1, 5, 32, 70] {
                    Case { window, visibility, ..case }.check(setup);
                }
                for first in [1, 34, 300] {
                    Case { visibility, first, window: 40, ..case }.check(setup);
                    Case { visibility, first, ..case }.check(setup);
                }
                Case { visibility, append: false, ..case }.check(setup);
                Case { visibility, mask_heads: 1, ..case }.check(setup);
                Case { visibility, mask_heads: 1, append: false, window: 40, sequences: 2, ..case }
                    .check(setup);
            }
        }
    }
}

#[test]
fn biases_caps_and_sinks() {
    for setup in setups() {
        for (kv_heads, group) in [(2, 2), (1, 3), (2, 3)] {
            let case = Case { kv_heads, group, n_past: 60, ..CASE };
            Case { mask_heads: case.heads(), ..case }.check(setup);
            Case { mask_heads: 1, max_bias: 8.0, ..case }.check(setup);
            Case { softcap: 2.0, ..case }.check(setup);
            Case { sinks: true, ..case }.check(setup);
            Case { softcap: 5.0, sinks: true, mask_heads: 1, max_bias: 3.0, window: 33, ..case }.check(setup);
        }
    }
}

/// A query that the mask leaves nothing: zeros, with and without sinks.
#[test]
fn nothing_visible_gives_zeros() {
    // Position 3 and everything before it is hidden by the window or buried by the mask.
    for sinks in [false, true] {
        let case = Case { n_past: 3, tokens: 1, window: 1, mask_heads: 1, sinks, ..CASE };
        for setup in setups() {
            assert!(case.run(setup, &[1]).iter().all(|&y| y == 0.0));
        }
    }
}

/// The same bits from every setup, however the tokens are grouped into steps.
#[test]
fn grouping_does_not_matter() {
    let all = Case { mask_heads: 1, sinks: true, softcap: 4.0, window: 45, ..CASE };
    let cases = [
        Case { tokens: 16, n_past: 0, d: 32, dv: 48, ..CASE },
        Case { tokens: 16, n_past: 20, group: 4, ..CASE },
        Case { tokens: 16, n_past: 50, d: 256, dv: 256, kv_heads: 1, group: 3, sequences: 2, ..CASE },
        Case { tokens: 16, n_past: 90, ..all },
    ];
    let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for case in cases {
        let whole = bits(case.run(setups()[0], &[16]));
        for setup in setups() {
            for steps in [&[16][..], &[1; 16], &[5, 3, 8], &[1, 2, 13]] {
                assert_eq!(bits(case.run(setup, steps)), whole, "{case:?} {setup:?} {steps:?}");
            }
            // Fewer rows per unit, which is all that fits.
            let tight = Setup { vtcm_bytes: 128 << 10, workers: 1, ..setup };
            assert_eq!(bits(case.run(tight, &[16])), whole, "{case:?} {tight:?}");
        }
    }
}

/// A long context has splits, which one worker does or several: a step of few rows has a unit for each.
#[test]
fn splits_give_the_same_bits_to_whoever_does_them() {
    for (kv_heads, group) in [(1, 4), (2, 1)] {
        for (n_past, window) in [(254, 0), (255, 0), (300, 0), (700, 0), (700, 300), (510, 2)] {
            for &visibility in Visibility::ALL {
                let case = Case { kv_heads, group, n_past, window, visibility, tokens: 3, ..CASE };
                let case = Case { sinks: n_past == 300, ..case };
                let at_once = everywhere(|setup| case.run(setup, &[3]));
                assert!(nmse(&at_once, &case.expected()) <= OTHER_ROUNDING, "{case:?}");
                if visibility == Visibility::Causal {
                    assert_eq!(everywhere(|setup| case.run(setup, &[1, 1, 1])), at_once, "{case:?}");
                }
            }
        }
    }
}

/// A ring gives the bits of a cache that holds the whole context, wherever in it a step begins.
#[test]
fn rings_give_the_bits_of_whole_caches() {
    let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for n_past in [0, 31, 64, 95, 130, 1000] {
        for (window, visibility) in [
            (1, Visibility::Causal),
            (33, Visibility::Causal),
            (64, Visibility::Block),
            (20, Visibility::Past),
            (40, Visibility::Around),
        ] {
            for (d, sequences, mask_heads) in [(64, 1, 0), (33, 2, 1)] {
                let whole = Case { n_past, window, visibility, d, dv: d, sequences, mask_heads, ..CASE };
                let whole = Case { tokens: 16, ..whole };
                // All of a step is visible to a block, and nothing to those that see the past, so that its
                // steps cannot be other ones.
                let steps: &[&[usize]] = match visibility {
                    Visibility::Causal => &[&[16], &[1; 16], &[5, 3, 8]],
                    Visibility::Block | Visibility::Past | Visibility::Around => &[&[16]],
                };
                for setup in setups() {
                    for steps in steps {
                        let [ring, whole] =
                            [true, false].map(|ring| bits(Case { ring, ..whole }.run(setup, steps)));
                        assert_eq!(ring, whole, "{n_past} {window} {d} {setup:?} {steps:?}");
                    }
                }
            }
        }
    }
}

/// A mask with stride 0 serves every token: each must read its own part of the shared row.
#[test]
fn tokens_may_share_a_mask_row() {
    let run = |setup, shared: bool| {
        let (n_ctx, t) = (48, 9);
        let mut batch = Batch::new(t, n_ctx);
        let q = batch.f32([32, 1, t, 1], &random(1, 32 * t as usize, -1.0, 1.0));
        let k_cache = batch.tensor(DType::F16x32, [32, n_ctx, 1, 1]);
        let v_cache = batch.tensor(DType::F16, [32, n_ctx, 1, 1]);
        let values = random(2, 32 * n_ctx as usize, -1.0, 1.0);
        let halves: Vec<_> = values.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        batch.write(v_cache, halves.as_bytes());
        let row: Vec<_> =
            values[..n_ctx as usize].iter().map(|&x| f16::from_f32(3.0 * x).to_bits()).collect();
        let mask = if shared {
            let one = batch.tensor(DType::F16, [n_ctx, 1, 1, 1]);
            batch.write(one, row.as_bytes());
            batch.view(one, |desc| (desc.ne[1], desc.nb[1]) = (t, 0))
        } else {
            let all = batch.tensor(DType::F16, [n_ctx, t, 1, 1]);
            batch.write(all, row.repeat(t as usize).as_bytes());
            all
        };
        let y = batch.f32([32, 1, t, 1], &vec![0.0; 32 * t as usize]);
        let [q, y] = [q, y].map(|of| batch.view(of, |desc| desc.token_axis = 2));
        let causal = Visibility::Causal.wire();
        let params =
            FlashAttn { scale: 0.2, visibility: causal, window: 0, softcap: 0.0, max_bias: 0.0, first: 0 };
        let src = [q, k_cache, v_cache, TensorIndex::NONE, TensorIndex::NONE, mask];
        batch.run(setup, Op::FlashAttnExt, &src, &[y], &params, StepRegisters::step(20, t)).unwrap();
        batch.floats(y)
    };
    for setup in setups() {
        assert_eq!(run(setup, true), run(setup, false), "{setup:?}");
    }
}

/// KV_APPEND leaves in the caches what FLASH_ATTN_EXT does, and not a bit elsewhere; attention over them is
/// the same.
#[test]
fn kv_append_is_the_first_half() {
    for (d, dv, kv_heads, sequences) in [(64, 64, 2, 1), (33, 48, 3, 2), (1, 1, 1, 1), (256, 100, 1, 3)] {
        for n_past in [0, 1, 30, 33, 64] {
            for tokens in [1usize, 2, 5, 16] {
                let case = Case { d, dv, kv_heads, sequences, n_past, tokens, ..CASE };
                let [fused, split] =
                    [false, true].map(|split| everywhere(|setup| case.appended(setup, split)));
                assert_eq!(fused, split, "{case:?}");
            }
        }
    }
}

impl Case {
    /// y and both caches, as bytes, after a step of fewer tokens than the program's, by one op or by two.
    fn appended(&self, setup: Setup, split: bool) -> Vec<u8> {
        let &Case { d, dv, kv_heads, sequences, n_past, tokens, .. } = self;
        let (heads, most, n_ctx) = (self.heads(), tokens + 2, self.end() + 7);
        let mut batch = Batch::new(most as u32, n_ctx as u32);
        let ne = |a: usize, b: usize, c: usize| [a as u32, b as u32, c as u32, sequences as u32];
        let mut rows = |seed, width: usize, heads: usize| {
            let values = random(seed, width * heads * most * sequences, -1.0, 1.0);
            let whole = batch.f32(ne(width, heads, most), &values);
            batch.view(whole, |t| t.token_axis = 2)
        };
        let (q, k, v) = (rows(1, d, heads), rows(2, d, kv_heads), rows(3, dv, kv_heads));
        let y = rows(4, dv, heads);
        let k_cache = batch.tensor(DType::F16x32, ne(d, n_ctx, kv_heads));
        let v_cache = batch.tensor(DType::F16, ne(dv, n_ctx, kv_heads));
        for (seed, cache) in [(5, k_cache), (6, v_cache)] {
            let halves: Vec<_> = random(seed, batch.read(cache).len() / 2, -1.0, 1.0)
                .into_iter()
                .map(|x| f16::from_f32(x).to_bits())
                .collect();
            batch.write(cache, halves.as_bytes());
        }
        let causal = Visibility::Causal.wire();
        let params =
            FlashAttn { scale: 0.2, visibility: causal, window: 0, softcap: 0.0, max_bias: 0.0, first: 0 };
        let step = StepRegisters::step(n_past as u32, tokens as u32);
        let mut src = vec![q, k_cache, v_cache];
        if split {
            batch.run(setup, Op::KvAppend, &[k, v], &[k_cache, v_cache], &[0u32; 0], step).unwrap();
        } else {
            src.extend([k, v]);
        }
        batch.run(setup, Op::FlashAttnExt, &src, &[y], &params, step).unwrap();
        [y, k_cache, v_cache].iter().flat_map(|&t| batch.read(t)).copied().collect()
    }
}

/// Positions past the caches, which validation and registers exclude: nothing is written.
#[test]
fn kv_append_past_the_cache() {
    for n_past in [13, 16, 17, u32::MAX - 8] {
        let mut batch = Batch::new(4, 16);
        let k = batch.f32([32, 1, 4, 1], &[1.0; 128]);
        let k = batch.view(k, |t| t.token_axis = 2);
        let v = batch.view(k, |_| ());
        let k_cache = batch.tensor(DType::F16x32, [32, 16, 1, 1]);
        let v_cache = batch.tensor(DType::F16, [32, 16, 1, 1]);
        let (src, dst, step) = ([k, v], [k_cache, v_cache], StepRegisters::step(n_past, 4));
        let fault = batch.run(setups()[0], Op::KvAppend, &src, &dst, &[0u32; 0], step).unwrap_err();
        assert_eq!((fault.code, fault.detail), (ErrorCode::BadRegister, 0));
        assert!(dst.iter().all(|&t| batch.read(t).iter().all(|&b| b == 0)));
    }
}
