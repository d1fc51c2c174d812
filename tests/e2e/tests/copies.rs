//! Copies of sequences: a text that was taken off the device, or was in a file, goes on with the bits of one
//! that never left.

use hexflash::device::inproc::Inproc;
use hexflash::device::{DeviceOptions, SplitDevice};
use hexflash::engine::{CopyError, Engine, EngineError, EngineOptions, SequenceCopy, SequenceId};
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY, Purpose};
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Draft, Model, inproc, reference, settings};

fn text() -> Vec<u32> {
    let cases = reference::greedy(Model::F16).cases;
    cases.iter().flat_map(|case| &case.ids).copied().take(70).collect()
}

/// Settings with room for a few snapshots.
fn options(n_ctx: u32, sequences: u32, cache: CacheType) -> EngineOptions {
    let caches = CacheTypes::both(cache);
    let options =
        EngineOptions { n_ctx: Some(n_ctx), sequences, caches, speculate: true, ..EngineOptions::default() };
    let one = Model::Q8_0.engine(inproc(settings()), &options).kept().bytes(Purpose::Recurrent);
    EngineOptions { snapshot_bytes: 6 * one / u64::from(sequences), ..options }
}

fn engine(options: &EngineOptions) -> Engine {
    Model::Q8_0.engine(inproc(settings()), options)
}

/// The copy, by way of a file's bytes.
fn stored(copy: &SequenceCopy) -> SequenceCopy {
    SequenceCopy::from_bytes(&copy.to_bytes()).unwrap()
}

/// What a text of these tokens has that was never anywhere else, after one more token.
fn straight(options: &EngineOptions, tokens: &[u32], next: u32) -> Snapshot {
    let mut engine = engine(options);
    engine.prefill(tokens, |_| ()).unwrap();
    engine.decode(next).unwrap();
    Snapshot::of(&mut engine)
}

const LAST: SequenceId = SequenceId::new(2);

/// Into another sequence of another engine, with another context and other neighbours.
#[test]
fn a_copy_goes_on_where_the_text_was() {
    let text = text();
    for cache in CacheType::ALL {
        let (from, to) = (options(96, 2, cache), options(128, 3, cache));
        // Ends of tiles, and between them.
        for n in [1, 32, 60] {
            let mut one = engine(&from);
            one.prefill(&text[..n], |_| ()).unwrap();
            let copy = one.sequence(SequenceId::FIRST).unwrap().copy_out().unwrap();
            assert_eq!(copy.tokens(), &text[..n]);
            let mut other = engine(&to);
            // What was there before, and what is beside it.
            for (id, from) in [(LAST, 3), (SequenceId::FIRST, 9)] {
                other.sequence(id).unwrap().prefill(&text[from..60], |_| ()).unwrap();
            }
            let mut sequence = other.sequence(LAST).unwrap();
            sequence.copy_in(&stored(&copy)).unwrap();
            assert_eq!(sequence.history(), &text[..n]);
            sequence.decode(text[n]).unwrap();
            let expected = straight(&to, &text[..n], text[n]);
            let what = format!("{cache} caches, {n} tokens");
            Snapshot::of_sequence(&mut other, LAST).assert_same(&expected, &what);
        }
    }
}

#[test]
fn snapshots_come_with_the_copy() {
    let text = text();
    let options = options(96, 2, CacheType::F16);
    let mut one = engine(&options);
    let mut sequence = one.sequence(SequenceId::FIRST).unwrap();
    for range in [0..20, 20..40, 40..64] {
        sequence.prefill(&text[range], |_| ()).unwrap();
        sequence.save().unwrap();
    }
    let copy = stored(&sequence.copy_out().unwrap());
    let mut other = engine(&options);
    assert_eq!([64, 63, 40, 39, 19].map(|n| copy.reach(&other, n)), [64, 40, 40, 20, 0]);
    let mut sequence = other.sequence(SequenceId::new(1)).unwrap();
    sequence.copy_in(&copy).unwrap();
    assert_eq!([64, 63, 40, 39, 19].map(|n| sequence.reach(n)), [64, 40, 40, 20, 0]);
    sequence.roll_back(40).unwrap();
    sequence.decode(text[65]).unwrap();
    let found = Snapshot::of_sequence(&mut other, SequenceId::new(1));
    found.assert_same(&straight(&options, &text[..40], text[65]), "rolled back in a copy");
}

