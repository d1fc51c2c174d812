//! What architectures make of metadata and tensors: the layers, or one line that says what is wrong.

use std::fs::File;

use hexflash_abi::op::params::{Gating, RopeMode, Visibility};

use super::*;
use crate::gguf::writer::GgufWriter;
use crate::gguf::{GgmlType, Value};
use crate::model::block::{Attention, Factors, FeedForward, Gate, Mixer, Queries, Rope, Router};
use crate::model::scales::Scales;

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
        (
            "attention.sliding_window",
            if ["gpt-oss", "gemma4", "gemma2", "spark2_5", "gemma-embedding"].contains(&arch) {
                16
            } else {
                0
            },
        ),
        ("embedding_length_per_layer_input", 8),
    ] {
        file.kv(&format!("{arch}.{key}"), value);
    }
    file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
    if arch == "granite" {
        file.kv("granite.logit_scale", 8f32);
    }
    if arch == "qwen3vl" {
        file.kv("qwen3vl.rope.dimension_sections", vec![6i32, 5, 5, 0]);
    }
    if ["gemma4", "spark2_5"].contains(&arch) {
        file.kv(&format!("{arch}.attention.sliding_window_pattern"), vec![true, false]);
    }
    if MOE.contains(&arch) {
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
    model(arch, change).map(|(layers, _)| layers)
}

/// The layers of that model, and what it multiplies by as a whole.
fn model(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Result<(Vec<Layer>, Scales), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut file = file(arch);
    change(&mut file);
    file.write_to(File::create(&path).unwrap()).unwrap();
    let gguf = Gguf::open(&path).map_err(|e| e.to_string())?;
    let keys = Keys::new(&gguf).map_err(|e| e.to_string())?;
    let mut common = Common::read(&keys).map_err(|e| e.to_string())?;
    let (_, read) = ARCHITECTURES.iter().find(|(known, _)| *known == arch).unwrap();
    let layers = read(&keys, &mut common).map_err(|e| e.to_string())?;
    Ok((layers, common.scales))
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
    attentions.map(|a| (a.rope.as_ref().map(|rope| [rope.freq_base, rope.freq_scale]), a.window)).collect()
}

/// Architectures in which llama.cpp turns whole heads only.
const WHOLE_HEADS: [&str; 14] = [
    "qwen3",
    "llama",
    "qwen2",
    "smollm3",
    "gemma3",
    "lfm2",
    "qwen3moe",
    "lfm2moe",
    "gpt-oss",
    "granite",
    "gemma2",
    "mistral3",
    "qwen3vl",
    "gemma-embedding",
];

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
fn few_architectures_turn_heads_in_part() {
    for arch in WHOLE_HEADS {
        let found = error(arch, "rope.dimension_count", 16u32);
        assert!(found.contains("is 16, expected 32, the width of a head"), "{found}");
        error(arch, "attention.value_length", 16u32);
    }
    for arch in ["qwen35", "qwen35moe", "phi3", "spark2_5"] {
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
    assert!(
        error("llama", "rope.scaling.type", "longrope").contains("expected none, linear or yarn in a file")
    );
    assert!(error("llama", "rope.scaling.type", "dynamic").contains("linear, yarn or longrope"));
    for factor in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45] {
        error("qwen2", "rope.scaling.factor", factor);
        error("llama", "rope.scale_linear", factor);
    }
    error("llama", "rope.scaling.attn_factor", f32::NAN);
}

