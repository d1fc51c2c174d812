//! `hexflash bench --draft`: plain decoding against every draft length and `auto`, prompt by prompt.
//!
//! All ways of decoding take turns, there and back, so that what slows the machine down for a while slows all
//! of them. Plain decoding has an engine of its own, without anything that speculation adds. Every text is
//! compared.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use hexflash_abi::program::PARTS;
use serde::{Serialize, Serializer};

use super::figures::{AgainstOne, Ratio, best, mean, median};
use super::plot::PlotFile;
use super::prompts::Prompt;
use super::{Args, plot, table};
use crate::CliError;
use crate::interrupt::{self, cancel_on_signals};
use crate::options::{Drafter, PlacementArgs, SpecType};
use crate::output::print_json;
use crate::progress::Progress;
use hexflash::cancel::Cancel;
use hexflash::device::{CostUnit, DeviceInfo};
use hexflash::engine::{Engine, EngineOptions, ModelFiles};
use hexflash::generate::{Finish, Generated, Generation, Limits, Request};
use hexflash::model::{self, MAX_VERIFY};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, SpecStats, Speculation};
use hexflash::text::TextModel;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --draft")]
pub(super) struct SweepArgs {
    /// Draft lengths [default: 1 to the draft's block less one; for n-grams 1,2,3,5,7,11,15]
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "draft",
        value_parser = clap::value_parser!(u32).range(1..i64::from(MAX_VERIFY)))]
    lengths: Vec<u32>,
    /// Prompts, one a line: text, a JSON string or a JSON array of token ids [default: some for the shipped
    /// models]
    #[arg(long, value_name = "FILE", requires = "draft")]
    prompts: Option<PathBuf>,
    /// Instead, N prompts of 32 random tokens, the same ones every time: texts on which drafts seldom pay
    #[arg(long, value_name = "N", requires = "draft", conflicts_with = "prompts",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    random_prompts: Option<u32>,
    /// Draw tokens per round and speed-up against draft length into FILE: a line for each prompt; of several
    /// drafters or placements one for each of them
    #[arg(long, value_name = "FILE.svg", requires = "draft")]
    plot: Option<PathBuf>,
    /// Where target and draft model run, such as inproc+inproc,inproc+qemu: measures each, and prints the
    /// matrix of speeds for every prompt. DEVICE alone is one device for both
    #[arg(
        long,
        value_name = "DEVICE[+DEVICE],...",
        value_delimiter = ',',
        requires = "draft",
        conflicts_with = "device_draft"
    )]
    placements: Vec<Placement>,
}

impl SweepArgs {
    fn prompts(&self) -> Result<Vec<Prompt>, CliError> {
        match self.random_prompts {
            Some(n) => Ok((1..=n).map(Prompt::Random).collect()),
            None => Prompt::read(self.prompts.as_deref()),
        }
    }
}

/// Where target and draft model run.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    target: String,
    draft: Option<String>,
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, draft) =
            text.split_once('+').map_or((text, None), |(target, draft)| (target, Some(draft)));
        if target.is_empty() || draft.is_some_and(|draft| draft.is_empty() || draft.contains('+')) {
            return Err("give the target's device, + and the draft model's device".to_owned());
        }
        Ok(Self { target: target.to_owned(), draft: draft.map(str::to_owned) })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.draft {
            None => f.pad(&self.target),
            Some(draft) => f.pad(&format!("{}+{draft}", self.target)),
        }
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Tokens per prompt, if nobody says how many: `auto` learns a text as it goes, and most replies are no
/// shorter.
const N_GEN: usize = 384;

/// Lengths for n-grams: a step of 16 tokens is the widest.
const NGRAM_LENGTHS: [u32; 7] = [1, 2, 3, 5, 7, 11, 15];

/// A way of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    /// Drafts of the one drafter that there is.
    Fixed(u32),
    /// Drafts of one of several drafters.
    Of(SpecType, u32),
    /// As many drafts as pay, of whoever they pay.
    Auto,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.pad("plain"),
            Self::Fixed(n) => fmt::Display::fmt(n, f),
            Self::Of(kind, n) => f.pad(&format!("{} {n}", kind.name())),
            Self::Auto => f.pad("auto"),
        }
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(n) => serializer.serialize_u32(*n),
            Self::Plain | Self::Of(..) | Self::Auto => serializer.collect_str(self),
        }
    }
}

/// Cost of a round, or of a step, in thousands of the device's [`CostUnit`]: by
/// [`Part`](hexflash::model::Part), and the rest (messages, and the host), where that has the same unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundCost(pub [f64; PARTS + 1]);

