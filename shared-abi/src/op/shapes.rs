//! Shape rules: one function per op (or family), on operands whose types and layouts were checked already.

use super::params::{self, RopeMode, Visibility};
use crate::dtype::DType;
use crate::program::{MAX_DST, MAX_SRC, OpDesc, ProgramHeader, TensorDesc};
use crate::registers::Register;
use crate::status::{ErrorCode, Fault};

/// The operands of one op, resolved from their indices.
pub struct Operands<'a> {
    /// Inputs with their parsed types.
    pub src: [Option<(&'a TensorDesc, DType)>; MAX_SRC],
    /// Outputs with their parsed types.
    pub dst: [Option<(&'a TensorDesc, DType)>; MAX_DST],
    /// The op itself, for its parameters.
    pub op: &'a OpDesc,
    /// The program's header, for its bounds.
    pub header: &'a ProgramHeader,
}

/// Operand number of output `i` in a fault's detail.
pub(crate) const DST: usize = 16;

/// Length of an axis, and whether a step cuts it to its `n_tokens`.
///
/// Kernels see the cut shapes. Comparing lengths together with their cut makes a shape rule that holds for the full
/// shapes hold for those of every step: no row of one operand is without its partner in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Len {
    n: u32,
    cut: bool,
}

impl Len {
    const ONE: Self = Self::fixed(1);

    const fn fixed(n: u32) -> Self {
        Self { n, cut: false }
    }

    /// Whether `self` divides `other` in every step.
    const fn divides(self, other: Self) -> bool {
        match (self.cut, other.cut) {
            (false, false) => other.n.is_multiple_of(self.n),
            (false, true) => self.n == 1,
            (true, true) => self.n == other.n,
            (true, false) => false,
        }
    }

    /// Whether it is at least `other` in every step.
    const fn covers(self, other: Self) -> bool {
        self.n >= other.n && (other.cut || !self.cut)
    }

    /// Whether every step sees it whole, and at most `max` long.
    const fn fixed_up_to(self, max: u32) -> bool {
        !self.cut && self.n <= max
    }
}

type Shape = [Len; 4];

impl Operands<'_> {
    /// Shape of input `i`, which the op table calls required.
    fn src(&self, i: usize) -> Result<Shape, Fault> {
        self.opt(i).ok_or(Fault::new(ErrorCode::BadOperand, i as u32))
    }

    fn opt(&self, i: usize) -> Option<Shape> {
        self.src[i].map(|(t, _)| self.lens(t))
    }

    fn dst_opt(&self, i: usize) -> Option<Shape> {
        self.dst[i].map(|(t, _)| self.lens(t))
    }

    fn dst(&self) -> Result<Shape, Fault> {
        self.dst[0].map(|(t, _)| self.lens(t)).ok_or(Fault::new(ErrorCode::BadOperand, DST as u32))
    }

    fn lens(&self, t: &TensorDesc) -> Shape {
        // With one token at most there is nothing to cut.
        let cut = |axis| self.header.max_tokens > 1 && usize::from(t.token_axis) == axis;
        core::array::from_fn(|axis| Len { n: t.ne[axis], cut: cut(axis) })
    }

    /// Length of the token axis itself.
    fn tokens(&self) -> Len {
        let n = self.header.max_tokens;
        Len { n, cut: n > 1 }
    }

    fn params<T: zerocopy::FromBytes>(&self) -> T {
        self.op.params()
    }
}

fn shape(ok: bool, operand: usize) -> Result<(), Fault> {
    if ok { Ok(()) } else { Err(Fault::new(ErrorCode::BadShape, operand as u32)) }
}

fn param(ok: bool, index: usize) -> Result<(), Fault> {
    if ok { Ok(()) } else { Err(Fault::new(ErrorCode::BadParam, index as u32)) }
}

fn same(o: &Operands<'_>, operand: usize, a: Shape) -> Result<(), Fault> {
    shape(a == o.dst()?, operand)
}

/// Whether `b` repeats over `a` a whole number of times on every axis.
fn repeats(b: Shape, a: Shape) -> bool {
    core::iter::zip(b, a).all(|(b, a)| b.divides(a))
}

/// dst has the shape of input 0.
pub(super) fn same_shape(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, 0, o.src(0)?)
}

pub(super) fn rms_norm(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    if let Some(w) = o.opt(1) {
        shape(w == [o.src(0)?[0], Len::ONE, Len::ONE, Len::ONE], 1)?;
    }
    eps(o)
}

