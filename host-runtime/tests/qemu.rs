//! The `qemu` device: the Hexagon image gives the bits of `inproc`, and its failures are seen, said and
//! survived.
#![cfg(target_os = "linux")]

#[path = "device/damaged.rs"]
mod damaged;
#[path = "device/emulator.rs"]
mod emulator;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hexflash::device::qemu::{Qemu, Settings};
use hexflash::device::{Arch, Device, DeviceError, DeviceOptions, inproc};
use hexflash::engine::{Engine, EngineOptions, RoundLimits};
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::message::{Message, Ping};
use hexflash_dsp::dma::DmaMode;

/// Time within which an end must be noticed. A message that waits for a lost emulator would wait for twice as
/// long, and other work on the machine takes its share of it.
const SOON: Duration = Duration::from_secs(30);

fn settings(threads: usize, dma: DmaMode) -> Settings {
    Settings { threads, vtcm_bytes: 8 << 20, dma, arch: None, trace: None }
}

fn qemu(threads: usize, dma: DmaMode) -> Option<Qemu> {
    emulator::qemu(settings(threads, dma))
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(name)
}

fn engine(model: &Path, device: Box<dyn Device>) -> Engine {
    let gguf = Gguf::open(model).unwrap();
    let options = EngineOptions { n_ctx: Some(128), batch: 32, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Engine::load(&gguf, device, &options, &image).unwrap()
}

/// Prefill, decode and verify; the bits of all logits.
fn transcript(mut engine: Engine, prompt: usize) -> Vec<u32> {
    let mut bits = Vec::new();
    let mut keep = |engine: &mut Engine, rows: usize| {
        for row in 0..rows {
            bits.extend(engine.logits(row).iter().map(|x| x.to_bits()));
        }
        engine.argmax(rows - 1)
    };
    engine.prefill(&[1, 45, 320, 7, 99][..prompt], |_| {}).unwrap();
    let mut token = keep(&mut engine, 1);
    engine.decode(token).unwrap();
    token = keep(&mut engine, 1);
    engine.decode_many(&[token, 17, 4]).unwrap();
    keep(&mut engine, 3);
    bits
}

fn inproc_transcript(model: &Path, prompt: usize) -> Vec<u32> {
    let device =
        inproc::Inproc::open(&DeviceOptions { threads: Some(1), ..DeviceOptions::default() }).unwrap();
    transcript(engine(model, Box::new(device)), prompt)
}

#[test]
fn vector_operations_are_as_defined() {
    if qemu(1, DmaMode::AtOnce).is_some() {
        hexflash::device::qemu::check().unwrap();
    }
}

#[test]
fn logits_are_those_of_inproc_bit_for_bit() {
    for (name, prompt) in
        [("tiny-hybrid-q8_0.gguf", 5), ("tiny-hybrid-q4_0.gguf", 1), ("tiny-hybrid-f16.gguf", 1)]
    {
        let Some(device) = qemu(1, DmaMode::AtOnce) else { return };
        let model = model(name);
        let want = inproc_transcript(&model, prompt);
        assert!(want == transcript(engine(&model, Box::new(device)), prompt), "{name}");
    }
}

#[test]
fn threads_and_dma_modes_change_no_bit() {
    let model = model("tiny-hybrid-q8_0.gguf");
    let want = inproc_transcript(&model, 1);
    for (threads, dma) in [(2, DmaMode::AtOnce), (3, DmaMode::AtWait), (8, DmaMode::OutOfOrder)] {
        let Some(device) = qemu(threads, dma) else { return };
        assert!(want == transcript(engine(&model, Box::new(device)), 1), "{threads} threads, {dma:?}");
    }
}

#[test]
fn v67_has_no_dma_engines() {
    if qemu(1, DmaMode::AtOnce).is_some() {
        let error = Qemu::with_settings(settings(1, DmaMode::Engine)).err().unwrap().to_string();
        assert!(error.contains("v67 has no DMA engines"), "{error}");
    }
}

/// On the emulator, too: the same error, with the same layer.
#[test]
fn damaged_weights_are_reported_with_their_layer() {
    let Some(device) = qemu(2, DmaMode::AtOnce) else { return };
    let gguf = Gguf::open(&model("tiny-hybrid-q8_0.gguf")).unwrap();
    damaged::damage_is_reported_with_its_layer(&gguf, Box::new(device));
}

/// "def __repr__(self):\n        return ", which goes on as drafted.
const PROMPT: [u32; 9] = [585, 623, 1896, 689, 281, 336, 269, 355, 220];

/// Two speculative rounds, both in flight: the tokens, and the bits of the logits after a closing step.
fn rounds(device: Box<dyn Device>) -> (Vec<u32>, Vec<u32>) {
    let [gguf, draft] =
        ["tiny-hybrid-q8_0.gguf", "tiny-hybrid-dflash-q8_0.gguf"].map(|n| Gguf::open(&model(n)).unwrap());
    let options = EngineOptions { n_ctx: Some(128), batch: 32, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let mut engine = Engine::load_with(&gguf, Some(&draft), device, &options, &image).unwrap();
    engine.prefill(&PROMPT, |_| {}).unwrap();
    let mut tokens = vec![engine.argmax(0)];
    let limits = RoundLimits { draft_max: 7, tokens: 100, stops: &[] };
    let mut rounds = engine.rounds(tokens[0], &limits).unwrap().unwrap();
    for _ in 0..2 {
        rounds.submit().unwrap();
    }
    for _ in 0..2 {
        tokens.extend(&*rounds.next().unwrap().unwrap().tokens);
    }
    drop(rounds);
    engine.decode(9).unwrap();
    let bits = engine.logits(0).iter().map(|x| x.to_bits()).collect();
    (tokens, bits)
}

#[test]
fn speculative_rounds_are_those_of_inproc() {
    let Some(device) = qemu(2, DmaMode::AtWait) else { return };
    let host = inproc::Inproc::open(&DeviceOptions { threads: Some(1), ..DeviceOptions::default() }).unwrap();
    let (tokens, bits) = rounds(Box::new(host));
    assert!(tokens.len() > 4, "{tokens:?}: hardly anything was accepted");
    let (found, found_bits) = rounds(Box::new(device));
    assert_eq!(found, tokens);
    assert!(found_bits == bits, "the logits after the rounds differ");
}

fn signal(process: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

#[test]
fn a_killed_emulator_is_lost_soon_and_works_after_reset() {
    let Some(mut device) = qemu(2, DmaMode::AtOnce) else { return };
    let buffer = device.allocate(1000).unwrap();
    signal(device.process_id(), "-KILL");
    let start = Instant::now();
    let error = loop {
        let ping = Message::Ping(Ping::OURS);
        if let Err(error) = (&mut device as &mut dyn Device).call(&ping, Duration::from_secs(60)) {
            break error;
        }
    };
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let text = error.to_string();
    assert!(matches!(error, DeviceError::Lost { .. }) && text.contains("signal 9"), "{text}");
    device.reset().unwrap();
    let again = device.allocate(1000).unwrap();
    assert_eq!(again.id, buffer.id);
    device.free(again).unwrap();
}

/// The op by what it does and with which weight, and from the debug information where in the source it was.
#[test]
fn a_fault_names_the_op_the_function_and_the_line() {
    let settings = Settings { arch: Some(Arch::V73), ..settings(1, DmaMode::Engine) };
    let Some(device) = emulator::qemu(settings) else { return };
    let process = device.process_id();
    let mut engine = engine(&model("tiny-hybrid-q8_0.gguf"), Box::new(device));
    // An op has begun whenever the signal comes, however late this thread gets a processor.
    engine.prefill(&[1], |_| {}).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        signal(process, "-SEGV");
    });
    let start = Instant::now();
    let text = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "the emulator still runs");
        engine.reset();
        match engine.prefill(&[1, 45, 320, 7, 99], |_| {}) {
            Ok(()) => {}
            Err(error) => break error.to_string(),
        }
    };
    for words in ["ended by signal 11", "an access to 0x", ".rs:", "; in program ", ", op "] {
        assert!(text.contains(words), "{text}");
    }
    let named =
        ["MUL_MAT", "RMS_NORM", "FLASH_ATTN", "GATED_DELTA_NET", "SSM_CONV", "ARGMAX", "ADD", "QUANTIZE"];
    assert!(named.iter().any(|op| text.contains(op)) || text.contains(" after "), "{text}");
}

