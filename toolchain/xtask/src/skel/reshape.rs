//! The last steps of a link, for what the linker cannot be told.

use std::fs;
use std::path::Path;

use object::elf::{DT_FLAGS, DT_RUNPATH, DT_SYMBOLIC, PT_PHDR};

use super::check::{DT_HEXAGON_VER, HEXAGON_VER};
use super::edit::{E_PHNUM, E_PHOFF, PROGRAM_HEADER, VALUE, add, set, tag, word};
use crate::failure::{Failure, Result};

/// Gives a library that was just linked the rest of the shape that this linker does not: no segment for the
/// table of segments, the tag for symbolic binding and not a flag, and [`DT_HEXAGON_VER`] in the place of a
/// path for libraries.
pub fn reshape(file: &Path) -> Result<()> {
    let failed =
        |error: std::io::Error| Failure::failed(format!("{}: {error}", file.display()), "build it again");
    let mut data = fs::read(file).map_err(failed)?;
    (|| {
        let table = word(&data, E_PHOFF)?;
        if word(&data, table as usize)? != PT_PHDR.0 {
            return None;
        }
        set(&mut data, E_PHOFF, table + PROGRAM_HEADER as u32)?;
        add(&mut data, E_PHNUM, u32::MAX)?;
        let flags = tag(&data, DT_FLAGS.0 as u32)?;
        set(&mut data, flags, DT_SYMBOLIC.0 as u32)?;
        set(&mut data, flags + VALUE, 0)?;
        let path = tag(&data, DT_RUNPATH.0 as u32)?;
        set(&mut data, path, DT_HEXAGON_VER)?;
        set(&mut data, path + VALUE, HEXAGON_VER)
    })()
    .ok_or_else(|| Failure::failed(format!("{} is not what was linked", file.display()), "see linker/"))?;
    fs::write(file, data).map_err(failed)
}
