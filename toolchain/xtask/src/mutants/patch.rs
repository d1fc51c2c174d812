//! Mutants as patches, and the copy of the tree that they are applied to.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::catcher::Suite;
use crate::failure::{Failure, Result};
use crate::process;

/// A patch and what it says of itself.
#[derive(Debug)]
pub struct Mutant {
    /// Of the file, without its ending.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub mistake: String,
    /// Where the test is that catches it.
    pub suite: Suite,
    /// The test.
    pub test: String,
}

/// All patches of a folder, by name.
pub fn read_all(dir: &Path) -> Result<Vec<Mutant>> {
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
        head.filter_map(|line| line.strip_prefix(key)).map(|v| v.trim().to_owned()).next()
    };
    let lacks = |what: &str| {
        Failure::unusable(format!("{} has no line {what}", path.display()), "add it above the diff")
    };
    let mistake = field("Mistake:").ok_or_else(|| lacks("`Mistake:`"))?;
    let (suite, test) = match (field("Case:"), field("Test:")) {
        (Some(case), None) => (Suite::Conformance, case),
        (None, Some(words)) => match words.split_whitespace().collect::<Vec<_>>()[..] {
            [package, target, test] => {
                let (package, target) = (package.to_owned(), target.to_owned());
                (Suite::Cargo { package, target }, test.to_owned())
            }
            _ => return Err(lacks("`Test: PACKAGE TARGET NAME`")),
        },
        _ => return Err(lacks("`Case:` or `Test:`")),
    };
    Ok(Mutant { name, path: path.to_path_buf(), mistake, suite, test })
}

/// Brings the copy up to the checkout, uncommitted changes included. What is the same is left alone, so that
/// cargo sees what changed.
pub fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = process::output(&mut git).ok_or_else(|| {
        Failure::unusable("git does not list the files of the checkout", "run this in a git checkout")
    })?;
    let listed: HashSet<&Path> = list.split('\0').filter(|f| !f.is_empty()).map(Path::new).collect();
    // What an earlier copy has and the checkout has no more would be compiled, too.
    remove_others(tree, Path::new(""), &listed);
    for file in listed {
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

/// Removes the files below `tree/at` that are not listed.
fn remove_others(tree: &Path, at: &Path, listed: &HashSet<&Path>) {
    for entry in fs::read_dir(tree.join(at)).into_iter().flatten().flatten() {
        let file = at.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(tree, &file, listed);
        } else if !listed.contains(file.as_path()) {
            // One that stays shows when the copy is compiled.
            let _ = fs::remove_file(tree.join(file));
        }
    }
}

/// Makes the mistake, or takes it back.
pub fn apply(tree: &Path, patch: &Path, reverse: bool) -> Result<()> {
    let mut git = git_apply(tree, patch);
    git.args(reverse.then_some("--reverse"));
    process::run(&mut git)
}

/// Git's words on a patch that does not apply to this tree; none if it does. Nothing is changed.
pub fn refusal(tree: &Path, patch: &Path) -> Result<Option<String>> {
    let output = git_apply(tree, patch).arg("--check").output().map_err(|error| {
        Failure::unusable(format!("git cannot be started ({error})"), "`cargo xtask setup base` installs it")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().map_or("git gives no reason", |line| line.trim_start_matches("error: "));
    Ok((!output.status.success()).then(|| first.to_owned()))
}

/// The command that applies a patch to a tree. A line of context on each side of a change must be there, at
/// any distance from where it was.
fn git_apply(tree: &Path, patch: &Path) -> Command {
    let mut git = Command::new("git");
    git.args(["apply", "--recount", "-C1"]).arg(patch).current_dir(tree);
    // The copy lies inside the checkout, whose repository must not be found.
    git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Mutant> {
        parse(Path::new("some/thing.patch"), text)
    }

    #[test]
    fn a_patch_says_what_is_wrong_and_who_catches_it() {
        let case = read("Mistake: a b\nCase: OP(n=[1,2])\n\n--- a/x\n+++ b/x\nCase: not this\n").unwrap();
        assert_eq!((case.name.as_str(), case.mistake.as_str()), ("thing", "a b"));
        assert_eq!((case.suite, case.test.as_str()), (Suite::Conformance, "OP(n=[1,2])"));
        let test = read("Mistake: a\nTest: some-package lib some::test\n\n--- a/x\n").unwrap();
        let (package, target) = ("some-package".to_owned(), "lib".to_owned());
        assert_eq!((test.suite, test.test.as_str()), (Suite::Cargo { package, target }, "some::test"));
        for text in ["Mistake: a\n--- a/x\nCase: late\n", "Mistake: a\nTest: two words\n", "Case: a\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_the_checkout_has_no_more_goes() {
        let tree = std::env::temp_dir().join(format!("hexflash-mutants-{}", std::process::id()));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        for file in ["a/b/kept", "a/b/gone", "gone"] {
            fs::write(tree.join(file), "").unwrap();
        }
        remove_others(&tree, Path::new(""), &HashSet::from([Path::new("a/b/kept")]));
        let left = ["a/b/kept", "a/b/gone", "gone"].map(|file| tree.join(file).exists());
        fs::remove_dir_all(&tree).unwrap();
        assert_eq!(left, [true, false, false]);
    }

    #[test]
    fn every_patch_of_the_repository_is_complete() {
        let root = process::workspace_root().unwrap();
        let mutants = read_all(&root.join("tests/mutants")).unwrap();
        assert!(mutants.len() >= 60, "{} mutants", mutants.len());
    }

    #[test]
    fn a_patch_whose_lines_have_changed_is_refused() {
        let tree = std::env::temp_dir().join(format!("hexflash-stale-{}", std::process::id()));
        fs::create_dir_all(&tree).unwrap();
        let patch = tree.join("a.patch");
        let diff = "--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@\n before\n-right\n+wrong\n after\n";
        fs::write(&patch, format!("Mistake: a\nCase: OP\n\n{diff}")).unwrap();
        let refused =
            ["first\nmore\nbefore\nright\nafter\n", "first\nbefore\nnew\nafter\n", "right\n"].map(|text| {
                fs::write(tree.join("x"), text).unwrap();
                let refused = refusal(&tree, &patch).unwrap();
                assert_eq!(fs::read_to_string(tree.join("x")).unwrap(), text, "nothing is changed");
                refused
            });
        fs::remove_file(tree.join("x")).unwrap();
        let missing = refusal(&tree, &patch).unwrap();
        fs::remove_dir_all(&tree).unwrap();
        assert_eq!(refused[0], None);
        for why in [&refused[1], &refused[2], &missing] {
            assert!(why.as_ref().is_some_and(|why| why.contains('x')), "{why:?}");
        }
    }
}
