//! The table of what `cargo xtask test` runs: one entry per step, in order.
//!
//! To add a check, add an entry. A check that is a verb of this xtask is started with [`process::xtask`]. A
//! step of another tier than [`Tier::Test`] says why a change does not wait for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daily;
use crate::hexagon;
use crate::phone_proven;
use crate::process;
use crate::setup::Set;
use crate::suite::{Days, Place, Step, Tier};

/// All steps: the cheap ones first, so that a slip shows early. Tests of one crate are run with
/// `--workspace`, so that what other steps have compiled is used ([`process::build`] says why).
pub const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "rustfmt would change nothing",
        needs: &[Set::Lint],
        after: &[],
        place: Place::Own,
        tier: Tier::Test,
        found: "",
        command: || cargo("fmt --all --check"),
    },
    Step {
        name: "clippy",
        about: "no compiler or clippy warnings, tests included",
        needs: &[Set::Base, Set::Lint],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Test,
        found: "",
        command: || cargo("clippy --workspace --all-targets -- -D warnings"),
    },
    Step {
        name: "clippy-small",
        about: "no warnings in the command without the server and the Hub, which README builds first",
        needs: &[Set::Base, Set::Lint],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Daily("looks at a build that lacks only what `clippy` sees"),
        found: "",
        command: || cargo("clippy --package hexflash-cli --no-default-features --lib --bins -- -D warnings"),
    },
    Step {
        name: "docs",
        about: "the documentation builds without warnings",
        needs: &[Set::Base],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Full(Days::Even, "finds broken links between comments, which nobody runs"),
        found: "",
        command: || {
            let mut command = cargo("doc --workspace --no-deps");
            command.env("RUSTDOCFLAGS", "-D warnings");
            command
        },
    },
    Step {
        name: "deny",
        about: "dependencies: licences, bans, sources; advisories where their database can be had",
        needs: &[Set::Base, Set::Deny],
        after: &[],
        place: Place::Own,
        tier: Tier::Daily("depends on Cargo.lock alone, and compiles cargo-deny for minutes"),
        found: "",
        command: || process::xtask(&["deny"]),
    },
    Step {
        name: "hexagon",
        about: "images and skels build, and the skels are what a DSP loads",
        needs: &[Set::Base, Set::Hexagon],
        after: &[],
        place: Place::Own,
        tier: Tier::Full(
            Days::Odd,
            "compiles kernels for other versions than v73, which take turns by the day",
        ),
        found: "6: `3b1bc363` v79's attention lost bits of scores; `1593909a` MUL_MAT's sums went to memory",
        command: || process::xtask(&["hexagon", "--today"]),
    },
    Step {
        name: "hexagon-check",
        about: "instructions and hidden bits of what was built; planted faults are found",
        needs: &[Set::Base, Set::Hexagon],
        after: &["hexagon"],
        place: Place::Own,
        tier: Tier::Full(Days::Odd, "follows registers through the disassembly of what `hexagon` has built"),
        found: "",
        command: || process::xtask(&["hexagon", "--check", "--today"]),
    },
    Step {
        name: "emulator",
        about: "the emulator with HVX float has the results that are known of its instructions",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator],
        after: &["hexagon"],
        place: Place::Own,
        tier: Tier::Full(Days::Odd, "compiles qemu, for four minutes the first time"),
        found: "",
        command: || process::xtask(&["emulator"]),
    },
    Step {
        name: "emulated",
        about: "the tests that run images and skels under emulation",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator],
        after: &["hexagon", "emulator"],
        place: Place::Workspace,
        tier: Tier::Full(Days::Odd, "is slow under emulation"),
        found: "",
        command: || {
            let mut command = cargo_test(&EMULATED.map(str::to_owned));
            command.env("HEXFLASH_EMULATED", hexagon::of_today());
            command.arg("--").args(NOT_EMULATED.iter().flat_map(|module| ["--skip", module]));
            command
        },
    },
    Step {
        name: "packets",
        about: "kernels take as many packets as expected (all cases by hand)",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator],
        after: &["hexagon", "emulator"],
        place: Place::Own,
        tier: Tier::Full(Days::Odd, "counts speed, which a change may cost where it gains something else"),
        found: "3: `6b1f1c8a` 25 % more packets on v67; `0bdde8f9` 928 more by an odd address",
        command: || process::xtask(&["packets", "--quick", "--today"]),
    },
    Step {
        name: "hexagon-v73",
        about: "the runtime builds as Hexagon code, for the version that most phones have",
        needs: &[Set::Base, Set::Hexagon],
        after: &[],
        place: Place::Own,
        tier: Tier::Test,
        found: "",
        command: || process::xtask(&["hexagon", "--image", "--arch", "v73"]),
    },
    Step {
        name: "kernels",
        about: "unit tests of the DSP runtime, with every vector back end that this processor has",
        needs: &[Set::Base],
        after: &[],
        // Nothing else is built with all back ends, and so nothing else waits for them.
        place: Place::Own,
        tier: Tier::Test,
        found: "",
        command: || {
            let mut command = cargo("test --package hexflash-dsp --lib --no-fail-fast");
            command.args(["--target-dir", "target/vectors"]).env(process::VECTORS, "runnable");
            command
        },
    },
    Step {
        name: "unit",
        about: "unit tests of every other crate",
        needs: &[Set::Base],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Test,
        found: "14, together with `kernels`, `integration` and `programs`: `6833f349` tokens lost with a device",
        command: || cargo("test --workspace --exclude hexflash-dsp --lib --bins --no-fail-fast"),
    },
    Step {
        name: "integration",
        about: "integration tests of every crate but those of `programs`",
        needs: &[Set::Base],
        after: &["unit"],
        place: Place::Workspace,
        tier: Tier::Test,
        found: "",
        command: || not_emulated(cargo_test(&test_targets(|name| !PROGRAMS.contains(&name)))),
    },
    Step {
        name: "programs",
        about: "tests that start programs and wait for them",
        needs: &[Set::Base],
        after: &["unit"],
        // It builds in the workspace, but one process is not enough to keep two processors busy.
        place: Place::Own,
        tier: Tier::Test,
        found: "",
        command: || not_emulated(cargo_test(&test_targets(|name| PROGRAMS.contains(&name)))),
    },
    Step {
        name: "examples",
        about: "examples in documentation compile and run",
        needs: &[Set::Base],
        after: &["integration"],
        place: Place::Workspace,
        tier: Tier::Test,
        found: "",
        command: || cargo("test --workspace --doc --no-fail-fast"),
    },
    Step {
        name: "page",
        about: "the server's page in a real browser",
        needs: &[Set::Base, Set::Browser],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Daily("installs Chromium, takes seven minutes, and has found nothing yet"),
        found: "",
        command: || cargo("test --workspace --test server page:: -- --ignored"),
    },
    Step {
        name: "router",
        about: "two servers behind nginx, one of which dies",
        needs: &[Set::Base, Set::Router],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Full(Days::Even, "installs nginx"),
        found: "",
        command: || cargo("test --workspace --test server router:: -- --ignored"),
    },
    Step {
        name: "clients",
        about: "the server through the clients of OpenAI and Anthropic, for Python and JavaScript",
        needs: &[Set::Base, Set::Clients],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Daily("installs Python and Node.js clients, and takes eight minutes"),
        found: "",
        command: || process::xtask(&["clients"]),
    },
    Step {
        name: "templates",
        about: "chat templates that others publish, against Jinja2, byte for byte",
        needs: &[Set::Base, Set::Clients, Set::Downloads],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Full(Days::Even, "fetches templates, and changes with the template engine alone"),
        found: "",
        command: || process::xtask(&["templates"]),
    },
    Step {
        name: "upstream-server",
        about: "llama-server's own tests, as far as they apply to this server",
        needs: &[Set::Base, Set::Clients],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Full(Days::Even, "installs llama.cpp's tests"),
        found: "1: `07c50225` a slot shown busy after the end was sent",
        command: || process::xtask(&["upstream-server"]),
    },
    Step {
        name: "ggml-backend",
        about: "llama.cpp's own tests of ops, and its server, on hexflash as a backend of ggml",
        needs: &[Set::Base, Set::Downloads],
        after: &[],
        place: Place::Workspace,
        tier: Tier::Daily("fetches llama.cpp's programs, and takes seven minutes"),
        found: "2: `18a247ed` copies within a buffer; others' results",
        command: || process::xtask(&["ggml-backend"]),
    },
    Step {
        name: "phone-proven",
        about: "the emulator runs ggml-hexagon's libraries as apps ship them, and agrees with ggml",
        needs: phone_proven::NEEDS,
        after: &["emulator"],
        place: Place::Own,
        // All versions are a turn of `daily`, and a whole model is another one.
        tier: Tier::Full(Days::Odd, "runs code of others that seldom changes; one version each day"),
        found: "",
        command: || process::xtask(&["phone-proven", "--today"]),
    },
    Step {
        name: "races",
        about: "nothing races in the image for v73, and waits that are left out are found",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator],
        after: &["hexagon", "emulator"],
        place: Place::Workspace,
        tier: Tier::Daily("writes texts under emulation for some minutes"),
        found: "",
        command: || process::xtask(&["races"]),
    },
    Step {
        name: "loom",
        about: "the queue and the worker pool, in all orders that threads may take",
        needs: &[Set::Base],
        after: &[],
        place: Place::Own,
        tier: Tier::Full(Days::Odd, "tries all orders of a few pieces of code that seldom change"),
        found: "1: `551298c5` a stop could be missed in the message loop",
        command: || process::xtask(&["loom"]),
    },
    Step {
        name: "fuzz",
        about: "inputs from strangers, 10 s per target (more by hand)",
        needs: &[Set::Base, Set::Fuzz],
        after: &[],
        place: Place::Own,
        tier: Tier::Daily("compiles everything once more, and finds more the longer it runs"),
        found: "4: `defb800c` the template engine panics; `226a53d6` a line break in an error",
        command: || process::xtask(&["fuzz", "--quick", "--seconds", "10"]),
    },
    Step {
        name: "mutants-apply",
        about: "deliberate mistakes still apply to the code",
        needs: &[Set::Base],
        after: &[],
        place: Place::Own,
        tier: Tier::Full(Days::All, "patches follow the code when somebody has time"),
        found: "",
        command: || process::xtask(&["mutants", "--check"]),
    },
    Step {
        name: "emulated-host",
        about: "the host program for arm64 on device htp, emulated, against the stand-in for FastRPC",
        needs: &[Set::Base, Set::Cross],
        after: &[],
        place: Place::Own,
        tier: Tier::Daily("compiles everything once more, for arm64, and has found nothing yet"),
        found: "",
        command: || process::xtask(&["arm64"]),
    },
    Step {
        name: "android",
        about: "a small program links for Android, and is what its loader starts; planted deviations are found",
        needs: &[Set::Base, Set::Hexagon],
        after: &[],
        place: Place::Own,
        // All of `hexflash` is a turn of `daily`: it takes five times as long.
        tier: Tier::Full(Days::Odd, "compiles Rust's library for another system"),
        found: "",
        command: || process::xtask(&["android"]),
    },
    Step {
        name: "oracle-clippy",
        about: "no warnings in the crates that link llama.cpp",
        needs: &[Set::Base, Set::Lint, Set::Oracle],
        after: &[],
        place: Place::Oracle,
        tier: Tier::Full(Days::Even, "compiles llama.cpp"),
        found: "",
        command: || oracle("clippy", "--workspace --all-targets -- -D warnings"),
    },
    Step {
        name: "oracle-unit",
        about: "ggml's operations against naive ones; llama.cpp's wrapper",
        needs: &[Set::Base, Set::Oracle],
        after: &[],
        place: Place::Oracle,
        // The conformance step computes every case anyway.
        tier: Tier::Full(Days::Even, "compiles llama.cpp"),
        found: "",
        command: || oracle("test", "--workspace -- --skip every_case_has_a_result"),
    },
    // The step `oracle-unit` has compiled what the following steps run, so that they need not take turns.
    Step {
        name: "conformance",
        about: "every kernel against ggml's own result, an eighth of upstream's largest groups each day",
        needs: &[Set::Base, Set::Oracle],
        after: &["oracle-unit"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "compiles llama.cpp, and runs thousands of cases"),
        found: "1: `4628fa7f` cases of the delta rule were refused",
        command: || process::xtask(&["conformance", "--part", &daily::part(8), "--quiet"]),
    },
    Step {
        name: "conformance-v73",
        about: "the same as code for v73: against ggml's result, and the bits of its float in software",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator, Set::Oracle],
        after: &["oracle-unit", "hexagon", "emulator"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "is slow under emulation"),
        found: "2: `c29e98c8` 46 cases of ADD_ID; `85993641` products depended on threads",
        command: || {
            let device = ["--device", "qemu", "--arch", "v73"];
            let mut command = process::xtask(&["conformance", "--part", &daily::part(16), "--quiet"]);
            command.args(device);
            command
        },
    },
    Step {
        name: "conformance-v79",
        about: "the same for v79, whose floats have bits outside of the registers",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator, Set::Oracle],
        after: &["oracle-unit", "hexagon", "emulator"],
        place: Place::Own,
        tier: Tier::Daily("is slow under emulation, and v73 finds most of what it would"),
        found: "",
        command: || process::xtask(&["conformance", "--device", "qemu", "--arch", "v79", "--quiet"]),
    },
    Step {
        name: "tokenizers",
        about: "vocabularies of Qwen3, Llama 3, gpt-oss and Gemma 3 against Hugging Face's library",
        needs: &[Set::Base, Set::Oracle, Set::Downloads],
        after: &["oracle-unit"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "fetches vocabularies"),
        found: "1: `ea6e49ff` `</s>`, which is text, was cut out of prompts",
        command: || process::xtask(&["compare-tokenizers"]),
    },
    Step {
        name: "compare-llama",
        about: "the models of this repository against llama.cpp",
        needs: &[Set::Base, Set::Oracle],
        after: &["oracle-unit"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "compiles llama.cpp"),
        found: "",
        command: || {
            let mut command = process::xtask(&["compare-llama"]);
            for kind in ["f16", "q8_0", "q4_0"] {
                command.arg("-m").arg(format!("models/tiny-hybrid-{kind}.gguf"));
            }
            command
        },
    },
    Step {
        name: "compare-random",
        about: "models with random weights in real widths against llama.cpp, 256 tokens, a fifth each day",
        needs: &[Set::Base, Set::Oracle],
        after: &["oracle-unit"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "compiles llama.cpp"),
        found: "",
        command: || {
            process::xtask(&["compare-llama", "--random", "--tokens", "256", "--part", &daily::part(5)])
        },
    },
    Step {
        name: "compare-pictures",
        about: "encoders of pictures with random weights, and what models make of their rows, \
                against llama.cpp",
        needs: &[Set::Base, Set::Oracle],
        after: &["oracle-unit"],
        place: Place::Own,
        tier: Tier::Full(Days::Even, "compiles llama.cpp"),
        found: "1: resized pictures a quarter of whose values were one off",
        command: || process::xtask(&["compare-pictures", "--pictures", "6"]),
    },
    Step {
        name: "daily",
        about: "the check whose turn is today, of those that take long",
        needs: &[Set::Base, Set::Hexagon, Set::Emulator, Set::Oracle, Set::Downloads],
        after: &["emulated", "mutants-apply", "android", "oracle-unit"],
        place: Place::Workspace,
        tier: Tier::Full(Days::All, "takes long and seldom finds something, so that one runs each day"),
        found: "1: `7fa14c58` SSM_CONV left out the newest row (LLVM's loops)",
        command: || process::xtask(&["daily"]),
    },
];

