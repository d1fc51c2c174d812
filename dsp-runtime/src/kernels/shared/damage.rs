//! Values that are infinite or no numbers: what is left of weights or memory that are damaged.
//!
//! Such values must never become plausible text. They go through the ops as they do in ggml, where NaN gives
//! NaN, and ARGMAX, at the end of every program, fails on them. But qfloat arithmetic, on v73 and v75, has no
//! NaN. It goes on with a large number instead, which a small factor or another scale makes look like any
//! other. So where NaN could be lost on such a processor, bits are tested. This costs next to nothing in the
//! places chosen: the sums of squares of norms, scores, new keys and values, the scales of int8 activations,
//! and logits. One case is not found: a weight in f16, or a scale, that is damaged after the loader has
//! checked it. On v73 it is a large number, and as hard to notice as any other flipped bit.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::{DType, ErrorCode, Fault, Op};

use crate::memory::View;
use crate::op_run::OpRun;

/// Rows in which workers found values that are infinite or no numbers. The op still does its work, with the
/// results that such values have, and fails at the end.
pub struct Damage(AtomicU32);

impl Damage {
    /// The number of no row.
    const NONE: u32 = u32::MAX;

    pub fn none() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }

    /// Notes a row. The lowest one is kept, so that the fault does not depend on which worker came first.
    pub fn note(&self, row: usize) {
        // Relaxed: the end of the job orders what workers note before what the dispatcher reads.
        self.0.fetch_min(u32::try_from(row).unwrap_or(Self::NONE - 1), Ordering::Relaxed);
    }

    /// What has become of the op.
    ///
    /// # Errors
    /// [`ErrorCode::NotFinite`] with the row, in place of the detail that the session knows.
    pub fn outcome(&self) -> Result<(), Fault> {
        match self.0.load(Ordering::Relaxed) {
            Self::NONE => Ok(()),
            row => Err(Fault::new(ErrorCode::NotFinite, row)),
        }
    }
}

/// Whether an op that has run gave finite numbers, as far as can be told.
pub fn gave_finite(run: &OpRun<'_>) -> bool {
    // Rows of SET_ROWS are anywhere in its output, and the others have what they had; so have entries of
    // COPY_SLOT.
    let elsewhere = [Op::SetRows, Op::CopySlot].map(Op::wire).contains(&run.op.opcode);
    let y = run.dst[0].filter(|_| !elsewhere);
    y.is_none_or(|y| is_finite(&y))
}

/// Whether all values are finite, of floats in rows; of anything else it cannot be told.
pub fn is_finite(view: &View) -> bool {
    let floats = view.dtype == DType::F32 && view.nb[0] == 4;
    !floats
        || (0..view.rows()).all(|r| {
            let row = view.row(view.unravel(r));
            (0..row.len()).all(|i| row.get(i).is_finite())
        })
}
