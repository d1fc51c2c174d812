//! Encoders of pictures with random weights, and what a model makes of their rows, against llama.cpp's
//! library for pictures (mtmd).

use std::collections::HashSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hexflash::engine::{Engine, EngineOptions, ModelFiles};
use hexflash::gguf::Gguf;
use hexflash::gguf::writer::GgufWriter;
use hexflash::model::{Encoder, Projector};
use hexflash::picture::{EncodedPicture, Layout, Picture, Size, placed, text};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::encoder::{self, LFM2, NORMED_LFM2, OLD_SMOLVLM, SMOLVLM, Shape};
use hexflash_e2e::encoder::{BOUNDED_GEMMA4, GEMMA3 as GEMMA3_ENCODER, GEMMA4 as GEMMA4_ENCODER};
use hexflash_e2e::{inproc, repo_file, settings};
use hexflash_oracle::llama::{Chunk, Context, ContextOptions, Model, Pictures};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use tempfile::TempDir;

use crate::compare::random;
use crate::compare::random::ModelShape;
use crate::compare::shapes::{GEMMA3, GEMMA4};

/// Options of the comparison.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Pictures of each shape, of at most 20
    #[arg(long, default_value_t = 20)]
    pictures: usize,
    /// Shapes as published, whose layers are as wide as theirs and fewer
    #[arg(long)]
    wide: bool,
}

/// Most of the squares of differences, as a share of those of the rows: F16 weights, exact products.
const ROWS: f64 = 1e-5;
/// Most of such a share, of logits.
const LOGITS: f64 = 1e-4;

/// SmolVLM 256M and 500M, with two layers of twelve.
const SMOLVLM_WIDE: Shape =
    Shape { width: 768, heads: 12, inside: 3072, layers: 2, tile: 512, longest: 1024, ..SMOLVLM };
/// LFM2-VL 450M, with two layers of twelve.
const LFM2_WIDE: Shape = Shape { width: 768, heads: 12, inside: 3072, layers: 2, ..NORMED_LFM2 };

/// Gemma 3 4B and larger, with two layers of 27: 4,096 patches of heads of 72 values.
const GEMMA3_WIDE: Shape =
    Shape { width: 1152, heads: 16, inside: 4304, tile: 896, merge: 4, ..GEMMA3_ENCODER };

/// A model that takes the rows.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// A file of this repository.
    File(&'static str),
    /// Random weights in the shape of a Gemma 3, whose windows are shorter than a picture.
    Gemma3,
    /// Random weights in the shape of a Gemma 4, whose layers read something of each token besides the
    /// stream.
    Gemma4,
    /// Random weights of a Gemma 4 in the width of an E2B, which goes from row to row.
    Gemma4E2b,
}

const DENSE: Target = Target::File("tiny-dense-f16");
const HYBRID: Target = Target::File("tiny-hybrid-f16");

const NARROW: [(&str, Shape, Target); 9] = [
    ("smolvlm", SMOLVLM, DENSE),
    ("smolvlm, old file", OLD_SMOLVLM, HYBRID),
    ("lfm2", LFM2, DENSE),
    ("lfm2, normed", NORMED_LFM2, HYBRID),
    ("gemma3", GEMMA3_ENCODER, DENSE),
    ("gemma3, windows", GEMMA3_ENCODER, Target::Gemma3),
    ("gemma4", GEMMA4_ENCODER, Target::Gemma4),
    ("gemma4, bounded", BOUNDED_GEMMA4, DENSE),
    ("gemma4, e2b", GEMMA4_ENCODER, Target::Gemma4E2b),
];
const WIDE: [(&str, Shape, Target); 3] = [
    ("smolvlm, wide", SMOLVLM_WIDE, DENSE),
    ("lfm2, wide", LFM2_WIDE, HYBRID),
    ("gemma3, wide", GEMMA3_WIDE, Target::Gemma3),
];

/// Sizes of pictures: small, long, high, those of tiles, and such as become many tiles.
const SIZES: [[u32; 2]; 20] = [
    [200, 150],
    [64, 64],
    [33, 77],
    [640, 480],
    [480, 640],
    [512, 512],
    [127, 129],
    [1000, 300],
    [301, 999],
    [17, 400],
    [255, 257],
    [800, 600],
    [1280, 720],
    [90, 90],
    [1, 1],
    [768, 1024],
    [513, 511],
    [333, 222],
    [1024, 1024],
    [50, 60],
];

