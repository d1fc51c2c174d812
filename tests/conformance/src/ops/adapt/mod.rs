//! From a case to programs: which ways there are, and why some cases have none.

mod attention;
mod delta_net;
mod matrix;
mod moves;
mod ssm_conv;
mod values;

use std::collections::BTreeSet;

use hexflash_abi::Op;
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_oracle::cases::{Case, CaseKind, GluForm, Inputs, Mismatch, Origin, Tolerance};
use hexflash_oracle::ops::{Binary, Cpu, Unary};
use hexflash_oracle::{GgmlType, Tensor};

use super::lab::Lab;
use super::plan::{OpProgram, T, plain};
use super::tiles::tiled;

/// Why a way failed.
#[derive(Debug)]
pub struct Failure {
    /// The way.
    pub way: &'static str,
    /// What is wrong.
    pub why: String,
    /// The error, if there was a result to measure.
    pub nmse: Option<f64>,
}

/// One case being run.
pub struct Trial<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its inputs.
    pub x: &'a Inputs,
    /// ggml's result.
    pub want: &'a Tensor,
    /// Where it runs.
    pub lab: &'a mut Lab,
    /// Who computes what ways expect that differ from the case.
    pub cpu: Cpu,
    /// Whether only ways through the matrix unit are run.
    pub only_matrix_unit: bool,
    /// Largest error of the ways so far.
    pub nmse: f64,
    /// Ways that passed.
    pub ways: Vec<&'static str>,
    /// Ops that ran.
    pub ops: BTreeSet<&'static str>,
}

/// Registers of a step that nothing depends on.
const STEP: StepRegisters = StepRegisters::step(0, 1);

type Outcome = Result<(), Failure>;

impl Trial<'_> {
    /// Runs a program and returns the memory after it. Where it has batches they are run as the sequences of
    /// one step as well, which must give the same bits: so what holds of the one holds of the other.
    fn run(
        &mut self,
        way: &'static str,
        plan: &OpProgram,
        registers: &StepRegisters,
    ) -> Result<Vec<u8>, Failure> {
        let failure = |why| Failure { way, why, nmse: None };
        let memory = self.lab.run(plan, registers).map_err(failure)?;
        // Steps that use a part of the token axis have gaps between their batches.
        let whole = registers.get(Register::NTokens) == plan.max_tokens;
        if let Some(slots) = plan.by_slots().filter(|_| whole) {
            let words = |why| failure(format!("as sequences of one step: {why}"));
            let apart = self.lab.run(&slots, registers).map_err(words)?;
            if let Some(why) = plan.differs(&memory, &apart) {
                return Err(words(why));
            }
            self.ways.push("slots");
        }
        self.ops.extend(plan.ops().map(Op::name));
        Ok(memory)
    }

    /// Runs a program whose result is the packed tensor `y`, and compares that with the case's.
    fn result(&mut self, way: &'static str, plan: &OpProgram, y: T) -> Outcome {
        let memory = self.run(way, plan, &STEP)?;
        let got = plan.tensor(&memory, y, 1);
        self.verdict(way, &got)
    }

    /// Compares a result with the case's.
    fn verdict(&mut self, way: &'static str, got: &Tensor) -> Outcome {
        let want = self.want;
        self.verdict_against(way, want, got)
    }

    /// Compares a result with another one than the case's, by the case's tolerance.
    fn verdict_against(&mut self, way: &'static str, want: &Tensor, got: &Tensor) -> Outcome {
        // ggml drops trailing dimensions of its results here and there; the elements are the same.
        let got = Tensor { ne: if got.len() == want.len() { want.ne } else { got.ne }, ..got.clone() };
        match self.case.compare(want, &got) {
            Ok(nmse) => {
                self.nmse = self.nmse.max(nmse);
                self.ways.push(way);
                Ok(())
            }
            Err(mismatch) => {
                let nmse = if let Mismatch::Nmse { nmse, .. } = mismatch { Some(nmse) } else { None };
                Err(Failure { way, why: mismatch.to_string(), nmse })
            }
        }
    }

    /// Compares what must be equal to the bit: states and caches that were only copied into.
    fn same_bytes(&self, way: &'static str, what: &str, want: &[u8], got: &[u8]) -> Outcome {
        match want.iter().zip(got).position(|(a, b)| a != b) {
            None if want.len() == got.len() => Ok(()),
            at => {
                let at = at.unwrap_or(want.len().min(got.len()));
                Err(Failure { way, why: format!("{what} differs at byte {at}"), nmse: None })
            }
        }
    }

    /// Whether a way through the matrix unit that computes `products` pairs of matrix tiles is worth its
    /// time. The unit's twin takes about 0.1 ms for each pair. Who asks for the matrix unit alone gets all.
    fn takes_matrix_unit(&self, products: u64, most: u64) -> bool {
        self.lab.lends_matrix_unit() && (products <= most || self.only_matrix_unit)
    }

    /// Whether ways beyond the first are worth their time: all but upstream's many variants.
    fn thorough(&self) -> bool {
        self.case.origin != Origin::Upstream
    }
}

