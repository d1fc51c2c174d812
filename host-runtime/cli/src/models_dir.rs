//! The models of a folder, which `hexflash serve --models-dir` has: their names, and whether they could be
//! loaded.

use std::collections::BTreeMap;
use std::path::Path;

use hexflash::engine::{EngineOptions, ModelFiles, ModelFit, fit};
use hexflash::gguf::{Gguf, ShardName};
use hexflash_server::Listed;

use super::CliError;
use super::hub::{files, first_part, is_model};

/// Name of the device whose sessions map a few GiB at most.
const HTP: &str = "htp";

/// Models in a folder and those below it, by name: that of the file, or of its folder if it is alone in one.
///
/// # Errors
/// There is none, or two have the same name.
pub(super) fn list(folder: &Path) -> Result<Vec<Listed>, CliError> {
    let all = files(folder);
    let bytes_of = |name: &String| folder.join(name).metadata().map_or(0, |data| data.len());
    // Bytes by the first part.
    let mut models: BTreeMap<String, u64> = BTreeMap::new();
    for name in all.iter().filter(|name| is_model(name)) {
        *models.entry(first_part(name)).or_default() += bytes_of(name);
    }
    let folder_of = |name: &str| name.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let mut listed: BTreeMap<String, Listed> = BTreeMap::new();
    for (file, &bytes) in &models {
        let own = folder_of(file);
        let is_alone = models.keys().filter(|other| folder_of(other) == own).count() == 1;
        let name = match own.filter(|_| is_alone) {
            Some(own) => own,
            None => stem(file),
        };
        let one = Listed { name: name.clone(), path: folder.join(file), bytes };
        if let Some(other) = listed.insert(name.clone(), one) {
            return Err(CliError::SameName { name, first: other.path, second: folder.join(file) });
        }
    }
    if listed.is_empty() {
        return Err(CliError::NoModels { folder: folder.to_owned() });
    }
    Ok(listed.into_values().collect())
}

/// File name without its end, and without the number of a part.
fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let prefix = ShardName::parse(name).map(|part| part.prefix);
    prefix.unwrap_or_else(|| name.get(..name.len() - ".gguf".len()).unwrap_or(name)).to_owned()
}

/// That a model could have room, as far as that is known before another one has given way to it.
///
/// # Errors
/// It has none on any version of the NPU, or the machine is too small; a setting cannot be used.
pub(super) fn has_room(gguf: &Gguf, options: &EngineOptions, device: &str) -> Result<(), CliError> {
    let fit = fit(ModelFiles::of(gguf), options)?;
    if device == HTP && fit.chips.iter().all(|chip| chip.sessions.is_none()) {
        return Err(CliError::NoRoom { needs: mib(needs(&fit)), place: "any NPU".to_owned() });
    }
    match memory() {
        Some(there) if needs(&fit) > there => Err(CliError::NoRoom {
            needs: mib(needs(&fit)),
            place: format!("this machine, which has {} MiB", mib(there)),
        }),
        _ => Ok(()),
    }
}

/// Bytes that the model takes, on the version where it takes most.
fn needs(fit: &ModelFit) -> u64 {
    let of_chip = |chip: &hexflash::engine::ChipFit| chip.needs.iter().map(|needs| needs.total()).sum();
    fit.chips.iter().map(of_chip).max().unwrap_or(0)
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// Bytes of this machine's memory.
fn memory() -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let info = rustix::system::sysinfo();
        Some(info.totalram.saturating_mul(info.mem_unit.into()))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(files: &[&str]) -> Result<Vec<(String, u64)>, CliError> {
        let folder = tempfile::TempDir::new().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "some").unwrap();
        }
        Ok(list(folder.path())?.into_iter().map(|one| (one.name, one.bytes)).collect())
    }

    #[test]
    fn models_have_the_names_of_their_files_or_folders() {
        let found = names(&[
            "small.gguf",
            "mmproj-small.gguf",
            "split-00001-of-00002.gguf",
            "split-00002-of-00002.gguf",
            "alone/weights-Q4_0.gguf",
            "alone/mmproj-F16.gguf",
            "both/a.gguf",
            "both/B.GGUF",
            "notes.txt",
        ]);
        let found = found.unwrap();
        let expected = [("B", 4), ("a", 4), ("alone", 4), ("small", 4), ("split", 8)];
        assert_eq!(found, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn a_folder_without_models_or_with_one_name_twice_is_refused() {
        let error = names(&["mmproj.gguf", "readme"]).unwrap_err().to_string();
        assert!(error.contains("no GGUF model"), "{error}");
        let error = names(&["a.gguf", "more/a.gguf", "more/b.gguf"]).unwrap_err().to_string();
        assert!(error.contains("a.gguf and ") && error.contains("rename one"), "{error}");
    }
}
