//! `cargo xtask test`: the checks that CI runs.

use crate::failure::{Failure, Result};
use crate::process;
use crate::steps::STEPS;
use crate::suite;
use std::fs;

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this step; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the steps and run none
    #[arg(long)]
    list: bool,
    /// Steps that run at the same time
    #[arg(long, short, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
}

/// The verb: runs the chosen steps, or lists them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let steps = suite::select(STEPS, &arguments.only)?;
    if arguments.list {
        for step in steps {
            println!("{:17} {}", step.name, step.about);
        }
        return Ok(());
    }
    let lanes = usize::from(arguments.jobs).min(steps.len());
    if lanes < 2 {
        return suite::run(&steps, lanes, None);
    }
    let folder = process::target_dir(&process::workspace_root()?)?.join("test");
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::unusable(format!("cannot make {} ({error})", folder.display()), "look after the disk")
    })?;
    process::copy_xtask(&folder)?;
    eprintln!("{lanes} steps at a time; what they print is in {} until they end", folder.display());
    suite::run(&steps, lanes, Some(&folder))
}
