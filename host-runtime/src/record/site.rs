//! Ops for people: what faults and listings call them.

use std::fmt;
use std::sync::Arc;

use hexflash_abi::op::Explained;
use hexflash_abi::{Fault, Op};

/// An op of a program, for people: what it does, and with which weight, or after which op with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    op: Op,
    weight: Option<Arc<str>>,
    /// Whether the op itself reads the weight.
    own: bool,
}

impl Site {
    /// The site of an op that reads a weight of this name, or none, after another site.
    pub(super) fn after(last: Option<&Self>, op: Op, own: Option<Arc<str>>) -> Self {
        let reads = own.is_some();
        let weight = own.or_else(|| last?.weight.clone());
        Self { op, weight, own: reads }
    }

    /// The site of an op that reads a weight.
    #[cfg(test)]
    pub(crate) fn for_test(op: Op, weight: &str) -> Self {
        Self::after(None, op, Some(weight.into()))
    }

    /// The op.
    pub fn op(&self) -> Op {
        self.op
    }

    /// The weight that it reads, or that an op before it read last.
    pub fn weight(&self) -> Option<&str> {
        self.weight.as_deref()
    }

    /// A fault of this op in words: its index, its name and weight, the reason, and by name the operand,
    /// parameter or register that is at fault.
    pub fn explain(&self, fault: &Fault) -> String {
        format!("op {} {self}: {}", fault.op, Explained::new(Some(self.op), *fault))
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        match &self.weight {
            Some(weight) if self.own => write!(f, " with {weight}"),
            Some(weight) => write!(f, " after {weight}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Operand;
    use hexflash_abi::op::mul_mat::X;
    use hexflash_abi::{ErrorCode, Fault, Op};

    use super::Site;

    #[test]
    fn faults_name_op_weight_and_operand() {
        let product = Site::after(None, Op::MulMat, Some("blk.3.ffn_down.weight".into()));
        let fault = Fault::new(ErrorCode::BadShape, X.number()).at(412);
        assert_eq!(
            product.explain(&fault),
            "op 412 MUL_MAT with blk.3.ffn_down.weight: operand has an unsupported shape (operand x)"
        );
        let rows = Site::after(Some(&product), Op::GetRows, None);
        let fault = Fault::new(ErrorCode::BadRowIndex, 99999).at(413);
        assert_eq!(
            rows.explain(&fault),
            "op 413 GET_ROWS after blk.3.ffn_down.weight: row index out of range (row 99999)"
        );
        assert_eq!(rows.weight(), Some("blk.3.ffn_down.weight"));
    }
}
