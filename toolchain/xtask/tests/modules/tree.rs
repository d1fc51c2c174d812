//! The modules of a crate, and the files that each of them uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{iter, mem};

use crate::read::{self, Child, Names};

/// Steps from name to name after which a path is given up: it names itself.
const MAX_STEPS: usize = 24;

/// The modules of one crate.
pub struct Tree {
    /// The root is the first.
    modules: Vec<Module>,
}

/// A module of the tree.
struct Module {
    read: read::Module,
    /// The file that it stands in.
    file: PathBuf,
    /// The names that lead to that file from the root.
    names_of_file: Names,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

/// Files by the names of their modules, and for each the files that it uses, with the reason.
pub type Arrows = BTreeMap<Names, BTreeMap<Names, String>>;

/// The text of a file, if there is one.
pub type Files<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Tree {
    /// The tree below a file that is the root of a crate, or the reason why it cannot be read.
    pub fn of(root: &Path, files: Files<'_>) -> Result<Self, String> {
        let mut tree = Self { modules: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new(""));
        tree.add_file(files, root, folder, None, &[])?;
        Ok(tree)
    }

    /// Reads a file whose modules are in `folder`, and those.
    fn add_file(
        &mut self,
        files: Files<'_>,
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        names: &[String],
    ) -> Result<usize, String> {
        let text = files(file).ok_or_else(|| format!("{} is declared and does not exist", file.display()))?;
        let read = read::module(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let module = Module {
            read,
            file: file.to_owned(),
            names_of_file: names.to_vec(),
            parent,
            children: BTreeMap::new(),
        };
        self.add(files, module, folder, names)
    }

    /// Adds a module whose modules are in `folder`, and those.
    fn add(
        &mut self,
        files: Files<'_>,
        mut module: Module,
        folder: &Path,
        names: &[String],
    ) -> Result<usize, String> {
        let declared = mem::take(&mut module.read.children);
        let id = self.modules.len();
        let (file, names_of_file) = (module.file.clone(), module.names_of_file.clone());
        self.modules.push(module);
        for (name, child) in declared {
            let inner: Names = names.iter().cloned().chain(iter::once(name.clone())).collect();
            let below = folder.join(&name);
            let added = match child {
                Child::Inline(read) => {
                    let (file, names_of_file) = (file.clone(), names_of_file.clone());
                    let children = BTreeMap::new();
                    let module = Module { read, file, names_of_file, parent: Some(id), children };
                    self.add(files, module, &below, &inner)?
                }
                Child::File(Some(path)) => {
                    let path = file.with_file_name(path);
                    self.add_file(files, &path, &path.with_extension(""), Some(id), &inner)?
                }
                Child::File(None) => {
                    let flat = below.with_extension("rs");
                    let path = if files(&flat).is_some() { flat } else { below.join("mod.rs") };
                    self.add_file(files, &path, &below, Some(id), &inner)?
                }
            };
            self.modules[id].children.insert(name, added);
        }
        Ok(id)
    }

    /// The module that a path leads to from another one, or that defines what it names. None if that is in
    /// another crate.
    fn resolve(&self, from: usize, path: &[String], steps: usize) -> Option<usize> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => {
                let mut at = self.modules[from].parent?;
                while rest.first().is_some_and(|name| name == "super") {
                    (at, rest) = (self.modules[at].parent?, &rest[1..]);
                }
                at
            }
            name => {
                let (found, is_module) = self.name(from, name, steps)?;
                if !is_module {
                    return Some(found);
                }
                found
            }
        };
        for name in rest {
            let Some((found, is_module)) = self.name(at, name, steps) else { break };
            at = found;
            if !is_module {
                break;
            }
        }
        Some(at)
    }

    /// The module that a name in a module stands for, or the one that defines it, and whether it is a module.
    fn name(&self, at: usize, name: &str, steps: usize) -> Option<(usize, bool)> {
        let module = &self.modules[at];
        if let Some(&child) = module.children.get(name) {
            return Some((child, true));
        }
        if module.read.defined.contains(name) {
            return Some((at, false));
        }
        if steps == MAX_STEPS {
            return None;
        }
        if let Some(path) = module.read.bound.get(name) {
            let found = self.resolve(at, path, steps + 1)?;
            let is_module = self.modules[found].parent.is_none_or(|parent| {
                path.last().is_some_and(|last| self.modules[parent].children.get(last) == Some(&found))
            });
            return Some((found, is_module));
        }
        module.read.globs.iter().find_map(|path| {
            let found = self.resolve(at, path, steps + 1).filter(|&found| found != at)?;
            self.name(found, name, steps + 1)
        })
    }

    /// The files that each file uses. A file whose type has methods in another file uses that one: who calls
    /// a method does not say where it stands.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (id, module) in self.modules.iter().enumerate() {
            arrows.entry(module.names_of_file.clone()).or_default();
            let mut add = |from: usize, to: usize, reason: String| {
                let [from, to] = [from, to].map(|id| &self.modules[id]);
                if from.file != to.file {
                    let reason = format!("{}: {reason}, in {}", from.file.display(), to.file.display());
                    let used = arrows.entry(from.names_of_file.clone()).or_default();
                    used.entry(to.names_of_file.clone()).or_insert(reason);
                }
            };
            for path in &module.read.paths {
                if let Some(to) = self.resolve(id, path, 0) {
                    add(id, to, format!("`{}`", path.join("::")));
                }
            }
            for owner in &module.read.methods_of {
                if let Some(home) = self.resolve(id, owner, 0) {
                    add(home, id, format!("methods of `{}`", owner.join("::")));
                }
            }
        }
        arrows
    }
}