impl RoundCost {
    pub(super) const NAMES: [&str; PARTS + 1] =
        ["verify", "LM head", "accept", "taps", "draft", "draft head", "rest"];

    fn new(parts: &[u64; PARTS], unit: CostUnit, seconds: f64, rounds: usize) -> Self {
        let known = parts.iter().map(|&cost| cost as f64);
        let rest = match unit {
            CostUnit::Nanoseconds => (1e9 * seconds - known.clone().sum::<f64>()).max(0.0),
            CostUnit::Packets => 0.0,
        };
        let mut costs = [0.0; PARTS + 1];
        let thousands = 1e3 * rounds.max(1) as f64;
        costs.iter_mut().zip(known.chain([rest])).for_each(|(cost, all)| *cost = all / thousands);
        Self(costs)
    }
}

impl Serialize for RoundCost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(Self::NAMES.iter().map(|name| name.to_lowercase().replace(' ', "_")).zip(self.0))
    }
}

/// A way of decoding on one prompt.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub drafts: Mode,
    /// Tokens per second: the best run, the median, and all; none where a signal came before the first run
    /// was finished.
    pub best: Option<f64>,
    pub median: Option<f64>,
    pub runs: Vec<f64>,
    /// Best run against plain decoding's best run, where there are both.
    pub speedup: Option<f64>,
    /// Against plain decoding, turn by turn.
    pub by_turns: Option<Ratio>,
    /// Of the best run.
    pub cost_per_round: RoundCost,
    /// Of the best run; absent for plain decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpecStats>,
}

impl Row {
    /// Tokens per round, where there were rounds; 1 in plain decoding.
    pub(super) fn tokens_per_round(&self) -> Option<f64> {
        match &self.speculation {
            None => (!self.runs.is_empty()).then_some(1.0),
            Some(stats) => (stats.rounds > 0).then(|| stats.mean_accepted_length()),
        }
    }
}

/// All ways of decoding on one prompt.
#[derive(Debug, Serialize)]
pub(super) struct PromptRows {
    pub prompt: String,
    pub prompt_tokens: usize,
    pub generated_tokens: usize,
    pub finish_reason: Finish,
    /// The best by median: plain decoding or a fixed length; none where only `auto` has runs.
    pub best: Option<Mode>,
    /// Speed of `auto` against that: the median over the turns, and the standard error of this median. Absent
    /// where a signal came before there was a turn of both.
    pub auto_against_best: Option<f64>,
    pub auto_error: Option<f64>,
    pub rows: Vec<Row>,
}

/// A way of decoding, over all prompts.
#[derive(Debug, Serialize)]
pub(super) struct MeanRow {
    pub drafts: Mode,
    /// Geometric mean.
    pub speedup: Option<f64>,
    /// The same of the medians over the turns.
    pub by_turns: Option<Ratio>,
    /// Mean over the prompts that had rounds.
    pub mean_accepted_length: Option<f64>,
    pub acceptance: Option<f64>,
    pub cost_per_round: RoundCost,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub version: &'static str,
    pub model: String,
    pub draft: Option<String>,
    pub drafter: String,
    pub device: DeviceInfo,
    /// Where target and draft model ran, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    pub n_ctx: u32,
    pub n_gen: usize,
    pub repetitions: u32,
    /// Every run gave plain decoding's tokens: a run that does not ends the sweep.
    pub same_as_plain: bool,
    /// A signal ended the sweep early: the figures are of the runs that were finished by then.
    pub interrupted: bool,
    pub prompts: Vec<PromptRows>,
    pub mean: Vec<MeanRow>,
    /// Speed of `auto` against the one choice that is best for all prompts.
    pub auto_against_one: Option<AgainstOne>,
}

/// What the sweep runs on.
struct Bench<'a> {
    plain: Engine,
    speculative: Engine,
    /// Keeps what it learns of costs from run to run, as in a session; of texts it keeps nothing.
    auto: Speculation,
    drafter: &'a Drafter,
    model: &'a TextModel,
    limits: Limits,
    args: &'a Args,
}

