//! DMA by the DSP's engines, as the stand-in plays them: faults are typed, none hangs, and the session can be
//! had again.

use std::time::{Duration, Instant};

use hexflash::device::inproc::Inproc;
use hexflash::device::{Device, DeviceError};
use hexflash::engine::{Engine, EngineError, EngineOptions};
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::{ErrorCode, Status};

use cdsprpc::standin::{StandIn, model};

fn load(device: Box<dyn Device>) -> Engine {
    let gguf = Gguf::open(&model("tiny-hybrid-q8_0.gguf")).unwrap();
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions { n_ctx: Some(64), ..EngineOptions::default() };
    Engine::load(&gguf, device, &options, &image).unwrap()
}

/// Decodes the tokens until one fails; gives the logits after each.
fn decode(engine: &mut Engine, tokens: &[u32]) -> Result<Vec<Vec<f32>>, EngineError> {
    let step = |token: &u32| {
        engine.decode(*token)?;
        Ok(engine.logits(0).to_vec())
    };
    tokens.iter().map(step).collect()
}

const TOKENS: [u32; 8] = [5, 80, 7, 200, 31, 9, 9, 1];

/// An engine that meets an error, stops early, or never ends, at the first transfer, at one in the middle of
/// a step, and later.
#[test]
fn an_engine_that_fails_is_a_typed_fault_and_the_text_goes_on_after_a_reset() {
    let inproc = Inproc::open(&StandIn::new("").options()).unwrap();
    let expected = decode(&mut load(Box::new(inproc)), &TOKENS).unwrap();
    let mut standin = StandIn::new("");
    for (slip, code) in [(2, ErrorCode::DmaError), (0, ErrorCode::DmaError), (1, ErrorCode::DmaTimeout)] {
        for at in [1, 100, 1000] {
            standin.configure(&format!("check=0 dsp.dma={slip}@{at}"));
            let mut engine = load(Box::new(standin.open().unwrap()));
            let start = Instant::now();
            let error = decode(&mut engine, &TOKENS).expect_err("a fault");
            // Before the host's patience of 30 s is over, that is: the DSP has noticed.
            assert!(start.elapsed() < Duration::from_secs(28), "{slip} at {at}: {:?}", start.elapsed());
            assert!(error.is_loss(), "{slip} at {at}: {error}");
            let EngineError::Device(DeviceError::Fault { status, fault, .. }) = &error else {
                panic!("{slip} at {at}: {error}")
            };
            assert_eq!((*status, fault.code), (Status::Fatal, code), "{slip} at {at}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("op ") && text.contains("DMA") && text.contains("DMA by threads"),
                "{text}"
            );
            // The next process has none of that.
            standin.configure("check=0");
            engine.recover().unwrap();
            let done = engine.n_past() as usize;
            assert!(done < TOKENS.len(), "{slip} at {at}");
            assert_eq!(decode(&mut engine, &TOKENS[done..]).unwrap(), expected[done..], "{slip} at {at}");
            drop(engine);
            standin.is_clean();
        }
    }
}

/// Threads that move the data themselves ask the engines for nothing.
#[test]
fn without_the_engines_their_faults_do_not_matter() {
    let standin = StandIn::new("dsp.dma=2@1+");
    let run = |extra: &[&str]| {
        let arguments = ["run", "--no-repack-cache", "--temp", "0", "-n", "3", "def"];
        standin.hexflash(&[&arguments, extra].concat()).output().unwrap()
    };
    let output = run(&["--dma", "threads"]);
    assert!(output.status.success(), "{output:?}");
    let output = run(&["--dma", "engine"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("DMA transfer failed") && stderr.contains("(3 of 3)"), "{stderr}");
    assert_eq!(standin.violations(), Vec::<String>::new());
}