#[test]
fn architectures_turn_their_own_pairs() {
    for (arch, pairs) in [("llama", RopeMode::Norm), ("qwen2", RopeMode::Neox), ("qwen3", RopeMode::Neox)] {
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
    assert!(error("gemma3", "final_logit_softcapping", -30f32).contains("expected at least 0"));
}

#[test]
fn windows_of_gemma_embedding_lie_around_their_tokens() {
    let arch = "gemma-embedding";
    let found = attention_of(arch, |file| {
        file.kv("gemma-embedding.block_count", 7u32).kv("gemma-embedding.rope.freq_base", 1e6f32);
    });
    // Half of 16 tokens before and behind, and the token itself.
    let (near, far) = ((9, 1e4), (0, 1e6));
    let seen: Vec<_> = found.iter().map(|a| (a.window, a.rope.as_ref().unwrap().freq_base)).collect();
    assert_eq!(seen, [near, near, near, near, near, far, near]);
    assert!(found.iter().all(|a| a.visibility == Visibility::Around && a.scale == 1.0 / 32f32.sqrt()));
    error(arch, "attention.sliding_window", 0u32);
    let dense = layers(arch, |file| {
        file.tensor("dense_3.weight", GgmlType::F32, &[1], vec![0; 4]).unwrap();
    });
    let missing = dense.expect_err("a width");
    assert!(missing.contains("gemma-embedding.dense_2_feat_out") && !missing.contains('\n'), "{missing}");
}

#[test]
fn every_other_layer_of_gpt_oss_sees_a_window() {
    let read = |change: &dyn Fn(&mut GgufWriter<'_>)| {
        attentions("gpt-oss", |file| {
            file.kv("gpt-oss.block_count", 5u32).kv("gpt-oss.rope.freq_base", 1.5e5f32);
            file.kv("gpt-oss.rope.scaling.type", "yarn").kv("gpt-oss.rope.scaling.factor", 32f32);
            change(file);
        })
    };
    // Positions are stretched in all of them.
    let at = |base, window| (Some([base, 1.0 / 32.0]), window);
    let (far, near) = (at(1.5e5, 0), at(1.5e5, 16));
    assert_eq!(read(&|_| ()), [near, far, near, far, near]);
    let other = read(&|file| {
        file.kv("gpt-oss.rope.freq_base_swa", 1e4f32);
    });
    assert_eq!(other[..2], [at(1e4, 16), far]);
    assert_eq!(attentions("gpt-oss", |_| ())[0], (Some([1e4, 1.0]), 16));
    error("gpt-oss", "attention.sliding_window", 0u32);
    let yarn = layers("gpt-oss", |file| {
        file.kv("gpt-oss.rope.scaling.type", "yarn").kv("gpt-oss.rope.freq_base_swa", 1f32);
    });
    assert!(yarn.unwrap_err().contains("gpt-oss.rope.freq_base_swa is 1, expected more than 1"));
}

#[test]
fn the_last_layers_of_gemma4_read_the_caches_of_earlier_ones() {
    let read = |shared: u32, near: &[bool]| {
        let layers = layers("gemma4", |file| {
            file.kv("gemma4.block_count", near.len() as u32).kv("gemma4.attention.shared_kv_layers", shared);
            file.kv("gemma4.attention.sliding_window_pattern", near.to_vec());
            file.kv("gemma4.attention.key_length_swa", 24u32).kv("gemma4.rope.freq_base", 1e6f32);
        })?;
        let seen = |layer: &Layer| match &layer.mixer {
            Mixer::Attention(a) => (a.key_dim, a.window, a.rope.as_ref().unwrap().freq_base, a.queries),
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) => panic!("gemma4 has no such layer"),
        };
        Ok::<_, String>(layers.iter().map(seen).collect::<Vec<_>>())
    };
    let near = |queries| (24, 16, 1e4, queries);
    let far = |queries| (32, 0, 1e6, queries);
    let own = Queries::WithKeys;
    assert_eq!(
        read(3, &[true, true, false, true, false, true]).unwrap(),
        [
            near(own),
            near(own),
            far(own),
            near(Queries::Alone(1)),
            far(Queries::Alone(2)),
            near(Queries::Alone(1))
        ]
    );
    assert_eq!(read(0, &[false, true]).unwrap(), [far(own), near(own)]);
    // There is nothing to read before the first layer, and a layer of the other kind is no home.
    for (shared, flags) in [(2, &[true, false][..]), (1, &[false, true]), (2, &[true, true, true, false])] {
        let found = read(shared, flags).unwrap_err();
        assert!(found.contains("attention.shared_kv_layers is") && !found.contains('\n'), "{found}");
    }
    error("gemma4", "attention.shared_kv_layers", 3u32);
    error("gemma4", "embedding_length_per_layer_input", 0u32);
    error("gemma4", "attention.key_length_swa", 1000u32);
    assert!(error("gemma4", "expert_count", 128u32).contains("runs no mixtures of experts"));
}

