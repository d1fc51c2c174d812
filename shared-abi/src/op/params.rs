//! Parameter structs, stored zero-padded in [`crate::program::OpDesc::params`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! params {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $ty:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)+ }
        const _: () = assert!(core::mem::size_of::<$name>() <= crate::program::MAX_PARAMS * 4);
    };
}

params!(
    /// RMS_NORM and L2_NORM.
    Norm {
        /// Added to the mean of squares (RMS_NORM), or lower bound of the norm (L2_NORM). Finite, not negative.
        eps: f32,
    }
);

params!(
    /// SCALE: `scale * x + bias`.
    Scale {
        /// Factor.
        scale: f32,
        /// Added after.
        bias: f32,
    }
);

params!(
    /// SWIGLU.
    Swiglu {
        /// 1 if, with one input, the gate is its second half (ggml's `swapped`); else 0.
        swapped: u32,
    }
);

wire_enum! {
    /// Which pairs ROPE turns, and by which position.
    pub enum RopeMode: u32 {
        /// Pairs (2i, 2i+1).
        Norm = 0 "NORM",
        /// Pairs (i, i + n/2).
        Neox = 2 "NEOX",
        /// NEOX pairs, four position rows by section.
        Mrope = 8 "MROPE",
        /// NEOX pairs, four position rows, sections interleaved.
        Imrope = 40 "IMROPE",
    }
}

params!(
    /// ROPE, as ggml defines its parameters.
    Rope {
        /// Values of a head that are turned; the rest is copied. Even.
        n_dims: u32,
        /// A [`RopeMode`].
        mode: u32,
        /// Context length of the training, for YaRN.
        n_ctx_orig: u32,
        /// Base of the angles.
        freq_base: f32,
        /// Scale of the positions.
        freq_scale: f32,
        /// Share of extrapolation in YaRN; 0 turns YaRN off.
        ext_factor: f32,
        /// Magnitude of cos and sin.
        attn_factor: f32,
        /// YaRN's fast correction bound.
        beta_fast: f32,
        /// YaRN's slow correction bound.
        beta_slow: f32,
        /// Pairs per position row (time, height, width, extra) in the multi modes.
        sections: [u32; 4],
    }
);

wire_enum! {
    /// Which keys a query of FLASH_ATTN_EXT sees, before mask and window.
    pub enum Visibility: u32 {
        /// Keys at positions up to its own.
        Causal = 1 "causal",
        /// Every key up to the last token of the step: bidirectional within the block.
        Block = 2 "block",
    }
}

params!(
    /// FLASH_ATTN_EXT.
    FlashAttn {
        /// Factor on q.k.
        scale: f32,
        /// A [`Visibility`].
        visibility: u32,
        /// Sliding window: keys `window` or more positions before the query are hidden; 0 for none.
        window: u32,
        /// Bound of `softcap * tanh(x / softcap)`; 0 for none.
        softcap: f32,
        /// ALiBi bias with a mask; 0 for none.
        max_bias: f32,
    }
);

params!(
    /// CONCAT.
    Concat {
        /// Axis, 0 to 3.
        axis: u32,
    }
);

params!(
    /// SSM_CONV.
    SsmConv {
        /// 1 to leave the ring as the last commit has it and put the step's rows on the tape; 0 to advance it.
        defer: u32,
    }
);

params!(
    /// GATED_DELTA_NET.
    DeltaNet {
        /// 1 to leave the state as the last commit has it and put the step's tokens on the tape; 0 to advance it.
        defer: u32,
    }
);

params!(
    /// ACCEPT.
    Accept {
        /// Tokens of a drafted block, anchor included: what `n_tokens` becomes. At least 2.
        block: u32,
        /// The program's `n_ctx`.
        n_ctx: u32,
    }
);

params!(
    /// SET_TOKENS.
    SetTokens {
        /// The [`Register`](crate::registers::Register) to take.
        register: u32,
        /// Added to its value.
        plus: u32,
    }
);
