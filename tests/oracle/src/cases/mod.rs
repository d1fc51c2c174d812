//! The catalogue of conformance cases.
//!
//! [`all`] lists them as plain data. A [`Case`] makes its own inputs, deterministically from its seed, and
//! its expected result through [`ops`](crate::ops); a runner computes the same on a device and calls
//! [`Case::compare`]. Shapes, initialisation and tolerances are those of llama.cpp's test-backend-ops for the
//! operations that hexflash has (left out: in-place forms and overlapping sources, which are about aliasing,
//! backward passes, and types that hexflash does not know), and ours: ties, gates at their limits, fewer
//! tokens than snapshots, smallest and odd shapes, and the layers of Qwen3.5 0.8B, 4B and 9B.

mod expected;
mod inputs;
mod kind;
mod lists;
mod rng;

use crate::ops::{Cpu, Unary};
use crate::tensor::{Error, GgmlType, Tensor, nmse};
pub use kind::{CaseKind, Gate, GluForm, Layout, Mask, Values};

/// Where a case comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Shape and initialisation of test-backend-ops.
    Upstream,
    /// Edges that upstream leaves out.
    Edge,
    /// The shape of a layer of a real model.
    Model,
}

/// How close a result must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Every byte.
    Exact,
    /// Normalised mean squared error up to this.
    Nmse(f64),
}

/// One conformance case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// ggml's name of the operation.
    pub op: &'static str,
    /// Operation and parameters; unique, and enough to reproduce the case.
    pub name: String,
    /// Seed of the inputs, a hash of the name.
    pub seed: u64,
    /// What is computed.
    pub kind: CaseKind,
    /// How close a result must be.
    pub tolerance: Tolerance,
    /// Where the case comes from.
    pub origin: Origin,
}

/// The inputs of a case, named and in ggml's source order.
#[derive(Debug, Clone)]
pub struct Inputs(pub Vec<(&'static str, Tensor)>);

impl Inputs {
    /// An input that may be absent (mask, sinks, factors, weight).
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, t)| t)
    }

    /// An input that every case of the kind has.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn get(&self, name: &str) -> &Tensor {
        self.find(name).unwrap_or_else(|| panic!("no input {name}"))
    }
}

/// A result that is not close enough.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// Another type or shape.
    #[error("{got:?} {got_ne:?} instead of {want:?} {want_ne:?}")]
    Shape {
        /// Expected type.
        want: GgmlType,
        /// Expected shape.
        want_ne: [i64; 4],
        /// Type of the result.
        got: GgmlType,
        /// Shape of the result.
        got_ne: [i64; 4],
    },
    /// An element that had to be equal.
    #[error("element {index} is {got} instead of {want}")]
    Different {
        /// Index in logical order.
        index: usize,
        /// Expected value.
        want: f32,
        /// Value of the result.
        got: f32,
    },
    /// The error is too large.
    #[error(
        "NMSE {nmse:.3e} is above {limit:.1e}; the largest difference is at element {index}: {got} instead of \
         {want}"
    )]
    Nmse {
        /// The error.
        nmse: f64,
        /// The tolerance.
        limit: f64,
        /// Element with the largest difference.
        index: usize,
        /// Expected value there.
        want: f32,
        /// Value of the result there.
        got: f32,
    },
}

impl Case {
    fn new(origin: Origin, kind: CaseKind) -> Self {
        let op = kind.op();
        let name = format!("{op}({})", kind.params());
        Self { op, seed: rng::hash(&name), name, kind, tolerance: tolerance(&kind), origin }
    }

    /// The inputs, the same on every machine and in every version of this crate that keeps the case.
    pub fn inputs(&self) -> Inputs {
        inputs::inputs(&self.kind, self.seed)
    }

    /// ggml's result on all cores.
    pub fn expected(&self) -> Result<Tensor, Error> {
        self.expected_from(&self.inputs(), Cpu::default())
    }

    /// ggml's result on inputs that the caller already has.
    pub fn expected_from(&self, inputs: &Inputs, cpu: Cpu) -> Result<Tensor, Error> {
        expected::expected(&self.kind, inputs, cpu)
    }

