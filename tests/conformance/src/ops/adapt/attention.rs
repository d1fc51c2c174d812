//! FLASH_ATTN_EXT: caches in tiles, queries at the end of the context. And ATTEND: keys and values as rows,
//! which is the same case as ggml has it.
//!
//! The case's keys are the context; its queries are the last tokens of it. Without a causal mask they see all
//! of it: `Visibility::Block`. A causal mask is what hexflash computes by itself, so it is left out unless
//! ALiBi needs it.

use hexflash_abi::dtype::TILE_ROWS;
use hexflash_abi::op::params::{self, Visibility};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, Op};
use hexflash_oracle::cases::{CaseKind, Mask};
use hexflash_oracle::{GgmlType, Tensor, ops};

use super::super::plan::{OpProgram, POISON, dims};
use super::super::tiles::{pack, pack_q8_0_cache};
use super::{Outcome, STEP, Trial};

/// A way to bring keys and values to the device.
struct Way {
    name: &'static str,
    /// Whether the step's own are appended by the op, or are in the caches already.
    append: bool,
    /// Rows of the token axis that the step does not use.
    spare: u32,
    /// Positions of the caches that the step does not reach.
    beyond: u32,
    /// Whether the program is of the class `fast`.
    fast: bool,
}

const WAYS: [Way; 3] = [
    Way { name: "appended", append: true, spare: 0, beyond: 0, fast: false },
    Way { name: "cached", append: false, spare: 0, beyond: 0, fast: false },
    Way { name: "part of the token axis, longer caches", append: true, spare: 3, beyond: 40, fast: false },
];

/// By the matrix unit, where the device lends one.
const BY_UNIT: Way = Way { name: "matrix unit", append: true, spare: 3, beyond: 40, fast: true };

/// Pairs of matrix tiles above which attention is not computed by the matrix unit, too.
const MOST_TILES: u64 = 1 << 13;

/// Whether a case is computed by the unit, too: over caches, and over rows.
fn is_for_unit(trial: &Trial<'_>) -> [bool; 2] {
    let CaseKind::FlashAttn { dk, dv, heads, group, seqs, kv, nq, kv_ty, .. } = trial.case.kind else {
        return [false; 2];
    };
    let tiles = |n: i64| (n + 31) / 32;
    let rows = nq * group;
    let products = heads * seqs * tiles(rows) * tiles(kv) * (2 * tiles(dk) + 1 + tiles(dv));
    let suits = nq >= 16 && rows >= 32 && trial.takes_matrix_unit(products as u64, MOST_TILES);
    // Keys that are no matrix tiles do not fit into a worker's VTCM if heads are long.
    let codes = kv_ty == GgmlType::Q8_0;
    [suits && (!codes || dk <= 448), suits && !codes && dk <= 256]
}

/// Whether a mask is what hexflash computes by itself.
fn is_causal(mask: Mask, max_bias: f32) -> bool {
    matches!(mask, Mask::Causal) && max_bias == 0.0
}

/// Appends and attends; more ways for our own cases. Then attends to rows.
pub fn flash_attn(trial: &mut Trial<'_>) -> Outcome {
    if !trial.only_matrix_unit {
        let ways = if trial.thorough() { &WAYS[..] } else { &WAYS[..1] };
        ways.iter().try_for_each(|way| one(trial, way))?;
        to_rows(trial, "rows", false)?;
    }
    let [over_caches, over_rows] = is_for_unit(trial);
    if over_caches {
        one(trial, &BY_UNIT)?;
    }
    if over_rows { to_rows(trial, "rows, matrix unit", true) } else { Ok(()) }
}

