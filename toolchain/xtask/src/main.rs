//! Developer commands of hexflash: `cargo xtask --help`.
//!
//! Every check that CI runs is a verb here, so that whatever fails there can be repeated by the same words
//! on any machine. A verb installs what it needs before it starts; `cargo xtask setup --check` only looks.
//!
//! Exit codes: 0 all went well; 1 something was checked or built and failed; 2 the command could not be
//! carried out as given (a wrong argument, or a tool that is missing and cannot be installed from here).

mod android;
mod apt;
mod arch;
mod arch_object;
mod arm64;
mod cargo_deny;
mod check;
mod clients;
mod daily;
mod deny;
mod disassembly;
mod dist;
mod download;
mod emulator;
mod emulator_build;
mod failure;
mod float_values;
mod fuzz;
mod ggml;
mod hexagon;
mod hidden_bits;
mod libc_stub;
mod limit;
mod linux_arm64;
mod listing;
mod llama;
mod loom;
mod matrix_values;
mod miri;
mod mutants;
mod oracle;
mod packets;
mod phone_proven;
mod planted;
mod process;
mod published;
mod python;
mod races;
mod recorded;
mod sanitize;
mod setup;
mod skel;
mod soak;
mod steps;
mod suite;
mod table;
mod templates;
mod test;
mod toolchain;
mod upstream;
mod vectors;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer commands of hexflash.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing to build and test, and say what is done
    Setup(setup::Arguments),
    /// Run what to look at after every change: format, lints, unit tests. Installs nothing
    Check,
    /// Run all that a change must pass, and list what failed at the end; with --full everything there is
    Test(test::Arguments),
    /// Run conformance cases on a device: each against ggml's own result
    Conformance(oracle::Arguments),
    /// Compare hexflash with llama.cpp on the same model: logits, perplexity, greedy tokens
    CompareLlama(oracle::Arguments),
    /// Compare encoders of pictures, and what models make of their rows, with llama.cpp's
    ComparePictures(oracle::Arguments),
    /// Compare the tokenizers of published models with Hugging Face's library, and with llama.cpp
    CompareTokenizers(oracle::Arguments),
    /// Make a model of the Qwen3.5 shape with random weights
    RandomModel(oracle::Arguments),
    /// Make deliberate mistakes in kernels, one at a time, and see each of them caught
    Mutants(mutants::Arguments),
    /// Run the check whose turn it is today: a sanitizer, some mutants, soak, each text with each way to
    /// draft, kernels as code for v67 or v68, the whole program for Android, other ways to the DSP, the page,
    /// the program for arm64
    Daily(daily::Arguments),
    /// Generate without end, with faults, and hold every text against plain decoding
    Soak(soak::Arguments),
    /// Give all that takes input from strangers random inputs, led by the code that they reach
    Fuzz(fuzz::Arguments),
    /// Run tests of the device `inproc` and a generation under a sanitizer
    Sanitize(sanitize::Arguments),
    /// Check what the dependencies of all workspaces are: licences, versions, where they come from,
    /// advisories
    Deny,
    /// Run small models of the queue and the worker pool in all orders that threads may take
    Loom(loom::Arguments),
    /// Run tests of the pure parts under the interpreter that knows undefined behaviour
    Miri(miri::Arguments),
    /// Build the DSP runtime for Hexagon: images for emulators (v67, v68, v73, v79), skels (v68 to v81)
    Hexagon(hexagon::Arguments),
    /// Build the emulator that has HVX float, if it is not there, and run its self-test
    Emulator,
    /// See that the vectors of the self-test are up-to-date, and what the emulator makes of them
    Vectors(vectors::Arguments),
    /// Count what kernels take, in packets of the processor, and compare with what is expected
    Packets(packets::Arguments),
    /// Put together what a machine with a Snapdragon needs: the host program for arm64, and the skels that
    /// were built
    Dist(dist::Arguments),
    /// Link a small program for Android, without the NDK, and check that Android's loader would start it
    Android(android::Arguments),
    /// Run the host program for arm64 under emulation, against the stand-in for FastRPC
    Arm64,
    /// Ask the server through the clients that people use: OpenAI's and Anthropic's
    Clients,
    /// Render chat templates that others publish, and compare each text with Jinja2's
    Templates,
    /// Run llama.cpp's own tests of backends, and its server, on hexflash as a backend of ggml
    GgmlBackend(ggml::Arguments),
    /// Run ggml-hexagon's libraries, as Android apps ship them or your own, under the emulator, against
    /// ggml's own tests of ops
    PhoneProven(phone_proven::Arguments),
    /// Run the DSP runtime under the emulator's detector of races, whole and with waits left out
    Races,
    /// Run llama-server's own tests against the server, and compare with the list of what passes
    UpstreamServer(upstream::Arguments),
}

fn main() -> ExitCode {
    let result = if android::linker::is_called() { android::linker::run() } else { run() };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn run() -> failure::Result<()> {
    match Arguments::parse().verb {
        Verb::Setup(arguments) => setup::run(&arguments),
        Verb::Check => check::run(),
        Verb::Test(arguments) => test::run(&arguments),
        Verb::Conformance(arguments) => oracle::run("conformance", &arguments),
        Verb::CompareLlama(arguments) => published::compare_llama(&arguments),
        Verb::ComparePictures(arguments) => oracle::run("compare-pictures", &arguments),
        Verb::CompareTokenizers(arguments) => published::compare_tokenizers(&arguments),
        Verb::RandomModel(arguments) => oracle::run("random-model", &arguments),
        Verb::Mutants(arguments) => mutants::run(&arguments),
        Verb::Daily(arguments) => daily::run(&arguments),
        Verb::Soak(arguments) => soak::run(&arguments),
        Verb::Fuzz(arguments) => fuzz::run(&arguments),
        Verb::Sanitize(arguments) => sanitize::run(&arguments),
        Verb::Deny => deny::run(),
        Verb::Loom(arguments) => loom::run(&arguments),
        Verb::Miri(arguments) => miri::run(&arguments),
        Verb::Hexagon(arguments) => hexagon::run(&arguments),
        Verb::Emulator => emulator::run(),
        Verb::Vectors(arguments) => vectors::run(&arguments),
        Verb::Packets(arguments) => packets::run(&arguments),
        Verb::Dist(arguments) => dist::run(&arguments),
        Verb::Android(arguments) => android::run(&arguments),
        Verb::Arm64 => arm64::run(),
        Verb::Clients => clients::run(),
        Verb::Templates => templates::run(),
        Verb::GgmlBackend(arguments) => ggml::run(&arguments),
        Verb::PhoneProven(arguments) => phone_proven::run(&arguments),
        Verb::Races => races::run(),
        Verb::UpstreamServer(arguments) => upstream::run(&arguments),
    }
}