/// A way of decoding, and its runs so far.
struct Runs {
    mode: Mode,
    speeds: Vec<f64>,
    best: Option<(Generated, [u64; PARTS])>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if let Some(found @ ..2) = args.n_gen {
        let (allowed, found) = ("at least 2 with --draft".to_owned(), found as u64);
        return Err(CliError::Option { what: "the number of tokens (-n)", allowed, found });
    }
    // Nobody should wait for a sweep to learn of a typo.
    args.sweep.prompts()?;
    let plot = args.sweep.plot.as_deref().map(PlotFile::open).transpose()?;
    let cancel = cancel_on_signals();
    let (mut reports, mut interrupted) = (Vec::new(), false);
    let placements = args.sweep.placements.iter().map(Some);
    let alone = args.sweep.placements.is_empty().then_some(None);
    for placement in placements.chain(alone) {
        let report = measure(args, placement, &cancel)?;
        interrupted |= report.interrupted;
        reports.push(report);
        if interrupted {
            break;
        }
    }
    if let Some(plot) = plot {
        plot.write(&plot::sweep(&reports))?;
    }
    let mut out = std::io::stdout().lock();
    match (args.json, args.sweep.placements.is_empty(), &reports[..]) {
        (true, true, [report]) => print_json(report)?,
        (true, ..) => print_json(&Placements { placements: &reports })?,
        (false, matrix, _) => {
            reports.iter().try_for_each(|report| table::print(&mut out, report))?;
            if !matrix {
                table::print_placements(&mut out, &reports)?;
            }
        }
    }
    Ok(if interrupted { interrupt::exit_code() } else { ExitCode::SUCCESS })
}

/// Sweeps of several placements.
#[derive(Serialize)]
struct Placements<'r> {
    placements: &'r [Report],
}

/// The sweep of a placement, or of the devices that are named otherwise.
fn measure(args: &Args, placement: Option<&Placement>, cancel: &Cancel) -> Result<Report, CliError> {
    let prompts = args.sweep.prompts()?;
    let (devices, places) = match placement {
        None => (args.device.clone(), args.placement.clone()),
        Some(Placement { target, draft }) => {
            (args.device.on(target), PlacementArgs { device_draft: draft.clone() })
        }
    };
    let gguf = args.model.open(cancel)?;
    model::read(&gguf)?;
    let drafter = args.drafter.find(&gguf)?;
    if !drafter.drafts() {
        return Err(CliError::NoDrafter { what: "bench --draft" });
    }
    let model = &TextModel::read(&gguf)?;
    let draft = drafter.draft.as_ref();
    let options = EngineOptions { speculate: true, ..args.engine.options() };
    let speculative =
        places.load((&devices, &args.engine), ModelFiles::of(&gguf).with_draft(draft), &options, cancel)?;
    let modes = modes(&args.sweep.lengths, &speculative, &drafter)?;
    let n_ctx = speculative.n_ctx();
    let prompts = prompts.into_iter().map(|prompt| Ok((prompt.to_string(), prompt.ids(model)?)));
    let prompts = prompts.collect::<Result<Vec<_>, CliError>>()?;
    let n_gen = n_gen(args.n_gen, &prompts, n_ctx)?;
    let limits = Limits { max_tokens: Some(n_gen), cancel: cancel.clone(), ..Limits::default() };
    let options = args.engine.options();
    let device = devices.open_for(ModelFiles::of(&gguf), &options)?;
    let plain = args.engine.load(ModelFiles::of(&gguf), &options, device, cancel)?;
    let auto = drafter.speculation(DraftLength::Auto);
    let mut bench = Bench { plain, speculative, auto, drafter: &drafter, model, limits, args };

    let runs_each = modes.len() * (1 + args.repetitions as usize);
    let wanted = prompts.len() * modes.len() * args.repetitions as usize;
    let bar = Progress::count("measuring", prompts.len() * runs_each);
    let mut measured: Vec<PromptRows> = Vec::new();
    for (i, (prompt, ids)) in prompts.into_iter().enumerate() {
        let done = |runs: usize| bar.at((i * runs_each + runs) as u64);
        measured.extend(bench.measure(i + 1, prompt, &ids, &modes, done)?);
        if cancel.is_cancelled() {
            break;
        }
    }
    bar.finish();
    let runs = measured.iter().flat_map(|prompt| &prompt.rows).map(|row| row.runs.len());
    let interrupted = runs.sum::<usize>() < wanted;
    let mean: Vec<MeanRow> = modes.iter().enumerate().map(|(i, &mode)| mean(&measured, i, mode)).collect();
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        model: gguf.path().display().to_string(),
        draft: draft.map(|draft| draft.path().display().to_string()),
        drafter: drafter.name(),
        device: bench.speculative.device().info().clone(),
        placement: placement.cloned(),
        n_ctx,
        n_gen,
        repetitions: args.repetitions,
        same_as_plain: true,
        interrupted,
        auto_against_one: AgainstOne::find(&measured, &mean),
        mean,
        prompts: measured,
    })
}

