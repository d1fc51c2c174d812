//! Layer norms and products with biases, as encoders have them.

use hexflash_abi::Op;
use hexflash_abi::op::params;

use super::clamps::Clamps;

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

fn bias(name: &str) -> String {
    format!("{name}.bias")
}

fn weight(name: &str) -> String {
    format!("{name}.weight")
}

/// Plans the bias of `name`, `n` values, if the file has one.
fn plan_bias(plan: &mut WeightPlanner<'_>, scope: Scope, name: &str, n: u32) -> Result<(), ModelError> {
    match plan.has(scope, &bias(name)) {
        true => plan.add(scope, &bias(name), &[n], Form::Plain),
        false => Ok(()),
    }
}

/// Adds the bias of `name` to each row of x{n,t}, in place, if there is one.
fn add_bias(g: &mut Graph<'_>, scope: Scope, name: &str, x: Tensor) {
    let label = scope.label(&bias(name));
    if g.has_weight(&label) {
        let bias = g.weight(&label);
        g.update(Op::Add, x, bias);
    }
}

/// Plans the layer norm `name` of rows of `n` values.
///
/// # Errors
/// A tensor is missing or has another shape.
pub(super) fn plan_norm(
    plan: &mut WeightPlanner<'_>,
    scope: Scope,
    name: &str,
    n: u32,
) -> Result<(), ModelError> {
    plan.add(scope, &weight(name), &[n], Form::Plain)?;
    plan_bias(plan, scope, name, n)
}

/// Norm of the layers of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormKind {
    /// (x - mean(x)) / sqrt(variance(x) + eps) * w + b.
    Layer,
    /// x / sqrt(mean(x x) + eps) * w + b.
    Rms,
}

/// The norm `name` of this kind of each row of x{n,t}, into a new activation.
pub(super) fn norm_of(
    g: &mut Graph<'_>,
    kind: NormKind,
    (scope, name): (Scope, &str),
    x: Tensor,
    eps: f32,
) -> Tensor {
    match kind {
        NormKind::Layer => norm(g, scope, name, x, eps),
        NormKind::Rms => {
            let y = g.rms_norm(x, &scope.label(&weight(name)), eps);
            add_bias(g, scope, name, y);
            y
        }
    }
}

/// The layer norm `name` of each row of x{n,t}: (x - mean(x)) / sqrt(variance(x) + eps) * w + b, into a new
/// activation.
pub(super) fn norm(g: &mut Graph<'_>, scope: Scope, name: &str, x: Tensor, eps: f32) -> Tensor {
    let y = g.activation_like(x, g.rec.ne(x)[0]);
    g.rec.op_with(Op::Norm, &[Some(x)], &[y], &params::Norm { eps });
    let w = g.weight(&scope.label(&weight(name)));
    g.update(Op::Mul, y, w);
    add_bias(g, scope, name, y);
    y
}

/// Plans the matrix `name`, {k,n}, and its bias.
///
/// # Errors
/// A tensor is missing or has another shape.
pub(super) fn plan_linear(
    plan: &mut WeightPlanner<'_>,
    scope: Scope,
    name: &str,
    [k, n]: [u32; 2],
) -> Result<(), ModelError> {
    plan.add(scope, &weight(name), &[k, n], Form::Tiled)?;
    plan_bias(plan, scope, name, n)
}

/// W x + b per row of x{k,t}, within bounds that the encoder may have: a new activation {n,t}.
pub(super) fn bounded_linear(
    g: &mut Graph<'_>,
    clamps: &Clamps,
    (scope, name): (Scope, &str),
    x: Tensor,
) -> Tensor {
    let x = clamps.input(g, &scope.name(name), x);
    let y = linear(g, scope, name, x);
    clamps.output(g, &scope.name(name), y);
    y
}

/// W x + b per row of x{k,t}: a new activation {n,t}.
pub(super) fn linear(g: &mut Graph<'_>, scope: Scope, name: &str, x: Tensor) -> Tensor {
    let y = g.linear(x, &scope.label(&weight(name)));
    add_bias(g, scope, name, y);
    y
}

/// W x + b per row of x{k,t}, into y{n,t}.
pub(super) fn linear_into(g: &mut Graph<'_>, scope: Scope, name: &str, x: Tensor, y: Tensor) {
    g.linear_into(x, &scope.label(&weight(name)), y);
    add_bias(g, scope, name, y);
}