pub(super) fn l2_norm(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    eps(o)
}

fn eps(o: &Operands<'_>) -> Result<(), Fault> {
    let p: params::Norm = o.params();
    param(p.eps.is_finite() && p.eps >= 0.0, 0)
}

pub(super) fn mul_mat(o: &Operands<'_>) -> Result<(), Fault> {
    let (w, x, y) = (o.src(0)?, o.src(1)?, o.dst()?);
    shape(x[0] == w[0] && w[2].divides(x[2]) && w[3].divides(x[3]), 1)?;
    shape(y == [w[1], x[1], x[2], x[3]], DST)?;
    let quantized = |i: usize| o.src[i].map(|(_, t)| t.wants_q8_activations() || t == DType::Q8Act);
    if quantized(0) == quantized(1) { Ok(()) } else { Err(Fault::new(ErrorCode::BadType, 1)) }
}

pub(super) fn get_rows(o: &Operands<'_>) -> Result<(), Fault> {
    let (table, ids, y) = (o.src(0)?, o.src(1)?, o.dst()?);
    shape(ids[1] == table[2] && ids[2] == table[3] && ids[3] == Len::ONE, 1)?;
    let integers = |slot: Option<(&TensorDesc, DType)>| slot.is_some_and(|(_, t)| t == DType::I32);
    if integers(o.src[0]) != integers(o.dst[0]) {
        return Err(Fault::new(ErrorCode::BadType, DST as u32));
    }
    shape(y == [table[0], ids[0], ids[1], ids[2]], DST)
}

pub(super) fn set_rows(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, ids, y) = (o.src(0)?, o.src(1)?, o.dst()?);
    let repeated = ids[1].divides(x[2]) && ids[2].divides(x[3]) && ids[3] == Len::ONE;
    shape(ids[0] == x[1] && repeated, 1)?;
    // With stride 0 a few bytes can be any number of rows: the output bounds the work.
    shape(x[1].n <= y[1].n, 0)?;
    shape(y[0] == x[0] && y[2] == x[2] && y[3] == x[3], DST)
}

pub(super) fn binary(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    shape(repeats(o.src(1)?, o.src(0)?), 1)
}

pub(super) fn scale(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    let p: params::Scale = o.params();
    param(!p.scale.is_nan(), 0)?;
    param(!p.bias.is_nan(), 1)
}

pub(super) fn swiglu(o: &Operands<'_>) -> Result<(), Fault> {
    let (a, y) = (o.src(0)?, o.dst()?);
    let p: params::Swiglu = o.params();
    match o.opt(1) {
        Some(b) => {
            shape(a == y, 0)?;
            shape(b == y, 1)?;
            param(p.swapped == 0, 0)
        }
        None => {
            let half = Len::fixed(a[0].n / 2);
            shape(Len::fixed(2).divides(a[0]) && [half, a[1], a[2], a[3]] == y, 0)?;
            param(p.swapped <= 1, 0)
        }
    }
}

pub(super) fn rope(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    let x = o.src(0)?;
    let p: params::Rope = o.params();
    shape(!x[0].cut, 0)?;
    param(p.n_dims.is_multiple_of(2) && (2..=x[0].n).contains(&p.n_dims), 0)?;
    let mode = RopeMode::parse(p.mode).ok_or(Fault::new(ErrorCode::BadParam, 1))?;
    param(p.freq_base.is_finite() && p.freq_base > 0.0, 3)?;
    for (i, v) in [p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow].iter().enumerate() {
        param(v.is_finite(), 4 + i)?;
    }
    if matches!(mode, RopeMode::Mrope | RopeMode::Imrope) {
        let total = p.sections.iter().try_fold(0u32, |sum, &s| sum.checked_add(s));
        param(total.is_some_and(|t| (1..=x[0].n).contains(&t)), 9)?;
    }
    if let Some(positions) = o.opt(1) {
        let sections = if matches!(mode, RopeMode::Mrope | RopeMode::Imrope) { 4 } else { 1 };
        shape(positions == [x[2], Len::fixed(sections), Len::ONE, Len::ONE], 1)?;
    }
    if let Some(factors) = o.opt(2) {
        shape(factors == [Len::fixed(p.n_dims / 2), Len::ONE, Len::ONE, Len::ONE], 2)?;
    }
    Ok(())
}

