//! What an image does, for people: its ops by the names of the model that they belong to, the DMA of its
//! engines, and where it was when a signal ended it.
//!
//! Ops that begin are lines that the image writes; descriptors and faults are lines of the emulator's. Both
//! share a file, so that they stand in the order in which things happen.

use std::collections::HashMap;
use std::path::Path;

use hexflash_abi::ProgramId;
use hexflash_abi::guest::{GuestConfig, TRACED_OP};

use super::places::{Fault, Places};
use crate::record::Site;

/// Who gets the lines of a trace.
pub type Tracer = fn(&str);

/// The ops of loaded programs, by name.
#[derive(Default)]
pub(super) struct Ops {
    programs: HashMap<u32, Vec<Site>>,
}

impl Ops {
    pub(super) fn name(&mut self, program: ProgramId, sites: &[Site]) {
        self.programs.insert(program.0, sites.to_vec());
    }

    /// An op, by what it does and with which weight.
    fn describe(&self, program: u32, op: u32) -> String {
        let site = self.programs.get(&program).and_then(|sites| sites.get(op as usize));
        let program = match program {
            GuestConfig::NO_PROGRAM => "a program that came with its message".to_owned(),
            program => format!("program {program}"),
        };
        match site {
            Some(site) => format!("{program}, op {op}: {site}"),
            None => format!("{program}, op {op}"),
        }
    }

    /// A line that an image or its emulator has written, as people read it.
    pub(super) fn line(&self, line: &str) -> String {
        let numbers = line.strip_prefix(TRACED_OP).and_then(|rest| rest.split_once(' '));
        let numbers = numbers.and_then(|(program, op)| Some((program.parse().ok()?, op.parse().ok()?)));
        numbers.map_or_else(|| line.to_owned(), |(program, op)| self.describe(program, op))
    }

    /// Where an image was that ended, from what it wrote at last and from its word about the op.
    pub(super) fn end(&self, image: &Path, words: &str, place: u32) -> Option<String> {
        let fault = words.lines().rev().find_map(Fault::parse);
        let fault = fault.map(|fault| {
            // Without the file, places are addresses.
            fault.explain(&Places::of(&std::fs::read(image).unwrap_or_default()))
        });
        let op = GuestConfig::program_and_op(place).map(|(program, op)| self.describe(program, op));
        match (fault, op) {
            (Some(fault), Some(op)) => Some(format!("{fault}; in {op}")),
            (fault, op) => fault.or_else(|| op.map(|op| format!("in {op}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_ops_name_them() {
        let mut ops = Ops::default();
        let product = Site::for_test(hexflash_abi::Op::MulMat, "blk.3.ffn_down.weight");
        ops.name(ProgramId(4), &[product.clone(), product]);
        assert_eq!(ops.line("op: 4 1"), "program 4, op 1: MUL_MAT with blk.3.ffn_down.weight");
        assert_eq!(ops.line("op: 5 1"), "program 5, op 1");
        assert_eq!(ops.line("op: 65535 0"), "a program that came with its message, op 0");
        assert_eq!(ops.line("dma: thread 0"), "dma: thread 0");
        let place = GuestConfig::place_of(4, 0);
        let end = ops.end(Path::new("/nowhere"), "a line\n", place);
        assert_eq!(end.as_deref(), Some("in program 4, op 0: MUL_MAT with blk.3.ffn_down.weight"));
        assert_eq!(ops.end(Path::new("/nowhere"), "a line\n", 0), None);
    }
}
