//! Signals: the process on the DSP ends with its host, and the text so far is printed.

use std::process::Command;
use std::time::Instant;

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
