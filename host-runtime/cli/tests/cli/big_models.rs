//! Models of many gigabytes that are all zeros, and take no room on the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Value};
use tempfile::TempDir;

use super::support::{Change, changed, hexflash, run, text};

/// Zeros that are not written.
static HOLE: [u8; 64 << 20] = [0; 64 << 20];

/// A file in which [`HOLE`] leaves a hole.
struct Sparse {
    file: File,
    bytes: u64,
}

impl Write for Sparse {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.as_ptr() != HOLE.as_ptr() {
            use std::os::unix::fs::FileExt;
            self.file.write_all_at(data, self.bytes)?;
        }
        self.bytes += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.set_len(self.bytes)
    }
}

/// Adds a tensor of zeros that takes no room.
pub fn hole(writer: &mut GgufWriter<'_>, name: &str, kind: GgmlType, ne: &[u64]) {
    let bytes = kind.tensor_bytes(ne).unwrap();
    let fill = move |out: &mut dyn Write| {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(HOLE.len() as u64);
            out.write_all(&HOLE[..part as usize])?;
            left -= part;
        }
        Ok(())
    };
    writer.tensor_with(name, kind, ne, fill).unwrap();
}

/// Writes a model with holes.
pub fn write(writer: GgufWriter<'_>, path: &Path) {
    writer.write_to(Sparse { file: File::create(path).unwrap(), bytes: 0 }).unwrap();
}

/// A model of a linear and an attention layer in F32; `n_ff` and `n_vocab` as given, everything else small.
pub fn zeros(path: &Path, n_embd: u64, n_ff: u64, n_vocab: u64) {
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "qwen35");
    let (heads, width, taps) = (2u64, 32u64, 4u64);
    let keys = [
        ("block_count", 2),
        ("context_length", 512),
        ("embedding_length", n_embd),
        ("feed_forward_length", n_ff),
        ("full_attention_interval", 2),
        ("attention.head_count", heads),
        ("attention.head_count_kv", heads),
        ("attention.key_length", width),
        ("attention.value_length", width),
        ("ssm.group_count", heads),
        ("ssm.time_step_rank", heads),
        ("ssm.state_size", width),
        ("ssm.inner_size", heads * width),
        ("ssm.conv_kernel", taps),
    ];
    for (key, value) in keys {
        writer.kv(&format!("qwen35.{key}"), u32::try_from(value).unwrap());
    }
    writer.kv("qwen35.attention.layer_norm_rms_epsilon", 1e-6f32);
    let all = heads * width;
    let mut tensors =
        vec![("token_embd".to_owned(), vec![n_embd, n_vocab]), ("output_norm".to_owned(), vec![n_embd])];
    for layer in 0..2 {
        let mut tensor = |name: &str, ne: &[u64]| tensors.push((format!("blk.{layer}.{name}"), ne.to_vec()));
        tensor("attn_norm", &[n_embd]);
        tensor("post_attention_norm", &[n_embd]);
        for name in ["ffn_gate", "ffn_up"] {
            tensor(name, &[n_embd, n_ff]);
        }
        tensor("ffn_down", &[n_ff, n_embd]);
        if layer == 0 {
            tensor("attn_qkv", &[n_embd, 3 * all]);
            tensor("attn_gate", &[n_embd, all]);
            for name in ["ssm_beta", "ssm_alpha"] {
                tensor(name, &[n_embd, heads]);
            }
            tensor("ssm_conv1d", &[taps, 3 * all]);
            tensor("ssm_norm", &[width]);
            tensor("ssm_out", &[all, n_embd]);
        } else {
            tensor("attn_q", &[n_embd, 2 * all]);
            for name in ["attn_k", "attn_v"] {
                tensor(name, &[n_embd, all]);
            }
            for name in ["attn_q_norm", "attn_k_norm"] {
                tensor(name, &[width]);
            }
            tensor("attn_output", &[all, n_embd]);
        }
    }
    let named = tensors.into_iter().map(|(name, ne)| (format!("{name}.weight"), ne));
    let plain = ["blk.0.ssm_a", "blk.0.ssm_dt.bias"].map(|name| (name.to_owned(), vec![heads]));
    for (name, ne) in named.chain(plain) {
        hole(&mut writer, &name, GgmlType::F32, &ne);
    }
    write(writer, path);
}

/// Its programs are recorded, and its memory is planned.
#[track_caller]
fn planned(n_embd: u64, n_ff: u64, n_vocab: u64, mib: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("zeros.gguf");
    zeros(&path, n_embd, n_ff, n_vocab);
    let info = hexflash(&["info", "-m", text(&path)]).succeeded().stdout;
    let repacked = info.lines().find(|line| line.contains("weights, repacked")).unwrap_or_default();
    assert!(repacked.contains(mib), "{info}");
}

#[test]
fn a_small_model_of_zeros_runs() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("zeros.gguf");
    zeros(&path, 64, 64, 64);
    let bench = ["bench", "--no-repack-cache", "-p", "3", "-n", "2", "-r", "1", "-m", text(&path)];
    hexflash(&bench).succeeded();
}

#[test]
fn an_embedding_of_more_than_four_gib() {
    planned(5120, 32, 248_320, " 4866.98 MiB");
}

#[test]
fn gate_and_up_projections_of_64_gib_together() {
    planned(65_536, 131_072, 64, " 196793.25 MiB");
}

#[test]
fn vocabularies_beyond_all_reason() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("zeros.gguf");
    zeros(&path, 32, 32, (1 << 20) + 1);
    let cause = "token_embd.weight has 1048577 rows, one for each token, expected 1 to 1048576";
    hexflash(&["info", "-m", text(&path)]).failed(2, cause, "convert the model again");
}

/// A cache of more than 4 GiB for all heads of a layer cannot be described: which context can is said at
/// once.
#[test]
fn contexts_whose_caches_are_too_large() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("long.gguf");
    let longest = Value::from(i32::MAX as u32);
    changed("tiny-hybrid-q8_0.gguf", &path, &[Change::Key("qwen35.context_length", longest)]);
    let path = text(&path);
    // 2 bytes by 64 values by 2^25 positions is 2^32, one more than 32 bits hold.
    let allowed = "the context length (-c) must be 1 to 33554400";
    for n in ["50000000", "33554401", "2147483647"] {
        run(&["-m", path, "-c", n, "-n", "1", "x"]).failed(2, allowed, n);
        hexflash(&["info", "-m", path, "-c", n]).failed(2, allowed, n);
    }
    run(&["-m", path, "-c", "0", "-n", "1", "x"]).failed(2, allowed, "2147483647");
    let longest = hexflash(&["info", "-m", path, "-c", "33554400"]).succeeded().stdout;
    assert!(longest.contains("memory for a context of 33554400"), "{longest}");
}
