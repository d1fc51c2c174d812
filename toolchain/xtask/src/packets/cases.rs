//! What is counted: ops, shapes, and the most that each may take.

/// A run of one op. What `dtype`, `a` and `b` mean depends on the op; see `packets` in `dsp-runtime/image`.
/// Or what a step does besides MUL_MAT, and what a prompt does, as runs of their ops.
#[derive(Debug)]
pub(super) struct Case {
    op: &'static str,
    dtype: &'static str,
    a: u32,
    b: u32,
    tokens: u32,
    past: u32,
    threads: u32,
    /// Of a step or a prompt: its ops, and how often each is run. Of them the packets of the busiest thread
    /// count.
    pub parts: &'static [(Case, u64)],
    /// Most packets per unit, in the code of phones.
    pub target: Option<f64>,
    /// Packets per unit of ggml-hexagon's kernel on v73, which was counted in the same way with clang 22 -O3,
    /// of the kernel's function alone.
    pub peer: Option<f64>,
}

const fn case(op: &'static str, a: u32, b: u32) -> Case {
    Case { op, dtype: "F32", a, b, tokens: 1, past: 0, threads: 1, parts: &[], target: None, peer: None }
}

const fn mul_mat(dtype: &'static str, outputs: u32, tokens: u32) -> Case {
    Case { dtype, tokens, ..case("MUL_MAT", 1024, outputs) }
}

/// A product by the matrix unit. Its weights are unpacked once for all tokens.
const fn by_hmx(dtype: &'static str, tokens: u32) -> Case {
    Case { dtype, tokens, ..case(MUL_MAT_HMX, 1024, LAYER) }
}

impl Case {
    const fn at_most(self, target: f64) -> Self {
        Self { target: Some(target), ..self }
    }

    const fn beside(self, peer: f64) -> Self {
        Self { peer: Some(peer), ..self }
    }
}

/// Added to the taps of SSM_CONV: SILU of its result.
const WITH_SILU: u32 = 256;

/// The op of a case that has parts.
const STEP: &str = "STEP";
/// A prompt of 512 tokens by the matrix unit, which has parts, too.
const PROMPT: &str = "PROMPT";
/// MUL_MAT, by the matrix unit.
const MUL_MAT_HMX: &str = "MUL_MAT_HMX";
/// FLASH_ATTN_EXT, by the matrix unit.
const FLASH_ATTN_HMX: &str = "FLASH_ATTN_HMX";
/// ATTEND by the matrix unit, with a mask.
const ATTEND_HMX: &str = "ATTEND_HMX";
/// GATED_DELTA_NET, by chunks of tokens.
const GATED_DELTA_NET_CHUNKED: &str = "GATED_DELTA_NET_CHUNKED";
/// The same, with the matrix unit.
const GATED_DELTA_NET_HMX: &str = "GATED_DELTA_NET_HMX";

/// A step of one token after others, so that `keys` keys are seen.
const fn step(model: &'static str, keys: u32, parts: &'static [(Case, u64)]) -> Case {
    Case { dtype: model, past: keys - 1, threads: 4, parts, ..case(STEP, 0, 0) }
}

/// A part of a step, on its threads.
const fn part(op: &'static str, a: u32, b: u32) -> Case {
    Case { threads: 4, past: 1023, ..case(op, a, b) }
}

/// Rows of a part, where there are several: heads that are no matrix of their own.
const fn rows(op: &'static str, a: u32, b: u32, rows: u32) -> Case {
    Case { tokens: rows, past: 0, ..part(op, a, b) }
}

