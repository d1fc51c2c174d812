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
mod dma;
mod failures;
mod mappings;
mod recovery;
#[path = "../../../../host-runtime/tests/device/refusals.rs"]
mod refusals;
mod rules;
#[path = "../../../../host-runtime/tests/device/scenarios.rs"]
mod scenarios;
mod tokens;

use hexflash::device::DeviceOptions;
use hexflash::device::htp::Htp;

use cdsprpc::standin::StandIn;

/// The same scenarios as on `inproc` and `qemu`.
#[test]
fn htp_refuses_what_it_must() {
    let standin = StandIn::new("");
    let options = DeviceOptions { threads: Some(1), vtcm_bytes: Some(64 << 10), htp: standin.options().htp };
    scenarios::every_code_comes_back(Box::new(Htp::open(&options).unwrap()));
    standin.is_clean();
}
