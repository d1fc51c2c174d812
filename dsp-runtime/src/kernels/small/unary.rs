//! UNARY: the functions of ggml that no graph of our own has.
//!
//! They are compiled for one kind of vectors ([`Hvx::Everywhere`]), in plain loops: there are many of them,
//! and none is where the time goes.

use hexflash_abi::op::params::UnaryKind;
use hexflash_abi::op::{params, unary as abi};
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::{Hvx, LANES, functions};
use crate::kernels::shared::map::{self, Map};
use crate::kernels::shared::pieces::{PIECE, Pieces};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};

/// y = f(x), row by row.
struct Unary {
    kind: UnaryKind,
    params: params::Unary,
    x: View,
    y: View,
    pieces: Pieces,
}

/// UNARY: x{n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let params: params::Unary = run.params();
    // Validation has parsed it.
    let kind = UnaryKind::parse(params.kind).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
    let [x, y] = View::joined([run.operand(abi::X)?, run.operand(abi::Y)?]);
    run.parallel(&Unary { kind, params, x, y, pieces: Pieces::of(&y, run.pool.workers(), PIECE) })
}

map::functions! {
    functions:
    Abs: abs;
    Sgn: sgn;
    Step: step;
    Tanh: tanh;
    Elu: elu;
    Relu: relu;
    Gelu: gelu;
    GeluQuick: gelu_quick;
    GeluErf: gelu_erf;
    HardSwish: hard_swish;
    HardSigmoid: hard_sigmoid;
    Expm1: expm1;
    Floor: floor;
    Ceil: ceil;
    Round: round;
    Trunc: trunc;
    Sqrt: sqrt;
    Log: log;
    Sin: sin;
    Cos: cos;
}

struct LeakyRelu {
    slope: f32,
}

impl Map for LeakyRelu {
    #[inline(always)]
    fn of<H: Hvx>(&self, v: H::F) -> H::F {
        functions::leaky_relu::<H>(v, self.slope)
    }
}

struct Clamp {
    low: f32,
    high: f32,
}

impl Map for Clamp {
    #[inline(always)]
    fn of<H: Hvx>(&self, v: H::F) -> H::F {
        functions::clamp::<H>(v, self.low, self.high)
    }
}

/// y = f(x), of a piece of a row.
#[inline(never)]
fn of_piece<H: Hvx>(f: &impl Map, x: Row<'_>, y: &mut RowMut<'_>) {
    for i in 0..x.vectors() {
        y.set_vector::<H>(i, f.of::<H>(x.vector::<H>(i)));
    }
}

impl Unary {
    /// Claims and does units until there are none.
    fn work_off<H: Hvx>(&self, worker: &mut Worker<'_>) {
        while let Some(unit) = worker.claim() {
            let (r, at, n) = self.pieces.of_unit(unit);
            let i = self.y.unravel(r);
            let x = self.x.row(i).part(at, n);
            // SAFETY: `claim` gives the unit, and with it this piece of row `i` of y, to this worker alone.
            // An operand that overlaps y lies in its very place, row by row (validation).
            let y = &mut unsafe { self.y.part_mut(i, at, n) };
            match self.kind {
                UnaryKind::Abs => of_piece::<H>(&Abs, x, y),
                UnaryKind::Sgn => of_piece::<H>(&Sgn, x, y),
                UnaryKind::Step => of_piece::<H>(&Step, x, y),
                UnaryKind::Tanh => of_piece::<H>(&Tanh, x, y),
                UnaryKind::Elu => of_piece::<H>(&Elu, x, y),
                UnaryKind::Relu => of_piece::<H>(&Relu, x, y),
                UnaryKind::Gelu => of_piece::<H>(&Gelu, x, y),
                UnaryKind::GeluQuick => of_piece::<H>(&GeluQuick, x, y),
                UnaryKind::GeluErf => of_piece::<H>(&GeluErf, x, y),
                UnaryKind::HardSwish => of_piece::<H>(&HardSwish, x, y),
                UnaryKind::HardSigmoid => of_piece::<H>(&HardSigmoid, x, y),
                UnaryKind::Expm1 => of_piece::<H>(&Expm1, x, y),
                UnaryKind::Floor => of_piece::<H>(&Floor, x, y),
                UnaryKind::Ceil => of_piece::<H>(&Ceil, x, y),
                UnaryKind::Round => of_piece::<H>(&Round, x, y),
                UnaryKind::Trunc => of_piece::<H>(&Trunc, x, y),
                UnaryKind::Sqrt => of_piece::<H>(&Sqrt, x, y),
                UnaryKind::Log => of_piece::<H>(&Log, x, y),
                UnaryKind::Sin => of_piece::<H>(&Sin, x, y),
                UnaryKind::Cos => of_piece::<H>(&Cos, x, y),
                UnaryKind::LeakyRelu => of_piece::<H>(&LeakyRelu { slope: self.params.a }, x, y),
                UnaryKind::Clamp => of_piece::<H>(&Clamp { low: self.params.a, high: self.params.b }, x, y),
            }
        }
    }
}