/// Keys and values with the strides of the case if they are F16 or Q8_0, and all that a query sees from the
/// mask. `fast` is the class of the program.
fn to_rows(trial: &mut Trial<'_>, way: &'static str, fast: bool) -> Outcome {
    let CaseKind::FlashAttn { dv, heads, group, seqs, nq, params, .. } = trial.case.kind else {
        unreachable!("called for FLASH_ATTN_EXT only")
    };
    let p = OpProgram::new(1, 1);
    let mut p = if fast { p.fast() } else { p };
    let q = p.input(&trial.x.get("q").clone().permute([0, 2, 1, 3]));
    let [k, v] = ["k", "v"].map(|name| {
        let t = trial.x.get(name);
        if matches!(t.ty, GgmlType::F16 | GgmlType::Q8_0) { p.input(t) } else { p.input(&held(t)) }
    });
    let [mask, sinks] = ["mask", "sinks"].map(|name| trial.x.find(name).map(|t| p.input(t)));
    let y = p.output(DType::F32, [dv, heads * group, nq, seqs].map(|n| n as u32));
    let ops::Attention { scale, max_bias, softcap } = params;
    let parameters = params::Attend { scale, softcap, max_bias };
    p.op(Op::Attend, &[Some(q), Some(k), Some(v), mask, sinks], y, &parameters);
    let memory = trial.run(way, &p, &STEP)?;
    trial.verdict(way, &p.tensor(&memory, y, 1))
}

/// As a cache holds it: Q8_0 as it is, all else as F16.
fn held(t: &Tensor) -> Tensor {
    match t.ty {
        GgmlType::F16 | GgmlType::Q8_0 => t.contiguous(),
        _ => Tensor::f16(t.ne, &t.to_f32()),
    }
}

/// The types of caches of keys and of values of this type, and the bytes of such caches.
fn in_caches(k: &Tensor, v: &Tensor) -> [(DType, Vec<u8>); 2] {
    if k.ty == GgmlType::Q8_0 {
        [(k, true), (v, false)].map(|(t, keys)| (DType::Q8_0Cache, pack_q8_0_cache(t, keys)))
    } else {
        [(DType::F16x32, pack(k)), (DType::F16, v.data.clone())]
    }
}

/// Bytes of a cache of `n` positions that holds the first `filled` of `rows` along axis 1.
fn cache(rows: &Tensor, filled: i64, n: i64) -> Tensor {
    let [d, _, heads, seqs] = rows.ne;
    let row = rows.ty.row_bytes(d as usize);
    let mut data = vec![POISON; row * (n * heads * seqs) as usize];
    let from = rows.data.chunks_exact(row * rows.ne[1] as usize);
    for (to, from) in data.chunks_exact_mut(row * n as usize).zip(from) {
        to[..row * filled as usize].copy_from_slice(&from[..row * filled as usize]);
    }
    Tensor::new(rows.ty, [d, n, heads, seqs], data)
}

/// The last `n` of the rows along axis 1, as F32 {d, heads, n, seqs}: what the projections hand over.
fn new_rows(rows: &Tensor, n: i64) -> Tensor {
    let [d, kv, heads, seqs] = rows.ne;
    let rows = Tensor::f32(rows.ne, &rows.to_f32());
    let skip = rows.nb()[1] * (kv - n) as usize;
    let last = rows.slice([d, n, heads, seqs], None, skip).permute([0, 2, 1, 3]).contiguous();
    Tensor::f32(last.ne, &last.to_f32())
}

