//! Signals: the process on the DSP ends with its host, and the text so far is printed.

use std::process::Command;
use std::time::{Duration, Instant};

use cdsprpc::standin::StandIn;

use crate::signalled::{Moments, SIGNALS, signalled};

const PROMPT: &str = "def __repr__(self):\n        return ";

#[test]
fn at_any_moment_the_process_on_the_dsp_ends_with_its_host() {
    let standin = StandIn::new("check=0");
    let run = |form: &[&str]| -> Command {
        let fixed = ["run", "--no-repack-cache", "-b", "2", "--temp", "0", "-n", "12"];
        standin.hexflash(&[&fixed[..], form, &[PROMPT]].concat())
    };
    let printed = |form: &[&str]| String::from_utf8(run(form).output().unwrap().stdout).unwrap();
    let start = Instant::now();
    let text = printed(&[]);
    let longest = start.elapsed();
    let json = serde_json::from_str(&printed(&["--json"])).unwrap();
    let mut moments = Moments::new(3);
    for i in 0..6 {
        let (signal, delay) = (SIGNALS[i % 3], longest.mul_f64(moments.next()));
        if i % 2 == 0 {
            signalled(run(&[]), signal, false, delay).printed_text(PROMPT, &text);
        } else {
            signalled(run(&["--json"]), signal, false, delay).printed_json(&json);
        }
    }
}

/// A DSP that says nothing keeps the host in a call, so that it can do nothing about the first signal.
/// Without a limit of its own it would stay there for as long as the call may take, or for ever.
#[test]
fn a_call_that_hangs_ends_a_few_seconds_after_the_first_signal() {
    let standin = StandIn::new("check=0 hang=1");
    for (signal, words) in [(SIGNALS[1], "--json"), (SIGNALS[2], "--ignore-eos")] {
        let mut delay = Duration::from_millis(500);
        let ended = loop {
            let run = ["run", "--no-repack-cache", "-n", "4", words, PROMPT];
            let ended = signalled(standin.hexflash(&run), signal, false, delay);
            // The machine had other work: it was not yet where it would hang.
            if ended.code.is_ok() && ended.stderr.contains("not waiting") || delay > Duration::from_secs(15) {
                break ended;
            }
            delay *= 2;
        };
        assert_eq!(ended.code, Ok(128 + signal.as_raw()), "{ended:#?}");
        let line = "[interrupted: not waiting any longer for the device to be opened]";
        assert!(ended.stderr.lines().any(|found| found == line), "{ended:#?}");
    }
}