/// Test targets that start programs, or servers, and wait for them much of their time.
const PROGRAMS: [&str; 6] = ["cli", "htp", "server", "ggml", "leaks", "short"];

/// Names of the workspace's test targets that `is_wanted`.
fn test_targets(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut metadata = cargo("metadata --no-deps --format-version 1 --offline");
    let text = process::output(&mut metadata).unwrap_or_default();
    let metadata: Value = serde_json::from_str(&text).unwrap_or_default();
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let targets = list(&metadata, "packages").into_iter().flat_map(|package| list(&package, "targets"));
    let tests = targets.filter(|target| list(target, "kind").iter().any(|kind| kind == "test"));
    let names: BTreeSet<String> = tests.filter_map(|test| Some(test["name"].as_str()?.to_owned())).collect();
    names.into_iter().filter(|name| is_wanted(name)).collect()
}

/// Cargo for the test targets of these names. Cargo refuses an empty name, where there are none.
fn cargo_test(targets: &[String]) -> Command {
    let mut command = cargo("test --workspace --no-fail-fast");
    let empty = [String::new()];
    for target in if targets.is_empty() { &empty } else { targets } {
        command.args(["--test", target]);
    }
    command
}

/// Cargo as given, without tests of Hexagon code under emulation, which the step `emulated` runs: what lies
/// there may be that of other sources.
fn not_emulated(mut tests: Command) -> Command {
    tests.env("HEXFLASH_EMULATED", "");
    tests
}

