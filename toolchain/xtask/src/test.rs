//! `cargo xtask test`: the checks that CI runs.

use crate::failure::Result;
use crate::steps::STEPS;
use crate::suite;

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
    #[arg(long, short, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
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
    suite::run(&steps, arguments.jobs.into())
}
