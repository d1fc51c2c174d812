//! The matrix unit of a DSP: asked for where it is wanted, powered before it is locked, given back with the
//! scratchpad, and done without where it is not lent.

use std::time::Duration;

use hexflash::device::htp::Htp;
use hexflash::device::{Device, DeviceError, DeviceOptions, MatrixUnit};
use hexflash_abi::ErrorCode;
use hexflash_abi::message::{Message, Ping};

use cdsprpc::standin::{StandIn, model};

use crate::tokens::same_tokens;

/// How long a message may take, and more than the half second after which an idle session lends what it has.
const PATIENCE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_millis(900);

fn open(standin: &StandIn) -> Htp {
    Htp::open(&DeviceOptions { matrix_unit: true, ..standin.options() }).unwrap()
}

/// Where the portable twin is the unit, on both sides, the tokens are the same: with a vote of either kind,
/// while others want the scratchpad, and with a draft model.
#[test]
fn prompts_have_the_tokens_of_inproc() {
    for config in ["", "arch=73 skels=73", "wanted=5"] {
        let standin = StandIn::new(config);
        same_tokens(&standin, &["--hmx", "--temp", "0", "-n", "16"]);
    }
    let standin = StandIn::new("");
    same_tokens(&standin, &["--hmx", "-md", "DRAFT", "--draft-max", "5", "--temp", "0", "-n", "16"]);
    same_tokens(&standin, &["--hmx", "--power", "efficient", "--temp", "0", "-n", "4"]);
}

/// The very instructions, under the emulator, which refuses those of a thread that has not locked the unit.
#[test]
fn the_skels_multiply_prompts_by_the_unit() {
    for arch in ["73", "79"] {
        let Some(standin) = StandIn::emulated(arch) else { continue };
        same_tokens(&standin, &["--hmx", "--temp", "0", "-n", "16"]);
    }
}

#[test]
fn it_is_not_asked_for_where_nobody_wants_it() {
    let standin = StandIn::new("");
    let device = standin.open().unwrap();
    assert_eq!(device.info().matrix_unit, MatrixUnit::None);
    drop(device);
    standin.is_clean();
}

/// Whatever fails, the session serves. A newer DSP that knows only the older vote has the unit.
#[test]
fn a_dsp_may_not_lend_it() {
    use MatrixUnit::{None, Works};
    let mut standin = StandIn::new("");
    for (config, expected) in [
        ("", Works),
        ("hmx=0", None),
        ("arch=73 skels=73 dsp.HAP_power_set=0x14@4", None),
        ("dsp.HAP_power_set=0x14@4", Works),
        ("dsp.compute_resource_attr_set_hmx_param=0x14@1", None),
        ("dsp.compute_resource_hmx_lock=0x1@1", None),
        ("dsp.compute_resource_acquire=0x1@1", None),
    ] {
        standin.configure(config);
        let mut device = open(&standin);
        assert_eq!(device.info().matrix_unit, expected, "{config}");
        device.allocate(4000).unwrap();
        drop(device);
        standin.is_clean();
    }
    standin.configure("hmx=0");
    let path = model("tiny-hybrid-q8_0.gguf");
    let arguments = ["run", "--hmx", "--no-repack-cache", "-m", path.to_str().unwrap(), "fn"];
    let output = standin.hexflash(&arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no matrix unit") && text.contains("--no-hmx"), "{text}");
    standin.is_clean();
}

/// A message for which the unit cannot be locked again is refused, and the next one is answered.
#[test]
fn it_is_given_back_when_there_is_nothing_to_do() {
    let mut standin = StandIn::new("");
    for config in ["dsp.compute_resource_hmx_lock=0x1@2", "arch=73 skels=73 dsp.HAP_power_set=0x14@10"] {
        standin.configure(config);
        let mut device = open(&standin);
        let ping = Message::Ping(Ping::OURS);
        let mut call = || (&mut device as &mut dyn Device).call(&ping, PATIENCE);
        // A session that gets no processor for a while lends what it has later.
        let refused = (0..20).find_map(|_| {
            std::thread::sleep(IDLE);
            call().err()
        });
        match refused.expect("the unit is never given back") {
            DeviceError::Fault { fault, .. } => assert_eq!(fault.code, ErrorCode::VtcmBusy, "{config}"),
            other => panic!("{config}: {other}"),
        }
        call().unwrap();
        drop(device);
        standin.is_clean();
    }
}

/// A skel that forgot to lock the unit would be found by its first instruction.
#[test]
fn an_instruction_without_the_lock_is_found() {
    let Some(mut standin) = StandIn::emulated("73") else { return };
    standin.configure("forget=hmx");
    let options = DeviceOptions { matrix_unit: true, ..standin.options() };
    let error = Htp::open(&options).err().expect("the process ends").to_string();
    let found = standin.violations();
    let words = "a matrix packet of a thread that does not hold the unit";
    let named = |line: &String| line.contains(words) && line.contains("hexflash_dsp::hmx::check::works");
    assert!(found.iter().any(named), "{error}: {found:#?}");
}
