//! `cargo xtask mutants`: deliberate mistakes, one at a time, each of which a named test must catch.
//!
//! A mutant is a patch in `tests/mutants` that starts with a line `Mistake:` (what is wrong) and one that
//! names its [`catcher`]. Patches are applied to a copy of the tree in `target/mutants`, which is built
//! there.

mod catcher;
mod patch;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use catcher::{Fate, Suite};
use patch::Mutant;

/// Arguments of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the mutants whose file name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out those that need llama.cpp
    #[arg(long)]
    no_oracle: bool,
    /// List the mutants and what catches them
    #[arg(long)]
    list: bool,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    let mut mutants = patch::read_all(&root.join("tests/mutants"))?;
    mutants.retain(|m| arguments.only.as_ref().is_none_or(|part| m.name.contains(part)));
    mutants.retain(|m| !arguments.no_oracle || m.suite != Suite::Conformance);
    if arguments.list || mutants.is_empty() {
        mutants
            .iter()
            .for_each(|m| println!("{:24} {}\n{:24} {} {}", m.name, m.mistake, "", m.suite, m.test));
        return Ok(());
    }
    setup::ensure(Set::Base)?;
    if mutants.iter().any(|m| m.suite == Suite::Conformance) {
        setup::ensure(Set::Oracle)?;
    }
    let tree = root.join("target/mutants/tree");
    patch::copy_tree(&root, &tree)?;
    // What is built together comes together.
    let mut suites: BTreeMap<&Suite, Vec<&Mutant>> = BTreeMap::new();
    mutants.iter().for_each(|mutant| suites.entry(&mutant.suite).or_default().push(mutant));
    let mut survivors = Vec::new();
    for (suite, mutants) in suites {
        // Without a mistake all the tests pass, or nothing is shown by their failing.
        let mut tests: Vec<&str> = mutants.iter().map(|m| m.test.as_str()).collect();
        tests.sort_unstable();
        tests.dedup();
        if suite.check(&root, &tree, &tests)? != Fate::Survived {
            return Err(Failure::failed(format!("{suite} fails without any mutant"), "see above"));
        }
        for mutant in mutants {
            let start = Instant::now();
            patch::apply(&tree, &mutant.path, false)?;
            let fate = suite.check(&root, &tree, &[&mutant.test]);
            patch::apply(&tree, &mutant.path, true)?;
            let (fate, seconds) = (fate?, start.elapsed().as_secs_f32());
            println!("{:9} {:24} {} ({seconds:.0} s)", format!("{fate:?}"), mutant.name, mutant.mistake);
            if fate == Fate::Survived {
                survivors.push(mutant.name.as_str());
            }
        }
    }
    println!("{} caught, {} survived", mutants.len() - survivors.len(), survivors.len());
    if survivors.is_empty() {
        Ok(())
    } else {
        let names = survivors.join(", ");
        Err(Failure::failed(format!("survived: {names}"), "find out why their tests still pass"))
    }
}
