//! `cargo xtask ggml-backend --speed`: llama-bench with hexflash as its backend, and `hexflash bench`, by
//! turns. Other work on the machine slows down both, so that the best of each counts.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use super::not_well;
use crate::failure::{Failure, Result};
use crate::llama::Programs;
use crate::{process, published};

/// llama.cpp's benchmark.
const BENCH: &str = "bin/llama-bench";
/// Tokens of a prompt, and of a text.
const LENGTHS: [&str; 4] = ["-p", "256", "-n", "64"];
/// Turns.
const TURNS: usize = 5;
/// What llama-bench should reach of hexflash's own speed.
const WANTED: f64 = 0.7;
/// Host time that a graph of 1,000 nodes should take at most, in microseconds.
const MOST_HOST_US: f64 = 300.0;

/// Tokens per second: of a prompt, of a text.
type Speeds = [f64; 2];

struct Bench<'b> {
    programs: &'b Programs,
    backend: &'b Path,
    hexflash: &'b Path,
    threads: String,
}

/// Measures all models.
pub(super) fn run(root: &Path, programs: &Programs) -> Result<()> {
    let mut build = process::cargo();
    build.current_dir(root).args(["build", "--release", "-p", "hexflash-ggml", "-p", "hexflash-cli"]);
    process::run(&mut build)?;
    let release = process::target_dir(root)?.join("release");
    let (backend, hexflash) = (&release.join("libggml_hexflash.so"), &release.join("hexflash"));
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(4).to_string();
    let bench = Bench { programs, backend, hexflash, threads };
    let models = [root.join("models/tiny-hybrid-q8_0.gguf"), published::smollm2()?];
    let mut missed = Vec::new();
    for model in &models {
        bench.compare(model, &mut missed)?;
    }
    match &missed[..] {
        [] => Ok(()),
        missed => Err(Failure::failed(
            missed.join("; "),
            "see where the time goes: HEXFLASH_TIMES=1 llama-bench -v, on a machine with no other work",
        )),
    }
}

impl Bench<'_> {
    fn compare(&self, model: &Path, missed: &mut Vec<String>) -> Result<()> {
        let name = model.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let [mut theirs, mut own] = [[0.0f64; 2]; 2];
        for _ in 0..TURNS {
            for (best, speeds) in [(&mut theirs, self.llama(model)?), (&mut own, self.hexflash(model)?)] {
                best.iter_mut().zip(speeds).for_each(|(best, speed)| *best = best.max(speed));
            }
        }
        for (what, theirs, own) in [("prompt", theirs[0], own[0]), ("text", theirs[1], own[1])] {
            let ratio = theirs / own;
            println!("{name}, {what}: {theirs:.0} of {own:.0} tokens per second, {ratio:.2}");
            if ratio < WANTED {
                missed.push(format!("{name}, {what}: {ratio:.2} of hexflash's own speed, not {WANTED}"));
            }
        }
        let line = self.times(model)?;
        println!("{name}: {line}");
        match host_us(&line) {
            Some(us) if us <= MOST_HOST_US => {}
            us => missed.push(format!("{name}: host time of 1,000 nodes is {us:?}, not {MOST_HOST_US} us")),
        }
        Ok(())
    }

    /// llama-bench, ready for more arguments.
    fn llama_bench(&self, model: &Path) -> Result<Command> {
        let mut command = self.programs.command(BENCH, Some(self.backend))?;
        command.arg("-m").arg(model).args(["-t", &self.threads]);
        command.env("HEXFLASH_THREADS", &self.threads).env("HEXFLASH_DEVICE", "inproc");
        Ok(command)
    }

    fn llama(&self, model: &Path) -> Result<Speeds> {
        let mut command = self.llama_bench(model)?;
        command.args(LENGTHS).args(["-r", "2", "-o", "json"]);
        let tests = json(&mut command)?;
        let best = |prompt: bool| {
            let tests = tests.as_array()?.iter().filter(|test| (test["n_prompt"] != 0) == prompt);
            let samples = tests.filter_map(|test| test["samples_ts"].as_array()).flatten();
            samples.filter_map(Value::as_f64).reduce(f64::max)
        };
        best(true).zip(best(false)).map(|(prompt, text)| [prompt, text]).ok_or_else(|| not_well(&command))
    }

    fn hexflash(&self, model: &Path) -> Result<Speeds> {
        let mut command = Command::new(self.hexflash);
        command.args(["bench", "--json", "-r", "2", "-t", &self.threads]).args(LENGTHS).arg("-m").arg(model);
        let report = json(&mut command)?;
        let best = |test: usize| report["tests"][test]["best"].as_f64();
        best(0).zip(best(1)).map(|(prompt, text)| [prompt, text]).ok_or_else(|| not_well(&command))
    }

    /// Where the time of decoding goes, as the backend tells.
    fn times(&self, model: &Path) -> Result<String> {
        let mut command = self.llama_bench(model)?;
        command.args(["-v", "-p", "0", "-n", "64", "-r", "2"]).env("HEXFLASH_TIMES", "1");
        let output = command.output().map_err(|_| not_well(&command))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().filter_map(|line| line.strip_prefix("hexflash: ")).next_back();
        line.map(str::to_owned).ok_or_else(|| not_well(&command))
    }
}

fn json(command: &mut Command) -> Result<Value> {
    let text = process::output(command);
    text.and_then(|text| serde_json::from_str(&text).ok()).ok_or_else(|| not_well(command))
}

/// Host time of 1,000 nodes, of a line such as `64 graphs of 485 nodes, 285 ops: 18 us on the host, ..`.
fn host_us(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |word: &str| {
        let at = words.iter().position(|found| found.trim_end_matches(',') == word)?;
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    Some(1000.0 * before("us")? / before("nodes")?)
}

#[cfg(test)]
mod tests {
    use super::host_us;

    #[test]
    fn host_times_are_of_a_thousand_nodes() {
        let line =
            "64 graphs of 500 nodes, 285 ops: 18 us on the host, 690 us on the device; 3 loaded, 5 us each";
        assert_eq!(host_us(line), Some(36.0));
        assert_eq!(host_us("nothing"), None);
    }
}
