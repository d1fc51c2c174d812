//! The random models that are compared: real widths, few layers, a small vocabulary.

use super::architecture::Architecture;
use super::assistant::AssistantShape;
use super::eagle3::Eagle3Shape;
use super::random::{ModelShape, Scaling, WeightType};

/// A model with a name.
pub struct Named {
    /// For `--shape` and reports.
    pub name: &'static str,
    /// What it looks like.
    pub model: ModelShape,
}

/// The shape of a draft in a file of its own.
pub enum Draft {
    /// A Gemma 4 assistant.
    Assistant(AssistantShape),
    /// An EAGLE3 draft.
    Eagle3(Eagle3Shape),
}

/// A target and its draft with a name.
pub struct Drafted {
    /// For `--shape` and reports.
    pub name: &'static str,
    /// Shape of the target.
    pub target: ModelShape,
    /// Shape of the draft.
    pub draft: Draft,
}

/// Linear layers as in the 0.8B: 16 heads of 128 x 128.
const BASE: ModelShape = ModelShape {
    architecture: Architecture::Qwen35,
    layers: 4,
    interval: 4,
    width: 1024,
    ff: 2048,
    heads: 8,
    kv_heads: 2,
    head: 256,
    window: 0,
    key_heads: 16,
    value_heads: 16,
    state: 128,
    taps: 4,
    vocab: 512,
    context: 256,
    weights: WeightType::Q8_0,
    embedding_type: None,
    expert_type: None,
    untied: false,
    biases: false,
    scaling: None,
    experts: 8,
    used: 2,
    expert_ff: 256,
    dense_layers: 1,
    fused_experts: false,
    shared: 2,
    per_layer: 64,
    mtp: false,
    seed: 1,
};

/// A trunk of two layers, and a head behind it.
const WITH_HEAD: ModelShape =
    ModelShape { layers: 2, interval: 2, vocab: 4096, weights: WeightType::F16, mtp: true, ..BASE };

/// Attention in every layer, with heads as all sizes of Qwen3 have them.
const DENSE: ModelShape =
    ModelShape { architecture: Architecture::Qwen3, head: 128, ff: 3072, weights: WeightType::F16, ..BASE };

/// Qwen3's, narrower, in whole blocks of 128. Random weights lose most of themselves in one or two bits, and
/// what rounding of activations makes of the rest grows with layers.
const FEW_BITS: ModelShape = ModelShape { width: 512, ff: 1536, layers: 2, ..DENSE };

/// Llama's, narrower: heads of 64, four queries to a key.
const LLAMA: ModelShape =
    ModelShape { architecture: Architecture::Llama, head: 64, width: 512, ff: 1408, layers: 3, ..DENSE };

/// Widths that are whole blocks of 256. The head, which adds most of what rounding makes, has F16 weights.
const BLOCKS_OF_256: ModelShape = ModelShape {
    ff: 1536,
    layers: 2,
    weights: WeightType::Q4K,
    embedding_type: Some(WeightType::F16),
    ..LLAMA
};

/// Qwen2's, which have biases: seven queries to a key, as in the 0.5B.
const QWEN2: ModelShape =
    ModelShape { architecture: Architecture::Qwen2, heads: 7, kv_heads: 1, width: 448, ff: 1216, ..LLAMA };

/// Gemma 3's: windows of 24 in two layers of three, heads of 256 on one key head, as in the 270M and the 1B.
pub const GEMMA3: ModelShape = ModelShape {
    architecture: Architecture::Gemma3,
    layers: 4,
    interval: 3,
    heads: 4,
    kv_heads: 1,
    head: 256,
    window: 24,
    width: 640,
    ff: 1024,
    ..LLAMA
};

/// LFM2's: two convolutions of three taps to a layer of attention, two queries to a key, as in the 350M.
const LFM2: ModelShape = ModelShape {
    architecture: Architecture::Lfm2,
    layers: 5,
    interval: 3,
    heads: 16,
    kv_heads: 8,
    width: 1024,
    ff: 2560,
    taps: 3,
    ..LLAMA
};

