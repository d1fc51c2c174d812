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
    suite::run(&steps)
}