#[test]
fn granite_scales_what_it_embeds_adds_attends_to_and_says() {
    let read = |keys: &[(&str, f32)]| {
        let (layers, scales) = model("granite", |file| {
            for (key, value) in keys {
                file.kv(&format!("granite.{key}"), *value);
            }
        })?;
        let Mixer::Attention(attention) = &layers[1].mixer else { panic!("granite has other layers") };
        Ok::<_, String>([scales.embedding, layers[1].residual_scale, attention.scale, scales.logits])
    };
    let own = 1.0 / 32f32.sqrt();
    assert_eq!(read(&[]).unwrap(), [1.0, 1.0, own, 0.125]);
    let all = [
        ("embedding_scale", 12.0),
        ("residual_scale", 0.22),
        ("attention.scale", 0.015625),
        ("logit_scale", 16.0),
    ];
    assert_eq!(read(&all).unwrap(), [12.0, 0.22, 0.015625, 0.0625]);
    let zeros = [("embedding_scale", 0.0), ("residual_scale", 0.0), ("attention.scale", 0.0)];
    assert_eq!(read(&zeros).unwrap(), [1.0, 1.0, own, 0.125], "0 stands for none, as in llama.cpp");
    for key in ["embedding_scale", "residual_scale", "attention.scale"] {
        for bad in [-1.0, f32::NAN, f32::INFINITY] {
            error("granite", key, bad);
        }
    }
    for bad in [0.0, -8.0, f32::NAN, f32::INFINITY, 1e-45] {
        assert!(error("granite", "logit_scale", bad).contains("expected a positive number"));
    }
}

/// The attention of a model's layers.
fn attention_of(arch: &str, change: impl Fn(&mut GgufWriter<'_>)) -> Vec<Attention> {
    let layers = layers(arch, change).unwrap();
    let attention = |layer: Layer| match layer.mixer {
        Mixer::Attention(attention) => attention,
        Mixer::DeltaNet(_) | Mixer::ShortConv(_) => panic!("{arch} has other layers"),
    };
    layers.into_iter().map(attention).collect()
}

#[test]
fn gemma2_bounds_logits_and_sees_windows_in_every_other_layer() {
    let found = attention_of("gemma2", |file| {
        file.kv("gemma2.block_count", 3u32).kv("gemma2.rope.scaling.factor", 8f32);
    });
    let seen = found.iter().map(|a| (a.window, a.softcap, a.rope.as_ref().unwrap().freq_scale));
    // Positions are stretched in all of them.
    assert_eq!(seen.collect::<Vec<_>>(), [(16, 50.0, 0.125), (0, 50.0, 0.125), (16, 50.0, 0.125)]);
    assert!(found.iter().all(|a| a.norm.is_none() && a.scale == 1.0 / 32f32.sqrt()));
    let caps = |keys: &[(&str, f32)]| {
        let (layers, scales) = model("gemma2", |file| {
            for (key, value) in keys {
                file.kv(&format!("gemma2.{key}"), *value);
            }
        })
        .unwrap();
        let Mixer::Attention(attention) = &layers[0].mixer else { panic!("gemma2 has other layers") };
        [attention.softcap, scales.logit_cap, scales.embedding]
    };
    assert_eq!(caps(&[]), [50.0, 30.0, 8.0]);
    let own = [("attn_logit_softcapping", 20.0), ("final_logit_softcapping", 10.0)];
    assert_eq!(caps(&own), [20.0, 10.0, 8.0]);
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        for bad in [-1.0, f32::NAN, f32::INFINITY] {
            error("gemma2", key, bad);
        }
    }
    error("gemma2", "attention.sliding_window", 0u32);
    let scale = |layers_of_it: u32| {
        attention_of("gemma2", |file| {
            file.kv("gemma2.block_count", layers_of_it).kv("gemma2.embedding_length", 256u32);
        })[0]
            .scale
    };
    assert_eq!([scale(26), scale(46)], [1.0 / 32f32.sqrt(), 1.0 / 64f32.sqrt()]);
}

#[test]
fn divisors_of_angles_go_by_what_the_file_has() {
    let factors = |arch: &str, names: &[&str]| {
        rope(arch, |file| {
            for name in names {
                file.tensor(name, GgmlType::F32, &[16], vec![0; 64]).unwrap();
            }
        })
        .factors
    };
    let both = ["rope_factors_long.weight", "rope_factors_short.weight"];
    for arch in ["phi3", "llama", "granite", "mistral3"] {
        assert_eq!(factors(arch, &[]), Factors::None, "{arch}");
        assert_eq!(factors(arch, &["rope_freqs.weight"]), Factors::Always, "{arch}");
        // Half of them is read as both: the plan of weights then names the one that is missing.
        for some in [&both[..], &both[..1], &both[1..]] {
            assert_eq!(factors(arch, some), Factors::ByContext, "{arch}");
        }
    }
    let stretched = rope("phi3", |file| {
        for name in both {
            file.tensor(name, GgmlType::F32, &[16], vec![0; 64]).unwrap();
        }
        file.kv("phi3.rope.scaling.type", "longrope").kv("phi3.rope.scaling.attn_factor", 1.19f32);
        file.kv("phi3.rope.scaling.original_context_length", 32u32);
    });
    assert_eq!((stretched.freq_scale, stretched.attn_factor, stretched.n_ctx_orig), (1.0, 1.19, 32));
}