/// Qwen3's with experts, narrower: 16 of them, 4 to a token.
const QWEN3MOE: ModelShape = ModelShape {
    architecture: Architecture::Qwen3moe,
    layers: 3,
    width: 512,
    experts: 16,
    used: 4,
    expert_ff: 192,
    ..DENSE
};

/// Qwen3.5's with experts, narrower.
const QWEN35MOE: ModelShape = ModelShape {
    architecture: Architecture::Qwen35moe,
    layers: 4,
    width: 512,
    ff: 256,
    experts: 16,
    used: 4,
    expert_ff: 128,
    weights: WeightType::F16,
    ..BASE
};

/// LFM2's with experts, narrower: the first layer has none.
const LFM2MOE: ModelShape = ModelShape {
    architecture: Architecture::Lfm2moe,
    heads: 8,
    kv_heads: 4,
    width: 512,
    ff: 1024,
    experts: 16,
    used: 4,
    expert_ff: 192,
    ..LFM2
};

/// gpt-oss's, narrower: windows of 24 in every other layer, eight queries to a key, as in both sizes.
const GPT_OSS: ModelShape = ModelShape {
    architecture: Architecture::GptOss,
    layers: 4,
    interval: 2,
    heads: 16,
    kv_heads: 2,
    head: 64,
    window: 24,
    width: 576,
    experts: 16,
    used: 4,
    expert_ff: 192,
    scaling: Some(Scaling::Yarn),
    untied: true,
    ..DENSE
};

/// Gemma 4's: windows of 24 in two layers of three, heads of 256 and 128 on one key head, as in the E2B; the
/// last three layers of six read the caches of the second and the third.
pub const GEMMA4: ModelShape =
    ModelShape { architecture: Architecture::Gemma4, layers: 6, shared: 3, ff: 768, ..GEMMA3 };

/// Granite 4's, narrower: four queries to a key, heads of 64, as in the micro.
const GRANITE: ModelShape = ModelShape { architecture: Architecture::Granite, seed: 90, ..LLAMA };

/// Gemma 2's: windows of 24 in every other layer, two queries to a key, as in the 2B.
const GEMMA2: ModelShape = ModelShape {
    architecture: Architecture::Gemma2,
    layers: 5,
    interval: 2,
    heads: 4,
    kv_heads: 2,
    seed: 92,
    ..GEMMA3
};

/// Phi 4's, narrower: three quarters of a head of 128 are turned, three queries to a key, as in the mini.
const PHI3: ModelShape = ModelShape {
    architecture: Architecture::Phi3,
    head: 128,
    heads: 6,
    kv_heads: 2,
    width: 768,
    scaling: Some(Scaling::LongropeFar),
    seed: 94,
    ..LLAMA
};

/// Ministral 3's, narrower: heads of 128, four queries to a key, as in the 3B.
const MISTRAL3: ModelShape = ModelShape {
    architecture: Architecture::Mistral3,
    head: 128,
    scaling: Some(Scaling::Yarn),
    seed: 97,
    ..LLAMA
};

/// Qwen3-VL's, as the text model's.
const QWEN3VL: ModelShape = ModelShape { architecture: Architecture::Qwen3vl, seed: 99, ..DENSE };

/// Spark's: windows of 24 in two layers of three, which have twice as many heads, turned whole; three
/// quarters of the others are.
const SPARK: ModelShape = ModelShape {
    architecture: Architecture::Spark25,
    head: 128,
    heads: 8,
    kv_heads: 2,
    layers: 4,
    interval: 3,
    window: 24,
    seed: 101,
    ..LLAMA
};

