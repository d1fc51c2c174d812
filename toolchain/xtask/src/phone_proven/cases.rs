//! The cases that are run, and the differences that are known.
//!
//! `cargo xtask phone-proven` holds what it finds against this table; docs/testing/phone-proven.md says the
//! same in words.

/// Versions of Hexagon that the package has a library for.
pub const ARCHS: [&str; 4] = ["v73", "v75", "v79", "v81"];

/// How long the matrix unit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Beside the vectors, as long as the emulator takes: much longer than on a phone.
    Beside,
    /// No time: whoever starts it goes on when it has ended.
    AtOnce,
}

/// Cases of an op, out of ggml's own.
#[derive(Clone, Debug)]
pub struct Row {
    /// The op, by ggml's name.
    pub op: &'static str,
    /// Cases whose parameters fit this expression; all of them where it is empty.
    pub only: &'static str,
    /// How the matrix unit goes.
    pub unit: Unit,
    /// How many there are that ggml-hexagon accepts, by version; none where nobody has counted.
    pub cases: Option<[usize; 4]>,
}

/// A difference of which the reason is known.
#[derive(Debug)]
pub struct Known {
    /// The op, by ggml's name, and how the matrix unit goes.
    pub op: &'static str,
    pub unit: Unit,
    /// Text that the names of its cases have in them.
    pub of: &'static str,
    /// Versions that have it.
    pub archs: &'static [&'static str],
    /// The largest error; more is a failure.
    pub bound: f64,
    /// Why it is no fault of the emulator's, or what is not known about it.
    pub reason: &'static str,
}

/// Differences that are no failure up to their bound.
pub const KNOWN: &[Known] = &[
    Known {
        op: "ROPE",
        unit: Unit::Beside,
        of: "",
        archs: &["v79", "v81"],
        bound: 4e-6,
        reason: "from v79 on the library reduces angles by a difference of qf32 and multiplies it as it is: \
                 up to nine leading bits are gone, as published models of qf32 say; whether phones lose \
                 them is open",
    },
    Known {
        op: "ADD",
        unit: Unit::Beside,
        of: "type=f16",
        archs: &["v73", "v75"],
        bound: 4e-7,
        reason: F16_SUMS,
    },
    Known {
        op: "DIV",
        unit: Unit::Beside,
        of: "type=f16",
        archs: &["v73", "v75"],
        bound: 4e-7,
        reason: F16_SUMS,
    },
    Known {
        op: "FLASH_ATTN_EXT",
        unit: Unit::Beside,
        of: "",
        archs: &ARCHS,
        bound: 10.0,
        reason: "a race of ggml-hexagon's: from three blocks on it writes the factors of a block while the \
                 matrix unit still reads those of the one before; a phone's unit is faster, and an \
                 emulated one is not",
    },
    Known {
        op: "RMS_NORM_MUL_ADD",
        unit: Unit::Beside,
        of: "broadcast=1",
        archs: &ARCHS,
        bound: 2.0,
        reason: "ggml-hexagon's host side fuses RMS_NORM and MUL whatever their shapes, and the kernel knows \
                 one row for all or a row for each; with LM_GGML_HEXAGON_OPFUSION=0 these cases are right",
    },
];

const F16_SUMS: &str = "qf16 of v73 and v75 has an odd last bit in its published model, and a third of the \
                        sums of f16 are one unit off; whether phones round in this way is open";

/// Products in each weight type, by vectors (1 and 4 tokens) and by the matrix unit (9).
const PRODUCTS: &str = "type_a=(f32|f16|q4_0|q4_1|q8_0|iq4_nl|mxfp4),type_b=f32,m=16,n=(1|4|9),k=256,\
                        bs=.[12],1.,nr=.[12],1.";
/// Products with the experts that a router chose, of one token and of a prompt.
const EXPERTS: &str = "type_a=(f16|q4_0|q8_0|mxfp4),type_b=f32,n_mats=4,n_used=2,b=0,m=512,n=(1|32),k=256";
/// Attention by vectors, by one block of the matrix unit, and pipelined.
const ATTENTION: &str = "hsk=(64|128),hsv=(64|128),nh=4,\
                         (nr23=.4,1.,kv=512,nb=(3|75)|nr23=.1,1.,kv=113,nb=(1|32)),mask=1,sinks=0,\
                         max_bias=0.0*,logit_softcap=0.0*,prec=f32,type_K=f16,type_V=f16,permute=.0,1,2,3.";
/// A pipelined one.
const PIPELINED: &str = "hsk=64,hsv=64,nh=4,nr23=.1,1.,kv=512,nb=75,mask=1,sinks=0,max_bias=0.0*,\
                         logit_softcap=0.0*,prec=f32,type_K=f16,type_V=f16,permute=.0,1,2,3.";
