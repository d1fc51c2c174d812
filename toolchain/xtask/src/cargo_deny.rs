//! The program cargo-deny.

use crate::process;

/// The cargo-deny that `deny.toml` is written for; a later one will do. Compiling it takes about 100 s of one
/// core.
pub const VERSION: &str = "0.20.2";

/// Whether there is a cargo-deny that knows what `deny.toml` says.
pub fn is_present() -> bool {
    let version = process::output(process::cargo().args(["deny", "--version"]));
    version.is_some_and(|text| text.split_whitespace().last().map(numbers) >= Some(numbers(VERSION)))
}

/// The numbers of a version.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("0.20.10") > numbers("0.20.2") && numbers("1.0.0") > numbers(VERSION));
        assert!(numbers("0.14.2") < numbers(VERSION) && numbers("nonsense") < numbers(VERSION));
    }
}
