//! The lists themselves, by operation.

mod attention;
mod copy;
mod delta_net;
mod elementwise;
mod matmul;
mod rope;

use super::{Case, CaseKind, Origin};
use crate::tensor::GgmlType;

/// Types of weights and caches that hexflash knows or may know, in upstream's order.
const ALL_TYPES: [GgmlType; 18] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::MXFP4,
    GgmlType::Q1_0,
    GgmlType::Q2_0,
    GgmlType::Q2_K,
    GgmlType::Q3_K,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
    GgmlType::IQ4_NL,
    GgmlType::IQ4_XS,
];

/// Cases being collected.
#[derive(Default)]
struct List(Vec<Case>);

impl List {
    fn up(&mut self, kind: CaseKind) {
        self.0.push(Case::new(Origin::Upstream, kind));
    }

    fn edge(&mut self, kind: CaseKind) {
        self.0.push(Case::new(Origin::Edge, kind));
    }

    fn model(&mut self, kind: CaseKind) {
        self.0.push(Case::new(Origin::Model, kind));
    }
}

/// Widths of the published Qwen3.5 models that the model cases use.
struct Shape {
    /// Residual stream.
    embd: i64,
    /// Feed-forward.
    ff: i64,
    /// Query heads of 256.
    q_heads: i64,
    /// Key and value heads of 256.
    kv_heads: i64,
    /// Key heads of 128 of the linear layers (there are 16 in all of them).
    k_heads: i64,
    /// Value heads per key head.
    v_per_k: i64,
}

impl Shape {
    /// Channels of the convolution: queries, keys and values of a linear layer.
    fn channels(&self) -> i64 {
        128 * self.k_heads * (2 + self.v_per_k)
    }

    /// Width of the values of a linear layer.
    fn values(&self) -> i64 {
        128 * self.k_heads * self.v_per_k
    }
}

/// Qwen3.5 0.8B, 4B and 9B.
const MODELS: [Shape; 3] = [
    Shape { embd: 1024, ff: 3584, q_heads: 8, kv_heads: 2, k_heads: 16, v_per_k: 1 },
    Shape { embd: 2560, ff: 9216, q_heads: 16, kv_heads: 4, k_heads: 16, v_per_k: 2 },
    Shape { embd: 4096, ff: 12288, q_heads: 16, kv_heads: 4, k_heads: 16, v_per_k: 2 },
];

/// Tokens of a pass: plain decoding, a short draft, a full block.
const WIDTHS: [i64; 3] = [1, 3, 16];

pub(super) fn all() -> Vec<Case> {
    let mut l = List::default();
    matmul::mul_mat(&mut l);
    matmul::mul_mat_id(&mut l);
    matmul::quantize(&mut l);
    matmul::rows(&mut l);
    elementwise::binary(&mut l);
    elementwise::unary(&mut l);
    elementwise::functions(&mut l);
    elementwise::glu(&mut l);
    elementwise::add_id(&mut l);
    elementwise::norms(&mut l);
    rope::rope(&mut l);
    delta_net::ssm_conv(&mut l);
    delta_net::gated_delta_net(&mut l);
    attention::flash_attn(&mut l);
    attention::soft_max(&mut l);
    elementwise::reductions(&mut l);
    copy::argmax(&mut l);
    copy::copies(&mut l);
    l.0
}
