//! `hexflash info`: what a model file holds, and how much memory it takes.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::options::{DeviceArgs, EngineArgs, ModelArgs, SpecArgs};
use super::{CliError, print_json};
use hexflash::engine::{EngineOptions, MemoryPlan, list_program, memory_needs, program_names};
use hexflash::gguf::{Gguf, Value};
use hexflash::model::{self, Decoder};

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
    let gguf = args.model.open()?;
    let config = model::read(&gguf)?;
    let device = args.device.open()?;
    let draft = args.spec.drafter.open()?;
    let options = EngineOptions {
        speculate: args.spec.speculates()?,
        sequences: args.parallel,
        snapshot_bytes: u64::from(args.snapshots) << 20,
        ..args.engine.options()
    };
    if let Some(program) = &args.program {
        let listing = list_program(&gguf, draft.as_ref(), &options, device.info(), program)?;
        if args.json {
            print_json(&listing)?;
        } else {
            write!(std::io::stdout().lock(), "{listing}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let memory = memory_needs(&gguf, draft.as_ref(), &options, device.info())?;
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
            "memory": memory,
        });
        print_json(&report)?;
    } else {
        print(&mut std::io::stdout().lock(), &gguf, &config, &tensors, &memory, args.tensors)?;
    }
    Ok(ExitCode::SUCCESS)
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

fn print(
    out: &mut impl Write,
    gguf: &Gguf,
    config: &Decoder,
    tensors: &[Tensor<'_>],
    memory: &MemoryPlan,
    all: bool,
) -> std::io::Result<()> {
    writeln!(out, "{}: GGUF version {}, {} tensors", gguf.path().display(), gguf.version(), tensors.len())?;
    writeln!(out, "\nmetadata")?;
    for (key, v) in gguf.meta().iter() {
        let text = match value(v) {
            Json::String(s) => s.lines().next().unwrap_or_default().chars().take(80).collect(),
            other => other.to_string(),
        };
        writeln!(out, "  {key:<44} {text}")?;
    }
    writeln!(out, "\nmodel")?;
    writeln!(out, "  {} layers: {}", config.layers.len(), config.mixers())?;
    writeln!(out, "  width {}, MLP {}, vocabulary {}", config.n_embd, config.n_ff(), config.n_vocab)?;
    writeln!(out, "\ntensors")?;
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for t in tensors {
        let entry = types.entry(t.r#type).or_default();
        *entry = (entry.0 + 1, entry.1 + t.bytes);
        if all {
            writeln!(out, "  {:<40} {:<6} {:?}", t.name, t.r#type, t.ne)?;
        }
    }
    for (name, (count, bytes)) in types {
        writeln!(out, "  {name:<8} {count:>5} tensors {}", mib(bytes))?;
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
        ("VTCM", memory.vtcm),
    ];
    for (name, bytes) in rows {
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
