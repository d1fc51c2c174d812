//! `hexflash bench`: prefill and decode speed, in the manner of llama-bench; with `--draft`, what speculation
//! gives, and with `--parallel`, what it gives to run several sequences at once. On the device `qemu`, what a
//! phone would take is estimated from counts.

mod estimate;
mod figures;
mod parallel;
mod plot;
mod prompts;
mod sweep;
mod table;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;

use super::CliError;
use super::interrupt::{self, cancel_on_signals};
use super::options::{DeviceArgs, DrafterArgs, EngineArgs, ModelArgs, PlacementArgs};
use super::output::print_json;
use hexflash::cancel::Cancel;
use hexflash::device::CostUnit;
use hexflash::engine::{Engine, EngineError, ModelFiles};
use hexflash::gguf::Gguf;
use hexflash::model::Part;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Tokens of the prompt (pp); 0 skips the test [default: 256; with --parallel 32]
    #[arg(short = 'p', long, value_name = "N")]
    n_prompt: Option<usize>,
    /// Tokens to generate (tg); 0 skips the test [default: 128; with --parallel 64; with --draft 384, or
    /// until the context is full]
    #[arg(short = 'n', long, value_name = "N")]
    n_gen: Option<usize>,
    /// Runs of each test, after one that does not count
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Print a JSON object instead
    #[arg(long)]
    json: bool,
    /// Measure speculation: plain decoding, draft lengths and auto by turns, on several prompts; -n is per
    /// prompt
    #[arg(long, conflicts_with = "n_prompt")]
    draft: bool,
    #[command(flatten)]
    sweep: sweep::SweepArgs,
    #[command(flatten)]
    parallel: parallel::ParallelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    placement: PlacementArgs,
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [!self.model.is_given(), self.draft && self.drafter.lacks_model()]
    }
}

/// One test's figures.
#[derive(Serialize)]
struct Row {
    test: String,
    tokens: usize,
    repetitions: usize,
    /// Tokens per second: mean, standard deviation, best.
    mean: f64,
    stddev: f64,
    best: f64,
    /// Host time per message, in microseconds.
    host_us_per_step: f64,
    /// Bytes per token that the DMA engines moved.
    dma_bytes_per_token: f64,
    /// On devices that count packets: what a token takes, and from it bounds of its time on chips. An
    /// estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
}

/// Counts, and bounds that follow from them.
#[derive(Serialize)]
struct Estimate {
    counts: estimate::Counts,
    bounds: Vec<estimate::Bounds>,
    /// Cost of a message, by the way that it takes.
    messages: [estimate::MessageCost; 2],
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    model: String,
    file_bytes: u64,
    device: hexflash::device::DeviceInfo,
    n_ctx: u32,
    /// A signal ended the command early: the tests have the runs that were finished by then.
    interrupted: bool,
    tests: Vec<Row>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.draft {
        return sweep::run(args);
    }
    if args.drafter.is_given() || args.placement.device_draft.is_some() {
        return Err(CliError::BenchWithoutDraft);
    }
    if !args.parallel.parallel.is_empty() {
        return parallel::run(args);
    }
    let (n_prompt, n_gen) = (args.n_prompt.unwrap_or(256), args.n_gen.unwrap_or(128));
    if n_prompt == 0 && n_gen == 0 {
        return Err(CliError::NothingToMeasure);
    }
    let cancel = &cancel_on_signals();
    let gguf = args.model.open(cancel)?;
    let options = args.engine.options();
    let device = args.device.open_for(ModelFiles::of(&gguf), &options)?;
    let mut engine = args.engine.load(ModelFiles::of(&gguf), &options, device, cancel)?;
    let longest = n_prompt.max(n_gen);
    if longest > engine.n_ctx() as usize {
        let allowed = format!("at most the context of {} (-c)", engine.n_ctx());
        return Err(CliError::Option { what: "the length of a test", allowed, found: longest as u64 });
    }
    let n_vocab = engine.config().n_vocab;
    // Any tokens will do; these are spread over the vocabulary and the same in every run.
    let tokens: Vec<u32> =
        (0..longest as u64).map(|i| (i * 2_654_435_761 % u64::from(n_vocab)) as u32).collect();
    let mut tests = Vec::new();
    if n_prompt > 0 {
        let prompt = &tokens[..n_prompt];
        let once = |engine: &mut Engine| {
            let mut done = 0;
            while done < prompt.len() {
                if cancel.is_cancelled() {
                    return Ok(Measurement::Cancelled);
                }
                done += engine.prefill_piece(&prompt[done..])?;
            }
            Ok(Measurement::Done)
        };
        let test = format!("pp{n_prompt}");
        tests.extend(measure(&mut engine, test, prompt.len(), args.repetitions, cancel, once)?);
    }
    if n_gen > 0 {
        let once = |engine: &mut Engine| {
            for &token in &tokens[..n_gen] {
                if cancel.is_cancelled() {
                    return Ok(Measurement::Cancelled);
                }
                engine.decode(token)?;
            }
            Ok(Measurement::Done)
        };
        tests.extend(measure(&mut engine, format!("tg{n_gen}"), n_gen, args.repetitions, cancel, once)?);
    }
    let wanted = [n_prompt, n_gen].into_iter().filter(|&n| n > 0).count() * args.repetitions as usize;
    let interrupted = tests.iter().map(|row| row.repetitions).sum::<usize>() < wanted;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        model: gguf.path().display().to_string(),
        file_bytes: file_bytes(&gguf),
        device: engine.device().info().clone(),
        n_ctx: engine.n_ctx(),
        interrupted,
        tests,
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(&mut std::io::stdout().lock(), &report)?;
    }
    Ok(if interrupted { interrupt::exit_code() } else { ExitCode::SUCCESS })
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measurement {
    Done,
    /// A signal ended it, so that its time says nothing.
    Cancelled,
}

