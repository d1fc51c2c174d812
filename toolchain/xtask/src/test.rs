//! `cargo xtask test`: the checks that a change must pass, and with `--full` all that there are.

use std::fs;
use std::path::Path;

use crate::daily;
use crate::failure::{Failure, Result};
use crate::limit;
use crate::process;
use crate::steps::STEPS;
use crate::suite::{self, Missing, Report, Step, Tier};
use crate::table;

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run everything: what takes long or needs much to be installed, too
    #[arg(long)]
    full: bool,
    /// Run only what --full has beyond this verb alone, as CI does: half of it on even days, half on odd ones
    #[arg(long, conflicts_with = "full")]
    rest: bool,
    /// Only this step, of --full too; may be given more than once
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "rest"])]
    only: Vec<String>,
    /// Fail where something is missing that cannot be installed, instead of skipping what needs it
    #[arg(long)]
    strict: bool,
    /// List the steps with their tiers, and run none
    #[arg(long)]
    list: bool,
    /// Write the seconds of the last runs into docs/testing/steps.md, and run nothing
    #[arg(long)]
    write_table: bool,
    /// Steps that run at the same time
    #[arg(long, short, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
}

impl Arguments {
    /// The steps that these arguments choose.
    fn steps(&self) -> Result<Vec<&'static Step>> {
        let mut steps = suite::select(STEPS, &self.only)?;
        if self.only.is_empty() && !self.list && !self.write_table {
            steps.retain(|step| self.wants(step.tier));
        }
        Ok(steps)
    }

    /// Whether steps of a tier run where none is named.
    fn wants(&self, tier: Tier) -> bool {
        match tier {
            Tier::Test => !self.rest,
            Tier::Full(days, _) => self.full || self.rest && days.has(daily::day()),
            Tier::Daily(_) => false,
        }
    }
}

/// The verb: runs the chosen steps, or lists them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let steps = arguments.steps()?;
    if arguments.list {
        for step in steps {
            let why = match step.tier.words() {
                (_, "") => String::new(),
                (tier, why) => format!(" ({tier}{}: {why})", step.tier.days()),
            };
            println!("{:17} {}{why}", step.name, step.about);
        }
        return Ok(());
    }
    let folder = process::target_dir(&process::workspace_root()?)?.join("test");
    if arguments.write_table {
        return table::write(&steps, &folder);
    }
    let missing = if arguments.strict { Missing::Fails } else { Missing::Skips };
    limit::adopt_orphans();
    let reports = run_in(&folder, &steps, usize::from(arguments.jobs), missing)?;
    for command in limit::end_orphans() {
        println!("left running by a step, and killed: {command}");
    }
    table::record(&reports, &folder)?;
    suite::conclude(&reports)
}

/// Runs the steps as one suite, whose files are in `folder`.
fn run_in(folder: &Path, steps: &[&Step], jobs: usize, missing: Missing) -> Result<Vec<Report>> {
    fs::create_dir_all(folder).map_err(|error| Failure::on_disk("make", folder, &error))?;
    let lanes = jobs.min(steps.len());
    if lanes < 2 {
        return suite::run(steps, lanes, None, missing);
    }
    process::copy_xtask(folder)?;
    eprintln!("{lanes} steps at a time; what they print is in {} until they end", folder.display());
    suite::run(steps, lanes, Some(folder), missing)
}
