//! Limits of the system, and files without an end: one line, and no signal ends the command.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::support::{Outcome, command, hexflash, model, run, text};

/// What a command did, all told.
fn outcome(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        arguments: format!("{command:?}"),
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `hexflash ARGUMENTS` in a shell that has set a limit.
fn limited(limit: &str, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_hexflash")]).args(arguments);
    shell.env_remove("RUST_LOG").stdin(Stdio::null());
    shell
}

#[test]
fn files_without_an_end() {
    let zero = "/dev/zero";
    run(&["-f", zero]).failed(2, "from /dev/zero: there are more than 16 MiB", "check the path");
    let template = ["--chat", "--chat-template", zero, "x"];
    run(&template).failed(
        2,
        "the chat template /dev/zero: there are more than 256 KiB",
        "use --chat-template chatml",
    );
    let sweep = ["bench", "--draft", "--spec-type", "ngram", "--prompts", zero];
    hexflash(&sweep).failed(2, "prompts from /dev/zero: there are more than 16 MiB", "check the path");
    let mut standard_input = command(&["run", "-f", "-"]);
    standard_input.stdin(File::open(zero).unwrap());
    outcome(standard_input).failed(2, "from -: there are more than 16 MiB", "check the path");
}

#[test]
fn folders_and_pipes_instead_of_files() {
    let dir = TempDir::new().unwrap();
    let (folder, pipe) = (text(dir.path()), dir.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let template = ["--chat", "--chat-template", folder, "x"];
    run(&template).failed(2, "Is a directory", "use --chat-template chatml");
    let sweep = ["bench", "--draft", "--spec-type", "ngram", "--prompts", folder];
    hexflash(&sweep).failed(2, "Is a directory", "check the path");
    run(&["-m", text(&pipe), "x"]).failed(2, "not a regular file", "");
    let library = ["--device", "htp", "--htp-library", text(&pipe), "x"];
    run(&library).failed(1, "pipe is not a file", "name the library with --htp-library");
    // A prompt may come through a pipe: `-f <(command)`.
    let writer = Command::new("sh").args(["-c", "printf 'def f' > \"$0\"", text(&pipe)]).spawn();
    let report = run(&["-f", text(&pipe), "-n", "1", "--json"]).succeeded().json();
    writer.unwrap().wait().unwrap();
    assert_eq!(report["prompt_ids"], run(&["def f", "-n", "1", "--json"]).succeeded().json()["prompt_ids"]);
}

#[test]
fn a_cache_that_may_not_be_as_large_is_done_without() {
    let dir = TempDir::new().unwrap();
    let text_of = |outcome: Outcome| outcome.succeeded().json()["text"].clone();
    let fixed = ["--temp", "0", "-n", "4", "--json", "x"];
    let arguments = [&["run", "--cache-dir", text(dir.path())], &fixed[..]].concat();
    let small = outcome(limited("-f 100", &arguments));
    assert!(small.stderr.contains("cannot be written: File too large"), "{small:?}");
    assert_eq!(small.stderr.lines().count(), 1, "{small:?}");
    assert_eq!(text_of(small), text_of(run(&fixed)));
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left behind");
}

/// As under a limit on processes, which is not one for all users: stacks of 4 GiB, and room for one of them.
#[test]
fn threads_that_the_system_does_not_give() {
    let stacks = |limit: &str, threads: &str| {
        let mut command = limited(limit, &["run", "--no-repack-cache", "-t", threads, "-n", "1", "x"]);
        command.env("RUST_MIN_STACK", (4u64 << 30).to_string());
        outcome(command)
    };
    let cause = "cannot start a device thread (Resource temporarily unavailable";
    stacks("-v 3000000", "1").failed(1, cause, "lower --threads");
    stacks("-v 6000000", "2").failed(1, cause, "lower --threads");
    let cause = "cannot start threads that pack the weights (Resource temporarily unavailable";
    stacks("-v 6000000", "1").failed(1, cause, "raise the limit (ulimit -u)");
}

#[test]
fn rayon_is_not_asked_for_more_threads_than_there_are_cores() {
    let mut many = command(&["run", "--no-repack-cache", "-n", "1", "-v", "x"]);
    // Each with a stack of its own: 100,000 of these would not fit.
    many.env("RAYON_NUM_THREADS", "100000").env("RUST_MIN_STACK", (1u64 << 32).to_string());
    outcome(many).succeeded();
}

#[test]
fn the_library_of_the_htp_is_missing_in_one_short_line() {
    let none = Path::new("nowhere.so");
    let missing = ["--device", "htp", "--htp-library", text(none), "x"];
    run(&missing).failed(1, "nowhere.so was not found; run on a Snapdragon device", "--htp-library");
    let other = model("tiny-hybrid-q8_0.gguf");
    let foreign = ["--device", "htp", "--htp-library", text(&other), "x"];
    run(&foreign).failed(1, "tiny-hybrid-q8_0.gguf cannot be opened (", "--htp-library");
}
