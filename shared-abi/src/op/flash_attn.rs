//! FLASH_ATTN_EXT: appends K and V to the caches of their slots, then attends within each slot. KV_APPEND:
//! the first half alone.

use super::rule::{Len, Operands, param, shape};
use super::{DTypes, Layout, OpSpec, Operand, OperandSpec};
use crate::dtype::{DType, TILE_K, TILE_ROWS};
use crate::status::{ErrorCode, Fault};

/// Types of the K cache.
const K_CACHE_TYPES: DTypes = DTypes::of(&[DType::F16x32, DType::Q8_0Cache, DType::Q4RCache]);
/// Types of the V cache.
const V_CACHE_TYPES: DTypes = DTypes::of(&[DType::F16, DType::Q8_0Cache, DType::Q4RCache]);

/// Whether a cache can hold vectors of this width: rotations are of whole vectors of lanes.
const fn holds(cache: Option<DType>, width: u32) -> bool {
    !matches!(cache, Some(DType::Q4RCache)) || width.is_multiple_of(TILE_K as u32)
}

operands! {
    SRC: Src {
        /// q{d,h,t,b}: heads at most [`MAX_HEAD`] wide; t is the token axis.
        Q = OperandSpec::input("q", DTypes::F32, Layout::Rows);
        /// k_cache{d,n,hk,b*slots}: n positions, at least the program's `n_ctx`, or with a window fewer, as a
        /// KV ring; hk divides h. A rotated one has d in whole tiles, and at most dv.
        K_CACHE = OperandSpec::state("k_cache", K_CACHE_TYPES, Layout::Tiled);
        /// v_cache{dv,n,hk,b*slots}. A rotated one has dv in whole tiles.
        V_CACHE = OperandSpec::state("v_cache", V_CACHE_TYPES, Layout::TiledOrRows);
        /// k{d,hk,t,b}: to append. Only together with v.
        K = OperandSpec::input("k", DTypes::F32, Layout::Rows).optional();
        /// v{dv,hk,t,b}: to append.
        V = OperandSpec::input("v", DTypes::F32, Layout::Rows).optional();
        /// mask{n',t',h',b'}: at least `n_ctx` long and t wide; h' divides h, b' divides b.
        MASK = OperandSpec::input("mask", DTypes::of(&[DType::F16]), Layout::Rows).optional();
        /// sinks{h}.
        SINKS = OperandSpec::input("sinks", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// y{dv,h,t,b}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

/// Widest head.
pub const MAX_HEAD: u32 = 512;

wire_enum! {
    /// Which keys a query of FLASH_ATTN_EXT sees, before mask and window.
    pub enum Visibility: u32 {
        /// Keys at positions up to its own.
        Causal = 1 "causal",
        /// Every key of its sequence up to that one's last token in the step: bidirectional within the block.
        Block = 2 "block",
        /// Keys at positions before its step: none of the step's own, whatever the cache has there.
        Past = 3 "past",
        /// Keys of its sequence up to that one's last token in the step, as in [`Block`](Self::Block); a
        /// window hides those behind the query, too.
        Around = 4 "around",
    }
}

params! {
    /// FLASH_ATTN_EXT.
    pub struct FlashAttn {
        /// Factor on q.k.
        pub scale: f32,
        /// A [`Visibility`].
        pub visibility: u32,
        /// Sliding window: keys `window` or more positions before the query are hidden, and those as far
        /// behind it from one that sees [`Around`](Visibility::Around) itself; 0 for none.
        pub window: u32,
        /// Bound of `softcap * tanh(x / softcap)`; 0 for none.
        pub softcap: f32,
        /// ALiBi bias with a mask; 0 for none.
        pub max_bias: f32,
        /// First position that queries see: those before it are hidden.
        pub first: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(FlashAttn::FIELDS);

/// Whether caches of `n` positions have what a step needs of queries that see `window` positions, or all if
/// that is 0: the whole context, or as a KV ring, in which position p is at p mod n. It has whole tiles, and
/// room for the rows of a step beside what the first of them sees.
fn reaches(o: &Operands<'_>, n: Len, window: u32) -> bool {
    let needed = o.tokens().n.saturating_sub(1).saturating_add(window);
    let ring = window > 0 && !n.cut && n.n.is_multiple_of(TILE_ROWS as u32) && n.n >= needed;
    n.covers(Len::fixed(o.header.n_ctx)) || ring
}

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (q, k_cache, v_cache, y) = (o.operand(Q)?, o.operand(K_CACHE)?, o.operand(V_CACHE)?, o.operand(Y)?);
    let [d, h, t, b] = q;
    let (n_ctx, p) = (Len::fixed(o.header.n_ctx), o.params::<FlashAttn>());
    // Token i is at position n_past + i, which the registers keep below n_ctx for the token axis and nothing
    // else.
    shape(d.fixed_up_to(MAX_HEAD) && t == o.tokens(), Q)?;
    let [_, n, hk, _] = k_cache;
    // The first key of a strip is a part of the others there, seen or not.
    let rotated = o.dtype(K_CACHE) == Some(DType::Q4RCache);
    let beside = if rotated && p.window > 0 { TILE_ROWS as u32 - 1 } else { 0 };
    let reach = reaches(o, n, p.window.saturating_add(beside));
    shape(k_cache == [d, n, hk, o.slots_of(b)] && reach && hk.divides(h), K_CACHE)?;
    let dv = v_cache[0];
    shape(dv.fixed_up_to(MAX_HEAD) && v_cache == [dv, n, hk, o.slots_of(b)], V_CACHE)?;
    // A rotated query waits in its row of y.
    shape(holds(o.dtype(K_CACHE), d.n) && (!rotated || d.n <= dv.n), K_CACHE)?;
    shape(holds(o.dtype(V_CACHE), dv.n), V_CACHE)?;
    shape(y == [dv, h, t, b], Y)?;
    match (o.optional(K), o.optional(V)) {
        (Some(k), Some(v)) => {
            shape(k == [d, hk, t, b], K)?;
            shape(v == [dv, hk, t, b], V)?;
        }
        (None, None) => {}
        (None, Some(_)) => return Err(Fault::new(ErrorCode::BadOperand, K.number())),
        (Some(_), None) => return Err(Fault::new(ErrorCode::BadOperand, V.number())),
    }
    if let Some(mask) = o.optional(MASK) {
        let repeated = mask[2].divides(h) && mask[3].divides(b);
        shape(mask[0].covers(n_ctx) && mask[1].covers(t) && repeated, MASK)?;
    }
    if let Some(sinks) = o.optional(SINKS) {
        shape(sinks == [h, Len::ONE, Len::ONE, Len::ONE], SINKS)?;
    }
    param(p.scale.is_finite(), word!(FlashAttn.scale))?;
    param(Visibility::parse(p.visibility).is_some(), word!(FlashAttn.visibility))?;
    param(p.softcap.is_finite() && p.softcap >= 0.0, word!(FlashAttn.softcap))?;
    param(p.max_bias.is_finite() && p.max_bias >= 0.0, word!(FlashAttn.max_bias))
}

pub mod kv_append {
    //! KV_APPEND: K and V rows into rows `n_past..` of their slots' caches.

    use super::super::rule::{Operands, shape};
    use super::super::{DTypes, Layout, OpSpec, OperandSpec};
    use super::{K_CACHE_TYPES, MAX_HEAD, V_CACHE_TYPES, holds, reaches};
    use crate::status::Fault;

    operands! {
        SRC: Src {
            /// k{d,hk,t,b}: t is the token axis.
            K = OperandSpec::input("k", DTypes::F32, Layout::Rows);
            /// v{dv,hk,t,b}.
            V = OperandSpec::input("v", DTypes::F32, Layout::Rows);
        }
        DST: Dst {
            /// k_cache{d,n,hk,b*slots}: n positions, at least the program's `n_ctx`, or a KV ring that has
            /// room for the rows.
            K_CACHE = OperandSpec::output("k_cache", K_CACHE_TYPES, Layout::Tiled);
            /// v_cache{dv,n,hk,b*slots}.
            V_CACHE = OperandSpec::output("v_cache", V_CACHE_TYPES, Layout::TiledOrRows);
        }
    }

    pub(in crate::op) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

    fn check(o: &Operands<'_>) -> Result<(), Fault> {
        let (k, v) = (o.operand(K)?, o.operand(V)?);
        let (k_cache, v_cache) = (o.operand(K_CACHE)?, o.operand(V_CACHE)?);
        let ([d, hk, t, b], [dv, ..], n) = (k, v, k_cache[1]);
        // As in FLASH_ATTN_EXT: positions are bounded for the token axis and nothing else.
        shape(d.fixed_up_to(MAX_HEAD) && t == o.tokens(), K)?;
        shape(dv.fixed_up_to(MAX_HEAD) && v == [dv, hk, t, b], V)?;
        shape(reaches(o, n, 1) && k_cache == [d, n, hk, o.slots_of(b)], K_CACHE)?;
        shape(v_cache == [dv, n, hk, o.slots_of(b)], V_CACHE)?;
        shape(holds(o.dtype(K_CACHE), d.n), K_CACHE)?;
        shape(holds(o.dtype(V_CACHE), dv.n), V_CACHE)
    }
}
