//! Pictures in contexts: rows that stand for tokens, whatever else is done with the text.

use std::path::Path;

use hexflash::engine::{Engine, EngineOptions, ModelFiles};
use hexflash::gguf::Gguf;
use hexflash::model::{Encoder, PatchGrid};
use hexflash::picture::{EncodedPicture, Layout, Picture, Size};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::encoder::{
    self, BOUNDED_GEMMA4, Change, GEMMA3, GEMMA4, LFM2, NORMED_LFM2, OLD_SMOLVLM, SMOLVLM, Shape,
};
use hexflash_e2e::{Model, inproc, repo_file, settings};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

fn load(target: &Gguf, encoder: &Gguf, options: &EngineOptions) -> Engine {
    let files = ModelFiles::of(target).with_encoder(Some(encoder));
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let device = Box::new(inproc(settings()));
    Engine::load_files(files, device, options, &image).unwrap_or_else(|error| panic!("{error}"))
}

/// A model that takes the rows of an encoder, and the encoder.
fn pair(dir: &Path, shape: Shape) -> [Gguf; 2] {
    let target = match shape {
        // Its rows see each other, which layers that go from token to token cannot do.
        GEMMA3 | GEMMA4 | BOUNDED_GEMMA4 => Gguf::open(&repo_file("models/tiny-dense-f16.gguf")).unwrap(),
        _ => Model::Q8_0.gguf(),
    };
    let n_embd = hexflash::model::read(&target).unwrap().n_embd as usize;
    [target, encoder::write(n_embd, shape, &[], &dir.join("mmproj.gguf"))]
}

/// A picture of random colours that change slowly, always the same for a seed.
fn picture(seed: u64, width: u32, height: u32) -> Picture {
    let mut random = Pcg32::seed_from_u64(seed);
    let waves: Vec<[f32; 3]> =
        (0..3).map(|_| std::array::from_fn(|_| random.random_range(0.01..0.3))).collect();
    let value = |x: u32, y: u32, [a, b, c]: [f32; 3]| {
        (127.0 + 120.0 * (a * x as f32 + c).sin() * (b * y as f32).cos()) as u8
    };
    let rgb = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let rgb = rgb.flat_map(|(x, y)| waves.iter().map(move |&wave| value(x, y, wave)).collect::<Vec<_>>());
    Picture::from_rgb(Size { width, height }, rgb.collect()).unwrap()
}

fn encode(engine: &mut Engine, text: &TextModel, picture: &Picture) -> EncodedPicture {
    let layout = Layout::new(picture, engine.encoder().unwrap()).unwrap();
    EncodedPicture::new(engine, &text.tokenizer, &layout, |_, _| ()).unwrap()
}

#[test]
fn every_kind_of_encoder_gives_rows_that_depend_on_the_picture() {
    let dir = tempfile::tempdir().unwrap();
    for shape in [SMOLVLM, OLD_SMOLVLM, GEMMA3, GEMMA4, BOUNDED_GEMMA4, LFM2, NORMED_LFM2] {
        let [target, encoder] = pair(dir.path(), shape);
        let text = TextModel::read(&target).unwrap();
        let mut engine = load(&target, &encoder, &EngineOptions::default());
        let [a, b] = [1, 2].map(|seed| encode(&mut engine, &text, &picture(seed, 200, 150)));
        assert_eq!(a.rows().len(), b.rows().len());
        for (a, b) in a.rows().iter().zip(b.rows()) {
            assert!(a.values().iter().all(|value| value.is_finite()), "{shape:?}");
            assert_ne!(a.values(), b.values());
            assert_ne!(a.ids(), b.ids());
        }
        // The same once more is known, and costs no step.
        let messages = engine.stats().messages;
        let again = encode(&mut engine, &text, &picture(1, 200, 150));
        assert_eq!((again.tokens(), engine.stats().messages), (a.tokens(), messages));
    }
}

