//! The skel in memory, as a DSP's loader would put it there: segments, relocations, imports; and the names of
//! its functions, for who has something to report of them.

use std::fmt;
use std::fs;
use std::path::Path;

use hexflash_abi::forms::{Form, Group};
use hexflash_guest::wire::{ENTRY_BYTES, IMPORTS, PAGE};
use object::elf::{PF_R, PF_W, PF_X, PT_LOAD, STT_FUNC};
use object::read::elf::{ElfFile32, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionKind,
};
use rustix::mm::ProtFlags;
use zerocopy::IntoBytes;

use crate::qurt::is_missing;
use crate::views;

/// Relocations of Hexagon: the address of a symbol, for data, for a call, and the library's own address.
const R_HEX_32: u32 = 6;
const R_HEX_GLOB_DAT: u32 = 33;
const R_HEX_JMP_SLOT: u32 = 34;
const R_HEX_RELATIVE: u32 = 35;

/// What appends a descriptor to the chain of a DMA engine: a function of the skel, and its code
/// (`release(r1):at`, `dmlink(r1,r2)`, `jumpr r31`).
const LINK: &str = "UserDma as hexflash_dsp::dma::engine::Engine>::link";
const CODE: [u32; 3] = [0xa0e1_c00c, 0xa601_c240, 0x529f_c000];
/// The same, but the descriptor counts as done at once: in the last packet `memb(r2+#7) = #-128` as well.
const COUNTS_AS_DONE: [u32; 4] = [CODE[0], CODE[1], 0x529f_4000, 0x3c02_e380];

/// Float instructions that have a group: the bits of a word that are not registers and not the packet's, and
/// what they are.
const FORMS: [(Form, u32, u32); 8] = [
    (Form::AddSf, OF_THREE, 0x1f80_20c0),
    (Form::SubSf, OF_THREE, 0x1f80_20e0),
    (Form::MpySf, OF_THREE, 0x1f80_2020),
    (Form::MpyAccSf, OF_THREE, 0x1c40_2020),
    (Form::MpyHf, OF_THREE, 0x1f80_2060),
    (Form::CvtSfHf, OF_TWO, 0x1e04_2080),
    (Form::CvtHfSf, OF_THREE, 0x1f60_2020),
    (Form::CvtHfB, OF_TWO, 0x1e04_2040),
];
/// The bits of instructions with three registers, and with two.
const OF_THREE: u32 = 0xffe0_20e0;
const OF_TWO: u32 = 0xffff_20e0;
/// The bits that say where a packet ends.
const PARSE: u32 = 0xc000;
/// `v0.f8 = vabs(v0.f8)`, which v79 was the first to have.
const REFUSED: u32 = 0x1c66_20c0;

/// A loaded skel.
pub(super) struct Image {
    /// Where it begins, and its bytes.
    pub(super) base: usize,
    pub(super) bytes: usize,
    /// Parts that are not written: offset and contents.
    constants: Vec<(usize, Vec<u8>)>,
    /// Parts that are code: offset and bytes.
    code: Vec<(usize, usize)>,
    /// Whole pages, in order, with their access as `mmap` has it.
    pub(super) pages: Vec<(usize, usize, u32)>,
    /// Where the addresses of imported functions go: offsets, and places in [`IMPORTS`].
    imports: Vec<(usize, usize)>,
    /// Functions: offset, bytes, name.
    functions: Vec<(usize, usize, String)>,
    /// Offset of the entry.
    pub(super) entry: usize,
}

/// The first memory of a process that runs unsigned libraries (FastRPC's `remote.h`).
const FIRST_MEMORY: usize = 5 << 20;

fn wrong(what: impl fmt::Display) -> String {
    format!("the library cannot be loaded: {what}")
}

