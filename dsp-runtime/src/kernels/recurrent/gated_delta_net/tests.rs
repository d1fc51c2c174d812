//! The recurrence against its definition in f64, and bit for bit against itself.

mod chunk;
mod tape;

use hexflash_abi::op::Op;
use hexflash_abi::op::params::DeltaNet;
use hexflash_abi::program::NO_TOKEN_AXIS;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{Fault, TensorIndex};
use zerocopy::IntoBytes;

use crate::testing::{Batch, Setup, nmse, random, setups};

struct Case {
    size: usize,
    key_heads: usize,
    /// Value heads per key head.
    ratio: usize,
    sequences: usize,
    /// Sequences of v per sequence of q and k.
    shared: usize,
    tokens: usize,
    /// A gate per key.
    each: bool,
    gates: (f32, f32),
    /// In a program of the class `fast`.
    fast: bool,
    /// The key index of states is the fast one.
    transposed: bool,
}

/// A plain case.
const CASE: Case = Case {
    size: 32,
    key_heads: 2,
    ratio: 1,
    sequences: 1,
    shared: 1,
    tokens: 16,
    each: false,
    gates: (-4.0, -1e-4),
    fast: false,
    transposed: false,
};

/// The inputs of a whole sequence, each {n,h,T,b}.
struct Inputs {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
}

impl Case {
    fn heads(&self) -> usize {
        self.key_heads * self.ratio
    }

    fn inputs(&self) -> Inputs {
        let (s, n) = (self.size, self.heads() * self.tokens * self.sequences);
        let keys = self.key_heads * self.tokens * (self.sequences / self.shared);
        let unit = |seed| {
            let mut rows = random(seed, s * keys, -1.0, 1.0);
            for row in rows.chunks_mut(s) {
                let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= norm);
            }
            rows
        };
        let gates = if self.each { s } else { 1 };
        let mut g = random(4, gates * n, self.gates.0, self.gates.1);
        // Full memory and none, now and then.
        g.iter_mut().step_by(7).for_each(|g| *g = 0.0);
        g.iter_mut().step_by(11).for_each(|g| *g = -1e4);
        Inputs { q: unit(1), k: unit(2), v: random(3, s * n, -0.3, 5.0), g, beta: random(5, n, 0.0, 1.0) }
    }

    /// y {S,H,T,B} and the final states, after feeding the tokens in steps.
    fn run(&self, setup: Setup, steps: &[usize]) -> (Vec<f32>, Vec<f32>) {
        self.run_with(setup, steps, self.inputs())
    }

    /// The same, with these inputs.
    fn run_with(&self, setup: Setup, steps: &[usize], inputs: Inputs) -> (Vec<f32>, Vec<f32>) {
        let &Case { size, sequences, tokens, .. } = self;
        assert_eq!(steps.iter().sum::<usize>(), tokens);
        let mut bench = Bench::new(self, steps.iter().copied().max().unwrap(), 0);
        let (row, mut out, mut past) = (size * self.heads(), vec![0.0; inputs.v.len()], 0);
        bench.inputs = inputs;
        for &n in steps {
            let rows: Vec<_> = (past..past + n).collect();
            let step = StepRegisters::step(past as u32, n as u32);
            let part = bench.step(setup, &rows, step, None).unwrap();
            for b in 0..sequences {
                out[(b * tokens + past) * row..][..n * row].copy_from_slice(&part[b * n * row..][..n * row]);
            }
            past += n;
        }
        (out, bench.state())
    }

    /// The recurrence as the op's definition has it, in f64.
    fn expected(&self) -> (Vec<f32>, Vec<f32>) {
        let &Case { size: s, sequences, tokens, .. } = self;
        let (h, hk) = (self.heads(), self.key_heads);
        let Inputs { q, k, v, g, beta } = self.inputs();
        let (mut y, mut states) = (vec![0.0; s * h * tokens * sequences], Vec::new());
        for b in 0..sequences {
            for head in 0..h {
                let mut state = vec![0.0f64; s * s];
                for t in 0..tokens {
                    let key = ((b / self.shared * tokens + t) * hk + head % hk) * s;
                    let (q, k) = (&q[key..][..s], &k[key..][..s]);
                    let at = (b * tokens + t) * h + head;
                    for i in 0..s {
                        let gate = if self.each { g[at * s + i] } else { g[at] };
                        state[i * s..][..s].iter_mut().for_each(|x| *x *= f64::from(gate).exp());
                    }
                    for j in 0..s {
                        let dot = |x: &[f32], state: &[f64]| {
                            (0..s).map(|i| state[i * s + j] * f64::from(x[i])).sum::<f64>()
                        };
                        let delta = f64::from(beta[at]) * (f64::from(v[at * s + j]) - dot(k, &state));
                        (0..s).for_each(|i| state[i * s + j] += delta * f64::from(k[i]));
                        y[at * s + j] = (dot(q, &state) / (s as f64).sqrt()) as f32;
                    }
                }
                states.extend(state.iter().map(|&x| x as f32));
            }
        }
        (y, states)
    }

    /// Against the definition, in one step.
    fn check(&self, setup: Setup) {
        let (y, state) = self.run(setup, &[self.tokens]);
        let (expected_y, expected_state) = self.expected();
        let name = format!("S={} T={} each={} {setup:?}", self.size, self.tokens, self.each);
        let error = nmse(&y, &expected_y);
        assert!(error <= 1e-10, "y, {name}: {error}");
        let error = nmse(&state, &expected_state);
        assert!(error <= 1e-10, "state, {name}: {error}");
    }
}