/// Most taps of SSM_CONV.
pub const MAX_TAPS: u32 = 32;

pub(super) fn ssm_conv(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, w, ring) = (o.src(0)?, o.src(1)?, o.src(2)?);
    same_shape(o)?;
    shape(x[3] == Len::ONE, 0)?;
    shape(w[0] == x[0] && w[1].fixed_up_to(MAX_TAPS) && w[2] == Len::ONE && w[3] == Len::ONE, 1)?;
    // Fewer rows than taps would overwrite history that the step still reads.
    shape(ring[0] == x[0] && ring[1].covers(w[1]) && ring[2] == x[2] && ring[3] == Len::ONE, 2)?;
    let p: params::SsmConv = o.params();
    match o.dst_opt(1) {
        // Rows that go into the ring cannot be taken back.
        None => param(p.defer == 0, 0),
        Some(tape) => {
            param(p.defer <= 1, 0)?;
            let n = tape[1];
            shape(!n.cut && (p.defer == 0 || n.n >= x[1].n), DST + 1)?;
            shape(tape == [x[0], n, x[2], Len::ONE], DST + 1)
        }
    }
}

/// Largest state of GATED_DELTA_NET: key and value width of a head.
pub const MAX_STATE: u32 = 128;

pub(super) fn gated_delta_net(o: &Operands<'_>) -> Result<(), Fault> {
    let (q, k, v) = (o.src(0)?, o.src(1)?, o.src(2)?);
    let (g, beta, state) = (o.src(3)?, o.src(4)?, o.src(5)?);
    let [s, h, t, b] = v;
    shape(s.fixed_up_to(MAX_STATE), 2)?;
    shape(q[0] == s && q[1].divides(h) && q[2] == t && q[3].divides(b), 0)?;
    shape(k == q, 1)?;
    shape((g[0] == Len::ONE || g[0] == s) && g[1..] == v[1..], 3)?;
    shape(beta == [Len::ONE, h, t, b], 4)?;
    shape(state == [s, s, h, b], 5)?;
    same(o, DST, v)?;
    let p: params::DeltaNet = o.params();
    match (o.dst_opt(1), o.dst_opt(2), o.dst_opt(3)) {
        (None, None, None) => param(p.defer == 0, 0),
        (Some(tape_k), Some(tape_delta), Some(tape_g)) => {
            param(p.defer <= 1, 0)?;
            let n = tape_k[2];
            shape(!n.cut && (p.defer == 0 || n.n >= t.n), DST + 1)?;
            shape(tape_k == [s, q[1], n, q[3]], DST + 1)?;
            shape(tape_delta == [s, h, n, b], DST + 2)?;
            shape(tape_g == [g[0], h, n, b], DST + 3)
        }
        (k, delta, _) => {
            let missing = if k.is_none() {
                1
            } else if delta.is_none() {
                2
            } else {
                3
            };
            Err(Fault::new(ErrorCode::BadOperand, (DST + missing) as u32))
        }
    }
}

/// Widest head of FLASH_ATTN_EXT.
pub const MAX_HEAD: u32 = 512;

pub(super) fn flash_attn(o: &Operands<'_>) -> Result<(), Fault> {
    let (q, kc, vc, y) = (o.src(0)?, o.src(1)?, o.src(2)?, o.dst()?);
    let [d, h, t, b] = q;
    let n_ctx = Len::fixed(o.header.n_ctx);
    // Token i is at position n_past + i, which the registers keep below n_ctx for the token axis and nothing else.
    shape(d.fixed_up_to(MAX_HEAD) && t == o.tokens(), 0)?;
    shape(kc[0] == d && kc[1].covers(n_ctx) && kc[2].divides(h) && kc[3] == b, 1)?;
    shape(vc[0].fixed_up_to(MAX_HEAD) && vc[1] == kc[1] && vc[2] == kc[2] && vc[3] == b, 2)?;
    shape(y == [vc[0], h, t, b], DST)?;
    match (o.opt(3), o.opt(4)) {
        (Some(k), Some(v)) => {
            shape(k == [d, kc[2], t, b], 3)?;
            shape(v == [vc[0], kc[2], t, b], 4)?;
        }
        (None, None) => {}
        (_, other) => return Err(Fault::new(ErrorCode::BadOperand, if other.is_some() { 3 } else { 4 })),
    }
    if let Some(mask) = o.opt(5) {
        let repeated = mask[2].divides(h) && mask[3].divides(b);
        shape(mask[0].covers(n_ctx) && mask[1].covers(t) && repeated, 5)?;
    }
    if let Some(sinks) = o.opt(6) {
        shape(sinks == [h, Len::ONE, Len::ONE, Len::ONE], 6)?;
    }
    let p: params::FlashAttn = o.params();
    param(p.scale.is_finite(), 0)?;
    param(Visibility::parse(p.visibility).is_some(), 1)?;
    param(p.softcap.is_finite() && p.softcap >= 0.0, 3)?;
    param(p.max_bias.is_finite() && p.max_bias >= 0.0, 4)
}