/// Qwen3.5-0.8B: 18 layers of a delta rule with 16 heads, 6 of attention with 8, 24 MLPs of 3,584.
const SMALL: &[(Case, u64)] = &[
    (Case { dtype: "Q4_0x32", ..part("GET_ROWS", 1024, 1) }, 1),
    // Before each mixer and each MLP, and before the head.
    (part("RMS_NORM", 1024, 1), 49),
    (part("QUANTIZE", 1024, 1), 49),
    (part("ADD", 1024, 1), 48),
    // Gates of the delta rule: SIGMOID of one; ADD, SOFTPLUS and MUL of the other.
    (part("SIGMOID", 16, 1), 18),
    (part("ADD", 16, 1), 18),
    (part("SOFTPLUS", 16, 1), 18),
    (part("MUL", 16, 1), 18),
    (part("SSM_CONV", 6144, 4 + WITH_SILU), 18),
    (part("RMS_NORM", 128, 32), 18),
    (part("GATED_DELTA_NET", 128, 16), 18),
    (part("RMS_NORM", 128, 16), 18),
    (rows("GLU", 128, 1, 16), 18),
    // Of attention: heads of queries and of keys, then the gate.
    (part("RMS_NORM", 256, 8), 6),
    (part("RMS_NORM", 256, 2), 6),
    (part("ROPE", 64, 8), 6),
    (part("ROPE", 64, 2), 6),
    (part("FLASH_ATTN_EXT", 256, 8), 6),
    (rows("SIGMOID", 256, 1, 8), 6),
    (rows("MUL", 256, 1, 8), 6),
    // Before the mixer's last matrix.
    (part("QUANTIZE", 2048, 1), 24),
    (part("GLU", 3584, 1), 24),
    (part("QUANTIZE", 3584, 1), 24),
    (part("ARGMAX", HEAD, 1), 1),
];

/// Qwen3.5-4B: 24 layers of a delta rule with 32 heads, 8 of attention with 16, 32 MLPs of 9,216.
const LARGE: &[(Case, u64)] = &[
    (Case { dtype: "Q4_0x32", ..part("GET_ROWS", 2560, 1) }, 1),
    (part("RMS_NORM", 2560, 1), 65),
    (part("QUANTIZE", 2560, 1), 65),
    (part("ADD", 2560, 1), 64),
    (part("SIGMOID", 32, 1), 24),
    (part("ADD", 32, 1), 24),
    (part("SOFTPLUS", 32, 1), 24),
    (part("MUL", 32, 1), 24),
    (part("SSM_CONV", 8192, 4 + WITH_SILU), 24),
    (part("RMS_NORM", 128, 32), 48),
    (part("GATED_DELTA_NET", 128, 32), 24),
    (rows("GLU", 128, 1, 32), 24),
    (part("RMS_NORM", 256, 16), 8),
    (part("RMS_NORM", 256, 4), 8),
    (part("ROPE", 64, 16), 8),
    (part("ROPE", 64, 4), 8),
    (part("FLASH_ATTN_EXT", 256, 16), 8),
    (rows("SIGMOID", 256, 1, 16), 8),
    (rows("MUL", 256, 1, 16), 8),
    (part("QUANTIZE", 4096, 1), 32),
    (part("GLU", 9216, 1), 32),
    (part("QUANTIZE", 9216, 1), 32),
    (part("ARGMAX", HEAD, 1), 1),
];

/// A part of a prompt, on its threads.
const fn of_prompt(op: &'static str, a: u32, b: u32) -> Case {
    Case { tokens: 512, threads: 4, ..case(op, a, b) }
}

/// Heads of a prompt's part that are no matrix of their own.
const fn heads_of_prompt(op: &'static str, a: u32, b: u32, heads: u32) -> Case {
    Case { tokens: 512 * heads, ..of_prompt(op, a, b) }
}

/// A product of a prompt.
const fn product(inputs: u32, outputs: u32) -> Case {
    Case { dtype: "Q4_0x32", ..of_prompt(MUL_MAT_HMX, inputs, outputs) }
}

