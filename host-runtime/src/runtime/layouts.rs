//! Where everything lies that programs refer to.

use hexflash_abi::program::Numerics;

use super::options::EngineOptions;
use crate::model::{
    self, Buffers, Context, Decoder, DraftModel, Encoder, IoLayout, KeptLayout, KeptPlanner, MAX_SHARED,
    Purpose, Recipes, Rollback, Split, WeightMap, Widths,
};
use crate::record::RecordError;

/// What a device has of a target and its draft model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// The target, and the draft model if there is one.
    Target,
    /// The draft model alone.
    Draft,
}

/// The models that programs are made for.
#[derive(Clone, Copy)]
pub(super) struct Models<'m> {
    pub(super) target: &'m Decoder,
    pub(super) draft: Option<&'m dyn DraftModel>,
    pub(super) encoder: Option<&'m Encoder>,
}

/// What a model's programs refer to.
#[derive(Debug)]
pub(super) struct Layouts {
    pub(super) kept: KeptLayout,
    pub(super) io: IoLayout,
    pub(super) split: Split,
}

impl Layouts {
    pub(super) fn new(
        Models { target, draft, encoder }: Models<'_>,
        n_ctx: u32,
        options: &EngineOptions,
        split: Split,
        holds: Holds,
    ) -> Result<Self, RecordError> {
        let rollback = if options.speculate || draft.is_some() { Rollback::LastStep } else { Rollback::None };
        let snapshots = n_snapshots(target, draft, options, &split)?;
        let mut kept = KeptPlanner::new(n_ctx, rollback)
            .room_for(options.sequences, snapshots)
            .with_caches(options.caches);
        let widest = options.batch.max(encoder.map_or(0, Encoder::rows_at_once));
        if !options.whole_windows {
            kept = kept.kv_rings(widest.max(MAX_SHARED));
        }
        if let Some(encoder) = encoder {
            kept = kept.with_encoder();
            encoder.keep(&mut kept)?;
        }
        if holds == Holds::Target {
            target.keep(&mut kept, &split)?;
        }
        if let Some(draft) = draft {
            model::keep_draft(draft, target, &mut kept)?;
        }
        let widths = Widths::new(widest, options.sequences);
        let probes = options.probes.len().max(usize::from(options.vectors));
        let io = IoLayout::new(target.n_embd, target.n_vocab, widths, probes);
        let io = match encoder {
            Some(encoder) => io.with_tiles(encoder.tile_widths(options.batch)),
            None => io,
        };
        Ok(Self { kept: kept.finish(), io, split })
    }

    pub(super) fn recipes<'a>(
        &'a self,
        Models { target, draft, encoder }: Models<'a>,
        weights: &'a WeightMap,
        buffers: Buffers,
        numerics: Numerics,
    ) -> Recipes<'a> {
        let Self { kept, io, split } = self;
        // Those of `fast` are prompts alone.
        let numerics = if numerics == Numerics::Hmx { numerics } else { Numerics::Exact };
        Recipes { target, draft, encoder, cx: Context { weights, kept, io, split, buffers }, numerics }
    }
}

/// How many snapshots of a sequence's recurrent states the settings have room for: none where there is no
/// such state.
fn n_snapshots(
    target: &Decoder,
    draft: Option<&dyn DraftModel>,
    options: &EngineOptions,
    split: &Split,
) -> Result<u32, RecordError> {
    let mut alone = KeptPlanner::new(1, Rollback::None);
    target.keep(&mut alone, split)?;
    draft.map_or(Ok(()), |draft| draft.memory(&mut alone))?;
    let bytes = alone.finish().bytes(Purpose::Recurrent);
    let most = options.snapshot_bytes.checked_div(bytes).unwrap_or(0);
    Ok(u32::try_from(most).unwrap_or(u32::MAX).min(MAX_SNAPSHOTS))
}

/// Most snapshots: more would be searched for longer than it takes to compute the tokens again.
const MAX_SNAPSHOTS: u32 = 4096;
