//! DSPs that do not execute some of the float instructions that our code for v68 to v75 has, and no library
//! that is known to run on phones: the session takes the plain library by itself, says why, and writes the
//! text that it should.

use hexflash::device::Device;
use hexflash_abi::forms::{Form, Group};
use hexflash_abi::probe::Loop;
use serde_json::Value;

use cdsprpc::standin::{StandIn, model};

/// Tokens of a text under emulation.
const TOKENS: &str = "6";

/// What `hexflash run` says: its report, and its log.
fn generate(standin: &StandIn, device: &str) -> (Value, String) {
    let model = model("tiny-hybrid-q8_0.gguf");
    let arguments = ["run", "--json", "--no-repack-cache", "-t", "2", "--temp", "0", "-n", TOKENS, "-m"];
    let rest = [model.to_str().unwrap(), "def __repr__(self):"];
    let output = standin.hexflash_on(device, &[&arguments[..], &rest].concat()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    (serde_json::from_slice(&output.stdout).unwrap(), log)
}

/// Whether code for this version has forms of the group.
fn is_in_code(arch: &str, group: Group) -> bool {
    arch == "73" || group != Group::Bytes
}

#[test]
fn every_group_may_be_refused() {
    for arch in ["73", "68"] {
        let Some(mut standin) = StandIn::emulated_with_plain(arch) else { continue };
        let (expected, _) = generate(&standin, "inproc");
        for &group in Group::ALL {
            standin.configure(&format!("refuse={group}"));
            let before = standin.violations().len();
            let (found, log) = generate(&standin, "htp");
            assert_eq!(found["tokens"], expected["tokens"], "v{arch} without {group}");
            let died = standin.violations().split_off(before);
            if !is_in_code(arch, group) {
                assert_eq!((log.as_str(), died), ("", Vec::new()), "v{arch} without {group}");
                continue;
            }
            let form = Form::ALL.iter().find(|form| form.group() == Some(group)).unwrap();
            let named = format!("the DSP does not execute `{form}` (group {group}): the process has ended");
            assert!(log.contains(&named) && log.lines().count() == 1, "v{arch} without {group}: {log}");
            let [death] = &died[..] else { panic!("v{arch} without {group}: {died:#?}") };
            assert!(death.contains("signal 4") && death.contains("hexagon::execute"), "{death}");
        }
    }
}

/// One that executes an instruction, and computes something else.
#[test]
fn a_wrong_result_is_as_good_as_none() {
    let Some(mut standin) = StandIn::emulated_with_plain("73") else { return };
    standin.configure("sums=differences");
    let device = standin.open().unwrap();
    let description = &device.info().description;
    let named = "with the plain library, as it refuses sums (sf=vadd(sf,sf))";
    assert!(description.contains(named), "{description}");
    drop(device);
    let (_, log) = generate(&standin, "htp");
    assert!(log.contains("of 3f800000 40000000 it makes bf800000, and not 40400000"), "{log}");
    standin.is_clean();
}

/// Without the plain library there is nothing to do, and the message says both.
#[test]
fn a_missing_plain_library_is_told() {
    let Some(mut standin) = StandIn::emulated_with_plain("73") else { return };
    standin.configure("refuse=products skels=73");
    let error = standin.open().err().expect("there is no plain library").to_string();
    for part in ["group products", "the library without", "EUNABLETOLOAD", "DSP_LIBRARY_PATH"] {
        assert!(error.contains(part), "{error}");
    }
}

/// The self-test of a DSP behind FastRPC: each form that the library has is executed by a call of its own. On
/// one that subtracts where it should add, the plain library runs, and kernels are right.
#[test]
fn the_self_test_asks_the_dsp() {
    let Some(mut standin) = StandIn::emulated_with_plain("73") else { return };
    // Plain code has none of the groups, and is v68's, which does not make floats of integers.
    let of_integers = [Form::SfOfW, Form::HfOfH];
    let not_plain = |form: &&Form| form.group().is_some() || of_integers.contains(form);
    let not_plain: Vec<_> = Form::ALL.iter().filter(not_plain).map(ToString::to_string).collect();
    for (config, absent) in [("", Vec::new()), ("sums=differences", not_plain)] {
        standin.configure(config);
        let output = standin.hexflash(&["selftest", "--json", "-t", "2"]).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&found["ok"], &found["hexagon"]), (&true.into(), &"v73".into()), "{found}");
        let lines = found["results"].as_array().unwrap();
        let named = |kind: &str, verdict: &str| {
            let those = lines.iter().filter(|line| line["kind"] == kind && line["verdict"] == verdict);
            those.map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named("form", "absent"), absent, "{config}: {found}");
        let odd: Vec<_> =
            lines.iter().filter(|line| line["verdict"] == "wrong" || line["verdict"] == "news").collect();
        assert!(odd.is_empty(), "{config}: {odd:?}");
        // By the emulator's unit and engines, whose transfers keep their order. It has no cycles.
        let told = |name: &str| {
            let line = lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{found}"));
            (line["verdict"].as_str().unwrap(), line["text"].as_str().unwrap())
        };
        if config.is_empty() {
            let published = ("expected", "4 products at a time, as published for v73");
            assert_eq!(told("order of sums"), published);
            assert_eq!(told("rounding of results"), ("expected", "to the nearest, ties to even"));
        } else {
            assert_eq!(told("order of sums"), ("absent", "no matrix unit"));
        }
        let (verdict, text) = told("one queue");
        assert_eq!((verdict, text), ("answer", "in order, 32 of 32 pairs of 64 KiB and 256 bytes"));
        // A busy machine may keep the second thread away.
        assert!(["answer", "absent"].contains(&told("two queues").0), "{found}");
        assert_eq!(named("packets", "absent").len(), Loop::ALL.len(), "{found}");
        assert_eq!(standin.violations(), Vec::<String>::new());
    }
}
