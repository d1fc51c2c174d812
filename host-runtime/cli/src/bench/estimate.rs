//! What a token would take on a phone, estimated from what an emulator counts: packets and bytes.
//!
//! **An estimate, and no measurement**: nothing of hexflash has run on a phone. A packet counts as one cycle,
//! which is the best case: stalls, threads that share an HVX unit and late transfers are in no count. So the
//! times are bounds from below. `tests` below holds the same model against published speeds of ggml-hexagon,
//! from its packets; docs/status.md has what came of it.

use serde::Serialize;

use hexflash::model::Part;

/// A chip, as far as the estimate goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chip {
    pub name: &'static str,
    /// Packets per second of a thread at most, in GHz. No vendor states the clock: public measurements lie
    /// between 1.2 and 1.5.
    pub clock: f64,
    /// Bytes per second from memory by DMA, in GB/s, as measured by others: 51 to 56 on v73, 60 on v75, 59 to
    /// 62 on v79. For v81 none is known; v79's is used.
    pub bandwidth: f64,
}

/// The chips that have libraries.
pub(super) const CHIPS: [Chip; 4] = [
    Chip { name: "v73", clock: 1.35, bandwidth: 53.5 },
    Chip { name: "v75", clock: 1.35, bandwidth: 60.0 },
    Chip { name: "v79", clock: 1.35, bandwidth: 60.5 },
    Chip { name: "v81", clock: 1.35, bandwidth: 60.5 },
];

/// What was counted per token.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Counts {
    /// Packets of the thread that dispatches, and waits for the busiest in each op, part by part. With one
    /// thread, all packets.
    pub packets: Vec<(Part, f64)>,
    /// Bytes that DMA moved.
    pub bytes: f64,
}

impl Counts {
    fn all_packets(&self) -> f64 {
        self.packets.iter().map(|(_, packets)| packets).sum()
    }
}

/// Bounds of the time of a token, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bounds {
    pub chip: &'static str,
    /// What memory needs for the bytes.
    pub memory_ms: f64,
    /// What the thread needs for its packets.
    pub compute_ms: f64,
    /// If all that can overlap does: the longer of the two.
    pub least_ms: f64,
    /// If nothing did: their sum.
    pub apart_ms: f64,
}

impl Bounds {
    /// The bounds for `packets` of one thread and `bytes`.
    pub fn new(chip: Chip, packets: f64, bytes: f64) -> Self {
        let (memory_ms, compute_ms) = (bytes / chip.bandwidth / 1e6, packets / chip.clock / 1e6);
        let (least_ms, apart_ms) = (memory_ms.max(compute_ms), memory_ms + compute_ms);
        Self { chip: chip.name, memory_ms, compute_ms, least_ms, apart_ms }
    }

    /// Time that is not memory's, at least.
    pub fn exposed_ms(&self) -> f64 {
        self.least_ms - self.memory_ms
    }
}

/// The bounds of every chip.
pub(super) fn bounds(counts: &Counts) -> Vec<Bounds> {
    CHIPS.iter().map(|&chip| Bounds::new(chip, counts.all_packets(), counts.bytes)).collect()
}