/// The op's operands in memory, NaN wherever nothing has been put.
struct Bench {
    inputs: Inputs,
    batch: Batch,
    /// Row length x heads and sequences of each input.
    shapes: [(usize, usize); 5],
    src: Vec<TensorIndex>,
    y: TensorIndex,
    /// Rows of the token axis.
    most: usize,
    /// Tokens of a sequence.
    tokens: usize,
    /// The key index of states is the fast one.
    transposed: bool,
    /// The factor tape, if it has any depth.
    tape: Vec<TensorIndex>,
}

impl Bench {
    /// For steps of up to `most` tokens.
    fn new(case: &Case, most: usize, depth: usize) -> Self {
        let &Case { size: s, sequences: b, tokens, .. } = case;
        let (h, hk, bk) = (case.heads(), case.key_heads, b / case.shared);
        let gates = if case.each { s } else { 1 };
        let batch = Batch::new(most as u32, (2 * tokens) as u32);
        let mut batch = if case.fast { batch.fast() } else { batch };
        let mut tensor = |ne: [usize; 4], axis| {
            let whole = batch.f32(ne.map(|n| n as u32), &vec![f32::NAN; ne.iter().product()]);
            batch.view(whole, |t| t.token_axis = axis)
        };
        let keys = [s, hk, most, bk];
        let values = |n| [n, h, most, b];
        let ne = [keys, keys, values(s), values(gates), values(1)];
        let mut src: Vec<_> = ne.iter().map(|&ne| tensor(ne, 2)).collect();
        let y = tensor(values(s), 2);
        src.push(tensor([s, s, h, b], NO_TOKEN_AXIS));
        let tape = [[s, hk, depth, bk], [s, h, depth, b], [gates, h, depth, b]];
        let tape = tape.iter().filter(|_| depth > 0).map(|&ne| tensor(ne, NO_TOKEN_AXIS)).collect();
        let shapes = ne.map(|[n, h, _, b]| (n * h, b));
        let transposed = case.transposed;
        Self { inputs: case.inputs(), batch, shapes, src, y, most, tokens, transposed, tape }
    }

    /// y {S,H,n,B} of a step over these tokens of the sequences. `defer` is told to those who have a tape.
    fn step(
        &mut self,
        setup: Setup,
        rows: &[usize],
        step: StepRegisters,
        defer: Option<bool>,
    ) -> Result<Vec<f32>, Fault> {
        let Self { inputs, batch, most, tokens, .. } = self;
        let values = [&inputs.q, &inputs.k, &inputs.v, &inputs.g, &inputs.beta];
        for ((&(row, sequences), values), &index) in self.shapes.iter().zip(values).zip(&self.src) {
            let mut part = vec![f32::NAN; row * *most * sequences];
            for (b, (i, t)) in (0..sequences).flat_map(|b| rows.iter().enumerate().map(move |r| (b, r))) {
                let from = &values[(b * *tokens + t) * row..][..row];
                part[(b * *most + i) * row..][..row].copy_from_slice(from);
            }
            batch.write(index, part.as_bytes());
        }
        let mut dst = vec![self.y];
        dst.extend(self.tape.iter().filter(|_| defer.is_some()));
        let params =
            DeltaNet { defer: defer.is_some_and(|defer| defer).into(), transposed: self.transposed.into() };
        batch.run(setup, Op::GatedDeltaNet, &self.src, &dst, &params, step)?;
        let (row, sequences) = self.shapes[2];
        let y = batch.floats(self.y);
        let of = |b: usize| &y[b * *most * row..][..rows.len() * row];
        Ok((0..sequences).flat_map(of).copied().collect())
    }