/// Qwen3.5-0.8B, without the head, of which a prompt has one row: layers as in [`SMALL`].
const SMALL_PROMPT: &[(Case, u64)] = &[
    (Case { dtype: "Q4_0x32", ..of_prompt("GET_ROWS", 1024, 1) }, 1),
    (of_prompt("RMS_NORM", 1024, 1), 48),
    (of_prompt("ADD", 1024, 1), 48),
    // Of the delta rule: q, k and v; the gate of outputs; both gates of heads; outputs.
    (product(1024, 6144), 18),
    (product(1024, 2048), 18),
    (product(1024, 16), 36),
    (product(2048, 1024), 24),
    (of_prompt("SIGMOID", 16, 1), 18),
    (of_prompt("ADD", 16, 1), 18),
    (of_prompt("SOFTPLUS", 16, 1), 18),
    (of_prompt("MUL", 16, 1), 18),
    (of_prompt("SSM_CONV", 6144, 4 + WITH_SILU), 18),
    (of_prompt("RMS_NORM", 128, 32), 18),
    (of_prompt(GATED_DELTA_NET_HMX, 128, 16), 18),
    (of_prompt("RMS_NORM", 128, 16), 18),
    (heads_of_prompt("GLU", 128, 1, 16), 18),
    // Of attention: queries and their gate, keys and values.
    (product(1024, 4096), 6),
    (product(1024, 512), 12),
    (of_prompt("RMS_NORM", 256, 8), 6),
    (of_prompt("RMS_NORM", 256, 2), 6),
    (of_prompt("ROPE", 64, 8), 6),
    (of_prompt("ROPE", 64, 2), 6),
    (of_prompt(FLASH_ATTN_HMX, 256, 8), 6),
    (heads_of_prompt("SIGMOID", 256, 1, 8), 6),
    (heads_of_prompt("MUL", 256, 1, 8), 6),
    (product(1024, 3584), 48),
    (of_prompt("GLU", 3584, 1), 24),
    (product(3584, 1024), 24),
];

/// Outputs of a layer, and of a language model's head.
const LAYER: u32 = 3584;
const HEAD: u32 = 248_320;

