//! The ways that messages take to the DSP: what firmware wants of the queue, what it answers, what its image
//! lacks; and calls, where there is no queue or nobody at its other end.

use std::time::{Duration, Instant};

use hexflash::device::htp::{Htp, HtpOptions, TransportChoice};
use hexflash::device::{Device, DeviceError, DeviceOptions};

use cdsprpc::standin::{StandIn, Way, model};

use crate::recovery::{Setting, at_some_messages};
use crate::tokens::same_tokens;
use crate::{refuses_what_it_must, scenarios};

/// The ways that are not the usual one.
const OTHERS: [Way; 2] = [Way::Callbacks, Way::Invoke];

/// Each way gives the tokens and refusals of the usual one: plain, in rounds, in two sessions.
#[test]
fn the_same_texts_and_refusals_on_each() {
    for way in OTHERS {
        let standin = StandIn::new("").by(way);
        same_tokens(&standin, &["--temp", "0", "-n", "12"]);
        same_tokens(&standin, &["-md", "DRAFT", "--draft-max", "5", "--temp", "0", "-n", "12"]);
        same_tokens(&standin, &["--sessions", "2", "--temp", "0", "-n", "6"]);
        refuses_what_it_must(&standin);
    }
}

/// A process that is lost is replaced, and the text is that of an undisturbed run.
#[test]
fn recovery_on_each() {
    for standin in [|| StandIn::new("").by(Way::Callbacks), || StandIn::new("").by(Way::Invoke)] {
        let plain = Setting::new(false, None, 12).on(standin);
        at_some_messages(&plain, &[("crash=", 2), ("crash-answer=", 5), ("hang=", 6)]);
        at_some_messages(&Setting::new(true, None, 12).on(standin), &[("crash=", 5)]);
    }
}

/// The skels of phones, under the emulator.
#[test]
fn skels_on_each() {
    for (arch, way) in [("68", Way::Callbacks), ("73", Way::Callbacks), ("79", Way::Callbacks)]
        .into_iter()
        .chain([("68", Way::Invoke), ("73", Way::Invoke), ("79", Way::Invoke)])
    {
        let Some(standin) = StandIn::emulated(arch) else { continue };
        let standin = standin.by(way);
        same_tokens(&standin, &["-md", "DRAFT", "--draft-max", "5", "--temp", "0", "-n", "6"]);
        let options = DeviceOptions { threads: Some(1), vtcm_bytes: Some(64 << 10), ..standin.options() };
        scenarios::every_code_comes_back(Box::new(Htp::open(&options).unwrap()));
        standin.is_clean();
    }
}

/// Opens the device with a way of one's own, and uses it.
fn used(standin: &StandIn, transport: TransportChoice) -> Result<Htp, DeviceError> {
    let htp = HtpOptions { vendor_library: Some(standin.path()), transport, ..HtpOptions::default() };
    let mut device = Htp::open(&DeviceOptions { htp: Some(Box::new(htp)), ..standin.options() })?;
    let buffer = device.allocate(5000)?;
    device.free(buffer)?;
    Ok(device)
}

/// A queue whose import is refused without callbacks is imported with them; reads never wait then.
#[test]
fn callbacks_where_firmware_wants_them() {
    let standin = StandIn::new("callbacks=1");
    let mut device = used(&standin, TransportChoice::Queue).unwrap();
    device.reset().unwrap();
    // Longer than the session takes to give scratchpad and clocks up, and to rest.
    std::thread::sleep(Duration::from_millis(800));
    device.allocate(100).unwrap();
    drop(device);
    standin.is_clean();
    // The session that was started again is the second.
    let log = standin.log();
    assert!(log.len() == 2 && log.iter().all(|line| line.contains("the queue with them")), "{log:?}");
}

/// Codes for "nothing there": expired and would block, each with and without the DSP's offset.
#[test]
fn idle_reads_are_no_errors_whatever_their_code() {
    for code in ["0xc", "0x204", "0x8000040c", "0x80000604"] {
        for callbacks in [0, 1] {
            let standin = StandIn::new(&format!("idle={code} callbacks={callbacks}"));
            let mut device = used(&standin, TransportChoice::Queue).unwrap();
            std::thread::sleep(Duration::from_millis(120));
            device.allocate(100).unwrap_or_else(|error| panic!("{code}, callbacks={callbacks}: {error}"));
            drop(device);
            standin.is_clean();
        }
    }
}

