//! MUL_MAT, MUL_MAT_ID, GET_ROWS, SET_ROWS.

use super::super::kind::Layout;
use super::{ALL_TYPES, CaseKind, List, MODELS, WIDTHS};
use crate::tensor::GgmlType::{
    self, BF16, F16, F32, I32, I64, IQ4_NL, MXFP4, Q1_0, Q2_0, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0,
};

/// Upstream's base types, less those that hexflash does not know.
const BASE: [GgmlType; 7] = [F32, F16, Q8_0, Q4_0, Q4_1, Q4_K, MXFP4];
const SAME: [usize; 4] = [0, 1, 2, 3];

fn mm(
    a: GgmlType,
    b: GgmlType,
    mnk: [i64; 3],
    batch: [i64; 2],
    repeat: [i64; 2],
    perm: [usize; 4],
) -> CaseKind {
    let [m, n, k] = mnk;
    CaseKind::MulMat { a, b, m, n, k, batch, repeat, perm, k_alloc: 0 }
}

fn plain(a: GgmlType, m: i64, n: i64, k: i64) -> CaseKind {
    mm(a, F32, [m, n, k], [1, 1], [1, 1], SAME)
}

pub(super) fn mul_mat(l: &mut List) {
    const ONE: [i64; 2] = [1, 1];
    for ty in ALL_TYPES {
        for n in 1..10 {
            l.up(plain(ty, 16, n, 256));
        }
        l.up(plain(ty, 1, 64, 256));
    }
    for ty in [Q4_0, Q8_0, MXFP4] {
        l.up(plain(ty, 2880, 32, 2880));
    }
    for a in BASE {
        // ggml's CPU has no product of a quantized matrix and an F16 one.
        for b in if a.is_quantized() { &[F32][..] } else { &[F32, F16] } {
            let b = *b;
            for k in if a.is_quantized() { &[256][..] } else { &[256, 4] } {
                let k = *k;
                for (bs, nr) in [
                    ([1, 1], [1, 1]),
                    ([1, 1], [2, 1]),
                    ([1, 1], [1, 2]),
                    ([3, 1], [1, 1]),
                    ([3, 1], [2, 1]),
                    ([3, 2], [1, 1]),
                    ([3, 2], [2, 1]),
                    ([3, 2], [1, 2]),
                    ([3, 2], [2, 2]),
                ] {
                    l.up(mm(a, b, [16, 1, k], bs, nr, SAME));
                    l.up(mm(a, b, [16, 16, k], bs, nr, SAME));
                }
                l.up(mm(a, b, [16, 4, k], [3, 2], [2, 2], SAME));
                for perm in [[0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1]] {
                    for n in [1, 8, 16] {
                        l.up(mm(a, b, [16, n, k], [2, 3], ONE, perm));
                    }
                }
                l.up(mm(a, b, [16, 4, k], [2, 3], ONE, [0, 3, 2, 1]));
            }
            for n in [1, 8, 16] {
                l.up(mm(a, b, [16, n, 1024], [3, 2], ONE, SAME));
            }
            l.up(mm(a, b, [16, 8, 256], [1536, 1], ONE, SAME));
        }
    }
    for perm in [[0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1]] {
        for n in [1, 8, 16] {
            l.up(mm(BF16, F32, [16, n, 256], [2, 3], ONE, perm));
        }
    }
    for ty in ALL_TYPES.into_iter().filter(|t| t.is_quantized() && t.block_len() != 256) {
        l.up(plain(ty, 16, 1, ty.block_len() as i64));
    }
    for (m, n, k, nr) in
        [(64, 2, 128, 1), (83, 2, 128, 4), (64, 2, 64, 4), (83, 2, 64, 4), (64, 45, 128, 4), (128, 45, 64, 4)]
    {
        l.up(mm(F16, F32, [m, n, k], [8, 1], [nr, 1], SAME));
    }
    for k in [193, 67] {
        l.up(mm(F16, F32, [1056, 1, k], ONE, [4, 1], [0, 2, 1, 3]));
    }
    l.up(CaseKind::MulMat {
        a: F32,
        b: F32,
        m: 16,
        n: 32,
        k: 32,
        batch: ONE,
        repeat: ONE,
        perm: SAME,
        k_alloc: 64,
    });
    l.up(mm(F32, F32, [64, 77, 77], [12, 1], ONE, SAME));
    l.up(plain(Q4_0, 576, 512, 576));
    l.up(plain(Q4_0, 1, 2048, 8192));
    l.up(plain(Q8_0, 6, 4096, 5120));
    for bs2 in [1, 3] {
        for bs in [1, 2, 4, 8] {
            for nr in [1, 4] {
                for (m, k) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    for ty in [F16, BF16, F32] {
                        l.up(mm(ty, F32, [1056 + m, 1, 128 + k], [bs, bs2], [nr, 1], [0, 2, 1, 3]));
                        let (batch, repeat) = ([bs, bs2], [nr, 1]);
                        let (m, k) = (128 + m, 1056 + k);
                        let k_alloc = 2 * 1056 + k - 1056;
                        l.up(CaseKind::MulMat {
                            a: ty,
                            b: F32,
                            m,
                            n: 1,
                            k,
                            batch,
                            repeat,
                            perm: SAME,
                            k_alloc,
                        });
                    }
                }
            }
        }
    }

    for ty in ALL_TYPES {
        let k = ty.block_len() as i64;
        for (m, n) in [(1, 1), (1, 17), (31, 1), (33, 3), (65, 2), (127, 5)] {
            // For super-blocks ggml rounds activations per 256, and hexflash per 32: of one number alone,
            // which may be small by chance, the difference says nothing.
            if ty.block_len() == 256 && m * n == 1 {
                continue;
            }
            l.edge(plain(ty, m, n, k));
            l.edge(plain(ty, m, n, 3 * k.max(32)));
        }
    }
    for (m, n, k) in [(1, 1, 1), (3, 2, 31), (5, 1, 33), (7, 16, 127)] {
        l.edge(plain(F32, m, n, k));
        l.edge(plain(F16, m, n, k));
    }
    // Pieces of prompts, for types that a matrix unit multiplies.
    for ty in [F16, Q8_0, Q4_0, Q5_0, IQ4_NL] {
        for (m, n, k) in [(96, 33, 1056), (33, 128, 288), (64, 200, 96), (32, 512, 256)] {
            l.edge(plain(ty, m, n, k));
        }
    }
    for ty in [Q1_0, Q2_0] {
        for (m, n, k) in [(96, 33, 1152), (33, 128, 384), (64, 200, 128), (32, 512, 256)] {
            l.edge(plain(ty, m, n, k));
        }
        // Layers of Qwen3 1.7B, which people have in these types.
        for n in WIDTHS {
            for (m, k) in [(2048, 2048), (1024, 2048), (6144, 2048), (2048, 6144)] {
                l.model(plain(ty, m, n, k));
            }
        }
    }
    // Layers, at each width of a pass. The head is a slice: a whole one has 248,320 rows of the same.
    for s in &MODELS {
        let (q, kv) = (256 * s.q_heads, 256 * s.kv_heads);
        let shapes = [
            (s.channels(), s.embd),
            (s.values(), s.embd),
            (s.k_heads * s.v_per_k, s.embd),
            (s.embd, s.values()),
            (2 * q, s.embd),
            (kv, s.embd),
            (s.embd, q),
            (s.ff, s.embd),
            (s.embd, s.ff),
            (8192, s.embd),
        ];
        for n in WIDTHS {
            for (m, k) in shapes {
                l.model(plain(Q8_0, m, n, k));
                l.model(plain(Q4_0, m, n, k));
            }
            l.model(plain(Q6_K, 4096, n, s.embd));
            l.model(plain(F16, 2 * q, n, s.embd));
        }
    }
}

