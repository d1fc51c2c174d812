//! Images of small models: layout, forms, errors.

mod common;

use std::path::PathBuf;
use std::sync::Mutex;

use common::{dequantize, random_rows, tile_value};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::weights::tiles::TILED;
use hexflash::weights::{
    CachePolicy, Form, ImageOptions, WEIGHT_ALIGNMENT, WeightEntry, WeightError, WeightImage, WeightSpec,
};
use hexflash_abi::DType;
use tempfile::TempDir;

struct Model {
    dir: TempDir,
    writer: GgufWriter<'static>,
}

impl Model {
    fn new() -> Self {
        let mut writer = GgufWriter::new();
        writer.kv("general.architecture", "test");
        Self { dir: TempDir::new().unwrap(), writer }
    }

    /// Adds a tensor; gives its values.
    fn add(&mut self, name: &str, ggml_type: GgmlType, ne: &[u64]) -> Vec<f32> {
        let rows = ne[1..].iter().product::<u64>() as usize;
        let data = random_rows(ggml_type, ne[0] as usize, rows, name.len() as u64);
        let values = dequantize(ggml_type, &data);
        self.writer.tensor(name, ggml_type, ne, data).unwrap();
        values
    }

    fn open(&self) -> Gguf {
        let path: PathBuf = self.dir.path().join("model.gguf");
        let mut bytes = Vec::new();
        self.writer.write_to(&mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        Gguf::open(&path).unwrap()
    }

    fn load(&self, specs: &[WeightSpec]) -> Result<WeightImage, WeightError> {
        WeightImage::load(
            &self.open(),
            specs,
            &ImageOptions { cache: CachePolicy::Off, ..Default::default() },
        )
    }
}

fn spec(name: &str, sources: &[&str], form: Form) -> WeightSpec {
    WeightSpec { name: name.to_owned(), sources: sources.iter().map(|&s| s.to_owned()).collect(), form }
}

fn floats(image: &WeightImage, entry: &WeightEntry) -> Vec<f32> {
    image.data(entry).unwrap().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn every_form_lands_in_its_place() {
    let mut model = Model::new();
    let mut specs = Vec::new();
    let mut tiled = Vec::new();
    for &t in TILED {
        let name = format!("w.{t}");
        tiled.push((name.clone(), model.add(&name, t, &[256, 40])));
        specs.push(WeightSpec::new(&name, Form::Tiled));
    }
    let norm = model.add("norm", GgmlType::F16, &[7]);
    let conv = model.add("conv", GgmlType::BF16, &[4, 9]);
    specs.push(WeightSpec::new("norm", Form::Plain));
    specs.push(WeightSpec::new("conv", Form::Transposed));
    specs.push(spec("ones", &[], Form::Values(vec![1.0, 2.0, 3.0])));

    let image = model.load(&specs).unwrap();
    assert_eq!(image.memory().unwrap().len() as u64, image.bytes());
    assert_eq!(image.memory().unwrap().as_ptr() as usize % 4096, 0);
    assert_eq!(image.entries().len(), specs.len());
    let mut end = 0;
    for s in &specs {
        let e = image.entry(&s.name).unwrap();
        assert_eq!(e.offset % WEIGHT_ALIGNMENT, 0);
        assert!((end..end + WEIGHT_ALIGNMENT).contains(&e.offset), "{} is not back to back", s.name);
        end = e.offset + e.bytes;
    }
    assert_eq!(image.bytes(), end.next_multiple_of(WEIGHT_ALIGNMENT));
    for (name, values) in tiled {
        let e = image.entry(&name).unwrap();
        assert_eq!(e.ne, [256, 40, 1, 1]);
        for (i, v) in values.iter().enumerate() {
            assert_eq!(tile_value(e.dtype, &image.data(e).unwrap(), 256, i / 256, i % 256), *v, "{name} {i}");
        }
    }
    let e = image.entry("norm").unwrap();
    assert_eq!((e.dtype, e.ne, e.strides()), (DType::F32, [7, 1, 1, 1], [4, 28, 28, 28]));
    assert_eq!(floats(&image, e), norm);
    let e = image.entry("conv").unwrap();
    assert_eq!((e.ne, e.strides()), ([9, 4, 1, 1], [4, 36, 144, 144]));
    let transposed: Vec<f32> = (0..36).map(|i| conv[i % 9 * 4 + i / 9]).collect();
    assert_eq!(floats(&image, e), transposed);
    assert_eq!(floats(&image, image.entry("ones").unwrap()), [1.0, 2.0, 3.0]);
}

#[test]
fn joined_rows_follow_each_other_without_padding() {
    let mut model = Model::new();
    let parts = [("a", 5), ("b", 33), ("c", 1), ("d", 40)];
    let mut values = Vec::new();
    for (name, n) in parts {
        values.extend(model.add(name, GgmlType::Q8_0, &[96, n]));
    }
    let mut bias = model.add("a.bias", GgmlType::F32, &[5]);
    bias.extend(model.add("b.bias2", GgmlType::F32, &[5]));
    let specs =
        [spec("abcd", &["a", "b", "c", "d"], Form::Tiled), spec("bias", &["a.bias", "b.bias2"], Form::Plain)];
    let image = model.load(&specs).unwrap();
    let e = image.entry("abcd").unwrap();
    assert_eq!((e.ne, e.dtype), ([96, 79, 1, 1], DType::Q8_0x32));
    for (i, v) in values.iter().enumerate() {
        assert_eq!(
            tile_value(e.dtype, &image.data(e).unwrap(), 96, i / 96, i % 96),
            *v,
            "row {} k {}",
            i / 96,
            i % 96
        );
    }
    let e = image.entry("bias").unwrap();
    assert_eq!(e.ne, [5, 2, 1, 1]);
    assert_eq!(floats(&image, e), bias);
}

#[test]
fn matrices_of_a_tensor_follow_each_other_in_whole_strips() {
    let mut model = Model::new();
    let values = model.add("experts", GgmlType::Q4_0, &[64, 33, 3, 2]);
    let image = model.load(&[WeightSpec::new("experts", Form::Tiled)]).unwrap();
    let e = image.entry("experts").unwrap();
    let [_, strip, matrix, outer] = e.strides();
    assert_eq!((strip, matrix, outer), (2304, 2 * 2304, 6 * 2304));
    assert_eq!(e.bytes, 12 * 2304);
    for (i, v) in values.iter().enumerate() {
        let (k, row) = (i % 64, i / 64);
        let of_matrix = &image.data(e).unwrap()[row / 33 * matrix as usize..];
        assert_eq!(tile_value(e.dtype, of_matrix, 64, row % 33, k), *v, "row {row} k {k}");
    }
}

#[test]
fn mistakes_are_named_in_a_line() {
    let mut model = Model::new();
    model.add("w", GgmlType::Q8_0, &[32, 4]);
    model.add("v", GgmlType::Q8_0, &[64, 4]);
    model.add("f", GgmlType::F16, &[32, 4]);
    model.add("cube", GgmlType::F16, &[32, 4, 2]);
    let refused = [
        GgmlType::NVFP4,
        GgmlType::IQ1_S,
        GgmlType::IQ1_M,
        GgmlType::IQ2_XXS,
        GgmlType::IQ2_XS,
        GgmlType::IQ2_S,
        GgmlType::IQ3_XXS,
        GgmlType::IQ3_S,
        GgmlType::TQ1_0,
        GgmlType::TQ2_0,
        GgmlType::Q8_K,
        GgmlType::I8,
    ];
    for t in refused {
        let data = vec![0; t.block_bytes() as usize];
        model.writer.tensor(&format!("of.{t}"), t, &[t.block_len(), 1], data).unwrap();
    }
    let message = |specs: &[WeightSpec]| {
        let message = model.load(specs).unwrap_err().to_string();
        assert!(!message.contains('\n') && message.contains("; "), "{message}");
        message
    };
    let one = |name: &str, form| message(&[WeightSpec::new(name, form)]);
    for t in refused {
        let text = one(&format!("of.{t}"), Form::Tiled);
        assert!(text.contains(&format!("\"of.{t}\" has type {t},")), "{text}");
        assert!(text.ends_with("convert the original with llama-quantize to Q4_K_M or Q8_0"), "{text}");
    }
    let text = one("w", Form::Plain);
    assert!(text.contains("Q8_0") && text.ends_with("F32, F16 or BF16"), "{text}");
    assert!(one("nowhere", Form::Tiled).contains("nowhere"));
    assert!(one("cube", Form::Transposed).contains("transpose"));
    assert!(message(&[spec("x", &["cube", "cube"], Form::Tiled)]).contains("joining"));
    assert!(message(&[spec("x", &["w", "v"], Form::Tiled)]).contains("Q8_0, rows of 64"));
    assert!(message(&[spec("x", &["w", "f"], Form::Tiled)]).contains("F16, rows of 32"));
    assert!(message(&[spec("x", &[], Form::Tiled)]).contains("no values"));
    assert!(message(&[spec("x", &[], Form::Values(Vec::new()))]).contains("no values"));
    let twice = WeightSpec::new("w", Form::Tiled);
    assert!(message(&[twice.clone(), twice]).contains("two weights"));
}

/// Every way to damage a block of this type: bytes of NaN or infinity, and where in the block they are.
fn damages(ggml_type: GgmlType) -> Vec<(Vec<u8>, usize)> {
    let f32s = [f32::INFINITY, -f32::NAN].map(f32::to_le_bytes);
    let f16s = [[0x00, 0xfc], [0x01, 0x7e]];
    // Where d is, and a second f16.
    let halves = |places: &[usize]| -> Vec<(Vec<u8>, usize)> {
        places.iter().flat_map(|&at| f16s.map(|half| (half.to_vec(), at))).collect()
    };
    match ggml_type {
        GgmlType::F32 => f32s.map(|value| (value.to_vec(), 0)).into(),
        GgmlType::BF16 => f32s.map(|value| (value[2..].to_vec(), 0)).into(),
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => halves(&[0, 2]),
        GgmlType::Q2_K => halves(&[80, 82]),
        GgmlType::Q3_K => halves(&[108]),
        GgmlType::Q6_K => halves(&[208]),
        GgmlType::MXFP4 => vec![(vec![255], 0)],
        _ => halves(&[0]),
    }
}

/// No model that is sound has such values, so the file is damaged: the best time to say where. Neither is a
/// cache made of it.
#[test]
fn values_that_are_infinite_or_no_numbers_are_refused_with_tensor_and_row() {
    let refusal = |ggml_type: GgmlType, ne: [u64; 3], block: usize, form: Form| {
        for (bytes, at) in damages(ggml_type) {
            let mut model = Model::new();
            model.add("sound", ggml_type, &[ne[0], 3]);
            let mut data = random_rows(ggml_type, ne[0] as usize, (ne[1] * ne[2]) as usize, 1);
            data[block * ggml_type.block_bytes() as usize + at..][..bytes.len()].copy_from_slice(&bytes);
            model.writer.tensor("blk.3.bad.weight", ggml_type, &ne, data).unwrap();
            let single = spec("x", &["blk.3.bad.weight"], form.clone());
            let joined = spec("x", &["sound", "blk.3.bad.weight"], form.clone());
            let specs =
                if ne[2] == 1 && form == Form::Tiled { [single, joined].to_vec() } else { vec![single] };
            for spec in specs {
                let gguf = model.open();
                for cache in [CachePolicy::Off, CachePolicy::Beside, CachePolicy::Beside] {
                    let options = ImageOptions { cache, ..ImageOptions::default() };
                    let error = WeightImage::load(&gguf, std::slice::from_ref(&spec), &options).unwrap_err();
                    let WeightError::NotFinite { tensor, what, at } = &error else { panic!("{error}") };
                    assert_eq!(tensor, "blk.3.bad.weight");
                    let (unit, length) = match form {
                        Form::Plain => ("value", 1),
                        _ => ("row", ne[0] as usize / ggml_type.block_len() as usize),
                    };
                    assert_eq!((*what, *at), (unit, block / length), "{ggml_type} {ne:?} block {block}");
                    assert!(!error.to_string().contains('\n'));
                }
                let left: Vec<_> = std::fs::read_dir(model.dir.path()).unwrap().collect();
                assert_eq!(left.len(), 1, "{left:?}");
            }
        }
    };
    for &ggml_type in TILED {
        // Two blocks, or what is no whole tile.
        let k = if ggml_type.block_len() == 1 { 66 } else { 2 * ggml_type.block_len() };
        let blocks = (k / ggml_type.block_len()) as usize;
        for block in [0, 1, blocks - 1, 12 * blocks, 40 * blocks - 1] {
            refusal(ggml_type, [k, 40, 1], block, Form::Tiled);
        }
        refusal(ggml_type, [k, 20, 3], 45 * blocks, Form::Tiled);
    }
    for ggml_type in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        refusal(ggml_type, [70, 1, 1], 69, Form::Plain);
        refusal(ggml_type, [4, 9, 1], 4 * 7 + 2, Form::Transposed);
    }
}

#[test]
fn progress_reaches_the_total_once() {
    let mut model = Model::new();
    model.add("w", GgmlType::F32, &[64, 100]);
    let seen = Mutex::new(Vec::new());
    let progress = |done, total| seen.lock().unwrap().push((done, total));
    let options = ImageOptions { cache: CachePolicy::Off, progress: &progress, ..Default::default() };
    let image = WeightImage::load(&model.open(), &[WeightSpec::new("w", Form::Tiled)], &options).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen.last(), Some(&(image.bytes(), image.bytes())));
    assert_eq!(image.repacked_bytes(), image.bytes());
}

#[test]
fn no_weights_make_an_empty_image() {
    let image = Model::new().load(&[]).unwrap();
    assert_eq!((image.bytes(), image.memory().unwrap().len()), (0, 0));
}