/// Functions that an image may lack, whatever its version.
const OPTIONAL: [&str; 8] = [
    "HAP_debug_v2",
    "compute_resource_attr_init_v2",
    "compute_resource_attr_set_hmx_param",
    "compute_resource_hmx_lock",
    "compute_resource_hmx_unlock",
    "compute_resource_update_priority",
    "qurt_hvx_lock,qurt_hvx_unlock",
    "sysmon_set_dcvs_v3_protected_bus_corners",
];

/// Opens the device while each function that a library can do without is hidden from it in turn.
pub(crate) fn opens_without_each(mut standin: StandIn) {
    for name in OPTIONAL {
        standin.configure(&format!("without={name}"));
        drop(used(&standin, TransportChoice::Auto).unwrap_or_else(|error| panic!("{name}: {error}")));
        standin.is_clean();
    }
}

#[test]
fn an_image_may_lack_what_is_optional() {
    for arch in ["75", "79"] {
        opens_without_each(StandIn::new("").of_arch(arch));
    }
    // Maps memory in one of two ways.
    for name in ["HAP_mmap,HAP_munmap", "HAP_mmap2,HAP_munmap2"] {
        let standin = StandIn::new(&format!("without={name}"));
        drop(used(&standin, TransportChoice::Auto).unwrap_or_else(|error| panic!("{name}: {error}")));
        standin.is_clean();
    }
    // And what such calls refuse.
    for call in [
        "compute_resource_attr_init_v2",
        "compute_resource_update_priority",
        "qurt_thread_get_priority",
        "sysmon_set_dcvs_v3_protected_bus_corners",
    ] {
        let standin = StandIn::new(&format!("dsp.{call}=0x14@1+"));
        drop(used(&standin, TransportChoice::Auto).unwrap_or_else(|error| panic!("{call}: {error}")));
        standin.is_clean();
    }
}

/// Firmware that refuses threads above FastRPC's own priority gets them at that, and the log says so.
#[test]
fn threads_run_at_fastrpc_s_priority_where_no_higher_one_is_to_be_had() {
    let standin = StandIn::new("highest=192");
    drop(used(&standin, TransportChoice::Auto).unwrap());
    standin.is_clean();
    let log = standin.log();
    assert!(
        !log.is_empty() && log.iter().all(|line| line.contains("tried at FastRPC's own, 192")),
        "{log:?}"
    );
    let standin = StandIn::new("");
    drop(used(&standin, TransportChoice::Auto).unwrap());
    assert_eq!(standin.log(), Vec::<String>::new());
}

/// Of a buffer that is larger than the caches no lines are looked after one by one.
#[test]
fn a_large_buffer_has_the_whole_cache_looked_after() {
    let standin = StandIn::new("");
    let mut device = used(&standin, TransportChoice::Auto).unwrap();
    let buffer = device.allocate(5 << 20).unwrap();
    device.free(buffer).unwrap();
    drop(device);
    standin.is_clean();
}

/// A DSP that is newer than all libraries runs the newest, and the user is told.
#[test]
fn a_dsp_that_is_not_known_runs_the_newest_library() {
    let standin = StandIn::new("arch=85 skels=81");
    let device = used(&standin, TransportChoice::Auto).unwrap();
    assert!(device.info().description.contains("Hexagon v85"), "{}", device.info().description);
    drop(device);
    standin.is_clean();
    let said = stderr_of(&standin, "warn");
    assert!(said.contains("v85 is not known to this release: it runs the library of v81"), "{said}");
}

/// The library's end of a handle: a process that is gone is none worth telling, another code is.
#[test]
fn a_connection_that_was_reset_is_no_news_at_the_end() {
    for (code, is_told) in [("0x68", false), ("0x1", true)] {
        let standin = StandIn::new(&format!("remote_handle64_close={code}@1+"));
        let said = stderr_of(&standin, "debug");
        assert_eq!(said.contains("remote_handle64_close gave"), is_told, "{code}: {said}");
    }
}

/// Fallbacks say so to who looks: a URI that is made here, a domain that is taken unasked.
#[test]
fn fallbacks_are_told_to_who_debugs() {
    for (call, words) in
        [("GET_URI", "no URI; taken for one: file:///"), ("GET_EFFECTIVE_DOMAIN_ID", "domain 3 is taken")]
    {
        let standin = StandIn::new(&format!("{call}=0x14@1+"));
        let said = stderr_of(&standin, "debug");
        assert!(said.contains(words), "{call}: {said}");
    }
}