pub(super) fn mul_mat_id(l: &mut List) {
    let by_id = |a, n_mats, n_used, shared, [m, n, k]: [i64; 3]| CaseKind::MulMatId {
        a,
        n_mats,
        n_used,
        shared,
        m,
        n,
        k,
    };
    for shared in [false, true] {
        l.up(by_id(F16, 16, 16, shared, [32, 1024, 16]));
        l.up(by_id(F16, 2, 2, shared, [32, 8192, 64]));
        l.up(by_id(F16, 16, 16, shared, [50, 200, 64]));
    }
    l.up(by_id(F16, 1, 1, false, [8, 16, 1]));
    for ty in BASE {
        for n_mats in [4, 8] {
            for n_used in [1, 2, 4] {
                for shared in [false, true] {
                    for n in [1, 4, 5, 17, 32, 129] {
                        l.up(by_id(ty, n_mats, n_used, shared, [512, n, 256]));
                    }
                }
            }
        }
    }
    for ty in ALL_TYPES.into_iter().filter(|ty| !BASE.contains(ty)) {
        for n in [1, 32] {
            l.up(by_id(ty, 4, 2, false, [512, n, 256]));
        }
    }
    for ty in [Q4_0, MXFP4] {
        l.up(by_id(ty, 32, 4, false, [2880, 32, 2880]));
    }

    for ty in [F32, F16, Q8_0, Q4_0, Q6_K, Q1_0, Q2_0] {
        let k = ty.block_len() as i64;
        for (n_mats, n_used, m, n) in [(1, 1, 1, 1), (3, 3, 33, 2), (5, 1, 31, 70), (9, 7, 65, 150)] {
            l.edge(by_id(ty, n_mats, n_used, true, [m, n, k]));
            l.edge(by_id(ty, n_mats, n_used, false, [m, n, 3 * k.max(32)]));
        }
    }
    // Gate (or up) and down of Qwen3 30B-A3B, Qwen3.5 35B-A3B and LFM2 8B-A1B, whose experts are fewer here.
    for (embd, ff, n_used) in [(2048, 768, 8), (2048, 512, 8), (2048, 1792, 4)] {
        for n in WIDTHS {
            for ty in [Q8_0, Q4_0] {
                l.model(by_id(ty, 16, n_used, true, [ff, n, embd]));
                l.model(by_id(ty, 16, n_used, false, [embd, n, ff]));
            }
        }
    }
}

