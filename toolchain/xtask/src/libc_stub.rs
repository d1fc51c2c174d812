//! A stand-in for the DSP's `libc.so` that a skel is linked with, so that it names that library. Only its
//! name and its symbols matter: the loader of the DSP takes the real one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use object::SymbolScope;
use object::write::{Object, StandardSection};

use crate::arch_object;
use crate::failure::{Failure, Result};
use crate::process;
use crate::skel::{FROM_LIBC, LIBC};
use crate::toolchain::Toolchain;

/// Makes it in a folder, for the architecture `arch` (0x73 for v73); gives its file.
pub fn make(toolchain: &Toolchain, arch: u16, folder: &Path) -> Result<PathBuf> {
    let (object_file, library) = (folder.join("libc.o"), folder.join(LIBC));
    let made = object(arch).write().map_err(io::Error::other);
    let written =
        made.and_then(|data| fs::create_dir_all(folder).and_then(|()| fs::write(&object_file, data)));
    written.map_err(|error| Failure::on_disk("write", &object_file, &error))?;
    let mut linker = toolchain.linker()?;
    linker.args(["-shared", "--hash-style=sysv", "-soname", LIBC, "-o"]).arg(&library).arg(&object_file);
    process::run(&mut linker)?;
    Ok(library)
}

fn object(arch: u16) -> Object<'static> {
    let mut object = arch_object::empty(arch);
    for name in FROM_LIBC {
        arch_object::define(
            &mut object,
            name.as_bytes(),
            StandardSection::Text,
            SymbolScope::Dynamic,
            &[0; 4],
        );
    }
    object
}
