//! Sequences that are copied off the DSP and back: its caches have what memory does not, until it is told.

use hexflash::device::htp::Htp;
use hexflash::device::inproc::Inproc;
use hexflash::device::{Device, DeviceOptions, KeptAccess, SplitDevice};
use hexflash::engine::{CopyError, Engine, EngineError, EngineOptions, SequenceId};
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};

use cdsprpc::standin::{StandIn, model};

const TEXT: [u32; 40] = [
    5, 60, 17, 200, 33, 9, 81, 120, 44, 7, 300, 21, 13, 99, 150, 62, 8, 31, 77, 210, 5, 60, 17, 200, 33, 9,
    81, 120, 44, 7, 300, 21, 13, 99, 150, 62, 8, 31, 77, 210,
];
const OTHER: SequenceId = SequenceId::new(1);

fn engine(device: Box<dyn Device>) -> Engine {
    let gguf = Gguf::open(&model("tiny-hybrid-q8_0.gguf")).unwrap();
    let options = EngineOptions {
        n_ctx: Some(96),
        batch: 32,
        sequences: 2,
        snapshot_bytes: 16 << 20,
        speculate: true,
        ..EngineOptions::default()
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Engine::load(&gguf, device, &options, &image).unwrap()
}

/// A text goes to the host and comes back where another one was, while a third goes on beside it: the logits
/// of both afterwards.
fn moved(engine: &mut Engine) -> Vec<Vec<f32>> {
    let mut first = engine.sequence(SequenceId::FIRST).unwrap();
    first.prefill(&TEXT[..20], |_| ()).unwrap();
    first.save().unwrap();
    first.prefill(&TEXT[20..30], |_| ()).unwrap();
    let copy = first.copy_out().unwrap();
    engine.sequence(OTHER).unwrap().prefill(&TEXT[7..30], |_| ()).unwrap();
    // The first one goes on: what it keeps is in caches of the DSP when the copy comes in.
    engine.sequence(SequenceId::FIRST).unwrap().prefill(&TEXT[30..35], |_| ()).unwrap();
    let mut other = engine.sequence(OTHER).unwrap();
    other.copy_in(&copy).unwrap();
    let mut all = Vec::new();
    for &token in &TEXT[30..34] {
        let mut other = engine.sequence(OTHER).unwrap();
        other.decode(token).unwrap();
        all.push(other.logits(0).to_vec());
    }
    let mut first = engine.sequence(SequenceId::FIRST).unwrap();
    first.decode(TEXT[35]).unwrap();
    all.push(first.logits(0).to_vec());
    // The snapshot came with the copy.
    let mut other = engine.sequence(OTHER).unwrap();
    assert_eq!(other.reach(25), 20);
    other.roll_back(20).unwrap();
    other.decode(TEXT[20]).unwrap();
    all.push(other.logits(0).to_vec());
    all
}

#[test]
fn a_text_that_was_copied_off_the_dsp_goes_on() {
    let standin = StandIn::new("");
    let mut htp = engine(Box::new(standin.open().unwrap()));
    let mut inproc = engine(Box::new(Inproc::open(&DeviceOptions::default()).unwrap()));
    assert!(htp.copies_sequences());
    let (found, expected) = (moved(&mut htp), moved(&mut inproc));
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let same = found.iter().zip(expected).all(|(found, expected)| found.to_bits() == expected.to_bits());
        assert!(same, "logits {i}");
    }
    drop(htp);
    standin.is_clean();
}

/// What one session writes back, the others would have to drop.
#[test]
fn sessions_that_share_memory_cannot_copy() {
    let standin = StandIn::new("");
    let device = SplitDevice::<Htp>::open(&standin.options(), 2).unwrap();
    assert_eq!(device.kept_access(), KeptAccess::Never);
    let mut two = engine(Box::new(device));
    assert!(!two.copies_sequences());
    let mut first = two.sequence(SequenceId::FIRST).unwrap();
    first.prefill(&TEXT[..5], |_| ()).unwrap();
    assert!(matches!(first.copy_out(), Err(EngineError::Copy(CopyError::Hidden))));
    drop(two);
    standin.is_clean();
}

/// The stand-in would have told.
#[test]
fn a_dsp_that_writes_nothing_back_is_found() {
    let standin = StandIn::new("forget=flush");
    let mut htp = engine(Box::new(standin.open().unwrap()));
    let mut first = htp.sequence(SequenceId::FIRST).unwrap();
    // Logits are old bytes, too, and nobody looks at them.
    let _ = first.prefill(&TEXT, |_| ());
    let before = standin.violations().len();
    let _ = first.copy_out();
    assert!(standin.violations().len() > before, "{:?}", standin.violations());
}