/// Tokens of the last verification are not in the states yet, so that they are not in the copy.
#[test]
fn tokens_on_the_tape_are_left_out() {
    let text = text();
    let options = options(96, 1, CacheType::F16);
    let mut one = engine(&options);
    let mut sequence = one.sequence(SequenceId::FIRST).unwrap();
    sequence.prefill(&text[..30], |_| ()).unwrap();
    sequence.verify(&text[30..30 + MAX_VERIFY as usize]).unwrap();
    sequence.commit(3).unwrap();
    let copy = sequence.copy_out().unwrap();
    assert_eq!((copy.tokens(), sequence.n_past()), (&text[..30], 33));
    sequence.copy_in(&copy).unwrap();
    sequence.decode(text[30]).unwrap();
    Snapshot::of(&mut one).assert_same(&straight(&options, &text[..30], text[30]), "after a verification");
}

/// The draft's caches come along: it guesses what it would have guessed.
#[test]
fn drafts_go_on_too() {
    let text = text();
    let engine = || Draft::engine(Some(Draft::Q8_0), Model::Q8_0, inproc(settings()), Some(96));
    let mut one = engine();
    one.prefill(&text[..20], |_| ()).unwrap();
    text[20..40].iter().for_each(|&token| one.decode(token).unwrap());
    let mut sequence = one.sequence(SequenceId::FIRST).unwrap();
    let copy = sequence.copy_out().unwrap();
    let expected = sequence.draft(text[40], 5).unwrap();
    let mut other = engine();
    let mut sequence = other.sequence(SequenceId::FIRST).unwrap();
    sequence.copy_in(&stored(&copy)).unwrap();
    assert_eq!(sequence.draft(text[40], 5).unwrap(), expected);
}

/// Layers in several sessions have their states in several buffers.
#[test]
fn copies_do_not_depend_on_sessions() {
    let text = text();
    let options = options(96, 2, CacheType::F16);
    let gguf = Model::Q8_0.gguf();
    let device = SplitDevice::<Inproc>::open(&DeviceOptions::default(), 2).unwrap();
    let mut split = Engine::load(&gguf, Box::new(device), &options, &no_cache()).unwrap();
    split.prefill(&text[..50], |_| ()).unwrap();
    let copy = split.sequence(SequenceId::FIRST).unwrap().copy_out().unwrap();
    let mut one = engine(&options);
    one.sequence(SequenceId::FIRST).unwrap().copy_in(&copy).unwrap();
    one.decode(text[50]).unwrap();
    Snapshot::of(&mut one).assert_same(&straight(&options, &text[..50], text[50]), "from two sessions");
}

fn no_cache() -> ImageOptions<'static> {
    ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() }
}

#[test]
fn copies_of_other_models_and_caches_are_refused() {
    let text = text();
    let options = options(96, 1, CacheType::F16);
    let mut one = engine(&options);
    one.prefill(&text[..40], |_| ()).unwrap();
    let copy = one.sequence(SequenceId::FIRST).unwrap().copy_out().unwrap();
    let refusal = |mut engine: Engine| {
        engine.prefill(&text[..3], |_| ()).unwrap();
        let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
        let error = sequence.copy_in(&copy).unwrap_err();
        assert_eq!(sequence.history(), &text[..3], "it is as before");
        match error {
            EngineError::Copy(error) => error,
            other => panic!("{other}"),
        }
    };
    let model = Model::Q4_0.engine(inproc(settings()), &options);
    assert_eq!(refusal(model), CopyError::Origin);
    let caches = CacheTypes::both(CacheType::Q8_0);
    assert_eq!(refusal(engine(&EngineOptions { caches, ..options.clone() })), CopyError::Origin);
    let short = EngineOptions { n_ctx: Some(32), ..options };
    assert_eq!(refusal(engine(&short)), CopyError::TooLong { tokens: 40, n_ctx: 32 });
}
