//! The kernels by name: what a plan chooses from.

/// Defines the variants, with the names that listings show.
macro_rules! variants {
    ($($(#[$meta:meta])* $variant:ident $text:literal,)+) => {
        /// A kernel. An op has one or several: where it has several, they differ in the types or shapes that
        /// they take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Variant { $($(#[$meta])* $variant,)+ }

        impl Variant {
            /// Every kernel, by its number in [`code`](Self::code).
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that people see.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

variants! {
    /// RMS_NORM.
    RmsNorm "rms_norm",
    /// L2_NORM.
    L2Norm "l2_norm",
    /// MUL_MAT and MUL_MAT_ID with F32 weights.
    MulMatF32 "mul_mat f32",
    /// MUL_MAT and MUL_MAT_ID with F16 weights.
    MulMatF16 "mul_mat f16",
    /// MUL_MAT and MUL_MAT_ID with Q8_0 weights.
    MulMatQ8_0 "mul_mat q8_0",
    /// MUL_MAT and MUL_MAT_ID with Q4_0 weights.
    MulMatQ4_0 "mul_mat q4_0",
    /// MUL_MAT and MUL_MAT_ID with Q4_1 weights.
    MulMatQ4_1 "mul_mat q4_1",
    /// MUL_MAT and MUL_MAT_ID with Q5_0 weights.
    MulMatQ5_0 "mul_mat q5_0",
    /// MUL_MAT and MUL_MAT_ID with Q5_1 weights.
    MulMatQ5_1 "mul_mat q5_1",
    /// MUL_MAT and MUL_MAT_ID with IQ4_NL weights.
    MulMatIQ4NL "mul_mat iq4_nl",
    /// MUL_MAT and MUL_MAT_ID with MXFP4 weights.
    MulMatMXFP4 "mul_mat mxfp4",
    /// MUL_MAT and MUL_MAT_ID with Q1_0 weights.
    MulMatQ1_0 "mul_mat q1_0",
    /// MUL_MAT and MUL_MAT_ID with Q2_0 weights.
    MulMatQ2_0 "mul_mat q2_0",
    /// MUL_MAT and MUL_MAT_ID with Q2_K weights.
    MulMatQ2K "mul_mat q2_k",
    /// MUL_MAT and MUL_MAT_ID with Q3_K weights.
    MulMatQ3K "mul_mat q3_k",
    /// MUL_MAT and MUL_MAT_ID with Q4_K weights.
    MulMatQ4K "mul_mat q4_k",
    /// MUL_MAT and MUL_MAT_ID with Q5_K weights.
    MulMatQ5K "mul_mat q5_k",
    /// MUL_MAT and MUL_MAT_ID with Q6_K weights.
    MulMatQ6K "mul_mat q6_k",
    /// MUL_MAT and MUL_MAT_ID with IQ4_XS weights.
    MulMatIQ4XS "mul_mat iq4_xs",
    /// MUL_MAT and MUL_MAT_ID with BF16 weights.
    MulMatBF16 "mul_mat bf16",
    /// MUL_MAT with F16 weights, by the matrix unit.
    MulMatHmxF16 "mul_mat f16 hmx",
    /// MUL_MAT with BF16 weights, by the matrix unit.
    MulMatHmxBF16 "mul_mat bf16 hmx",
    /// MUL_MAT with MXFP4 weights, by the matrix unit.
    MulMatHmxMXFP4 "mul_mat mxfp4 hmx",
    /// MUL_MAT with Q8_0 weights, by the matrix unit.
    MulMatHmxQ8_0 "mul_mat q8_0 hmx",
    /// MUL_MAT with Q4_0 weights, by the matrix unit.
    MulMatHmxQ4_0 "mul_mat q4_0 hmx",
    /// MUL_MAT with Q5_0 weights, by the matrix unit.
    MulMatHmxQ5_0 "mul_mat q5_0 hmx",
    /// MUL_MAT with IQ4_NL weights, by the matrix unit.
    MulMatHmxIQ4NL "mul_mat iq4_nl hmx",
    /// MUL_MAT with Q4_1 weights, by the matrix unit.
    MulMatHmxQ4_1 "mul_mat q4_1 hmx",
    /// MUL_MAT with Q5_1 weights, by the matrix unit.
    MulMatHmxQ5_1 "mul_mat q5_1 hmx",
    /// MUL_MAT with Q1_0 weights, by the matrix unit.
    MulMatHmxQ1_0 "mul_mat q1_0 hmx",
    /// MUL_MAT with Q2_0 weights, by the matrix unit.
    MulMatHmxQ2_0 "mul_mat q2_0 hmx",
    /// MUL_MAT with Q2_K weights, by the matrix unit.
    MulMatHmxQ2K "mul_mat q2_k hmx",
    /// MUL_MAT with Q3_K weights, by the matrix unit.
    MulMatHmxQ3K "mul_mat q3_k hmx",
    /// MUL_MAT with Q4_K weights, by the matrix unit.
    MulMatHmxQ4K "mul_mat q4_k hmx",
    /// MUL_MAT with Q5_K weights, by the matrix unit.
    MulMatHmxQ5K "mul_mat q5_k hmx",
    /// MUL_MAT with Q6_K weights, by the matrix unit.
    MulMatHmxQ6K "mul_mat q6_k hmx",
    /// MUL_MAT with IQ4_XS weights, by the matrix unit.
    MulMatHmxIQ4XS "mul_mat iq4_xs hmx",
    /// QUANTIZE.
    Quantize "quantize",
    /// GET_ROWS.
    GetRows "get_rows",
    /// SET_ROWS.
    SetRows "set_rows",
    /// ADD.
    Add "add",
    /// MUL.
    Mul "mul",
    /// SCALE.
    Scale "scale",
    /// SILU.
    Silu "silu",
    /// SIGMOID.
    Sigmoid "sigmoid",
    /// SOFTPLUS.
    Softplus "softplus",
    /// EXP.
    Exp "exp",
    /// GLU.
    Glu "glu",
    /// ROPE.
    Rope "rope",
    /// SSM_CONV.
    SsmConv "ssm_conv",
    /// GATED_DELTA_NET with one gate per head and states of whole vectors.
    GatedDeltaNetWhole "gated_delta_net whole",
    /// The same, with many tokens at once.
    GatedDeltaNetChunked "gated_delta_net chunked",
    /// The same, with whole chunks of tokens by the matrix unit.
    GatedDeltaNetHmx "gated_delta_net hmx",
    /// GATED_DELTA_NET with any gates and states.
    GatedDeltaNetGeneral "gated_delta_net general",
    /// FLASH_ATTN_EXT.
    FlashAttn "flash_attn",
    /// FLASH_ATTN_EXT of prompts over caches of F16 and Q8_0, by the matrix unit.
    FlashAttnHmx "flash_attn hmx",
    /// ARGMAX.
    Argmax "argmax",
    /// CPY.
    Cpy "cpy",
    /// CONCAT.
    Concat "concat",
    /// ACCEPT.
    Accept "accept",
    /// SET_TOKENS.
    SetTokens "set_tokens",
    /// NEXT_DRAFT.
    NextDraft "next_draft",
    /// KV_APPEND.
    KvAppend "kv_append",
    /// COPY_SLOT.
    CopySlot "copy_slot",
    /// TOPK_MOE.
    TopkMoe "topk_moe",
    /// WEIGHTED_SUM.
    WeightedSum "weighted_sum",
    /// ADD_ID.
    AddId "add_id",
    /// ATTEND.
    Attend "attend",
    /// ATTEND of prompts to rows of F16, by the matrix unit.
    AttendHmx "attend hmx",
    /// UNARY.
    Unary "unary",
    /// DIV.
    Div "div",
    /// NORM.
    Norm "norm",
    /// SOFT_MAX.
    SoftMax "soft_max",
    /// SUM_ROWS.
    SumRows "sum_rows",
    /// ARGSORT.
    Argsort "argsort",
}

impl Variant {
    /// The number under which a loaded program keeps it.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The kernel of a number; `None` if there is none.
    pub fn parse(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Variant;

    #[test]
    fn codes_are_places_in_the_list() {
        for &variant in Variant::ALL {
            assert_eq!(Variant::parse(variant.code()), Some(variant), "{}", variant.name());
        }
        assert_eq!(Variant::parse(Variant::ALL.len() as u16), None);
    }
}