/// Activations of a product with quantized weights.
pub(super) fn quantize(l: &mut List) {
    for amplitude in [1.0, 1e-4, 1000.0] {
        for layout in [Layout::Dense, Layout::Padded] {
            l.edge(CaseKind::Quantize { ne: [32, 1, 1, 1], layout, amplitude });
            l.edge(CaseKind::Quantize { ne: [256, 5, 1, 1], layout, amplitude });
            l.edge(CaseKind::Quantize { ne: [96, 3, 2, 2], layout, amplitude });
        }
    }
    // All zero: a scale of 0.
    l.edge(CaseKind::Quantize { ne: [288, 2, 1, 1], layout: Layout::Dense, amplitude: 0.0 });
    for s in &MODELS {
        for t in WIDTHS {
            l.model(CaseKind::Quantize { ne: [s.embd, t, 1, 1], layout: Layout::Dense, amplitude: 10.0 });
        }
    }
}

pub(super) fn rows(l: &mut List) {
    let get = |ty, n, m, r, b1, b2, view| CaseKind::GetRows { ty, n, m, r, b1, b2, view };
    for ty in [F32, Q4_0] {
        l.up(get(ty, 300 * 256, 5, 4, 1, 2, false));
        l.up(get(ty, 256, 80_000, 70_000, 2, 1, false));
        l.up(get(ty, 256, 5, 4, 700, 100, false));
    }
    l.up(get(F32, 1, 8, 2, 1, 1, false));
    for ty in ALL_TYPES.into_iter().chain([I32]) {
        for b1 in [1, 7] {
            for view in [false, true] {
                l.up(get(ty, 256, 5, 4, b1, 1, view));
            }
        }
    }
    for ty in ALL_TYPES {
        let n = ty.block_len() as i64;
        l.edge(get(ty, n, 1, 1, 1, 1, false));
        l.edge(get(ty, 3 * n, 7, 33, 1, 1, false));
    }
    for s in &MODELS {
        for r in WIDTHS {
            l.model(get(Q8_0, s.embd, 4096, r, 1, 1, false));
            l.model(get(Q6_K, s.embd, 4096, r, 1, 1, false));
        }
    }

    let set = |ty, idx, ne, repeat, r, view| CaseKind::SetRows { ty, idx, ne, repeat, r, view };
    l.up(set(F32, I64, [1, 8, 1, 3], [1, 1], 2, false));
    l.up(set(F32, I32, [1, 8, 1, 3], [1, 1], 2, false));
    l.up(set(Q8_0, I32, [256, 5, 1, 3], [1, 1], 1, false));
    // ggml has no SET_ROWS into k-quants with a quantizer that needs no search; upstream lists them all.
    for ty in ALL_TYPES {
        for b in [1, 7] {
            for view in [false, true] {
                // A view takes r / 2 rows: upstream's r = 1 would leave none.
                if !view {
                    l.up(set(ty, I64, [256, 5, b, 3], [1, 1], 1, false));
                }
                l.up(set(ty, I64, [256, 11, 1, b], [2, 3], 7, view));
                l.up(set(ty, I64, [3 * ty.block_len() as i64, 3, b, 1], [2, 3], 2, view));
                if !ty.is_quantized() {
                    l.up(set(ty, I64, [31, 3, b, 1], [2, 3], 2, view));
                    if !view {
                        l.up(set(ty, I64, [33, 5, 1, b], [2, 3], 1, false));
                    }
                }
            }
        }
    }
    for ty in [F32, F16, Q8_0] {
        l.edge(set(ty, I32, [ty.block_len() as i64, 1, 1, 1], [1, 1], 1, false));
        l.edge(set(ty, I64, [256, 33, 1, 1], [1, 1], 33, false));
    }
    // Appending to a KV cache.
    for s in &MODELS {
        for r in WIDTHS {
            l.model(set(F16, I64, [256 * s.kv_heads, 512, 1, 1], [1, 1], r, false));
        }
    }
}
