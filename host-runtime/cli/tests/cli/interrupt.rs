//! Signals: whatever the command is doing, it ends soon, with what it has by then and the signal's exit code.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Signal;
use tempfile::TempDir;

use super::signalled::{Ended, Moments, Running, SIGNALS, signalled};
use super::support::{Outcome, command, emulator_is_missing, hexflash, model, text};

/// Most of what the shipped draft guesses after this is right: rounds of seven tokens.
const EASY: &str = "def __repr__(self):\n        return ";

/// A prompt of hundreds of tokens.
fn long_prompt() -> String {
    "def f(x): return x\n".repeat(40)
}

/// Loading, prompt, decode, blocks that the host checks and rounds; text and --json; the cache is written
/// each time.
#[test]
fn at_50_moments_a_run_ends_with_its_text_so_far_and_leaves_nothing() {
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    let drafters: [&[&str]; 4] = [
        &[],
        &["-md", text(&draft), "--draft-max", "7"],
        &["-md", text(&draft), "--draft-max", "auto"],
        &["--spec-type", "ngram", "--draft-max", "5"],
    ];
    let prompt = format!("{}{EASY}", "def f(x): return x\n".repeat(5));
    let run = |drafter: &[&str], form: &[&str], cache: &TempDir| {
        let fixed =
            ["run", "-t", "1", "-b", "4", "--temp", "0", "-n", "40", "--cache-dir", text(cache.path())];
        command(&[&fixed[..], drafter, form, &[&prompt]].concat())
    };
    let cache = TempDir::new().unwrap();
    let text_of = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let whole_text = text_of(&mut run(&[], &[], &cache));
    let whole_json = serde_json::from_str(&text_of(&mut run(&[], &["--json"], &cache))).unwrap();
    assert!(whole_text.len() > prompt.len() + 40, "{whole_text:?}");

    let mut moments = Moments::new(19);
    let mut interrupted = 0;
    // How long a run takes, as far as is known: the shortest that came to its end by itself.
    let start = Instant::now();
    text_of(&mut run(&[], &[], &TempDir::new().unwrap()));
    let mut longest = start.elapsed();
    for i in 0..50 {
        let (drafter, signal) = (drafters[i % 4], SIGNALS[i % 3]);
        let cache = TempDir::new().unwrap();
        let delay = longest.mul_f64(moments.next());
        // As `timeout` sends it.
        let twice = i % 5 == 0;
        let ended = if i % 2 == 0 {
            let ended = signalled(run(drafter, &[], &cache), signal, twice, delay);
            interrupted += u32::from(ended.printed_text(&prompt, &whole_text));
            ended
        } else {
            let ended = signalled(run(drafter, &["--json"], &cache), signal, twice, delay);
            interrupted += u32::from(ended.printed_json(&whole_json));
            ended
        };
        if ended.code == Ok(0) {
            longest = longest.min(delay.max(Duration::from_millis(50)));
        }
        let left: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let whole = |name: &std::ffi::OsString| name.to_str().unwrap().ends_with(".hfcache");
        assert!(left.iter().all(whole), "{left:?} after {ended:#?}");
    }
    assert!(interrupted >= 25, "only {interrupted} of 50 runs were interrupted");
}

/// The emulator is a process of its own.
#[test]
fn at_any_moment_the_emulator_ends_with_its_host() {
    if emulator_is_missing() {
        return;
    }
    let run = || {
        let fixed =
            ["run", "--no-repack-cache", "--device", "qemu", "-t", "1", "--temp", "0", "-n", "2", "x"];
        command(&fixed)
    };
    let start = Instant::now();
    let whole = String::from_utf8(run().output().unwrap().stdout).unwrap();
    let longest = start.elapsed();
    let mut moments = Moments::new(7);
    for signal in SIGNALS {
        let ended = signalled(run(), signal, false, longest.mul_f64(moments.next()));
        ended.printed_text("x", &whole);
    }
}