/// Tokens per prompt: as many as asked for, or as replies have, of which the longest prompt leaves room for.
///
/// # Errors
/// [`CliError::PromptTooLong`]: the longest prompt has no room for that many, or for two.
fn n_gen(asked: Option<usize>, prompts: &[(String, Vec<u32>)], n_ctx: u32) -> Result<usize, CliError> {
    let lengths = prompts.iter().enumerate().map(|(i, (_, ids))| (ids.len(), i + 1));
    let (tokens, number) = lengths.max_by_key(|&(tokens, _)| tokens).unwrap_or_default();
    // The last token needs no place.
    let room = (n_ctx as usize + 1).saturating_sub(tokens);
    let n_gen = asked.unwrap_or(N_GEN.min(room.max(2)));
    if n_gen > room {
        return Err(CliError::PromptTooLong { number, tokens, n_gen, n_ctx });
    }
    Ok(n_gen)
}

/// Plain decoding, the lengths asked for of each drafter, and `auto`.
fn modes(asked: &[u32], engine: &Engine, drafter: &Drafter) -> Result<Vec<Mode>, CliError> {
    let mut modes = vec![Mode::Plain];
    for &kind in &drafter.kinds {
        let most = engine.draft_model().filter(|_| kind.is_model()).map(|draft| draft.block() - 1);
        let lengths = lengths(asked, most)?.into_iter();
        match drafter.kinds.len() {
            1 => modes.extend(lengths.map(Mode::Fixed)),
            _ => modes.extend(lengths.map(|n| Mode::Of(kind, n))),
        }
    }
    modes.push(Mode::Auto);
    Ok(modes)
}

/// The lengths asked for, in order, or all that make sense of a drafter whose blocks have `most` drafts.
fn lengths(asked: &[u32], most: Option<u32>) -> Result<Vec<u32>, CliError> {
    if asked.is_empty() {
        return Ok(most.map_or(NGRAM_LENGTHS.to_vec(), |most| (1..=most).collect()));
    }
    let most = most.unwrap_or(MAX_VERIFY - 1);
    if let Some(&found) = asked.iter().find(|&&n| n > most) {
        let allowed = format!("1 to {most}, a block of the draft less its first token");
        return Err(CliError::Option { what: "a draft length (--lengths)", allowed, found: found.into() });
    }
    let mut lengths = asked.to_vec();
    lengths.sort_unstable();
    lengths.dedup();
    Ok(lengths)
}

