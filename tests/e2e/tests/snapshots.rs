//! Rolling back: a text that was cut anywhere goes on with the bits of a text that was never longer.

use hexflash::engine::{Engine, EngineError, EngineOptions, SequenceId};
use hexflash::model::{CacheType, CacheTypes, Purpose};
use hexflash_e2e::state::{Snapshot, write_with_snapshots};
use hexflash_e2e::{Model, inproc, reference, settings};

/// Tokens of the text.
const TEXT: usize = 64;
/// Tokens that follow after it was cut.
const MORE: usize = 3;

/// An engine with room for so many snapshots.
fn engine(model: Model, snapshots: u64, sequences: u32) -> Engine {
    engine_with(CacheType::F16, model, snapshots, sequences)
}

/// The same with caches of this number format.
fn engine_with(cache: CacheType, model: Model, snapshots: u64, sequences: u32) -> Engine {
    let caches = CacheTypes::both(cache);
    let options =
        EngineOptions { n_ctx: Some(96), speculate: true, caches, sequences, ..EngineOptions::default() };
    let bytes = model.engine(inproc(settings()), &options).kept().bytes(Purpose::Recurrent);
    let snapshot_bytes = snapshots * bytes / u64::from(sequences);
    let engine = model.engine(inproc(settings()), &EngineOptions { snapshot_bytes, ..options });
    assert_eq!(engine.snapshot_room() as u64, snapshots);
    engine
}

fn text() -> Vec<u32> {
    let cases = reference::greedy(Model::F16).cases;
    cases.iter().flat_map(|case| &case.ids).copied().take(TEXT + MORE).collect()
}

/// The state after the first `n` tokens and `more`, in a text that was never longer.
fn straight(engine: &mut Engine, text: &[u32], n: usize, more: &[u32]) -> Snapshot {
    engine.reset();
    if n > 0 {
        engine.prefill(&text[..n], |_| ()).unwrap();
    }
    more.iter().for_each(|&token| engine.decode(token).unwrap());
    Snapshot::of(engine)
}

#[test]
fn a_text_can_be_cut_at_every_token() {
    // No room, room for fewer snapshots than are made, and room for all.
    can_be_cut_at_every_token(CacheType::F16, &[0, 3, 20]);
    can_be_cut_at_every_token(CacheType::Q8_0, &[3]);
    can_be_cut_at_every_token(CacheType::Q4R, &[3]);
}

fn can_be_cut_at_every_token(cache: CacheType, rooms: &[u64]) {
    let (text, model) = (text(), Model::Q8_0);
    let (text, more) = text.split_at(TEXT);
    let engine = |snapshots| engine_with(cache, model, snapshots, 1);
    let mut reference = engine(0);
    let expected: Vec<_> = (0..=TEXT).map(|n| straight(&mut reference, text, n, more)).collect();
    for &snapshots in rooms {
        let mut engine = engine(snapshots);
        for (n, expected) in expected.iter().enumerate() {
            engine.reset();
            let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
            write_with_snapshots(&mut sequence, text, 20);
            sequence.roll_back(n as u32).unwrap();
            assert_eq!(sequence.history(), &text[..n]);
            more.iter().for_each(|&token| sequence.decode(token).unwrap());
            let what = format!("{cache} caches, {snapshots} snapshots, cut at {n}");
            Snapshot::of(&mut engine).assert_same(expected, &what);
        }
    }
}

/// A snapshot spares computing the tokens before it: what it costs is counted in messages.
#[test]
fn a_snapshot_is_one_message_and_spares_the_tokens_before_it() {
    let text = text();
    let messages = |engine: &mut Engine, work: &mut dyn FnMut(&mut Engine)| {
        engine.reset_stats();
        work(engine);
        engine.stats().messages
    };
    let mut engine = engine(Model::F16, 1, 1);
    engine.prefill(&text[..40], |_| ()).unwrap();
    let first = |engine: &mut Engine, work: &dyn Fn(&mut hexflash::engine::Sequence<'_>)| {
        work(&mut engine.sequence(SequenceId::FIRST).unwrap());
    };
    let save = &mut |engine: &mut Engine| first(engine, &|s| assert_eq!(s.save().unwrap(), 40));
    assert_eq!(messages(&mut engine, save), 1);
    assert_eq!(messages(&mut engine, save), 0, "there is such a snapshot already");
    engine.prefill(&text[40..64], |_| ()).unwrap();
    let mut cut = |n| messages(&mut engine, &mut |engine| first(engine, &|s| s.roll_back(n).unwrap()));
    assert_eq!(cut(64), 0, "nothing is cut off");
    assert_eq!(cut(50), 2, "the snapshot, and a step for the ten tokens after it");
    assert_eq!(cut(40), 1, "the snapshot alone");
    assert_eq!(cut(39), 1, "the tokens from the beginning, in one step");
    assert_eq!(cut(0), 0, "an empty text has no state");
}

/// The text goes on otherwise after it was cut, and is cut again where it was longer before.
#[test]
fn snapshots_of_tokens_that_were_taken_back_are_gone() {
    let (text, model) = (text(), Model::Q8_0);
    let other: Vec<_> = text[..20].iter().chain(text[30..].iter()).copied().collect();
    let expected = straight(&mut engine(model, 0, 1), &other, 25, &text[60..61]);
    let mut engine = engine(model, 4, 1);
    let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
    sequence.prefill(&text[..25], |_| ()).unwrap();
    sequence.save().unwrap();
    sequence.roll_back(20).unwrap();
    sequence.prefill(&other[20..30], |_| ()).unwrap();
    sequence.roll_back(25).unwrap();
    sequence.decode(text[60]).unwrap();
    Snapshot::of(&mut engine).assert_same(&expected, "a text that went on otherwise");
}

#[test]
fn snapshots_of_one_sequence_do_not_serve_another() {
    let (text, model) = (text(), Model::F16);
    let mut reference = engine(model, 0, 1);
    let expected = straight(&mut reference, &text, 30, &text[30..31]);
    let mut engine = engine(model, 4, 2);
    let ids: Vec<_> = engine.sequences().collect();
    for (&id, from) in ids.iter().zip([0, 5]) {
        let mut sequence = engine.sequence(id).unwrap();
        sequence.prefill(&text[from..from + 30], |_| ()).unwrap();
        sequence.save().unwrap();
        sequence.prefill(&text[from + 30..from + 40], |_| ()).unwrap();
    }
    // The first one forgets its text; the snapshots of the other stay.
    engine.sequence(ids[0]).unwrap().reset();
    engine.sequence(ids[0]).unwrap().prefill(&text[..40], |_| ()).unwrap();
    for (&id, at) in ids.iter().zip([30, 35]) {
        engine.sequence(id).unwrap().roll_back(30).unwrap();
        engine.sequence(id).unwrap().decode(text[at]).unwrap();
        if id == ids[0] {
            Snapshot::of_sequence(&mut engine, id).assert_same(&expected, "the first sequence");
        }
    }
    let expected = straight(&mut reference, &text[5..], 30, &text[35..36]);
    Snapshot::of_sequence(&mut engine, ids[1]).assert_same(&expected, "the second sequence");
}

#[test]
fn a_text_cannot_be_rolled_back_to_what_it_never_was() {
    let mut engine = engine(Model::F16, 1, 1);
    engine.prefill(&text()[..5], |_| ()).unwrap();
    let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
    let error = sequence.roll_back(6).unwrap_err();
    assert!(matches!(error, EngineError::RollBack { wanted: 6, n_past: 5 }), "{error}");
    assert_eq!(sequence.n_past(), 5);
}
