//! What a program was built for: enough of its ELF header to tell before it is pushed that it cannot start.

use std::io::Read;
use std::path::Path;

use super::DeployError;
use super::push::open;

/// Bytes of a program that are looked at: linkers put header and interpreter at its beginning.
const BEGINNING: u64 = 1 << 20;

/// What the header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The processor, as `uname -m` has it.
    pub(super) machine: &'static str,
    /// The program that loads it; `None` if it needs none.
    pub(super) interpreter: Option<String>,
}

impl Header {
    /// Reads a program's header.
    pub(super) fn read(path: &Path) -> Result<Self, DeployError> {
        let mut file = Vec::new();
        let read = open(path)?.take(BEGINNING).read_to_end(&mut file);
        read.map_err(|source| DeployError::Read { path: path.to_owned(), source })?;
        Self::parse(&file).ok_or_else(|| DeployError::NoProgram { path: path.to_owned() })
    }

    /// Of a 64-bit little-endian program; `None` for everything else.
    fn parse(file: &[u8]) -> Option<Self> {
        const INTERPRETER: u64 = 3;
        let number = |at: usize, bytes: usize| {
            let bytes = file.get(at..at.checked_add(bytes)?)?;
            Some(bytes.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte)))
        };
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let machine = match number(18, 2)? {
            183 => "aarch64",
            62 => "x86_64",
            _ => return None,
        };
        let (table, entry, entries) =
            (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
        let mut interpreter = None;
        for i in 0..entries {
            let at = table.checked_add(i * entry)?;
            if number(at, 4)? == INTERPRETER {
                let (offset, bytes) = (number(at + 8, 8)? as usize, number(at + 32, 8)? as usize);
                let text = file.get(offset..offset.checked_add(bytes)?)?;
                let text = text.strip_suffix(b"\0").unwrap_or(text);
                interpreter = Some(String::from_utf8(text.to_vec()).ok()?);
            }
        }
        Some(Self { machine, interpreter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one entry, the interpreter's.
    fn program(machine: u16, interpreter: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = 3;
        file[72] = 120;
        file[96] = interpreter.len() as u8 + 1;
        file.extend(interpreter.bytes().chain([0]));
        file
    }

    #[test]
    fn machine_and_interpreter_are_read() {
        let linker = "/system/bin/linker64";
        let found = Header::parse(&program(183, linker)).unwrap();
        assert_eq!(found, Header { machine: "aarch64", interpreter: Some(linker.to_owned()) });
        assert_eq!(Header::parse(&program(62, "/x")).unwrap().machine, "x86_64");
        assert_eq!(Header::parse(&program(40, linker)), None);
        assert_eq!(Header::parse(b"#!/bin/sh"), None);
    }

    #[test]
    fn a_header_that_is_cut_off_is_none() {
        let whole = program(183, "/x");
        for bytes in 0..whole.len() {
            assert_eq!(Header::parse(&whole[..bytes]), None, "{bytes}");
        }
    }
}