/// Compares all shapes.
///
/// # Errors
/// A file cannot be written or loaded.
pub fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let shapes = if arguments.wide { &WIDE[..] } else { &NARROW[..] };
    println!(
        "{:<20} {:<14} {:>9} {:>6} {:>10} {:>10}",
        "shape", "target", "pictures", "tiles", "rows", "logits"
    );
    let mut good = true;
    for &(name, shape, target) in shapes {
        let target = match target {
            Target::File(stem) => repo_file(&format!("models/{stem}.gguf")),
            Target::Gemma3 => written(&dir, &GEMMA3)?,
            Target::Gemma4 => written(&dir, &GEMMA4)?,
            Target::Gemma4E2b => written(&dir, &ModelShape { width: 1536, layers: 3, shared: 0, ..GEMMA4 })?,
        };
        let Figures { tiles, rows, logits } = compare(
            &target,
            shape,
            &dir.path().join("mmproj.gguf"),
            &SIZES[..arguments.pictures.min(SIZES.len())],
        )
        .map_err(|error| format!("{name}: {error}"))?;
        let stem = target.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let pictures = arguments.pictures.min(SIZES.len());
        let verdict = if rows <= ROWS && logits <= LOGITS { "" } else { "  too far" };
        println!("{name:<20} {stem:<14} {pictures:>9} {tiles:>6} {rows:>10.1e} {logits:>10.1e}{verdict}");
        good &= verdict.is_empty();
    }
    println!(
        "squares of differences as a share of all, the worst of each: rows {ROWS:.0e}, \
         logits {LOGITS:.0e} allowed"
    );
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A model with random weights, and with room in its vocabulary for the texts around tiles.
fn written(dir: &TempDir, shape: &ModelShape) -> Result<PathBuf, String> {
    let path = dir.path().join("random.gguf");
    random::write(&ModelShape { vocab: 1024, context: 1024, ..*shape }, &path)?;
    Ok(path)
}

/// The worst of a shape.
#[derive(Default)]
struct Figures {
    tiles: usize,
    rows: f64,
    logits: f64,
}

fn compare(target: &Path, shape: Shape, path: &Path, sizes: &[[u32; 2]]) -> Result<Figures, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let target = &with_markers(target, path)?;
    let gguf = Gguf::open(target).map_err(|e| words(&e))?;
    let n_embd = hexflash::model::read(&gguf).map_err(|e| words(&e))?.n_embd as usize;
    let encoder = encoder::write(n_embd, shape, &[], path);
    let files = ModelFiles::of(&gguf).with_encoder(Some(&encoder));
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions { n_ctx: Some(0), ..EngineOptions::default() };
    let mut engine =
        Engine::load_files(files, Box::new(inproc(settings())), &options, &image).map_err(|e| words(&e))?;
    let text_model = TextModel::read(&gguf).map_err(|e| words(&e))?;
    let model = Model::load(target).map_err(|e| words(&e))?;
    let limited = |encoder: &&Encoder| encoder.projector == Projector::Gemma4;
    let most = engine.encoder().filter(limited).map(Encoder::max_rows);
    let theirs = Pictures::load(path, &model, most, 2).map_err(|e| words(&e))?;
    let options =
        ContextOptions { n_ctx: engine.n_ctx(), n_batch: 256, threads: 2, ..ContextOptions::default() };
    let mut context = Context::new(&model, options).map_err(|e| words(&e))?;
    let mut figures = Figures::default();
    for (seed, &[width, height]) in sizes.iter().enumerate() {
        let picture = waves(seed as u64, Size { width, height });
        let prompt = "fn main() {<__media__>let x =";
        let chunks = theirs.chunks(prompt, [width, height], picture.rgb()).map_err(|e| words(&e))?;
        let layout = Layout::new(&picture, engine.encoder().ok_or("no encoder")?).map_err(|e| words(&e))?;
        let shown = EncodedPicture::new(&mut engine, &text_model.tokenizer, &layout, |_, _| ())
            .map_err(|e| words(&e))?;
        let prompt = placed(prompt, 1).map_err(|e| words(&e))?;
        let tokens =
            text(&text_model.tokenizer, &prompt, std::slice::from_ref(&shown)).map_err(|e| words(&e))?;
        // The same tokens, and as many rows in the same places.
        let mut at = 0;
        let mut tile = shown.rows().iter();
        for chunk in &chunks {
            match chunk {
                Chunk::Tokens(wanted) => {
                    let found: Vec<i32> =
                        tokens[at..].iter().take(wanted.len()).map(|&id| id as i32).collect();
                    if found != *wanted {
                        return Err(format!(
                            "{width} x {height}: tokens {found:?}, and llama.cpp's {wanted:?}"
                        ));
                    }
                    at += wanted.len();
                }
                Chunk::Rows { values: wanted, .. } => {
                    let tile = tile.next().ok_or_else(|| format!("{width} x {height}: a tile is missing"))?;
                    if tile.values().len() != wanted.len() {
                        let (ours, theirs) = (tile.values().len() / n_embd, wanted.len() / n_embd);
                        return Err(format!("{width} x {height}: {ours} rows, and llama.cpp's {theirs}"));
                    }
                    figures.rows = figures.rows.max(share(tile.values(), wanted));
                    figures.tiles += 1;
                    at += tile.ids().len();
                }
            }
        }
        if at != tokens.len() || tile.next().is_some() {
            return Err(format!("{width} x {height}: {} tokens, and llama.cpp's {at}", tokens.len()));
        }
        if tokens.len() > engine.n_ctx() as usize {
            continue;
        }
        context.clear();
        let mut logits = Vec::new();
        for chunk in &chunks {
            match chunk {
                Chunk::Tokens(tokens) => logits = context.decode_last(tokens).map_err(|e| words(&e))?,
                Chunk::Rows { values, is_seen_whole } => {
                    context.feed_rows(values, *is_seen_whole).map_err(|e| words(&e))?;
                }
            }
        }
        engine.reset();
        engine.prefill(&tokens, |_| ()).map_err(|e| words(&e))?;
        figures.logits = figures.logits.max(share(engine.logits(0), &logits));
    }
    Ok(figures)
}