/// The position of each row of patches, and of each square, counts: a picture that is turned upside down has
/// the rows of another one.
#[test]
fn tiles_of_any_shape_have_their_own_positions() {
    let dir = tempfile::tempdir().unwrap();
    let [target, encoder] = pair(dir.path(), LFM2);
    let mut engine = load(&target, &encoder, &EngineOptions::default());
    let encoder: Encoder = engine.encoder().unwrap().clone();
    let mut rows = |width, height| {
        let grid = PatchGrid { width, height };
        let patches = vec![0.25; (grid.len() * encoder.patch_values()) as usize];
        engine.encode(grid, &patches).unwrap().values().to_vec()
    };
    let wide = rows(8, 4);
    let high = rows(4, 8);
    assert_eq!(wide.len(), high.len());
    assert_ne!(wide, high);
    // All patches are alike, but for their places.
    let width = wide.len() / 8;
    assert_ne!(wide[..width], wide[width..2 * width]);
}

/// Logits after a text with a picture, as bits.
fn logits(engine: &mut Engine, prompt: &[u32]) -> Vec<u32> {
    engine.reset();
    engine.prefill(prompt, |_| ()).unwrap();
    engine.logits(0).iter().map(|value| value.to_bits()).collect()
}

#[test]
fn the_text_after_a_picture_does_not_depend_on_the_steps_that_read_it() {
    let dir = tempfile::tempdir().unwrap();
    for shape in [SMOLVLM, GEMMA3, BOUNDED_GEMMA4] {
        let [target, encoder] = pair(dir.path(), shape);
        let text = TextModel::read(&target).unwrap();
        let prompt = |engine: &mut Engine| {
            let shown = encode(engine, &text, &picture(3, 90, 120));
            let [before, behind] = ["fn main() {", "let x ="].map(|piece| text.encode(piece).unwrap());
            ([&before[..], shown.tokens(), &behind].concat(), shown)
        };
        let mut whole = load(&target, &encoder, &EngineOptions::default());
        let (tokens, _kept) = prompt(&mut whole);
        let wanted = logits(&mut whole, &tokens);
        for batch in [1, 3, 16] {
            let mut engine = load(&target, &encoder, &EngineOptions { batch, ..EngineOptions::default() });
            let (tokens, _kept) = prompt(&mut engine);
            assert_eq!(logits(&mut engine, &tokens), wanted, "{shape:?}, batch {batch}");
        }
        // What a prompt has in common with the context is not run again, rows of pictures or not.
        let longer = [&tokens[..], &[5, 6]].concat();
        let common = whole.sequence(hexflash::engine::SequenceId::FIRST).unwrap().common(&longer);
        assert_eq!(common, tokens.len());
    }
}

/// Each row of a Gemma's picture depends on those behind it, and so is none without them.
#[test]
fn rows_that_see_each_other_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let [target, encoder] = pair(dir.path(), GEMMA3);
    let text = TextModel::read(&target).unwrap();
    let mut engine = load(&target, &encoder, &EngineOptions { batch: 8, ..EngineOptions::default() });
    let shown = encode(&mut engine, &text, &picture(3, 90, 120));
    let rows: Vec<u32> = shown.rows()[0].ids().collect();
    for part in [&rows[..rows.len() - 1], &rows[1..]] {
        engine.reset();
        let error = engine.prefill(part, |_| ()).unwrap_err();
        assert!(error.to_string().contains("all rows of a picture, or none"), "{error}");
    }
    engine.reset();
    engine.prefill(&rows, |_| ()).unwrap();
    // A model that goes from token to token cannot read them.
    let hybrid = Model::Q8_0.gguf();
    let n_embd = hexflash::model::read(&hybrid).unwrap().n_embd as usize;
    let encoder = encoder::write(n_embd, GEMMA3, &[], &dir.path().join("other.gguf"));
    let error = Encoder::read(&encoder, &hexflash::model::read(&hybrid).unwrap()).unwrap_err();
    assert!(error.to_string().contains("see no picture as a whole"), "{error}");
}

