//! Speculation from a user's view: the same text, statistics on top, and an end wherever plain decoding ends.

use serde_json::Value as Json;

use super::support::{Outcome, hexflash, model, run, text};

/// Most of what the shipped draft guesses after this is right: rounds of seven tokens.
const EASY: &str = "def __repr__(self):\n        return ";
/// Right about every other time.
const HARD: &str = "#### pub fn push(&mut self";

const TARGETS: [&str; 3] = ["tiny-hybrid-f16.gguf", "tiny-hybrid-q8_0.gguf", "tiny-hybrid-q4_0.gguf"];
const DRAFTS: [&str; 2] = ["tiny-hybrid-dflash-f16.gguf", "tiny-hybrid-dflash-q8_0.gguf"];

fn generated(arguments: &[&str]) -> Json {
    run(&[&["--json"], arguments].concat()).succeeded().json()
}

/// With the shipped draft.
fn drafted(arguments: &[&str]) -> Json {
    let draft = model(DRAFTS[0]);
    generated(&[&["-md", text(&draft)], arguments].concat())
}

#[track_caller]
fn same(a: &Json, b: &Json, what: &str) {
    for field in ["tokens", "text", "finish_reason"] {
        assert_eq!(a[field], b[field], "{field}, {what}");
    }
}

fn number(report: &Json, figure: &str) -> f64 {
    report["stats"]["speculation"][figure].as_f64().unwrap_or_else(|| panic!("{figure} in {report}"))
}

#[test]
fn every_pair_and_length_gives_the_text_of_plain_decoding() {
    for target in TARGETS.map(model) {
        let plain = ["-m", text(&target), "--temp", "0", "-n", "40", HARD];
        let expected = generated(&plain);
        assert_eq!(expected["stats"].get("speculation"), None);
        for draft in DRAFTS.map(model) {
            for length in ["1", "3", "7", "auto"] {
                let speculative = [&plain[..], &["-md", text(&draft), "--draft-max", length]].concat();
                let report = generated(&speculative);
                same(&report, &expected, &format!("{target:?} {draft:?} {length}"));
                let rounds = number(&report, "rounds");
                assert!(rounds > 0.0 || length == "auto", "{report}");
            }
        }
    }
}

/// Of several drafters the best drafts, wherever the draft model runs; the text stays.
#[test]
fn several_drafters_and_two_devices_give_the_text_of_plain_decoding() {
    let draft = model(DRAFTS[1]);
    for how in [&["--temp", "0"][..], &["--temp", "1", "--seed", "3"]] {
        let plain = [how, &["-n", "60", EASY]].concat();
        let expected = generated(&plain);
        for drafters in [
            &["--spec-type", "ngram-mod"][..],
            &["--spec-type", "ngram-mod", "--draft-max", "5"],
            &["--spec-type", "ngram-simple,ngram-mod"],
            &["-md", text(&draft), "--spec-type", "draft-dflash,ngram-mod"],
            &["-md", text(&draft), "--spec-type", "ngram-simple,draft-dflash", "--draft-max", "3"],
            &["-md", text(&draft), "--device-draft", "inproc"],
            &["-md", text(&draft), "--device-draft", "inproc", "--draft-max", "7"],
            &["-md", text(&draft), "--device-draft", "inproc", "--spec-type", "draft-dflash,ngram-mod"],
        ] {
            let report = generated(&[&plain[..], drafters].concat());
            same(&report, &expected, &format!("{drafters:?}"));
            assert!(number(&report, "rounds") + number(&report, "steps") > 0.0, "{report}");
        }
    }
}

#[test]
fn lists_of_drafters_that_make_no_sense() {
    let draft = model(DRAFTS[0]);
    for (drafters, cause, remedy) in [
        (&["--spec-type", "draft-mtp,draft-dflash"][..], "two kinds of draft models", "name one of them"),
        (&["--spec-type", "ngram-mod,ngram-mod"], "names ngram-mod twice", "name it once"),
        (&["--spec-type", "none,ngram-mod"], "none drafts nothing", "drop it"),
        (&["--device-draft", "inproc"], "--device-draft needs someone who drafts", "-md FILE"),
        (&["-md", text(&draft), "--device-draft", "nowhere"], "nowhere", "inproc"),
    ] {
        run(&[drafters, &["x"]].concat()).failed(2, cause, remedy);
    }
}

