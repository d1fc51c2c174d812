//! Graphs on a device: computed, computed again with other data, and on a device that is lost.

#[cfg(target_os = "linux")]
#[path = "../../tests/device/emulator.rs"]
mod emulator;
mod support;

#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ggml_hexflash::abi::Tensor;
use ggml_hexflash::runtime::{Failure, Runtime};
use hexflash::device::{
    Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, SessionSet, SharedMemory, Source, open,
};
use hexflash_abi::Seq;
use hexflash_abi::message::{Load, Message, Response};

use support::{Hosts, node, tensor};

const ADD: i32 = 2;
const MUL_MAT: i32 = 29;
/// Rows and columns of everything here.
const N: usize = 64;

/// A packed square of F32 at an address.
fn square(address: usize) -> Tensor {
    tensor([N, N, 1, 1], address)
}

/// What an op computes of two squares.
fn of_two(op: i32, a: &Tensor, b: &Tensor, address: usize) -> Tensor {
    node(op, &[a, b], square(address))
}

/// Computes a graph of a node.
fn compute(runtime: &mut Runtime, node: &Tensor) -> Result<(), Failure> {
    runtime.compute(Hosts::new(&[node], &[], 0).graph())
}

/// Three squares of memory.
struct Squares {
    buffer: Buffer,
    at: [usize; 3],
}

const BYTES: usize = 4 * N * N;

impl Squares {
    fn new(runtime: &mut Runtime) -> Self {
        let buffer = runtime.allocate(3 * BYTES, false).unwrap();
        let base = buffer.memory.base().as_ptr() as usize;
        Self { buffer, at: [base, base + BYTES, base + 2 * BYTES] }
    }

    fn write(&self, square: usize, value: impl Fn(usize) -> f32) {
        let bytes: Vec<u8> = (0..N * N).flat_map(|i| value(i).to_le_bytes()).collect();
        self.buffer.memory.write(square * BYTES, &bytes);
    }

    fn read(&self, square: usize) -> Vec<f32> {
        let mut bytes = vec![0; BYTES];
        self.buffer.memory.read(square * BYTES, &mut bytes);
        bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }
}

#[test]
fn a_graph_is_loaded_once_and_computes_what_its_data_are() {
    let (device, calls) = Watched::open(usize::MAX);
    let mut runtime = Runtime::new(Box::new(device));
    let squares = Squares::new(&mut runtime);
    let [a, b, y] = squares.at;
    let (a, b) = (square(a), square(b));
    let sum = of_two(ADD, &a, &b, y);
    let mut counts = Vec::new();
    for round in 0..3 {
        squares.write(0, |i| (i + round) as f32);
        squares.write(1, |i| (2 * i) as f32);
        compute(&mut runtime, &sum).unwrap();
        let wanted: Vec<f32> = (0..N * N).map(|i| (3 * i + round) as f32).collect();
        assert_eq!(squares.read(2), wanted);
        counts.push(calls.load(Ordering::Relaxed));
    }
    assert_eq!([counts[1] - counts[0], counts[2] - counts[1]], [1, 1], "a message for a graph");
    runtime.free(&squares.buffer.memory);
}

/// Of a graph that the host has named, nothing but its name is looked at, until memory is freed.
#[test]
fn a_graph_with_a_name_is_known_by_it() {
    let (device, calls) = Watched::open(usize::MAX);
    let mut runtime = Runtime::new(Box::new(device));
    let squares = Squares::new(&mut runtime);
    let [a, b, y] = squares.at;
    let (a, b) = (square(a), square(b));
    let sum = of_two(ADD, &a, &b, y);
    let hosts = Hosts::new(&[&sum], &[], 7);
    let messages = |runtime: &mut Runtime, hosts: &Hosts, factor: usize| {
        let before = calls.load(Ordering::Relaxed);
        squares.write(0, |i| i as f32);
        squares.write(1, |i| (i * factor) as f32);
        runtime.compute(hosts.graph()).unwrap();
        let wanted: Vec<f32> = (0..N * N).map(|i| (i + i * factor) as f32).collect();
        assert_eq!(squares.read(2), wanted);
        calls.load(Ordering::Relaxed) - before
    };
    assert!(messages(&mut runtime, &hosts, 1) > 1);
    assert_eq!(messages(&mut runtime, &hosts, 2), 1);
    // Another name for an equal graph.
    assert_eq!(messages(&mut runtime, &Hosts::new(&[&sum], &[], 8), 3), 1);
    let other = runtime.allocate(BYTES, false).unwrap();
    runtime.free(&other.memory);
    assert!(messages(&mut runtime, &hosts, 4) > 1, "loaded again");
    runtime.free(&squares.buffer.memory);
}

#[test]
fn weights_that_change_are_packed_again() {
    let mut runtime = Runtime::new(open("inproc", &DeviceOptions::default()).unwrap());
    let squares = Squares::new(&mut runtime);
    let [w, x, y] = squares.at;
    let (w, x) = (square(w), square(x));
    let product = of_two(MUL_MAT, &w, &x, y);
    squares.write(1, |i| (i % 5) as f32);
    for factor in [1.0, 3.0] {
        // A diagonal matrix.
        squares.write(0, |i| if i % N == i / N { factor } else { 0.0 });
        compute(&mut runtime, &product).unwrap();
        let wanted: Vec<f32> = (0..N * N).map(|i| factor * (i % 5) as f32).collect();
        assert_eq!(squares.read(2), wanted);
    }
    runtime.free(&squares.buffer.memory);
}

