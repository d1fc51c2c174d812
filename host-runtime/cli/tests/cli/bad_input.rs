//! Prompts and options that cannot be right: one line and exit code 2.

use std::fs;

use tempfile::TempDir;

use super::support::{hexflash, hexflash_reading, run, text};

#[test]
fn no_prompt_at_all() {
    for arguments in [&[""][..], &[], &["--prompt-ids", ""], &["--prompt-ids", " , "]] {
        run(arguments).failed(2, "there is no prompt", "give one as an argument");
    }
    hexflash_reading(b"", &["run", "--no-repack-cache", "-f", "-"]).failed(
        2,
        "there is no prompt",
        "give one",
    );
}

#[test]
fn prompt_files_that_are_none() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let missing = dir.path().join("missing.txt");
    run(&["-f", text(&missing)]).failed(2, "missing.txt: No such file", "check the path");
    run(&["-f", text(dir.path())]).failed(2, "Is a directory", "check the path");
    run(&["-f", text(&file("empty.txt", b""))]).failed(2, "there is no prompt", "give one as an argument");
    let latin1 = file("latin1.txt", b"caf\xe9");
    run(&["-f", text(&latin1)]).failed(2, "latin1.txt is not UTF-8 (byte 3)", "convert it");
    let run_stdin = ["run", "--no-repack-cache", "-f", "-"];
    hexflash_reading(b"\xff\xfe", &run_stdin).failed(2, "not UTF-8 (byte 0)", "convert it");
}

/// A failure of the system is none of the input, whatever it is called: nothing is mapped at address 0.
#[cfg(target_os = "linux")]
#[test]
fn an_unknown_system_error_is_no_bad_input() {
    run(&["-f", "/proc/self/mem"]).failed(1, "/proc/self/mem: Input/output error", "check the path");
}

