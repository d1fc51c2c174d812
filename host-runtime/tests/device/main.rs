//! Every way in which a device refuses or fails a request, by name, over the real queue: written once, run on
//! `inproc` and on `qemu` here, and on `htp` in tests/cdsprpc.
//!
//! Sessions have tests of their own (`dsp-runtime/tests`); these hold the transport, the platform and, on
//! `qemu`, the Hexagon code to the same.
#![cfg(target_os = "linux")]

mod bench;
mod blocks;
mod emulator;
mod mutations;
mod refusals;
mod scenarios;

use std::time::Duration;

use hexflash::device::inproc::{self, Inproc};
use hexflash::device::qemu;
use hexflash::device::{Device, DeviceOptions, Float};
use hexflash_abi::message::{Message, Ping};

use bench::Target;
use scenarios::every_code_comes_back;

/// So little that an op can be too large for it.
const OPTIONS: DeviceOptions = DeviceOptions {
    threads: Some(1),
    vtcm_bytes: Some(64 << 10),
    sessions: None,
    session_bytes: None,
    arch: None,
    float: Float::Own,
    trace: None,
    matrix_unit: false,
    htp: None,
};

fn inproc() -> Option<Box<dyn Target>> {
    let settings = inproc::Settings::from_options(&OPTIONS).unwrap();
    Some(Box::new(Inproc::with_settings(settings).unwrap()))
}

fn qemu() -> Option<Box<dyn Target>> {
    let device = emulator::qemu(qemu::Settings::from_options(&OPTIONS).unwrap())?;
    Some(Box::new(device))
}

#[test]
fn inproc_refuses_what_it_must() {
    every_code_comes_back(inproc().unwrap());
}

#[test]
fn qemu_refuses_what_it_must() {
    if let Some(device) = qemu() {
        every_code_comes_back(device);
    }
}

/// Requests sent while the device takes up the ones before them: with two under way the queue is never full,
/// whichever word of the device's progress the host happens to see first.
#[test]
fn two_requests_under_way_always_fit() {
    let mut device = Inproc::with_settings(inproc::Settings::from_options(&OPTIONS).unwrap()).unwrap();
    let ping = Message::Ping(Ping::OURS);
    device.submit(&ping).unwrap();
    for _ in 0..200_000 {
        device.submit(&ping).unwrap();
        device.wait(Duration::from_secs(60)).unwrap();
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
