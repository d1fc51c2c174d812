// Versions of Hexagon code that tests run under emulation, for every crate that has such tests.

/// Expectation of the code for a version, `v73` or `plain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Tests run it if it is there.
    Perhaps,
    /// It is there, and a test that misses it fails.
    Built,
    /// Whatever is there was built earlier, for other sources perhaps: no test runs it.
    NotBuilt,
}

/// Expectation that `HEXFLASH_EMULATED` says, a list such as `v67,v73,v79` of what was just built; without it
/// tests run what they find.
pub fn expected(version: &str) -> Expected {
    match std::env::var("HEXFLASH_EMULATED") {
        Err(_) => Expected::Perhaps,
        Ok(list) if list.split(',').any(|built| built == version) => Expected::Built,
        Ok(_) => Expected::NotBuilt,
    }
}
