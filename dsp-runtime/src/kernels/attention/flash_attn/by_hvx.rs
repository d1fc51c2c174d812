//! Attention without the matrix unit: how its work is shared out.

use hexflash_abi::Fault;

use super::attend::Attend;
use super::attention::Attention;
use super::plan::AttendLayout;
use super::put_together::PutTogether;
use crate::pool::{Kernel, Workers};
use crate::step::Span;
use crate::vtcm::VtcmPlan;

/// Shares the work out and does it.
///
/// # Errors
/// A transfer that fails.
pub fn run(of: &Attention, pool: &mut dyn Workers, vtcm: VtcmPlan, spans: &[Span]) -> Result<(), Fault> {
    let [d, heads, _, batches] = of.q.ne;
    let (dv, kv_heads) = (of.v_cache.ne[0], of.k_cache.ne[2]);
    let stage = AttendLayout::new(d, dv, of.keys, of.values);
    let group = heads / kv_heads;
    // Enough units for all workers, but the heads of a group together.
    let (workers, few) = (pool.workers(), kv_heads * batches * spans.len());
    let longest = spans.iter().map(|span| span.rows).max().unwrap_or(0);
    let most = stage.rows(vtcm.own);
    let rows = (longest * group).div_ceil(workers.div_ceil(few)).max(group).min(most).max(1);
    let mut kernel = Attend { of: *of, spans, group, rows, stage, splits: None };
    // Few rows, and so too few units: one for every split, if there is room for what they find. A unit
    // then has all rows of its span, so that there is a split for each between the first and the last.
    let splits = spans.iter().map(|span| kernel.splits_of(span).len()).max().unwrap_or(0);
    let room = vtcm.shared / stage.found();
    let together = longest * group <= most && splits > 1 && kernel.units() < workers;
    if together && heads * of.y.ne[2] * batches * splits <= room {
        (kernel.rows, kernel.splits) = (longest * group, Some(splits));
        pool.run(&kernel, vtcm)?;
        pool.run(&PutTogether { attend: &kernel, splits }, vtcm)
    } else {
        pool.run(&kernel, vtcm)
    }
}
