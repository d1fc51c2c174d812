//! The `hexflash` command.
fn main() {}
