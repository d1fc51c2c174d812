//! The modules of `model` use each other in one direction: no circle, also none hidden by methods in other
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model")
}

/// All source files below a folder, without what is behind `#[cfg(test)]`.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            found.insert(path, product);
        }
    }
}

fn sources() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    files(&folder(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    found
}

/// The file that a path of modules leads to, from a folder on: the last one on the way.
fn file_of(mut at: PathBuf, path: &str) -> PathBuf {
    for name in path.split("::") {
        let (file, inner) = (at.join(format!("{name}.rs")), at.join(name));
        if file.is_file() {
            return file;
        }
        if !inner.is_dir() {
            break;
        }
        at = inner;
    }
    at.join("mod.rs")
}

/// The files that `file` names: in `use`, and in paths in between.
fn used(file: &Path, text: &str) -> BTreeSet<PathBuf> {
    let own = file.parent().unwrap();
    let is_mod = file.ends_with("mod.rs");
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        for (start, base) in [
            ("crate::model::", folder()),
            ("super::", if is_mod { own.parent().unwrap() } else { own }.to_path_buf()),
        ] {
            for (at, _) in line.match_indices(start).filter(|&(at, _)| !line[..at].ends_with("::")) {
                let path: String = line[at + start.len()..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                    .collect();
                found.insert(file_of(base.clone(), &path));
            }
        }
        // What a folder's own file gives on.
        if let Some(path) = line.strip_prefix("pub use ").filter(|_| is_mod) {
            found.insert(file_of(own.to_path_buf(), path.split("::").next().unwrap()));
        }
    }
    found.remove(file);
    found
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let sources = sources();
    let mut left: BTreeMap<_, _> =
        sources.iter().map(|(file, text)| (file.clone(), used(file, text))).collect();
    let arrows: usize = left.values().map(BTreeSet::len).sum();
    assert!(arrows > 60, "{left:#?}");
    // What uses nothing that is left cannot be part of a circle.
    while let Some(file) = left
        .iter()
        .find(|(_, used)| used.iter().all(|file| !left.contains_key(file)))
        .map(|(file, _)| file.clone())
    {
        left.remove(&file);
    }
    assert!(left.is_empty(), "in a circle, or above one: {left:#?}");
}

/// A method is called without naming the file that it stands in.
#[test]
fn the_methods_of_a_type_stand_in_its_folder() {
    let home = folder().join("graph");
    for (file, text) in sources() {
        let elsewhere = text.lines().find(|line| line.starts_with("impl") && line.contains(" Graph<"));
        assert!(file.starts_with(&home) || elsewhere.is_none(), "{}: {elsewhere:?}", file.display());
    }
}
