//! The time of a step of a model with the shapes of Qwen3.5-0.8B, in cycles, with memory that has a
//! bandwidth: how much of it is not the time that memory needs for the bytes of the step.
//!
//! The clock plays the workers and their DMA engines; claiming, rings and the cutting of matrices are the
//! real ones. What ops take was counted (v73 in `toolchain/packets.json`). **It is an estimate**: all packets
//! take as many cycles, engines share memory evenly and without loss, and threads begin at once.

use std::collections::VecDeque;

use super::*;

const WORKERS: usize = 4;
/// Bytes that memory moves in a cycle: 54 GB/s, at 1.35 GHz.
const BANDWIDTH: f64 = 40.0;
/// Packets to start a job on all workers, and to wait for all of them.
const JOB: f64 = 300.0;
/// Packets of MUL_MAT Q4_0: a tile of 32 by 32, and what there is to a strip besides.
const TILE: f64 = 10.4;
const STRIP: f64 = 235.0;
/// Bytes of two tiles in Q4_0.
const GROUP: usize = 1152;
const GROUP_TILES: f64 = 2.0;
/// Bytes of a transfer of attention or of the delta rule.
const TRANSFER: f64 = 65_536.0;

/// What a step does, in order.
enum Op {
    /// A product with a matrix of so many rows of so many values.
    Product([usize; 2]),
    /// Packets of the busiest thread, on one worker.
    Alone(f64),
    /// Packets of all workers together, and bytes that they move.
    Shared(f64, f64),
}

/// Who waits for a transfer, by a number of its own.
type Number = usize;

/// The workers' engines: each does its transfers in order, and those that have one share the bandwidth.
#[derive(Default)]
struct Engines {
    queues: [VecDeque<(Number, f64)>; WORKERS],
    /// Cycles of a packet.
    cycles: f64,
    done: HashSet<Number>,
    pushed: Number,
    now: f64,
    moved: f64,
    /// Time in which no engine had anything to do.
    idle: f64,
}

impl Engines {
    fn push(&mut self, worker: usize, bytes: f64) -> Number {
        self.pushed += 1;
        self.moved += bytes;
        self.queues[worker].push_back((self.pushed, bytes));
        self.pushed
    }

    /// Lets time pass until `time`, or until a transfer is done.
    fn advance(&mut self, time: f64) {
        let busy = self.queues.iter().filter(|queue| !queue.is_empty()).count();
        let share = BANDWIDTH / busy.max(1) as f64;
        let least =
            self.queues.iter().filter_map(|q| q.front()).map(|(_, b)| b / share).fold(f64::MAX, f64::min);
        let span = least.min(time - self.now);
        for queue in &mut self.queues {
            if let Some((number, left)) = queue.front_mut() {
                *left -= span * share;
                if *left <= 1e-6 {
                    self.done.insert(*number);
                    queue.pop_front();
                }
            }
        }
        self.idle += if busy == 0 { span } else { 0.0 };
        self.now += span;
    }

    /// Plays one job: each worker asks `next` for what to wait for and what to compute then, until there is
    /// nothing. Ends with the last worker.
    fn play(&mut self, mut next: impl FnMut(&mut Self, usize) -> Option<(Number, f64)>) {
        // The transfer that it waits for and the packets behind it, or the end of what it computes.
        let mut at: [Option<(Option<Number>, f64)>; WORKERS] = [None; WORKERS];
        for (w, at) in at.iter_mut().enumerate() {
            *at = next(self, w).map(|(number, packets)| (Some(number), packets));
        }
        let cycles = self.cycles;
        while at.iter().any(Option::is_some) {
            let mut soonest = f64::MAX;
            for (w, at) in at.iter_mut().enumerate() {
                // What it waited for has come: it computes until then.
                if let Some((Some(number), packets)) = *at
                    && (number == 0 || self.done.contains(&number))
                {
                    *at = Some((None, self.now + packets * cycles));
                }
                if let Some((None, end)) = *at {
                    if end <= self.now + 1e-9 {
                        *at = next(self, w).map(|(number, packets)| (Some(number), packets));
                        soonest = self.now;
                    } else {
                        soonest = soonest.min(end);
                    }
                }
            }
            if soonest > self.now {
                self.advance(soonest);
            }
        }
    }

