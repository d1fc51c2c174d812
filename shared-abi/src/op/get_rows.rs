//! GET_ROWS: rows of a table by index, as F32; those of a table of integers stay integers.

use super::rule::{Len, Operands, dtype, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

const TABLES: DTypes = DTypes::TILED.and(DTypes::ELEMENTS).and(DTypes::Q8_0);

operands! {
    SRC: Src {
        /// table{k,n,b2,b3}.
        TABLE = OperandSpec::input("table", TABLES, Layout::TiledOrRows);
        /// ids{m,b2,b3}: numbers of rows, checked when they are used.
        IDS = OperandSpec::input("ids", DTypes::I32, Layout::Strided);
    }
    DST: Dst {
        /// y{k,m,b2,b3}: F32, or I32 if the table is.
        Y = OperandSpec::output("y", DTypes::F32.and(DTypes::I32), Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (table, ids, y) = (o.operand(TABLE)?, o.operand(IDS)?, o.operand(Y)?);
    shape(ids[1] == table[2] && ids[2] == table[3] && ids[3] == Len::ONE, IDS)?;
    dtype((o.dtype(TABLE) == Some(DType::I32)) == (o.dtype(Y) == Some(DType::I32)), Y)?;
    shape(y == [table[0], ids[0], ids[1], ids[2]], Y)
}
