//! Every way in which a device refuses or fails a request, by name, over the real queue: written once, run on
//! `inproc` and on `qemu`.
//!
//! Sessions have tests of their own (`dsp-runtime/tests`); these hold the transport, the platform and, on `qemu`, the
//! Hexagon code to the same. Without the emulator or the image its tests are skipped, and say so; where
//! `HEXFLASH_QEMU_REQUIRED` is set (as `cargo xtask test` does), they fail instead.
#![cfg(target_os = "linux")]

mod bench;
mod blocks;
mod mutations;
mod refusals;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use hexflash::device::inproc::{self, Inproc};
use hexflash::device::qemu::{self, Qemu};
use hexflash::device::{Device, DeviceError, DeviceOptions};
use hexflash_abi::ErrorCode;
use hexflash_abi::message::{Message, Ping};

use bench::{Bench, Target};

/// So little that an op can be too large for it.
const OPTIONS: DeviceOptions = DeviceOptions { threads: Some(1), vtcm_bytes: Some(64 << 10) };

fn inproc() -> Option<Box<dyn Target>> {
    let settings = inproc::Settings::from_options(&OPTIONS).unwrap();
    Some(Box::new(Inproc::with_settings(settings).unwrap()))
}

/// The device, or why the test is skipped.
fn qemu() -> Option<Box<dyn Target>> {
    match Qemu::with_settings(qemu::Settings::from_options(&OPTIONS).unwrap()) {
        Ok(device) => Some(Box::new(device)),
        Err(error @ DeviceError::Unavailable { .. })
            if std::env::var_os("HEXFLASH_QEMU_REQUIRED").is_none() =>
        {
            // Written past the test harness, which hides what a passing test prints.
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

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
    blocks::an_op_that_vtcm_cannot_hold_is_refused,
}

/// What no request can bring about: the software engine has no errors, and the rest would be mistakes of ours.
const UNREACHABLE: [ErrorCode; 3] = [ErrorCode::DmaError, ErrorCode::DmaTimeout, ErrorCode::Internal];

/// Runs all scenarios. Each code must have come back, but for the [`UNREACHABLE`].
fn every_code_comes_back(open: fn() -> Option<Box<dyn Target>>) {
    let Some(device) = open() else { return };
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

#[test]
fn inproc_refuses_what_it_must() {
    every_code_comes_back(inproc);
}

#[test]
fn qemu_refuses_what_it_must() {
    every_code_comes_back(qemu);
}

/// Requests sent while the device takes up the ones before them: with two under way the queue is never full, whichever
/// word of the device's progress the host happens to see first.
#[test]
fn two_requests_under_way_always_fit() {
    let mut device = Inproc::with_settings(inproc::Settings::from_options(&OPTIONS).unwrap()).unwrap();
    let ping = Message::Ping(Ping::OURS);
    device.submit(&ping).unwrap();
    for _ in 0..200_000 {
        device.submit(&ping).unwrap();
        device.wait(Duration::from_secs(10)).unwrap();
    }
}

/// Broken programs end in the same way everywhere, and leave the same memory.
#[test]
fn qemu_answers_mutated_programs_as_inproc_does() {
    let Some(device) = qemu() else { return };
    let emulated = mutations::transcript(device);
    let native = mutations::transcript(inproc().unwrap());
    for (round, (native, emulated)) in native.iter().zip(&emulated).enumerate() {
        assert_eq!(native.response, emulated.response, "mutation {round}: {}", native.what);
        if let Some(at) = mutations::differs(&native.memory, &emulated.memory) {
            panic!("mutation {round}, {}: other bits at byte {at}", native.what);
        }
    }
    let ran = native.iter().filter(|outcome| outcome.response.is_ok()).count();
    assert!((100..native.len() - 100).contains(&ran), "{ran} of {} ran: a one-sided test", native.len());
}
