//! To be written.
use super::OpRun;
use crate::platform::Platform;
use hexflash_abi::Fault;
/// Runs the op.
pub fn get_rows<P: Platform>(_run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    unimplemented!()
}
/// Runs the op.
pub fn set_rows<P: Platform>(_run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    unimplemented!()
}