/// The largest picture has 280 rows.
#[test]
fn a_context_may_be_smaller_than_the_largest_picture() {
    let dir = tempfile::tempdir().unwrap();
    let [target, encoder] = pair(dir.path(), GEMMA4);
    let mut engine = load(&target, &encoder, &EngineOptions { n_ctx: Some(64), ..EngineOptions::default() });
    let values = engine.encoder().unwrap().patch_values();
    let mut prompt = |side: u32| {
        let grid = PatchGrid { width: side, height: side };
        let tile = engine.encode(grid, &vec![0.25; (grid.len() * values) as usize]).unwrap();
        let ids: Vec<u32> = [5].into_iter().chain(tile.ids()).chain([7]).collect();
        engine.reset();
        (ids.len(), engine.prefill(&ids, |_| ()))
    };
    let (most, shown) = prompt(21);
    shown.unwrap();
    assert_eq!(most, 7 * 7 + 2);
    let (_, refused) = prompt(24);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("context"), "{error}");
}

#[test]
fn encoders_that_do_not_fit_are_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |shape, change: Change<'_>| {
        let [target, _] = pair(dir.path(), shape);
        let n_embd = hexflash::model::read(&target).unwrap().n_embd as usize;
        let encoder = encoder::write(n_embd, shape, &[change], &dir.path().join("mmproj.gguf"));
        let files = ModelFiles::of(&target).with_encoder(Some(&encoder));
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let device = Box::new(inproc(settings()));
        let error = Engine::load_files(files, device, &EngineOptions::default(), &image).err();
        let line = error.unwrap_or_else(|| panic!("{change:?}")).to_string();
        assert!(line.contains("mmproj.gguf") && !line.contains('\n'), "{line}");
        line
    };
    for (change, expected) in [
        (Change::Projector("qwen3vl_merger"), "projector \"qwen3vl_merger\" is not supported"),
        (Change::Rows(1024 + 32), "was made for another model"),
        (Change::Without("v.blk.1.ln2.weight"), "v.blk.1.ln2.weight"),
        (Change::Without("v.position_embd.weight"), "v.position_embd.weight"),
        (Change::More("v.blk.0.attn_sinks"), "v.blk.0.attn_sinks"),
        (Change::Key("image_size", 100), "image_size is 100"),
        (Change::Key("attention.head_count", 7), "head_count is 7"),
        (Change::Key("block_count", 3), "v.blk.2."),
        (Change::Key("projector.scale_factor", 0), "scale_factor is 0"),
    ] {
        let line = refused(SMOLVLM, change);
        assert!(line.contains(expected), "{change:?}: {line}");
    }
    for (change, expected) in [
        (Change::Without("v.blk.1.ffn_gate.weight"), "v.blk.1.ffn_gate.weight"),
        (Change::Without("v.blk.0.attn_q_norm.weight"), "v.blk.0.attn_q_norm.weight"),
        // A bound is one number.
        (Change::More("v.blk.0.attn_q.input_min"), "v.blk.0.attn_q.input_min"),
        // Half of a head is turned by columns, and half by lines.
        (Change::Key("attention.head_count", 64), "head_count is 64"),
        (Change::Key("projector.scale_factor", 9), "scale_factor is 9"),
    ] {
        let line = refused(GEMMA4, change);
        assert!(line.contains(expected), "{change:?}: {line}");
    }
    let line = refused(GEMMA3, Change::Without("mm.soft_emb_norm.weight"));
    assert!(line.contains("mm.soft_emb_norm.weight"), "{line}");
    // A text model is no encoder, and an encoder no model.
    let path = repo_file("models/tiny-dense-f16.gguf");
    let text = Gguf::open(&path).unwrap();
    let error = Encoder::read(&text, &hexflash::model::read(&text).unwrap()).unwrap_err();
    assert!(error.to_string().contains("no encoder of pictures"), "{error}");
}
