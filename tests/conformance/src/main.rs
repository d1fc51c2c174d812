//! Every kernel of hexflash against ggml's own result, every model against llama.cpp.
//!
//! Started by `cargo xtask conformance`, `compare-llama`, `compare-tokenizers` and `random-model`; see there.

mod compare;
mod ops;
mod part;
mod pictures;
mod tokenizers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run conformance cases on a device: each against ggml's own result
    Conformance(ops::Arguments),
    /// Compare hexflash with llama.cpp on the same model: logits, perplexity, greedy tokens
    CompareLlama(compare::Arguments),
    /// Compare encoders of pictures, and what models make of their rows, with llama.cpp's
    ComparePictures(pictures::Arguments),
    /// Compare the tokenizers of published models with Hugging Face's library, and with llama.cpp
    CompareTokenizers(tokenizers::Arguments),
    /// Make a model of the Qwen3.5 shape with random weights
    RandomModel(compare::random::Arguments),
}

fn main() -> ExitCode {
    // llama.cpp's spelling, which clap would read as `-m d`.
    let spelled = |a: OsString| if a == "-md" { "--model-draft".into() } else { a };
    let result = match Arguments::parse_from(std::env::args_os().map(spelled)).verb {
        Verb::Conformance(arguments) => ops::run(&arguments),
        Verb::CompareLlama(arguments) => compare::run(&arguments),
        Verb::ComparePictures(arguments) => pictures::run(&arguments),
        Verb::CompareTokenizers(arguments) => tokenizers::run(&arguments),
        Verb::RandomModel(arguments) => compare::random::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}
