//! Bounds of what goes into products and comes out of them: scalars beside matrices, which some encoders were
//! trained with.

use std::collections::BTreeMap;

use hexflash_abi::Op;
use hexflash_abi::op::params::{Unary, UnaryKind};

use crate::gguf::Gguf;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::{WeightError, plain_values};

/// Ends of the names of the scalars, in the order of [`Bounds`].
const NAMES: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

/// Least and greatest input, least and greatest output.
type Bounds = [f32; 4];

/// The bounds of an encoder's products, by the names of their matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Clamps {
    bounds: BTreeMap<String, Bounds>,
}

impl Clamps {
    /// Reads the bounds of a file.
    ///
    /// # Errors
    /// One is no number, or no scalar.
    pub(super) fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let mut bounds = BTreeMap::new();
        for tensor in gguf.tensors() {
            let Some((matrix, end)) = tensor.name.rsplit_once('.') else { continue };
            let Some(i) = NAMES.iter().position(|name| *name == end) else { continue };
            let wrong = || ModelError::Shape {
                path: gguf.path().to_path_buf(),
                name: tensor.name.clone(),
                found: tensor.shape().to_vec(),
                expected: vec![1],
            };
            // A tensor of another length is not read, however long it is.
            if tensor.shape().iter().any(|&n| n != 1) {
                return Err(wrong());
            }
            let values = plain_values(gguf, &tensor.name).map_err(|error: WeightError| {
                ModelError::Encoder { path: gguf.path().to_path_buf(), reason: error.to_string() }
            })?;
            let &[value] = &values[..] else { return Err(wrong()) };
            let all = [f32::MIN, f32::MAX, f32::MIN, f32::MAX];
            bounds.entry(matrix.to_owned()).or_insert(all)[i] = value;
        }
        let sound = |[least, most, low, high]: &Bounds| least <= most && low <= high;
        match bounds.iter().find(|(_, bounds)| !sound(bounds)) {
            None => Ok(Self { bounds }),
            Some((matrix, _)) => Err(ModelError::Encoder {
                path: gguf.path().to_path_buf(),
                reason: format!("{matrix}: the least value that it takes or gives is above the greatest"),
            }),
        }
    }

    /// Marks the scalars of the matrix `name` as used.
    ///
    /// # Errors
    /// None: they were read.
    pub(super) fn plan(&self, plan: &mut WeightPlanner<'_>, name: &str) -> Result<(), ModelError> {
        if self.bounds.contains_key(name) {
            for end in NAMES {
                let scalar = format!("{name}.{end}");
                if plan.has(Scope::ENCODER, &scalar) {
                    plan.read_by_host(&scalar, &[1])?;
                }
            }
        }
        Ok(())
    }

    /// Input of the product with the matrix `name`: x, or a bounded copy.
    pub(super) fn input(&self, g: &mut Graph<'_>, name: &str, x: Tensor) -> Tensor {
        let Some(&[least, most, ..]) = self.bounds.get(name) else { return x };
        let y = g.activation_like(x, g.rec.ne(x)[0]);
        g.rec.op_with(Op::Unary, &[Some(x)], &[y], &clamp(least, most));
        y
    }

    /// Bounds what came out of it, in place.
    pub(super) fn output(&self, g: &mut Graph<'_>, name: &str, y: Tensor) {
        if let Some(&[.., least, most]) = self.bounds.get(name) {
            g.rec.op_with(Op::Unary, &[Some(y)], &[y], &clamp(least, most));
        }
    }
}

const fn clamp(least: f32, most: f32) -> Unary {
    Unary { kind: UnaryKind::Clamp.wire(), a: least, b: most }
}
