//! Each call failing with each code: a message of its own, nothing left behind, and a device that opens
//! afterwards.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hexflash::device::htp::Htp;
use hexflash::device::{Device, DeviceError, DeviceOptions, SessionSet, SplitDevice};

use cdsprpc::standin::{StandIn, has_queue};

use super::calls::{FATAL, use_device};

/// Codes that FastRPC's documents have, and what the message must say.
const CODES: [(u32, &str); 14] = [
    (0x1, "EFAILED"),
    (0x2, "ENOMEMORY"),
    (0xd, "EBADSTATE"),
    (0xe, "EBADPARM"),
    (0x14, "EUNSUPPORTED"),
    (0x1a, "EALREADY"),
    (0x20, "EITEMBUSY"),
    (0x27, "ENOSUCH"),
    (0x2e, "EINTERRUPTED"),
    (0x48, "ENOSUCHMAP"),
    (0x68, "ECONNRESET"),
    (0x72, "ECONNREFUSED"),
    (0x200, "ERPC"),
    (0x8000_0406, "EUNABLETOLOAD"),
];

#[test]
fn each_call_failing_with_each_code_has_a_message_of_its_own() {
    let mut standin = StandIn::new("");
    let mut messages: HashMap<String, String> = HashMap::new();
    for (call, at, named) in FATAL.into_iter().filter(|(call, ..)| has_queue() || !call.contains("queue")) {
        for (code, name) in CODES {
            let what = format!("{call}={code:#x}@{at}");
            standin.configure(&what);
            let start = Instant::now();
            let error = use_device(&standin).err().unwrap_or_else(|| panic!("{what}: no error"));
            assert!(start.elapsed() < Duration::from_secs(30), "{what} took {:?}", start.elapsed());
            let text = error.to_string();
            assert!(text.contains(named) && text.contains(&format!("AEE_{name}")), "{what}: {text}");
            assert!(text.contains("; "), "{what}: no remedy in {text}");
            if let Some(other) = messages.insert(text.clone(), format!("{named} {name}")) {
                assert_eq!(other, format!("{named} {name}"), "two failures, one message: {text}");
            }
            standin.is_clean();
        }
    }
    // Ten different calls, some of them at several places; four are the queue's.
    assert_eq!(messages.len(), if has_queue() { 10 } else { 6 } * CODES.len());
}

/// Failures that the device can do without: it opens all the same, and says so where it matters.
#[test]
fn some_calls_may_fail() {
    let mut standin = StandIn::new("");
    for call in [
        "GET_URI",
        "GET_EFFECTIVE_DOMAIN_ID",
        "remote_handle64_control",
        "REGISTER_STATUS_NOTIFICATIONS",
        "fastrpc_munmap",
    ] {
        for (code, _) in CODES {
            standin.configure(&format!("{call}={code:#x}@1"));
            if let Err(error) = use_device(&standin) {
                panic!("{call}={code:#x}: {error}");
            }
        }
    }
    for call in ["remote_handle64_close", "dspqueue_close"] {
        standin.configure(&format!("{call}=0x1@1+"));
        use_device(&standin).unwrap();
    }
}

/// Memory: the functions give no code.
#[test]
fn no_memory_and_no_descriptor_are_told_apart() {
    let mut standin = StandIn::new("");
    for (config, named) in
        [("rpcmem_alloc2=1@1", "rpcmem_alloc gave"), ("rpcmem_to_fd=-1@1", "rpcmem_to_fd gave")]
    {
        standin.configure(config);
        let text = use_device(&standin).unwrap_err().to_string();
        assert!(text.contains(named) && text.contains("smaller model"), "{text}");
        standin.is_clean();
    }
    // More than one mapping may have, and than a session can map.
    standin.configure("mapping=50000 vmem=100000");
    let mut device = standin.open().unwrap();
    let text = device.allocate(60_000).unwrap_err().to_string();
    assert!(text.contains("fastrpc_mmap") && text.contains("ENOMEMORY"), "{text}");
    // It goes on without.
    device.allocate(40_000).unwrap();
    drop(device);
    standin.configure("vmem=100000");
    let mut device = standin.open().unwrap();
    let text = device.allocate(110_000).unwrap_err().to_string();
    assert!(text.contains("mapping failed") && text.contains("smaller model"), "{text}");
    device.allocate(60_000).unwrap();
    drop(device);
    standin.is_clean();
}

/// A buffer that one of two sessions cannot map is given back by the other, and both go on with the same ids.
#[test]
fn two_sessions_keep_step() {
    let mut standin = StandIn::new("");
    let mut device = SplitDevice::<Htp>::open(&standin.options(), 2).unwrap();
    let first = device.allocate(5000).unwrap();
    for at in [1, 2] {
        standin.configure(&format!("fastrpc_mmap=0x2@{at}"));
        device.allocate(5000).unwrap_err();
    }
    standin.configure("");
    let own = device.allocate_in(SessionSet::one(1), 5000).unwrap();
    let shared = device.allocate(5000).unwrap();
    assert_eq!([own.id.0, shared.id.0], [first.id.0 + 1, first.id.0 + 2]);
    for buffer in [own, first, shared] {
        device.free(buffer).unwrap();
    }
    assert_eq!(device.allocate(5000).unwrap().id.0, 0);
    drop(device);
    standin.is_clean();
}

