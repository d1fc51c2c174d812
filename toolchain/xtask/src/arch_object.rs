//! The object that is linked beside an archive. It tells the code its architecture, and the linker, too,
//! which writes the highest architecture of all objects into the product.

use crate::failure::{Failure, Result};
use object::elf::{self, ELFOSABI_NONE};
use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, FileFlags, SymbolFlags, SymbolKind, SymbolScope};
use std::path::Path;
use std::{fs, io};

/// The constant that `hexflash-image` reads: 16 bits, 0x73 for v73.
const NAME: &[u8] = b"hexflash_arch";

/// Writes the object for the architecture `arch` (0x73 for v73), unless it is there: others may be linking
/// it.
pub fn write(file: &Path, arch: u16) -> Result<()> {
    let made = object(arch).write().map_err(io::Error::other);
    let written = made.and_then(|data| {
        let is_there = fs::read(file).is_ok_and(|old| old == data);
        if is_there { Ok(()) } else { fs::write(file, data) }
    });
    written.map_err(|error| Failure::on_disk("write", file, &error))
}

fn object(arch: u16) -> Object<'static> {
    let mut object = empty(arch);
    let value = arch.to_le_bytes();
    define(&mut object, NAME, StandardSection::ReadOnlyData, SymbolScope::Linkage, &value);
    object
}

/// An object for the architecture `arch`, without a symbol.
pub(crate) fn empty(arch: u16) -> Object<'static> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Hexagon, Endianness::Little);
    let e_flags = elf::FileFlags(arch.into());
    object.flags = FileFlags::Elf { os_abi: ELFOSABI_NONE, abi_version: 0, e_flags };
    object
}

/// Defines a symbol for `data`, which is aligned to its size.
pub(crate) fn define(
    object: &mut Object<'_>,
    name: &[u8],
    section: StandardSection,
    scope: SymbolScope,
    data: &[u8],
) {
    let kind = if section == StandardSection::Text { SymbolKind::Text } else { SymbolKind::Data };
    let section = object.section_id(section);
    let symbol = object.add_symbol(Symbol {
        name: name.to_vec(),
        value: 0,
        size: 0,
        kind,
        scope,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    });
    object.add_symbol_data(symbol, section, data, data.len() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::{ElfFile32, FileHeader};
    use object::{LittleEndian, Object as _, ObjectSection, ObjectSymbol};

    #[test]
    fn code_and_linker_are_told_the_same_architecture() {
        let data = object(0x79).write().unwrap();
        let elf = ElfFile32::<LittleEndian>::parse(&*data).unwrap();
        assert_eq!(elf.elf_header().e_flags(LittleEndian).0, 0x79);
        let symbol = elf.symbols().find(|symbol| symbol.name_bytes() == Ok(NAME)).unwrap();
        assert!(symbol.is_global() && symbol.is_definition());
        let section = elf.section_by_index(symbol.section_index().unwrap()).unwrap();
        assert_eq!(section.data_range(symbol.address(), symbol.size()).unwrap(), Some(&[0x79, 0][..]));
    }
}
