//! Faults in words, with the names of operands, parameters and registers in place of their numbers.

use core::fmt;

use super::{FIRST_DST, Op};
use crate::registers::Register;
use crate::status::{Detail, Fault};

/// The reason of a fault, without the op's index: for messages that name the op themselves.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    op: Option<Op>,
    fault: Fault,
}

impl Explained {
    /// The reason of a fault of this op, or of no op that is known.
    pub const fn new(op: Option<Op>, fault: Fault) -> Self {
        Self { op, fault }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { code, detail, .. } = self.fault;
        let spec = self.op.map(Op::spec);
        write!(f, "{code} (")?;
        match code.detail() {
            Detail::Operand if self.fault.op == crate::OpIndex::NONE => {
                write!(f, "tensor or buffer {detail}")?
            }
            Detail::Operand => match spec.and_then(|spec| spec.operand(detail)) {
                Some(operand) => write!(f, "operand {}", operand.name)?,
                None => match detail.checked_sub(FIRST_DST) {
                    Some(output) => write!(f, "output {output}")?,
                    None => write!(f, "input {detail}")?,
                },
            },
            Detail::Parameter => match spec.and_then(|spec| spec.field(detail)) {
                Some(field) => write!(f, "parameter {}", field.name)?,
                None => write!(f, "word {detail}")?,
            },
            Detail::Register => match Register::parse(detail) {
                Some(register) => write!(f, "{register}")?,
                None => write!(f, "register {detail}")?,
            },
            Detail::Number(noun) => write!(f, "{noun} {detail}")?,
            Detail::Signed(noun) => write!(f, "{noun} {}", detail as i32)?,
            Detail::Bits(noun) => write!(f, "{noun} {detail:#010x}")?,
        }
        f.write_str(")")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.op != crate::OpIndex::NONE {
            write!(f, "op {}: ", self.op)?;
        }
        Explained::new(None, *self).fmt(f)
    }
}
