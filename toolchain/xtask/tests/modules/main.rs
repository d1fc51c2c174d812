//! Modules use each other in one direction. Each crate of the repository is read, and each module that has
//! more than a few files below it: among its modules and its own file there is no circle, as in `x` uses `y`
//! and `y` uses `x`.
//!
//! A module uses what it names, in `use` or in between, wherever that is defined: a name that another module
//! only gives on (`pub use`) leads to its home. The file of a type also uses all files in which the type has
//! methods that belong to no trait, because who calls a method does not say where it stands. What only tests
//! compile is left out.
//!
//! [`CIRCLES`] has what is not in order yet, with its reason. It may only get shorter.

mod circles;
mod listed;
mod planted;
mod read;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

use listed::{APART, CIRCLES};
use tree::{Arrows, Tree};

/// Files below a module up to which they may use each other as they like.
const FEW: usize = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The roots of all crates, relative to the repository: libraries, programs and tests.
fn roots() -> Vec<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*Cargo.toml"]).current_dir(root());
    let listed = String::from_utf8(git.output().unwrap().stdout).unwrap();
    let mut found = Vec::new();
    for folder in listed.lines().filter_map(|manifest| Path::new(manifest).parent()) {
        found.extend(["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)));
        for entry in fs::read_dir(root().join(folder).join("tests")).into_iter().flatten() {
            let path = folder.join("tests").join(entry.unwrap().file_name());
            found.push(if path.extension().is_some_and(|it| it == "rs") {
                path
            } else {
                path.join("main.rs")
            });
        }
    }
    found.retain(|path| root().join(path).is_file());
    found
}

/// Each crate by the folder of its root, or by the file of a test, and what its files use.
static CRATES: LazyLock<Vec<(String, Arrows)>> = LazyLock::new(|| {
    let read = |root_file: PathBuf| {
        let tree = Tree::of(&root_file, &|file| fs::read_to_string(root().join(file)).ok());
        let is_folder = root_file.ends_with("lib.rs") || root_file.ends_with("main.rs");
        let name = if is_folder { root_file.parent().unwrap() } else { &root_file };
        (name.display().to_string(), tree.unwrap().arrows())
    };
    roots().into_iter().map(read).collect()
});

/// A circle: the module that it is in, the modules of it, and its explanation.
type Circle = (String, usize, String);

/// All circles of a crate among the modules right below one that has more than a few files.
fn circles_of(name: &str, arrows: &Arrows) -> Vec<Circle> {
    let outer: BTreeSet<_> =
        arrows.keys().flat_map(|file| (0..file.len()).map(|n| file[..n].to_vec())).collect();
    let mut found = Vec::new();
    for module in outer {
        if arrows.keys().filter(|file| file.starts_with(&module)).count() <= FEW {
            continue;
        }
        let place = [&[name.to_owned()], &module[..]].concat().join("/");
        let arrows = circles::within(arrows, &module);
        let circles = circles::circles(&arrows);
        found.extend(circles.iter().map(|it| (place.clone(), it.len(), circles::explain(&arrows, it))));
    }
    found
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let (files, arrows) = CRATES.iter().fold((0, 0), |(files, arrows), (_, crate_)| {
        (files + crate_.len(), arrows + crate_.values().map(|used| used.len()).sum::<usize>())
    });
    assert!(files > 900 && arrows > 3000, "{files} files, {arrows} arrows");
    let found: Vec<Circle> = CRATES.iter().flat_map(|(name, arrows)| circles_of(name, arrows)).collect();
    let mut wrong = Vec::new();
    let places: BTreeSet<_> =
        found.iter().map(|it| it.0.as_str()).chain(CIRCLES.iter().map(|it| it.0)).collect();
    for place in places {
        let here: Vec<_> = found.iter().filter(|it| it.0 == place).collect();
        let modules: usize = here.iter().map(|it| it.1).sum();
        let listed = CIRCLES.iter().find(|it| it.0 == place).map_or(0, |it| it.1);
        if modules > listed {
            let ways: Vec<_> = here.iter().map(|it| it.2.as_str()).collect();
            wrong.push(format!(
                "{place}: {modules} modules in circles ({listed} listed)\n{}",
                ways.join("\n")
            ));
        } else if modules < listed {
            wrong.push(format!(
                "{place}: {listed} modules are listed, {modules} are in circles: shorten the list"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn families_use_nothing_of_each_other() {
    let mut wrong = Vec::new();
    for &(name, outer, apart) in APART {
        let (_, arrows) = CRATES.iter().find(|it| it.0 == name).unwrap();
        let outer: Vec<_> = outer.split('/').map(str::to_owned).collect();
        let arrows = circles::within(arrows, &outer);
        let is_apart = |module: &[String]| module.last().is_some_and(|name| apart.contains(&name.as_str()));
        assert_eq!(arrows.keys().filter(|module| is_apart(module)).count(), apart.len(), "{name}: {apart:?}");
        let between = arrows.iter().filter(|it| is_apart(it.0)).flat_map(|it| it.1);
        wrong.extend(between.filter(|it| is_apart(it.0)).map(|it| it.1.clone()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
