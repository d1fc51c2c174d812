//! `hexflash info`: what a model file holds, and how much memory it takes.

mod fit;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::CliError;
use super::interrupt::cancel_on_signals;
use super::options::{DeviceArgs, Drafter, EngineArgs, ModelArgs, SpecArgs};
use super::output::print_json;
use super::pictures::EncoderArgs;
use super::plain::plain;
use hexflash::Error;
use hexflash::engine::{
    EngineError, EngineOptions, MemoryPlan, ModelFiles, ModelFit, estimate_fit, list_program, memory_needs,
    program_names,
};
use hexflash::gguf::{Gguf, Value};
use hexflash::model::{self, Decoder, ModelError};
use hexflash::weights::WeightError;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print a program instead: its ops, what they read and write, where that lies, and how many bytes that
    /// moves
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(program_names()))]
    program: Option<String>,
    /// Sequences to plan for, each with a context of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    parallel: u32,
    /// MiB to plan for snapshots of recurrent states
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    snapshots: u32,
    /// Print a JSON object instead (always with every tensor)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    encoder: EncoderArgs,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [!self.model.is_given(), self.spec.drafter.lacks_model()]
    }
}

/// Elements of an array that are shown.
const SHOWN: usize = 8;

#[derive(Serialize)]
struct Tensor<'g> {
    name: &'g str,
    r#type: &'static str,
    ne: &'g [u64],
    bytes: u64,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    // Without a download, nothing here takes long enough to be ended in order.
    let cancel = args.model.may_download().then(cancel_on_signals).unwrap_or_default();
    let gguf = args.model.open(&cancel)?;
    let options = EngineOptions {
        sequences: args.parallel,
        snapshot_bytes: u64::from(args.snapshots) << 20,
        ..args.engine.options()
    };
    let looked = match Looked::new(args, &gguf, &options) {
        Ok(Some(looked)) => Ok(looked),
        Ok(None) => return Ok(ExitCode::SUCCESS),
        // What is wrong with a draft model is no matter of the file that is shown.
        Err(error) if args.program.is_none() && !args.spec.drafter.is_given() && is_foreign(&error) => {
            Err(error.to_string())
        }
        Err(error) => return Err(error),
    };
    let fit = match &looked {
        Ok(looked) => Some(looked.fit.clone()),
        Err(_) => estimate_fit(&gguf, &options),
    };
    let tensors: Vec<_> = gguf
        .tensors()
        .map(|t| Tensor { name: &t.name, r#type: t.ggml_type.name(), ne: t.shape(), bytes: t.size })
        .collect();
    if args.json {
        let metadata: Map<String, Json> = gguf.meta().iter().map(|(k, v)| (k.to_owned(), value(v))).collect();
        let report = json!({
            "model": gguf.path().display().to_string(),
            "version": gguf.version(),
            "metadata": metadata,
            "tensors": tensors,
            "memory": looked.as_ref().ok().map(|looked| &looked.memory),
            "unsupported": looked.as_ref().err(),
            "fit": fit,
        });
        print_json(&report)?;
    } else {
        let out = &mut std::io::stdout().lock();
        print_file(out, &gguf, &tensors, args.tensors)?;
        match &looked {
            Ok(looked) => print_model(out, &looked.config, &looked.memory, &tensors)?,
            Err(reason) => writeln!(out, "\nthis version does not run it: {}", plain(reason))?,
        }
        match &fit {
            Some(fit) => fit::print(out, fit)?,
            None => writeln!(out, "\nits metadata do not say how much memory its caches would take")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of a model that this version runs.
struct Looked {
    config: Decoder,
    memory: MemoryPlan,
    fit: ModelFit,
}

impl Looked {
    /// Looks at a model; or prints the program that is asked for instead, and gives `None`.
    fn new(args: &Args, gguf: &Gguf, options: &EngineOptions) -> Result<Option<Self>, CliError> {
        let config = model::read(gguf)?;
        let drafter = match args.encoder.is_given() && !args.spec.drafter.is_chosen() {
            true => Drafter::nobody(),
            false => args.spec.find(gguf)?,
        };
        let encoder = args.encoder.open_for(gguf)?;
        let files = ModelFiles::of(gguf).with_draft(drafter.draft.as_ref()).with_encoder(encoder.as_ref());
        let options = &EngineOptions { speculate: drafter.drafts(), ..options.clone() };
        let device = args.device.open_for(files, options)?;
        let Some(program) = &args.program else {
            let memory = memory_needs(files, options, device.info())?;
            let fit = hexflash::engine::fit(files, options)?;
            return Ok(Some(Self { config, memory, fit }));
        };
        let listing = list_program(files, options, device.info(), program)?;
        if args.json {
            print_json(&listing)?;
        } else {
            write!(std::io::stdout().lock(), "{listing}")?;
        }
        Ok(None)
    }
}

/// Whether nothing is wrong with a model but that this version does not run its kind.
fn is_foreign(error: &CliError) -> bool {
    let CliError::Library(error) = error else { return false };
    let is_kind =
        |error: &ModelError| matches!(error, ModelError::Architecture { .. } | ModelError::Kind { .. });
    match error {
        Error::Model(error) | Error::Engine(EngineError::Model(error)) => is_kind(error),
        Error::Engine(EngineError::Weights(error)) => {
            // A norm that is quantized is a mistake.
            matches!(error, WeightError::UnsupportedType { plain: false, .. })
        }
        _ => false,
    }
}

/// An integer; as text where JSON's readers would round it.
fn number(n: i128) -> Json {
    i64::try_from(n).map_or_else(|_| json!(n.to_string()), |n| json!(n))
}

/// A metadata value; long arrays and texts are cut.
fn value(v: &Value) -> Json {
    if let Some(text) = v.as_str() {
        return json!(text);
    }
    if let Some(flag) = v.as_bool() {
        return json!(flag);
    }
    if let Some(integer) = v.as_integer() {
        return number(integer);
    }
    if let Some(float) = v.as_f32() {
        return json!(float);
    }
    let Some(array) = v.as_array() else { return Json::Null };
    match array.integers().filter(|i| i.len() <= SHOWN) {
        Some(integers) => integers.map(number).collect(),
        None => json!(format!("array of {} elements", array.len())),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:>10.2} MiB", bytes as f64 / 1048576.0)
}

/// What the file holds.
fn print_file(out: &mut impl Write, gguf: &Gguf, tensors: &[Tensor<'_>], all: bool) -> std::io::Result<()> {
    writeln!(
        out,
        "{}: GGUF version {}, {} tensors",
        plain(&gguf.path().to_string_lossy()),
        gguf.version(),
        tensors.len()
    )?;
    writeln!(out, "\nmetadata")?;
    for (key, v) in gguf.meta().iter() {
        let text: String = match value(v) {
            Json::String(s) => s.lines().next().unwrap_or_default().chars().take(80).collect(),
            other => other.to_string(),
        };
        writeln!(out, "  {:<44} {}", plain(key), plain(&text))?;
    }
    writeln!(out, "\ntensors")?;
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for t in tensors {
        let entry = types.entry(t.r#type).or_default();
        *entry = (entry.0 + 1, entry.1 + t.bytes);
        if all {
            writeln!(out, "  {:<40} {:<6} {:?}", plain(t.name), t.r#type, t.ne)?;
        }
    }
    for (name, (count, bytes)) in types {
        writeln!(out, "  {name:<8} {count:>5} tensors {}", mib(bytes))?;
    }
    Ok(())
}

/// What a model is that this version runs, and the memory that it takes.
fn print_model(
    out: &mut impl Write,
    config: &Decoder,
    memory: &MemoryPlan,
    tensors: &[Tensor<'_>],
) -> std::io::Result<()> {
    writeln!(out, "\nmodel")?;
    writeln!(out, "  {} layers: {}", config.layers.len(), config.mixers())?;
    writeln!(out, "  width {}, MLP {}, vocabulary {}", config.n_embd, config.n_ff(), config.n_vocab)?;
    if let Some(moe) = config.experts() {
        writeln!(out, "  {} of {} experts, each {} wide, to a token", moe.n_used, moe.n_expert, moe.n_ff)?;
    }
    let over =
        if memory.sessions > 1 { format!(" over {} sessions", memory.sessions) } else { String::new() };
    let each = match memory.sequences {
        1 => "a context".to_owned(),
        n => format!("{n} sequences, each with a context"),
    };
    writeln!(out, "\nmemory for {each} of {}{over}", memory.n_ctx)?;
    let file: u64 = tensors.iter().map(|t| t.bytes).sum();
    let rows = [
        ("weights in the file", file),
        ("weights, repacked", memory.weights),
        ("KV caches", memory.kv),
        ("recurrent state", memory.recurrent),
        ("snapshots", memory.snapshots),
        ("activations", memory.activations),
        ("  without reuse", memory.activations_unshared),
        ("  handed over", memory.handed_over),
        ("inputs and outputs", memory.io),
        ("programs", memory.programs),
        ("encoder of pictures", memory.encoder),
        ("VTCM", memory.vtcm),
    ];
    // Few models have an encoder.
    for (name, bytes) in rows.into_iter().filter(|&(name, bytes)| bytes > 0 || !name.starts_with("encoder")) {
        writeln!(out, "  {name:<20} {}", mib(bytes))?;
    }
    if let Some(s) = &memory.speculation {
        writeln!(out, "\nspeculation, on top of that")?;
        let rows = [
            ("factor tapes", s.tape),
            ("convolution rows", s.conv_rows),
            ("draft KV cache", s.draft_kv),
            ("draft weights", s.draft_weights),
            ("other", s.other),
        ];
        for (name, bytes) in rows {
            writeln!(out, "  {name:<20} {}", mib(bytes))?;
        }
        let share = 100.0 * s.rollback() as f64 / s.state_copies.max(1) as f64;
        writeln!(
            out,
            "  tapes and rows take {share:.2} % of a copy of the states per token ({})",
            mib(s.state_copies).trim()
        )?;
    }
    Ok(())
}
