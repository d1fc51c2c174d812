//! The system of a device: asked before anything is pushed, because the program that fits depends on it.

use std::fmt::Write;
use std::path::Path;

use hexflash::device::{Chip, KnownChip};

use super::adb::{Adb, clean};
use super::{DeployError, Distribution};

/// The questions. Each answer is a line `name=value`; what the device does not know is empty.
const QUESTIONS: &str = "prop() { getprop $1 2>/dev/null; }; file() { cat $1 2>/dev/null; }; \
     echo machine=$(uname -m); \
     echo abi=$(prop ro.product.cpu.abi); \
     echo api=$(prop ro.build.version.sdk); \
     echo release=$(prop ro.build.version.release); \
     echo model=$(prop ro.soc.model); \
     echo platform=$(prop ro.board.platform); \
     echo soc=$(file /sys/devices/soc0/machine); \
     echo id=$(file /sys/devices/soc0/soc_id); \
     echo page=$(getconf PAGE_SIZE 2>/dev/null); \
     [ ! -e /system/bin/linker64 ] || echo loader=bionic; \
     [ ! -e /lib/ld-linux-aarch64.so.1 ] || echo loader=glibc; \
     [ ! -e /lib/ld-musl-aarch64.so.1 ] || echo loader=musl";

/// The lowest level of Android's API that the program for it runs on: that of Android 9.
const LOWEST_API: u32 = 28;

/// A device's answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct System {
    /// The processor, as `uname -m` has it.
    pub(super) machine: String,
    /// The processor that Android's programs are for.
    abi: String,
    /// The level of Android's API.
    api: Option<u32>,
    /// Android's version, as its users know it.
    release: String,
    /// The chip's number, as the system has it.
    chip: String,
    /// Android's name of a family of chips.
    platform: String,
    /// Bytes of a page of memory.
    page: Option<u64>,
    /// Loaders of programs that are there.
    loaders: Vec<String>,
}

impl System {
    /// Asks a device.
    pub(super) fn ask(adb: &Adb) -> Result<Self, DeployError> {
        Ok(Self::parse(&adb.script("it was asked what it is", QUESTIONS)?))
    }

    fn parse(answers: &str) -> Self {
        let mut system = Self::default();
        let [mut soc, mut id] = [String::new(), String::new()];
        for (name, value) in answers.lines().filter_map(|line| line.split_once('=')) {
            let value = clean(value.trim());
            match name {
                "machine" => system.machine = value,
                "abi" => system.abi = value,
                "api" => system.api = value.parse().ok(),
                "release" => system.release = value,
                "model" => system.chip = value,
                "platform" => system.platform = value,
                "soc" => soc = value,
                "id" => id = value,
                "page" => system.page = value.parse().ok(),
                "loader" => system.loaders.push(value),
                _ => {}
            }
        }
        // The property came with Android 12; before that, and on Linux, the kernel may say it.
        if system.chip.is_empty() {
            system.chip = match (soc.as_str(), id.as_str()) {
                ("", "") => String::new(),
                ("", id) => format!("number {id} of the vendor's"),
                (soc, _) => soc.to_owned(),
            };
        }
        system
    }

    fn is_android(&self) -> bool {
        self.api.is_some() || self.has("bionic")
    }

    fn has(&self, loader: &str) -> bool {
        self.loaders.iter().any(|found| found == loader)
    }

    /// The folder with the program that the device can start.
    ///
    /// # Errors
    /// There is no such program, and why.
    pub(super) fn distribution(&self) -> Result<Distribution, DeployError> {
        let machine = || self.machine.clone();
        if self.is_android() {
            if self.machine != "aarch64" {
                return Err(DeployError::Emulator { machine: machine() });
            }
            if !matches!(self.abi.as_str(), "arm64-v8a" | "") {
                return Err(DeployError::Narrow { abi: self.abi.clone() });
            }
            if let Some(found) = self.api.filter(|api| *api < LOWEST_API) {
                return Err(DeployError::OldAndroid { found, lowest: LOWEST_API });
            }
            return Ok(Distribution::android());
        }
        if self.machine != "aarch64" {
            return Err(DeployError::NoSnapdragon { machine: machine() });
        }
        if self.has("glibc") {
            return Ok(Distribution::linux());
        }
        Err(if self.has("musl") { DeployError::Musl } else { DeployError::NoLoader })
    }

