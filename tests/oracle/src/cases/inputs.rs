//! Inputs of a case, with test-backend-ops' ranges.

use super::Inputs;
use super::kind::{CaseKind, Gate, GluForm, Layout, Mask, Values};
use super::rng::Rng;
use crate::ops::{Binary, quantize};
use crate::tensor::{GgmlType, Tensor};

/// Makes the inputs of one case, each from its own stream.
struct Maker {
    seed: u64,
    out: Vec<(&'static str, Tensor)>,
}

/// Floats in any type; integers are truncated towards zero.
fn encode(ty: GgmlType, ne: [i64; 4], values: &[f32]) -> Tensor {
    match ty {
        GgmlType::I32 => Tensor::i32(ne, &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
        GgmlType::I64 => Tensor::i64(ne, &values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
        _ => Tensor::new(ty, ne, quantize(ty, values, ne[0] as usize)),
    }
}

const SAME: [usize; 4] = [0, 1, 2, 3];

impl Maker {
    fn push(&mut self, name: &'static str, t: Tensor) {
        self.out.push((name, t));
    }

    fn rng(&self, name: &str) -> Rng {
        Rng::new(self.seed, name)
    }

    fn uniform(&self, name: &'static str, ty: GgmlType, ne: [i64; 4], min: f32, max: f32) -> Tensor {
        encode(ty, ne, &self.rng(name).uniform(ne.iter().product::<i64>() as usize, min, max))
    }

    /// Shape `ne`, stored so that `permute(perm)` of the storage gives it.
    fn permuted(
        &self,
        name: &'static str,
        ty: GgmlType,
        ne: [i64; 4],
        perm: [usize; 4],
        min: f32,
        max: f32,
    ) -> Tensor {
        let t = self.uniform(name, ty, perm.map(|p| ne[p]), min, max);
        if perm == SAME { t } else { t.permute(perm) }
    }

    /// Numbers of experts, for `t` tokens: the first of each row of as many as there are, as upstream has
    /// them, so that rows lie apart.
    fn ids(&self, experts: i64, used: i64, t: i64) -> Tensor {
        let mut rng = self.rng("ids");
        let ids: Vec<i32> = (0..t).flat_map(|_| rng.shuffled(experts as usize)).map(|id| id as i32).collect();
        let ids = Tensor::i32([experts, t, 1, 1], &ids);
        if used == experts { ids } else { ids.slice([used, t, 1, 1], None, 0) }
    }

    /// Shape `ne` in a layout. A padded one is the first corner of one `pad` times larger.
    fn laid_out(
        &self,
        name: &'static str,
        ty: GgmlType,
        ne: [i64; 4],
        layout: Layout,
        pad: [i64; 4],
        range: [f32; 2],
    ) -> Tensor {
        let grow = |by: [i64; 4]| std::array::from_fn(|i| ne[i] * by[i]);
        let [min, max] = range;
        match layout {
            Layout::Dense => self.uniform(name, ty, ne, min, max),
            Layout::Padded => self.uniform(name, ty, grow(pad), min, max).slice(ne, None, 0),
            Layout::SecondHalf => {
                let skip = ty.row_bytes(ne[0] as usize);
                self.uniform(name, ty, grow([2, 1, 1, 1]), min, max).slice(ne, None, skip)
            }
        }
    }
}

/// The inputs of `kind`.
pub(super) fn inputs(kind: &CaseKind, seed: u64) -> Inputs {
    let mut m = Maker { seed, out: Vec::new() };
    const F32: GgmlType = GgmlType::F32;
    match *kind {
        CaseKind::MulMat { a, b, m: rows, n, k, batch, repeat, perm, k_alloc } => {
            let ne_a = [k, rows, batch[0], batch[1]];
            let ne_b = [k, n, batch[0] * repeat[0], batch[1] * repeat[1]];
            for (name, ty, ne) in [("a", a, ne_a), ("b", b, ne_b)] {
                let t = if k_alloc == 0 {
                    m.permuted(name, ty, ne, perm, -1.0, 1.0)
                } else {
                    m.uniform(name, ty, [k_alloc, ne[1], ne[2], ne[3]], -1.0, 1.0).slice(ne, None, 0)
                };
                m.push(name, t);
            }
        }
        CaseKind::MulMatId { a, n_mats, n_used, shared, m: rows, n, k } => {
            let experts = m.uniform("as", a, [k, rows, n_mats, 1], -1.0, 1.0);
            let b = m.uniform("b", F32, [k, if shared { 1 } else { n_used }, n, 1], -1.0, 1.0);
            let ids = m.ids(n_mats, n_used, n);
            m.push("as", experts);
            m.push("b", b);
            m.push("ids", ids);
        }
        CaseKind::GetRows { ty, n, m: rows, r, b1, b2, view } => {
            let a = m.uniform("a", ty, [n, rows, b1, b2], -1.0, 1.0);
            m.push("a", a);
            let mut rng = m.rng("rows");
            let ids: Vec<i32> = (0..r * b1 * b2).map(|_| rng.below(rows as usize) as i32).collect();
            let t = Tensor::i32([r, b1, b2, 1], &ids);
            m.push("rows", if view { t.slice([r / 2, b1, b2, 1], None, 0) } else { t });
        }
        CaseKind::SetRows { ty, idx, ne, repeat, r, view } => {
            let (d2, d3) = (ne[2] * repeat[0], ne[3] * repeat[1]);
            let dst = m.uniform("dst", ty, [ne[0], ne[1], d2, d3], -1.0, 1.0);
            let src = m.uniform("src", F32, [ne[0], r, d2, d3], -1.0, 1.0);
            let mut rng = m.rng("rows");
            let ids =
                (0..ne[2] * ne[3]).flat_map(|_| rng.shuffled(ne[1] as usize).into_iter().take(r as usize));
            let rows = encode(idx, [r, ne[2], ne[3], 1], &ids.map(|i| i as f32).collect::<Vec<_>>());
            m.push("dst", dst);
            m.push("src", if view { src.slice([ne[0], r / 2, d2, d3], None, 0) } else { src });
            m.push("rows", if view { rows.slice([r / 2, ne[2], ne[3], 1], None, 0) } else { rows });
        }
        CaseKind::Binary { op, ty, ne, repeat, perm } => {
            // Products and quotients of values around zero say little, as upstream found.
            let (min, max) = if matches!(op, Binary::Mul | Binary::Div) { (0.9, 1.1) } else { (-1.0, 1.0) };
            let a = m.uniform("a", ty, std::array::from_fn(|i| ne[i] * repeat[i]), min, max);
            let b = m.permuted("b", ty, ne, if perm { [1, 2, 0, 3] } else { SAME }, min, max);
            m.push("a", a);
            m.push("b", b);
        }
        CaseKind::Scale { ne, .. } => {
            let a = m.uniform("a", F32, ne, -1.0, 1.0);
            m.push("a", a);
        }
        CaseKind::Unary { ty, ne, layout, min, max, .. } => {
            let a = m.laid_out("a", ty, ne, layout, [3, 1, 1, 1], [min, max]);
            m.push("a", a);
        }
        CaseKind::Glu { ty, ne, form, layout, .. } => {
            for name in if form == GluForm::Split { &["a", "b"][..] } else { &["a"] } {
                let t = m.laid_out(name, ty, ne, layout, [3, 1, 1, 1], [-150.0, 150.0]);
                m.push(name, t);
            }
        }
        CaseKind::AddId { n, used, t, experts } => {
            let a = m.uniform("a", F32, [n, used, t, 1], -1.0, 1.0);
            let b = m.uniform("b", F32, [n, experts, 1, 1], -1.0, 1.0);
            let ids = m.ids(experts, used, t);
            m.push("a", a);
            m.push("b", b);
            m.push("ids", ids);
        }
        CaseKind::RmsNorm { ne, layout, amplitude, weight, .. } => {
            let a = m.laid_out("a", F32, ne, layout, [3, 2, 1, 1], [-amplitude, amplitude]);
            m.push("a", a);
            if weight {
                let w = m.uniform("weight", F32, [ne[0], 1, 1, 1], -amplitude, amplitude);
                m.push("weight", w);
            }
        }
        CaseKind::SumRows { ne, layout } => {
            let a = m.laid_out("a", F32, ne, layout, [3, 2, 1, 1], [-1.0, 1.0]);
            m.push("a", a);
        }
        CaseKind::Argsort { ne, .. } => {
            let mut rng = m.rng("a");
            let rows = ne[1] * ne[2] * ne[3];
            let row =
                |_| rng.shuffled(ne[0] as usize).into_iter().map(|i| i as f32 - 7.0).collect::<Vec<_>>();
            let values: Vec<f32> = (0..rows).flat_map(row).collect();
            m.push("a", Tensor::f32(ne, &values));
        }
        CaseKind::L2Norm { ne, layout, amplitude, .. }
        | CaseKind::Norm { ne, layout, amplitude, .. }
        | CaseKind::Quantize { ne, layout, amplitude } => {
            let a = m.laid_out("a", F32, ne, layout, [3, 2, 1, 1], [-amplitude, amplitude]);
            m.push("a", a);
        }
        CaseKind::Rope { ty, ne, rope, factors, layout, max_pos } => {
            let a = m.laid_out("a", ty, ne, layout, [2, 4, 3, 1], [-1.0, 1.0]);
            m.push("a", a);
            let n = if rope.mode.is_multi() { 4 * ne[2] } else { ne[2] };
            let mut rng = m.rng("pos");
            let pos: Vec<i32> = (0..n).map(|_| rng.below(max_pos) as i32).collect();
            m.push("pos", Tensor::i32([n, 1, 1, 1], &pos));
            if factors {
                let f = m.uniform("factors", F32, [i64::from(rope.n_dims) / 2, 1, 1, 1], 0.9, 1.1);
                m.push("factors", f);
            }
        }
        CaseKind::SsmConv { taps, channels, t, seqs } => {
            let x = m.uniform("x", F32, [taps - 1 + t, channels, seqs, 1], -1.0, 1.0);
            let w = m.uniform("w", F32, [taps, channels, 1, 1], -1.0, 1.0);
            m.push("x", x);
            m.push("w", w);
        }
        CaseKind::GatedDeltaNet { .. } => delta_net(kind, &mut m),
        CaseKind::FlashAttn { dk, dv, heads, group, seqs, kv, nq, mask, sinks, kv_ty, perm, .. } => {
            let perm = if perm { [0, 2, 1, 3] } else { SAME };
            let q = m.permuted("q", F32, [dk, nq, heads * group, seqs], perm, -1.0, 1.0);
            let k = m.permuted("k", kv_ty, [dk, kv, heads, seqs], perm, -1.0, 1.0);
            let v = m.permuted("v", kv_ty, [dv, kv, heads, seqs], perm, -1.0, 1.0);
            m.push("q", q);
            m.push("k", k);
            m.push("v", v);
            if mask != Mask::None {
                let t = attention_mask(mask, [kv, nq, 1, seqs], &mut m.rng("mask"));
                m.push("mask", t);
            }
            if sinks {
                let s = m.uniform("sinks", F32, [heads * group, 1, 1, 1], -10.0, 10.0);
                m.push("sinks", s);
            }
        }
        CaseKind::SoftMax { ne, mask, repeat, sinks, .. } => {
            let a = m.uniform("a", F32, [ne[0], ne[1], ne[2] * repeat[0], ne[3] * repeat[1]], -1.0, 1.0);
            m.push("a", a);
            if let Some(ty) = mask {
                let t = m.uniform("mask", ty, ne, -1.0, 1.0);
                m.push("mask", t);
            }
            if sinks {
                let s = m.uniform("sinks", F32, [ne[2] * repeat[0], 1, 1, 1], -1.0, 1.0);
                m.push("sinks", s);
            }
        }
        CaseKind::Argmax { cols, rows, values } => {
            let mut rng = m.rng("a");
            let row = |_| -> Vec<f32> {
                match values {
                    Values::Unique => rng.shuffled(cols as usize).into_iter().map(|i| i as f32).collect(),
                    Values::Ties => (0..cols).map(|_| rng.below(4) as f32 - 2.0).collect(),
                    Values::Equal => vec![1.5; cols as usize],
                    Values::NegInf => vec![f32::NEG_INFINITY; cols as usize],
                    Values::Last => (0..cols).map(|i| i as f32 - 7.5).collect(),
                }
            };
            m.push("a", Tensor::f32([cols, rows, 1, 1], &(0..rows).flat_map(row).collect::<Vec<_>>()));
        }
        CaseKind::Cpy { src, dst, ne, dst_ne, src_perm, dst_perm } => {
            let t = m.uniform("src", src, ne, -150.0, 150.0);
            let t = if src_perm == SAME { t } else { t.permute(src_perm) };
            let to = Tensor::zeros(dst, dst_ne.unwrap_or(t.ne));
            m.push("src", t);
            m.push("dst", if dst_perm == SAME { to } else { to.permute(dst_perm) });
        }
        CaseKind::Cont { ty, ne, slice } => {
            let t = if slice {
                let nb_of = [ne[0] * 2, ne[1], ne[2], ne[3]];
                m.uniform("a", ty, nb_of, -100.0, 100.0).slice(ne, None, 0)
            } else {
                m.uniform("a", ty, ne, -100.0, 100.0).permute([1, 0, 2, 3])
            };
            m.push("a", t);
        }
        CaseKind::Concat { ty, ne, other, dim, views } => {
            let mut ne_b = ne;
            ne_b[dim] = other;
            for (bit, name, ne) in [(1, "a", ne), (2, "b", ne_b)] {
                let layout = if views & bit == 0 { Layout::Dense } else { Layout::Padded };
                let t = m.laid_out(name, ty, ne, layout, [2, 4, 3, 1], [-100.0, 100.0]);
                m.push(name, t);
            }
        }
        CaseKind::Repeat { ty, ne, .. } => {
            let t = m.uniform("a", ty, ne, -100.0, 100.0);
            m.push("a", t);
        }
    }
    Inputs(m.out)
}

fn delta_net(kind: &CaseKind, m: &mut Maker) {
    let CaseKind::GatedDeltaNet { heads, s, t, b, vrep, perm, kda, gate, .. } = *kind else {
        unreachable!("called for GATED_DELTA_NET only")
    };
    let hv = heads * vrep;
    let order = if perm { [0, 2, 1, 3] } else { SAME };
    for name in ["q", "k"] {
        let ne = [s, heads, t, b];
        let mut x = m.rng(name).uniform(ne.iter().product::<i64>() as usize, -1.0, 1.0);
        for row in x.chunks_exact_mut(s as usize) {
            let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt().max(1e-6);
            row.iter_mut().for_each(|v| *v /= norm);
        }
        let x = Tensor::f32(order.map(|p| ne[p]), &x);
        m.push(name, if perm { x.permute(order) } else { x });
    }
    let v = m.permuted("v", GgmlType::F32, [s, hv, t, b], order, -0.3, 5.0);
    m.push("v", v);
    let ne_g = [if kda { s } else { 1 }, hv, t, b];
    let mut rng = m.rng("g");
    let n = ne_g.iter().product::<i64>() as usize;
    let g = match gate {
        Gate::Uniform => rng.uniform(n, -20.0, -1e-4),
        Gate::Slow => rng.uniform(n, -0.5, 0.0),
        Gate::Zero => vec![0.0; n],
        Gate::NegInf => vec![f32::NEG_INFINITY; n],
        Gate::Limits => {
            let mut g = rng.uniform(n, -2.0, -1e-4);
            g.iter_mut().step_by(3).for_each(|v| *v = 0.0);
            g.iter_mut().skip(1).step_by(5).for_each(|v| *v = f32::NEG_INFINITY);
            g
        }
    };
    m.push("g", Tensor::f32(ne_g, &g));
    let beta = m.uniform("beta", GgmlType::F32, [1, hv, t, b], 0.0, 1.0);
    let state = m.uniform("state", GgmlType::F32, [s, s, hv, b], -1.0, 1.0);
    m.push("beta", beta);
    m.push("state", state);
}

/// F16 mask `{kv, nq, 1, seqs}`.
fn attention_mask(mask: Mask, ne: [i64; 4], rng: &mut Rng) -> Tensor {
    let [kv, nq, _, seqs] = ne.map(|n| n as usize);
    let mut v = vec![0f32; kv * nq * seqs];
    if mask == Mask::Random {
        v = rng.uniform(v.len(), -1.0, 1.0);
        for _ in 0..v.len() / (5 * 128 * 64) {
            let (b, q0, k0) = (rng.below(seqs), rng.below(nq), rng.below(kv));
            let value = if rng.below(2) == 0 { 0.0 } else { f32::NEG_INFINITY };
            for q in q0..(q0 + 64).min(nq) {
                v[(b * nq + q) * kv..][k0..(k0 + 128).min(kv)].fill(value);
            }
        }
    } else {
        for (i, row) in v.chunks_exact_mut(kv).enumerate() {
            let q = i % nq;
            let visible =
                if mask == Mask::Blind && q + 1 == nq { 0 } else { (kv + q + 1).saturating_sub(nq) };
            row[visible..].fill(f32::NEG_INFINITY);
        }
    }
    Tensor::f16(ne, &v)
}
