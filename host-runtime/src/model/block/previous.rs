//! The row of the token before: what a layer that predicts from the past reads beside its own token.
//!
//! A causal convolution with the taps 1 and 0 moves rows on by one token. It has all that this needs: a ring,
//! in which the last row of one step waits for the next one, for each sequence; zeros before position 0; and
//! a tape, because of a step whose tokens are taken back in part the last one that stays counts.

use super::conv::CausalConv;
use crate::model::graph::{Graph, Tapes};
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::limits::MAX_VERIFY;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};

/// The taps: a constant.
const TAPS: &str = "previous.taps";

/// Rows of `width` values, and those of the token before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct Previous {
    /// Values of a row.
    pub width: u32,
}

impl Previous {
    const fn conv(self) -> CausalConv {
        CausalConv { channels: self.width, taps: 2, silu: false }
    }

    /// Plans the constant.
    pub(in crate::model) fn weights(self, plan: &mut WeightPlanner<'_>, scope: Scope) {
        let n = self.width as usize;
        plan.constant(&scope.label(TAPS), || [vec![1.0; n], vec![0.0; n]].concat());
    }

    /// Declares the rows, which are there for `purpose`. The ring has room for those of a tape as well, and
    /// for one more: then [`peek`](Self::peek) loses none that a text which is cut back goes on from.
    pub(in crate::model) fn keep(
        self,
        plan: &mut KeptPlanner,
        scope: Scope,
        purpose: Purpose,
    ) -> Result<(), RecordError> {
        self.conv().keep_rows(plan, scope, purpose, MAX_VERIFY + 2)
    }

    /// The rows of the tokens before those of x{width,t}, which are kept for later steps.
    pub(in crate::model) fn record(self, g: &mut Graph<'_>, scope: Scope, x: Tensor) -> Tensor {
        let taps = self.taps(g, scope);
        self.conv().apply(g, scope, [x, taps], g.tapes())
    }

    /// The row of the last token of the context, for a step of one token that does not become part of it yet.
    /// `x`{width,t} may have any finite values: they stand in the ring only until a step runs that token.
    pub(in crate::model) fn peek(self, g: &mut Graph<'_>, scope: Scope, x: Tensor) -> Tensor {
        let taps = self.taps(g, scope);
        self.conv().apply(g, scope, [x, taps], Tapes::Fold)
    }

    /// The constant as {width,2}.
    fn taps(self, g: &mut Graph<'_>, scope: Scope) -> Tensor {
        let taps = g.weight(&scope.label(TAPS));
        g.rec.view(taps, 0, [self.width, 2, 1, 1], [4, 4 * self.width, 0, 0], None)
    }
}