#[test]
fn a_generation_whose_emulator_is_killed_fails_soon() {
    let Some(device) = qemu(2, DmaMode::AtOnce) else { return };
    let process = device.process_id();
    let mut engine = engine(&model("tiny-hybrid-q8_0.gguf"), Box::new(device));
    engine.prefill(&[1, 2, 3], |_| {}).unwrap();
    signal(process, "-KILL");
    let start = Instant::now();
    let error = (0..100).find_map(|_| engine.decode(5).err()).unwrap().to_string();
    assert!(start.elapsed() < SOON && error.contains("signal 9") && error.contains("reset"), "{error}");
}

#[test]
fn a_hanging_emulator_is_a_timeout_and_works_after_reset() {
    let Some(mut device) = qemu(1, DmaMode::AtOnce) else { return };
    signal(device.process_id(), "-STOP");
    let _ = device.submit(&Message::Ping(Ping::OURS)).unwrap();
    let error = device.wait(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, DeviceError::Timeout(_)), "{error}");
    device.reset().unwrap();
}

#[test]
fn starts_and_stops_leave_nothing_behind() {
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let Some(device) = qemu(3, DmaMode::AtOnce) else { return };
    drop(device);
    let mut processes = Vec::new();
    let before = open_files();
    let rounds = 200;
    for _ in 0..rounds {
        let mut device = qemu(3, DmaMode::AtOnce).unwrap();
        let _buffer = device.allocate(1 << 20).unwrap();
        processes.push(device.process_id());
    }
    // Other tests of this process open files meanwhile: a leak would be one per round and more.
    assert!(open_files() < before + rounds, "{before} {}", open_files());
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process}");
    }
}
