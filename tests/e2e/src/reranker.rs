//! A reranker: the small dense model with a classifier of made-up weights. It knows nothing of answers, and
//! has all parts of one that does.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

/// The template of its file.
pub const TEMPLATE: &str = "Query: {query}\nDocument: {document}\nDoes it answer?";

/// Weights are multiples of this, in Q8_0 its scale; a power of two, so that all types have the same ones.
const UNIT: f32 = 1.0 / 1024.0;

/// Writes the model of `source`, whose architecture is `qwen3`, with a classifier for so many labels in F32,
/// F16 or Q8_0.
///
/// # Panics
/// The source is no such model, or the file cannot be written.
pub fn write(source: &Path, labels: u64, ggml_type: GgmlType, path: &Path) {
    let model = Gguf::open(source).expect("the model ships with the repository");
    let width = u64::from(model.meta().u32_opt("qwen3.embedding_length").ok().flatten().expect("a width"));
    let mut file = GgufWriter::new();
    for (key, value) in model.meta().iter() {
        file.kv(key, value.clone());
    }
    file.kv("qwen3.pooling_type", 4_u32).kv("tokenizer.chat_template.rerank", TEMPLATE);
    let names: Vec<String> = (0..labels).map(|label| format!("label {label}")).collect();
    file.kv("qwen3.classifier.output_labels", names);
    for tensor in model.tensors() {
        let data = Cow::Owned(model.data(tensor).expect("the file is whole").to_vec());
        file.tensor(&tensor.name, tensor.ggml_type, tensor.shape(), data).expect("as it was");
    }
    let quants: Vec<i8> = (0..width * labels).map(|i| (((i * 2_654_435_761) >> 9) % 61) as i8 - 30).collect();
    let data = bytes(&quants, ggml_type);
    file.tensor("cls.output.weight", ggml_type, &[width, labels], data).expect("a small tensor");
    file.write_to(BufWriter::new(File::create(path).expect("a place for the file"))).expect("a whole file");
}

/// The weights of these multiples of [`UNIT`].
fn bytes(quants: &[i8], ggml_type: GgmlType) -> Vec<u8> {
    let values = quants.iter().map(|&q| f32::from(q) * UNIT);
    match ggml_type {
        GgmlType::F32 => values.flat_map(f32::to_le_bytes).collect(),
        GgmlType::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        GgmlType::Q8_0 => {
            let block = |block: &[i8]| {
                let scale = half::f16::from_f32(UNIT).to_le_bytes();
                scale.into_iter().chain(block.iter().map(|&q| q as u8)).collect::<Vec<_>>()
            };
            quants.chunks(32).flat_map(block).collect()
        }
        other => panic!("no classifier is made in {other}"),
    }
}