impl Image {
    /// Loads a library that exports `entry`.
    pub(super) fn load(file: &Path, entry: &str) -> Result<Self, String> {
        let data = fs::read(file).map_err(|error| wrong(format_args!("{}: {error}", file.display())))?;
        let elf = ElfFile32::<LittleEndian>::parse(&*data).map_err(wrong)?;
        let endian = LittleEndian;
        let segments: Vec<_> =
            elf.elf_program_headers().iter().filter(|it| it.p_type(endian) == PT_LOAD).collect();
        let bytes = segments.iter().map(|it| it.p_vaddr(endian) as usize + it.p_memsz(endian) as usize).max();
        let bytes = bytes.ok_or_else(|| wrong("it has no segments"))?.next_multiple_of(PAGE);
        if bytes > FIRST_MEMORY {
            return Err(wrong(format_args!("it takes {bytes} bytes before it can ask for any")));
        }
        let all = ProtFlags::READ | ProtFlags::WRITE;
        let base = views::low(bytes, all).ok_or_else(|| wrong("there is no room"))?;
        let mut image = Self {
            base,
            bytes,
            constants: Vec::new(),
            code: Vec::new(),
            pages: Vec::new(),
            imports: Vec::new(),
            functions: Vec::new(),
            entry: 0,
        };
        let mut access = vec![0; bytes / PAGE];
        for segment in segments {
            let at = segment.p_vaddr(endian) as usize;
            let contents = segment.data(endian, &*data).map_err(|()| wrong("a segment is not there"))?;
            image.write(at, contents);
            let flags = segment.p_flags(endian);
            let rights = [(PF_R, 1), (PF_W, 2), (PF_X, 4)];
            let rights =
                rights.iter().filter(|(flag, _)| flags & *flag == *flag).map(|(_, right)| right).sum::<u32>();
            let last = at + (segment.p_memsz(endian) as usize).max(1) - 1;
            // The emulator's pages are larger than the library's: one that has parts of two segments has the
            // rights of both.
            access[at / PAGE..=last / PAGE].iter_mut().for_each(|page| *page |= rights);
            if rights & 2 == 0 {
                image.constants.push((at, contents.to_vec()));
            }
        }
        image.pages = access.iter().enumerate().map(|(i, &access)| (i * PAGE, PAGE, access)).collect();
        let code = elf.sections().filter(|section| section.kind() == SectionKind::Text);
        image.code = code.map(|section| (section.address() as usize, section.size() as usize)).collect();
        image.relocate(&elf)?;
        for symbol in elf.symbols() {
            if symbol.elf_symbol().st_type() == STT_FUNC
                && let Ok(name) = symbol.name()
            {
                let name = format!("{:#}", rustc_demangle::demangle(name));
                image.functions.push((symbol.address() as usize, symbol.size() as usize, name));
            }
        }
        image.functions.sort();
        let exported = elf.dynamic_symbols().find(|it| it.is_definition() && it.name() == Ok(entry));
        image.entry = exported.ok_or_else(|| wrong(format_args!("it has no {entry}")))?.address() as usize;
        Ok(image)
    }

    fn relocate(&mut self, elf: &ElfFile32<'_, LittleEndian>) -> Result<(), String> {
        let symbols = elf.dynamic_symbol_table().ok_or_else(|| wrong("it has no symbols"))?;
        for (at, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let at = at as usize;
            let RelocationFlags::Elf { r_type } = relocation.flags() else { return Err(wrong("not ELF")) };
            if !at.is_multiple_of(4) || at + 4 > self.bytes {
                return Err(wrong(format_args!("a relocation of {at:#x}")));
            }
            let addend = relocation.addend() as usize;
            match (r_type.0, relocation.target()) {
                (R_HEX_RELATIVE, _) => self.put(at, (self.base + addend) as u32),
                (R_HEX_32 | R_HEX_GLOB_DAT | R_HEX_JMP_SLOT, RelocationTarget::Symbol(index)) => {
                    use object::ObjectSymbolTable;
                    let symbol = symbols.symbol_by_index(index).map_err(wrong)?;
                    let name = symbol.name().map_err(wrong)?;
                    if symbol.is_definition() {
                        self.put(at, (self.base + symbol.address() as usize + addend) as u32);
                    } else if symbol.is_weak() && is_missing(name) {
                        self.put(at, 0);
                    } else {
                        let place = IMPORTS.iter().position(|import| *import == name);
                        let place = place.ok_or_else(|| wrong(format_args!("nobody has {name}")))?;
                        self.imports.push((at, place));
                    }
                }
                (other, _) => return Err(wrong(format_args!("a relocation of type {other}"))),
            }
        }
        Ok(())
    }

    /// Fills in the addresses of imported functions, whose entries begin at `entries`.
    pub(super) fn bind(&self, entries: u32) {
        for &(at, place) in &self.imports {
            self.put(at, entries + place as u32 * ENTRY_BYTES);
        }
    }