/// The vendor's library is loaded once, however often its device is opened.
#[test]
fn the_vendor_s_library_is_loaded_once() {
    let standin = StandIn::new("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loads");
    let mut command = standin.hexflash(&written().each_ref().map(String::as_str));
    assert!(command.env("HEXFLASH_STANDIN_LOADS", &file).output().unwrap().status.success());
    assert_eq!(std::fs::read_to_string(file).unwrap(), "loaded\n");
}

/// Arguments that write two tokens.
fn written() -> [String; 8] {
    let model = model("tiny-hybrid-q8_0.gguf").display().to_string();
    ["run", "--no-repack-cache", "-m", &model, "--temp", "0", "-n2", "x"].map(str::to_owned)
}

/// Standard error of the command while it writes two tokens.
fn stderr_of(standin: &StandIn, level: &str) -> String {
    let mut command = standin.hexflash(&written().each_ref().map(String::as_str));
    let output = command.env("RUST_LOG", level).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Messages go as calls where no queue can be made, on either side, unless the user wants the queue.
#[test]
fn calls_where_there_is_no_queue() {
    for refusal in ["dspqueue_create=0xe@1+", "dspqueue_export=0x1@1+", "dsp.dspqueue_import=0xe@1+"] {
        let mut standin = StandIn::new(refusal);
        let mut device = used(&standin, TransportChoice::Auto).unwrap_or_else(|e| panic!("{refusal}: {e}"));
        device.reset().unwrap();
        device.allocate(100).unwrap();
        drop(device);
        standin.is_clean();
        standin.configure(refusal);
        let error = used(&standin, TransportChoice::Queue).err().unwrap().to_string();
        assert!(error.contains("AEE_") && error.contains("; "), "{refusal}: {error}");
        standin.is_clean();
    }
    // The library without callbacks and with them: both attempts are in the DSP's log.
    let standin = StandIn::new("dsp.dspqueue_import=0xe@1+");
    used(&standin, TransportChoice::Queue).err().unwrap();
    let log = standin.log().join("\n");
    assert!(log.contains("dspqueue_import gave 0x8000040e") && log.contains("with callbacks"), "{log}");
}

/// A DSP that sees no packet, as that of mainline Linux boards: after two seconds messages go as calls, and a
/// session that starts again does not try the queue once more.
#[test]
fn calls_where_the_dsp_is_silent_on_the_queue() {
    let standin = StandIn::new("silent=1");
    let start = Instant::now();
    let mut device = used(&standin, TransportChoice::Auto).unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    // Each of these would be silent for two seconds.
    let again = [(); 3].map(|()| {
        let start = Instant::now();
        device.reset().unwrap();
        start.elapsed()
    });
    assert!(again.iter().min() < Some(&Duration::from_secs(2)), "the queue was tried again: {again:?}");
    device.allocate(100).unwrap();
    drop(device);
    assert_eq!(standin.census(), [0; 5]);
}

/// Some drivers lose what `start` gives: the library's own word counts.
#[test]
fn a_start_that_failed_silently_is_found() {
    let standin = StandIn::new("forget=start dsp.compute_resource_acquire=1@1+");
    let error = used(&standin, TransportChoice::Auto).err().unwrap().to_string();
    assert!(error.contains("AEE_EITEMBUSY") && error.contains("VTCM"), "{error}");
    standin.is_clean();
}

/// A library that does not come up is told of in time, and what comes of it later does no harm.
#[test]
fn an_open_that_hangs_ends_with_a_line() {
    let standin = StandIn::new("hang-open=25000");
    let start = Instant::now();
    let error = used(&standin, TransportChoice::Auto).err().unwrap().to_string();
    assert!(error.contains("has not come back for 20 s") && error.contains("restart"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(24), "{:?}", start.elapsed());
    // It comes back after all, and is closed.
    let patience = Instant::now() + Duration::from_secs(20);
    while standin.census() != [0; 5] || Instant::now() < start + Duration::from_secs(26) {
        assert!(Instant::now() < patience, "{:?}", standin.census());
        std::thread::sleep(Duration::from_millis(50));
    }
}