/// Prints a test's counts and bounds.
pub(super) fn print(out: &mut impl std::io::Write, test: &str, counts: &Counts) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{test}, per token, as counted under emulation (the dispatching thread, and its waits):"
    )?;
    for (part, packets) in counts.packets.iter().filter(|(_, packets)| *packets > 0.0) {
        writeln!(out, "  {part:<12?} {packets:>14.0} packets")?;
    }
    writeln!(out, "  {:<12} {:>14.0} bytes", "DMA", counts.bytes)?;
    writeln!(
        out,
        "Estimated bounds from below, not measured (a packet a cycle, no stalls), in ms per token:"
    )?;
    writeln!(out, "| chip | GHz  | GB/s | memory | compute | exposed | overlapped | one after the other |")?;
    writeln!(out, "|------|------|------|-------:|--------:|--------:|-----------:|--------------------:|")?;
    for (chip, b) in CHIPS.iter().zip(bounds(counts)) {
        writeln!(
            out,
            "| {} | {:.2} | {:.1} | {:>6.2} | {:>7.2} | {:>7.2} | {:>10.2} | {:>19.2} |",
            b.chip,
            chip.clock,
            chip.bandwidth,
            b.memory_ms,
            b.compute_ms,
            b.exposed_ms(),
            b.least_ms,
            b.apart_ms
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A published decode speed of ggml-hexagon, and what its users' model takes per token there: packets of
    /// the busiest of four threads in matrix products and in all other ops, and bytes.
    struct Published {
        what: &'static str,
        tokens_per_s: f64,
        products: f64,
        others: f64,
        bytes: f64,
    }

    impl Published {
        /// The estimate: products hide behind memory or memory behind them, and other ops are not hidden.
        fn estimate(&self) -> f64 {
            let bounds = Bounds::new(CHIPS[0], self.products, self.bytes);
            1e3 / (bounds.least_ms + self.others / CHIPS[0].clock / 1e6)
        }

        fn error(&self) -> f64 {
            self.estimate() / self.tokens_per_s - 1.0
        }
    }

    /// Packets of a product with so many weights, at so many per tile of 1,024, on the busiest of four
    /// threads.
    fn products(weights: f64, per_tile: f64) -> f64 {
        weights / 1024.0 * per_tile / 4.0
    }

    /// Per tile, counted: 24.8 for Q8_0 and 35 for Q4_0. Other ops: 1.09 M for Qwen3.5-0.8B and 2.64 M for the
    /// 4B, counted; about 1.6 M for the 2B, between them, and 1.2 M for Llama-3.2-1B with its 16 layers.
    fn published() -> Vec<Published> {
        let (b2, b4, llama) = (1.88e9, 4.2e9, 1.24e9);
        let (q8, q4) = (34.0 / 32.0, 18.0 / 32.0);
        vec![
            Published {
                what: "Qwen3.5-2B Q8_0 (a)",
                tokens_per_s: 23.6,
                products: products(b2, 24.8),
                others: 1.6e6,
                bytes: b2 * q8,
            },
            Published {
                what: "Qwen3.5-2B Q8_0 (b)",
                tokens_per_s: 21.5,
                products: products(b2, 24.8),
                others: 1.6e6,
                bytes: b2 * q8,
            },
            Published {
                what: "Qwen3.5-4B Q8_0",
                tokens_per_s: 10.8,
                products: products(b4, 24.8),
                others: 2.64e6,
                bytes: b4 * q8,
            },
            Published {
                what: "Qwen3.5-2B Q4_0",
                tokens_per_s: 32.0,
                products: products(b2, 35.0),
                others: 1.6e6,
                bytes: b2 * q4,
            },
            Published {
                what: "Llama-3.2-1B Q4_0",
                tokens_per_s: 51.6,
                products: products(llama, 35.0),
                others: 1.2e6,
                bytes: llama * q4,
            },
            Published {
                what: "Qwen3.5-4B Q4_0",
                tokens_per_s: 9.0,
                products: products(b4, 35.0),
                others: 2.64e6,
                bytes: b4 * q4,
            },
        ]
    }

    /// The errors that docs/status.md states: an estimate that never promises less than was seen, close where
    /// memory is the bound, and far too fast where it is not.
    #[test]
    fn the_estimate_is_as_far_from_published_speeds_as_the_page_says() {
        let errors: Vec<(&str, f64)> = published().iter().map(|p| (p.what, p.error())).collect();
        for p in published() {
            println!(
                "{}: {:.1} tok/s, published {:.1}: {:+.0} %",
                p.what,
                p.estimate(),
                p.tokens_per_s,
                100.0 * p.error()
            );
        }
        for (what, error) in errors {
            assert!(error > 0.0, "{what}: {error}");
            let close = what.contains("Q8_0");
            assert_eq!(error < 0.25, close, "{what}: {error}");
        }
    }

    #[test]
    fn bounds_are_the_longer_and_the_sum() {
        let chip = Chip { name: "x", clock: 1.0, bandwidth: 50.0 };
        let b = Bounds::new(chip, 2e6, 500e6);
        assert_eq!((b.memory_ms, b.compute_ms, b.least_ms, b.apart_ms), (10.0, 2.0, 10.0, 12.0));
        assert_eq!(b.exposed_ms(), 0.0);
        assert_eq!(Bounds::new(chip, 12e6, 500e6).exposed_ms(), 2.0);
    }
}