/// One token a batch, so that the prompt takes hundreds of steps.
#[test]
fn a_prompt_ends_after_the_batch_under_way() {
    let prompt = long_prompt();
    let run = ["run", "--no-repack-cache", "-t", "1", "-b", "1", "-n", "1", &prompt];
    let after = |ended: &Ended, word: &str| -> usize {
        let (_, rest) = ended.stderr.split_once(word).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    for attempt in 1.. {
        let mut running = Running::start(command(&run));
        let mut echo = vec![0; prompt.len()];
        let stdout = running.child().stdout.as_mut().unwrap();
        // Printed when the model is loaded, just before its first step.
        stdout.read_exact(&mut echo).unwrap();
        running.send(Signal::INT);
        let ended = running.end(Signal::INT);
        // The machine had other work: the prompt was done, or nearly so, before the signal was sent.
        let is_late = ended.code == Ok(0) || after(&ended, "prompt ") >= 200;
        if is_late && attempt < 20 {
            continue;
        }
        assert_eq!((ended.code, &*ended.stdout), (Ok(130), "\n"), "{ended:#?}");
        // None at all if the signal came before the first batch.
        assert!(after(&ended, "prompt ") < 200, "{ended:#?}");
        assert_eq!(after(&ended, "generated "), 0, "{ended:#?}");
        break;
    }
}

/// What it prints is not read, so that it can do nothing about the first signal.
#[test]
fn a_second_signal_ends_at_once_what_the_first_could_not() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while (&writer).write(&[b'.'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let mut command = command(&["run", "-v", "--no-repack-cache", "-n", "4", EASY]);
    command.stdin(Stdio::null()).stdout(writer.as_fd().try_clone_to_owned().unwrap()).stderr(Stdio::piped());
    let mut running = Running::start_with(command);
    drop(writer);
    let mut log = BufReader::new(running.child().stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("model loaded")), "it logs what it does");
    let since = Instant::now();
    while running.child().try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not end");
        running.send(Signal::TERM);
        std::thread::sleep(Duration::from_millis(250));
    }
    let ended = running.end(Signal::TERM);
    assert_eq!(ended.code, Ok(143), "{ended:#?}");
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    assert!(printed.chars().all(|c| c == '.'), "{printed:?}");
}

/// `nohup` has the process started with SIGHUP ignored.
#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let run = ["run", "--no-repack-cache", "-t", "1", "-b", "1", "--temp", "0", "-n", "8", "import os\n"];
    let whole = hexflash(&run).succeeded().stdout;
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_hexflash")]).args(run);
    let mut running = Running::start(shell);
    let mut echo = vec![0; "import os\n".len()];
    running.child().stdout.as_mut().unwrap().read_exact(&mut echo).unwrap();
    running.send(Signal::HUP);
    let ended = running.end(Signal::HUP);
    let printed = String::from_utf8(echo).unwrap() + &ended.stdout;
    assert_eq!((ended.code, printed), (Ok(0), whole));
}

