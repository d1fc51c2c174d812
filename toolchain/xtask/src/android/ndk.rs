//! Linking with the NDK, Android's own development kit, where there is one.

use std::env;
use std::path::{Path, PathBuf};

use super::check::Libraries;
use super::kit::Kit;
use super::target::{API, TARGET};
use crate::failure::{Failure, Result};

/// Variable that names the folder of the kit.
const HOME: &str = "ANDROID_NDK_HOME";
/// Options for the kit's clang at each link: kits before r28 align segments to 4 KiB, and relocations are
/// to have the form that every system knows.
const ALWAYS: [&str; 2] = ["-Clink-arg=-Wl,-z,max-page-size=16384", "-Clink-arg=-Wl,--pack-dyn-relocs=none"];

/// The clang of the kit that the environment names, if it names one.
pub fn clang() -> Result<Option<PathBuf>> {
    match env::var_os(HOME) {
        Some(home) if !home.is_empty() => find(Path::new(&home)).map(Some),
        _ => Ok(None),
    }
}

/// The kit's clang for the API level, among the programs for this machine.
fn find(home: &Path) -> Result<PathBuf> {
    let hosts = home.join("toolchains/llvm/prebuilt").read_dir().into_iter().flatten().flatten();
    let name = format!("bin/{TARGET}{API}-clang");
    let found = hosts.map(|host| host.path().join(&name)).find(|clang| clang.is_file());
    found.ok_or_else(|| {
        Failure::unusable(
            format!("{HOME} names {}, which has no {name} for this machine", home.display()),
            "name an NDK from r23 on, or unset the variable: hexflash links without one",
        )
    })
}

/// Kit for links by this clang. Start code, unwinder and libraries are the kit's.
pub fn kit(clang: PathBuf) -> Kit {
    let always = ALWAYS.map(str::to_owned).to_vec();
    Kit { linker: clang, always, objects: None, libraries: Libraries::OfNdk }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_clang_of_the_api_level_is_taken() {
        let home = env::temp_dir().join(format!("hexflash-ndk-{}", std::process::id()));
        let bin = home.join("toolchains/llvm/prebuilt/linux-x86_64/bin");
        fs::create_dir_all(&bin).unwrap();
        let missing = find(&home);
        let clang = bin.join("aarch64-linux-android28-clang");
        for file in [&clang, &bin.join("aarch64-linux-android35-clang")] {
            fs::write(file, "").unwrap();
        }
        let found = find(&home);
        fs::remove_dir_all(&home).unwrap();
        assert!(missing.unwrap_err().to_string().contains("ANDROID_NDK_HOME"));
        assert_eq!(found.unwrap(), clang);
        let kit = kit(clang);
        assert!(kit.rustflags().contains("max-page-size=16384") && kit.objects.is_none());
    }
}
