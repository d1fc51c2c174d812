//! What a token would take on a phone, estimated from what an emulator counts: packets and bytes.
//!
//! **An estimate, and no measurement**: nothing of hexflash has run on a phone. Packets leave out stalls, and
//! threads that share a vector unit; [`CYCLES`] stands for all of that. `tests` below holds the same model
//! against published speeds of ggml-hexagon, from its packets; docs/status.md has what came of it.

use serde::Serialize;

use hexflash::model::Part;

/// A chip, as far as the estimate goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chip {
    pub name: &'static str,
    /// Cycles per second, in 10^9. No vendor states it: public measurements lie between 1.2 and 1.5.
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

/// Cycles per packet of a thread. Fitted to one published speed, that of Qwen3.5-2B in Q4_0, which
/// arithmetic bounds; the others of `tests` were not looked at for it.
const CYCLES: f64 = 2.4;

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
        let (memory_ms, compute_ms) = (bytes / chip.bandwidth / 1e6, CYCLES * packets / chip.clock / 1e6);
        let (least_ms, apart_ms) = (memory_ms.max(compute_ms), memory_ms + compute_ms);
        Self { chip: chip.name, memory_ms, compute_ms, least_ms, apart_ms }
    }

    /// Time that is not memory's, at least.
    pub fn exposed_ms(&self) -> f64 {
        self.least_ms - self.memory_ms
    }
}

/// Time that a message takes beside what the DSP computes for it: reports of others, from phones.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MessageCost {
    /// The value of `--transport`.
    pub transport: &'static str,
    pub least_ms: f64,
    pub most_ms: f64,
}

/// Costs of a message each way. Plain decoding sends one for a token, speculation one for a round.
pub(super) const MESSAGES: [MessageCost; 2] = [
    MessageCost { transport: "queue", least_ms: 0.03, most_ms: 0.06 },
    MessageCost { transport: "invoke", least_ms: 0.10, most_ms: 0.36 },
];

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
    let [queue, calls] = MESSAGES.map(|MessageCost { transport, least_ms, most_ms }| {
        format!("{least_ms:.2} to {most_ms:.2} ms by --transport {transport}")
    });
    writeln!(out, "A message, one for each token or round, adds {queue}, and {calls} (reports of others).")
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
            let [products, others] =
                [self.products, self.others].map(|n| Bounds::new(CHIPS[0], n, self.bytes));
            1e3 / (products.least_ms + others.compute_ms)
        }

        fn error(&self) -> f64 {
            self.estimate() / self.tokens_per_s - 1.0
        }
    }

    /// Bytes and packets of Q8_0 and Q4_0 weights: 34 and 18 bytes for 32, and as counted 24.8 and 35 packets
    /// for a tile of 1,024, on the busiest of four threads.
    const Q8_0: [f64; 2] = [34.0 / 32.0, 24.8 / 1024.0 / 4.0];
    const Q4_0: [f64; 2] = [18.0 / 32.0, 35.0 / 1024.0 / 4.0];

    /// Weights: for Qwen3.5 by the bytes that its publisher states as the bound of its speeds (in Q8_0, 27.1
    /// and 13.2 tokens per second at 53.5 GB/s). Packets of other ops: counted for the 0.8B and the 4B (1.09
    /// and 2.64 million); between them for the 2B, and by layers for Llama.
    fn published() -> Vec<Published> {
        let (b2, b4, llama) = (1.86e9, 3.81e9, 1.24e9);
        let entry = |what, tokens_per_s, weights: f64, [bytes, packets]: [f64; 2], others| Published {
            what,
            tokens_per_s,
            products: weights * packets,
            others,
            bytes: weights * bytes,
        };
        vec![
            entry("Qwen3.5-2B Q4_0", 32.0, b2, Q4_0, 1.6e6),
            entry("Qwen3.5-2B Q8_0", 21.5, b2, Q8_0, 1.6e6),
            entry("Qwen3.5-2B Q8_0, patched", 23.6, b2, Q8_0, 1.6e6),
            entry("Qwen3.5-4B Q8_0, patched", 10.8, b4, Q8_0, 2.64e6),
            entry("Llama-3.2-1B Q4_0", 51.6, llama, Q4_0, 1.2e6),
            entry("Qwen3.5-4B Q8_0", 7.0, b4, Q8_0, 2.64e6),
            entry("Qwen3.5-4B Q4_0", 9.0, b4, Q4_0, 2.64e6),
        ]
    }

    /// The errors that docs/status.md states.
    #[test]
    fn the_estimate_is_as_far_from_published_speeds_as_the_page_says() {
        const STATED: [f64; 7] = [0.00, 0.17, 0.07, 0.15, -0.08, 0.78, 0.78];
        for (p, stated) in published().iter().zip(STATED) {
            println!(
                "{}: {:.1}, published {}: {:+.1} %",
                p.what,
                p.estimate(),
                p.tokens_per_s,
                100.0 * p.error()
            );
            assert!((p.error() - stated).abs() < 0.01, "{}: {:.3}", p.what, p.error());
        }
    }

    #[test]
    fn the_cost_of_a_message_is_told_for_each_way() {
        let mut out = Vec::new();
        print(&mut out, "tg1", &Counts { packets: vec![(Part::ALL[0], 1e6)], bytes: 1e8 }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let wanted = "adds 0.03 to 0.06 ms by --transport queue, and 0.10 to 0.36 ms by --transport invoke";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn bounds_are_the_longer_and_the_sum() {
        let chip = Chip { name: "x", clock: 1.0, bandwidth: 50.0 };
        let b = Bounds::new(chip, 2e6 / CYCLES, 500e6);
        assert_eq!((b.memory_ms, b.compute_ms, b.least_ms, b.apart_ms), (10.0, 2.0, 10.0, 12.0));
        assert_eq!(b.exposed_ms(), 0.0);
        assert_eq!(Bounds::new(chip, 12e6 / CYCLES, 500e6).exposed_ms(), 2.0);
    }
}
