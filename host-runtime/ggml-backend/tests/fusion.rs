//! Nodes that become one op together: fewer ops, and the results of the nodes by themselves.

mod support;

use ggml_hexflash::abi::{FLAG_OUTPUT, Tensor};
use ggml_hexflash::runtime::Runtime;
use ggml_hexflash::translate::{Groups, Translator};
use hexflash::device::{Buffer, DeviceOptions, open};
use hexflash::gguf::GgmlType;
use hexflash_abi::BufferId;

use support::{Hosts, node, tensor};

const ADD: i32 = 2;
const MUL: i32 = 7;
const CONCAT: i32 = 22;
const GET_ROWS: i32 = 40;
const RMS_NORM: i32 = 25;
const CPY: i32 = 34;
const VIEW: i32 = 37;
const TRANSPOSE: i32 = 39;
const SSM_CONV: i32 = 76;
const GATED_DELTA_NET: i32 = 86;
const UNARY: i32 = 91;
const SILU: i32 = 10;

/// A device, and memory from which tensors are taken.
struct Bench {
    runtime: Runtime,
    buffer: Buffer,
    used: usize,
}

impl Bench {
    fn new() -> Self {
        let mut runtime = Runtime::new(open("inproc", &DeviceOptions::default()).unwrap());
        let buffer = runtime.allocate(1 << 20, false).unwrap();
        Self { runtime, buffer, used: 0 }
    }

    /// Memory for a tensor, filled with numbers that differ.
    fn tensor(&mut self, ne: [usize; 4]) -> Tensor {
        let tensor = tensor(ne, self.buffer.memory.base().as_ptr() as usize + self.used);
        self.fill(&tensor);
        self.used += (elements(&tensor) * 4).next_multiple_of(128);
        tensor
    }

    fn at(&self, tensor: &Tensor) -> usize {
        tensor.data as usize - self.buffer.memory.base().as_ptr() as usize
    }

    fn fill(&self, tensor: &Tensor) {
        let at = self.at(tensor);
        let value = |i: usize| ((i * 37 + at / 64) % 101) as f32 / 101.0 - 0.45;
        let bytes: Vec<u8> = (0..elements(tensor)).flat_map(|i| value(i).to_le_bytes()).collect();
        self.buffer.memory.write(at, &bytes);
    }

    fn read(&self, tensor: &Tensor) -> Vec<f32> {
        let mut bytes = vec![0; elements(tensor) * 4];
        self.buffer.memory.read(self.at(tensor), &mut bytes);
        bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }

    /// Number of ops that a graph becomes.
    fn ops(&self, hosts: &Hosts) -> usize {
        let nodes = hosts.graph().nodes();
        let groups = Groups::find(hosts.graph(), &nodes);
        let mut translator = Translator::new(&self.runtime, BufferId(0));
        nodes.iter().for_each(|node| translator.node_of(&groups, node).unwrap());
        translator.finish().recorder.len()
    }

    /// Ops of a graph, and what it leaves in `results`, which have other contents before.
    fn run(&mut self, hosts: &Hosts, inputs: &[&Tensor], results: &[&Tensor]) -> (usize, Vec<Vec<f32>>) {
        inputs.iter().chain(results).for_each(|tensor| self.fill(tensor));
        self.runtime.compute(hosts.graph()).unwrap();
        (self.ops(hosts), results.iter().map(|result| self.read(result)).collect())
    }

    /// The graph of these nodes takes `fewer` ops less than where somebody else reads `inner`, too, and
    /// leaves the same.
    #[track_caller]
    fn compare(
        &mut self,
        nodes: &[&Tensor],
        inner: &Tensor,
        fewer: usize,
        inputs: &[&Tensor],
        results: &[&Tensor],
    ) {
        let (ops_apart, wanted) = self.run(&Hosts::new(nodes, &[inner], 0), inputs, results);
        let (ops, found) = self.run(&Hosts::new(nodes, &[], 0), inputs, results);
        assert_eq!(ops + fewer, ops_apart);
        for (wanted, found) in wanted.iter().zip(&found) {
            let worst = wanted.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 2e-6, "{worst}");
            assert!(wanted.iter().any(|&value| value != wanted[0]));
        }
    }
}

fn elements(tensor: &Tensor) -> usize {
    tensor.ne.iter().product::<i64>() as usize
}

/// A view of a tensor, `elements` in.
fn view(of: &Tensor, offset: usize, ne: [usize; 4], nb: [usize; 4]) -> Tensor {
    let mut view = node(VIEW, &[of], tensor(ne, of.data as usize + 4 * offset));
    view.nb = nb;
    view.view_src = std::ptr::from_ref(of).cast_mut();
    view.view_offs = 4 * offset;
    view
}

fn silu(of: &Tensor, result: Tensor) -> Tensor {
    let mut silu = node(UNARY, &[of], result);
    silu.op_params[0] = SILU;
    silu
}