#[test]
fn phi3_has_values_as_wide_as_keys() {
    let found = error("phi3", "attention.value_length", 16u32);
    assert!(found.contains("is 16, expected 32, the width of a head"), "{found}");
    assert!(error("phi3", "expert_count", 16u32).contains("runs no mixtures of experts"));
    let windows = attention_of("phi3", |file| {
        file.kv("phi3.attention.sliding_window", 16u32);
    });
    assert!(windows.iter().all(|attention| attention.window == 0), "as in llama.cpp");
}

#[test]
fn mistral3_names_the_bounds_of_yarn_and_the_growth_of_queries() {
    let read = |keys: &[(&str, f32)]| {
        let found = attention_of("mistral3", |file| {
            file.kv("mistral3.rope.scaling.type", "yarn").kv("mistral3.rope.scaling.factor", 16f32);
            for (key, value) in keys {
                file.kv(&format!("mistral3.{key}"), *value);
            }
        });
        let rope = found[0].rope.clone().unwrap();
        (rope.yarn_bounds, rope.attn_factor, found[0].temperature)
    };
    assert_eq!(read(&[]), ([32.0, 1.0], 1.0, 0.0));
    let own = [
        ("rope.scaling.yarn_beta_fast", 24.0),
        ("rope.scaling.yarn_beta_slow", 2.0),
        ("rope.scaling.yarn_log_multiplier", 1.0),
        ("attention.temperature_scale", 0.1),
    ];
    let magnitude = 1.0 / (1.0 + 0.1 * 16f32.ln());
    assert_eq!(read(&own), ([24.0, 2.0], magnitude, 0.1));
    for key in ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "attention.temperature_scale"] {
        for bad in [-1.0, f32::NAN, f32::INFINITY] {
            error("mistral3", key, bad);
        }
    }
    let stretched = layers("mistral3", |file| {
        file.kv("mistral3.rope.scaling.type", "yarn").kv("mistral3.rope.scaling.factor", 16f32);
        file.kv("mistral3.rope.scaling.yarn_log_multiplier", -9f32);
    });
    assert!(stretched.unwrap_err().contains("yarn_log_multiplier is -9, expected a number that leaves"));
    error("mistral3", "rope.scaling.yarn_log_multiplier", f32::NAN);
    // Without YaRN there is no magnitude to change.
    let plain = attention_of("mistral3", |file| {
        file.kv("mistral3.rope.scaling.factor", 16f32).kv("mistral3.rope.scaling.yarn_log_multiplier", 1f32);
    });
    assert_eq!(plain[0].rope.as_ref().unwrap().attn_factor, 1.0);
}

#[test]
fn layers_of_spark_have_heads_of_their_own() {
    let found = attention_of("spark2_5", |file| {
        file.kv("spark2_5.attention.head_count", vec![4i32, 6]);
        file.kv("spark2_5.attention.head_count_kv", vec![2i32, 3]);
        file.kv("spark2_5.rope.dimension_count", 8u32).kv("spark2_5.rope.dimension_count_swa", 24u32);
        file.kv("spark2_5.rope.freq_base", 1e6f32).kv("spark2_5.rope.freq_base_swa", 1e4f32);
    });
    let seen = found.iter().map(|a| {
        let rope = a.rope.as_ref().unwrap();
        (a.n_head, a.n_head_kv, a.window, rope.n_dims, rope.freq_base)
    });
    assert_eq!(seen.collect::<Vec<_>>(), [(4, 2, 16, 24, 1e4), (6, 3, 0, 8, 1e6)]);
    assert!(found.iter().all(|attention| attention.gate == Gate::OfHeads && attention.key_dim == 32));
    // Keys of layers with a window need not be there.
    let alike = attention_of("spark2_5", |file| {
        file.kv("spark2_5.rope.dimension_count", 8u32).kv("spark2_5.rope.freq_base", 1e6f32);
    });
    assert!(alike.iter().map(|a| a.rope.as_ref().unwrap()).all(|r| (r.n_dims, r.freq_base) == (8, 1e6)));
    let short = error("spark2_5", "attention.sliding_window_pattern", vec![true]);
    assert!(short.contains("is 1 flags, expected 2"), "{short}");
    error("spark2_5", "attention.sliding_window", 0u32);
    error("spark2_5", "attention.key_length", 0u32);
    error("spark2_5", "attention.value_length", 16u32);
    error("spark2_5", "rope.dimension_count_swa", 40u32);
    error("spark2_5", "rope.freq_base_swa", 0f32);
    assert!(error("spark2_5", "expert_count", 16u32).contains("runs no mixtures of experts"));
}

