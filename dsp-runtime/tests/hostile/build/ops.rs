//! A random valid form of every op.

use hexflash_abi::DType::{self, *};
use hexflash_abi::accept::{HEAD, REPORTS};
use hexflash_abi::op::{MAX_STOPS, Op, Operand, get_rows, mul_mat, mul_mat_id, params, set_rows};
use hexflash_abi::program::NO_TOKEN_AXIS;
use hexflash_abi::registers::Register;

use super::{Builder, Shape, Use};

impl Builder<'_> {
    /// Adds an op; `None` if there is no room for its operands.
    pub(super) fn add(&mut self, op: Op) -> Option<()> {
        const NOTHING: [u32; 0] = [];
        match op {
            Op::RmsNorm
            | Op::L2Norm
            | Op::Norm
            | Op::Scale
            | Op::Silu
            | Op::Sigmoid
            | Op::Softplus
            | Op::Exp
            | Op::Unary => {
                let n = self.length();
                let shape = self.rows(n);
                let x = self.input(shape)?;
                let weighted = op == Op::RmsNorm && self.random.chance(50);
                let w = if weighted {
                    Some(self.put(F32, Shape::fixed([n, 1, 1, 1]), Use::Packed)?)
                } else {
                    None
                };
                let y = self.like(x, shape)?;
                match op {
                    Op::Unary => {
                        let kind = self.random.pick(params::UnaryKind::ALL);
                        let p = match kind {
                            params::UnaryKind::LeakyRelu => {
                                params::Unary { a: -3.0, ..params::Unary::of(kind) }
                            }
                            params::UnaryKind::Clamp => params::Unary { a: -1e38, ..params::Unary::of(kind) },
                            _ => params::Unary::of(kind),
                        };
                        self.op(op, &[Some(x)], &[y], &p);
                    }
                    Op::RmsNorm | Op::L2Norm | Op::Norm => {
                        self.op(op, &[Some(x), w], &[y], &params::Norm { eps: 1e-6 })
                    }
                    Op::Scale => self.op(op, &[Some(x)], &[y], &params::Scale { scale: 2.0, bias: 0.5 }),
                    _ => self.op(op, &[Some(x)], &[y], &NOTHING),
                }
            }
            Op::Add | Op::Mul | Op::Div => {
                let n = self.length();
                let shape = self.rows(n);
                let mut other = shape;
                if self.random.chance(50) {
                    let axis = self.random.below(4);
                    other.0[axis] = 1;
                    if other.1 == axis as u8 {
                        other.1 = NO_TOKEN_AXIS;
                    }
                }
                let (a, b) = (self.input(shape)?, self.input(other)?);
                let y = self.like(a, shape)?;
                // In place of one is refused if the other overlaps it otherwise.
                self.op(op, &[Some(a), Some(b)], &[y], &NOTHING);
            }
            Op::Glu => {
                let n = self.length();
                let p = self.random.pick(&[
                    params::Glu::of(params::GluKind::Swiglu),
                    params::Glu::of(params::GluKind::Geglu),
                    params::Glu::swiglu_oai(1.702, 7.0),
                    params::Glu::swiglu_oai(-1e38, 0.0),
                ]);
                let mut shape = self.rows(n);
                if self.random.chance(50) {
                    let (a, b) = (self.input(shape)?, self.input(shape)?);
                    let y = self.like(b, shape)?;
                    self.op(op, &[Some(a), Some(b)], &[y], &p);
                } else {
                    shape.0[0] = 2 * n;
                    let a = self.input(shape)?;
                    shape.0[0] = n;
                    let y = self.put(F32, shape, Use::Output)?;
                    let swapped = self.random.below(2) as u32;
                    self.op(op, &[Some(a)], &[y], &params::Glu { swapped, ..p });
                }
            }
            Op::Quantize => {
                let n = self.length();
                let shape = self.rows(n);
                let x = self.input(shape)?;
                let y = self.put(Q8Act, shape, Use::Output)?;
                self.op(op, &[Some(x)], &[y], &NOTHING);
            }
            Op::MulMat => {
                let (k, n) = (self.length(), self.length());
                let x_shape = self.rows(k);
                let mut w = [k, n, 1, 1];
                for axis in 2..4 {
                    if x_shape.1 != axis && self.random.chance(40) {
                        w[axis as usize] = x_shape.0[axis as usize];
                    }
                }
                let dtype = self.type_of(op, mul_mat::W.number());
                let w = self.put(dtype, Shape::fixed(w), Use::Input)?;
                let x = if dtype.wants_q8_activations() {
                    let from = self.input(x_shape)?;
                    let x = self.put(Q8Act, x_shape, Use::Output)?;
                    self.op(Op::Quantize, &[Some(from)], &[x], &NOTHING);
                    x
                } else {
                    self.input(x_shape)?
                };
                let [_, m, b2, b3] = x_shape.0;
                // The quantized rows stay, whatever follows.
                let y = self.put(F32, Shape([n, m, b2, b3], x_shape.1), Use::Output);
                if y.is_none() && dtype.wants_q8_activations() {
                    self.ops.pop();
                }
                self.op(op, &[Some(w), Some(x)], &[y?], &NOTHING);
            }
            Op::GetRows => {
                let dtype = self.type_of(op, get_rows::TABLE.number());
                let (k, n, b2, b3) = (self.length_of(dtype), self.length(), self.few(), self.few());
                let table = self.put(dtype, Shape::fixed([k, n, b2, b3]), Use::Input)?;
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let ids = self.ids(Shape([m, b2, b3, 1], axis(0)), n)?;
                let rows = if dtype == I32 { I32 } else { F32 };
                let y = self.put(rows, Shape([k, m, b2, b3], axis(1)), Use::Output)?;
                self.op(op, &[Some(table), Some(ids)], &[y], &NOTHING);
            }
            Op::SetRows => {
                let dtype = self.type_of(op, set_rows::Y.number());
                let (k, b2, b3) = (self.length_of(dtype), self.few(), self.few());
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let n = m + self.few();
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let x = self.input(Shape([k, m, b2, b3], axis(1)))?;
                let c2 = self.random.pick(&[1, b2]);
                let ids = self.ids(Shape([m, c2, 1, 1], axis(0)), n)?;
                let y = self.put(dtype, Shape::fixed([k, n, b2, b3]), Use::Output)?;
                self.op(op, &[Some(x), Some(ids)], &[y], &NOTHING);
            }
            Op::MulMatId => self.mul_mat_id()?,
            Op::TopkMoe => self.topk_moe()?,
            Op::WeightedSum => {
                let (n, used, (m, axis)) = (self.length(), self.few(), self.tokens());
                let x = self.input(Shape([n, used, m, 1], axis(2)))?;
                let weights = self.input(Shape([used, m, 1, 1], axis(1)))?;
                let y = self.put(F32, Shape([n, m, 1, 1], axis(1)), Use::Output)?;
                self.op(op, &[Some(x), Some(weights)], &[y], &NOTHING);
            }
            Op::AddId => {
                let (n, used, experts, (m, axis)) = (self.length(), self.few(), self.few(), self.tokens());
                let shape = Shape([n, used, m, 1], axis(2));
                let a = self.input(shape)?;
                let b = self.put(F32, Shape::fixed([n, experts, 1, 1]), Use::Input)?;
                let ids = self.ids(Shape([used, m, 1, 1], axis(1)), experts)?;
                let y = self.like(a, shape)?;
                self.op(op, &[Some(a), Some(b), Some(ids)], &[y], &NOTHING);
            }
            Op::Rope => self.rope()?,
            Op::SsmConv => {
                let (c, t, b, taps) = (self.length(), self.header.max_tokens, self.few(), 1 + self.few());
                let rows = Shape([c, t, b, 1], 1);
                let x = self.input(rows)?;
                let w = self.put(F32, Shape::fixed([c, taps, 1, 1]), Use::Packed)?;
                let size = taps + self.few() - 1;
                let s = self.header.n_slots;
                let ring = self.put(F32, Shape::fixed([c, size, b * s, 1]), Use::State)?;
                let mut dst = vec![self.put(F32, rows, Use::Output)?];
                let (mut defer, silu) = (0, self.random.below(2) as u32);
                if self.random.chance(60) {
                    defer = self.random.below(2) as u32;
                    let n = if defer == 1 { self.depth(t) } else { self.few() };
                    dst.push(self.put(F32, Shape::fixed([c, n, b * s, 1]), Use::State)?);
                }
                self.op(op, &[Some(x), Some(w), Some(ring)], &dst, &params::SsmConv { defer, silu });
            }
            Op::GatedDeltaNet => self.gated_delta_net()?,
            Op::FlashAttnExt => self.flash_attn()?,
            Op::Attend => self.attend()?,
            Op::SoftMax => self.soft_max()?,
            Op::SumRows | Op::Argsort => self.of_rows(op)?,
            Op::KvAppend => self.kv_append()?,
            Op::CopySlot => self.copy_slot()?,
            Op::Accept => self.accept()?,
            Op::SetTokens => self.set_tokens(),
            Op::NextDraft => self.next_draft()?,
            Op::Argmax => {
                let n = self.length() * self.few();
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let x = self.input(Shape([n, m, 1, 1], axis(1)))?;
                let y = self.put(I32, Shape([m, 1, 1, 1], axis(0)), Use::State)?;
                if self.random.chance(50) {
                    let margin = self.put(F32, Shape([m, 1, 1, 1], axis(0)), Use::State)?;
                    self.op(op, &[Some(x)], &[y, margin], &NOTHING);
                } else {
                    self.op(op, &[Some(x)], &[y], &NOTHING);
                }
            }
            Op::Cpy => {
                let elements = [(F32, F32), (F32, F16), (F16, F32), (F16, F16), (I32, I32)];
                let blocks = [(F32, Q8_0), (Q8_0, F32), (Q8_0, Q8_0)];
                let (from, to) = self.random.pick(&[&elements[..], &blocks].concat());
                let n = self.length_of(if from == Q8_0 { from } else { to });
                let shape = self.rows(n);
                let x = self.put(from, shape, Use::Input)?;
                let y = self.put(to, shape, Use::Output)?;
                if self.random.chance(30) && shape.1 == NO_TOKEN_AXIS && from != Q8_0 {
                    // A transposed view.
                    let (a, b) = (self.random.below(4), self.random.below(4));
                    let x = &mut self.tensors[x.0 as usize];
                    x.nb.swap(a, b);
                    if x.ne[a] != x.ne[b] {
                        x.nb.swap(a, b);
                    }
                }
                self.op(op, &[Some(x)], &[y], &NOTHING);
            }
            Op::Concat => {
                let n = self.length();
                let a = self.rows(n);
                let axis = (0..4).find(|&axis| a.1 != axis && self.random.chance(40)).unwrap_or(0);
                let (mut b, mut y) = (a, a);
                b.0[axis as usize] = self.few();
                y.0[axis as usize] += b.0[axis as usize];
                let (a, b) = (self.input(a)?, self.input(b)?);
                let y = self.put(F32, y, Use::Output)?;
                self.op(op, &[Some(a), Some(b)], &[y], &params::Concat { axis: axis.into() });
            }
        }
        Some(())
    }

    /// One of the types that operand `number` of an op may have.
    fn type_of(&mut self, op: Op, number: u32) -> DType {
        let types: Vec<_> = op.spec().operand(number).unwrap().types.iter().collect();
        self.random.pick(&types)
    }

    /// How many rows there are, and which axis is theirs in a tensor, if a step cuts them to its tokens.
    fn tokens(&mut self) -> (u32, impl Fn(u8) -> u8 + use<>) {
        let cut = self.random.chance(50);
        let m = if cut { self.header.max_tokens } else { self.few() };
        (m, move |axis| if cut { axis } else { NO_TOKEN_AXIS })
    }

    fn mul_mat_id(&mut self) -> Option<()> {
        let (k, n, experts, (m, axis)) = (self.length(), self.length(), self.few(), self.tokens());
        let used = 1 + self.random.below(experts as usize) as u32;
        let dtype = self.type_of(Op::MulMatId, mul_mat_id::W.number());
        let w = self.put(dtype, Shape::fixed([k, n, experts, 1]), Use::Input)?;
        let shape = Shape([k, self.random.pick(&[1, used]), m, 1], axis(2));
        let x = self.put(if dtype.wants_q8_activations() { Q8Act } else { F32 }, shape, Use::Input)?;
        let ids = self.ids(Shape([used, m, 1, 1], axis(1)), experts)?;
        let y = self.put(F32, Shape([n, used, m, 1], axis(2)), Use::Output)?;
        self.op(Op::MulMatId, &[Some(w), Some(x), Some(ids)], &[y], &[0u32; 0]);
        Some(())
    }

    fn topk_moe(&mut self) -> Option<()> {
        let (n, (m, axis)) = (self.length(), self.tokens());
        let used = 1 + self.random.below(n as usize) as u32;
        let logits = self.input(Shape([n, m, 1, 1], axis(1)))?;
        let biased = self.random.chance(50);
        let bias = if biased { Some(self.put(F32, Shape::fixed([n, 1, 1, 1]), Use::Packed)?) } else { None };
        let ids = self.put(I32, Shape([used, m, 1, 1], axis(1)), Use::Output)?;
        let weights = self.put(F32, Shape([used, m, 1, 1], axis(1)), Use::Output)?;
        let p = params::TopkMoe {
            gating: self.random.pick(&[1, 2, 3]),
            normalize: self.random.below(2) as u32,
            scale: self.random.pick(&[1.0, 0.0, -2.5, 1e38]),
        };
        self.op(Op::TopkMoe, &[Some(logits), bias], &[ids, weights], &p);
        Some(())
    }

    fn rope(&mut self) -> Option<()> {
        let (half, h, b) = (self.length(), self.few(), self.few());
        let d = 2 * half + self.random.pick(&[0, 0, 1, 5]);
        let positions = self.random.chance(60);
        // Without positions it must be known whose a row is.
        let cut = self.random.chance(70) || !positions && self.header.n_slots > 1;
        let t = if cut { self.header.max_tokens } else { self.few() };
        let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
        let shape = Shape([d, h, t, b], axis(2));
        let x = self.input(shape)?;
        let mode = self.random.pick(&[0, 2, 8, 40]);
        let rows = if mode >= 8 { 4 } else { 1 };
        let positions =
            if positions { Some(self.ids(Shape([t, rows, 1, 1], axis(0)), 1 << 20)?) } else { None };
        let factors = self.random.chance(30);
        let factors =
            if factors { Some(self.put(F32, Shape::fixed([half, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.like(x, shape)?;
        let p = params::Rope {
            n_dims: 2 * half,
            mode,
            n_ctx_orig: self.random.telling() as u32,
            freq_base: self.random.pick(&[10000.0, 1e-30, 1.0]),
            freq_scale: self.random.pick(&[1.0, 0.0, -3.0]),
            ext_factor: self.random.pick(&[0.0, 1.0, -1e30]),
            attn_factor: 1.0,
            beta_fast: self.random.pick(&[32.0, 0.0]),
            beta_slow: 1.0,
            sections: self.random.pick(&[[1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1]]),
            temperature: if d == 2 * half && mode < 8 { self.random.pick(&[0.0, 0.1, 1e30]) } else { 0.0 },
            temperature_span: self.random.pick(&[1, 7, u32::MAX]),
        };
        self.op(Op::Rope, &[Some(x), positions, factors], &[y], &p);
        Some(())
    }

    fn gated_delta_net(&mut self) -> Option<()> {
        let s = self.random.pick(&[1, 2, 16, 31, 32, 33, 64, 128]);
        let (hk, bk, t) = (self.few(), self.few(), self.header.max_tokens);
        let (h, b) = (hk * self.few(), bk * self.random.pick(&[1, 1, 2]));
        let cut = |ne| Shape(ne, 2);
        let (q, k) = (self.input(cut([s, hk, t, bk]))?, self.input(cut([s, hk, t, bk]))?);
        let v = self.input(cut([s, h, t, b]))?;
        let gates = self.random.pick(&[1, s]);
        let (g, beta) = (self.input(cut([gates, h, t, b]))?, self.input(cut([1, h, t, b]))?);
        let slots = self.header.n_slots;
        let state = self.put(F32, Shape::fixed([s, s, h, b * slots]), Use::State)?;
        let y = self.put(F32, cut([s, h, t, b]), Use::Output)?;
        let src = [q, k, v, g, beta, state].map(Some);
        let mut dst = vec![y];
        let defer = self.random.below(2) as u32;
        let taped = self.random.chance(60);
        if taped {
            let n = if defer == 1 { self.depth(t) } else { self.few() };
            for [s, h, n, b] in [[s, hk, n, bk], [s, h, n, b], [gates, h, n, b]] {
                dst.push(self.put(F32, Shape::fixed([s, h, n, b * slots]), Use::State)?);
            }
        }
        let defer = if taped { defer } else { 0 };
        let squares = s.is_multiple_of(hexflash_abi::op::gated_delta_net::TRANSPOSED_SIZES);
        let transposed = u32::from(!taped && squares && self.random.chance(50));
        self.op(Op::GatedDeltaNet, &src, &dst, &params::DeltaNet { defer, transposed });
        Some(())
    }

    /// Rows of a tape that an op writes. With several slots each sequence must find room when it runs.
    fn depth(&mut self, most: u32) -> u32 {
        let less = self.header.n_slots > 1 && self.random.chance(50);
        if less { 1 + self.random.below(most as usize) as u32 } else { most + self.few() - 1 }
    }

    /// Types of a cache of keys and of one of values, and widths that they hold.
    fn cache_types(&mut self) -> ([DType; 2], [u32; 2]) {
        let keys = self.random.pick(&[F16x32, Q8_0Cache, Q4RCache]);
        let values = self.random.pick(&[F16, Q8_0Cache, Q4RCache]);
        let (mut d, mut dv) = (self.length(), self.length());
        if values == Q4RCache {
            dv = dv.next_multiple_of(32);
        }
        if keys == Q4RCache {
            d = d.next_multiple_of(32);
            // A rotated query waits in a row of the output.
            dv = dv.max(d);
        }
        ([keys, values], [d, dv])
    }

    fn kv_append(&mut self) -> Option<()> {
        let ([keys, values], [d, dv]) = self.cache_types();
        let (hk, b) = (self.few(), self.few());
        let (t, n) = (self.header.max_tokens, self.header.n_ctx + self.few() - 1);
        let (k, v) = (self.input(Shape([d, hk, t, b], 2))?, self.input(Shape([dv, hk, t, b], 2))?);
        let entries = b * self.header.n_slots;
        let k_cache = self.put(keys, Shape::fixed([d, n, hk, entries]), Use::State)?;
        let v_cache = self.put(values, Shape::fixed([dv, n, hk, entries]), Use::Output)?;
        self.op(Op::KvAppend, &[Some(k), Some(v)], &[k_cache, v_cache], &[0u32; 0]);
        Some(())
    }

    fn copy_slot(&mut self) -> Option<()> {
        let (n0, n1, n2) = (self.length(), self.few(), self.few());
        let (slots, snapshots) = (self.header.n_slots + self.few() - 1, self.few());
        let restore = self.random.below(2) as u32;
        let [from, to] = if restore == 0 { [slots, snapshots] } else { [snapshots, slots] };
        let x = self.put(F32, Shape::fixed([n0, n1, n2, from]), Use::Packed)?;
        let y = self.put(F32, Shape::fixed([n0, n1, n2, to]), Use::State)?;
        self.op(Op::CopySlot, &[Some(x)], &[y], &params::CopySlot { restore });
        Some(())
    }

    /// Few words, so that drafts are kept and generations end.
    fn accept(&mut self) -> Option<()> {
        let t = self.header.max_tokens;
        if t == 1 || self.has(Op::NextDraft) {
            return None;
        }
        let words = 1 + self.few();
        let best = self.ids(Shape([t, 1, 1, 1], 0), words)?;
        let tokens = self.ids(Shape([t, 1, 1, 1], 0), words)?;
        let n = self.random.pick(&[1, 2, MAX_STOPS]);
        let stops = self.ids(Shape::fixed([n, 1, 1, 1]), 40 * n)?;
        let out = self.put(I32, Shape::fixed([HEAD as u32 + t, REPORTS as u32, 1, 1]), Use::Output)?;
        let anchor = self.put(I32, Shape::fixed([1; 4]), Use::State)?;
        let params =
            params::Accept { block: 2 + self.random.below(t as usize - 1) as u32, n_ctx: self.header.n_ctx };
        self.op(Op::Accept, &[Some(best), Some(tokens), Some(stops)], &[out, anchor], &params);
        Some(())
    }

    fn set_tokens(&mut self) {
        let (register, plus) = if self.random.chance(50) {
            (Register::NDraft, self.random.below(2))
        } else {
            (self.random.pick(Register::ALL), self.random.below(self.header.max_tokens as usize + 1))
        };
        let params = params::SetTokens { register: register.wire(), plus: plus as u32 };
        self.op(Op::SetTokens, &[], &[], &params);
    }

    /// A chain of drafts, or a link of it. What ACCEPT leaves in the registers is anybody's guess, and so
    /// would be whether the program goes on.
    fn next_draft(&mut self) -> Option<()> {
        if self.has(Op::Accept) {
            return None;
        }
        let draft =
            if self.random.chance(70) { 0 } else { self.random.below(self.header.max_tokens as usize) };
        let stays = self.random.below(2) as u32;
        self.op(Op::NextDraft, &[], &[], &params::NextDraft { draft: draft as u32, stays });
        Some(())
    }

    fn attend(&mut self) -> Option<()> {
        let (keys, values) = (self.random.pick(&[F16, Q8_0]), self.random.pick(&[F16, Q8_0]));
        let (d, dv, hk, b) = (self.length_of(keys), self.length_of(values), self.few(), self.few());
        let (n, (t, axis)) = (self.random.pick(&[1, 5, 32, 33, 300]), self.tokens());
        let h = hk * self.random.pick(&[1, 2, 3, 40]);
        let q = self.input(Shape([d, h, t, b], axis(2)))?;
        let k = self.put(keys, Shape::fixed([d, n, hk, b]), Use::Input)?;
        let v = self.put(values, Shape::fixed([dv, n, hk, b]), Use::Input)?;
        let masked = self.random.chance(60);
        let (mh, mb) = (self.random.pick(&[1, h]), self.random.pick(&[1, b]));
        let mask = Shape([n + self.few() - 1, t, mh, mb], axis(1));
        let mask = if masked { Some(self.put(F16, mask, Use::Input)?) } else { None };
        let sunk = self.random.chance(30);
        let sinks = if sunk { Some(self.put(F32, Shape::fixed([h, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.put(F32, Shape([dv, h, t, b], axis(2)), Use::Output)?;
        let p = params::Attend {
            scale: 0.125,
            softcap: self.random.pick(&[0.0, 30.0, 1e-40]),
            max_bias: self.random.pick(&[0.0, 8.0, 1e38]),
        };
        self.op(Op::Attend, &[Some(q), Some(k), Some(v), mask, sinks], &[y], &p);
        Some(())
    }

    fn soft_max(&mut self) -> Option<()> {
        let (n, h, b, (t, axis)) = (self.length(), self.few(), self.few(), self.tokens());
        let shape = Shape([n, t, h, b], axis(1));
        let x = self.input(shape)?;
        let dtype = self.random.pick(&[F32, F16]);
        let mask = Shape([n, t, self.random.pick(&[1, h]), self.random.pick(&[1, b])], axis(1));
        let masked = self.random.chance(60);
        let mask = if masked { Some(self.put(dtype, mask, Use::Input)?) } else { None };
        let sunk = self.random.chance(30);
        let sinks = if sunk { Some(self.put(F32, Shape::fixed([h, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.like(x, shape)?;
        let p = params::SoftMax { scale: 0.125, max_bias: self.random.pick(&[0.0, 8.0, 1e38]) };
        self.op(Op::SoftMax, &[Some(x), mask, sinks], &[y], &p);
        Some(())
    }

    /// SUM_ROWS, ARGSORT.
    fn of_rows(&mut self, op: Op) -> Option<()> {
        let n = self.length();
        let Shape(ne, axis) = self.rows(n);
        let x = self.input(Shape(ne, axis))?;
        let of = |n| Shape([n, ne[1], ne[2], ne[3]], axis);
        if op == Op::SumRows {
            let y = self.put(F32, of(1), Use::Output)?;
            self.op(op, &[Some(x)], &[y], &[0_u32; 0]);
        } else {
            let k = self.random.pick(&[1, n.div_ceil(2), n]);
            let y = self.put(I32, of(k), Use::Output)?;
            let descending = self.random.pick(&[0, 1]);
            self.op(op, &[Some(x)], &[y], &params::Argsort { descending });
        }
        Some(())
    }

    fn flash_attn(&mut self) -> Option<()> {
        let ([keys, values], [d, dv]) = self.cache_types();
        let (hk, b, t, n_ctx) = (self.few(), self.few(), self.header.max_tokens, self.header.n_ctx);
        let h = hk * self.random.pick(&[1, 2, 3, 40]);
        let window = self.random.pick(&[0, 0, 1, 5, u32::MAX]);
        // The whole context, or a KV ring.
        let n = match window {
            1 | 5 if self.random.chance(50) => (t - 1 + window).next_multiple_of(32),
            _ => n_ctx + self.few() - 1,
        };
        let cut = |ne| Shape(ne, 2);
        let q = self.input(cut([d, h, t, b]))?;
        let entries = b * self.header.n_slots;
        let k_cache = self.put(keys, Shape::fixed([d, n, hk, entries]), Use::State)?;
        let v_cache = self.put(values, Shape::fixed([dv, n, hk, entries]), Use::Output)?;
        let append = self.random.chance(70);
        let k = if append { Some(self.input(cut([d, hk, t, b]))?) } else { None };
        let v = if append { Some(self.input(cut([dv, hk, t, b]))?) } else { None };
        let masked = self.random.chance(40);
        let (mh, mb) = (self.random.pick(&[1, h]), self.random.pick(&[1, b]));
        let mask = if masked { Some(self.put(F16, Shape([n_ctx, t, mh, mb], 1), Use::Input)?) } else { None };
        let sunk = self.random.chance(30);
        let sinks = if sunk { Some(self.put(F32, Shape::fixed([h, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.put(F32, cut([dv, h, t, b]), Use::Output)?;
        let p = params::FlashAttn {
            scale: 0.125,
            visibility: self.random.pick(&[1, 2, 3, 4]),
            window,
            softcap: self.random.pick(&[0.0, 30.0, 1e-40]),
            max_bias: self.random.pick(&[0.0, 8.0, 1e38]),
            first: self.random.pick(&[0, 0, 1, u32::MAX]),
        };
        self.op(Op::FlashAttnExt, &[Some(q), Some(k_cache), Some(v_cache), k, v, mask, sinks], &[y], &p);
        Some(())
    }
}
