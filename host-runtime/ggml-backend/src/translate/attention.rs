//! FLASH_ATTN_EXT. Keys and values lie in caches that the graph's own ops have written, and what a query sees
//! of them is a mask: ATTEND takes all of it as it is.

use hexflash_abi::op::params;
use hexflash_abi::{DType, Op as DspOp};

use super::operand::Operand;
use super::{Refusal, Translator, float, source_of};
use crate::abi::Tensor;

impl Translator<'_> {
    /// FLASH_ATTN_EXT: q{d,t,h,b}, k{d,n,hk,b}, v{dv,n,hk,b}, mask and sinks, if there are any ->
    /// y{dv,h,t,b}.
    pub(super) fn flash_attn(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (q, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let (k, v) = (self.rows_of_source(node, 1)?, self.rows_of_source(node, 2)?);
        let held = |rows: &Operand| matches!(rows.dtype, DType::F16 | DType::Q8_0) && rows.has_rows();
        if ![k, v].iter().all(held) {
            return Err(Refusal("keys or values that are no rows of F16 or Q8_0"));
        }
        let mut optional = |i: usize, dtype: DType| match source_of(node, i) {
            None => Ok(None),
            Some(tensor) => {
                let operand = self.operand(Some(tensor))?;
                let fits = operand.dtype == dtype && operand.has_rows();
                let refusal = Refusal("the mask or the sinks of FLASH_ATTN_EXT");
                if fits { Ok(Some(self.source(&operand))) } else { Err(refusal) }
            }
        };
        let (mask, sinks) = (optional(3, DType::F16)?, optional(4, DType::F32)?);
        let params =
            params::Attend { scale: float(node, 0), max_bias: float(node, 1), softcap: float(node, 2) };
        let q = self.rows(&q.permuted([0, 2, 1, 3]))?;
        let src = [Some(q), Some(self.source(&k)), Some(self.source(&v)), mask, sinks];
        self.emit_into(DspOp::Attend, &src, (&dst, DType::F32), &params)
    }
}
