//! `cargo xtask emulator`: the self-test of the emulator, and what it computes against definitions and
//! against values that others have recorded.

use crate::emulator_build::{path, self_test};
use crate::failure::Result;
use crate::setup::{self, Set};
use crate::{float_values, matrix_values, process, recorded, vectors};

/// The verb: builds it if need be, and runs its self-test.
pub fn run() -> Result<()> {
    for set in [Set::Base, Set::Hexagon, Set::Emulator] {
        setup::ensure(set)?;
    }
    let (root, emulator) = (process::workspace_root()?, path()?);
    process::run(&mut self_test(&root, &emulator)?)?;
    float_values::check(&root, &emulator)?;
    recorded::check(&root, &emulator)?;
    matrix_values::check(&root, &emulator)?;
    vectors::check(&root)
}
