//! Attention over keys and values that are there: its operands, and what its rows see.

use core::ops::Range;

use hexflash_abi::op::params::FlashAttn;

use super::band::Band;
use super::format::Format;
use crate::memory::View;
use crate::step::Span;

/// Which positions the queries of a span may see, before window and what a mask hides among them.
#[derive(Clone, Copy)]
pub enum Sight {
    /// Positions up to the query's own.
    Causal,
    /// Positions up to the span's last token.
    Block,
    /// Positions before the span.
    Past,
    /// Positions up to the span's last token, and to the end of the window that lies around the query.
    Around,
    /// Positions that a mask shows at most, whatever the position of the query.
    Band(Band),
}

/// Attention over keys and values that are there. For the operands see the module's documentation.
#[derive(Clone, Copy)]
pub struct Attention {
    pub q: View,
    /// Queries as keys are multiplied with them: q, or y where keys are rotated. There a query waits,
    /// rotated, in its own row of y, which is written when nobody needs it any more.
    pub queries: View,
    pub k_cache: View,
    pub v_cache: View,
    pub keys: Format,
    pub values: Format,
    pub mask: Option<View>,
    pub sinks: Option<View>,
    pub y: View,
    pub params: FlashAttn,
    pub sight: Sight,
}

/// A query row: where it comes from, and the positions that it may see.
#[derive(Clone, Copy)]
pub struct Query {
    pub token: usize,
    pub head: usize,
    pub from: usize,
    pub to: usize,
}

impl Attention {
    /// The row of head `head` and token `token` of a span.
    #[inline(always)]
    pub fn query(&self, span: &Span, token: usize, head: usize) -> Query {
        let after = span.n_past + token + 1;
        // Without a window it is longer than any context.
        let window = match self.params.window {
            0 => usize::MAX,
            window => window as usize,
        };
        let from = after.saturating_sub(window);
        let Range { start: from, end: to } = match self.sight {
            Sight::Causal => from..after,
            Sight::Block => from..span.end(),
            // A window may end before them.
            Sight::Past => from.min(span.n_past)..span.n_past,
            Sight::Around => from..(after - 1).saturating_add(window).min(span.end()),
            Sight::Band(band) => band.of_query(token),
        };
        // What is hidden may be all that a query would see.
        let from = from.max(self.params.first as usize).min(to);
        Query { token: span.first + token, head, from, to }
    }

    /// The row after another one of a kv head of `group` heads, without a division, which is a function call
    /// on a DSP.
    #[inline(always)]
    pub fn after(&self, span: &Span, kv_head: usize, group: usize, query: &Query) -> Query {
        let (token, head) = (query.token - span.first, query.head + 1);
        if head == (kv_head + 1) * group {
            self.query(span, token + 1, kv_head * group)
        } else {
            Query { head, ..*query }
        }
    }

    /// One past the last position that any query of a span may see.
    pub fn end(&self, span: &Span) -> usize {
        match self.sight {
            Sight::Causal | Sight::Block | Sight::Around => span.end(),
            Sight::Past => span.n_past,
            Sight::Band(band) => band.of_query(span.rows.saturating_sub(1)).end,
        }
    }
}
