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
        Sqr = 9 "SQR",
        Argmax = 18 "ARGMAX",
        Concat = 22 "CONCAT",
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
        Rope = 48 "ROPE",
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
        Neg = 2 "NEG",
        Sigmoid = 7 "SIGMOID",
        Silu = 10 "SILU",
        Exp = 13 "EXP",
        Softplus = 15 "SOFTPLUS",
    }
}

numbered! {
    /// `ggml_glu_op`.
    GluOp {
        Geglu = 1 "GEGLU",
        Swiglu = 2 "SWIGLU",
        SwigluOai = 3 "SWIGLU_OAI",
    }
}
