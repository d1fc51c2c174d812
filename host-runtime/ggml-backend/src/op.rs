//! The ops of ggml that this backend knows, by number. [`crate::host`] compares numbers and names.

use std::ffi::c_int;

/// Defines an enum of numbers with ggml's names, from one table.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $number:literal $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $text] $variant = $number,)+
        }

        impl $name {
            /// Numbers and names.
            pub const NAMES: &[(c_int, &str)] = &[$(($number, $text),)+];

            /// The one with a number; `None` if this backend has no use for it.
            pub const fn of(number: c_int) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// `ggml_op`.
    Op {
        None = 0 "NONE",
        Dup = 1 "DUP",
        Add = 2 "ADD",
        AddId = 3 "ADD_ID",
        Sub = 6 "SUB",
        Mul = 7 "MUL",
        Div = 8 "DIV",
        Sqr = 9 "SQR",
        Sqrt = 10 "SQRT",
        Log = 11 "LOG",
        Sin = 12 "SIN",
        Cos = 13 "COS",
        SumRows = 15 "SUM_ROWS",
        Mean = 17 "MEAN",
        Argmax = 18 "ARGMAX",
        Repeat = 20 "REPEAT",
        Concat = 22 "CONCAT",
        Norm = 24 "NORM",
        RmsNorm = 25 "RMS_NORM",
        L2Norm = 28 "L2_NORM",
        MulMat = 29 "MUL_MAT",
        MulMatId = 30 "MUL_MAT_ID",
        Scale = 32 "SCALE",
        Cpy = 34 "CPY",
        Cont = 35 "CONT",
        Reshape = 36 "RESHAPE",
        View = 37 "VIEW",
        Permute = 38 "PERMUTE",
        Transpose = 39 "TRANSPOSE",
        GetRows = 40 "GET_ROWS",
        SetRows = 42 "SET_ROWS",
        SoftMax = 46 "SOFT_MAX",
        Rope = 48 "ROPE",
        Clamp = 50 "CLAMP",
        Argsort = 69 "ARGSORT",
        TopK = 70 "TOP_K",
        LeakyRelu = 71 "LEAKY_RELU",
        FlashAttnExt = 74 "FLASH_ATTN_EXT",
        SsmConv = 76 "SSM_CONV",
        GatedDeltaNet = 86 "GATED_DELTA_NET",
        Unary = 91 "UNARY",
        Glu = 100 "GLU",
    }
}

numbered! {
    /// `ggml_unary_op`.
    UnaryOp {
        Abs = 0 "ABS",
        Sgn = 1 "SGN",
        Neg = 2 "NEG",
        Step = 3 "STEP",
        Tanh = 4 "TANH",
        Elu = 5 "ELU",
        Relu = 6 "RELU",
        Sigmoid = 7 "SIGMOID",
        Gelu = 8 "GELU",
        GeluQuick = 9 "GELU_QUICK",
        Silu = 10 "SILU",
        HardSwish = 11 "HARDSWISH",
        HardSigmoid = 12 "HARDSIGMOID",
        Exp = 13 "EXP",
        Expm1 = 14 "EXPM1",
        Softplus = 15 "SOFTPLUS",
        GeluErf = 16 "GELU_ERF",
        Xielu = 17 "XIELU",
        Floor = 18 "FLOOR",
        Ceil = 19 "CEIL",
        Round = 20 "ROUND",
        Trunc = 21 "TRUNC",
    }
}

numbered! {
    /// `ggml_glu_op`.
    GluOp {
        Reglu = 0 "REGLU",
        Geglu = 1 "GEGLU",
        Swiglu = 2 "SWIGLU",
        SwigluOai = 3 "SWIGLU_OAI",
        GegluErf = 4 "GEGLU_ERF",
        GegluQuick = 5 "GEGLU_QUICK",
        SwigluClamp = 6 "SWIGLU_CLAMP",
    }
}
