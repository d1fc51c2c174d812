//! The device `htp` against the stand-in for FastRPC.
#![cfg(target_os = "linux")]

#[path = "../../../../host-runtime/tests/device/bench.rs"]
#[allow(dead_code, reason = "written for more tests than there are here")]
mod bench;
#[path = "../../../../host-runtime/tests/device/blocks.rs"]
mod blocks;
#[path = "../calls/mod.rs"]
mod calls;
mod coherence;
mod copies;
#[path = "../../../../host-runtime/tests/device/damaged.rs"]
mod damaged;
mod dma;
mod doctor;
mod failures;
mod filled;
mod forms;
mod interrupt;
mod mappings;
mod matrix_unit;
mod recovery;
#[path = "../../../../host-runtime/tests/device/refusals.rs"]
mod refusals;
mod rules;
#[path = "../../../../host-runtime/tests/device/scenarios.rs"]
mod scenarios;
#[path = "../../../../host-runtime/cli/tests/cli/signalled.rs"]
#[allow(dead_code, reason = "written for more tests than there are here")]
mod signalled;
mod skels;
mod tokens;
mod ways;

use hexflash::device::DeviceOptions;
use hexflash::device::htp::Htp;
use hexflash::gguf::Gguf;

use cdsprpc::standin::StandIn;

fn refuses_what_it_must(standin: &StandIn) {
    let options = DeviceOptions { threads: Some(1), vtcm_bytes: Some(64 << 10), ..standin.options() };
    scenarios::every_code_comes_back(Box::new(Htp::open(&options).unwrap()));
    standin.is_clean();
}

/// The same scenarios as on `inproc` and `qemu`.
#[test]
fn htp_refuses_what_it_must() {
    refuses_what_it_must(&StandIn::new(""));
}

/// Whatever the transport, the same error, with the same layer.
#[test]
fn damaged_weights_are_reported_with_their_layer() {
    // Weights do not change in life: what the DSP's caches have of them is dropped by nobody.
    let standin = StandIn::new("check=0");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny-hybrid-q8_0.gguf");
    let gguf = Gguf::open(path.as_ref()).unwrap();
    let options = DeviceOptions { threads: Some(1), ..standin.options() };
    damaged::damage_is_reported_with_its_layer(&gguf, Box::new(Htp::open(&options).unwrap()));
    standin.is_clean();
}
