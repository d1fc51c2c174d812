//! Architectures: how a GGUF's metadata become layers. Each is one file and a line in the table.

mod gemma3;
mod lfm2;
mod lfm2moe;
mod llama;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod smollm3;

use super::block::Layer;
use super::decoder::{Common, Decoder};
use super::error::ModelError;
use super::keys::Keys;
use crate::gguf::Gguf;

/// Reads and checks the layers of the trunk, `n_layer` of them, and sets what the architecture has otherwise
/// than others.
type Layers = fn(&Keys<'_>, &mut Common) -> Result<Vec<Layer>, ModelError>;

/// The architectures that this version runs: the value of `general.architecture`, and what reads their
/// layers.
const ARCHITECTURES: &[(&str, Layers)] = &[
    ("qwen35", qwen35::layers),
    ("qwen3", qwen3::layers),
    ("llama", llama::layers),
    ("qwen2", qwen2::layers),
    ("smollm3", smollm3::layers),
    ("gemma3", gemma3::layers),
    ("lfm2", lfm2::layers),
    ("qwen3moe", qwen3moe::layers),
    ("qwen35moe", qwen35moe::layers),
    ("lfm2moe", lfm2moe::layers),
];

/// Reads and checks a model; `None` if its architecture is not in the table.
///
/// # Errors
/// A key is missing, or its value is one that no kernel supports.
pub(super) fn read(gguf: &Gguf, keys: &Keys<'_>) -> Result<Option<Decoder>, ModelError> {
    let Some((arch, layers)) = ARCHITECTURES.iter().find(|(arch, _)| *arch == keys.arch()) else {
        return Ok(None);
    };
    let mut common = Common::read(keys)?;
    let layers = layers(keys, &mut common)?;
    Decoder::new(gguf, arch, common, layers).map(Some)
}

/// The names of all architectures, for messages.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use hexflash_abi::op::params::{Gating, RopeMode};

    use super::*;
    use crate::gguf::writer::GgufWriter;
    use crate::gguf::{GgmlType, Value};
    use crate::model::block::{FeedForward, Mixer, Rope, Router};

    /// Metadata of a model of two layers, without tensors.
    fn file<'a>(arch: &str) -> GgufWriter<'a> {
        let mut file = GgufWriter::new();
        file.kv("general.architecture", arch);
        for (key, value) in [
            ("embedding_length", 64u32),
            ("block_count", 2),
            ("context_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 32),
            ("attention.value_length", 32),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 4),
            ("ssm.state_size", 16),
            ("ssm.inner_size", 64),
            ("ssm.conv_kernel", 4),
            ("shortconv.l_cache", 3),
        ] {
            file.kv(&format!("{arch}.{key}"), value);
        }
        file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        if arch.ends_with("moe") {
            for (key, value) in
                [("count", 8u32), ("used_count", 3), ("feed_forward_length", 40), ("gating_func", 2)]
            {
                file.kv(&format!("{arch}.expert_{key}"), value);
            }
        }
        file
    }

    /// The layers of that model with what `change` does to its metadata.
    fn layers(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Result<Vec<Layer>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let mut file = file(arch);
        change(&mut file);
        file.write_to(File::create(&path).unwrap()).unwrap();
        let gguf = Gguf::open(&path).map_err(|e| e.to_string())?;
        let keys = Keys::new(&gguf).map_err(|e| e.to_string())?;
        let mut common = Common::read(&keys).map_err(|e| e.to_string())?;
        let (_, read) = ARCHITECTURES.iter().find(|(known, _)| *known == arch).unwrap();
        read(&keys, &mut common).map_err(|e| e.to_string())
    }

    /// The error with one more key.
    fn error(arch: &str, key: &str, value: impl Into<Value> + Clone) -> String {
        let error = layers(arch, |file| {
            file.kv(&format!("{arch}.{key}"), value.clone());
        });
        let error = error.expect_err(key);
        assert!(error.contains(&format!("{arch}.{key} is ")) && !error.contains('\n'), "{error}");
        error
    }

    /// The rotary embedding of an architecture's first layer.
    fn rope(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Rope {
        match &layers(arch, change).unwrap()[0].mixer {
            Mixer::Attention(attention) => attention.rope.clone().unwrap(),
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) => panic!("{arch} begins with another layer"),
        }
    }

    /// What of a model's attention differs from layer to layer: base and scale of angles, the window.
    fn attentions(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Vec<(Option<[f32; 2]>, u32)> {
        let layers = layers(arch, change).unwrap();
        let attentions = layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => attention,
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) => panic!("{arch} has other layers"),
        });
        attentions
            .map(|a| (a.rope.as_ref().map(|rope| [rope.freq_base, rope.freq_scale]), a.window))
            .collect()
    }

    /// Architectures in which llama.cpp turns whole heads only.
    const WHOLE_HEADS: [&str; 8] =
        ["qwen3", "llama", "qwen2", "smollm3", "gemma3", "lfm2", "qwen3moe", "lfm2moe"];

    #[test]
    fn every_architecture_gives_each_layer_of_the_trunk() {
        for (arch, _) in ARCHITECTURES {
            assert_eq!(layers(arch, |_| ()).unwrap().len(), 2, "{arch}");
            error(arch, "attention.head_count_kv", 3u32);
        }
    }

    #[test]
    fn every_architecture_is_in_the_list_for_users() {
        let page = include_str!("../../../../docs/usage.md");
        // The chapter that has the list: others have tables of options.
        let chapter = page.split("\n## ").find(|chapter| chapter.starts_with("Models\n")).unwrap();
        let named = chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let named: Vec<&str> = named.map(|(name, _)| name).collect();
        assert_eq!(named, ARCHITECTURES.iter().map(|(arch, _)| *arch).collect::<Vec<_>>());
    }

    #[test]
    fn every_architecture_is_among_what_was_compared() {
        let page = include_str!("../../../../docs/models.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let compared: std::collections::BTreeSet<&str> = rows.map(|(name, _)| name).collect();
        assert_eq!(compared, ARCHITECTURES.iter().map(|(arch, _)| *arch).collect());
    }

    #[test]
    fn heads_that_are_turned_in_part_are_qwen35s() {
        for arch in WHOLE_HEADS {
            let found = error(arch, "rope.dimension_count", 16u32);
            assert!(found.contains("is 16, expected 32, the width of a head"), "{found}");
            error(arch, "attention.value_length", 16u32);
        }
        for arch in ["qwen35", "qwen35moe"] {
            layers(arch, |file| {
                file.kv(&format!("{arch}.rope.dimension_count"), 16u32);
            })
            .unwrap();
        }
    }

    #[test]
    fn a_stretched_rotary_embedding_is_read_as_llama_cpp_reads_it() {
        let with = |keys: &[(&str, f32)], kind: Option<&str>| {
            rope("llama", |file| {
                for (key, value) in keys {
                    file.kv(&format!("llama.rope.{key}"), *value);
                }
                if let Some(kind) = kind {
                    file.kv("llama.rope.scaling.type", kind);
                }
            })
        };
        let scale = |rope: Rope| (rope.freq_scale, rope.ext_factor, rope.attn_factor);
        assert_eq!(scale(with(&[], None)), (1.0, 0.0, 1.0));
        let factor = ("scaling.factor", 4.0);
        assert_eq!(scale(with(&[factor], None)), (0.25, 0.0, 1.0), "linear where the file does not say");
        assert_eq!(scale(with(&[("scale_linear", 8.0)], None)), (0.125, 0.0, 1.0), "the key of old files");
        assert_eq!(scale(with(&[factor], Some("none"))), (1.0, 0.0, 1.0));
        let magnitude = ("scaling.attn_factor", 1.5);
        assert_eq!(scale(with(&[factor, magnitude], Some("linear"))), (0.25, 0.0, 1.5));
        assert_eq!(scale(with(&[factor, magnitude], Some("yarn"))), (0.25, 1.0, 1.5));
        let (scale, _, attn_factor) = scale(with(&[("scaling.factor", 0.5)], Some("yarn")));
        // YaRN's own magnitude, which the op multiplies by.
        assert_eq!((scale, attn_factor * (1.0 + 0.1 * 0.5f32.ln())), (2.0, 1.0));
        assert!(error("llama", "rope.scaling.type", "longrope").contains("expected none, linear or yarn"));
        for factor in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45] {
            error("qwen2", "rope.scaling.factor", factor);
            error("llama", "rope.scale_linear", factor);
        }
        error("llama", "rope.scaling.attn_factor", f32::NAN);
    }

    #[test]
    fn architectures_turn_their_own_pairs() {
        for (arch, pairs) in [("llama", RopeMode::Norm), ("qwen2", RopeMode::Neox), ("qwen3", RopeMode::Neox)]
        {
            assert_eq!(rope(arch, |_| ()).pairs, pairs, "{arch}");
        }
    }

    #[test]
    fn every_fourth_layer_of_smollm3_is_not_turned() {
        let found = attentions("smollm3", |file| {
            file.kv("smollm3.block_count", 9u32);
        });
        let turned: Vec<bool> = found.iter().map(|(rope, _)| rope.is_some()).collect();
        assert_eq!(turned, [true, true, true, false, true, true, true, false, true]);
    }

    #[test]
    fn layers_of_gemma3_see_windows_as_the_file_says() {
        let windows = |change: &dyn Fn(&mut GgufWriter<'_>)| {
            attentions("gemma3", |file| {
                file.kv("gemma3.block_count", 7u32).kv("gemma3.rope.freq_base", 1e6f32);
                file.kv("gemma3.rope.scaling.factor", 8f32);
                change(file);
            })
        };
        let (far, near) = ((Some([1e6, 0.125]), 0), (Some([1e4, 1.0]), 16));
        let window = |file: &mut GgufWriter<'_>| {
            file.kv("gemma3.attention.sliding_window", 16u32);
        };
        assert_eq!(windows(&|_| ())[0].1, 0, "without a window all layers see all");
        assert_eq!(windows(&window), [near, near, near, near, near, far, near]);
        let pattern = |value: Value| {
            windows(&move |file| {
                window(file);
                file.kv("gemma3.attention.sliding_window_pattern", value.clone());
            })
        };
        assert_eq!(pattern(Value::from(3u32)), [near, near, far, near, near, far, near]);
        assert_eq!(pattern(Value::from(0u32)), [near; 7]);
        let flags = vec![true, false, true, false, true, false, true, true];
        assert_eq!(pattern(Value::from(flags)), [near, far, near, far, near, far, near]);
        let short = error("gemma3", "attention.sliding_window_pattern", vec![true]);
        assert!(short.contains("is 1 flags, expected 2"), "{short}");
        error("gemma3", "rope.freq_base_swa", 0f32);
        assert!(error("gemma3", "final_logit_softcapping", 30f32).contains("runs no caps of logits"));
    }

    #[test]
    fn layers_of_lfm2_without_heads_of_keys_are_convolutions() {
        let read = |heads: Vec<u32>| {
            layers("lfm2", |file| {
                file.kv("lfm2.block_count", 4u32).kv("lfm2.attention.head_count_kv", heads.clone());
                file.kv("lfm2.attention.sliding_window", 16u32);
            })
        };
        let found = read(vec![0, 2, 0, 4]).unwrap();
        let found = found.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(a) => (a.n_head_kv, a.window, 0),
            Mixer::ShortConv(conv) => (0, 0, conv.taps),
            Mixer::DeltaNet(_) => panic!("lfm2 has no such layer"),
        });
        assert_eq!(found.collect::<Vec<_>>(), [(0, 0, 3), (2, 16, 0), (0, 0, 3), (4, 16, 0)]);
        let short = read(vec![0, 2, 0]).unwrap_err();
        assert!(short.contains("lfm2.attention.head_count_kv") && short.contains('4'), "{short}");
        let odd = read(vec![0, 2, 3, 0]).unwrap_err();
        assert!(odd.contains("head_count_kv is 3, expected a divisor of the head count"), "{odd}");
        for taps in [1u32, 33] {
            assert!(error("lfm2", "shortconv.l_cache", taps).contains("expected 2 to 32"));
        }
        assert!(error("lfm2", "expert_count", 32u32).contains("runs no mixtures of experts"));
    }

    #[test]
    fn the_27b_of_gemma3_scales_by_the_width_of_its_stream() {
        let scale = |layers_of_it: u32| {
            let layers = layers("gemma3", |file| {
                file.kv("gemma3.block_count", layers_of_it).kv("gemma3.embedding_length", 256u32);
            });
            match &layers.unwrap()[0].mixer {
                Mixer::Attention(attention) => attention.scale,
                Mixer::DeltaNet(_) | Mixer::ShortConv(_) => panic!("gemma3 has no such layer"),
            }
        };
        assert_eq!([scale(26), scale(62)], [1.0 / 32f32.sqrt(), 1.0 / 64f32.sqrt()]);
    }

    /// The architectures whose layers have experts.
    const MOE: [&str; 3] = ["qwen3moe", "qwen35moe", "lfm2moe"];

    /// Experts of a layer: how many a token goes to, of how many, and how.
    type Experts = Option<(u32, u32, Router)>;

    /// What the layers of a model have after what mixes tokens: width and experts.
    fn feed_forwards(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Vec<(u32, Experts)> {
        let layers = layers(arch, change).unwrap();
        let experts = |layer: &Layer| match &layer.mlp {
            FeedForward::Mlp(_) => None,
            FeedForward::Moe(moe) => Some((moe.n_used, moe.n_expert, moe.router)),
        };
        layers.iter().map(|layer| (layer.mlp.n_ff(), experts(layer))).collect()
    }

    #[test]
    fn experts_are_read_and_checked() {
        for arch in MOE {
            let sigmoid = Router { gating: Gating::Sigmoid, bias: true, ..Router::SOFTMAX };
            let router = if arch == "lfm2moe" { sigmoid } else { Router::SOFTMAX };
            assert_eq!(feed_forwards(arch, |_| ()), [(40, Some((3, 8, router))); 2], "{arch}");
            for n in [0u32, 513] {
                assert!(error(arch, "expert_count", n).contains("expected 1 to 512"), "{arch}");
            }
            for n in [0u32, 9] {
                let found = error(arch, "expert_used_count", n);
                assert!(found.contains("expected 1 to 8, as many experts as there are"), "{found}");
            }
            error(arch, "expert_feed_forward_length", u32::MAX);
            // Where the file does not say: what all experts of a token have together.
            let key = format!("{arch}.expert_feed_forward_length");
            let shared = feed_forwards(arch, |file| {
                file.kv(&key, 0u32);
            });
            assert_eq!(shared[0].0, 96 / 3, "{arch}");
        }
    }

    #[test]
    fn the_first_layers_of_lfm2moe_are_dense() {
        let dense = |n: u32| {
            let found = feed_forwards("lfm2moe", |file| {
                file.kv("lfm2moe.leading_dense_block_count", n);
            });
            found.iter().filter(|(_, experts)| experts.is_none()).count()
        };
        assert_eq!([0, 1, 2].map(dense), [0, 1, 2]);
        let first = feed_forwards("lfm2moe", |file| {
            file.kv("lfm2moe.leading_dense_block_count", 1u32);
        });
        assert_eq!((first[0], first[1].0), ((96, None), 40));
        error("lfm2moe", "leading_dense_block_count", 3u32);
        let gating = error("lfm2moe", "expert_gating_func", 4u32);
        assert!(gating.contains("expected 1 (softmax), 2 (sigmoid) or 3"), "{gating}");
    }

    #[test]
    fn the_shared_expert_of_qwen35moe_has_a_width_of_its_own() {
        let shared = |n: u32| {
            let layers = layers("qwen35moe", |file| {
                file.kv("qwen35moe.expert_shared_feed_forward_length", n);
            });
            match &layers.unwrap()[1].mlp {
                FeedForward::Moe(moe) => moe.shared.as_ref().map(|mlp| mlp.n_ff),
                FeedForward::Mlp(_) => panic!("qwen35moe has no dense layers"),
            }
        };
        assert_eq!([0, 64].map(shared), [Some(96), Some(64)]);
    }

    #[test]
    fn mixtures_of_experts_are_refused_by_name() {
        let found = error("llama", "expert_count", 8u32);
        assert!(found.contains("runs no mixtures of experts"), "{found}");
        layers("llama", |file| {
            file.kv("llama.expert_count", 0u32);
        })
        .unwrap();
    }

    /// The error of a model with these divisors.
    fn divisors(ty: GgmlType, n: u64, bytes: Vec<u8>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let mut file = file("llama");
        file.tensor("rope_freqs.weight", ty, &[n], bytes).unwrap();
        let mut add = |name: &str, ne: &[u64]| {
            file.tensor(name, GgmlType::F32, ne, vec![0; 4 * ne.iter().product::<u64>() as usize]).unwrap();
        };
        add("token_embd.weight", &[64, 64]);
        add("output_norm.weight", &[64]);
        for layer in 0..2 {
            for (name, k, n) in [
                ("attn_norm", 64, 1),
                ("ffn_norm", 64, 1),
                ("attn_q", 64, 128),
                ("attn_k", 64, 64),
                ("attn_v", 64, 64),
                ("attn_output", 128, 64),
                ("ffn_gate", 64, 96),
                ("ffn_up", 64, 96),
                ("ffn_down", 96, 64),
            ] {
                add(&format!("blk.{layer}.{name}.weight"), &[k, n][..if n == 1 { 1 } else { 2 }]);
            }
        }
        file.write_to(File::create(&path).unwrap()).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        let model = read(&gguf, &Keys::new(&gguf).unwrap()).unwrap().unwrap();
        let error = model.weights(&gguf).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("rope_freqs.weight") && !error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn divisors_of_angles_are_checked() {
        let values = |first: f32| [first].iter().chain(&[1.0; 15]).flat_map(|v| v.to_le_bytes()).collect();
        for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let found = divisors(GgmlType::F32, 16, values(bad));
            assert!(found.contains(&format!("value 0 of tensor rope_freqs.weight is {bad}")), "{found}");
        }
        assert!(divisors(GgmlType::F32, 8, vec![0; 32]).contains("expected [16]"));
        assert!(divisors(GgmlType::F16, 16, vec![0; 32]).contains("has type F16, expected F32"));
    }
}