impl Bench<'_> {
    /// Runs everything once to warm up, then by turns. What is measured when the sweep is cancelled counts,
    /// if there is anything.
    #[expect(clippy::unreachable, reason = "plain decoding and auto are always among the modes")]
    fn measure(
        &mut self,
        number: usize,
        prompt: String,
        ids: &[u32],
        modes: &[Mode],
        done: impl Fn(usize),
    ) -> Result<Option<PromptRows>, CliError> {
        let mut all: Vec<Runs> =
            modes.iter().map(|&mode| Runs { mode, speeds: Vec::new(), best: None }).collect();
        let Some((expected, _)) = self.once(Mode::Plain, ids)? else { return Ok(None) };
        let mut count = 0;
        'turns: for turn in 0..=self.args.repetitions {
            let there = 0..all.len();
            let order: Vec<usize> = if turn % 2 == 0 { there.collect() } else { there.rev().collect() };
            for i in order {
                let mode = all[i].mode;
                let Some((generated, parts)) = self.once(mode, ids)? else { break 'turns };
                if let Some(at) = difference(&expected.tokens, &generated.tokens) {
                    let token = |tokens: &[u32]| tokens.get(at).map_or("missing".to_owned(), u32::to_string);
                    return Err(CliError::Differs {
                        number,
                        prompt,
                        length: mode.to_string(),
                        at,
                        found: token(&generated.tokens),
                        expected: token(&expected.tokens),
                    });
                }
                if turn > 0 {
                    all[i].add(generated, parts);
                }
                count += 1;
                done(count);
            }
        }
        if all.iter().all(|runs| runs.speeds.is_empty()) {
            return Ok(None);
        }
        let plain = all.iter().find(|runs| runs.mode == Mode::Plain);
        let plain = plain.map_or(Vec::new(), |runs| runs.speeds.clone());
        let others = all.iter().filter(|runs| runs.mode != Mode::Auto);
        let speed = |runs: &Runs| median(&runs.speeds).unwrap_or(0.0);
        let rival = others.max_by(|a, b| speed(a).total_cmp(&speed(b)));
        let auto = all.iter().find(|runs| runs.mode == Mode::Auto);
        let (rival, auto) = rival.zip(auto).unwrap_or_else(|| unreachable!("both are always measured"));
        let against = Ratio::by_turns(&auto.speeds, &rival.speeds);
        let best = (!rival.speeds.is_empty()).then_some(rival.mode);
        let unit = self.plain.device().info().cost_unit;
        let rows = all.into_iter().map(|runs| runs.row(&plain, unit)).collect();
        Ok(Some(PromptRows {
            prompt,
            prompt_tokens: ids.len(),
            generated_tokens: expected.tokens.len(),
            finish_reason: expected.finish_reason,
            best,
            auto_against_best: against.map(|ratio| ratio.median),
            auto_error: against.map(|ratio| ratio.error),
            rows,
        }))
    }

    /// One generation from an empty context; nothing if it was cancelled.
    fn once(&mut self, mode: Mode, ids: &[u32]) -> Result<Option<(Generated, [u64; PARTS])>, CliError> {
        let (engine, speculation) = match mode {
            Mode::Plain => (&mut self.plain, Speculation::off()),
            Mode::Fixed(n) => (&mut self.speculative, self.drafter.speculation(DraftLength::Fixed(n))),
            Mode::Of(kind, n) => {
                (&mut self.speculative, self.drafter.alone(kind).speculation(DraftLength::Fixed(n)))
            }
            // What it has learned of costs goes from text to text; of the texts, which come again, nothing.
            Mode::Auto => {
                self.auto.replace_drafters(self.drafter.source());
                (&mut self.speculative, std::mem::replace(&mut self.auto, Speculation::off()))
            }
        };
        let sampler = Sampler::new(SamplerParams { temperature: 0.0, ..SamplerParams::default() })?;
        engine.reset();
        let request = Request::new(ids, sampler).limits(self.limits.clone()).speculation(speculation);
        let ended = Generation::new(self.model.tokenizer.clone(), request).run(engine, |_| {})?;
        let parts = ended.generated.stats.steps.parts;
        if mode == Mode::Auto {
            self.auto = ended.speculation;
        }
        let whole = ended.generated.finish_reason != Finish::Interrupted;
        Ok(whole.then_some((ended.generated, parts)))
    }
}

impl Runs {
    fn add(&mut self, generated: Generated, parts: [u64; PARTS]) {
        let speed = generated.stats.generated_per_second;
        if self.speeds.iter().all(|&other| speed > other) {
            self.best = Some((generated, parts));
        }
        self.speeds.push(speed);
    }

    fn row(self, plain: &[f64], unit: CostUnit) -> Row {
        let (fastest, median) = (best(&self.speeds), median(&self.speeds));
        let (mut cost_per_round, mut speculation) = (RoundCost::default(), None);
        if let Some((generated, parts)) = self.best {
            let stats = generated.stats;
            let rounds = match &stats.speculation {
                Some(spec) => spec.rounds + spec.steps,
                None => stats.generated_tokens - 1,
            };
            cost_per_round = RoundCost::new(&parts, unit, stats.generated_seconds, rounds);
            speculation = stats.speculation;
        }
        Row {
            drafts: self.mode,
            best: fastest,
            median,
            speedup: fastest.zip(best(plain)).map(|(best, plain)| best / plain),
            by_turns: Ratio::by_turns(&self.speeds, plain),
            runs: self.speeds,
            cost_per_round,
            speculation,
        }
    }
}

/// First position where two texts differ.
fn difference(a: &[u32], b: &[u32]) -> Option<usize> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (same < a.len().max(b.len())).then_some(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hexflash::model::Part;

    #[test]
    fn differences_are_found_at_their_place() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 2, 3], &[1, 5, 3]), Some(1));
        assert_eq!(difference(&[1, 2, 3], &[1, 2]), Some(2));
        assert_eq!(difference(&[1, 2], &[1, 2, 3]), Some(2));
        assert_eq!(difference(&[], &[]), None);
    }

    #[test]
    fn costs_of_a_round_add_up() {
        let mut parts = [0; PARTS];
        parts[Part::Verify as usize] = 600_000;
        parts[Part::DraftHead as usize] = 200_000;
        for (unit, sum) in [(CostUnit::Nanoseconds, 100.0), (CostUnit::Packets, 80.0)] {
            let RoundCost(costs) = RoundCost::new(&parts, unit, 1e-3, 10);
            assert_eq!((costs[Part::Verify as usize], costs[Part::DraftHead as usize]), (60.0, 20.0));
            assert!((costs.iter().sum::<f64>() - sum).abs() < 1e-9);
        }
    }
}
