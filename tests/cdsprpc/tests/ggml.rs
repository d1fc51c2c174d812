//! Graphs of ggml on the device `htp`: what host and DSP write in turns, each sees of the other.
#![cfg(target_os = "linux")]

#[path = "../../../host-runtime/ggml-backend/tests/support/mod.rs"]
mod support;

use cdsprpc::standin::StandIn;
use ggml_hexflash::abi::Tensor;
use ggml_hexflash::runtime::Runtime;
use hexflash::device::Buffer;

use support::{Hosts, node, tensor};

const ADD: i32 = 2;
const MUL: i32 = 7;
const MUL_MAT: i32 = 29;
/// Columns and rows: no whole lines of a cache.
const SHAPE: [usize; 4] = [40, 5, 1, 1];
const FLOATS: usize = SHAPE[0] * SHAPE[1];

/// Tensors side by side, so that lines of a cache hold parts of two.
struct Bench {
    runtime: Runtime,
    buffer: Buffer,
}

impl Bench {
    fn new(standin: &StandIn) -> Self {
        let mut runtime = Runtime::new(Box::new(standin.open().unwrap()));
        let buffer = runtime.allocate(1 << 16, false).unwrap();
        Self { runtime, buffer }
    }

    fn tensor(&self, ne: [usize; 4], at: usize) -> Tensor {
        tensor(ne, self.buffer.memory.base().as_ptr() as usize + at)
    }

    fn write(&self, at: usize, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.buffer.memory.write(at, &bytes);
    }

    fn read(&self, at: usize, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 4 * count];
        self.buffer.memory.read(at, &mut bytes);
        bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }
}

/// Computes y = (a + b) * a and the product of a diagonal matrix with y, with other data each time; whether
/// all results were right.
fn compute(bench: &mut Bench) -> bool {
    let [a_at, b_at, sum_at, y_at, w_at, product_at] = [0, 1, 2, 3, 4, 13].map(|i| i * 4 * FLOATS);
    let [a, b] = [a_at, b_at].map(|at| bench.tensor(SHAPE, at));
    let sum = node(ADD, &[&a, &b], bench.tensor(SHAPE, sum_at));
    let y = node(MUL, &[&sum, &a], bench.tensor(SHAPE, y_at));
    let w = bench.tensor([SHAPE[0], SHAPE[0], 1, 1], w_at);
    let product = node(MUL_MAT, &[&w, &y], bench.tensor(SHAPE, product_at));
    let hosts = Hosts::new(&[&sum, &y, &product], &[], 3);
    (0..4).all(|round| {
        let value = |i: usize| (i % 9) as f32 - round as f32;
        let values: Vec<f32> = (0..FLOATS).map(value).collect();
        let factor = (round + 2) as f32;
        let diagonal = |i: usize| if i % SHAPE[0] == i / SHAPE[0] { factor } else { 0.0 };
        bench.write(a_at, &values);
        bench.write(b_at, &[1.0; FLOATS]);
        bench.write(w_at, &(0..SHAPE[0] * SHAPE[0]).map(diagonal).collect::<Vec<_>>());
        bench.runtime.compute(hosts.graph()).unwrap();
        let wanted: Vec<f32> = values.iter().map(|value| factor * (value + 1.0) * value).collect();
        bench.read(product_at, FLOATS) == wanted
    })
}

#[test]
fn both_sides_see_what_the_other_has_written() {
    let standin = StandIn::new("");
    let mut bench = Bench::new(&standin);
    assert!(compute(&mut bench));
    bench.runtime.free(&bench.buffer.memory);
    drop(bench);
    standin.is_clean();
}

#[test]
fn a_dsp_that_does_not_write_back_is_found() {
    let standin = StandIn::new("forget=flush");
    assert!(!compute(&mut Bench::new(&standin)) || !standin.violations().is_empty());
}
