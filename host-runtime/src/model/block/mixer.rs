//! The blocks that a layer's mixer can be.

use super::attention::Attention;
use super::delta_net::DeltaNet;
use super::mix::Mix;
use super::short_conv::ShortConv;
use crate::model::cache_types::CacheTypes;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::kept::KeptPlanner;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};

/// The mixer of a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Attention over the whole context or a window of it.
    Attention(Attention),
    /// Gated DeltaNet.
    DeltaNet(DeltaNet),
    /// A gated short convolution.
    ShortConv(ShortConv),
}

impl Mixer {
    /// What people call its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Attention(attention) if attention.window > 0 => "attention in a window",
            Self::Attention(_) => "full attention",
            Self::DeltaNet(_) => "linear (Gated DeltaNet)",
            Self::ShortConv(_) => "gated short convolution",
        }
    }

    fn block(&self) -> &dyn Mix {
        match self {
            Self::Attention(block) => block,
            Self::DeltaNet(block) => block,
            Self::ShortConv(block) => block,
        }
    }
}

impl Mix for Mixer {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        self.block().weights(plan, scope)
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        self.block().keep(plan, scope)
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        self.block().record(g, scope, a)
    }

    fn state_bytes(&self) -> u64 {
        self.block().state_bytes()
    }

    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.block().longest_context(caches, n_slots)
    }
}