#[test]
fn two_threads_share_a_device() {
    let runtime = Mutex::new(Runtime::new(open("inproc", &DeviceOptions::default()).unwrap()));
    let lock = || runtime.lock().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..20 {
                    // Freed in every round: the other thread's programs are loaded again.
                    let squares = Squares::new(&mut lock());
                    let [a, b, y] = squares.at;
                    let (a, b) = (square(a), square(b));
                    let sum = of_two(ADD, &a, &b, y);
                    squares.write(0, |i| (i + round) as f32);
                    squares.write(1, |i| (i * thread) as f32);
                    compute(&mut lock(), &sum).unwrap();
                    let wanted: Vec<f32> = (0..N * N).map(|i| (i + round + i * thread) as f32).collect();
                    assert_eq!(squares.read(2), wanted);
                    lock().free(&squares.buffer.memory);
                }
            });
        }
    });
}

/// Lost at any message of opening, mapping, loading and running: what is under way fails, and the next graph
/// finds a device, with all memory where it was.
#[test]
fn a_lost_device_is_a_failed_graph_and_no_more() {
    for last in 1..12 {
        let (device, _) = Watched::open(last);
        let mut runtime = Runtime::new(Box::new(device));
        let squares = Squares::new(&mut runtime);
        let [a, b, y] = squares.at;
        let (a, b) = (square(a), square(b));
        let sum = of_two(ADD, &a, &b, y);
        squares.write(0, |i| i as f32);
        let (mut failures, mut successes) = (0, 0);
        for round in 0..40 {
            squares.write(1, |i| (i * round) as f32);
            match compute(&mut runtime, &sum) {
                Ok(()) => {
                    let wanted: Vec<f32> = (0..N * N).map(|i| (i + i * round) as f32).collect();
                    assert_eq!(squares.read(2), wanted, "{last} {round}");
                    successes += 1;
                }
                Err(failure) => {
                    assert!(matches!(failure, Failure::Device(_)), "{failure}");
                    assert!(!failure.to_string().contains('\n'));
                    failures += 1;
                }
            }
        }
        assert!(failures > 0, "{last}");
        // Two buffers to map and a program to load come before the first run.
        assert!(last < 6 || successes > failures, "{last}: {successes} of 40");
        runtime.free(&squares.buffer.memory);
    }
}

/// The process of the DSP is killed between two graphs: one fails, and the next one has another process.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_is_started_again() {
    use hexflash::device::qemu::Settings;

    let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let Some(device) = emulator::qemu(Settings::from_options(&options).unwrap()) else { return };
    let process = device.process_id().to_string();
    let mut runtime = Runtime::new(Box::new(device));
    let squares = Squares::new(&mut runtime);
    let [a, b, y] = squares.at;
    let (a, b) = (square(a), square(b));
    let sum = of_two(ADD, &a, &b, y);
    squares.write(0, |i| i as f32);
    let mut times = |factor: usize| {
        squares.write(1, |i| (i * factor) as f32);
        compute(&mut runtime, &sum)?;
        let wanted: Vec<f32> = (0..N * N).map(|i| (i + i * factor) as f32).collect();
        assert_eq!(squares.read(2), wanted);
        Ok::<_, Failure>(())
    };
    times(2).unwrap();
    assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success());
    let failure = times(3).unwrap_err().to_string();
    assert!(failure.contains("signal 9") && !failure.contains('\n'), "{failure}");
    for factor in [4, 5] {
        times(factor).unwrap();
    }
}

/// The device `inproc`, which is lost after so many messages.
struct Watched {
    device: Box<dyn Device>,
    calls: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    last: usize,
}

impl Watched {
    fn open(last: usize) -> (Self, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let calls = std::sync::Arc::default();
        let device = open("inproc", &DeviceOptions::default()).unwrap();
        (Self { device, calls: std::sync::Arc::clone(&calls), last }, calls)
    }

    /// Counts a message.
    fn count(&self) -> Result<(), DeviceError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 > self.last {
            return Err(DeviceError::Lost { reason: "a test wants it so".to_owned() });
        }
        Ok(())
    }
}

impl Device for Watched {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.count()?;
        self.device.allocate(bytes)
    }

    fn import(&mut self, source: std::sync::Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.device.import(source)
    }

    fn allocate_in(&mut self, sessions: SessionSet, bytes: u64) -> Result<Buffer, DeviceError> {
        self.device.allocate_in(sessions, bytes)
    }

    fn load_in(&mut self, session: usize, load: &Load) -> Result<(), DeviceError> {
        self.count()?;
        self.device.load_in(session, load)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.device.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        self.count()?;
        self.device.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.device.wait(timeout)
    }

    fn map_again(&mut self, memory: &SharedMemory) -> Result<Buffer, DeviceError> {
        self.count()?;
        self.device.map_again(memory)
    }

    /// Started again, it takes as many messages as before.
    fn reset(&mut self) -> Result<(), DeviceError> {
        self.calls.store(0, Ordering::Relaxed);
        self.device.reset()
    }
}
