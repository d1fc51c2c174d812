//! llama.cpp's speed on this machine: the figures that hexflash's own are set beside.

use std::process::ExitCode;

use hexflash_oracle::llama::{self, ContextOptions, FlashAttn, KvType, Model};

const USAGE: &str = "usage: llama-bench-lite -m MODEL [-t THREADS] [-p PROMPT] [-n GENERATE] [-r REPETITIONS]
       [-b BATCH] [--kv f16|f32] [--fa auto|on|off] [--no-repack] [--json] [-v]

Tokens per second of llama.cpp on the CPU: a prompt of PROMPT tokens (256), then GENERATE single tokens (128),
each from an empty context, REPETITIONS times (5) after one warm-up. Prints the best and the median.";

struct Args {
    model: String,
    options: ContextOptions,
    pp: usize,
    tg: usize,
    repetitions: usize,
    repack: bool,
    json: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut a = Args {
        model: String::new(),
        options: ContextOptions::default(),
        pp: 256,
        tg: 128,
        repetitions: 5,
        repack: true,
        json: false,
    };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        let number = |v: String| v.parse::<usize>().map_err(|_| format!("{flag}: not a number: {v}"));
        match flag.as_str() {
            "-m" | "--model" => a.model = value()?,
            "-t" | "--threads" => a.options.threads = number(value()?)?,
            "-p" | "--pp" => a.pp = number(value()?)?,
            "-n" | "--tg" => a.tg = number(value()?)?,
            "-r" | "--repetitions" => a.repetitions = number(value()?)?,
            "-b" | "--batch" => a.options.n_batch = number(value()?)? as u32,
            "--kv" => {
                a.options.kv = match value()?.as_str() {
                    "f16" => KvType::F16,
                    "f32" => KvType::F32,
                    other => return Err(format!("--kv {other}")),
                }
            }
            "--fa" => {
                a.options.flash_attn = match value()?.as_str() {
                    "auto" => FlashAttn::Auto,
                    "on" => FlashAttn::On,
                    "off" => FlashAttn::Off,
                    other => return Err(format!("--fa {other}")),
                }
            }
            "--no-repack" => a.repack = false,
            "--json" => a.json = true,
            "-v" | "--verbose" => llama::set_verbose(true),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if a.model.is_empty() || a.repetitions == 0 || a.options.threads == 0 || a.options.n_batch == 0 {
        return Err("a model, and at least one repetition, thread and batch row".to_owned());
    }
    a.options.n_ctx = a.pp.max(a.tg).max(16) as u32;
    Ok(a)
}

/// Best and median of a series.
fn summary(values: &[f64]) -> Option<(f64, f64)> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let best = *v.last()?;
    Some((best, (v[(v.len() - 1) / 2] + v[v.len() / 2]) / 2.0))
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(a) => a,
        Err(e) => {
            eprintln!("{e}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let result = Model::load_with(&args.model, args.repack)
        .and_then(|m| llama::speed(&m, args.options, args.pp, args.tg, args.repetitions));
    let speed = match result {
        Ok(s) => s,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let rows = [("pp", args.pp, &speed.prompt), ("tg", args.tg, &speed.generation)];
    let rows =
        rows.iter().filter_map(|(name, n, v)| summary(v).map(|(best, median)| (name, n, best, median)));
    if args.json {
        let fields: Vec<String> = rows
            .map(|(name, n, best, median)| {
                format!(r#""{name}":{{"tokens":{n},"best_tps":{best:.2},"median_tps":{median:.2}}}"#)
            })
            .collect();
        let model = args.model.replace('\\', "\\\\").replace('"', "\\\"");
        let (threads, reps) = (args.options.threads, args.repetitions);
        println!(r#"{{"model":"{model}","threads":{threads},"repetitions":{reps},{}}}"#, fields.join(","));
    } else {
        println!("{}", llama::system_info().trim());
        println!("{:>6} {:>12} {:>12}   tok/s, {} threads", "test", "best", "median", args.options.threads);
        for (name, n, best, median) in rows {
            println!("{:>6} {best:>12.1} {median:>12.1}", format!("{name}{n}"));
        }
    }
    ExitCode::SUCCESS
}