#[test]
fn a_norm_has_its_weights() {
    let mut bench = Bench::new();
    let (x, w) = (bench.tensor([96, 5, 1, 1]), bench.tensor([96, 1, 1, 1]));
    let mut norm = node(RMS_NORM, &[&x], bench.tensor([96, 5, 1, 1]));
    norm.op_params[0] = 1e-6f32.to_bits() as i32;
    let mul = node(MUL, &[&norm, &w], bench.tensor([96, 5, 1, 1]));
    bench.compare(&[&norm, &mul], &norm, 1, &[&x, &w], &[&mul]);
    // In the place of its operand.
    let mul = node(MUL, &[&norm, &w], tensor([96, 5, 1, 1], x.data as usize));
    bench.compare(&[&norm, &mul], &norm, 1, &[&x, &w], &[&mul]);
}

#[test]
fn weights_for_each_row_are_no_weights_of_a_norm() {
    let mut bench = Bench::new();
    let (x, w) = (bench.tensor([96, 5, 1, 1]), bench.tensor([96, 5, 1, 1]));
    let norm = node(RMS_NORM, &[&x], bench.tensor([96, 5, 1, 1]));
    let mul = node(MUL, &[&norm, &w], bench.tensor([96, 5, 1, 1]));
    bench.compare(&[&norm, &mul], &norm, 0, &[&x, &w], &[&mul]);
}

#[test]
fn a_gate_is_one_op() {
    let mut bench = Bench::new();
    let (z, x) = (bench.tensor([64, 3, 2, 1]), bench.tensor([64, 3, 2, 1]));
    let gate = silu(&z, bench.tensor([64, 3, 2, 1]));
    for operands in [[&x, &gate], [&gate, &x]] {
        let mul = node(MUL, &operands, bench.tensor([64, 3, 2, 1]));
        bench.compare(&[&gate, &mul], &gate, 1, &[&z, &x], &[&mul]);
    }
}

/// What somebody reads when the graph is done, or what another node reads first, is there.
#[test]
fn what_is_read_is_computed() {
    let mut bench = Bench::new();
    let (z, x) = (bench.tensor([64, 3, 2, 1]), bench.tensor([64, 3, 2, 1]));
    let mut gate = silu(&z, bench.tensor([64, 3, 2, 1]));
    let sum = node(ADD, &[&gate, &x], bench.tensor([64, 3, 2, 1]));
    let mul = node(MUL, &[&x, &gate], bench.tensor([64, 3, 2, 1]));
    bench.compare(&[&gate, &sum, &mul], &gate, 0, &[&z, &x], &[&gate, &sum, &mul]);
    gate.flags |= FLAG_OUTPUT;
    bench.compare(&[&gate, &mul], &gate, 0, &[&z, &x], &[&gate, &mul]);
}

/// A result that no node reads is the graph's.
#[test]
fn results_of_the_graph_are_written() {
    let (s, h) = (32, 3);
    let mut bench = Bench::new();
    let (cell, ones) = ([s, h, 1, 1], [1, h, 1, 1]);
    let state = bench.tensor([s, s, h, 1]);
    let inputs = [cell, cell, cell, ones, ones].map(|ne| bench.tensor(ne));
    let [q, k, v, g, beta] = &inputs;
    let result = bench.tensor([s * h, 1 + s, 1, 1]);
    let before = bench.read(&result);
    let mut net = node(GATED_DELTA_NET, &[q, k, v, g, beta, &state], result);
    net.op_params[0] = 1;
    bench.runtime.compute(Hosts::new(&[&net], &[], 0).graph()).unwrap();
    let after = bench.read(&net);
    assert!(before.chunks(s * h).zip(after.chunks(s * h)).all(|(before, after)| before != after));
}