/// Why hexflash cannot run a case, in words that group: the skipped cases are counted by it.
pub fn skip(case: &Case) -> Option<String> {
    use GgmlType::F32;
    let f32_only = |op: &str, ty: GgmlType| (ty != F32).then(|| format!("{op} takes F32, not {}", ty.name()));
    match case.kind {
        CaseKind::MulMat { a, .. } | CaseKind::MulMatId { a, .. } if tiled(a).is_none() => {
            Some(format!("weights of {} have no tiled form", a.name()))
        }
        CaseKind::GetRows { ty, .. } if tiled(ty).is_none() => {
            Some(format!("weights of {} have no tiled form", ty.name()))
        }
        CaseKind::SetRows { ty, .. } if !matches!(ty, F32 | GgmlType::F16 | GgmlType::Q8_0) => {
            Some(format!("SET_ROWS writes F32, F16 and Q8_0, not {}", ty.name()))
        }
        CaseKind::Binary { op: Binary::Sub, .. } => Some(format!("the op table has no {}", case.op)),
        CaseKind::Unary { op: Unary::Neg, .. } => Some("the op table has no NEG".to_owned()),
        CaseKind::Repeat { .. } => Some("the op table has no REPEAT: ADD and MUL broadcast".to_owned()),
        CaseKind::Binary { ty, .. } | CaseKind::Unary { ty, .. } | CaseKind::Glu { ty, .. } => {
            f32_only("elementwise arithmetic", ty)
        }
        CaseKind::Rope { ty, .. } => f32_only("ROPE", ty),
        CaseKind::FlashAttn { kv_ty, .. } if kv_ty.is_quantized() && kv_ty != GgmlType::Q8_0 => {
            Some(format!("caches are F16 or Q8_0, not {}", kv_ty.name()))
        }
        CaseKind::Cpy { src, dst, .. } => match (plain(src), plain(dst)) {
            (Some(_), Some(_))
                if [src, dst].contains(&GgmlType::Q8_0) && [src, dst].contains(&GgmlType::F16) =>
            {
                Some("CPY converts between Q8_0 and F32 only".to_owned())
            }
            (Some(_), Some(_)) if (src == GgmlType::I32) == (dst == GgmlType::I32) => None,
            (Some(_), Some(_)) => Some("CPY does not convert between integers and floats".to_owned()),
            (None, _) => Some(format!("CPY has no {}", src.name())),
            (_, None) => Some(format!("CPY has no {}", dst.name())),
        },
        CaseKind::Cont { ty, .. } if plain(ty).is_none() => Some(format!("CPY has no {}", ty.name())),
        CaseKind::Concat { ty, .. } => f32_only("CONCAT", ty),
        _ => None,
    }
}

/// Runs a case in all its ways.
///
/// # Errors
/// The first way that fails.
pub fn attempt(trial: &mut Trial<'_>) -> Outcome {
    let may_use_unit = matches!(
        trial.case.kind,
        CaseKind::MulMat { .. }
            | CaseKind::MulMatId { .. }
            | CaseKind::GatedDeltaNet { .. }
            | CaseKind::FlashAttn { .. }
    );
    if trial.only_matrix_unit && !may_use_unit {
        return Ok(());
    }
    match trial.case.kind {
        CaseKind::MulMat { .. } => matrix::mul_mat(trial),
        CaseKind::MulMatId { .. } => matrix::mul_mat_id(trial),
        CaseKind::Quantize { .. } => matrix::quantize(trial),
        CaseKind::GetRows { .. } => matrix::get_rows(trial),
        CaseKind::SetRows { .. } => matrix::set_rows(trial),
        CaseKind::Binary { op, .. } => {
            let op = match op {
                Binary::Add => Op::Add,
                Binary::Mul => Op::Mul,
                Binary::Div => Op::Div,
                Binary::Sub => unreachable!("`skip` has a reason for this"),
            };
            values::binary(trial, op)
        }
        CaseKind::Scale { s, b, .. } => values::scale(trial, s, b),
        CaseKind::Unary { op, .. } => values::unary(trial, op),
        CaseKind::Glu { op, form, .. } => values::glu(trial, op, form != GluForm::Fused),
        CaseKind::AddId { .. } => values::add_id(trial),
        CaseKind::RmsNorm { eps, .. } => values::norm(trial, Op::RmsNorm, eps),
        CaseKind::L2Norm { eps, .. } => values::norm(trial, Op::L2Norm, eps),
        CaseKind::Norm { eps, .. } => values::norm(trial, Op::Norm, eps),
        CaseKind::SoftMax { scale, max_bias, .. } => values::soft_max(trial, scale, max_bias),
        CaseKind::SumRows { .. } => values::sum_rows(trial),
        CaseKind::Argsort { descending, .. } => moves::argsort(trial, descending),
        CaseKind::Rope { rope, .. } => values::rope(trial, &rope),
        CaseKind::SsmConv { .. } => ssm_conv::ssm_conv(trial),
        CaseKind::GatedDeltaNet { .. } => delta_net::gated_delta_net(trial),
        CaseKind::FlashAttn { .. } => attention::flash_attn(trial),
        CaseKind::Argmax { .. } => moves::argmax(trial),
        CaseKind::Cpy { .. } => moves::cpy(trial),
        CaseKind::Cont { .. } => moves::cont(trial),
        CaseKind::Concat { dim, .. } => moves::concat(trial, dim),
        CaseKind::Repeat { .. } => unreachable!("`skip` has a reason for this"),
    }
}

/// The limit of a case, for reports.
pub fn limit(case: &Case) -> f64 {
    match case.tolerance {
        Tolerance::Exact => 0.0,
        Tolerance::Nmse(limit) => limit,
    }
}
