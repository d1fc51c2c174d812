//! Where the time of graphs goes: what `HEXFLASH_TIMES` shows.

use std::fmt;
use std::time::Duration;

use hexflash_abi::Op;
use hexflash_abi::program::PARTS;

/// Kinds of ops, each a part of a program by itself.
const KINDS: [&str; PARTS] =
    ["products", "attention", "recurrent ops", "copies", "activations to int8", "others"];

/// The part of a program that an op belongs to.
pub fn part_of(op: Op) -> usize {
    match op {
        Op::MulMat | Op::MulMatId => 0,
        Op::Attend | Op::Rope => 1,
        Op::GatedDeltaNet | Op::SsmConv => 2,
        Op::Cpy | Op::GetRows | Op::SetRows => 3,
        Op::Quantize => 4,
        _ => 5,
    }
}

/// Times of graphs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// In the device's own unit.
    parts: [u64; PARTS],
    graphs: u32,
    nodes: u64,
    ops: u64,
    /// On the host, from the call to its end, without the device's own time.
    host: Duration,
    device: Duration,
    loaded: u32,
    loading: Duration,
}

impl Times {
    /// A graph ran that was loaded already: its nodes and the ops that they became, how long the call took,
    /// how long the device was at it, and at its parts.
    pub fn ran(&mut self, [nodes, ops]: [usize; 2], call: Duration, device: Duration, parts: [u32; PARTS]) {
        self.parts.iter_mut().zip(parts).for_each(|(sum, part)| *sum += u64::from(part));
        self.graphs += 1;
        self.nodes += nodes as u64;
        self.ops += ops as u64;
        self.host += call.saturating_sub(device);
        self.device += device;
    }

    /// A graph was translated and loaded.
    pub fn loaded(&mut self, time: Duration) {
        self.loaded += 1;
        self.loading += time;
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graphs, loaded) = (self.graphs.max(1), self.loaded.max(1));
        write!(
            f,
            "{} graphs of {} nodes, {} ops: {} us on the host, {} us on the device; {} loaded, {} us each",
            self.graphs,
            self.nodes / u64::from(graphs),
            self.ops / u64::from(graphs),
            (self.host / graphs).as_micros(),
            (self.device / graphs).as_micros(),
            self.loaded,
            (self.loading / loaded).as_micros(),
        )?;
        let all = self.parts.iter().sum::<u64>().max(1);
        let mut kinds: Vec<_> = KINDS.iter().zip(self.parts).filter(|(_, part)| *part > 0).collect();
        kinds.sort_unstable_by_key(|(_, part)| std::cmp::Reverse(*part));
        kinds.iter().try_for_each(|(kind, part)| write!(f, "; {kind} {} %", (100 * part + all / 2) / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_graphs_that_ran() {
        let mut times = Times::default();
        assert!(times.to_string().starts_with("0 graphs"));
        times.loaded(Duration::from_micros(900));
        let mut ran = |size, call, parts| {
            times.ran(size, Duration::from_micros(call), Duration::from_micros(30), parts);
        };
        ran([300, 200], 50, [1, 0, 0, 25, 0, 0]);
        ran([100, 100], 70, [9, 0, 0, 5, 0, 0]);
        let line = "2 graphs of 200 nodes, 150 ops: 30 us on the host, 30 us on the device; \
                    1 loaded, 900 us each; copies 75 %; products 25 %";
        assert_eq!(times.to_string(), line);
    }
}