    /// The device in one line, with the library that its DSP will ask for, where its chip is known.
    pub(super) fn describe(&self, dist: &Path) -> String {
        let mut line = match (self.is_android(), self.api) {
            (true, Some(api)) if !self.release.is_empty() => format!("Android {} (API {api})", self.release),
            (true, Some(api)) => format!("Android of API {api}"),
            (true, None) => "Android".to_owned(),
            (false, _) => format!("Linux on {}", self.machine),
        };
        if let Some(page) = self.page {
            // Writing to a string cannot fail.
            let _ = write!(line, ", pages of {} KiB", page >> 10);
        }
        let known = KnownChip::of(&self.chip);
        let _ = match (known, self.chip.as_str(), self.platform.as_str()) {
            (Some(KnownChip { name, arch }), chip, _) => {
                let skel = Chip::for_arch(arch).skel();
                let missing = if dist.join(&skel).exists() { "" } else { ", which is not there" };
                write!(line, "; Snapdragon {name} ({chip}), Hexagon v{arch:x}: {skel}{missing}")
            }
            (None, "", "") => write!(line, "; its chip is not known, the DSP says which library it needs"),
            (None, "", platform) => {
                write!(line, "; a chip of platform {platform}, the DSP says which library it needs")
            }
            (None, chip, _) => {
                write!(line, "; chip {chip} is not in the table, the DSP says which library it needs")
            }
        };
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: &str = "machine=aarch64\nabi=arm64-v8a\napi=34\nrelease=14\nmodel=SM8650\nplatform=pineapple\n\
         soc=\nid=\npage=4096\nloader=bionic\n";

    fn described(answers: &str) -> String {
        System::parse(answers).describe(Path::new("/nowhere"))
    }

    #[test]
    fn a_phone_is_described_in_one_line() {
        let line = "Android 14 (API 34), pages of 4 KiB; Snapdragon 8 Gen 3 (SM8650), Hexagon v75: \
             libhexflash_skel_v75.so, which is not there";
        assert_eq!(described(PHONE), line);
        let older = PHONE.replace("SM8650", "").replace("soc=", "soc=SM8350").replace("page=4096", "page=");
        assert!(described(&older).contains("(API 34); Snapdragon 888 (SM8350), Hexagon v68"), "{older}");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let other = |model: &str| described(&PHONE.replace("SM8650", model));
        assert!(other("MT6985").contains("chip MT6985 is not in the table"));
        assert!(other("").contains("a chip of platform pineapple"));
        let id = PHONE.replace("SM8650", "").replace("id=", "id=557");
        assert!(described(&id).contains("chip number 557 of the vendor's is not in the table"));
        assert!(
            described("machine=aarch64\nloader=glibc\n").starts_with("Linux on aarch64; its chip is not")
        );
        assert!(described("").contains("Linux on "));
    }

    #[test]
    fn nothing_that_a_device_says_steers_the_terminal() {
        assert!(!described(&PHONE.replace("SM8650", "\x1b[2J")).contains('\x1b'));
    }

    /// A board may have both; programs for glibc are what is built.
    #[test]
    fn the_loader_decides_about_the_program() {
        let folder = |answers: &str| System::parse(answers).distribution().map(|dist| dist.dir);
        assert!(folder(PHONE).unwrap().ends_with("aarch64-linux-android"));
        assert!(folder("machine=aarch64\napi=28\n").unwrap().ends_with("aarch64-linux-android"));
        let both = "machine=aarch64\nloader=glibc\nloader=musl\n";
        assert!(folder(both).unwrap().ends_with("aarch64-unknown-linux-gnu"));
        for (answers, cause) in [
            (PHONE.replace("api=34", "api=27"), "API 27"),
            (PHONE.replace("arm64-v8a", "armeabi-v7a"), "armeabi-v7a"),
            (PHONE.replace("aarch64", "x86_64"), "no NPU"),
            ("machine=aarch64\nloader=musl\n".to_owned(), "musl"),
            ("machine=aarch64\n".to_owned(), "no loader"),
            ("machine=x86_64\n".to_owned(), "x86_64"),
        ] {
            let error = folder(&answers).unwrap_err().to_string();
            assert!(error.contains(cause) && error.contains("; "), "{error}");
        }
    }
}
