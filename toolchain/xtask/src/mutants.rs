//! `cargo xtask mutants`: deliberate mistakes in kernels, each of which a named conformance case must catch.
//!
//! A mutant is a patch in `tests/mutants` that starts with lines `Mistake:` (what is wrong) and `Case:` (who catches
//! it). They are applied one at a time to a copy of the tree in `target/mutants`, which shares the build folder of
//! `tests/oracle`: what is rebuilt is hexflash, not llama.cpp.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::failure::{Failure, Result};
use crate::oracle;
use crate::process;
use crate::setup::{self, Set};

/// Arguments of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the mutants whose file name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// List the mutants and their cases
    #[arg(long)]
    list: bool,
}

/// A patch and what it says of itself.
#[derive(Debug)]
struct Mutant {
    name: String,
    path: PathBuf,
    mistake: String,
    case: String,
}

/// How a mutant ended.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Caught,
    Survived,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    let mut mutants = read_all(&root.join("tests/mutants"))?;
    mutants.retain(|m| arguments.only.as_ref().is_none_or(|part| m.name.contains(part)));
    if arguments.list || mutants.is_empty() {
        mutants.iter().for_each(|m| println!("{:24} {}\n{:24} {}", m.name, m.mistake, "", m.case));
        return Ok(());
    }
    for set in [Set::Base, Set::Oracle] {
        setup::ensure(set)?;
    }
    let tree = root.join("target/mutants/tree");
    copy_tree(&root, &tree)?;
    // Without a mistake all the cases pass, or nothing is shown by their failing.
    let cases: Vec<&str> = mutants.iter().map(|m| m.case.as_str()).collect();
    build(&root, &tree)?;
    if check(&root, &tree, &cases)? != Fate::Survived {
        return Err(Failure::failed("the cases fail without any mutant", "see their lines above"));
    }
    let mut survivors = Vec::new();
    for mutant in &mutants {
        let start = Instant::now();
        apply(&tree, &mutant.path, false)?;
        let fate = build(&root, &tree).and_then(|()| check(&root, &tree, &[&mutant.case]));
        apply(&tree, &mutant.path, true)?;
        let fate = fate?;
        println!(
            "{:9} {:24} {} ({:.0} s)",
            format!("{fate:?}"),
            mutant.name,
            mutant.mistake,
            start.elapsed().as_secs_f32()
        );
        if fate == Fate::Survived {
            survivors.push(mutant.name.as_str());
        }
    }
    println!("{} caught, {} survived", mutants.len() - survivors.len(), survivors.len());
    if survivors.is_empty() {
        Ok(())
    } else {
        let names = survivors.join(", ");
        Err(Failure::failed(format!("survived: {names}"), "find out why their cases still pass"))
    }
}

fn read_all(dir: &Path) -> Result<Vec<Mutant>> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::unusable(format!("cannot read {} ({error})", dir.display()), "restore it from git")
    };
    let mut mutants = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| unreadable(&e))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "patch") {
            let text = fs::read_to_string(&path).map_err(|e| unreadable(&e))?;
            mutants.push(parse(&path, &text)?);
        }
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn parse(path: &Path, text: &str) -> Result<Mutant> {
    let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let field = |key: &str| {
        let head = text.lines().take_while(|line| !line.starts_with("--- "));
        head.filter_map(|line| line.strip_prefix(key)).map(|v| v.trim().to_owned()).next().ok_or_else(|| {
            Failure::unusable(format!("{} has no line `{key}`", path.display()), "add it above the diff")
        })
    };
    let (mistake, case) = (field("Mistake:")?, field("Case:")?);
    Ok(Mutant { name, path: path.to_path_buf(), mistake, case })
}

/// Brings the copy up to the checkout, uncommitted changes included. What is the same is left alone, so that cargo
/// sees what changed.
fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = process::output(&mut git).ok_or_else(|| {
        Failure::unusable("git does not list the files of the checkout", "run this in a git checkout")
    })?;
    for file in list.split('\0').filter(|f| !f.is_empty() && !f.starts_with("models/")) {
        // Deleted, but still in the index.
        let Ok(bytes) = fs::read(root.join(file)) else { continue };
        let to = tree.join(file);
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, bytes));
        made.map_err(|e| {
            Failure::unusable(format!("cannot write {} ({e})", to.display()), "check the disk")
        })?;
    }
    Ok(())
}

fn apply(tree: &Path, patch: &Path, reverse: bool) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["apply", "--recount", "-C1"]).args(reverse.then_some("--reverse")).arg(patch).current_dir(tree);
    // The copy lies inside the checkout, whose repository must not be found.
    git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    process::run(&mut git).map_err(|failure| {
        Failure::failed(
            format!("{} does not apply any more: {failure}", patch.display()),
            "make the same mistake in the kernel as it is now, and save `git diff -U1`",
        )
    })
}

/// The build folder of `tests/oracle`, wherever the caller has it.
fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("tests/oracle/target"), PathBuf::from)
}

fn build(root: &Path, tree: &Path) -> Result<()> {
    let mut command = oracle::cargo(tree, "build");
    command.args(["--quiet", "--package", "hexflash-conformance"]);
    process::run(command.env("CARGO_TARGET_DIR", target_dir(root)))
}

/// Runs cases of what was built last.
fn check(root: &Path, tree: &Path, cases: &[&str]) -> Result<Fate> {
    let escaped: Vec<String> = cases.iter().map(|case| escape(case)).collect();
    let mut command = Command::new(target_dir(root).join("debug/hexflash-conformance"));
    command
        .args(["conformance", "--quiet", "--case", &format!("^(?:{})$", escaped.join("|"))])
        .current_dir(tree);
    let output = command.output().map_err(|error| {
        Failure::unusable(
            format!("the conformance runner cannot be started ({error})"),
            "see the build above",
        )
    })?;
    // 2: the arguments or the device; anything else but 0 is a case that failed, or a crash, which is caught too.
    match output.status.code() {
        Some(0) => Ok(Fate::Survived),
        Some(2) => Err(Failure::failed(
            format!("the conformance runner says: {}", String::from_utf8_lossy(&output.stderr).trim()),
            "see the line `Case:` of the patch",
        )),
        _ if String::from_utf8_lossy(&output.stdout).contains("no case has such a name") => {
            Err(Failure::failed(
                format!("there is no case {}", cases.join(" or ")),
                "see the line `Case:` of the patch",
            ))
        }
        _ => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().filter(|line| line.starts_with("FAIL")).for_each(|line| eprintln!("  {line}"));
            Ok(Fate::Caught)
        }
    }
}

/// A case's name as a regular expression.
fn escape(case: &str) -> String {
    case.chars()
        .flat_map(|c| {
            (!c.is_ascii_alphanumeric() && !"_-,=:".contains(c)).then_some('\\').into_iter().chain([c])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_patch_says_of_itself() {
        let text = "Mistake: a b\nCase: OP(n=[1,2])\n\n--- a/x\n+++ b/x\nCase: not this\n";
        let mutant = parse(Path::new("some/thing.patch"), text).unwrap();
        assert_eq!((mutant.name.as_str(), mutant.mistake.as_str()), ("thing", "a b"));
        assert_eq!(escape(&mutant.case), r"OP\(n=\[1,2\]\)");
        assert!(parse(Path::new("x.patch"), "Mistake: a\n--- a/x\nCase: too late\n").is_err());
    }

    #[test]
    fn every_patch_of_the_repository_is_complete() {
        let root = process::workspace_root().unwrap();
        let mutants = read_all(&root.join("tests/mutants")).unwrap();
        assert!(mutants.len() >= 10, "{} mutants", mutants.len());
    }
}
