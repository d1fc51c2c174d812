//! What a model would be on a device, without loading it.

use hexflash_dsp::plan::{Resources, Units};

use super::error::EngineError;
use super::files::ModelFiles;
use super::layouts::Holds;
use super::memory::MemoryPlan;
use super::options::EngineOptions;
use super::plan::Plan;
use crate::device::DeviceInfo;
use crate::record::Listing;

/// The memory that a model would take on a device, without loading it.
///
/// # Errors
/// As [`Engine::load_with`](crate::engine::Engine::load_with), for what can be checked without a device.
pub fn memory_needs(
    files: ModelFiles<'_>,
    options: &EngineOptions,
    device: &DeviceInfo,
) -> Result<MemoryPlan, EngineError> {
    Ok(Plan::new(Holds::Target, files, options, device.sessions)?.memory(device))
}

/// A program of a model, as it would run on a device, without loading it.
///
/// # Errors
/// As [`memory_needs`]; [`EngineError::NoProgram`] for an unknown name.
pub fn list_program(
    files: ModelFiles<'_>,
    options: &EngineOptions,
    device: &DeviceInfo,
    name: &str,
) -> Result<Listing, EngineError> {
    let plan = Plan::new(Holds::Target, files, options, device.sessions)?;
    let recorded = plan.program(name).ok_or_else(|| {
        let known: Vec<_> = plan.program_names().collect();
        EngineError::NoProgram { name: name.to_owned(), known: known.join(", ") }
    })?;
    // The activations of each session have a buffer of the same size; here they share its name.
    let homes = plan.homes(0);
    let resources = Resources {
        workers: device.threads as usize,
        vtcm_bytes: device.vtcm_bytes as usize,
        // What the device lends is known when programs are loaded: this is what they were recorded for.
        units: Units { hmx: options.numerics.wants_matrix_unit().into(), ..Units::NONE },
    };
    Ok(recorded.list(name, &homes, resources, |id| plan.describe(id))?)
}
