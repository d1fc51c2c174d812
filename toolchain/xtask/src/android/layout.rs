//! The layout of a program beside that of a library which the NDK has linked: segment by segment, and by the
//! tags of the dynamic section. Phones load thousands of the NDK's files, so that what differs from them
//! needs a reason.

use std::fs;
use std::path::Path;

use object::LittleEndian;
use object::elf::{self, DynamicTag, ProgramType};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};

use crate::download::{Archive, Format};
use crate::failure::{Failure, Result};

/// Package that Android apps ship, with libraries of the NDK r27d. Later versions of it have none.
const PACKAGE: Archive = Archive {
    name: "llama.rn-0.11.5-jni",
    url: "https://registry.npmjs.org/llama.rn/-/llama.rn-0.11.5.tgz",
    sha256: "537adf6ce0ecd372b653000d69c7e7c17291d6a79895561b5fad00bc870bf2c0",
    format: Format::TarGz,
    keep: "package/android/src/main/jniLibs/arm64-v8a",
};

/// The library of the package that the layout is compared with.
const LIBRARY: &str = "librnllama_v8_2_dotprod.so";

/// Tags that a program has and a library has not: where a debugger finds the loader's list.
const OF_PROGRAMS: [DynamicTag; 1] = [elf::DT_DEBUG];

/// Compares a program with the NDK's library.
pub fn compare(program: &Path) -> Result<()> {
    let reference = PACKAGE.fetch()?.join(LIBRARY);
    let differences = Layout::read(program)?.differences(&Layout::read(&reference)?);
    if differences.is_empty() {
        println!("{} has the layout of {LIBRARY}, which the NDK has linked", program.display());
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not as the NDK links: {}", program.display(), differences.join("; ")),
        "see toolchain/xtask/src/android/layout.rs",
    ))
}

/// What a loader sees of a file before it reads any name.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    /// Kind, rights and alignment of each segment, in the file's order. A library has no loader, so that the
    /// segment which names it is left out.
    segments: Vec<(ProgramType, u32, u64)>,
    tags: Vec<DynamicTag>,
}

impl Layout {
    fn read(file: &Path) -> Result<Self> {
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("{} cannot be read ({error})", file.display()), "fetch or build it again")
        };
        let data = fs::read(file).map_err(|error| unreadable(&error))?;
        Self::parse(&data).map_err(|error| unreadable(&error))
    }

    fn parse(data: &[u8]) -> object::Result<Self> {
        let elf = ElfFile64::<LittleEndian>::parse(data)?;
        let endian = elf.endian();
        let headers = elf.elf_header().program_headers(endian, data)?;
        let segments = headers
            .iter()
            .map(|it| (it.p_type(endian), it.p_flags(endian).0, it.p_align(endian)))
            .filter(|(kind, ..)| *kind != elf::PT_INTERP)
            .collect();
        let mut tags = Vec::new();
        for header in headers {
            let entries = header.dynamic(endian, data)?.unwrap_or_default();
            tags.extend(entries.iter().map(|entry| entry.d_tag(endian)));
        }
        Ok(Self { segments, tags })
    }

    /// What differs from `ndk`'s: any segment, and tags that it has not.
    fn differences(&self, ndk: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        if self.segments != ndk.segments {
            let [ours, theirs] = [self, ndk].map(|it| format!("{:x?}", it.segments));
            differences.push(format!("its segments are {ours}, and not {theirs}"));
        }
        let unknown = self.tags.iter().filter(|tag| !ndk.tags.contains(tag) && !OF_PROGRAMS.contains(tag));
        differences.extend(unknown.map(|tag| format!("its dynamic section has {tag:?}")));
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ndk() -> Layout {
        Layout {
            segments: vec![(elf::PT_LOAD, 5, 0x4000), (elf::PT_LOAD, 6, 0x4000)],
            tags: vec![elf::DT_NEEDED, elf::DT_GNU_HASH],
        }
    }

    #[test]
    fn a_program_may_be_debugged() {
        let program = Layout { tags: vec![elf::DT_DEBUG, elf::DT_GNU_HASH], ..ndk() };
        assert!(program.differences(&ndk()).is_empty());
    }

    #[test]
    fn what_the_ndk_does_not_do_is_told() {
        let unaligned = Layout { segments: vec![(elf::PT_LOAD, 5, 0x1000)], ..ndk() };
        let packed = Layout { tags: vec![elf::DT_RELR], ..ndk() };
        assert_eq!([unaligned, packed].map(|it| it.differences(&ndk()).len()), [1, 1]);
    }
}