#[test]
fn ngrams_give_the_text_of_plain_decoding() {
    for prompt in [EASY, HARD] {
        for how in [&["--temp", "0"][..], &["--temp", "1", "--seed", "3"]] {
            let plain = [how, &["-n", "60", prompt]].concat();
            let expected = generated(&plain);
            for length in ["1", "7", "15", "auto"] {
                let flags = ["--spec-type", "ngram-simple", "--draft-max", length];
                let report = generated(&[&plain[..], &flags].concat());
                same(&report, &expected, &format!("{prompt:?} {length}"));
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_sample_with_and_without_drafts() {
    let settings: [&[&str]; 4] = [
        &["--temp", "1.2"],
        &["--temp", "0.7", "--top-k", "5", "--repeat-penalty", "1.2"],
        &["--temp", "1", "--presence-penalty", "0.5", "--min-p", "0", "--top-p", "1"],
        // Greedy, but not the best token of the logits as they are.
        &["--temp", "0", "--repeat-penalty", "1.4"],
    ];
    for setting in settings {
        let plain = [setting, &["--seed", "11", "-n", "40", HARD]].concat();
        let expected = generated(&plain);
        for length in ["1", "4", "7", "auto"] {
            let report = drafted(&[&plain[..], &["--draft-max", length]].concat());
            same(&report, &expected, &format!("{setting:?} {length}"));
        }
    }
}

/// Wherever in a round a stop text ends.
#[test]
fn stop_texts_in_the_middle_of_a_round() {
    let all = generated(&["--temp", "0", "-n", "40", EASY]);
    let all = all["text"].as_str().unwrap();
    for at in (1..all.len() - 6).step_by(5).filter(|&at| all.is_char_boundary(at)) {
        let stop: String = all[at..].chars().take(4).collect();
        let plain = ["--temp", "0", "-n", "40", "--stop", &stop, EASY];
        let expected = generated(&plain);
        assert_eq!(expected["finish_reason"], "stop", "{stop:?}");
        same(&drafted(&[&plain[..], &["--draft-max", "7"]].concat()), &expected, &stop);
    }
}

#[test]
fn no_token_too_many_or_too_few() {
    let tokens = generated(&["--temp", "0", "-n", "24", EASY])["tokens"].clone();
    let tokens = tokens.as_array().unwrap();
    let last = |report: &Json, n: usize| {
        assert_eq!(report["tokens"].as_array().unwrap(), &tokens[..n], "{n}");
        assert_eq!(report["finish_reason"], "length");
        assert_eq!(report["stats"]["generated_tokens"], n);
    };
    for n in 1..=18 {
        let count = n.to_string();
        last(&drafted(&["--temp", "0", "-n", &count, "--draft-max", "7", EASY]), n);
    }
    for n in [1, 2, 3, 9, 24] {
        let count = n.to_string();
        last(&drafted(&["--temp", "0", "-n", &count, EASY]), n);
        last(&generated(&["--temp", "0", "-n", &count, "--spec-type", "ngram", EASY]), n);
    }
}

#[test]
fn text_ends_where_the_context_does() {
    for n_ctx in 12..=32 {
        let n_ctx = n_ctx.to_string();
        let plain = ["--temp", "0", "-n", "-1", "-c", &n_ctx, EASY];
        let expected = generated(&plain);
        assert_eq!(expected["finish_reason"], "context");
        same(&drafted(&[&plain[..], &["--draft-max", "7"]].concat()), &expected, &n_ctx);
        same(&generated(&[&plain[..], &["--spec-type", "ngram"]].concat()), &expected, &n_ctx);
    }
    let draft = model(DRAFTS[0]);
    let short = run(&["-md", text(&draft), "-c", "7", "x"]);
    short.failed(2, "the context length (-c) must be at least 8, a block of the draft", "not 7");
}

#[test]
fn statistics_in_words_and_as_json() {
    let draft = model(DRAFTS[0]);
    let flags = ["-md", text(&draft), "--draft-max", "7", "--temp", "0", "-n", "40", EASY];
    let spoken = run(&flags).succeeded();
    assert_eq!(spoken.stderr.lines().count(), 2, "{spoken:?}");
    for part in ["[drafted ", "accepted ", " rounds and ", "mean accepted length ", "% by position "] {
        assert!(spoken.stderr.contains(part), "{part:?} in {spoken:?}");
    }
    let report = generated(&flags);
    let [rounds, drafted, accepted, steps] =
        ["rounds", "drafted", "accepted", "steps"].map(|figure| number(&report, figure));
    // The first token comes with the prompt; every round and every step gives one more than it accepts.
    assert_eq!(rounds + steps + accepted, 39.0);
    assert_eq!(number(&report, "mean_accepted_length"), 1.0 + accepted / rounds);
    assert_eq!(number(&report, "acceptance"), accepted / drafted);
    let at = |name: &str| -> Vec<f64> {
        let figures = report["stats"]["speculation"][name].as_array().unwrap();
        figures.iter().map(|figure| figure.as_f64().unwrap()).collect()
    };
    let (drafted_at, accepted_at, shares) = (at("drafted_at"), at("accepted_at"), at("acceptance_at"));
    assert_eq!((drafted_at.len(), accepted_at.len(), shares.len()), (7, 7, 7));
    assert_eq!((drafted_at.iter().sum::<f64>(), accepted_at.iter().sum::<f64>()), (drafted, accepted));
    for i in 0..7 {
        assert_eq!(shares[i], accepted_at[i] / drafted_at[i]);
        assert!(i == 0 || accepted_at[i] <= accepted_at[i - 1], "{report}");
    }
    assert_eq!(at("accepted_per_round").len() as f64, rounds);
    assert!(number(&report, "mean_accepted_length") > 2.0, "drafts are of use: {report}");
}

/// Whoever knows llama.cpp's options need not learn new ones.
#[test]
fn options_by_all_their_names() {
    let draft = model(DRAFTS[0]);
    let fixed = ["--temp", "0", "-n", "12", "--json", EASY];
    let stats = |flags: &[&str]| {
        let report = run(&[flags, &fixed].concat()).succeeded().json();
        report["stats"]["speculation"].clone()
    };
    let expected = stats(&["-md", text(&draft), "--draft-max", "3"]);
    for name in ["-md", "--model-draft", "--spec-draft-model"] {
        for length in ["--draft", "--draft-n", "--draft-max", "--spec-draft-n-max"] {
            for kind in [&[][..], &["--spec-type", "draft-dflash"]] {
                let flags = [&[name, text(&draft), length, "3"], kind].concat();
                assert_eq!(stats(&flags), expected, "{flags:?}");
            }
        }
    }
    assert!(stats(&["--spec-type", "ngram"])["rounds"].is_u64());
    let off = stats(&["-md", text(&draft), "--spec-type", "none", "--draft-max", "3"]);
    assert_eq!(off, Json::Null, "nothing is drafted");
}

#[test]
fn more_drafts_than_a_block_has() {
    let draft = model(DRAFTS[0]);
    let outcome =
        run(&["-md", text(&draft), "--draft-max", "15", "--temp", "0", "-n", "12", EASY]).succeeded();
    let note = "--draft-max 15 counts as 7: a block of this draft has 8 tokens";
    assert!(outcome.stderr.contains(note), "{outcome:?}");
}

#[test]
fn speculation_that_cannot_be() {
    let draft = model(DRAFTS[0]);
    let draft = text(&draft);
    run(&["--spec-type", "draft-dflash", "x"]).failed(2, "needs a draft model", "-md FILE");
    run(&["--draft-max", "3", "x"]).failed(
        2,
        "--draft-max needs someone who drafts",
        "--spec-type ngram-simple",
    );
    run(&["-md", draft, "--spec-type", "ngram", "x"]).failed(2, "only drafters without one", "drop -md");
    run(&["-md", draft, "--spec-type", "draft-medusa", "x"]).failed(2, "'draft-medusa'", "draft-dflash");
    run(&["-md", draft, "--spec-type", "draft-eagle3", "x"]).failed(2, "no draft for --spec-type", "drop");
    for n in ["0", "16", "-1", "many", "1.5", ""] {
        let flag = format!("--draft-max={n}");
        run(&["-md", draft, &flag, "x"]).failed(2, &format!("'{n}'"), "give 1 to 15 tokens, or auto");
    }
}

/// What llama.cpp has and hexflash has not: said, and what to do instead.
#[test]
fn foreign_options() {
    let options: [(&[&str], &str, &str); 12] = [
        (&["--draft-min", "2"], "--draft-min of llama.cpp", "drop it"),
        (&["--draft-min=2"], "--draft-min of llama.cpp", "drop it"),
        (&["--spec-draft-n-min", "2"], "--spec-draft-n-min", "--draft-max"),
        (&["--draft-p-min", "0.8"], "--draft-p-min of llama.cpp", "--draft-max auto"),
        (&["--spec-draft-p-min", "0.8"], "--spec-draft-p-min", "--draft-max auto"),
        (&["--spec-draft-p-split", "0.1"], "--spec-draft-p-split", "drop it"),
        (&["-ngld", "99"], "-ngld (--gpu-layers-draft)", "all layers of target and draft run on the device"),
        (&["-ngl", "99"], "-ngl (--gpu-layers)", "drop it"),
        (&["-cd", "512"], "-cd (--ctx-size-draft)", "shares the target's"),
        (&["-ctkd", "q8_0"], "-ctkd (--cache-type-k-draft)", "drop it"),
        (&["--spec-default"], "--spec-default", "-md FILE"),
        (&["--dflash"], "--dflash", "-md FILE"),
    ];
    for (option, cause, remedy) in options {
        run(&[option, &["x"]].concat()).failed(2, cause, remedy);
        run(&[&["x"], option].concat()).failed(2, "is not supported", remedy);
    }
    run(&["--draft-mix", "2", "x"]).failed(2, "unexpected argument '--draft-mix'", "--draft-max");
}

#[test]
fn info_tells_the_memory_of_speculation() {
    let draft = model(DRAFTS[0]);
    let plain = hexflash(&["info", "--json"]).succeeded().json();
    assert_eq!(plain["memory"]["speculation"], Json::Null);
    let report = hexflash(&["info", "--json", "-md", text(&draft)]).succeeded().json();
    let memory = &report["memory"]["speculation"];
    for part in ["tape", "draft_kv", "draft_weights", "other", "state_copies"] {
        assert!(memory[part].as_u64().unwrap() > 0, "{part}: {memory}");
    }
    // They lie where prefill has its activations.
    assert_eq!(memory["conv_rows"], 0);
    // Two layers of two heads of 64 values, K and V, in half precision.
    assert_eq!(memory["draft_kv"], 512 * 2 * 2 * 64 * 2 * 2);
    let ngram = hexflash(&["info", "--json", "--spec-type", "ngram-simple"]).succeeded().json();
    let ngram = &ngram["memory"]["speculation"];
    assert_eq!((&ngram["tape"], &ngram["draft_weights"]), (&memory["tape"], &0.into()));
    let shown = hexflash(&["info", "-md", text(&draft)]).succeeded().stdout;
    for part in [
        "speculation, on top of that",
        "factor tapes",
        "draft KV cache",
        "draft weights",
        "of a copy of the states",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
}

/// Ctrl-C while rounds are under way: the text so far, statistics, and exit code 130.
#[cfg(target_os = "linux")]
#[test]
fn an_interruption_keeps_the_text_complete() {
    use std::io::Read;
    use std::process::Stdio;

    use rustix::process::{Pid, Signal, kill_process};

    use super::support::command;

    let draft = model(DRAFTS[0]);
    let whole = run(&["--temp", "0", "-n", "-1", EASY]).succeeded();
    let drafters: [&[&str]; 4] = [
        &[],
        &["-md", text(&draft), "--draft-max", "7"],
        &["-md", text(&draft), "--draft-max", "auto"],
        &["--spec-type", "ngram"],
    ];
    for drafter in drafters {
        let fixed = ["run", "--no-repack-cache", "--temp", "0", "-n", "-1", EASY];
        let mut command = command(&[&fixed[..], drafter].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut printed = vec![0; EASY.len() + 20];
        stdout.read_exact(&mut printed).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        stdout.read_to_end(&mut printed).unwrap();
        let output = child.wait_with_output().unwrap();
        let outcome = Outcome {
            arguments: drafter.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8(printed).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        if outcome.code == Some(0) {
            // It was done before the signal came.
            assert_eq!(outcome.stdout, whole.stdout, "{outcome:#?}");
            continue;
        }
        assert_eq!(outcome.code, Some(130), "{outcome:#?}");
        let text = outcome.stdout.strip_suffix('\n').unwrap();
        assert!(whole.stdout.starts_with(text), "{outcome:#?}");
        assert!(outcome.stderr.contains("[interrupted; prompt 9 tokens"), "{outcome:#?}");
        // All that counts as generated has been printed.
        let count = outcome.stderr.split("generated ").nth(1).unwrap().split(' ').next().unwrap();
        let counted = run(&["--temp", "0", "-n", count, EASY]).succeeded();
        assert_eq!(outcome.stdout, counted.stdout, "{outcome:#?}");
        assert_eq!(outcome.stderr.contains("[drafted "), !drafter.is_empty(), "{outcome:#?}");
    }
}
