//! ARGSORT: where the elements of each row come from when it is sorted; all of them, or the first ones only
//! (ggml's TOP_K).

use super::rule::{Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,..}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{k,..}: k is at most n; otherwise like x. Equal elements keep their order.
        Y = OperandSpec::output("y", DTypes::I32, Layout::Rows);
    }
}

params! {
    /// ARGSORT.
    pub struct Argsort {
        /// 1 if the largest comes first, 0 if the smallest does.
        pub descending: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Argsort::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let ([n, rows @ ..], [k, of @ ..]) = (o.operand(X)?, o.operand(Y)?);
    shape(n.covers(k) && n.cut == k.cut && rows == of, Y)?;
    let p: Argsort = o.params();
    param(p.descending <= 1, word!(Argsort.descending))
}
