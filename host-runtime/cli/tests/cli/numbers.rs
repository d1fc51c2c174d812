//! Numbers that users bring from llama.cpp: negative ones are values of options, and mean there what they
//! mean here.

use super::support::{Outcome, hexflash, run};

/// A run of a few tokens with more arguments.
#[track_caller]
fn with(arguments: &[&str]) -> Outcome {
    run(&[arguments, &["--json", "def f(x):"]].concat()).succeeded()
}

#[test]
fn seed_minus_one_is_a_new_one_each_time() {
    let seed = |flags: &[&str]| with(&[&["-n", "1"], flags].concat()).json()["seed"].as_u64().unwrap();
    assert_eq!(seed(&["-s", "7"]), 7);
    assert_ne!(seed(&["-s", "-1"]), seed(&["--seed", "-1"]));
}

#[test]
fn top_k_of_zero_or_less_chooses_among_all_tokens() {
    let tokens = |k: &str| {
        let flags = ["-n", "6", "-s", "3", "--temp", "2", "--top-p", "1", "--min-p", "0", "--top-k", k];
        with(&flags).json()["tokens"].clone()
    };
    assert_eq!(tokens("-1"), tokens("0"));
    assert_eq!(tokens("-40"), tokens("0"));
    assert_ne!(tokens("-1"), tokens("1"));
}

#[test]
fn a_context_of_zero_or_minus_one_is_the_models_own() {
    for n in ["0", "-1"] {
        let outcome = run(&["-c", n, "-n", "1", "x"]).succeeded();
        assert!(outcome.stderr.contains("/512]"), "{outcome:?}");
        let info = hexflash(&["info", "-c", n]).succeeded().stdout;
        assert!(info.contains("memory for a context of 512"), "{info}");
    }
}

#[test]
fn a_count_of_minus_one_or_two_fills_the_context() {
    for n in ["-1", "-2"] {
        let report = with(&["-c", "16", "-n", n, "--ignore-eos"]).json();
        assert_eq!(report["finish_reason"], "context", "{report}");
    }
}

#[test]
fn other_defaults_have_minus_one_too() {
    let threads = with(&["-n", "1", "-t", "-1", "--temp", "0"]).json();
    assert_eq!(threads["tokens"], with(&["-n", "1", "--temp", "0"]).json()["tokens"]);
    // All tokens of the text are recent.
    let last_n = |n: &str| {
        let flags = ["-n", "12", "--temp", "0", "--repeat-penalty", "2", "--repeat-last-n", n];
        with(&flags).json()["tokens"].clone()
    };
    assert_eq!(last_n("-1"), last_n("512"));
    assert_ne!(last_n("-1"), last_n("0"));
}

/// The number is wrong, and not the way it is written.
#[test]
fn negative_numbers_that_mean_nothing_are_blamed_themselves() {
    let flags = ["-b", "--vtcm", "--sessions", "-n", "-s", "-c", "-t", "--repeat-last-n"];
    for flag in flags {
        run(&[flag, "-7", "x"]).failed(2, "invalid value '-7'", "see hexflash --help");
    }
    for flag in ["-p", "-n", "-r"] {
        hexflash(&["bench", flag, "-7"]).failed(2, "invalid value '-7'", "see hexflash --help");
    }
    // As a prompt it is something else.
    run(&["-7"]).failed(2, "unexpected argument '-7' found", "use '-- -7'");
}