    fn state(&self) -> Vec<f32> {
        self.batch.floats(self.src[5])
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn matches_the_recurrence() {
    for setup in setups() {
        for each in [false, true] {
            for size in [1, 16, 33, 64, 96, 128] {
                for tokens in [1, 2, 5] {
                    Case { size, tokens, each, ..CASE }.check(setup);
                }
            }
            for (ratio, sequences, shared) in [(2, 2, 1), (3, 2, 2), (1, 4, 2)] {
                for tokens in [3, 16, 40] {
                    Case { ratio, sequences, shared, tokens, each, ..CASE }.check(setup);
                }
            }
        }
    }
}

#[test]
fn gates_at_their_limits() {
    for each in [false, true] {
        for gates in [(0.0, 0.0), (-1e4, -1e4), (-120.0, -60.0)] {
            Case { size: 64, each, gates, ..CASE }.check(setups()[0]);
        }
    }
}

/// The same bits from every setup, and however the tokens are grouped into steps.
#[test]
fn grouping_does_not_matter() {
    for each in [false, true] {
        for (size, ratio, sequences) in [(128, 2, 1), (64, 3, 2), (33, 2, 2), (16, 1, 1)] {
            let case = Case { size, ratio, sequences, each, ..CASE };
            let (y, state) = case.run(setups()[0], &[16]);
            for setup in setups() {
                for steps in [&[16][..], &[1; 16], &[2; 8], &[5, 3, 8], &[3, 2, 1, 10]] {
                    let (y2, state2) = case.run(setup, steps);
                    assert_eq!(bits(&y), bits(&y2), "y, S={size} {setup:?} {steps:?}");
                    assert_eq!(bits(&state), bits(&state2), "state, S={size} {setup:?} {steps:?}");
                }
            }
        }
    }
}

/// States as ggml has them: the same bits, at the places of the axes exchanged.
#[test]
fn transposed_states() {
    for (size, ratio, sequences) in [(32, 1, 1), (64, 2, 2), (96, 1, 1), (128, 2, 1)] {
        for (each, fast, tokens) in [(false, false, 3), (true, false, 3), (false, true, 70)] {
            let case = Case { size, ratio, sequences, tokens, each, fast, ..CASE };
            let turned = Case { transposed: true, ..case };
            for setup in setups() {
                // The second step finds what the first one has left.
                let steps = [tokens - 1, 1];
                let ((y, state), (y2, state2)) = (case.run(setup, &steps), turned.run(setup, &steps));
                assert_eq!(bits(&y), bits(&y2), "y, S={size} {setup:?}");
                let place = |i: usize| i / (size * size) * size * size + i % size * size + i / size % size;
                let back: Vec<_> = (0..state2.len()).map(|i| state2[place(i)]).collect();
                assert_eq!(bits(&state), bits(&back), "state, S={size} {setup:?}");
            }
        }
    }
}

/// One state per worker, where two do not fit.
#[test]
fn little_vtcm() {
    let case = Case { size: 128, key_heads: 8, tokens: 3, ..CASE };
    for setup in setups() {
        case.check(Setup { vtcm_bytes: setup.workers * (68 << 10), ..setup });
    }
    let y = case.run(setups()[0], &[1, 2]);
    for setup in setups() {
        let tight = Setup { vtcm_bytes: setup.workers * (68 << 10), ..setup };
        assert_eq!(case.run(tight, &[2, 1]), y);
    }
}

#[test]
fn square_roots() {
    for n in [1usize, 2, 16, 33, 64, 128] {
        assert_eq!(super::inverse_sqrt(n), (1.0 / (n as f64).sqrt()) as f32);
    }
}