/// What waits for its prompt has nothing to lose.
#[test]
fn the_first_signal_ends_what_waits_for_its_prompt() {
    let mut command = command(&["run", "-f", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start_with(command);
    let stdin = running.child().stdin.take();
    std::thread::sleep(Duration::from_millis(100));
    running.send(Signal::INT);
    let ended = running.end(Signal::INT);
    drop(stdin);
    assert_eq!((ended.code, &*ended.stdout), (Err(2), ""), "{ended:#?}");
}

/// Sends Ctrl-C later and later, and sooner where it came too late, until it comes between the first and the
/// last run.
fn interrupted_in_its_runs(arguments: &[&str], has_runs: impl Fn(&Outcome) -> bool) -> Outcome {
    let mut delay = Duration::from_millis(250);
    let mut too_late = 0;
    loop {
        let ended = signalled(command(arguments), Signal::INT, false, delay);
        if ended.code == Ok(0) {
            too_late += 1;
            assert!(too_late < 20, "no moment between the first run and the last: {arguments:?}, {delay:?}");
            delay = delay.mul_f64(0.6);
            continue;
        }
        let outcome = Outcome {
            arguments: arguments.join(" "),
            code: ended.code.ok(),
            stdout: ended.stdout,
            stderr: ended.stderr,
        };
        if outcome.code == Some(130) && has_runs(&outcome) {
            return outcome;
        }
        assert!(matches!(outcome.code, Some(130) | None), "{outcome:#?}");
        delay = delay.mul_f64(1.5);
        assert!(delay < Duration::from_secs(60), "it prints nothing: {outcome:#?}");
    }
}

#[test]
fn bench_prints_the_runs_that_are_finished() {
    // One test at a time: that it is under way must not hide what it has.
    let bench = ["bench", "--no-repack-cache", "-t", "1", "-r", "1000"];
    let json = [&bench[..], &["-p", "64", "-b", "4", "-n", "0", "--json"]].concat();
    let json = interrupted_in_its_runs(&json, |outcome| {
        !outcome.stdout.is_empty() && !outcome.json()["tests"].as_array().unwrap().is_empty()
    });
    let report = json.json();
    assert_eq!(report["interrupted"], true);
    let tests = report["tests"].as_array().unwrap();
    assert_eq!((&tests[0]["test"], tests.len()), (&"pp64".into(), 1));
    assert!((1..1000).contains(&tests[0]["repetitions"].as_u64().unwrap()), "{report}");
    assert!(tests[0]["mean"].as_f64().unwrap() > 0.0, "{report}");
    let table = [&bench[..], &["-p", "0", "-n", "32"]].concat();
    let table = interrupted_in_its_runs(&table, |outcome| outcome.stdout.contains("| tg32 "));
    assert!(table.stdout.contains("interrupted: "), "{table:#?}");
    let complete = hexflash(&["bench", "--no-repack-cache", "-p", "2", "-n", "0", "-r", "1", "--json"]);
    assert_eq!(complete.succeeded().json()["interrupted"], false);
}

#[test]
fn a_sweep_prints_the_runs_that_are_finished() {
    let dir = TempDir::new().unwrap();
    let (prompts, plot) = (dir.path().join("prompts.txt"), dir.path().join("sweep.svg"));
    std::fs::write(&prompts, "import os\n").unwrap();
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    let fixed =
        ["bench", "--no-repack-cache", "-t", "1", "--draft", "-n", "8", "-r", "400", "--lengths", "3"];
    let files = ["-md", text(&draft), "--prompts", text(&prompts), "--plot", text(&plot)];
    let sweep = [&fixed[..], &files].concat();
    let json = interrupted_in_its_runs(&[&sweep[..], &["--json"]].concat(), |outcome| {
        // While the model was loaded there was nothing to draw.
        assert_eq!(plot.exists(), !outcome.stdout.is_empty(), "{outcome:#?}");
        !outcome.stdout.is_empty() && !outcome.json()["prompts"].as_array().unwrap().is_empty()
    });
    let report = json.json();
    assert_eq!((&report["interrupted"], &report["same_as_plain"]), (&true.into(), &true.into()));
    let rows = report["prompts"][0]["rows"].as_array().unwrap();
    let runs: Vec<usize> = rows.iter().map(|row| row["runs"].as_array().unwrap().len()).collect();
    assert!(runs.len() == 3 && runs.iter().any(|&n| n > 0), "plain, 3 and auto: {report}");
    assert!(runs.iter().all(|n| runs.iter().all(|m| n.abs_diff(*m) <= 2)), "they take turns: {runs:?}");
    assert!(std::fs::read_to_string(&plot).unwrap().ends_with("</svg>\n"));
    let table = interrupted_in_its_runs(&sweep, |outcome| outcome.stdout.contains("\n1. \"import os\""));
    assert!(table.stdout.contains("\ninterrupted: "), "{table:#?}");
}

/// Standard error on a full disk, or read by nobody.
#[test]
fn a_standard_error_that_cannot_be_written_costs_neither_text_nor_exit_code() {
    let run = ["run", "--no-repack-cache", "-n", "3", "--temp", "0", "import os\n"];
    let expected = hexflash(&run).succeeded().stdout;
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    let commands: [(&[&str], i32, &str); 7] = [
        (&[], 0, &expected),
        (&["-v"], 0, &expected),
        (&["-vv", "-md", text(&draft)], 0, &expected),
        (&["-b", "0"], 2, ""),
        (&["--no-such-option"], 2, ""),
        (&["--draft", "3"], 2, ""),
        (&["-m", "/nonexistent.gguf"], 2, ""),
    ];
    for (more, code, stdout) in commands {
        for stderr in [full(), closed()] {
            let output = command(&[&run[..], more].concat()).stderr(stderr).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{more:?}");
            assert_eq!(String::from_utf8(output.stdout).unwrap(), stdout, "{more:?}");
        }
    }
}

/// A full disk.
#[test]
fn a_standard_output_that_cannot_be_written_is_an_error() {
    let commands: [&[&str]; 7] = [
        &["run", "--no-repack-cache", "-n", "3", EASY],
        &["run", "--no-repack-cache", "-n", "3", "--json", EASY],
        &["info"],
        &["info", "--json"],
        &["devices"],
        &["bench", "--no-repack-cache", "-p", "2", "-n", "0", "-r", "1"],
        &["run", "--help"],
    ];
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let line = "error: cannot write the output: No space left on device (os error 28); check the disk, ";
        assert!(stderr.lines().any(|found| found.starts_with(line)), "{arguments:?}: {stderr}");
    }
}