    fn alone(&mut self, packets: f64) {
        let end = self.now + packets * self.cycles;
        while self.now < end - 1e-9 {
            self.advance(end);
        }
    }
}

/// Packets of a piece.
fn packets(matrix: &StreamedMatrix, piece: Piece) -> f64 {
    let strip = (piece.unit - matrix.first) as usize * matrix.unit_strips;
    let strips = matrix.unit_strips.min(matrix.strips - strip) as f64;
    strips * (piece.groups as f64 * GROUP_TILES * TILE + STRIP)
}

/// Plays a product whose weights come from `stream`.
fn product(engines: &mut Engines, stream: &Stream<'_>, rings: &mut [Ring; WORKERS], matrix: &StreamedMatrix) {
    let mut multiplied = [false; WORKERS];
    engines.play(|engines, w| {
        let Ring { ring, numbers } = &mut rings[w];
        if core::mem::replace(&mut multiplied[w], true) {
            ring.pop();
            numbers.pop_front();
        }
        ring.fill(stream, |wanted| {
            numbers.push_back(engines.push(w, wanted.bytes as f64));
            no_transfer()
        });
        let front = ring.front(matrix.end)?;
        Some((*numbers.front()?, packets(matrix, front.piece)))
    });
}

#[derive(Default)]
struct Ring {
    ring: WeightRing,
    numbers: VecDeque<Number>,
}

/// What a step took, in cycles.
#[derive(Debug)]
struct Time {
    total: f64,
    /// What memory needs for the bytes.
    memory: f64,
    idle: f64,
}

impl Time {
    /// Time that is not memory's, of memory's.
    fn exposed(&self) -> f64 {
        self.total / self.memory - 1.0
    }
}

/// Plays a step: with rings for the whole step, or with room for two pieces and a stream per matrix.
fn play(ops: &[Op], cycles: f64, vtcm: usize, streamed: bool) -> Time {
    // What ops have of VTCM: two states of 64 KiB per worker, and rows.
    let mut layout = RingLayout::behind(WORKERS * 133 * 1024, WORKERS, vtcm);
    let most = if streamed { layout.piece_bytes() } else { layout.bytes / 2 };
    let shapes = ops.iter().filter_map(|op| if let Op::Product(shape) = op { Some(*shape) } else { None });
    let matrices: Vec<StreamedMatrix> = shapes
        .map(|[rows, k]| {
            let (strips, groups) = (rows.div_ceil(32), k / 64);
            let share = strips / (8 * WORKERS);
            let whole = ((160 * 1024).min(most) / (groups * GROUP)).min(share);
            let piece =
                if whole > 1 { whole * groups } else { (groups * GROUP).min(65_536).min(most) / GROUP };
            let end = layout.push(strips.div_ceil(unit_strips(piece, groups))).unwrap();
            StreamedMatrix::new(std::ptr::null(), [strips, groups], piece, GROUP, end)
        })
        .collect();
    let (list, mut rings) = (List(matrices), <[Ring; WORKERS]>::default());
    // SAFETY: the clock moves nothing.
    let whole = unsafe { Stream::new(&list, layout) };
    let (mut engines, mut matrices) = (Engines { cycles, ..Engines::default() }, list.0.iter());
    for op in ops {
        match *op {
            Op::Product(_) => {
                let matrix = matrices.next().unwrap();
                engines.alone(JOB);
                if streamed {
                    product(&mut engines, &whole, &mut rings, matrix);
                    continue;
                }
                let own = List(vec![StreamedMatrix { first: 0, end: matrix.end - matrix.first, ..*matrix }]);
                let bytes = 2 * matrix.piece_groups * GROUP;
                // SAFETY: the clock moves nothing.
                let stream =
                    unsafe { Stream::new(&own, RingLayout { bytes, units: own.0[0].end, ..layout }) };
                product(&mut engines, &stream, &mut Default::default(), &own.0[0]);
            }
            Op::Alone(packets) => engines.alone(packets),
            Op::Shared(packets, bytes) => {
                engines.alone(JOB);
                let (packets, bytes) = (packets / WORKERS as f64, bytes / WORKERS as f64);
                let turns = (bytes / TRANSFER).ceil().max(1.0);
                // Two transfers in flight per worker.
                let mut flying: [VecDeque<Number>; WORKERS] = Default::default();
                let mut left = [turns as usize; WORKERS];
                engines.play(|engines, w| {
                    while flying[w].len() < 2 && left[w] > 0 {
                        left[w] -= 1;
                        let number = if bytes > 0.0 { engines.push(w, bytes / turns) } else { 0 };
                        flying[w].push_back(number);
                    }
                    Some((flying[w].pop_front()?, packets / turns))
                });
            }
        }
    }
    assert!(rings.iter().all(|ring| ring.ring.first_unit().is_none()), "all was multiplied");
    Time { total: engines.now, memory: engines.moved / BANDWIDTH, idle: engines.idle }
}

