//! What a model as a whole multiplies its stream and its logits by.

use super::graph::Graph;
use crate::record::Tensor;

/// Factors of a model as a whole; what its layers multiply by is theirs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Factor on embeddings where they enter the trunk.
    pub embedding: f32,
    /// Factor on logits.
    pub logits: f32,
    /// Bound of logits, after the factor; 0 for none.
    pub logit_cap: f32,
}

impl Scales {
    /// Scales that change nothing: what most architectures have.
    pub const NONE: Self = Self { embedding: 1.0, logits: 1.0, logit_cap: 0.0 };

    /// Scales embeddings, in place.
    pub(super) fn embed(&self, g: &mut Graph<'_>, x: Tensor) {
        if self.embedding != 1.0 {
            g.scale(x, self.embedding);
        }
    }

    /// Scales logits and bounds them, in place.
    pub(super) fn finish(&self, g: &mut Graph<'_>, logits: Tensor) {
        if self.logits != 1.0 {
            g.scale(logits, self.logits);
        }
        if self.logit_cap > 0.0 {
            g.cap(logits, self.logit_cap);
        }
    }
}