/// All of them.
pub const SHAPES: &[Named] = &[
    Named { name: "16-heads-f32", model: ModelShape { weights: WeightType::F32, ..BASE } },
    Named {
        name: "16-heads-f16-untied",
        model: ModelShape { weights: WeightType::F16, untied: true, ..BASE },
    },
    Named {
        name: "16-heads-bf16",
        model: ModelShape { weights: WeightType::Bf16, layers: 2, interval: 2, ..BASE },
    },
    Named { name: "16-heads-q8_0", model: BASE },
    // The 4B: twice as many value heads as key heads, 16 query heads on 4.
    Named {
        name: "32-heads-q4_0",
        model: ModelShape {
            width: 2560,
            ff: 2048,
            heads: 16,
            kv_heads: 4,
            value_heads: 32,
            layers: 2,
            interval: 2,
            weights: WeightType::Q4_0,
            ..BASE
        },
    },
    // The 27B's three value heads per key head; an odd ratio of query heads.
    Named {
        name: "48-heads-q8_0-untied",
        model: ModelShape {
            heads: 6,
            kv_heads: 1,
            value_heads: 48,
            layers: 3,
            interval: 3,
            untied: true,
            ..BASE
        },
    },
    // llama.cpp and hexflash round activations differently for Q6_K (per 256, per 32): with a head of that
    // type as well this alone comes to 1.2e-4.
    Named {
        name: "32-heads-q6_k",
        model: ModelShape {
            value_heads: 32,
            weights: WeightType::Q6K,
            embedding_type: Some(WeightType::F16),
            layers: 2,
            interval: 2,
            ..BASE
        },
    },
    Named {
        name: "48-heads-f16",
        model: ModelShape { value_heads: 48, weights: WeightType::F16, layers: 2, interval: 2, ..BASE },
    },
    Named {
        name: "16-heads-mixed-types",
        model: ModelShape { weights: WeightType::Mixed, untied: true, ..BASE },
    },
    Named { name: "dense-f16", model: DENSE },
    Named { name: "dense-f16-untied", model: ModelShape { untied: true, seed: 2, ..DENSE } },
    // The types that Bonsai models are published in, embeddings and all.
    Named { name: "dense-q1_0", model: ModelShape { weights: WeightType::Q1_0, seed: 80, ..FEW_BITS } },
    Named { name: "dense-q2_0", model: ModelShape { weights: WeightType::Q2_0, seed: 81, ..FEW_BITS } },
    Named { name: "dense-q8_0", model: ModelShape { weights: WeightType::Q8_0, ..DENSE } },
    Named { name: "dense-llama-f16", model: LLAMA },
    // Llama 3.1's divisors, heads of 128; three queries to a key, as in SmolLM2.
    Named {
        name: "dense-llama-divisors-f16-untied",
        model: ModelShape {
            head: 128,
            heads: 6,
            width: 768,
            scaling: Some(Scaling::Divisors),
            untied: true,
            seed: 15,
            ..LLAMA
        },
    },
    // A key for each query, and all biases.
    Named {
        name: "dense-llama-biases-f32",
        model: ModelShape { kv_heads: 8, biases: true, weights: WeightType::F32, seed: 4, ..LLAMA },
    },
    Named {
        name: "dense-llama-linear-f16",
        model: ModelShape { kv_heads: 1, scaling: Some(Scaling::Linear), seed: 5, ..LLAMA },
    },
    Named {
        name: "dense-llama-yarn-f16",
        model: ModelShape {
            head: 128,
            heads: 4,
            scaling: Some(Scaling::Yarn),
            untied: true,
            seed: 6,
            ..LLAMA
        },
    },
    Named { name: "dense-llama-q4_0", model: ModelShape { weights: WeightType::Q4_0, seed: 7, ..LLAMA } },
    // Each type once, in all matrices. For blocks of 32 llama.cpp rounds activations as hexflash does.
    Named { name: "dense-llama-q4_1", model: ModelShape { weights: WeightType::Q4_1, seed: 21, ..LLAMA } },
    Named { name: "dense-llama-q5_0", model: ModelShape { weights: WeightType::Q5_0, seed: 22, ..LLAMA } },
    Named { name: "dense-llama-q5_1", model: ModelShape { weights: WeightType::Q5_1, seed: 23, ..LLAMA } },
    Named { name: "dense-llama-iq4_nl", model: ModelShape { weights: WeightType::Iq4Nl, seed: 24, ..LLAMA } },
    Named { name: "dense-llama-mxfp4", model: ModelShape { weights: WeightType::Mxfp4, seed: 25, ..LLAMA } },
    Named { name: "dense-llama-bf16", model: ModelShape { weights: WeightType::Bf16, seed: 26, ..LLAMA } },
    // As for Q6_K: llama.cpp rounds activations per 256. The head is the embedding, of another type.
    Named {
        name: "dense-llama-q2_k",
        model: ModelShape { weights: WeightType::Q2K, seed: 27, ..BLOCKS_OF_256 },
    },
    Named {
        name: "dense-llama-q3_k",
        model: ModelShape { weights: WeightType::Q3K, seed: 28, ..BLOCKS_OF_256 },
    },
    // The types of files that are named Q4_K_M.
    Named {
        name: "dense-llama-q4_k-q6_k",
        model: ModelShape { embedding_type: Some(WeightType::Q6K), seed: 29, ..BLOCKS_OF_256 },
    },
    Named {
        name: "dense-llama-q5_k",
        model: ModelShape { weights: WeightType::Q5K, seed: 30, ..BLOCKS_OF_256 },
    },
    Named {
        name: "dense-llama-iq4_xs",
        model: ModelShape { weights: WeightType::Iq4Xs, seed: 31, ..BLOCKS_OF_256 },
    },
    Named { name: "dense-qwen2-f16", model: QWEN2 },
    Named {
        name: "dense-qwen2-f16-untied",
        model: ModelShape { head: 128, heads: 4, kv_heads: 2, width: 512, untied: true, seed: 8, ..QWEN2 },
    },
    Named {
        name: "dense-qwen2-yarn-f16",
        model: ModelShape { heads: 5, width: 320, scaling: Some(Scaling::Yarn), seed: 14, ..QWEN2 },
    },
    // The fourth layer is not turned; four queries to a key, as in the 3B.
    Named {
        name: "dense-smollm3-f16",
        model: ModelShape { architecture: Architecture::Smollm3, layers: 5, seed: 10, ..LLAMA },
    },
    Named {
        name: "dense-smollm3-f16-untied",
        model: ModelShape {
            architecture: Architecture::Smollm3,
            layers: 4,
            head: 128,
            heads: 4,
            scaling: Some(Scaling::Yarn),
            untied: true,
            seed: 11,
            ..LLAMA
        },
    },
    Named { name: "dense-gemma3-f32", model: ModelShape { weights: WeightType::F32, ..GEMMA3 } },
    Named { name: "dense-gemma3-f16", model: ModelShape { seed: 12, ..GEMMA3 } },
    // The stretched positions of the 4B and larger, whose heads have 128 or 256 values.
    Named {
        name: "dense-gemma3-linear-f16-untied",
        model: ModelShape {
            head: 128,
            heads: 8,
            kv_heads: 4,
            scaling: Some(Scaling::Linear),
            untied: true,
            seed: 13,
            ..GEMMA3
        },
    },
    Named { name: "dense-gemma4-f32", model: ModelShape { weights: WeightType::F32, seed: 70, ..GEMMA4 } },
    Named { name: "dense-gemma4-f16", model: ModelShape { seed: 71, ..GEMMA4 } },
    // Two key heads, as in the E4B; no layer shares caches.
    Named {
        name: "dense-gemma4-own-caches-f16-untied",
        model: ModelShape {
            layers: 4,
            shared: 0,
            kv_heads: 2,
            window: 5,
            interval: 2,
            per_layer: 32,
            untied: true,
            seed: 72,
            ..GEMMA4
        },
    },
    Named { name: "dense-granite-f16", model: GRANITE },
    Named {
        name: "dense-granite-odd-f16-untied",
        model: ModelShape {
            heads: 7,
            kv_heads: 1,
            width: 352,
            ff: 608,
            vocab: 333,
            biases: true,
            untied: true,
            seed: 91,
            ..GRANITE
        },
    },
    Named { name: "dense-granite-f32", model: ModelShape { weights: WeightType::F32, ..GRANITE } },
    Named { name: "dense-granite-q8_0", model: ModelShape { weights: WeightType::Q8_0, ..GRANITE } },
    Named { name: "dense-gemma2-f16", model: GEMMA2 },
    Named { name: "dense-gemma2-f32", model: ModelShape { weights: WeightType::F32, ..GEMMA2 } },
    // A window that is shorter than any piece of a prompt, five queries to a key.
    Named {
        name: "dense-gemma2-window-of-3-f16",
        model: ModelShape {
            heads: 5,
            kv_heads: 1,
            head: 96,
            width: 352,
            ff: 608,
            interval: 3,
            window: 3,
            vocab: 333,
            seed: 93,
            ..GEMMA2
        },
    },
    Named { name: "dense-phi3-f16", model: PHI3 },
    Named {
        name: "dense-phi3-short-f16-untied",
        model: ModelShape { scaling: Some(Scaling::LongropeNear), untied: true, seed: 95, ..PHI3 },
    },
    // The first models have no divisors, and a key for each query; odd widths.
    Named {
        name: "dense-phi3-odd-f16",
        model: ModelShape {
            head: 96,
            heads: 5,
            kv_heads: 5,
            width: 480,
            ff: 608,
            vocab: 333,
            scaling: None,
            seed: 96,
            ..PHI3
        },
    },
    Named { name: "dense-phi3-q8_0", model: ModelShape { weights: WeightType::Q8_0, ..PHI3 } },
    Named { name: "dense-mistral3-f16", model: MISTRAL3 },
    Named {
        name: "dense-mistral3-odd-f16-untied",
        model: ModelShape {
            head: 96,
            heads: 5,
            kv_heads: 1,
            width: 352,
            ff: 608,
            vocab: 333,
            untied: true,
            seed: 98,
            ..MISTRAL3
        },
    },
    Named { name: "dense-qwen3vl-f16", model: QWEN3VL },
    Named {
        name: "dense-qwen3vl-odd-f16-untied",
        model: ModelShape {
            head: 96,
            heads: 5,
            kv_heads: 1,
            width: 352,
            ff: 608,
            vocab: 333,
            untied: true,
            seed: 100,
            ..QWEN3VL
        },
    },
    Named { name: "dense-spark-f16", model: SPARK },
    Named {
        name: "dense-spark-odd-f16-untied",
        model: ModelShape {
            head: 96,
            heads: 6,
            kv_heads: 1,
            width: 352,
            ff: 608,
            window: 3,
            interval: 2,
            vocab: 333,
            untied: true,
            seed: 102,
            ..SPARK
        },
    },
    Named { name: "dense-lfm2-f16", model: ModelShape { seed: 16, ..LFM2 } },
    Named { name: "dense-lfm2-f32", model: ModelShape { weights: WeightType::F32, seed: 17, ..LFM2 } },
    // Four queries to a key, as in the 1.2B; windows, and more taps than any file has.
    Named {
        name: "dense-lfm2-windows-f16-untied",
        model: ModelShape {
            heads: 12,
            kv_heads: 3,
            width: 768,
            ff: 2048,
            taps: 5,
            window: 24,
            interval: 2,
            untied: true,
            seed: 18,
            ..LFM2
        },
    },
    Named { name: "dense-lfm2-q8_0", model: ModelShape { weights: WeightType::Q8_0, seed: 19, ..LFM2 } },
    Named { name: "dense-lfm2-q4_0", model: ModelShape { weights: WeightType::Q4_0, seed: 20, ..LFM2 } },
    Named { name: "moe-qwen3-f16", model: QWEN3MOE },
    Named {
        name: "moe-qwen3-f32-untied",
        model: ModelShape { weights: WeightType::F32, untied: true, seed: 21, ..QWEN3MOE },
    },
    Named {
        name: "moe-qwen3-one-expert-f16",
        model: ModelShape { experts: 1, used: 1, seed: 22, ..QWEN3MOE },
    },
    Named {
        name: "moe-qwen3-all-experts-f16",
        model: ModelShape { experts: 5, used: 5, expert_ff: 160, seed: 23, ..QWEN3MOE },
    },
    // As many experts as the 30B-A3B has. Among so many, two are often nearly as good, and rounding chooses
    // one: with this seed it does not within 512 tokens.
    Named {
        name: "moe-qwen3-128-experts-f16",
        model: ModelShape { experts: 128, used: 8, expert_ff: 64, layers: 2, seed: 41, ..QWEN3MOE },
    },
    Named { name: "moe-qwen3-q8_0", model: ModelShape { weights: WeightType::Q8_0, seed: 53, ..QWEN3MOE } },
    Named { name: "moe-qwen3-q4_0", model: ModelShape { weights: WeightType::Q4_0, seed: 53, ..QWEN3MOE } },
    Named { name: "moe-qwen35-f16", model: ModelShape { seed: 27, ..QWEN35MOE } },
    Named {
        name: "moe-qwen35-fused-f16-untied",
        model: ModelShape {
            fused_experts: true,
            untied: true,
            layers: 2,
            interval: 2,
            seed: 28,
            ..QWEN35MOE
        },
    },
    Named {
        name: "moe-qwen35-q8_0",
        model: ModelShape { weights: WeightType::Q8_0, layers: 2, interval: 2, seed: 29, ..QWEN35MOE },
    },
    Named { name: "moe-lfm2-f16", model: ModelShape { seed: 30, ..LFM2MOE } },
    Named { name: "moe-lfm2-f32", model: ModelShape { weights: WeightType::F32, seed: 32, ..LFM2MOE } },
    Named {
        name: "moe-lfm2-all-experts-f16-untied",
        model: ModelShape { experts: 3, used: 3, dense_layers: 0, untied: true, seed: 31, ..LFM2MOE },
    },
    Named { name: "moe-gpt-oss-f32", model: ModelShape { weights: WeightType::F32, seed: 60, ..GPT_OSS } },
    Named { name: "moe-gpt-oss-f16", model: ModelShape { seed: 61, ..GPT_OSS } },
    // The types of the published files.
    Named {
        name: "moe-gpt-oss-mxfp4-experts",
        model: ModelShape {
            weights: WeightType::Q8_0,
            expert_type: Some(WeightType::Mxfp4),
            seed: 62,
            ..GPT_OSS
        },
    },
    // A window that is shorter than any piece of a prompt, without YaRN.
    Named {
        name: "moe-gpt-oss-window-of-3-f16",
        model: ModelShape {
            heads: 7,
            kv_heads: 1,
            width: 448,
            window: 3,
            interval: 3,
            scaling: None,
            seed: 63,
            ..GPT_OSS
        },
    },
    Named {
        name: "moe-gpt-oss-one-expert-f16",
        model: ModelShape { kv_heads: 16, experts: 1, used: 1, seed: 64, ..GPT_OSS },
    },
    Named {
        name: "moe-gpt-oss-all-experts-f16",
        model: ModelShape { experts: 5, used: 5, expert_ff: 160, window: 1, seed: 65, ..GPT_OSS },
    },
    // MTP heads, in the widths of the 0.8B, the 4B and the 35B-A3B; the trunk has a layer of each kind. Of
    // the last one's 256 experts there are 16. A chain goes through the head seven times: with Q8_0 weights,
    // where both round activations to 8 bits, that comes to 1.2e-4 in the 4B.
    Named { name: "mtp-0.8b-f16", model: ModelShape { ff: 3584, seed: 80, ..WITH_HEAD } },
    Named {
        name: "mtp-4b-f16",
        model: ModelShape {
            width: 2560,
            ff: 9216,
            heads: 16,
            kv_heads: 4,
            value_heads: 32,
            seed: 81,
            ..WITH_HEAD
        },
    },
    Named {
        name: "mtp-moe-f16",
        model: ModelShape {
            architecture: Architecture::Qwen35moe,
            width: 2048,
            ff: 512,
            heads: 16,
            value_heads: 32,
            experts: 16,
            used: 8,
            expert_ff: 512,
            seed: 82,
            ..WITH_HEAD
        },
    },
    // Odd widths: a state of 64, heads of 64, seven query heads, five taps, a vocabulary that is no whole
    // strip.
    Named {
        name: "odd-f32",
        model: ModelShape {
            width: 352,
            ff: 608,
            heads: 7,
            kv_heads: 1,
            head: 64,
            key_heads: 3,
            value_heads: 9,
            state: 64,
            taps: 5,
            vocab: 333,
            layers: 4,
            interval: 2,
            weights: WeightType::F32,
            ..BASE
        },
    },
];

