//! `hexflash bench --parallel`: greedy decoding of several sequences in shared steps, against one alone.
//!
//! All numbers of sequences take turns, there and back, so that what slows the machine down for a while slows
//! all of them. Every text is compared with the one that its sequence writes alone.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use hexflash_abi::program::MAX_SLOTS;
use serde::Serialize;

use super::{Args, file_bytes};
use crate::CliError;
use crate::interrupt::{self, cancel_on_signals};
use crate::output::print_json;
use hexflash::cancel::Cancel;
use hexflash::device::DeviceInfo;
use hexflash::engine::{Engine, EngineError, EngineOptions, ModelFiles, SequenceId, StepRows};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --parallel")]
pub(super) struct ParallelArgs {
    /// Measure greedy decoding of so many sequences at once, by turns, each after a prompt of its own; -p and
    /// -n are per sequence
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with = "draft",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    pub(super) parallel: Vec<u32>,
}

/// Tokens of each prompt, if nobody says how many.
const N_PROMPT: usize = 32;
/// Tokens that each sequence generates, if nobody says how many.
const N_GEN: usize = 64;

/// A number of sequences.
#[derive(Debug, Serialize)]
struct Row {
    sequences: u32,
    /// Tokens per second of all sequences together: median, best, and all runs.
    median: f64,
    best: f64,
    runs: Vec<f64>,
    /// The median for each sequence.
    per_sequence: f64,
    /// The median against that of the first row.
    speedup: f64,
    /// Host time per step, in microseconds.
    host_us_per_step: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    model: String,
    file_bytes: u64,
    device: DeviceInfo,
    n_ctx: u32,
    n_prompt: usize,
    n_gen: usize,
    /// A signal ended the command early: the rows have the runs that were finished by then.
    interrupted: bool,
    rows: Vec<Row>,
}

/// The runs of a number of sequences.
struct Runs {
    sequences: u32,
    speeds: Vec<f64>,
    host_us_per_step: f64,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (n_prompt, n_gen) = (args.n_prompt.unwrap_or(N_PROMPT), args.n_gen.unwrap_or(N_GEN));
    for (what, n) in
        [("the prompt of each sequence (-p)", n_prompt), ("the text of each sequence (-n)", n_gen)]
    {
        if n == 0 {
            let allowed = "at least 1 token".to_owned();
            return Err(CliError::Option { what, allowed, found: 0 });
        }
    }
    let cancel = &cancel_on_signals();
    let gguf = args.model.open(cancel)?;
    let wanted = &args.parallel.parallel;
    let most = wanted.iter().copied().max().unwrap_or(1);
    let options = EngineOptions { sequences: most, ..args.engine.options() };
    let device = args.device.open_for(ModelFiles::of(&gguf), &options)?;
    let mut engine = args.engine.load(ModelFiles::of(&gguf), &options, device, cancel)?;
    if n_prompt + n_gen > engine.n_ctx() as usize {
        let allowed = format!("at most the context of {} (-c)", engine.n_ctx());
        let found = (n_prompt + n_gen) as u64;
        return Err(CliError::Option { what: "the length of a test", allowed, found });
    }
    let mut test = Test::new(&engine, n_prompt, n_gen, most as usize);
    let mut runs: Vec<_> = wanted
        .iter()
        .map(|&sequences| Runs { sequences, speeds: Vec::new(), host_us_per_step: 0.0 })
        .collect();
    let finished = test.alone(&mut engine, cancel)?
        && (0..args.repetitions).try_fold(true, |going, turn| match going {
            true => test.turn(&mut engine, &mut runs, turn % 2 == 1, cancel),
            false => Ok(false),
        })?;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        model: gguf.path().display().to_string(),
        file_bytes: file_bytes(&gguf),
        device: engine.device().info().clone(),
        n_ctx: engine.n_ctx(),
        n_prompt,
        n_gen,
        interrupted: !finished,
        rows: rows(&runs),
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(&mut io::stdout().lock(), &report)?;
    }
    Ok(if finished { ExitCode::SUCCESS } else { interrupt::exit_code() })
}

/// Prompts, and the texts that must follow them.
struct Test {
    prompts: Vec<Vec<u32>>,
    /// What each sequence writes alone.
    expected: Vec<Vec<u32>>,
    n_gen: usize,
}

impl Test {
    fn new(engine: &Engine, n_prompt: usize, n_gen: usize, sequences: usize) -> Self {
        // Any tokens will do; these are spread over the vocabulary and the same in every run.
        let n_vocab = u64::from(engine.config().n_vocab);
        let token = |i: usize| (i as u64 * 2_654_435_761 % n_vocab) as u32;
        let prompts = (0..sequences).map(|s| (0..n_prompt).map(|i| token(s * n_prompt + i)).collect());
        Self { prompts: prompts.collect(), expected: vec![Vec::new(); sequences], n_gen }
    }

    /// Writes every text alone; `false` if a signal came.
    fn alone(&mut self, engine: &mut Engine, cancel: &Cancel) -> Result<bool, CliError> {
        for (i, id) in engine.sequences().enumerate().take(self.prompts.len()) {
            let mut token = self.read_prompt(engine, id, i)?;
            let mut text = Vec::with_capacity(self.n_gen);
            for _ in 0..self.n_gen {
                if cancel.is_cancelled() {
                    return Ok(false);
                }
                text.push(token);
                let mut sequence = engine.sequence(id)?;
                sequence.decode(token)?;
                token = sequence.argmax(0);
            }
            self.expected[i] = text;
        }
        Ok(true)
    }

