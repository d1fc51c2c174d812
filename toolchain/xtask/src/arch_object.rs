//! The object that is linked beside an archive. It tells the code its architecture, and the linker, too,
//! which writes the highest architecture of all objects into the product.

use crate::failure::{Failure, Result};
use object::elf::{self, ELFOSABI_NONE};
use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, FileFlags, SymbolFlags, SymbolKind, SymbolScope};
use std::fs;
use std::path::Path;

/// The constant that `hexflash-image` reads: 16 bits, 0x73 for v73.
const NAME: &[u8] = b"hexflash_arch";

/// Writes the object for the architecture `arch` (0x73 for v73), unless it is there: others may be linking
/// it.
pub fn write(file: &Path, arch: u16) -> Result<()> {
    let made = object(arch).write().map_err(|error| error.to_string());
    let written = made.and_then(|data| {
        let is_there = fs::read(file).is_ok_and(|old| old == data);
        if is_there { Ok(()) } else { fs::write(file, data).map_err(|error| error.to_string()) }
    });
    written.map_err(|error| {
        Failure::unusable(format!("cannot write {} ({error})", file.display()), "look after the disk")
    })
}

fn object(arch: u16) -> Object<'static> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Hexagon, Endianness::Little);
    let e_flags = elf::FileFlags(arch.into());
    object.flags = FileFlags::Elf { os_abi: ELFOSABI_NONE, abi_version: 0, e_flags };
    let section = object.section_id(StandardSection::ReadOnlyData);
    let symbol = object.add_symbol(Symbol {
        name: NAME.to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    });
    object.add_symbol_data(symbol, section, &arch.to_le_bytes(), 2);
    object
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