    /// Makes it a skel that takes transfers for done, and waits for none.
    ///
    /// # Panics
    /// If it has no such function, with such code: a test is wrong.
    pub(super) fn forget_to_wait(&mut self) {
        let found = self.functions.iter().find(|(_, _, name)| name.ends_with(LINK));
        let &(at, _, _) = found.unwrap_or_else(|| panic!("the library has no {LINK}"));
        let contents = self.constants.iter_mut().find_map(|(start, contents)| {
            contents.get_mut(at.checked_sub(*start)?..)?.first_chunk_mut::<16>()
        });
        let contents = contents.unwrap_or_else(|| panic!("{LINK} is no code"));
        assert!(contents.starts_with(CODE.as_bytes()), "{LINK} is other code: {contents:x?}");
        contents.copy_from_slice(COUNTS_AS_DONE.as_bytes());
        self.write(at, COUNTS_AS_DONE.as_bytes());
    }

    /// Makes the processor one that does not have a group of float instructions: where the library has one of
    /// them stands a word that no version up to v75 has.
    ///
    /// # Panics
    /// If there is no such group: a test is wrong.
    pub(super) fn refuse(&mut self, group: &str) {
        let group = Group::ALL.iter().find(|known| known.name() == group);
        let group = *group.unwrap_or_else(|| panic!("{group:?} is no group"));
        for &(_, mask, bits) in FORMS.iter().filter(|(form, ..)| form.group() == Some(group)) {
            self.replace(|word| (word & mask == bits).then_some(REFUSED | word & PARSE));
        }
    }

    /// Makes the processor one that subtracts where it should add.
    pub(super) fn make_sums_differences(&mut self) {
        let [(_, mask, sum), (_, _, difference), ..] = FORMS;
        self.replace(|word| (word & mask == sum).then_some(difference | word & !mask));
    }

    /// Replaces words of code.
    fn replace(&mut self, with: impl Fn(u32) -> Option<u32>) {
        for (at, bytes) in self.code.clone() {
            for place in (at..at + bytes).step_by(4) {
                if let Some(word) = with(self.word(place)) {
                    self.change(place, word);
                }
            }
        }
    }

    /// A word of the image.
    fn word(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes);
        let from = std::ptr::with_exposed_provenance::<u32>(self.base + at);
        // SAFETY: inside the image, by the assertion above, at a multiple of 4 as the base is one of a
        // page's; no thread of the guest uses it yet.
        unsafe { from.read() }
    }

    /// Writes another word of code, which then counts as what was loaded.
    fn change(&mut self, at: usize, word: u32) {
        self.put(at, word);
        let constants = self.constants.iter_mut();
        let kept = constants
            .filter_map(|(start, contents)| contents.get_mut(at.checked_sub(*start)?..)?.first_chunk_mut());
        kept.for_each(|kept| *kept = word.to_le_bytes());
    }

    fn write(&self, at: usize, contents: &[u8]) {
        assert!(at + contents.len() <= self.bytes);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.base + at);
        // SAFETY: inside the image, which is this process's memory and which no thread of the guest uses yet.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), to, contents.len()) };
    }

    fn put(&self, at: usize, word: u32) {
        self.write(at, &word.to_le_bytes());
    }

    /// Where code or constants are no longer what they were.
    pub(super) fn overwritten(&self) -> Option<usize> {
        self.constants.iter().find_map(|(at, contents)| {
            let now = std::ptr::with_exposed_provenance::<u8>(self.base + at);
            // SAFETY: inside the image, which stays mapped; the guest has come to its end.
            let now = unsafe { std::slice::from_raw_parts(now, contents.len()) };
            let first = now.iter().zip(contents).position(|(a, b)| a != b)?;
            Some(self.base + at + first)
        })
    }

    /// The address with the function that it is in, if it is in one.
    pub(super) fn place(&self, address: u32) -> String {
        let offset = (address as usize).wrapping_sub(self.base);
        let after = self.functions.partition_point(|(at, _, _)| *at <= offset);
        match after.checked_sub(1).map(|i| &self.functions[i]) {
            Some((at, bytes, name)) if offset < at + bytes => {
                format!("{address:#x}, {offset:#x} in the library: {name}+{:#x}", offset - at)
            }
            _ => format!("{address:#x}"),
        }
    }
}
