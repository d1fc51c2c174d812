//! Addresses in an image as functions and lines of the source, from the debug information that it has.

use std::fmt::Write;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, Error, LittleEndian};
use object::read::elf::ElfFile32;
use object::{Object, ObjectSection};

/// What a line of the emulator's begins with that says where a signal ended a program.
const FAULT: &str = "fault: ";
/// Functions of a place that are named: the others were inlined into each other on the way to the first.
const INLINED: usize = 3;
/// Callers that are named.
const CALLERS: usize = 4;
/// The least that a call takes, and so what lies between it and where it returns to.
const WORD: u64 = 4;

/// Where a signal ended a program: `fault: signal 11 at 0x1000 address 0x10 calls 0x2000 0x3000`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    signal: u32,
    at: u64,
    address: u64,
    /// Where the calls on the stack return to.
    calls: Vec<u64>,
}

impl Fault {
    /// The fault that a line tells of, if it does.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let mut words = line.strip_prefix(FAULT)?.split(' ');
        let mut after = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let signal = after("signal")?.parse().ok()?;
        let (at, address) = (hex(after("at")?)?, hex(after("address")?)?);
        let calls = words.skip(1).map_while(hex).collect();
        Some(Self { signal, at, address, calls })
    }

    /// In words, with functions and lines as far as they are known.
    pub(super) fn explain(&self, places: &Places<'_>) -> String {
        let what = match self.signal {
            4 => "an instruction that is not there".to_owned(),
            7 => format!("a misaligned access to {:#x}", self.address),
            11 => format!("an access to {:#x}", self.address),
            signal => format!("signal {signal}"),
        };
        let mut text = format!("{what} in {}", places.describe(self.at));
        let mut callers: Vec<_> = self.calls.iter().map(|call| places.describe(call - WORD)).collect();
        // The first is where the last call returned to, which may have been to the place itself.
        callers.dedup();
        for (i, caller) in callers.iter().take(CALLERS).enumerate() {
            let _ = write!(text, "{} {caller}", if i == 0 { ", called from" } else { "," });
        }
        text
    }
}

/// The debug information of an image.
pub(super) struct Places<'a>(Option<Context<EndianSlice<'a, LittleEndian>>>);

impl<'a> Places<'a> {
    /// That of a file, given as its bytes; without any, places are addresses.
    pub(super) fn of(file: &'a [u8]) -> Self {
        let known = ElfFile32::<object::LittleEndian>::parse(file).ok().and_then(|elf| {
            let section = |name: &str| elf.section_by_name(name)?.data().ok();
            let dwarf = Dwarf::load(|id| {
                let bytes = section(id.name()).unwrap_or_default();
                Ok::<_, Error>(EndianSlice::new(bytes, LittleEndian))
            });
            Context::from_dwarf(dwarf.ok()?).ok()
        });
        Self(known)
    }

    /// An address as `FUNCTION (FILE:LINE), inlined into FUNCTION (FILE:LINE)`.
    fn describe(&self, address: u64) -> String {
        let mut found = Vec::new();
        let frames = self.0.as_ref().and_then(|known| known.find_frames(address).skip_all_loads().ok());
        if let Some(mut frames) = frames {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
                let line = frame.location.and_then(|place| Some((place.file?, place.line?)));
                found.push(match (name, line) {
                    (Some(name), Some((file, line))) => format!("{name} ({file}:{line})"),
                    (Some(name), None) => name,
                    (None, Some((file, line))) => format!("{file}:{line}"),
                    (None, None) => continue,
                });
            }
        }
        if found.is_empty() {
            return format!("{address:#x}");
        }
        found.truncate(INLINED);
        found.join(", inlined into ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = Fault::parse("fault: signal 11 at 0x00101000 address 0x00000010 calls 0x00102004 0x10");
        let expected = Fault { signal: 11, at: 0x10_1000, address: 0x10, calls: vec![0x10_2004, 0x10] };
        assert_eq!(fault, Some(expected));
        for other in ["", "fault: ", "fault: signal x at 0x1 address 0x1 calls", "dma: x"] {
            assert_eq!(Fault::parse(other), None, "{other}");
        }
    }

    #[test]
    fn without_debug_information_places_are_addresses() {
        let fault = Fault { signal: 11, at: 0x1000, address: 0x10, calls: vec![0x2004] };
        let text = fault.explain(&Places::of(b"no image"));
        assert_eq!(text, "an access to 0x10 in 0x1000, called from 0x2000");
    }
}