/// A copy of a model beside `path`, with the texts around tiles in its vocabulary in place of the last
/// tokens.
fn with_markers(model: &Path, path: &Path) -> Result<PathBuf, String> {
    /// Control tokens, among the types of tokens in files.
    const CONTROL: i32 = 3;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let gguf = Gguf::open(model).map_err(|e| failed(&e))?;
    let mut names: Vec<String> =
        ["<fake_token_around_image>", "<global-img>", "<|image_start|>", "<|image_end|>"]
            .into_iter()
            .chain(["<|img_thumbnail|>", "<start_of_image>", "<end_of_image>", "<|image>", "<image|>"])
            .map(str::to_owned)
            .collect();
    for (line, column) in (1..=16).flat_map(|line| (1..=16).map(move |column| (line, column))) {
        names.push(format!("<row_{line}_col_{column}>"));
        if line.max(column) <= 10 {
            names.push(format!("<|img_row_{line}_col_{column}|>"));
        }
    }
    let tokens = gguf.meta().require_strings("tokenizer.ggml.tokens").map_err(|e| failed(&e))?;
    let mut tokens: Vec<String> = tokens.iter().map(str::to_owned).collect();
    let types = gguf.meta().array_i32("tokenizer.ggml.token_type").map_err(|e| failed(&e))?;
    let mut types = types.unwrap_or_else(|| vec![1; tokens.len()]);
    let first = tokens.len() - names.len();
    // Nothing is made of the tokens that give way, nor any of them of others.
    let gone: HashSet<String> = tokens[first..].iter().cloned().collect();
    let merges = gguf.meta().require_strings("tokenizer.ggml.merges").map_err(|e| failed(&e))?;
    let stays = |merge: &&str| {
        let parts: Vec<&str> = merge.split(' ').collect();
        !gone.contains(&parts.concat()) && !parts.iter().any(|part| gone.contains(*part))
    };
    let merges: Vec<String> = merges.iter().filter(stays).map(str::to_owned).collect();
    for (i, name) in names.into_iter().enumerate() {
        (tokens[first + i], types[first + i]) = (name, CONTROL);
    }
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.meta().iter() {
        writer.kv(key, value.clone());
    }
    writer.kv("tokenizer.ggml.tokens", tokens).kv("tokenizer.ggml.token_type", types);
    writer.kv("tokenizer.ggml.merges", merges);
    for tensor in gguf.tensors() {
        let data = gguf.data(tensor).map_err(|e| failed(&e))?;
        let added = writer.tensor(&tensor.name, tensor.ggml_type, tensor.shape(), data);
        added.map_err(|e| failed(&e))?;
    }
    let copy = path.with_file_name("model.gguf");
    let file = File::create(&copy).map_err(|e| failed(&e))?;
    writer.write_to(BufWriter::new(file)).map_err(|e| failed(&e))?;
    Ok(copy)
}

/// The squares of the differences, as a share of the squares of what is wanted.
fn share(found: &[f32], wanted: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let pairs = found.iter().zip(wanted);
    let of_differences = squares(&mut pairs.map(|(&found, &wanted)| f64::from(found) - f64::from(wanted)));
    of_differences / squares(&mut wanted.iter().map(|&value| value.into())).max(f64::MIN_POSITIVE)
}

/// A picture of waves of colours and some noise.
fn waves(seed: u64, size: Size) -> Picture {
    let mut random = Pcg64Mcg::new(u128::from(seed) + 1);
    let mut number = |most: f64| f64::from(random.next_u32()) / f64::from(u32::MAX) * most;
    let waves: Vec<[f64; 3]> = (0..3).map(|_| [number(0.2), number(0.2), number(6.0)]).collect();
    let mut rgb = Vec::with_capacity(3 * size.width as usize * size.height as usize);
    for y in 0..size.height {
        for x in 0..size.width {
            for [a, b, c] in &waves {
                let wave = (a * f64::from(x) + c).sin() * (b * f64::from(y)).cos();
                rgb.push((127.0 + 100.0 * wave + number(27.0)) as u8);
            }
        }
    }
    Picture::from_rgb(size, rgb).expect("sizes are small")
}