pub(super) const CASES: &[Case] = &[
    mul_mat("Q8_0x32", LAYER, 1).at_most(11.7).beside(21.8),
    mul_mat("Q4_0x32", LAYER, 1).at_most(12.0).beside(27.7),
    mul_mat("Q4_1x32", LAYER, 1).at_most(13.0),
    mul_mat("Q5_0x32", LAYER, 1),
    mul_mat("Q5_1x32", LAYER, 1),
    mul_mat("IQ4_NLx32", LAYER, 1).at_most(13.0),
    mul_mat("MXFP4x32", LAYER, 1).at_most(13.0),
    mul_mat("Q2_Kx32", LAYER, 1),
    mul_mat("Q3_Kx32", LAYER, 1),
    mul_mat("Q4_Kx32", LAYER, 1).at_most(14.0),
    mul_mat("Q5_Kx32", LAYER, 1).at_most(17.0),
    mul_mat("Q6_Kx32", LAYER, 1).at_most(20.0).beside(33.3),
    mul_mat("IQ4_XSx32", LAYER, 1),
    mul_mat("F16x32", LAYER, 1).beside(102.7),
    mul_mat("BF16x32", LAYER, 1),
    mul_mat("Q8_0x32", LAYER, 3),
    mul_mat("Q8_0x32", LAYER, 16),
    mul_mat("Q4_0x32", LAYER, 16),
    mul_mat("Q4_1x32", LAYER, 16).at_most(10.0),
    mul_mat("Q5_0x32", LAYER, 16).at_most(10.0),
    mul_mat("Q5_1x32", LAYER, 16).at_most(10.0),
    mul_mat("IQ4_NLx32", LAYER, 16).at_most(10.0),
    mul_mat("MXFP4x32", LAYER, 16).at_most(10.0),
    mul_mat("Q2_Kx32", LAYER, 16),
    mul_mat("Q3_Kx32", LAYER, 16),
    mul_mat("Q4_Kx32", LAYER, 16).at_most(10.0),
    mul_mat("Q5_Kx32", LAYER, 16).at_most(10.0),
    mul_mat("Q6_Kx32", LAYER, 16),
    mul_mat("IQ4_XSx32", LAYER, 16),
    mul_mat("F16x32", LAYER, 16),
    mul_mat("Q8_0x32", HEAD, 1).at_most(11.7),
    mul_mat("Q4_0x32", HEAD, 1).at_most(12.0),
    mul_mat("Q6_Kx32", HEAD, 1),
    mul_mat("F16x32", HEAD, 1),
    mul_mat("Q8_0x32", HEAD, 16),
    mul_mat("Q4_0x32", HEAD, 16),
    // F16 would take minutes: the emulator is slow at permutations. Its tiles cost what they do in a layer.
    mul_mat("Q6_Kx32", HEAD, 16),
    Case { threads: 4, ..mul_mat("Q8_0x32", HEAD, 1) },
    by_hmx("Q8_0x32", 1),
    by_hmx("Q8_0x32", 16),
    by_hmx("Q8_0x32", 32).at_most(26.0),
    by_hmx("Q4_0x32", 1),
    by_hmx("Q4_0x32", 16),
    by_hmx("Q4_0x32", 32).at_most(30.0),
    by_hmx("F16x32", 32),
    by_hmx("Q4_Kx32", 32),
    by_hmx("Q6_Kx32", 32),
    by_hmx("Q8_0x32", 512),
    by_hmx("Q4_0x32", 512),
    Case { past: 5, ..case("GATED_DELTA_NET", 128, 16) }.at_most(2300.0).beside(7274.0),
    Case { past: 5, ..case("GATED_DELTA_NET", 64, 16) }.at_most(620.0).beside(2490.0),
    // A piece of a prompt: one token after the other, and by chunks, in at most 0.6 of the packets.
    Case { past: 256, tokens: 256, ..case("GATED_DELTA_NET", 128, 16) },
    Case { past: 256, tokens: 256, ..case(GATED_DELTA_NET_CHUNKED, 128, 16) }.at_most(1612.0),
    Case { past: 256, tokens: 256, ..case(GATED_DELTA_NET_CHUNKED, 64, 16) },
    Case { past: 256, tokens: 256, ..case(GATED_DELTA_NET_HMX, 128, 16) }.at_most(800.0),
    Case { past: 256, tokens: 256, ..case(GATED_DELTA_NET_HMX, 64, 16) },
    case("QUANTIZE", 1024, 1).at_most(400.0).beside(967.0),
    // What an op takes once, shared by sixteen rows.
    Case { tokens: 16, ..case("QUANTIZE", 1024, 1) }.at_most(400.0).beside(967.0),
    case("QUANTIZE", 3584, 1),
    case("RMS_NORM", 1024, 0).at_most(100.0).beside(169.0),
    Case { tokens: 16, ..case("RMS_NORM", 1024, 0) }.at_most(100.0).beside(169.0),
    case("RMS_NORM", 1024, 1),
    case("RMS_NORM", 128, 32).at_most(50.0).beside(96.0),
    case("L2_NORM", 128, 16).at_most(45.0).beside(90.0),
    case("GLU", 3584, 1).at_most(0.98).beside(4207.0 / 3584.0),
    case("GLU", 3584, 2),
    case("GLU", 2880, 3),
    case("SILU", 6144, 1).at_most(0.82).beside(6559.0 / 6144.0),
    case("SIGMOID", 2048, 1),
    case("ADD", 2560, 1).at_most(0.235).beside(835.0 / 2560.0),
    case("MUL", 4096, 1),
    Case { dtype: "Q4_0x32", ..case("GET_ROWS", 1024, 1) }.at_most(1.18).beside(1680.0 / 1024.0),
    Case { dtype: "Q8_0x32", ..case("GET_ROWS", 1024, 1) },
    Case { past: 5, ..case("ROPE", 64, 8) }.at_most(0.79).beside(761.0 / 512.0),
    Case { past: 5, ..case("ROPE", 128, 8) },
    Case { past: 1023, ..case("FLASH_ATTN_EXT", 256, 8) }.at_most(859.0).beside(457_949.0 / 256.0),
    Case { past: 1023, ..case("FLASH_ATTN_EXT", 128, 8) }.at_most(430.0).beside(254_557.0 / 256.0),
    Case { past: 1023, ..case("FLASH_ATTN_EXT", 64, 8) }.at_most(312.0).beside(204_741.0 / 256.0),
    Case { past: 1023, threads: 4, ..case("FLASH_ATTN_EXT", 256, 8) },
    Case { past: 8191, ..case("FLASH_ATTN_EXT", 256, 8) },
    Case { dtype: "Q8_0_CACHE", past: 1023, ..case("FLASH_ATTN_EXT", 256, 8) },
    // At most 1.3 times what F16 takes.
    Case { dtype: "Q4_R_CACHE", past: 1023, ..case("FLASH_ATTN_EXT", 256, 8) }.at_most(1251.0),
    // A piece of a prompt, without the matrix unit and with it.
    Case { tokens: 512, ..case("FLASH_ATTN_EXT", 256, 8) },
    Case { tokens: 512, ..case(FLASH_ATTN_HMX, 256, 8) },
    Case { dtype: "Q8_0_CACHE", tokens: 512, ..case("FLASH_ATTN_EXT", 256, 8) },
    Case { dtype: "Q8_0_CACHE", tokens: 512, ..case(FLASH_ATTN_HMX, 256, 8) },
    Case { tokens: 512, ..case("FLASH_ATTN_EXT", 64, 8) },
    Case { tokens: 512, ..case(FLASH_ATTN_HMX, 64, 8) },
    Case { tokens: 16, past: 1008, ..case("FLASH_ATTN_EXT", 64, 8) },
    Case { tokens: 16, past: 1008, ..case(FLASH_ATTN_HMX, 64, 8) },
    // As graphs of llama.cpp have it: keys and values in rows of F16, for a multiple of 256 positions, and a
    // causal mask.
    Case { past: 99, ..case("ATTEND", 64, 8) },
    Case { tokens: 16, past: 1008, ..case("ATTEND", 64, 8) },
    Case { tokens: 16, past: 1008, ..case(ATTEND_HMX, 64, 8) },
    Case { tokens: 512, ..case(ATTEND_HMX, 256, 8) },
    Case { past: 5, ..case("SSM_CONV", 6144, 4) }.beside(8957.0 / 6144.0),
    Case { past: 5, ..case("SSM_CONV", 6144, 4 + WITH_SILU) }.at_most(1.302).beside(15_516.0 / 6144.0),
    case("ARGMAX", HEAD, 1).at_most(0.0564).beside(15_746.0 / 248_320.0),
    step("Qwen3.5-0.8B", 1024, SMALL).at_most(750_000.0).beside(1_089_077.0),
    step("Qwen3.5-4B", 1024, LARGE).at_most(1_700_000.0).beside(2_638_208.0),
    Case { dtype: "Qwen3.5-0.8B", parts: SMALL_PROMPT, ..of_prompt(PROMPT, 0, 0) },
];

