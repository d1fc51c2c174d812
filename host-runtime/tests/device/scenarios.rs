//! The list of scenarios, and how a device is taken through them.

use std::collections::BTreeSet;

use hexflash_abi::ErrorCode;

use super::bench::{Bench, Target};
use super::{blocks, refusals};

/// A scenario starts with a fresh session, and leaves one that still works.
type Scenario = fn(&mut Bench);

macro_rules! scenarios {
    ($($module:ident::$name:ident,)+) => {
        /// All of them, by name.
        const SCENARIOS: &[(&str, Scenario)] = &[$((stringify!($name), $module::$name),)+];
    };
}

scenarios! {
    refusals::ping_compares_builds,
    refusals::what_is_no_request_is_answered_too,
    refusals::map_wants_a_free_id_and_memory_that_exists,
    refusals::unmap_wants_a_mapped_buffer_that_no_program_uses,
    refusals::load_wants_a_free_id_and_a_range,
    refusals::exec_and_unload_want_a_loaded_program,
    refusals::registers_are_a_block_within_bounds,
    refusals::the_arena_fills_up_and_empties,
    refusals::more_requests_than_the_queue_holds_are_kept_out,
    blocks::headers_and_tensors_are_checked,
    blocks::ops_are_checked,
    blocks::read_only_memory_is_not_written,
    blocks::a_failing_op_is_named_and_ends_the_program,
    blocks::a_value_that_is_no_number_is_reported,
    blocks::an_op_that_vtcm_cannot_hold_is_refused,
}

/// What no request can bring about everywhere: the software engine has no errors, nobody else has its
/// scratchpad, some devices lend a matrix unit, and the rest would be mistakes of ours.
const UNREACHABLE: [ErrorCode; 5] = [
    ErrorCode::DmaError,
    ErrorCode::DmaTimeout,
    ErrorCode::Internal,
    ErrorCode::VtcmBusy,
    ErrorCode::NoMatrixUnit,
];

/// Runs all scenarios. Each code must have come back, but for the [`UNREACHABLE`].
pub fn every_code_comes_back(device: Box<dyn Target>) {
    let mut bench = Bench::new(device);
    for (name, scenario) in SCENARIOS {
        println!("{name}");
        bench.fresh();
        scenario(&mut bench);
        bench.still_works();
    }
    let all: BTreeSet<_> =
        ErrorCode::ALL.iter().filter(|c| !UNREACHABLE.contains(c)).map(|c| c.name()).collect();
    let seen: BTreeSet<_> = bench.seen.iter().map(|code| code.name()).collect();
    assert_eq!(seen, all);
}
