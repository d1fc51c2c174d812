//! The architectures that models with random weights may have, and what differs between them.

/// Architectures that hexflash runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// Linear and gated full attention
    Qwen35,
    /// Full attention in every layer
    Qwen3,
    /// Without norms of queries and keys
    Llama,
    /// With biases of queries, keys and values
    Qwen2,
    /// As llama, but every fourth layer is not turned
    Smollm3,
    /// Windows, norms after what layers add, GELU
    Gemma3,
    /// Gated short convolutions and attention
    Lfm2,
    /// qwen3 with experts
    Qwen3moe,
    /// qwen35 with experts and a shared one
    Qwen35moe,
    /// lfm2 with experts behind the first layers
    Lfm2moe,
    /// Sinks and windows, experts, and biases of all matrices
    GptOss,
    /// Heads of two widths, caches that layers share, per-layer embeddings
    Gemma4,
    /// As llama, with factors on embeddings, attention, what layers add, and logits
    Granite,
    /// As gemma3 without norms of queries and keys, with bounded logits of attention
    Gemma2,
    /// Queries, keys and values as one tensor, gate and up too; heads may be turned in part
    Phi3,
    /// As llama, with queries that grow with their position
    Mistral3,
    /// As qwen3, with sections of positions
    Qwen3vl,
    /// Layers with and without windows differ in heads and in what is turned; a gate per head
    #[value(name = "spark2_5")]
    Spark25,
    /// As gemma3, but tokens see later ones too, and matrices behind the last norm: vectors, and no logits
    GemmaEmbedding,
}

impl Architecture {
    /// The architecture that it is, or is most like, but for its experts.
    pub fn dense(self) -> Self {
        match self {
            Self::Qwen3moe => Self::Qwen3,
            Self::Qwen35moe => Self::Qwen35,
            Self::Lfm2moe => Self::Lfm2,
            Self::GptOss => Self::Llama,
            _ => self,
        }
    }

    /// The name in files, where it is what keys begin with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen35 => "qwen35",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Smollm3 => "smollm3",
            Self::Gemma3 => "gemma3",
            Self::Lfm2 => "lfm2",
            Self::Qwen3moe => "qwen3moe",
            Self::Qwen35moe => "qwen35moe",
            Self::Lfm2moe => "lfm2moe",
            Self::GptOss => "gpt-oss",
            Self::Gemma4 => "gemma4",
            Self::Granite => "granite",
            Self::Gemma2 => "gemma2",
            Self::Phi3 => "phi3",
            Self::Mistral3 => "mistral3",
            Self::Qwen3vl => "qwen3vl",
            Self::Spark25 => "spark2_5",
            Self::GemmaEmbedding => "gemma-embedding",
        }
    }

    /// The rules that cut text into words, by the name that such models' files have for them.
    pub fn pre(self) -> &'static str {
        match self {
            Self::Qwen35 | Self::Qwen35moe => "qwen35",
            Self::Qwen3 | Self::Qwen2 | Self::Qwen3moe | Self::Qwen3vl => "qwen2",
            Self::Llama
            | Self::Smollm3
            | Self::Gemma2
            | Self::Gemma3
            | Self::Gemma4
            | Self::GemmaEmbedding => "llama-bpe",
            Self::Granite => "dbrx",
            Self::Phi3 => "gpt-4o",
            Self::Mistral3 => "tekken",
            Self::Spark25 => "spark2_5",
            Self::Lfm2 | Self::Lfm2moe => "lfm2",
            Self::GptOss => "gpt-4o",
        }
    }

    /// The norm before the MLP.
    pub fn mlp_norm(self) -> &'static str {
        match self {
            Self::Qwen35 | Self::Qwen35moe | Self::GptOss => "post_attention_norm.weight",
            _ => "ffn_norm.weight",
        }
    }

    /// The norm before the LM head.
    pub fn output_norm(self) -> &'static str {
        match self {
            Self::Lfm2 | Self::Lfm2moe => "token_embd_norm.weight",
            _ => "output_norm.weight",
        }
    }

    /// Whether queries and keys are normed.
    pub fn has_head_norms(self) -> bool {
        match self {
            Self::Qwen35
            | Self::Qwen3
            | Self::Gemma3
            | Self::Gemma4
            | Self::GemmaEmbedding
            | Self::Lfm2
            | Self::Qwen3moe
            | Self::Qwen35moe
            | Self::Lfm2moe
            | Self::Qwen3vl => true,
            Self::Llama
            | Self::Qwen2
            | Self::Smollm3
            | Self::GptOss
            | Self::Granite
            | Self::Gemma2
            | Self::Phi3
            | Self::Mistral3
            | Self::Spark25 => false,
        }
    }

    /// Base of the rotary embedding's angles.
    pub fn freq_base(self) -> f32 {
        match self {
            Self::Qwen35 | Self::Qwen35moe => 1e7,
            Self::Qwen3
            | Self::Qwen2
            | Self::Gemma3
            | Self::Gemma4
            | Self::GemmaEmbedding
            | Self::Lfm2
            | Self::Qwen3moe
            | Self::Lfm2moe => 1e6,
            Self::Llama | Self::Gemma2 | Self::Phi3 => 1e4,
            Self::Granite => 1e7,
            Self::Mistral3 | Self::Spark25 => 1e6,
            Self::Qwen3vl | Self::Smollm3 => 5e6,
            Self::GptOss => 1.5e5,
        }
    }
}