fn file_bytes(gguf: &Gguf) -> u64 {
    gguf.files().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

/// Runs a test once to warm up, then `repetitions` times from an empty context. Where it is cancelled, what
/// is measured by then counts, if there is anything.
fn measure(
    engine: &mut Engine,
    test: String,
    tokens: usize,
    repetitions: u32,
    cancel: &Cancel,
    once: impl Fn(&mut Engine) -> Result<Measurement, EngineError>,
) -> Result<Option<Row>, EngineError> {
    if cancel.is_cancelled() {
        return Ok(None);
    }
    engine.reset();
    once(engine)?;
    engine.reset_stats();
    let (mut speeds, mut stats) = (Vec::new(), engine.stats());
    for _ in 0..repetitions {
        engine.reset();
        let start = Instant::now();
        if once(engine)? == Measurement::Cancelled {
            break;
        }
        speeds.push(tokens as f64 / start.elapsed().as_secs_f64());
        // Not those of a run that was cancelled.
        stats = engine.stats();
    }
    if speeds.is_empty() {
        return Ok(None);
    }
    let n = speeds.len() as f64;
    let mean = speeds.iter().sum::<f64>() / n;
    let variance = speeds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    Ok(Some(Row {
        test,
        tokens,
        repetitions: speeds.len(),
        mean,
        stddev: variance.sqrt(),
        best: speeds.iter().copied().fold(0.0, f64::max),
        host_us_per_step: stats.host.as_secs_f64() * 1e6 / stats.steps.max(1) as f64,
        dma_bytes_per_token: stats.dma_bytes as f64 / (tokens as f64 * n),
        estimate: (engine.device().info().cost_unit == CostUnit::Packets).then(|| {
            let per_token = |n_counted: u64| n_counted as f64 / (tokens as f64 * n);
            let packets = Part::ALL.iter().zip(stats.parts).map(|(&part, cost)| (part, per_token(cost)));
            let counts = estimate::Counts { packets: packets.collect(), bytes: per_token(stats.dma_bytes) };
            Estimate { bounds: estimate::bounds(&counts), messages: estimate::MESSAGES, counts }
        }),
    }))
}

fn print(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let d = &report.device;
    writeln!(
        out,
        "{} ({:.2} MiB), {} with {} threads",
        report.model,
        report.file_bytes as f64 / 1048576.0,
        d.name,
        d.threads
    )?;
    writeln!(out, "{}", d.description)?;
    writeln!(
        out,
        "| {:<8} | {:>19} | {:>9} | {:>12} | {:>13} |",
        "test", "tok/s", "best", "host us/step", "DMA KiB/token"
    )?;
    writeln!(out, "|{:-<10}|{:->21}|{:->11}|{:->14}|{:->15}|", "", "", "", "", "")?;
    for row in &report.tests {
        writeln!(
            out,
            "| {:<8} | {:>9.2} ± {:>7.2} | {:>9.2} | {:>12.2} | {:>13.1} |",
            row.test,
            row.mean,
            row.stddev,
            row.best,
            row.host_us_per_step,
            row.dma_bytes_per_token / 1024.0
        )?;
    }
    for row in &report.tests {
        if let Some(Estimate { counts, .. }) = &row.estimate {
            estimate::print(out, &row.test, counts)?;
        }
    }
    if report.interrupted {
        writeln!(out, "interrupted: the figures are of the runs that were finished by then")?;
    }
    Ok(())
}
