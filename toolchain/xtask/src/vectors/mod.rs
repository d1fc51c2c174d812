//! `cargo xtask vectors`: what instructions and small kernels must give, as `hexflash selftest` compares it.
//!
//! The words are computed here, by definitions ([`forms`], [`kernels`]), and written to a table that the host
//! program is built with, and to a C program with the same lanes ([`simulator`]) for who has the vendor's
//! simulator. Without `--update` the verb sees that both files are what would be written, and runs the C
//! program under the emulator as each version.

mod forms;
mod kernels;
mod simulator;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};

/// The table, and the program.
const TABLE: &str = "host-runtime/src/selftest/vectors.txt";
const PROGRAM: &str = "toolchain/simulator/vectors.c";
/// Words of a line.
const PER_LINE: usize = 8;

/// Arguments of `cargo xtask vectors`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the files
    #[arg(long)]
    update: bool,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    if arguments.update {
        for (name, text) in files() {
            let file = root.join(name);
            fs::write(&file, text).map_err(|error| Failure::on_disk("write", &file, &error))?;
        }
    }
    for set in [Set::Base, Set::Hexagon, Set::Emulator] {
        setup::ensure(set)?;
    }
    check(&root)
}

/// Sees that both files are what would be written, and that the emulator gives what they say.
pub fn check(root: &Path) -> Result<()> {
    for (name, text) in files() {
        if stale(&root.join(name), &text)? {
            return Err(Failure::failed(
                format!("{name} is not what would be written"),
                "run `cargo xtask vectors --update`, and look at what has changed",
            ));
        }
    }
    simulator::run(root, &root.join(PROGRAM))
}

fn files() -> [(&'static str, String); 2] {
    [(TABLE, table()), (PROGRAM, simulator::program(&forms::blocks()))]
}

fn stale(file: &Path, text: &str) -> Result<bool> {
    Ok(fs::read_to_string(file).map_err(|error| Failure::on_disk("read", file, &error))? != text)
}

fn words(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}

/// The table as text.
fn table() -> String {
    let mut text = "# Written by `cargo xtask vectors --update`: what instructions and kernels must give.\n\
                    #\n\
                    # form NAME; versions FIRST LAST; a question, if nobody has answered it; then lanes:\n\
                    # words of the operands, a colon, words of the result.\n\
                    # op NAME; its way; how many units in the last place off; then words of parameters,\n\
                    # sources and result.\n"
        .to_owned();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // A text takes all that is written to it.
        let _ = writeln!(text, "{line}");
    };
    for forms::Block { form, archs, question, lanes } in forms::blocks() {
        let question = question.map(|question| format!("; {question}")).unwrap_or_default();
        line(format_args!("\nform {form}; {} {}{question}", archs.first, archs.last));
        for forms::Lane { takes, gives } in lanes {
            line(format_args!("{} : {}", words(&takes), words(&gives)));
        }
    }
    for kernels::Block { op, way, params, ulps, takes, gives } in kernels::blocks() {
        line(format_args!("\nop {op}; {way}; {ulps}"));
        let lists = [("params", &params)].into_iter().chain(takes.iter().map(|row| ("takes", row)));
        for (name, list) in lists.chain([("gives", &gives)]) {
            line(format_args!("{name}"));
            list.chunks(PER_LINE).for_each(|chunk| line(format_args!("{}", words(chunk))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_what_would_be_written() {
        let root = process::workspace_root().unwrap();
        for (name, text) in files() {
            assert!(!stale(&root.join(name), &text).unwrap(), "{name}: run `cargo xtask vectors --update`");
        }
    }
}