impl Case {
    /// The name for people, for `--op` and for the file of expected counts.
    pub fn name(&self) -> String {
        let Self { op, dtype, a, b, tokens, past, threads, .. } = self;
        let shape = match *op {
            "MUL_MAT" | MUL_MAT_HMX => format!(" {} {a}x{b}", dtype.trim_end_matches("x32")),
            "GATED_DELTA_NET" | GATED_DELTA_NET_CHUNKED | GATED_DELTA_NET_HMX => format!(" S={a} heads={b}"),
            "L2_NORM" | "ROPE" => format!(" {a} heads={b}"),
            "RMS_NORM" if *b > 1 => format!(" {a} heads={b} weighted"),
            "RMS_NORM" if *b > 0 => format!(" {a} weighted"),
            "GET_ROWS" => format!(" {} {a}", dtype.trim_end_matches("x32")),
            "FLASH_ATTN_EXT" | FLASH_ATTN_HMX | "ATTEND" | ATTEND_HMX => {
                let cache = match *dtype {
                    "F32" => String::new(),
                    cache => format!(" {}", cache.trim_end_matches("_CACHE")),
                };
                format!("{cache} D={a} heads={b} keys={}", past + tokens)
            }
            "SSM_CONV" if *b > WITH_SILU => format!(" {a} taps={} SILU", b - WITH_SILU),
            "SSM_CONV" => format!(" {a} taps={b}"),
            STEP => format!(" {dtype} keys={}", past + tokens),
            PROMPT => format!(" {dtype}"),
            "GLU" => format!(" {a} kind={b}"),
            _ => format!(" {a}"),
        };
        let threads = if *threads > 1 { format!(" threads={threads}") } else { String::new() };
        format!("{op}{shape} T={tokens}{threads}")
    }