/// A convolution of t columns with 4 taps over a history, which gets the last columns.
fn convolution(t: usize) {
    let (taps, channels, seqs) = (4, 70, 2);
    let mut bench = Bench::new();
    let state = bench.tensor([(taps - 1) * channels, seqs, 1, 1]);
    let kernel = bench.tensor([taps, channels, 1, 1]);
    let rows = bench.tensor([channels, t, seqs, 1]);
    let floats = |ne: [usize; 4]| [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
    let history = [taps - 1, channels, seqs, 1];
    // The history is what GET_ROWS gives in llama.cpp's graphs.
    let fetched = node(CPY, &[&state, &state], bench.tensor([(taps - 1) * channels, seqs, 1, 1]));
    let before = view(&fetched, 0, history, floats(history));
    let mut columns = view(&rows, 0, [t, channels, seqs, 1], floats([channels, t, seqs, 1]));
    columns.op = TRANSPOSE;
    columns.nb.swap(0, 1);
    let length = taps - 1 + t;
    let joined = node(CONCAT, &[&before, &columns], bench.tensor([length, channels, seqs, 1]));
    let last = view(&joined, t, history, floats([length, channels, seqs, 1]));
    let home = view(&state, 0, [(taps - 1) * channels, seqs, 1, 1], state.nb);
    let mut kept =
        node(CPY, &[&last, &home], tensor([(taps - 1) * channels, seqs, 1, 1], state.data as usize));
    kept.view_src = std::ptr::from_ref(&state).cast_mut();
    let conv = node(SSM_CONV, &[&joined, &kernel], bench.tensor([channels, t, seqs, 1]));
    let result = silu(&conv, bench.tensor([channels, t, seqs, 1]));
    let nodes = [&fetched, &before, &columns, &joined, &last, &home, &kept, &conv, &result];
    let inputs = [&state, &kernel, &rows];
    bench.compare(&nodes, &conv, 1, &inputs, &[&result, &state]);
    // Without the copy of the rows, which lie in the window as SSM_CONV takes them.
    bench.compare(&nodes, &joined, 1, &inputs, &[&result, &state]);
}

#[test]
fn a_convolution_takes_rows_and_gives_its_gate() {
    [1, 2, 3, 4, 9].into_iter().for_each(convolution);
}

/// The only row of a table is read where it lies: unless the table is written before.
#[test]
fn the_only_row_is_not_copied() {
    let mut bench = Bench::new();
    let (n, row) = (96, [96, 1, 1, 1]);
    let (cache, x) = (bench.tensor(row), bench.tensor(row));
    let mut ids = bench.tensor([1, 1, 1, 1]);
    ids.ty = GgmlType::I32.id() as i32;
    let zero = bench.at(&ids);
    let fetched = node(GET_ROWS, &[&cache, &ids], bench.tensor(row));
    let half = view(&fetched, n / 2, [n / 2, 1, 1, 1], [4, 2 * n, 2 * n, 2 * n]);
    let first = view(&x, 0, [n / 2, 1, 1, 1], [4, 2 * n, 2 * n, 2 * n]);
    let sum = node(ADD, &[&first, &half], bench.tensor([n / 2, 1, 1, 1]));
    let mut kept = node(CPY, &[&x, &cache], tensor(row, cache.data as usize));
    kept.view_src = std::ptr::from_ref(&cache).cast_mut();
    let results = [&sum, &cache];
    for (nodes, fewer) in [
        ([&fetched, &half, &first, &sum, &kept], 1),
        // Its last reader comes after the table has other contents.
        ([&fetched, &half, &first, &kept, &sum], 0),
    ] {
        bench.buffer.memory.write(zero, &[0; 4]);
        bench.compare(&nodes, &fetched, fewer, &[&cache, &x], &results);
    }
}

/// How a graph comes to the state that it advances.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From other memory.
    Elsewhere,
    /// From where the new one goes.
    SamePlace,
    /// The same, and somebody reads the old one before the new one is there.
    SamePlaceRead,
}

/// `fewer` ops of a graph that advances states of size `s`.
fn advances_states(s: usize, origin: Origin, fewer: usize) {
    let (h, t, b) = (3, 4, 2);
    let mut bench = Bench::new();
    let packed = |ne: [usize; 4]| [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
    let states = [s, s, h, b];
    let cache = bench.tensor([s * s * h, b, 1, 1]);
    let (other, same) = (bench.tensor(states), view(&cache, 0, states, packed(states)));
    let state = if origin == Origin::Elsewhere { &other } else { &same };
    let [q, k, v] = [(); 3].map(|()| bench.tensor([s, h, t, b]));
    let [g, beta] = [(); 2].map(|()| bench.tensor([1, h, t, b]));
    let rows = s * h * t * b;
    let mut net =
        node(GATED_DELTA_NET, &[&q, &k, &v, &g, &beta, state], bench.tensor([s * h, t * b + s * b, 1, 1]));
    net.op_params[0] = 1;
    let output = view(&net, 0, [s, h, t, b], packed([s, h, t, b]));
    let new = view(&net, rows, states, packed(states));
    let twice = node(ADD, &[state, state], bench.tensor(states));
    let home = view(&cache, 0, [s * s * h, b, 1, 1], cache.nb);
    let mut kept = node(CPY, &[&new, &home], tensor([s * s * h, b, 1, 1], cache.data as usize));
    kept.view_src = std::ptr::from_ref(&cache).cast_mut();
    let sum = node(ADD, &[&output, &v], bench.tensor([s, h, t, b]));
    let mut nodes = vec![&same, &net, &output, &new, &home, &kept, &sum];
    let mut results = vec![&sum, &cache];
    if origin == Origin::SamePlaceRead {
        nodes.insert(2, &twice);
        results.push(&twice);
    }
    let inputs = [&other, &q, &k, &v, &g, &beta, &cache];
    bench.compare(&nodes, &new, fewer, &inputs, &results);
}

#[test]
fn a_state_is_advanced_where_it_is_kept() {
    advances_states(32, Origin::Elsewhere, 2);
    advances_states(64, Origin::SamePlace, 3);
    // Not while the old one is wanted.
    advances_states(32, Origin::SamePlaceRead, 0);
    // Where the op cannot take it as it is, it is copied in and out.
    advances_states(16, Origin::Elsewhere, 1);
    advances_states(16, Origin::SamePlace, 1);
}