#[test]
fn qwen3vl_has_sections_of_positions() {
    for bad in [vec![], vec![6i32, 5, 5], vec![0, 0, 0, 0], vec![6, -1, 5, 0]] {
        let found = error("qwen3vl", "rope.dimension_sections", bad);
        assert!(found.contains("expected four counts"), "{found}");
    }
}

#[test]
fn granite_may_do_without_rotary_embedding() {
    let turned = |says: bool| {
        let found = attentions("granite", |file| {
            file.kv("granite.rope.scaling.finetuned", says);
        });
        found.iter().all(|(rope, _)| rope.is_some())
    };
    assert_eq!([true, false].map(turned), [true, false]);
    assert_eq!(rope("granite", |_| ()).pairs, RopeMode::Norm);
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
const MOE: [&str; 4] = ["qwen3moe", "qwen35moe", "lfm2moe", "gpt-oss"];

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
        let of_chosen = Router { gating: Gating::SoftmaxOfChosen, normalize: false, ..Router::SOFTMAX };
        let router = match arch {
            "lfm2moe" => sigmoid,
            "gpt-oss" => of_chosen,
            _ => Router::SOFTMAX,
        };
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

/// A gpt-oss of one layer: all its tensors but the one called `without`, and `odd` with a row too many.
fn gpt_oss(without: &str, odd: &str) -> Result<usize, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut file = file("gpt-oss");
    file.kv("gpt-oss.block_count", 1u32);
    let mut add = |name: &str, ne: &[u64]| {
        if name == without {
            return;
        }
        let mut ne = ne.to_vec();
        ne[0] += u64::from(name == odd);
        file.tensor(name, GgmlType::F32, &ne, vec![0; 4 * ne.iter().product::<u64>() as usize]).unwrap();
    };
    for (name, ne) in GPT_OSS {
        add(name, ne);
    }
    file.write_to(File::create(&path).unwrap()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let model = read(&gguf, &Keys::new(&gguf).unwrap()).map_err(|e| e.to_string())?.unwrap();
    model.weights(&gguf).map(|plan| plan.specs.len()).map_err(|e| e.to_string())
}

/// Four heads of 32 over two, eight experts 40 wide.
const GPT_OSS: [(&str, &[u64]); 22] = [
    ("token_embd.weight", &[64, 96]),
    ("output.weight", &[64, 96]),
    ("output_norm.weight", &[64]),
    ("blk.0.attn_norm.weight", &[64]),
    ("blk.0.post_attention_norm.weight", &[64]),
    ("blk.0.attn_q.weight", &[64, 128]),
    ("blk.0.attn_k.weight", &[64, 64]),
    ("blk.0.attn_v.weight", &[64, 64]),
    ("blk.0.attn_output.weight", &[128, 64]),
    ("blk.0.attn_q.bias", &[128]),
    ("blk.0.attn_k.bias", &[64]),
    ("blk.0.attn_v.bias", &[64]),
    ("blk.0.attn_output.bias", &[64]),
    ("blk.0.attn_sinks.weight", &[4]),
    ("blk.0.ffn_gate_inp.weight", &[64, 8]),
    ("blk.0.ffn_gate_inp.bias", &[8]),
    ("blk.0.ffn_gate_exps.weight", &[64, 40, 8]),
    ("blk.0.ffn_up_exps.weight", &[64, 40, 8]),
    ("blk.0.ffn_down_exps.weight", &[40, 64, 8]),
    ("blk.0.ffn_gate_exps.bias", &[40, 8]),
    ("blk.0.ffn_up_exps.bias", &[40, 8]),
    ("blk.0.ffn_down_exps.bias", &[64, 8]),
];

#[test]
fn a_gpt_oss_without_one_of_its_tensors_is_refused_by_its_name() {
    assert!(gpt_oss("", "").unwrap() > 0);
    for (name, _) in GPT_OSS {
        let absent = gpt_oss(name, "").unwrap_err();
        assert!(absent.contains(name) && !absent.contains('\n'), "{absent}");
        let odd = gpt_oss("", name).unwrap_err();
        assert!(odd.contains(name) && odd.contains("has shape") && !odd.contains('\n'), "{odd}");
    }
}