    /// Whether it takes long where a float operation is scalar code.
    pub fn large(&self) -> bool {
        let floats = self.op == "MUL_MAT" && self.dtype == "F16x32" && self.tokens > 1;
        // There is no unit where floats are scalar code.
        matches!(self.op, MUL_MAT_HMX | FLASH_ATTN_HMX | ATTEND_HMX | GATED_DELTA_NET_HMX)
            || self.repeats()
            || floats
            || self.tokens >= 256
            || self.past > 4096
            || !self.parts.is_empty()
    }

    /// Whether it runs the loops of a smaller case, only longer.
    pub fn repeats(&self) -> bool {
        self.op == "MUL_MAT" && self.b == HEAD
    }

    /// Whether it takes many seconds, and a case of fewer tokens runs the same loops.
    pub fn long(&self) -> bool {
        let one_by_one = matches!(self.op, "FLASH_ATTN_EXT" | "GATED_DELTA_NET");
        self.repeats() || self.op == PROMPT || (self.tokens >= 256 && one_by_one)
    }

    /// Arguments of the image.
    pub fn arguments(&self) -> Vec<String> {
        let numbers = [self.a, self.b, self.tokens, self.past, self.threads].map(|n| n.to_string());
        ["packets", self.op, self.dtype].map(String::from).into_iter().chain(numbers).collect()
    }

    /// What its work is counted in.
    pub fn unit(&self) -> &'static str {
        match self.op {
            "MUL_MAT" => "32x32 tile, token",
            MUL_MAT_HMX => "32x32 tile",
            "GATED_DELTA_NET" | GATED_DELTA_NET_CHUNKED | GATED_DELTA_NET_HMX => "head, token",
            "QUANTIZE" | "RMS_NORM" | "L2_NORM" => "row",
            "FLASH_ATTN_EXT" | FLASH_ATTN_HMX | "ATTEND" | ATTEND_HMX => "head, 32 keys",
            STEP => "step",
            PROMPT => "token",
            _ => "output",
        }
    }

    /// How much work it is.
    pub fn units(&self) -> u64 {
        let [a, b, tokens] = [self.a, self.b, self.tokens].map(u64::from);
        let units = match self.op {
            "MUL_MAT" => a.div_ceil(32) * b.div_ceil(32),
            MUL_MAT_HMX => return a.div_ceil(32) * b.div_ceil(32),
            "GATED_DELTA_NET" | GATED_DELTA_NET_CHUNKED | GATED_DELTA_NET_HMX | "L2_NORM" => b,
            "RMS_NORM" => b.max(1),
            "QUANTIZE" | STEP | PROMPT => 1,
            "FLASH_ATTN_EXT" | FLASH_ATTN_HMX | "ATTEND" | ATTEND_HMX => {
                b * u64::from(self.past + self.tokens).div_ceil(32)
            }
            "ROPE" => a * b,
            _ => a,
        };
        units * tokens
    }

    /// Bytes of the weights that it reads.
    pub fn weight_bytes(&self) -> Option<u64> {
        let tile = match self.dtype {
            "F16x32" | "BF16x32" => 2048,
            "Q8_0x32" => 1088,
            "Q6_Kx32" => 848,
            "Q5_1x32" => 768,
            "Q5_Kx32" => 720,
            "Q5_0x32" => 704,
            "Q4_1x32" => 640,
            "Q4_Kx32" => 592,
            "Q4_0x32" | "IQ4_NLx32" => 576,
            "IQ4_XSx32" => 560,
            "MXFP4x32" => 544,
            "Q3_Kx32" => 464,
            "Q2_Kx32" => 336,
            _ => return None,
        };
        Some(u64::from(self.a.div_ceil(32)) * u64::from(self.b.div_ceil(32)) * tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = CASES.iter().map(Case::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn every_case_has_work() {
        assert!(CASES.iter().all(|case| case.units() > 0));
        let q8 = mul_mat("Q8_0x32", LAYER, 16);
        assert_eq!((q8.units(), q8.weight_bytes()), (32 * 112 * 16, Some(32 * 112 * 1088)));
    }
}