    /// The token after prompt `i`.
    fn read_prompt(&self, engine: &mut Engine, id: SequenceId, i: usize) -> Result<u32, EngineError> {
        let mut sequence = engine.sequence(id)?;
        sequence.reset();
        sequence.prefill(&self.prompts[i], |_| ())?;
        Ok(sequence.argmax(0))
    }

    /// A run of each number of sequences; `false` if a signal came.
    fn turn(
        &self,
        engine: &mut Engine,
        runs: &mut [Runs],
        back: bool,
        cancel: &Cancel,
    ) -> Result<bool, CliError> {
        let n = runs.len();
        for at in 0..n {
            let runs = &mut runs[if back { n - 1 - at } else { at }];
            if !self.once(engine, runs, cancel)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn once(&self, engine: &mut Engine, runs: &mut Runs, cancel: &Cancel) -> Result<bool, CliError> {
        let ids: Vec<_> = engine.sequences().take(runs.sequences as usize).collect();
        let mut last = Vec::with_capacity(ids.len());
        for (i, &id) in ids.iter().enumerate() {
            last.push(self.read_prompt(engine, id, i)?);
        }
        engine.reset_stats();
        let mut rows = Vec::with_capacity(ids.len());
        let mut different = None;
        let start = Instant::now();
        for t in 0..self.n_gen {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let wrong = last.iter().zip(&self.expected).position(|(token, expected)| *token != expected[t]);
            different = different.or(wrong.map(|sequence| (sequence, t)));
            rows.clear();
            rows.extend(ids.iter().zip(&last).map(|(&id, token)| (id, *token)));
            step(engine, &rows)?;
            for (&id, last) in ids.iter().zip(&mut last) {
                *last = engine.sequence(id)?.argmax(0);
            }
        }
        let tokens = (ids.len() * self.n_gen) as f64;
        runs.speeds.push(tokens / start.elapsed().as_secs_f64());
        if let Some((sequence, token)) = different {
            return Err(CliError::DifferentText { sequence, token });
        }
        let stats = engine.stats();
        runs.host_us_per_step = stats.host.as_secs_f64() * 1e6 / stats.steps.max(1) as f64;
        Ok(true)
    }
}

/// One token of each sequence.
fn step(engine: &mut Engine, tokens: &[(SequenceId, u32)]) -> Result<(), EngineError> {
    let mut rows = [StepRows::append(SequenceId::FIRST, &[]); MAX_SLOTS as usize];
    for (row, (id, token)) in rows.iter_mut().zip(tokens) {
        *row = StepRows::append(*id, std::slice::from_ref(token));
    }
    engine.step(&rows[..tokens.len()])
}

fn rows(runs: &[Runs]) -> Vec<Row> {
    let median = |speeds: &[f64]| {
        let mut sorted = speeds.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    };
    let first = runs.first().map_or(0.0, |first| median(&first.speeds));
    let measured = runs.iter().filter(|runs| !runs.speeds.is_empty());
    measured
        .map(|runs| {
            let all = median(&runs.speeds);
            Row {
                sequences: runs.sequences,
                median: all,
                best: runs.speeds.iter().copied().fold(0.0, f64::max),
                runs: runs.speeds.clone(),
                per_sequence: all / f64::from(runs.sequences),
                speedup: all / first,
                host_us_per_step: runs.host_us_per_step,
            }
        })
        .collect()
}

fn print(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let d = &report.device;
    let mib = report.file_bytes as f64 / 1048576.0;
    writeln!(out, "{} ({mib:.2} MiB), {} with {} threads", report.model, d.name, d.threads)?;
    writeln!(out, "{}", d.description)?;
    writeln!(
        out,
        "{} tokens after a prompt of {} each, greedy; every sequence wrote the text that it writes alone",
        report.n_gen, report.n_prompt
    )?;
    writeln!(
        out,
        "| {:>9} | {:>9} | {:>9} | {:>12} | {:>8} | {:>12} |",
        "sequences", "tok/s", "best", "per sequence", "speed-up", "host us/step"
    )?;
    writeln!(out, "|{:->11}|{:->11}|{:->11}|{:->14}|{:->10}|{:->14}|", "", "", "", "", "", "")?;
    for row in &report.rows {
        writeln!(
            out,
            "| {:>9} | {:>9.2} | {:>9.2} | {:>12.2} | {:>8.2} | {:>12.2} |",
            row.sequences, row.median, row.best, row.per_sequence, row.speedup, row.host_us_per_step
        )?;
    }
    if report.interrupted {
        writeln!(out, "interrupted: the figures are of the runs that were finished by then")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_medians_with_the_first() {
        let runs =
            |sequences, speeds: &[f64]| Runs { sequences, speeds: speeds.to_vec(), host_us_per_step: 1.0 };
        let rows = rows(&[runs(1, &[90.0, 100.0, 300.0]), runs(4, &[400.0, 360.0, 410.0]), runs(8, &[])]);
        assert_eq!(rows.len(), 2, "nothing was measured with 8");
        let figures = rows.iter().map(|row| (row.median, row.best, row.per_sequence, row.speedup));
        assert_eq!(figures.collect::<Vec<_>>(), [(100.0, 300.0, 100.0, 1.0), (400.0, 410.0, 100.0, 4.0)]);
    }
}
