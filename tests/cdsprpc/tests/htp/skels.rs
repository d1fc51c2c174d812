//! The skels themselves, the very files that phones load, under the emulator: whole generations, failures and
//! recovery; and the rules that only this can see kept or broken.

use hexflash::device::DeviceOptions;
use hexflash::device::htp::Htp;

use cdsprpc::standin::StandIn;

use crate::coherence::report_of;
use crate::failures::{crashes_and_hangs, each_failure_on_the_dsp};
use crate::recovery::{Setting, at_some_messages};
use crate::scenarios;
use crate::tokens::same_tokens;
use crate::ways::opens_without_each;

/// The oldest with the same vector instructions, as far as our code has them.
const ARCHS: [&str; 3] = ["68", "73", "79"];

/// Decoding, with all DMA by instructions that the emulator executes.
#[test]
fn sixty_four_tokens() {
    for arch in ARCHS {
        let Some(standin) = StandIn::emulated(arch) else { continue };
        let report = same_tokens(&standin, &["--temp", "0", "-n", "64"]);
        assert_eq!(report["tokens"].as_array().unwrap().len(), 64);
        let [descriptors, errors] = standin.dma_counts();
        // Hundreds for each token.
        assert!(descriptors > 64 * 100 && errors == 0, "v{arch}: {descriptors}, {errors}");
    }
}

/// Rounds on the device; layers split over two processes, each of which drops what the other has written.
#[test]
fn rounds_and_sessions() {
    let Some(standin) = StandIn::emulated("73") else { return };
    let report = same_tokens(&standin, &["-md", "DRAFT", "--draft-max", "5", "--temp", "0", "-n", "16"]);
    assert!(report["stats"]["speculation"]["rounds"].as_u64().unwrap() > 1, "{report}");
    let Some(standin) = StandIn::emulated("79") else { return };
    same_tokens(&standin, &["--sessions", "2", "--temp", "0", "-n", "8"]);
    same_tokens(&standin, &["--dma", "threads", "--temp", "0", "-n", "4"]);
}

/// Engines whose transfers overtake one another, as those of phones may: nothing else than waits for each
/// transfer keeps them apart.
#[test]
fn transfers_may_overtake() {
    let Some(mut standin) = StandIn::emulated("73") else { return };
    standin.configure("engines=shuffle");
    same_tokens(&standin, &["-md", "DRAFT", "--draft-max", "5", "--temp", "0", "-n", "12"]);
    let [descriptors, errors] = standin.dma_counts();
    assert!(descriptors > 12 * 100 && errors == 0, "{descriptors}, {errors}");
}

/// Another client takes the scratchpad between two messages: the callback is a function of the library.
#[test]
fn the_scratchpad_is_lent_and_taken_back() {
    let Some(mut standin) = StandIn::emulated("73") else { return };
    for at in [3, 12] {
        standin.configure(&format!("wanted={at}"));
        same_tokens(&standin, &["--temp", "0", "-n", "6"]);
    }
}

/// The same scenarios as on every device.
#[test]
fn they_refuse_what_they_must() {
    for arch in ARCHS {
        let Some(standin) = StandIn::emulated(arch) else { continue };
        let options = DeviceOptions { threads: Some(1), vtcm_bytes: Some(64 << 10), ..standin.options() };
        scenarios::every_code_comes_back(Box::new(Htp::open(&options).unwrap()));
        standin.is_clean();
    }
}

/// What QuRT, HAP and the resource manager may refuse; a process that crashes, hangs, and is replaced.
#[test]
fn failures() {
    for arch in ARCHS {
        let Some(mut standin) = StandIn::emulated(arch) else { continue };
        each_failure_on_the_dsp(&mut standin);
        crashes_and_hangs(&mut standin);
    }
}

/// The text of a generation whose process is lost in the middle is that of an undisturbed one.
#[test]
fn recovery() {
    let standins = [|| emulated("68"), || emulated("73"), || emulated("79")];
    for (arch, standin) in ARCHS.into_iter().zip(standins) {
        if StandIn::emulated(arch).is_none() {
            continue;
        }
        let plain = Setting::new(false, None, 5).on(standin);
        // In the prompt, and after it.
        at_some_messages(&plain, &[("crash=", 2), ("crash-answer=", 5), ("hang=", 6)]);
        let rounds = Setting::new(true, None, 8).on(standin);
        at_some_messages(&rounds, &[("crash=", 5)]);
    }
}

/// A stand-in that was there before.
fn emulated(arch: &str) -> StandIn {
    StandIn::emulated(arch).expect("it was there")
}

/// Images that lack what libraries can do without: each function is hidden from the files that phones load.
#[test]
fn an_image_may_lack_what_is_optional() {
    for arch in ["73", "79"] {
        let Some(standin) = StandIn::emulated(arch) else { continue };
        opens_without_each(standin);
    }
}

/// Breaches on purpose: each is reported, with the function that it happened in.
#[test]
fn breaches_are_found_and_named() {
    let Some(mut standin) = StandIn::emulated("73") else { return };
    for (config, words, place) in [
        ("forget=lock", "a vector packet of a thread without a vector context", "hexflash_dsp::kernels::"),
        ("forget=wait", "a thread went to sleep with DMA under way", "hexflash_image::skel::session::worker"),
        ("forget=power", "votes for power were not withdrawn", ""),
    ] {
        standin.configure(config);
        let before = standin.violations().len();
        let found = report_of(&standin).split_off(before);
        let named = |line: &&String| line.contains(words) && line.contains(place);
        assert!(found.iter().any(|line| named(&line)), "{config}: {found:#?}");
    }
}
