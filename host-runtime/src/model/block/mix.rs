//! What every block that mixes tokens does.

use crate::model::cache_types::CacheTypes;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::kept::KeptPlanner;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};

/// What mixes the tokens of a layer. The labels of its tensors begin with the layer's scope.
pub trait Mix {
    /// Plans its weights.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError>;

    /// Declares what it keeps.
    ///
    /// # Errors
    /// It is more than programs can describe.
    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError>;

    /// Records a{n_embd,t} -> y{n_embd,t}.
    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor;

    /// Bytes of a copy of its recurrent state: what could not be taken back without a tape.
    fn state_bytes(&self) -> u64;

    /// The longest context whose caches, for `n_slots` sequences, programs can describe.
    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32;
}
