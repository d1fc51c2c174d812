//! `cargo xtask mutants`: deliberate mistakes, one at a time, each of which a named test must catch.
//!
//! A mutant is a patch in `tests/mutants` that starts with a line `Mistake:` (what is wrong) and one that
//! names its [`catcher`]. Patches are applied to a copy of the tree in `target/mutants`, which is built
//! there.
//!
//! A patch fits until the lines around its mistake change. Whoever changes them need not care: a patch that
//! does not fit is reported by this verb ([`Arguments::check`], and by each run), and made anew when it is
//! wanted. All of them take hours, so that a run each day may take a few in turn ([`Arguments::today`]).

mod catcher;
mod patch;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use crate::daily;
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
    /// Only so many, which the date chooses (in UTC): the next in each turn of `daily`, until all had one
    #[arg(long, value_name = "K")]
    today: Option<NonZeroUsize>,
    /// List the mutants and what catches them, and count them
    #[arg(long, conflicts_with = "check")]
    list: bool,
    /// Make no mistake, only report all patches that do not apply to the checkout as it is
    #[arg(long)]
    check: bool,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    let mut mutants = patch::read_all(&root.join("tests/mutants"))?;
    mutants.retain(|m| arguments.only.as_ref().is_none_or(|part| m.name.contains(part)));
    mutants.retain(|m| !arguments.no_oracle || m.suite != Suite::Conformance);
    if let Some(count) = arguments.today {
        mutants = turn(mutants, daily::turn_of_mutants(), count.get());
    }
    if arguments.list || mutants.is_empty() {
        mutants
            .iter()
            .for_each(|m| println!("{:24} {}\n{:24} {} {}", m.name, m.mistake, "", m.suite, m.test));
        println!("{} mutants", mutants.len());
        return Ok(());
    }
    if arguments.check {
        let stale = report_stale(&root, &mut mutants)?;
        println!("{} patches apply, {} do not", mutants.len(), stale.len());
        return verdict(&[], &stale);
    }
    setup::ensure(Set::Base)?;
    let tree = root.join("target/mutants/tree");
    patch::copy_tree(&root, &tree)?;
    let stale = report_stale(&tree, &mut mutants)?;
    if mutants.iter().any(|m| m.suite == Suite::Conformance) {
        setup::ensure(Set::Oracle)?;
    }
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
                survivors.push(mutant.name.clone());
            }
        }
    }
    let caught = mutants.len() - survivors.len();
    println!("{caught} caught, {} survived, {} do not apply", survivors.len(), stale.len());
    verdict(&survivors, &stale)
}

/// The part of all mutants that have turn number `number`: `count` of them, which begin where those of the
/// turn before ended. After the last comes the first.
fn turn(mutants: Vec<Mutant>, number: u64, count: usize) -> Vec<Mutant> {
    let all = mutants.len();
    if count >= all {
        return mutants;
    }
    let start = (u128::from(number) * count as u128 % all as u128) as usize;
    let is_in = |i: usize| (i + all - start) % all < count;
    mutants.into_iter().enumerate().filter(|&(i, _)| is_in(i)).map(|(_, mutant)| mutant).collect()
}

/// Takes out the mutants whose patches do not apply to the tree, and prints what git says of each. Gives
/// their names.
fn report_stale(tree: &Path, mutants: &mut Vec<Mutant>) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for mutant in std::mem::take(mutants) {
        match patch::refusal(tree, &mutant.path)? {
            None => mutants.push(mutant),
            Some(why) => {
                println!("{:9} {:24} {why}", "Stale", mutant.name);
                stale.push(mutant.name);
            }
        }
    }
    Ok(stale)
}

/// Failures of a run: mutants that no test caught, and patches that do not apply.
fn verdict(survivors: &[String], stale: &[String]) -> Result<()> {
    match (survivors.is_empty(), stale.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(Failure::failed(
            format!("do not apply: {}", stale.join(", ")),
            "make the same mistakes in the code as it is now, and save `git diff -U1`",
        )),
        (false, _) => {
            let also = if stale.is_empty() {
                String::new()
            } else {
                format!("; do not apply: {}", stale.join(", "))
            };
            Err(Failure::failed(
                format!("survived: {}{also}", survivors.join(", ")),
                "find out why their tests still pass",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        let mutant = |i: usize| Mutant {
            name: i.to_string(),
            path: format!("{i}.patch").into(),
            mistake: String::new(),
            suite: Suite::Conformance,
            test: String::new(),
        };
        (0..count).map(mutant).collect()
    }

    #[test]
    fn every_mutant_has_its_turn_before_any_has_another() {
        for (all, count) in [(7, 3), (206, 3), (6, 3), (5, 1), (4, 3)] {
            let chosen = |day| -> Vec<String> {
                turn(mutants(all), day, count).into_iter().map(|mutant| mutant.name).collect()
            };
            for first in [0, 20_000, u64::MAX - 300] {
                let mut seen: BTreeMap<String, usize> = BTreeMap::new();
                for day in first..first + all.div_ceil(count) as u64 {
                    let today = chosen(day);
                    assert_eq!(today.len(), count);
                    assert_eq!(today, chosen(day), "a turn's choice is the same all day");
                    today.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
                }
                assert_eq!(seen.len(), all, "{count} of {all}");
                // On the last day those of the first follow.
                assert!(seen.values().sum::<usize>() < all + count, "{count} of {all}");
            }
        }
    }

    #[test]
    fn fewer_mutants_than_wanted_are_all_chosen() {
        assert_eq!(turn(mutants(2), 5, 3).len(), 2);
        assert_eq!(turn(mutants(0), 5, 3).len(), 0);
    }

    #[test]
    fn survivors_and_stale_patches_fail_and_are_named() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(verdict(&[], &[]).is_ok());
        let of = |survivors: &[&str], stale: &[&str]| {
            verdict(&names(survivors), &names(stale)).unwrap_err().to_string()
        };
        assert!(of(&[], &["a", "b"]).contains("do not apply: a, b"));
        assert!(of(&["c"], &["a"]).contains("survived: c; do not apply: a"));
        assert!(!of(&["c"], &[]).contains("apply"));
    }
}