/// Test targets that have tests of the emulated device, or of skels under emulation.
const EMULATED: [&str; 8] =
    ["phones", "matrix_unit", "qemu", "device", "phone_products", "htp", "cli", "short"];

/// Modules of `cli` and `htp` without a test of the emulated device: the step `programs` has run them.
const NOT_EMULATED: [&str; 27] = [
    "bad_drafts::",
    "bad_input::",
    "bad_models::",
    "bench_draft::",
    "bench_parallel::",
    "big_models::",
    "coherence::",
    "copies::",
    "deploy::",
    "deploy_systems::",
    "embed::",
    "failures::",
    "fit::",
    "good::",
    "hub::",
    "hub_cache::",
    "library_path::",
    "limits::",
    "manual::",
    "mappings::",
    "mtp::",
    "programs::",
    "recovery::",
    "rules::",
    "serve::",
    "speculation::",
    "templates::",
];

/// Cargo for the workspace of `tests/oracle`.
fn oracle(verb: &str, words: &str) -> Command {
    // Steps start in the root of the checkout.
    let mut command = crate::oracle::cargo(Path::new("."), verb);
    command.args(words.split_whitespace());
    command
}

/// A command of the cargo that runs this xtask; the words are separated by blanks.
fn cargo(words: &str) -> Command {
    let mut command = process::cargo();
    command.args(words.split_whitespace());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn steps_come_after_earlier_ones() {
        for (i, step) in STEPS.iter().enumerate() {
            for name in step.after {
                assert!(STEPS[..i].iter().any(|earlier| earlier.name == *name), "{}: {name}", step.name);
            }
        }
    }

    #[test]
    fn every_test_target_is_in_a_step() {
        let [all, programs] = [test_targets(|_| true), test_targets(|name| PROGRAMS.contains(&name))];
        assert!(all.len() > 40, "{all:?}");
        assert_eq!(programs.len(), PROGRAMS.len(), "{programs:?}");
        assert!(EMULATED.iter().all(|name| all.iter().any(|one| one == name)), "{all:?}");
    }

    #[test]
    fn modules_that_are_not_run_under_emulation_have_no_emulator() {
        let root = process::workspace_root().unwrap();
        let folders =
            ["host-runtime/cli/tests/cli", "tests/cdsprpc/tests/htp"].map(|folder| root.join(folder));
        for module in NOT_EMULATED {
            let file = format!("{}.rs", module.trim_end_matches(':'));
            let text = folders.iter().find_map(|folder| std::fs::read_to_string(folder.join(&file)).ok());
            let text = text.unwrap_or_else(|| panic!("{file} is in neither folder"));
            let words = ["QEMU", "qemu", "emulator_is_missing", "emulated("];
            assert!(words.iter().all(|word| !text.contains(word)), "{file}");
        }
    }

    #[test]
    fn names_are_unique_words() {
        let names: HashSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        assert!(
            names
                .iter()
                .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
        );
    }
}
