//! The page of counts: packets per unit of each case, made of the file of expected counts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::Build;
use super::baseline::Baseline;
use super::cases::CASES;
use crate::failure::{Failure, Result};

/// The page, below the repository.
const PAGE: &str = "toolchain/PACKETS.md";

/// All of the page above the rows.
const HEAD: &str = "\
# Packets of kernels

A reference, which `cargo xtask packets --update` writes with `packets.json` (`--page` writes it without
counting): packets per unit of work, of all threads. Targets are those of the first release, for v73, and bold
is what misses its target. The last column has ggml-hexagon's kernels on v73, counted in the same way with
clang 22 -O3, but of the kernels' functions alone. Ours are of a whole op: claiming, DMA requests, addresses,
the loop, the results. Stalls are in no count.
[docs/architecture/packets.md](../docs/architecture/packets.md) says where the packets go.

| case | unit | v67 | v73 | v79 | target | ggml-hexagon |
|---|---|---:|---:|---:|---:|---:|
";

/// Writes the page of these counts.
pub(super) fn write(baseline: &Baseline, root: &Path) -> Result<()> {
    let page = root.join(PAGE);
    fs::write(&page, text(baseline)).map_err(|error| Failure::on_disk("write", &page, &error))
}

/// The page, with a row for each case, in the order of the table of cases.
fn text(baseline: &Baseline) -> String {
    let mut text = HEAD.to_owned();
    for case in CASES {
        let [v67, v73, v79] = [Build::V67, Build::V73, Build::V79].map(|build| {
            let packets = baseline.packets(build, case)?;
            Some(packets as f64 / case.units() as f64)
        });
        let misses = v73.zip(case.target).is_some_and(|(packets, target)| packets > target);
        let v73 = if misses { format!("**{}**", shown(v73)) } else { shown(v73) };
        let cells = [shown(v67), v73, shown(v79), shown(case.target), shown(case.peer)];
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {} | {} |", case.name(), case.unit(), cells.join(" | "));
    }
    text
}

/// A count with three digits that say something, in groups; nothing where there is none.
fn shown(count: Option<f64>) -> String {
    match count {
        None => String::new(),
        Some(count) if count < 1.0 => format!("{count:.3}"),
        Some(count) if count < 10.0 => format!("{count:.2}"),
        Some(count) if count < 100.0 => format!("{count:.1}"),
        Some(count) => grouped(&format!("{count:.0}")),
    }
}

/// Digits with a comma before every three of them.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_counts() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let baseline = Baseline::read(&root.join("toolchain/packets.json")).unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(page == text(&baseline), "run `cargo xtask packets --page`");
        assert_eq!(page.lines().count(), HEAD.lines().count() + CASES.len());
    }

    #[test]
    fn counts_have_three_digits_and_groups() {
        let counts = [0.0564, 1.302, 27.7, 99.96, 859.0, 1789.2, 659_414.0, 1_581_321.0];
        let texts = ["0.056", "1.30", "27.7", "100.0", "859", "1,789", "659,414", "1,581,321"];
        assert_eq!(counts.map(|count| shown(Some(count))), texts);
        assert_eq!(shown(None), "");
    }
}