/// A step of one token with so many keys: 18 layers with the delta rule, 6 with attention, an MLP in each.
fn step(keys: f64) -> Vec<Op> {
    use Op::{Alone, Product, Shared};
    let mlp = || {
        // ADD, RMS_NORM, QUANTIZE; SWIGLU, QUANTIZE; ADD.
        [
            Alone(150.0 + 355.0 + 450.0),
            Product([7168, 1024]),
            Alone(3650.0 + 1449.0),
            Product([1024, 3584]),
            Alone(150.0),
        ]
    };
    // A row of the embedding.
    let mut ops = vec![Alone(5615.0)];
    for layer in 0..24 {
        ops.push(Alone(355.0 + 450.0));
        if layer % 4 < 3 {
            ops.push(Product([6144 + 2048 + 16 + 16, 1024]));
            // SSM_CONV, SILU, two L2_NORM, gates.
            ops.push(Alone(6872.0 + 5837.0 + 2.0 * 665.0 + 750.0));
            // 16 states of 64 KiB, there and back.
            ops.push(Shared(43_004.0, 2.0 * 16.0 * 65_536.0));
            // RMS_NORM of heads, the gate, QUANTIZE.
            ops.push(Alone(718.0 + 2100.0 + 850.0));
        } else {
            ops.push(Product([4096 + 512 + 512, 1024]));
            // RMS_NORM of heads and ROPE of q and of k.
            ops.push(Alone(2.0 * 500.0 + 2.0 * 397.0));
            // Keys and values of two heads of 256, as F16.
            ops.push(Shared(240_335.0 * keys / 1024.0, 2048.0 * keys));
            // The gate, QUANTIZE.
            ops.push(Alone(2021.0 + 484.0 + 850.0));
        }
        ops.push(Product([1024, 2048]));
        ops.extend(mlp());
    }
    ops.extend([Alone(355.0 + 450.0), Product([248_320, 1024]), Shared(15_196.0, 0.0)]);
    ops
}

#[test]
fn little_time_is_exposed() {
    // With a packet a cycle, and with what published speeds of others suggest (`hexflash bench`).
    for (cycles, keys, most) in
        [(1.0, 1024.0, 0.05), (1.0, 8192.0, 0.10), (2.4, 1024.0, 0.12), (2.4, 8192.0, 0.4)]
    {
        let ops = step(keys);
        for vtcm in [2, 4, 8] {
            let [off, on] = [false, true].map(|streamed| play(&ops, cycles, vtcm << 20, streamed));
            println!(
                "{keys} keys, {vtcm} MiB, {cycles} cycles a packet: memory {:.0} cycles; exposed {:.1} % \
                 without the stream, {:.1} % with it",
                on.memory,
                100.0 * off.exposed(),
                100.0 * on.exposed(),
            );
            assert!((on.memory - off.memory).abs() < 1.0, "the same bytes: {on:?} {off:?}");
            assert!(on.exposed() >= -1e-6 && on.exposed() < off.exposed(), "{keys} {vtcm}: {on:?} {off:?}");
            assert!(on.exposed() <= most, "{keys} keys: {on:?}");
            // Without loss, time is exposed where no engine has anything to do, and there alone.
            assert!((on.idle - (on.total - on.memory)).abs() < 1.0, "{on:?}");
        }
    }
}
