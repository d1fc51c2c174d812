//! The DSP itself.

use core::arch::asm;

use hexflash_abi::forms::{Form, Operands};
use hexflash_dsp::dma::Channel;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::hvx::hexagon::forms;

use zerocopy::{FromBytes, IntoBytes};

use crate::rpc::AeeError;
use crate::user_dma::{self, UserDma};

/// The architecture that the library is linked for.
pub(in super::super) fn arch() -> u16 {
    crate::arch()
}

/// The vector unit.
pub(in super::super) fn isa() -> Isa {
    Isa::Hexagon
}

/// Forms of float instructions that the library has and no library known to run on phones.
pub(in super::super) const FORMS: u32 = forms::IN_CODE;

/// Execution of the form in `operands`. A function of its own, because the compiler copies operands by vector
/// instructions, and none of these may come before the thread has a vector context.
#[inline(never)]
pub(in super::super) fn execute(operands: &[u8], given: &mut [u8]) -> Result<(), AeeError> {
    let (operands, _) = Operands::read_from_prefix(operands).map_err(|_| AeeError::BAD_PARAMETER)?;
    let form = Form::parse(operands.form).ok_or(AeeError::BAD_PARAMETER)?;
    let words = forms::execute(form, &operands.u, &operands.v, &operands.x).ok_or(AeeError::UNSUPPORTED)?;
    words.write_to_prefix(given).map_err(|_| AeeError::BAD_PARAMETER)
}

/// Ticks of the timer of 19.2 MHz.
pub(super) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction copies the timer's two control registers to r0 and r1, which are named as
    // outputs, and does no more.
    unsafe { asm!("r1:0 = c31:30", out("r0") low, out("r1") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// The low word of the processor's cycles.
pub(in super::super) fn cycles() -> u32 {
    let cycles: u32;
    // SAFETY: the instruction copies a control register, which programs may read, to a register that is named
    // as output, and does no more. Not `nomem`: it stays between the accesses that it stands between.
    unsafe { asm!("{cycles} = c14", cycles = out(reg) cycles, options(nostack, preserves_flags)) };
    cycles
}

static ENGINE: UserDma = UserDma { now_us: || super::now_ns() / 1000 };

/// Every thread has an engine.
pub(in super::super) fn dma(worker: usize) -> Option<Channel> {
    user_dma::channel(&ENGINE, worker)
}