/// Tensors without an axis of a thousand and more.
const SMALL: &str = "^(?!.*(1023|1024|2048|4096|8192|16384|32768|65536|131072|262144)).*";
/// Shapes of sums and quotients of two tensors, in all ways to broadcast them.
const PAIRS: &str = "ne=.(10,5,|1,1,(1|8),1.,)";

const fn row(op: &'static str, only: &'static str, cases: [usize; 4]) -> Row {
    Row { op, only, unit: Unit::Beside, cases: Some(cases) }
}

/// Attention whose matrix unit works beside the vectors: the one that has a race.
pub const PIPELINED_ROW: Row =
    Row { op: "FLASH_ATTN_EXT", only: PIPELINED, unit: Unit::Beside, cases: Some([1; 4]) };

/// All that is run.
pub const TABLE: &[Row] = &[
    row("MUL_MAT", PRODUCTS, [32; 4]),
    row("MUL_MAT_ID", EXPERTS, [8; 4]),
    row("ARGSORT", SMALL, [52; 4]),
    Row { op: "FLASH_ATTN_EXT", only: ATTENTION, unit: Unit::AtOnce, cases: Some([8; 4]) },
    PIPELINED_ROW,
    row("GATED_DELTA_NET", "n_seq_tokens=(1|4|127),n_seqs=1", [10; 4]),
    row("SOFT_MAX", "ne=.(16,16|1024,16).*mask=1.*scale=0.1", [12; 4]),
    row("ROPE", "^(?!.*8192).*v=0", [86; 4]),
    row("SSM_CONV", "ne_b=.[349],1024", [15; 4]),
    row("RMS_NORM", "", [21; 4]),
    row("RMS_NORM_MUL_ADD", "", [30; 4]),
    row("ADD_RMS_NORM", "", [25; 4]),
    row("RMS_NORM_MUL_ROPE", "", [72; 4]),
    row("L2_NORM", "", [20; 4]),
    row("NORM", "", [20; 4]),
    row("NORM_MUL_ADD", "", [20; 4]),
    row("SWIGLU", "", [12; 4]),
    row("SWIGLU_OAI", "", [8; 4]),
    row("GEGLU", "", [12; 4]),
    row("SILU", "", [4; 4]),
    row("GELU", "", [4; 4]),
    row("GELU_QUICK", "", [4; 4]),
    row("SIGMOID", "", [4; 4]),
    row("TANH", "", [4; 4]),
    row("EXP", "", [4; 4]),
    row("NEG", "", [4; 4]),
    row("SOFTPLUS", "", [4; 4]),
    row("ADD", PAIRS, [34; 4]),
    row("SUB", PAIRS, [30; 4]),
    row("MUL", PAIRS, [30; 4]),
    row("DIV", PAIRS, [30; 4]),
    row("GET_ROWS", "n=256,m=5,", [5; 4]),
    row("SET_ROWS", "ne=.256,(5|11)", [8; 4]),
    row("CPY", SMALL, [134; 4]),
    row("CONT", SMALL, [18; 4]),
    row("CONCAT", SMALL, [48; 4]),
    row("ADD_ID", SMALL, [36; 4]),
    row("CUMSUM", SMALL, [11; 4]),
    row("CLAMP", SMALL, [2; 4]),
    row("SCALE", SMALL, [4; 4]),
    row("SQR", SMALL, [2; 4]),
    row("SQRT", SMALL, [2; 4]),
    row("SUM_ROWS", SMALL, [3; 4]),
    row("REPEAT", SMALL, [12; 4]),
    row("FILL", SMALL, [3; 4]),
    row("DIAG", SMALL, [3; 4]),
    row("SOLVE_TRI", SMALL, [24; 4]),
    row("TRI", SMALL, [4; 4]),
    row("PAD", SMALL, [21; 4]),
    row("IM2COL", SMALL, [17; 4]),
];

/// The differences that are known of a row.
pub fn known(arch: &str, row: &Row) -> impl Iterator<Item = &'static Known> {
    let (op, unit, arch) = (row.op, row.unit, arch.to_owned());
    KNOWN
        .iter()
        .filter(move |known| known.op == op && known.unit == unit && known.archs.contains(&arch.as_str()))
}

/// A version's place among them.
pub fn arch_index(arch: &str) -> usize {
    ARCHS.iter().position(|known| *known == arch).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_difference_has_a_row_a_bound_and_a_reason() {
        for it in KNOWN {
            assert!(TABLE.iter().any(|row| row.op == it.op && row.unit == it.unit), "{}", it.op);
            assert!(it.bound > 0.0 && it.reason.len() > 40, "{}", it.op);
            assert!(it.archs.iter().all(|arch| ARCHS.contains(arch)), "{}", it.op);
        }
    }

    #[test]
    fn every_row_has_cases() {
        assert!(TABLE.iter().all(|row| row.cases.is_some_and(|cases| cases.iter().all(|n| *n > 0))));
    }
}
