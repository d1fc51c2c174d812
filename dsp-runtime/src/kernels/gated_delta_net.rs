//! To be written.
use super::OpRun;
use crate::platform::Platform;
use hexflash_abi::Fault;
/// Runs the op.
pub fn run<P: Platform>(_run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    unimplemented!()
}
/// VTCM.
pub fn plan(_shapes: &super::OpShapes<'_>) -> crate::vtcm::VtcmPlan {
    unimplemented!()
}