fn one(trial: &mut Trial<'_>, way: &Way) -> Outcome {
    let CaseKind::FlashAttn { dv, heads, group, seqs, kv, nq, mask, params, .. } = trial.case.kind else {
        unreachable!("called for FLASH_ATTN_EXT only")
    };
    let (k, v) = (held(trial.x.get("k")), held(trial.x.get("v")));
    let t = nq as u32;
    let max_tokens = t + way.spare;
    let n_ctx = kv as u32 + way.spare + way.beyond;
    let p = OpProgram::new(max_tokens, n_ctx);
    let mut p = if way.fast { p.fast() } else { p };

    // {d, n, h, b} to {d, h, n, b}, as hexflash has queries.
    let q = trial.x.get("q").clone().permute([0, 2, 1, 3]);
    let q = if way.spare == 0 {
        let q = p.input(&q);
        p.on_tokens(q, 2)
    } else {
        p.tokens(&q, 2)
    };
    let filled = if way.append { kv - nq } else { kv };
    let n = i64::from(n_ctx);
    let kc = cache(&k, filled, n);
    let vc = cache(&v, filled, n);
    let [(keys, kc_bytes), (values, vc_bytes)] = in_caches(&kc, &vc);
    let k_cache = p.state(keys, dims(kc.ne), &kc_bytes);
    let v_cache = p.state(values, dims(vc.ne), &vc_bytes);
    let (new_k, new_v) = if way.append {
        (Some(p.tokens(&new_rows(&k, nq), 2)), Some(p.tokens(&new_rows(&v, nq), 2)))
    } else {
        (None, None)
    };
    let causal = is_causal(mask, params.max_bias);
    let mask = trial.x.find("mask").filter(|_| !causal);
    let mask = mask.map(|m| {
        let wide = padded_mask(m, n, i64::from(max_tokens));
        p.input(&wide)
    });
    let sinks = trial.x.find("sinks").map(|s| p.input(s));
    let y = p.token_output([dv as u32, (heads * group) as u32, t, seqs as u32], 2);
    let visibility = if causal { Visibility::Causal } else { Visibility::Block };
    let ops::Attention { scale, max_bias, softcap } = params;
    let parameters =
        params::FlashAttn { scale, visibility: visibility.wire(), window: 0, softcap, max_bias, first: 0 };
    let src = [Some(q), Some(k_cache), Some(v_cache), new_k, new_v, mask, sinks];
    p.op(Op::FlashAttnExt, &src, y, &parameters);

    let memory = trial.run(way.name, &p, &StepRegisters::step((kv - nq) as u32, t))?;
    let [(_, full_k), (_, full_v)] = in_caches(&cache(&k, kv, n), &cache(&v, kv, n));
    let strip = p.nb(k_cache)[1] as usize;
    same_keys(trial, way.name, strip, [&full_k, p.bytes(&memory, k_cache)], n)?;
    trial.same_bytes(way.name, "the V cache", &full_v, p.bytes(&memory, v_cache))?;
    trial.verdict(way.name, &p.tensor(&memory, y, t))
}

/// Compares K caches where there are positions: what is in lanes past the last one is nobody's.
fn same_keys(trial: &Trial<'_>, way: &'static str, strip: usize, [want, got]: [&[u8]; 2], n: i64) -> Outcome {
    let (n, strips) = (n as usize, (n as usize).div_ceil(TILE_ROWS));
    let clean = |bytes: &[u8]| -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (i, strip) in bytes.chunks_exact_mut(strip).enumerate() {
            let lanes = (n - i % strips * TILE_ROWS).min(TILE_ROWS);
            for vector in strip.chunks_exact_mut(4 * TILE_ROWS) {
                vector[4 * lanes..].fill(0);
            }
        }
        bytes
    };
    trial.same_bytes(way, "the K cache", &clean(want), &clean(got))
}

/// The mask with room for `n` positions and `max_tokens` queries: all that is new is hidden from nobody who
/// looks.
fn padded_mask(m: &Tensor, n: i64, max_tokens: i64) -> Tensor {
    let [kv, nq, h, b] = m.ne;
    if kv == n && nq >= max_tokens {
        return m.clone();
    }
    let row = 2 * kv as usize;
    let c = m.contiguous();
    let mut data = vec![POISON; 2 * (n * max_tokens * h * b) as usize];
    for (to, from) in
        data.chunks_exact_mut(2 * (n * max_tokens) as usize).zip(c.data.chunks_exact(row * nq as usize))
    {
        for (to, from) in to.chunks_exact_mut(2 * n as usize).zip(from.chunks_exact(row)) {
            to[..row].copy_from_slice(from);
        }
    }
    Tensor::new(GgmlType::F16, [n, max_tokens, h, b], data)
}