    /// Leading elements of the result that the operation defines: all, but for state planes of
    /// GATED_DELTA_NET beyond the number of tokens.
    pub fn defined(&self) -> usize {
        match self.kind {
            CaseKind::GatedDeltaNet { heads, s, t, b, vrep, snapshots, .. } => {
                let h = heads * vrep;
                (s * h * t * b + t.min(snapshots) * s * s * h * b) as usize
            }
            _ => usize::MAX,
        }
    }

    /// The error of a result, or why it does not pass.
    pub fn compare(&self, want: &Tensor, got: &Tensor) -> Result<f64, Mismatch> {
        if (want.ty, want.ne) != (got.ty, got.ne) {
            return Err(Mismatch::Shape { want: want.ty, want_ne: want.ne, got: got.ty, got_ne: got.ne });
        }
        let (mut a, mut b) = (want.to_f32(), got.to_f32());
        a.truncate(self.defined());
        b.truncate(self.defined());
        match self.tolerance {
            Tolerance::Exact => match a.iter().zip(&b).position(|(x, y)| x.to_bits() != y.to_bits()) {
                Some(index) => Err(Mismatch::Different { index, want: a[index], got: b[index] }),
                None => Ok(0.0),
            },
            Tolerance::Nmse(limit) => {
                let nmse = nmse(&a, &b);
                if nmse <= limit {
                    return Ok(nmse);
                }
                let off = |i: &usize| {
                    let d = (a[*i] - b[*i]).abs();
                    if d.is_nan() && a[*i] != b[*i] { f32::INFINITY } else { d }
                };
                let index = (0..a.len()).max_by(|i, j| off(i).total_cmp(&off(j))).unwrap_or(0);
                Err(Mismatch::Nmse { nmse, limit, index, want: a[index], got: b[index] })
            }
        }
    }
}

/// test-backend-ops' thresholds. For quantized results: as if one of the values were off by one step.
fn tolerance(kind: &CaseKind) -> Tolerance {
    let one_step = |ty: GgmlType, n: i64| {
        let step = match ty {
            GgmlType::Q5_0 | GgmlType::Q5_1 => 1.0 / 16.0,
            GgmlType::Q8_0 => 1.0 / 64.0,
            _ => 1.0 / 8.0,
        };
        Tolerance::Nmse((step * step / (0.25 * n as f64)).max(1e-7))
    };
    match *kind {
        CaseKind::MulMat { .. } | CaseKind::MulMatId { .. } | CaseKind::FlashAttn { .. } => {
            Tolerance::Nmse(5e-4)
        }
        CaseKind::Argmax { .. }
        | CaseKind::Argsort { .. }
        | CaseKind::AddId { .. }
        | CaseKind::Cont { .. }
        | CaseKind::Concat { .. }
        | CaseKind::GetRows { .. }
        | CaseKind::Repeat { .. } => Tolerance::Exact,
        CaseKind::SetRows { ty, ne, repeat, r, .. } if ty.is_quantized() => {
            one_step(ty, ne[0] * r * ne[2] * repeat[0] * ne[3] * repeat[1])
        }
        // ggml has ln(1 + exp(x)): far below zero the sum keeps a few bits of exp(x), ln_1p all of them.
        CaseKind::Unary { op: Unary::Softplus, max, .. } if max <= -8.0 => Tolerance::Nmse(1e-4),
        CaseKind::Quantize { ne, .. } => one_step(GgmlType::Q8_0, ne.iter().product()),
        CaseKind::Cpy { src, dst, .. } if src == dst => Tolerance::Exact,
        CaseKind::Cpy { dst, ne, .. } if dst.is_quantized() => one_step(dst, ne.iter().product()),
        CaseKind::Cpy { .. } => Tolerance::Nmse(1e-6),
        _ => Tolerance::Nmse(1e-7),
    }
}

/// Every case, in a fixed order, by operation.
pub fn all() -> Vec<Case> {
    let mut seen = std::collections::HashSet::new();
    let mut cases = lists::all();
    // Upstream lists some shapes twice.
    cases.retain(|c| seen.insert(c.name.clone()));
    cases
}