#[cfg(unix)]
#[test]
fn a_prompt_argument_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = super::support::command(&["run", "--no-repack-cache"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: invalid UTF-8") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn prompt_ids_that_are_none() {
    let not_an_id = "is not a token id";
    for ids in ["1,x", "1.5", "99999999999", "--prompt-ids=-1"] {
        let ids = if ids.starts_with("--") { vec![ids] } else { vec!["--prompt-ids", ids] };
        run(&ids).failed(2, not_an_id, "numbers separated by commas");
    }
    run(&["--prompt-ids", "1,4096"]).failed(
        2,
        "4096 is outside the vocabulary of 4096",
        "this model's tokenizer",
    );
    run(&["text", "--prompt-ids", "1,2"]).failed(2, "cannot be used with", "see hexflash --help");
    run(&["--prompt-ids", "1,2", "text"]).failed(
        2,
        "\"text\" is not a token id",
        "numbers separated by commas",
    );
    run(&["--prompt-ids", "1,2", "-f", "-"]).failed(2, "cannot be used with", "see hexflash --help");
    run(&["--prompt-ids", "1,2", "--chat"]).failed(2, "cannot be used with", "see hexflash --help");
}

#[test]
fn prompt_longer_than_the_context() {
    let ids = vec!["1"; 17].join(",");
    let does_not_fit = "17 tokens do not fit the context of 16";
    run(&["-c", "16", "--prompt-ids", &ids]).failed(2, does_not_fit, "raise the context with -c");
    let ids = vec!["1"; 513].join(",");
    let does_not_fit = "513 tokens do not fit the context of 512";
    run(&["--prompt-ids", &ids]).failed(2, does_not_fit, "shorten the prompt");
    // In steps, too.
    run(&["-b", "100", "--prompt-ids", &ids]).failed(2, does_not_fit, "shorten the prompt");
}

#[test]
fn context_and_batch_out_of_range() {
    for n in ["513", "4294967295"] {
        run(&["-c", n, "x"]).failed(2, "the context length (-c) must be 1 to 512", n);
    }
    for n in ["0", "4097"] {
        run(&["-b", n, "x"]).failed(2, "the batch size (--batch-size) must be 1 to 4096", n);
    }
    for n in ["many", "4294967296", "-2"] {
        run(&["-c", n, "x"]).failed(2, &format!("invalid value '{n}'"), "give a number of tokens, or 0");
        run(&["-b", n, "x"]).failed(2, &format!("invalid value '{n}'"), "see hexflash --help");
    }
}

#[test]
fn number_formats_of_caches() {
    for option in ["-ctk", "-ctv", "--cache-type-k", "--cache-type-v"] {
        for name in ["q4_0", "F16", ""] {
            run(&[option, name, "x"]).failed(
                2,
                &format!("invalid value '{name}'"),
                "caches are f16, q8_0 or q4_r",
            );
        }
    }
}

#[test]
fn number_of_tokens_out_of_range() {
    for n in ["0", "-3", "abc", "1.5", "", "99999999999999999999"] {
        run(&["-n", n, "x"]).failed(
            2,
            &format!("invalid value '{n}'"),
            "give a positive number of tokens, or -1",
        );
    }
}

#[test]
fn device_settings_out_of_range() {
    run(&["--device", "gpu", "x"]).failed(2, "unknown device \"gpu\"", "choose one with --device");
    hexflash(&["info", "--device", "gpu"]).failed(2, "unknown device \"gpu\"", "choose one with --device");
    for n in ["0", "100"] {
        run(&["--threads", n, "x"]).failed(2, "the number of threads (--threads) must be 1 to", n);
    }
    for n in ["two", "-2"] {
        run(&["--threads", n, "x"]).failed(2, &format!("invalid value '{n}'"), "see hexflash --help");
    }
    #[cfg(unix)]
    for seconds in ["0", "-1"] {
        let cause = format!("{seconds} is not in 1..");
        run(&["--step-timeout", seconds, "x"]).failed(2, &cause, "see hexflash --help");
    }
    for bytes in ["0", "1000", "65537", "1099511627776"] {
        run(&["--vtcm", bytes, "x"]).failed(
            2,
            "the size of VTCM (--vtcm) must be a multiple of 4096 from 65536",
            bytes,
        );
    }
}

/// Not the input's fault alone: the device refuses, which is exit code 1.
#[test]
fn device_too_small_for_the_model() {
    let cause = "VTCM too small";
    run(&["--vtcm", "65536", "--threads", "8", "x"]).failed(1, cause, "raise --vtcm or lower --threads");
}

#[test]
fn sampling_out_of_range() {
    let wrong = [
        ("--temp", "temperature", ["nan", "inf", "-2", "101"]),
        ("--top-p", "top_p", ["nan", "-0.1", "1.1", "inf"]),
        ("--min-p", "min_p", ["nan", "-0.1", "1.1", "inf"]),
        ("--repeat-penalty", "repeat_penalty", ["nan", "0", "-1", "101"]),
        ("--presence-penalty", "presence_penalty", ["nan", "-101", "101", "inf"]),
        ("--frequency-penalty", "frequency_penalty", ["nan", "-101", "101", "inf"]),
    ];
    for (flag, name, values) in wrong {
        for value in values {
            run(&[flag, value, "x"]).failed(2, &format!("{name} is "), "choose a value in that range");
        }
        run(&[flag, "warm", "x"]).failed(2, "invalid value 'warm'", "see hexflash --help");
    }
    run(&["--repeat-last-n", "99999999", "x"]).failed(2, "repeat_last_n is", "choose a value in that range");
    for (flag, value) in [("--top-k", "1.5"), ("--seed", "-2"), ("--repeat-last-n", "-2")] {
        run(&[flag, value, "x"]).failed(2, &format!("invalid value '{value}'"), "see hexflash --help");
    }
}

#[test]
fn chat_without_a_template() {
    run(&["--chat", "hello"]).failed(2, "the model has no chat template", "--chat-template");
    let dir = TempDir::new().unwrap();
    let template = dir.path().join("bad.jinja");
    let with_template = ["--chat", "--chat-template", text(&template), "hello"];
    run(&with_template).failed(2, "cannot read the chat template", "check the path");
    fs::write(&template, "{% if").unwrap();
    run(&with_template).failed(2, "the chat template is invalid at line 1", "choose another template");
    fs::write(&template, "{{ raise_exception('only\nSwahili') }}").unwrap();
    run(&with_template).failed(2, "the chat template refuses", "change the messages");
    for nothing in ["", "{% if false %}{{ messages }}{% endif %}"] {
        fs::write(&template, nothing).unwrap();
        let cause = "the chat template makes an empty prompt";
        run(&with_template).failed(2, cause, "choose another with --chat-template");
    }
    for flags in [["--system", "be brief"], ["--chat-template", "chatml"]] {
        run(&[&flags[..], &["hello"]].concat()).failed(2, "--chat", "see hexflash --help");
    }
}

#[test]
fn benchmarks_of_nothing_or_too_much() {
    let bench = |arguments: &[&str]| hexflash(&[&["bench", "--no-repack-cache"], arguments].concat());
    bench(&["-p", "0", "-n", "0"]).failed(2, "nothing to measure", "give one of them a number");
    bench(&["-p", "513"]).failed(2, "the length of a test must be at most the context of 512", "-c");
    bench(&["-r", "0"]).failed(2, "0 is not in 1..=1000", "see hexflash --help");
}

#[test]
fn usage_mistakes_are_one_line_too() {
    hexflash(&["fly"]).failed(2, "unrecognized subcommand 'fly'", "see hexflash --help");
    run(&["--tmep", "1", "x"]).failed(2, "unexpected argument '--tmep' found", "--temp");
    run(&["two", "prompts"]).failed(2, "unexpected argument 'prompts'", "see hexflash --help");
    run(&["--temp"]).failed(2, "a value is required for '--temp <T>'", "see hexflash --help");
    let both = run(&["--cache-dir", "/tmp", "x"]);
    both.failed(2, "'--no-repack-cache' cannot be used with '--cache-dir", "see hexflash --help");
}