pub(super) fn argmax(o: &Operands<'_>) -> Result<(), Fault> {
    let x = o.src(0)?;
    shape(x[2] == Len::ONE && x[3] == Len::ONE, 0)?;
    let rows = [x[1], Len::ONE, Len::ONE, Len::ONE];
    same(o, DST, rows)?;
    shape(o.dst_opt(1).is_none_or(|margin| margin == rows), DST + 1)
}

pub(super) fn cpy(o: &Operands<'_>) -> Result<(), Fault> {
    same_shape(o)?;
    let dtype = |slot: Option<(&TensorDesc, DType)>| slot.map(|(_, t)| t);
    let (from, to) = (dtype(o.src[0]), dtype(o.dst[0]));
    let integer = |t: Option<DType>| t == Some(DType::I32);
    // I32 holds ids, which no float copy preserves.
    if integer(from) == integer(to) { Ok(()) } else { Err(Fault::new(ErrorCode::BadType, DST as u32)) }
}

pub(super) fn concat(o: &Operands<'_>) -> Result<(), Fault> {
    let (a, b) = (o.src(0)?, o.src(1)?);
    let axis = o.params::<params::Concat>().axis as usize;
    param(axis < 4, 0)?;
    let mut joined = a;
    shape(!a[axis].cut && !b[axis].cut, 1)?;
    // Lengths are below 2^31: no overflow.
    joined[axis] = Len::fixed(a[axis].n + b[axis].n);
    let mut other = b;
    other[axis] = a[axis];
    shape(other == a, 1)?;
    same(o, DST, joined)
}

/// Most ids that end a generation.
const MAX_STOPS: u32 = 64;

pub(super) fn accept(o: &Operands<'_>) -> Result<(), Fault> {
    let (best, tokens, stops, out) = (o.src(0)?, o.src(1)?, o.src(2)?, o.dst()?);
    let one = [Len::ONE; 3];
    shape(best[0] == o.tokens() && best[1..] == one, 0)?;
    shape(tokens == best, 1)?;
    shape(stops[0].fixed_up_to(MAX_STOPS) && stops[1..] == one, 2)?;
    let row = crate::accept::HEAD as u32 + o.header.max_tokens;
    shape(out == [Len::fixed(row), Len::fixed(crate::accept::SLOTS as u32), Len::ONE, Len::ONE], DST)?;
    shape(o.dst_opt(1) == Some([Len::ONE; 4]), DST + 1)?;
    let p: params::Accept = o.params();
    param((2..=o.header.max_tokens).contains(&p.block), 0)?;
    param(p.n_ctx == o.header.n_ctx, 1)
}

pub(super) fn set_tokens(o: &Operands<'_>) -> Result<(), Fault> {
    let p: params::SetTokens = o.params();
    param(Register::parse(p.register).is_some(), 0)?;
    param(p.plus <= o.header.max_tokens, 1)
}

pub(super) fn kv_append(o: &Operands<'_>) -> Result<(), Fault> {
    let (k, v, kc) = (o.src(0)?, o.src(1)?, o.dst()?);
    let vc = o.dst_opt(1).ok_or(Fault::new(ErrorCode::BadOperand, DST as u32 + 1))?;
    let [d, hk, t, b] = k;
    let n_ctx = Len::fixed(o.header.n_ctx);
    // As in FLASH_ATTN_EXT: positions are bounded for the token axis and nothing else.
    shape(d.fixed_up_to(MAX_HEAD) && t == o.tokens(), 0)?;
    shape(v[0].fixed_up_to(MAX_HEAD) && v[1..] == k[1..], 1)?;
    shape(kc[1].covers(n_ctx) && kc == [d, kc[1], hk, b], DST)?;
    shape(vc == [v[0], kc[1], hk, b], DST + 1)
}
