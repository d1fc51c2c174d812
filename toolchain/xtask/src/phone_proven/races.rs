//! A race in ggml-hexagon that is known: the emulator's detector must find it by itself, and nothing that
//! nobody can explain.

use std::fs;

use super::build::Harness;
use super::cases::{ARCHS, PIPELINED_ROW};
use super::session::Session;
use crate::failure::{Failure, Result};
use crate::races::report::{Report, Symbols};

/// The version whose library is run.
pub const ARCH: &str = ARCHS[0];
/// What the matrix unit's thread does: it adds the products of a block to the sums, times factors.
const BY_UNIT: &str = "hmx_fa_o_update_worker";

/// A function that writes what [`BY_UNIT`] may still read, and why that is a race.
const KNOWN: [(&str, &str); 3] = [
    ("fa_softmax_impl", "factors of the next block are written where those of the last one are"),
    ("fa_build_d_diag_inv_l", "the same of the last factors"),
    (
        "fa_v_interleave_thread",
        "a wait takes the oldest of two jobs, which is the other one, so that values of a block may be \
         replaced while they are multiplied",
    ),
];

/// Runs pipelined attention under the detector.
pub fn check(harness: &Harness) -> Result<()> {
    let session = Session { harness, arch: ARCH, library: harness.library(ARCH), dma: "late" };
    // Threads never wait for the unit by `syncht` there, but for the thread that drives it. With 2 the guest
    // says where it has loaded the library.
    let run = session.run_with(
        &PIPELINED_ROW,
        &[("HEXAGON_RACE", "1"), ("HEXAGON_RACE_HMX", "thread"), ("PROVEN_LOG", "3")],
    )?;
    let report = Report::read(&run.printed);
    let library = harness.library(ARCH);
    let bytes = fs::read(&library).map_err(|error| Failure::on_disk("read", &library, &error))?;
    let symbols = base(&run.printed).and_then(|base| Symbols::read(&bytes, base)).ok_or_else(|| {
        Failure::failed(
            "the guest does not say where the library is",
            "see `load` in tests/phone-proven/guest.c",
        )
    })?;
    let mut seen = [0; KNOWN.len()];
    for race in &report.races {
        let names = race.pair.map(|address| symbols.name(address));
        let kind = KNOWN.iter().position(|(writer, _)| names.contains(writer) && names.contains(&BY_UNIT));
        let Some(kind) = kind else {
            return Err(Failure::failed(
                format!("a race that is not known: {}", symbols.describe(race)),
                "see whether it is one; KNOWN in toolchain/xtask/src/phone_proven/races.rs has the reasons",
            ));
        };
        seen[kind] += 1;
    }
    if seen[0] == 0 {
        return Err(Failure::failed(
            format!("the race of {} and {BY_UNIT} was not found", KNOWN[0].0),
            "see whether the emulator's detector still works: `cargo xtask emulator`",
        ));
    }
    for ((writer, reason), pairs) in KNOWN.iter().zip(seen).filter(|(_, pairs)| *pairs > 0) {
        println!("race: {pairs} pairs of instructions of {writer} and {BY_UNIT}: {reason}");
    }
    Ok(())
}

/// Where the guest has loaded the library.
fn base(printed: &str) -> Option<u32> {
    let line = printed.lines().find(|line| line.starts_with("guest: ") && line.contains(".so at "))?;
    u32::from_str_radix(line.rsplit(' ').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_says_where_the_library_is() {
        let said = "guest: fd 3 of 9 bytes at 1000\nguest: /a b/libggml-htp-v73.so at 418c0000\n";
        assert_eq!(base(said), Some(0x418c_0000));
        assert_eq!(base("guest: fd 3 of 9 bytes at 1000\n"), None);
    }
}