/// What fails on the DSP, with what the host's user is told.
#[test]
fn failures_on_the_dsp_have_messages_of_their_own() {
    each_failure_on_the_dsp(&mut StandIn::new(""));
}

pub(crate) fn each_failure_on_the_dsp(standin: &mut StandIn) {
    for (config, cause, remedy) in [
        (
            "dsp.dspqueue_import=0xe@1+",
            "remote_handle64_invoke(start) gave error 0x80000448 (AEE_ENOSUCHMAP",
            "number of threads",
        ),
        ("dsp.qurt_hvx_lock=0x1@1", "AEE_EBUSY", "vector units"),
        ("hvx=1", "AEE_EBUSY", "vector units"),
        ("dsp.compute_resource_acquire=1@1", "AEE_EITEMBUSY", "VTCM"),
        ("vtcm=65536", "AEE_EITEMBUSY", "VTCM"),
        ("dsp.compute_resource_acquire_cached=1@1", "AEE_EITEMBUSY", "VTCM"),
        ("dsp.qurt_thread_create=1@2+", "AEE_EQURTTHREADCREATE", "number of threads"),
        ("dsp.qurt_thread_create=1@1+", "AEE_ENOMEMORY", "number of threads"),
        ("dsp.HAP_mmap2=1@1", "mapping failed", ""),
        ("skels=81", "AEE_EUNABLETOLOAD", "DSP_LIBRARY_PATH"),
        ("unsigned=0", "AEE_EUNSUPPORTED", "signed"),
        ("arch=66", "v66", "v68 or newer"),
    ] {
        if config.contains("queue") && !has_queue() {
            continue;
        }
        standin.configure(config);
        let lines = standin.log().len();
        let text = use_device(standin).err().unwrap_or_else(|| panic!("{config}")).to_string();
        assert!(text.contains(cause) && text.contains(remedy), "{config}: {text}");
        // What a code cannot tell stands in the DSP's log.
        let is_logged = standin.log().len() > lines;
        assert!(is_logged || !text.contains("invoke(start)"), "{config}: nothing is in the DSP's log");
        standin.is_clean();
    }
    // A vote for power that is refused only costs speed.
    standin.configure("dsp.HAP_power_set=0x14@1+");
    use_device(standin).unwrap();
}

/// A process that ends or stops: seen in time, told in words, and gone after a reset.
#[test]
fn a_process_that_crashes_or_hangs_is_noticed_and_replaced() {
    crashes_and_hangs(&mut StandIn::new(""));
}

pub(crate) fn crashes_and_hangs(standin: &mut StandIn) {
    // A message that is never answered is waited for in vain; a crash is told however long that takes.
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
    for (config, words, patience) in [
        ("crash=1", "crashed", long),
        ("crash=3", "crashed", long),
        ("crash-answer=2", "crashed", long),
        ("hang=2", "did not answer", short),
        ("dsp.dspqueue_read_noblock=0x1@2", "did not answer", short),
    ] {
        if config.contains("queue") && !has_queue() {
            continue;
        }
        standin.configure(config);
        let outcome = (|| {
            let mut device = standin.open()?;
            for _ in 0..3 {
                device.submit(&hexflash_abi::message::Message::Ping(hexflash_abi::message::Ping::OURS))?;
                device.wait(patience)?;
            }
            Ok::<_, DeviceError>(())
        })();
        let text = outcome.expect_err(config).to_string();
        assert!(text.contains(words), "{config}: {text}");
        standin.is_clean();
    }
    standin.configure("crash=3");
    let mut device = standin.open().unwrap();
    let lost = device.allocate(4000).and_then(|_| device.allocate(4000)).unwrap_err();
    assert!(matches!(lost, DeviceError::Lost { .. }), "{lost}");
    device.reset().unwrap();
    device.allocate(4000).unwrap();
    drop(device);
    standin.is_clean();
}

/// A DSP of an older version may have less VTCM than others: it is asked, and no more is taken.
#[test]
fn a_dsp_with_less_vtcm_gives_what_it_has() {
    for (config, bytes) in [
        ("arch=68 vtcm=2097152", 2 << 20),
        ("arch=69 vtcm=4194304", 4 << 20),
        ("vtcm=16777216", 8 << 20),
        // It does not say.
        ("GET_DSP_INFO=0x14@2+", 8 << 20),
        // And has less than others of its version.
        ("GET_DSP_INFO=0x14@2+ vtcm=2097152", 2 << 20),
    ] {
        let standin = StandIn::new(config);
        let options = DeviceOptions { vtcm_bytes: None, ..standin.options() };
        let device = Htp::open(&options).unwrap_or_else(|error| panic!("{config}: {error}"));
        assert_eq!(device.info().vtcm_bytes, bytes, "{config}");
        drop(device);
        standin.is_clean();
    }
}