/// As that of the E2B: three layers that see a window and one that sees all, a fourth of the target's width.
const ASSISTANT: AssistantShape =
    AssistantShape { layers: 4, interval: 4, width: 256, ff: 2048, heads: 4, seed: 110 };

/// Targets and drafts whose chains go through the draft seven times.
pub const DRAFTED: &[Drafted] = &[
    Drafted {
        name: "assistant-f32",
        target: ModelShape { weights: WeightType::F32, seed: 111, ..GEMMA4 },
        draft: Draft::Assistant(AssistantShape { seed: 111, ..ASSISTANT }),
    },
    // Two key heads, as in the E4B; every layer has caches; a short window.
    Drafted {
        name: "assistant-own-caches-f16",
        target: ModelShape {
            layers: 4,
            shared: 0,
            kv_heads: 2,
            window: 12,
            interval: 2,
            per_layer: 32,
            untied: true,
            seed: 112,
            ..GEMMA4
        },
        draft: Draft::Assistant(AssistantShape {
            layers: 3,
            interval: 2,
            width: 384,
            ff: 608,
            heads: 6,
            seed: 112,
        }),
    },
    // As those for Qwen3: tables of the target, the input of three layers.
    Drafted {
        name: "eagle3-f32",
        target: ModelShape { weights: WeightType::F32, layers: 3, seed: 113, ..FEW_BITS },
        draft: Draft::Eagle3(EAGLE3),
    },
    // As those for gpt-oss: all that a file may have of its own.
    Drafted {
        name: "eagle3-own-tables-f16",
        target: ModelShape { layers: 4, seed: 114, ..LLAMA },
        draft: Draft::Eagle3(Eagle3Shape {
            taps: [0, 1, 3],
            width: 384,
            ff: 640,
            heads: [6, 3],
            own: Some(160),
            norms: true,
            divisors: true,
            seed: 114,
        }),
    },
    // The row of the last token is a state beside those of the target.
    Drafted {
        name: "eagle3-hybrid-f32",
        target: ModelShape { weights: WeightType::F32, layers: 4, mtp: false, seed: 115, ..WITH_HEAD },
        draft: Draft::Eagle3(Eagle3Shape { taps: [1, 2, 3], width: 1024, ff: 1536, seed: 115, ..EAGLE3 }),
    },
];

/// A draft with the tables of a target as wide as [`FEW_BITS`].
const EAGLE3: Eagle3Shape = Eagle3Shape {
    taps: [0, 1, 2],
    width: 512,
    ff: 1536,
    heads: [8, 2],
    own: None,
    norms: false,
    divisors: false,
    seed: 113,
};