impl Kernel for Unary {
    fn units(&self) -> usize {
        self.pieces.units()
    }

    fn work(&self) -> usize {
        // Between 4 and 60 packets for a vector.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 40)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::op::params::{Unary, UnaryKind};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// Every function reaches its own loop, at lengths around a vector, in place too.
    #[test]
    fn each_kind_is_its_function() {
        for &kind in UnaryKind::ALL {
            let parameters = match kind {
                UnaryKind::LeakyRelu => Unary { a: 0.25, ..Unary::of(kind) },
                UnaryKind::Clamp => Unary { a: -1.0, b: 2.0, ..Unary::of(kind) },
                _ => Unary::of(kind),
            };
            for n in [1, 31, 33, 600] {
                let positive = matches!(kind, UnaryKind::Sqrt | UnaryKind::Log);
                let x = random(n as u64, n * 3, if positive { 0.1 } else { -6.0 }, 6.0);
                for in_place in [false, true] {
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let a = batch.f32([n as u32, 3, 1, 1], &x);
                        let y = if in_place { a } else { batch.f32([n as u32, 3, 1, 1], &vec![7.0; n * 3]) };
                        batch
                            .run(setup, Op::Unary, &[a], &[y], &parameters, StepRegisters::step(0, 1))
                            .unwrap();
                        batch.floats(y)
                    });
                    for (&x, y) in x.iter().zip(actual) {
                        let want = exact(kind, x.into());
                        assert!(
                            (f64::from(y) - want).abs() < 1e-6 * want.abs().max(4.0),
                            "{}({x}): {y}, not {want}",
                            kind.name()
                        );
                    }
                }
            }
        }
    }

    fn exact(kind: UnaryKind, x: f64) -> f64 {
        let part = ((x + 3.0) / 6.0).clamp(0.0, 1.0);
        match kind {
            UnaryKind::Abs => x.abs(),
            UnaryKind::Sgn => x.signum(),
            UnaryKind::Step => f64::from(u8::from(x > 0.0)),
            UnaryKind::Tanh => x.tanh(),
            UnaryKind::Elu => x.max(x.exp_m1().min(0.0)),
            UnaryKind::Relu => x.max(0.0),
            UnaryKind::Gelu => {
                x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
            }
            UnaryKind::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
            // Beside the tests of the function itself: that it is this one and not its neighbour.
            UnaryKind::GeluErf => x * libm::erfc(-x / 2f64.sqrt()) / 2.0,
            UnaryKind::HardSwish => x * part,
            UnaryKind::HardSigmoid => part,
            UnaryKind::Expm1 => x.exp_m1(),
            UnaryKind::Floor => x.floor(),
            UnaryKind::Ceil => x.ceil(),
            UnaryKind::Round => x.round(),
            UnaryKind::Trunc => x.trunc(),
            UnaryKind::Sqrt => x.sqrt(),
            UnaryKind::Log => x.ln(),
            UnaryKind::Sin => x.sin(),
            UnaryKind::Cos => x.cos(),
            UnaryKind::LeakyRelu => {
                if x > 0.0 {
                    x
                } else {
                    x / 4.0
                }
            }
            UnaryKind::Clamp => x.clamp(-1.0, 2.0),
        }
    }
}
